"""Rules of printing: bars and colours only in a terminal, and nothing of a word is cut anywhere else.

NO_COLOR (https://no-color.org) and TERM=dumb take the colours away; bars stay.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from fairbind.cli.mechanisms.tables import find_width

FEWEST_CELLS: Final = 10
STEPS: Final = (0.05, 0.1, 0.2, 0.25, 0.5, 0.75, 1.0)
"""Where a bar may end: a share that people find again in their head."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Kind of standard output. width: its columns, or None where it is no terminal."""

    width: int | None
    has_colours: bool = False
    is_unicode: bool = True

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, where there are any."""
        return click.style(text, fg=colour) if self.has_colours else text

    def bold(self, text: str) -> str:
        """Return the text in bold letters, where there are colours."""
        return click.style(text, bold=True) if self.has_colours else text

    def wrap(self, text: str, indent: str = "") -> list[str]:
        """Return a text as lines of the terminal's width, the further ones indented."""
        return [text] if self.width is None else textwrap.wrap(text, self.width, subsequent_indent=indent)

    def shorten(self, name: str, most: int) -> str:
        """Return a name of at most so many columns, cut in the middle; whole where no terminal is.

        >>> Terminal(80).shorten("ns/a-very-long-namespace", 12), Terminal(None).shorten("ns/abc", 4)
        ('ns/a-v\u2026space', 'ns/abc')
        """
        if self.width is None or len(name) <= most:
            return name
        mark = "\N{HORIZONTAL ELLIPSIS}" if self.is_unicode else "~"
        head = most // 2
        return f"{name[:head]}{mark}{name[len(name) - (most - head - 1) :]}"


def find_terminal(environment: Mapping[str, str] = os.environ) -> Terminal:
    """Return what standard output is now."""
    if not sys.stdout.isatty():
        return Terminal(None)
    has_colours = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return Terminal(find_width(), has_colours, encoding.startswith("utf"))


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks that a bar is drawn with."""

    held: str
    wanted: str
    fair: str
    nothing: str = " "


BLOCKS: Final = Marks("\N{FULL BLOCK}", "\N{LIGHT SHADE}", "\N{BOX DRAWINGS HEAVY VERTICAL}")
LETTERS: Final = Marks("#", "-", "|")


def find_marks(terminal: Terminal) -> Marks:
    """Return the marks that the terminal can show."""
    return BLOCKS if terminal.is_unicode else LETTERS


def find_scale(shares: list[float]) -> float:
    """Return where bars end that show all of these shares.

    >>> find_scale([0.31, 0.07]), find_scale([1.0]), find_scale([])
    (0.5, 1.0, 0.05)
    """
    most = max(shares, default=0.0)
    return next((step for step in STEPS if most <= step), 1.0)


def draw_bar(held: float, fair: float | None, wanted: float, *, scale: float, cells: int, marks: Marks) -> str:
    """Return a bar: what is held, then what is wanted beyond it, and the fair share as a mark on it.

    >>> draw_bar(0.2, 0.3, 0.9, scale=0.5, cells=10, marks=LETTERS)
    '####--|---'
    >>> draw_bar(0.0, None, 0.0, scale=0.5, cells=10, marks=LETTERS)
    '          '
    """
    solid, light = (min(cells, round(share / scale * cells)) for share in (held, wanted))
    if held > 0:
        solid = max(solid, 1)
    bar = list(marks.held * solid + marks.wanted * max(0, light - solid))
    bar += marks.nothing * (cells - len(bar))
    if fair is not None and fair > 0:
        bar[min(cells - 1, round(fair / scale * cells))] = marks.fair
    return "".join(bar)
