"""Writes `report.html`: what a simulation found, on one page that loads nothing and runs no program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, zip_longest
from math import inf
from typing import Any, Final

from fairbind.simulator.charts import COLOURS, MOST_LINES, Line, Points, draw_chart, make_distribution
from fairbind.simulator.results import Run, TaskRow
from fairbind.simulator.scenario import Scenario
from fairbind.what_if.reading import NANOSECONDS

JOB_SIZES: Final = (1, 10, 50, 100, 500)
"""Jobs, which are workload entries, are grouped by how many tasks they have, up to each of these."""
MOST_TABLE_TENANTS: Final = 50
MOST_TABLE_FINDINGS: Final = 30
CENSORED: Final = (
    "Waits and slowdowns are means over all tasks that arrived. "
    "A task that has not started has waited until the end of the run, "
    "and one that has not ended ends as early as it still may. "
    "There is no makespan where the run ended before its tasks."
)

STYLE: Final = """
:root { color-scheme: light dark; --text: #1b1b1b; --quiet: #595959; --page: #ffffff; --rule: #d0d0d0; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececec; --quiet: #b0b0b0; --page: #16181b; --rule: #43474d; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule); }
p, figcaption { color: var(--quiet); } figure { margin: 1rem 0; } figcaption { font-weight: 600; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child { text-align: left; }
tbody th { white-space: nowrap; }
svg { width: 100%; height: auto; } svg path { fill: none; stroke-width: 2; }
svg .grid { stroke: var(--rule); stroke-width: 1; } svg text { fill: var(--text); font-size: 12px; }
.legend span { white-space: nowrap; margin-right: 1rem; color: var(--text); }
.legend svg { width: 24px; height: 8px; vertical-align: middle; }
"""


def compute_report(scenario: Scenario, runs: Sequence[Run]) -> str:
    """Return the page."""
    title = f"Simulation of {scenario.name}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(_describe_scenario(scenario))}</p>",
    ]
    if scenario.composite is not None:
        parts.append(f"<p><strong>A composite: {escape(scenario.composite)}.</strong></p>")
    if scenario.notes:
        parts.append(f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in scenario.notes)}</ul>")
    if any(run.interrupted for run in runs):
        parts.append("<p><strong>The simulation was interrupted; here is what was decided until then.</strong></p>")
    parts += ["<h2>Policies</h2>", *_format_policies(runs)]
    parts += ["<h2>Waiting and completion</h2>", *_draw_distributions(runs), *_format_jobs(runs)]
    for run in runs:
        parts += _describe_run(run)
    return "\n".join([*parts, "</body></html>", ""])


def _describe_scenario(scenario: Scenario) -> str:
    nodes = ", ".join(f"{shape.count} {shape.name}" for shape in scenario.shapes.values())
    span = "to the end" if scenario.horizon is None else f"for {scenario.horizon / NANOSECONDS:g} s"
    return (
        f"Nodes at the start: {nodes}. {len(scenario.tenants)} tenants, {len(scenario.workload)} workload entries, "
        f"{len(scenario.events)} events, seed {scenario.seed}, simulated {span}."
    )


# --- all policies ---


def _format_policies(runs: Sequence[Run]) -> Iterator[str]:
    """Return how fair the policies were and how long tasks waited, and below it what was used of each resource."""
    headings = ["policy", "share error", "worst share error", "Jain's index", "wait s", "95 % of waits s", "slowdown"]
    rows = []
    for run in runs:
        summary = run.summary
        numbers = (
            summary["share_error"]["mean"],
            summary["share_error"]["max"],
            summary["jain"],
            summary["wait_seconds"]["mean"],
            summary["wait_seconds"]["p95"],
            summary["slowdown"]["mean"],
        )
        counts = [str(summary["completed"]), str(summary["unfinished"])]
        rows.append([run.policy, *map(_format_number, numbers), *counts, _format_number(summary["makespan_seconds"])])
    yield _format_table([*headings, "completed", "unfinished", "makespan s"], rows)
    yield f"<p>{CENSORED}</p>"
    resources = sorted({resource for run in runs for resource in run.summary["utilisation"]} - {"pods"})
    yield _format_table(
        ["policy", *(f"{resource} used" for resource in resources)],
        [[run.policy, *(_format_number(run.summary["utilisation"].get(name)) for name in resources)] for run in runs],
    )


def _draw_distributions(runs: Sequence[Run]) -> Iterator[str]:
    """Return how soon tasks started and ended. Of many policies those are drawn under which tasks wait longest."""
    ranked = sorted(runs, key=lambda run: -(run.summary["wait_seconds"]["mean"] or 0.0))
    chosen = [run for run in runs if run in ranked[:MOST_LINES]]
    which = _tell_part(len(chosen), len(runs), " policies, those under which tasks wait longest")
    for is_wait, verb, axis in ((True, "started", "arrival to start"), (False, "ended", "arrival to end")):
        lines = [
            Line(run.policy, _find_distribution(run, is_wait=is_wait), colour)
            for run, colour in zip(chosen, COLOURS, strict=False)
        ]
        title = f"Part of all tasks that {verb} within a time{which}"
        yield draw_chart(title, f"seconds from {axis}", lines, least_top=1.0)


def _find_distribution(run: Run, *, is_wait: bool) -> Points:
    """Return which part of the tasks that arrived started, or ended, within a time."""
    known: list[float] = []
    longest, total = 0.0, 0
    for first, last in _pair_attempts(run.tasks):
        total += 1
        until = first.start if is_wait else last.end
        seconds = ((run.end if until is None else until) - first.arrival) / NANOSECONDS
        longest = max(longest, seconds)
        if until is not None:
            known.append(seconds)
    return make_distribution(known, total, longest)


def _pair_attempts(rows: Sequence[TaskRow]) -> Iterator[tuple[TaskRow, TaskRow]]:
    """Return the first and the last attempt of each task."""
    for row, after in zip_longest(rows, rows[1:]):
        if row.attempts <= 1:
            first = row
        if after is None or after.attempts <= 1:
            yield first, row


def _format_jobs(runs: Sequence[Run]) -> Iterator[str]:
    """Return how long jobs took, by how many tasks they have."""
    sizes: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        tasks = sorted((last for _, last in _pair_attempts(run.tasks)), key=_find_job)
        for _, each in groupby(tasks, key=_find_job):
            job = list(each)
            until = max(run.end if row.end is None else row.end for row in job)
            arrival = min(row.arrival for row in job)
            sizes[_find_size(len(job))][run.policy].append((until - arrival) / NANOSECONDS)
    if not sizes:
        return
    yield "<h3>Jobs by size</h3><p>Mean seconds from a job's first arrival to its last end, over all jobs. "
    yield "A job that has not ended counts up to the end of the run.</p>"
    headings = ["tasks", *(run.policy for run in runs)]
    rows = []
    for place in sorted(sizes):
        found = (sizes[place].get(run.policy) for run in runs)
        means = [None if times is None else sum(times) / len(times) for times in found]
        low = 1 if place == 0 else JOB_SIZES[place - 1] + 1
        rows.append([_name_size(low, place), *map(_format_number, means)])
    yield _format_table(headings, rows)


def _find_job(row: TaskRow) -> tuple[str, str]:
    return row.tenant, row.task.rpartition("-")[0]


def _find_size(tasks: int) -> int:
    return next((place for place, most in enumerate(JOB_SIZES) if tasks <= most), len(JOB_SIZES))


def _name_size(low: int, place: int) -> str:
    if place == len(JOB_SIZES):
        return f"{low} or more"
    return str(low) if JOB_SIZES[place] == low else f"{low} to {JOB_SIZES[place]}"


# --- one policy ---


def _describe_run(run: Run) -> Iterator[str]:
    yield f"<h2>{escape(run.policy)}</h2>"
    yield _draw_shares(run)
    yield from _draw_utilisation(run)
    yield _format_tenants(run.summary["tenants"])
    yield from _format_findings(run)


def _choose_worst_off(tenants: Mapping[str, Any], most: int) -> list[str]:
    """Return so many tenants, in their own order: those that had the least part of their fair share, then by waits."""

    def rank(name: str) -> tuple[float, float]:
        part, wait = tenants[name]["fair_share"]["worst_part"], tenants[name]["wait_seconds"]["mean"]
        return inf if part is None else part, inf if wait is None else -wait

    worst = set(sorted(tenants, key=rank)[:most])
    return [name for name in tenants if name in worst]


def _tell_part(shown: int, there: int, of: str) -> str:
    """Return what a heading adds where not all is shown."""
    return f" ({shown} of {there}{of})" if shown < there else ""


def _draw_shares(run: Run) -> str:
    tenants: Mapping[str, Any] = run.summary["tenants"]
    chosen = _choose_worst_off(tenants, MOST_LINES)
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    fair: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for row in run.shares:
        if row.tenant in held:
            held[row.tenant].append((row.time / NANOSECONDS, row.dominant_share))
            if row.fair_share is not None:
                fair[row.tenant].append((row.time / NANOSECONDS, row.fair_share))
    lines = []
    for name, colour in zip(chosen, COLOURS, strict=False):
        lines.append(Line(name, held[name], colour))
        if fair[name]:
            lines.append(Line(f"{name}, fair share", fair[name], colour, is_dashed=True))
    which = _tell_part(len(chosen), len(tenants), " tenants, those that are worst off")
    return draw_chart(f"Dominant shares and fair shares{which}", "seconds", lines)


def _draw_utilisation(run: Run) -> Iterator[str]:
    """Return the use of each resource over time. Of many shapes those are drawn of which most stays unused."""
    parts: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    unused: dict[tuple[str, str], float] = defaultdict(float)
    for row in run.utilisation:
        if row.resource != "pods" and row.capacity:
            parts[row.resource][row.server_class].append((row.time / NANOSECONDS, row.used / row.capacity))
            unused[row.resource, row.server_class] += row.capacity - row.used
    for resource, by_class in sorted(parts.items()):
        most_unused = sorted(by_class, key=lambda name: -unused[resource, name])[:MOST_LINES]
        chosen = [name for name in by_class if name in most_unused]
        lines = [Line(name, by_class[name], colour) for name, colour in zip(chosen, COLOURS, strict=False)]
        which = _tell_part(len(chosen), len(by_class), " shapes, those with most of it unused")
        yield draw_chart(f"Part of {resource} that is used, by shape of node{which}", "seconds", lines, least_top=1.0)


def _format_tenants(tenants: Mapping[str, Any]) -> str:
    headings = ["tenant", "arrived", "completed", "wait s", "95 % of waits s", "slowdown", "dominant share"]
    headings.append("least part of its fair share while it waited")
    rows = []
    chosen = _choose_worst_off(tenants, MOST_TABLE_TENANTS)
    for name in chosen:
        tenant = tenants[name]
        numbers = (
            tenant["wait_seconds"]["mean"],
            tenant["wait_seconds"]["p95"],
            tenant["slowdown"]["mean"],
            tenant["dominant_share"]["mean"],
            tenant["fair_share"]["worst_part"],
        )
        rows.append([name, str(tenant["arrived"]), str(tenant["completed"]), *map(_format_number, numbers)])
    which = _tell_part(len(chosen), len(tenants), ", those that are worst off; all are in summary.json")
    return f"<h3>Tenants{which}</h3>{_format_table(headings, rows)}"


def _format_findings(run: Run) -> Iterator[str]:
    """Return what the audits found, the most frequent first."""
    yield "<h3>Findings of the audit</h3>"
    if run.findings is None:
        yield "<p>Not made: too many tenants to compare each with each other.</p>"
        return
    looks = len({row.time for row in run.shares})
    if not run.findings:
        yield f"<p>No tenant envied another or would have had more alone, at any of {looks} measurements.</p>"
        return
    shown = min(len(run.findings), MOST_TABLE_FINDINGS)
    which = _tell_part(shown, len(run.findings), " findings, the most frequent ones")
    yield f"<p>Of {looks} measurements, with the dominant shares of the worst one{which}.</p>"
    headings = ["tenant", "would have more", "cause", "measurements", "has", "could have"]
    rows = [
        [
            finding.tenant,
            "in a cluster of its own" if finding.envied is None else f"with what {finding.envied} has",
            finding.cause,
            str(finding.times),
            _format_number(finding.has),
            _format_number(finding.could_have),
        ]
        for finding in run.findings[:MOST_TABLE_FINDINGS]
    ]
    yield _format_table(headings, rows)


def _format_number(number: float | None) -> str:
    return "-" if number is None else f"{number:,.3f}"


def _format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
