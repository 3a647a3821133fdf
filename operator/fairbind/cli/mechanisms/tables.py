"""Tables for a terminal: aligned columns of text and numbers."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence

DEFAULT_WIDTH = 80
NARROWEST = 40
GAP = "  "
INDENT = "    "

_MOST_DECIMALS = 4
_SIGNIFICANT = 6
_LARGEST_FIXED, _SMALLEST_FIXED = 1e9, 1e-3


def find_width() -> int:
    """Return the columns of the terminal (or COLUMNS), and a usual number where there is none."""
    return max(NARROWEST, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns)


def lay_out(rows: Sequence[Sequence[str]], *, numbers_from: int = 1, headings: int = 1) -> list[str]:
    r"""Return the rows as lines with aligned columns, a rule below the first ones.

    numbers_from: the first column that is aligned to the right. headings: how many rows stand above the rule.

    >>> print("\n".join(lay_out([["tenant", "tasks"], ["a", "3.25"], ["b", "12.00"]])))
    tenant  tasks
    ------  -----
    a        3.25
    b       12.00
    """
    widths = [max(measure(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [_join(row, widths, numbers_from) for row in rows]
    if headings:
        lines.insert(headings, GAP.join("-" * width for width in widths))
    return lines


def lay_out_columns(
    first: Sequence[str], others: Sequence[Sequence[str]], *, width: int, headings: int = 1
) -> list[list[str]]:
    """Return as few tables as fit the width, each with the first column and about as many of the others.

    headings: how many rows stand above the rule.

    >>> lay_out_columns(["id", "t"], [["a", "1"], ["b", "2"], ["c", "3"]], width=8)
    [['id  a  b', '--  -  -', 't   1  2'], ['id  c', '--  -', 't   3']]
    """
    for count in range(1, len(others) + 1):
        size = -(-len(others) // count)
        parts = [others[start : start + size] for start in range(0, len(others), size)]
        tables = [lay_out(list(zip(first, *part, strict=True)), headings=headings) for part in parts]
        if max(measure(table[headings]) for table in tables) <= width:
            break
    return tables


def lay_out_side_by_side(rows: Sequence[Sequence[str]], *, keys: int = 1, headings: int = 1) -> list[str]:
    """Return the rows as tables that fit the terminal, a blank line between them.

    keys: so many first columns are one, in each of the tables. headings: how many rows stand above the rule.
    """
    first = [line.rstrip() for line in lay_out([row[:keys] for row in rows], numbers_from=keys, headings=0)]
    others = list(zip(*(row[keys:] for row in rows), strict=True))
    tables = lay_out_columns(first, others, width=find_width(), headings=headings)
    return [line for table in tables for line in ["", *table]][1:]


def lay_out_wrapped(rows: Sequence[Sequence[str]], *, width: int) -> list[str]:
    r"""Return the rows as lines, all to the left, the last column wrapped into the width; the first row is headings.

    >>> print("\n".join(lay_out_wrapped([["id", "takes"], ["drf", "one pool; weight, tasks"]], width=24)))
    id   takes
    ---  -----------------
    drf  one pool; weight,
         tasks
    """
    left = sum(max(measure(cell) for cell in column) + len(GAP) for column in list(zip(*rows, strict=True))[:-1])
    wrapped: list[Sequence[str]] = []
    for row in rows:
        first, *others = textwrap.wrap(row[-1], max(20, width - left)) or [""]
        wrapped.append([*row[:-1], first])
        wrapped += [[""] * (len(row) - 1) + [other] for other in others]
    return lay_out(wrapped, numbers_from=len(rows[0]))


def lay_out_explained(
    rows: Sequence[Sequence[str]], texts: Sequence[str], *, width: int, numbers_from: int = 1, headings: int = 1
) -> list[str]:
    r"""Return the rows as `lay_out` does, and below each its text, indented and wrapped into the width.

    texts: one for each row that is no heading; an empty one has no line.

    >>> print("\n".join(lay_out_explained([["pod", "pods"], ["a-1", "12"]], ["0/3 nodes are free"], width=18)))
    pod  pods
    ---  ----
    a-1    12
        0/3 nodes are
        free
    """
    lines = lay_out(rows, numbers_from=numbers_from, headings=headings)
    first = len(lines) - len(texts)
    explained = lines[:first]
    for line, text in zip(lines[first:], texts, strict=True):
        explained += [line, *wrap(text, width=width, indent=INDENT)]
    return explained


def wrap(text: str, *, width: int, indent: str = "") -> list[str]:
    """Return a text as lines of at most this width; words are not broken, so that names can be copied."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def format_numbers(values: Sequence[float]) -> list[str]:
    """Return numbers that can stand below each other: as many decimals for all, as far as the magnitudes allow.

    >>> format_numbers([3, 0.5, 0]), format_numbers([12345.678, 1]), format_numbers([1e-9, 1e12])
    (['3.0000', '0.5000', '0'], ['12345.7', '1.0'], ['1e-09', '1e+12'])
    """
    sizes = [abs(value) for value in values if value != 0]
    if not sizes:
        return ["0"] * len(values)
    if max(sizes) >= _LARGEST_FIXED or min(sizes) < _SMALLEST_FIXED:
        return [f"{value:.5g}" for value in values]
    if all(float(value).is_integer() for value in values):
        return [f"{value:.0f}" for value in values]
    most, least = (math.floor(math.log10(size)) for size in (max(sizes), min(sizes)))
    decimals = min(_MOST_DECIMALS, max(0, _SIGNIFICANT - 1 - max(0, most), -least))
    return [f"{value:.{decimals}f}" if value != 0 else "0" for value in values]


def format_percents(values: Sequence[float]) -> list[str]:
    """Return parts of 1 as percent.

    >>> format_percents([1, 0.0625])
    ['100.0 %', '6.2 %']
    """
    return [f"{100 * value:.1f} %" for value in values]


def measure(text: str) -> int:
    """Return how many columns of a terminal the text takes.

    >>> measure("cpu"), measure("\u4e2d\u6587")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


def write_text(text: str) -> None:
    """Print the text; what the terminal's encoding lacks is escaped rather than an error in the middle."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def _join(row: Sequence[str], widths: Sequence[int], numbers_from: int) -> str:
    cells = [
        (_pad_left if column >= numbers_from else _pad_right)(cell, width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return GAP.join(cells).rstrip()


def _pad_left(text: str, width: int) -> str:
    return " " * (width - measure(text)) + text


def _pad_right(text: str, width: int) -> str:
    return text + " " * (width - measure(text))
