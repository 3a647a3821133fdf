"""The tables and the page of what was reproduced."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from fairbind.simulator.reproduction.outcome import Outcome, Value

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; overflow-wrap: break-word; padding: .4rem .6rem; }
th, td { border: 1px solid #8888; }
@media (max-width: 40rem) {
  table, tbody, tr, td { display: block; } thead { display: none; } tr { margin-bottom: 1rem; }
  td:nth-child(1)::before { content: "paper says: "; } td:nth-child(2)::before { content: "we get: "; }
  td:nth-child(3)::before { content: "verdict: "; } td:last-child::before { content: "why they differ: "; }
  td::before { font-weight: 600; }
}
img { max-width: 100%; height: auto; background: #fff; }
"""
INDEX: Final = "index.html"
_ESCAPED: Final = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "%#?"})
"""What must not stand in the address of a file as it is."""
_HEADER: Final = ("paper says", "we get", "why they differ")
_JUDGED_HEADER: Final = (*_HEADER[:2], "verdict", _HEADER[2])


def _list_table(outcome: Outcome) -> list[Sequence[str]]:
    """Return the comparisons below their header, with verdicts where there are any."""
    if not any(each.verdict for each in outcome.comparisons):
        return [_HEADER, *((each.paper, each.ours, each.why) for each in outcome.comparisons)]
    return [_JUDGED_HEADER, *((each.paper, each.ours, each.verdict, each.why) for each in outcome.comparisons)]


def write_table(outcome: Outcome, folder: Path) -> None:
    """Write the rows as CSV."""
    with (folder / f"{outcome.name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(outcome.columns)
        writer.writerows([_write_value(value) for value in row] for row in outcome.rows)


def _write_value(value: Value) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def compute_page(outcomes: Sequence[Outcome], scale: str, files: Iterable[str] = ()) -> str:
    """Return index.html, which shows pictures of its own folder and loads nothing else.

    files: the names of all that lies there; what is of none of the outcomes is listed after them.
    """
    known = {f"{outcome.name}.{kind}" for outcome in outcomes for kind in ("svg", "csv")}
    others = sorted(set(files) - known - {INDEX})
    body = "".join([*map(_write_section, outcomes), _write_others(others)])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>The papers\' evaluations</title>'
        f"<style>{_STYLE}</style></head><body><h1>The papers' evaluations, done again</h1>"
        f"<p>Scale: {escape(scale)}. Nothing is tuned to meet a figure.</p>{body}</body></html>\n"
    )


def _write_others(names: Sequence[str]) -> str:
    """Return the section of files that were there before, each with a link and pictures shown."""
    if not names:
        return ""
    items = []
    for name in names:
        address = escape(name.translate(_ESCAPED))
        picture = f'<br><img src="{address}" alt="{escape(name)}">' if name.endswith(".svg") else ""
        items.append(f'<li><a href="{address}">{escape(name)}</a>{picture}</li>')
    return f'<section id="others"><h2>Also in this folder, not of this run</h2><ul>{"".join(items)}</ul></section>'


def _write_section(outcome: Outcome) -> str:
    header, *rows = _list_table(outcome)
    cells = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    return (
        f'<section id="{outcome.name}"><h2>{escape(outcome.name)}: {escape(outcome.title)}</h2>'
        f"<p>{escape(outcome.setting)}</p>"
        f'<img src="{outcome.name}.svg" alt="{escape(outcome.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table>"
        f'<p><a href="{outcome.name}.csv">{outcome.name}.csv</a></p></section>'
    )


def compute_markdown(outcomes: Sequence[Outcome], scale: str) -> str:
    """Return the same as Markdown: a section for each outcome, beside pictures and tables of its own folder."""
    return "\n".join(line for outcome in outcomes for line in _list_lines(outcome, scale))


def _list_lines(outcome: Outcome, scale: str) -> list[str]:
    header, *rows = _list_table(outcome)
    return [
        f"### {outcome.name}",
        "",
        f"{outcome.title}. Scale: **{scale}**. {outcome.setting}",
        "",
        f"![{outcome.title}]({outcome.name}.svg)",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows),
        "",
        f"[{outcome.name}.csv]({outcome.name}.csv)",
        "",
    ]
