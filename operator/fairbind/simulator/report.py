"""Writes `report.html`: what a simulation found, on one page that loads nothing and runs no program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from fairbind.simulator.charts import COLOURS, MOST_LINES, Line, draw_chart, make_distribution
from fairbind.simulator.reading import NANOSECONDS
from fairbind.simulator.results import Run, TaskRow
from fairbind.simulator.scenario import Scenario

JOB_SIZES: Final = (1, 10, 50, 100, 500)
"""Jobs, which are workload entries, are grouped by how many tasks they have, up to each of these."""
MOST_TABLE_TENANTS: Final = 50
MOST_TABLE_FINDINGS: Final = 30

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
    parts += ["<h2>Policies</h2>", _format_policies(runs)]
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


def _format_policies(runs: Sequence[Run]) -> str:
    headings = ["policy", "completed", "unfinished", "makespan s", "wait s", "95 % of waits s", "slowdown"]
    resources = sorted({resource for run in runs for resource in run.summary["utilisation"]} - {"pods"})
    headings += [*(f"{resource} used" for resource in resources), "Jain's index", "share error", "worst share error"]
    rows = []
    for run in runs:
        summary = run.summary
        waits = list(_find_times(run.tasks, is_wait=True))
        slowdowns = [
            (tenant["slowdown"]["mean"], tenant["completed"])
            for tenant in summary["tenants"].values()
            if tenant["completed"]
        ]
        numbers = [
            summary["makespan_seconds"],
            sum(waits) / len(waits) if waits else None,
            _find_percentile(waits, 0.95),
            sum(mean * count for mean, count in slowdowns) / sum(n for _, n in slowdowns) if slowdowns else None,
            *(summary["utilisation"].get(resource) for resource in resources),
            summary["jain"],
            summary["share_error"]["mean"],
            summary["share_error"]["max"],
        ]
        counts = [str(summary["completed"]), str(summary["unfinished"])]
        rows.append([run.policy, *counts, *map(_format_number, numbers)])
    return _format_table(headings, rows)


def _find_percentile(values: Sequence[float], part: float) -> float | None:
    """Return a percentile by linear interpolation."""
    if not values:
        return None
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _draw_distributions(runs: Sequence[Run]) -> Iterator[str]:
    shown = list(zip(runs, COLOURS, strict=False))
    waits = [Line(run.policy, make_distribution(_find_times(run.tasks, is_wait=True)), colour) for run, colour in shown]
    yield draw_chart("Part of the tasks that started within a time", "seconds from arrival to start", waits)
    completions = [
        Line(run.policy, make_distribution(_find_times(run.tasks, is_wait=False)), colour) for run, colour in shown
    ]
    yield draw_chart("Part of the tasks that ended within a time", "seconds from arrival to end", completions)


def _find_times(rows: Iterable[TaskRow], *, is_wait: bool) -> Iterator[float]:
    """Return how long tasks waited for their first start, or took to their end, in seconds."""
    for row in rows:
        until = row.start if is_wait else row.end
        if until is not None and (row.attempts == 1 or not is_wait):
            yield (until - row.arrival) / NANOSECONDS


def _format_jobs(runs: Sequence[Run]) -> Iterator[str]:
    """Return how long jobs took, by how many tasks they have: those that ended whole."""
    sizes: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for _, attempts in groupby(sorted(run.tasks, key=_find_job), key=_find_job):
            job = list(attempts)
            ends = [row.end for row in job if row.end is not None]
            if ends and len(ends) == len({row.task for row in job}):
                arrival = min(row.arrival for row in job)
                sizes[_find_size(len(ends))][run.policy].append((max(ends) - arrival) / NANOSECONDS)
    if not sizes:
        return
    yield "<h3>Jobs by size</h3><p>Mean seconds from a job's first arrival to its last end, of jobs that ended.</p>"
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


def _draw_shares(run: Run) -> str:
    tenants: Mapping[str, Any] = run.summary["tenants"]
    ranked = sorted(tenants, key=lambda name: -(tenants[name]["dominant_share"]["mean"] or 0.0))
    chosen = [name for name in tenants if name in ranked[:MOST_LINES]]
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
    more = len(tenants) - len(chosen)
    which = f" (the {MOST_LINES} tenants that hold most, of {len(tenants)})" if more else ""
    return draw_chart(f"Dominant shares and fair shares{which}", "seconds", lines)


def _draw_utilisation(run: Run) -> Iterator[str]:
    parts: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in run.utilisation:
        if row.resource != "pods" and row.capacity:
            parts[row.resource][row.server_class].append((row.time / NANOSECONDS, row.used / row.capacity))
    for resource, by_class in sorted(parts.items()):
        lines = [Line(name, points, colour) for (name, points), colour in zip(by_class.items(), COLOURS, strict=False)]
        yield draw_chart(f"Part of {resource} that is used, by shape of node", "seconds", lines, least_top=1.0)


def _format_tenants(tenants: Mapping[str, Any]) -> str:
    headings = ["tenant", "arrived", "completed", "wait s", "95 % of waits s", "slowdown", "dominant share"]
    headings.append("least part of its fair share while it waited")
    rows = []
    for name, tenant in list(tenants.items())[:MOST_TABLE_TENANTS]:
        numbers = (
            tenant["wait_seconds"]["mean"],
            tenant["wait_seconds"]["p95"],
            tenant["slowdown"]["mean"],
            tenant["dominant_share"]["mean"],
            tenant["fair_share"]["worst_part"],
        )
        rows.append([name, str(tenant["arrived"]), str(tenant["completed"]), *map(_format_number, numbers)])
    rest = len(tenants) - MOST_TABLE_TENANTS
    more = f"<p>And {rest} more in summary.json.</p>" if rest > 0 else ""
    return _format_table(headings, rows) + more


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
    yield f"<p>Of {looks} measurements, with the dominant shares of the worst one.</p>"
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
    rest = len(run.findings) - MOST_TABLE_FINDINGS
    if rest > 0:
        yield f"<p>And {rest} less frequent ones.</p>"


def _format_number(number: float | None) -> str:
    return "-" if number is None else f"{number:,.3f}"


def _format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
