"""Parts of a page that is read at any width: its style, and tables of which no column is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from fairbind.simulator.charts import DARK, LIGHT

NONE: Final = "-"
_LIGHT_PAGE: Final = {"text": "#1b1b1b", "quiet": "#595959", "page": "#ffffff", "rule": "#d0d0d0"}
_DARK_PAGE: Final = {"text": "#ececec", "quiet": "#b0b0b0", "page": "#16181b", "rule": "#43474d"}


def name_colour(place: int) -> str:
    """Return the class of the tenant at a place; the class of no tenant's where there are no more colours."""
    return f"t{place}" if place < len(LIGHT) else "ink"


def _declare(page: dict[str, str], colours: Sequence[str]) -> str:
    both = {**page, **{name_colour(place): colour for place, colour in enumerate(colours)}}
    return " ".join(f"--{name}: {colour};" for name, colour in both.items())


STYLE: Final = f"""
:root {{ color-scheme: light dark; {_declare(_LIGHT_PAGE, LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_declare(_DARK_PAGE, DARK)} }} }}
* {{ box-sizing: border-box; overflow-wrap: anywhere; }}
body {{ margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }}
h1 {{ line-height: 1.2; }} h2 {{ margin-top: 2.5rem; border-bottom: 1px solid var(--rule); }}
p, figcaption {{ color: var(--quiet); }} figcaption {{ font-weight: 600; }}
figure {{ margin: 0; min-width: 0; }}
.panels {{ display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }}
.panels figure {{ max-width: 30rem; }}
.ink {{ color: var(--text); }}
{" ".join(f".{name_colour(place)} {{ color: var(--{name_colour(place)}); }}" for place in range(len(LIGHT)))}
svg {{ width: 100%; height: auto; }} svg path {{ fill: none; stroke: currentColor; stroke-width: 2; }}
svg .grid {{ stroke: var(--rule); stroke-width: 1; }} svg .area {{ fill: var(--quiet); stroke: none; }}
svg text {{ fill: var(--text); font-size: 12px; }}
.legend span {{ display: inline-block; margin-right: 1rem; color: var(--text); }}
svg.sign {{ width: 24px; height: 8px; margin-right: .4rem; vertical-align: middle; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }}
th, td {{ padding: .3rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: bottom; }}
th:first-child, td:first-child {{ text-align: left; }}
tbody th, .long {{ min-width: 6rem; }} td:not(.long) {{ white-space: nowrap; }}
thead th:not(.long) {{ overflow-wrap: normal; }}
@media (max-width: 62rem) {{
  table, tbody, tr, th, td {{ display: block; }}
  thead {{ position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden; }}
  tbody tr {{ margin-bottom: 1rem; border-bottom: 1px solid var(--rule); }}
  th, td {{ border: 0; padding: .1rem 0; min-width: 0 !important; }}
  td {{ display: flex; justify-content: space-between; gap: 1rem; }}
  td::before {{ content: attr(data-name); min-width: 35%; white-space: normal; color: var(--quiet); text-align: left; }}
}}
"""
"""Where the window is narrower than a table can be, each row becomes a list of names and values."""
_LONG: Final = ' class="long"'
_LONG_WORD, _LONG_CELL = 12, 14
"""Headings with longer words, and longer cells, may be broken anywhere."""


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]], signs: dict[str, str] | None = None) -> str:
    """Return a table. signs: what stands before a row's first cell, as HTML, by that cell."""
    head = "".join(map(_format_heading, headings))
    body = []
    for first, *rest in rows:
        cells = "".join(map(_format_cell, headings[1:], rest))
        sign = (signs or {}).get(first, "")
        body.append(f'<tr role="row"><th scope="row" role="rowheader">{sign}{escape(first)}</th>{cells}</tr>')
    return (
        f'<table role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(body)}</tbody></table>'
    )


def _format_heading(text: str) -> str:
    kind = _LONG if max(map(len, text.split())) > _LONG_WORD else ""
    return f'<th scope="col" role="columnheader"{kind}>{escape(text)}</th>'


def _format_cell(heading: str, text: str) -> str:
    kind = _LONG if len(text) > _LONG_CELL else ""
    return f'<td role="cell"{kind} data-name="{escape(heading)}">{escape(text)}</td>'


def format_number(number: float | None) -> str:
    """Return a number for people.

    >>> format_number(1234.5), format_number(None)
    ('1,234.500', '-')
    """
    return NONE if number is None else f"{number:,.3f}"


def format_seconds(seconds: float | None) -> str:
    """Return a time, in seconds, for people.

    >>> format_seconds(1234.56)
    '1,234.6'
    """
    return NONE if seconds is None else f"{seconds:,.1f}"


def format_part(part: float | None) -> str:
    """Return a part of 1 in per cent, on one line.

    >>> format_part(0.0123).split(), format_part(None)
    (['1.2', '%'], '-')
    """
    return NONE if part is None else f"{100 * part:,.1f}\N{NO-BREAK SPACE}%"
