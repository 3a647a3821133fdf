"""The command `kubectl fairbind top`."""

from __future__ import annotations

import time
from typing import Final

from fairbind.cli.documents import format_document
from fairbind.cli.kubectl.durations import format_duration
from fairbind.cli.kubectl.scope import Scope, list_whole_cluster, read_share_reports
from fairbind.cli.kubectl.tenant_rows import TenantRow, TenantRows, compute_tenant_rows, read_tenant_rows
from fairbind.cli.kubectl.terminal import (
    FEWEST_CELLS,
    Terminal,
    draw_bar,
    find_marks,
    find_scale,
    find_terminal,
)
from fairbind.cli.mechanisms.tables import GAP, lay_out, measure, write_text
from fairbind.model.errors import FairbindError

MOST_ROWS: Final = 20
"""A table shows so many tenants; JSON and YAML have all."""
MOST_RESOURCES: Final = 4
LONGEST_NAME: Final = 24
HEADINGS: Final = ("held", "fair", "wanted", "of", "wait", "oldest")
UNCLAIMED: Final = "*"


def print_top(scope: Scope, output: str) -> None:
    """Look and print. Raises FairbindError when neither the cluster nor a ShareReport can be read."""
    found = find_tenant_rows(scope)
    if output in {"json", "yaml"}:
        write_text(format_document(found.describe(), output))
    else:
        write_text("\n".join(format_top(found, find_terminal())))


def find_tenant_rows(scope: Scope) -> TenantRows:
    """Return the tenants that the user may see."""
    listed = list_whole_cluster(scope)
    if not isinstance(listed, str):
        return compute_tenant_rows(listed, None if scope.everywhere else scope.chosen)
    namespace = None if scope.everywhere else scope.find_namespace()
    reports = read_share_reports(scope, namespace)
    if isinstance(reports, str):
        raise FairbindError(f"{listed}; {reports}")
    whose = "the ShareReports say" if namespace is None else f"namespace {namespace}'s ShareReport says"
    return read_tenant_rows(reports, time.time(), f"{listed}; shown is what {whose}")


def format_top(found: TenantRows, terminal: Terminal) -> list[str]:
    """Return the tenants as lines."""
    waiting = sum(row.pending > 0 for row in found.rows)
    policy = "" if found.policy is None else f"Policy {found.policy}. "
    count = "1 tenant" if len(found.rows) == 1 else f"{len(found.rows)} tenants"
    lines = [f"{policy}{count}, {waiting} with waiting pods."]
    if found.used:
        most = sorted(found.used.items(), key=lambda item: -item[1])[:MOST_RESOURCES]
        lines.append(f"Tenants hold {', '.join(f'{name} {part:.0%}' for name, part in most)}.")
    shown = found.rows[:MOST_ROWS]
    if shown:
        lines += ["", *_lay_out(shown, found.now, terminal)]
    if len(found.rows) > len(shown):
        lines.append(f"and {len(found.rows) - len(shown)} more tenants; -o json has all")
    notes = _explain(shown, terminal)
    if found.unseen:
        notes += terminal.wrap(f"Not seen: {found.unseen}.")
    return [*lines, "", *notes] if notes else lines


def _lay_out(rows: tuple[TenantRow, ...], now: float, terminal: Terminal) -> list[str]:
    words = [_word(row, now, terminal) for row in rows]
    plain = lay_out([["tenant", *HEADINGS], *words])
    width = terminal.width
    cells = 0 if width is None else width - measure(plain[1]) - len(GAP)
    if cells < FEWEST_CELLS:
        return plain
    scale, marks = find_scale([max(row.held, row.fair or 0.0) for row in rows]), find_marks(terminal)
    bars = [draw_bar(row.held, row.fair, row.wanted or 0.0, scale=scale, cells=cells, marks=marks) for row in rows]
    heading = f"0 {'to ' + format(scale, '.0%'):>{cells - 2}}"
    table = lay_out(
        [["tenant", heading, *HEADINGS], *([c[0], bar, *c[1:]] for c, bar in zip(words, bars, strict=True))]
    )
    painted = [
        line.replace(bar, terminal.paint(bar, "yellow" if row.gap else "green"), 1)
        for line, bar, row in zip(table[2:], bars, rows, strict=True)
    ]
    return [*table[:2], *painted]


def _word(row: TenantRow, now: float, terminal: Terminal) -> list[str]:
    name = terminal.shorten(row.path if len(row.path) <= LONGEST_NAME else row.name, LONGEST_NAME)
    return [
        name if row.is_claimed else f"{name} {UNCLAIMED}",
        f"{row.held:.1%}",
        "-" if row.fair is None else f"{row.fair:.1%}",
        "-" if row.wanted is None else f"{row.wanted:.1%}",
        "-" if row.resource is None else row.resource.rpartition("/")[2],
        str(row.pending),
        "-" if row.waiting_since is None else format_duration(now - row.waiting_since),
    ]


def _explain(rows: tuple[TenantRow, ...], terminal: Terminal) -> list[str]:
    lines: list[str] = []
    if rows and terminal.width is not None:
        marks = find_marks(terminal)
        yellow = f"; {terminal.paint('yellow', 'yellow')} waits below its fair share" if terminal.has_colours else ""
        lines.append(f"{marks.held} held  {marks.wanted} wanted  {marks.fair} fair share{yellow}")
    if not all(row.is_claimed for row in rows):
        lines += terminal.wrap(
            f"{UNCLAIMED} no Tenant claims the namespace: it is a tenant of weight 1 by itself", "  "
        )
    return lines
