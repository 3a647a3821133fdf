"""Writes `report.html`: what a simulation found, on one page that loads nothing and runs no program.

Fairness comes first, and tenants that are worst off come before others. A colour is a tenant's in the whole page, a
full line is what it holds and a dashed one its fair share. Charts of policies stand side by side on the same scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, zip_longest
from math import inf
from typing import Any, Final

from fairbind.simulator.charts import (
    INK,
    MOST_LINES,
    Line,
    Points,
    Scale,
    draw_chart,
    draw_rows,
    draw_sign,
    make_distribution,
)
from fairbind.simulator.page_parts import (
    NONE,
    STYLE,
    format_number,
    format_part,
    format_seconds,
    format_table,
    name_colour,
)
from fairbind.simulator.results import Run, TaskRow
from fairbind.simulator.scenario import Scenario
from fairbind.what_if.reading import NANOSECONDS

JOB_SIZES: Final = (1, 10, 50, 100, 500)
"""Jobs, which are workload entries, are grouped by how many tasks they have, up to each of these."""
MOST_TABLE_TENANTS: Final = 50
MOST_TABLE_FINDINGS: Final = 30
MOST_TABLE_RESOURCES: Final = 8
ALL_TASKS: Final = "all tasks"
TIMES: Final = ("wait s", "95 % of waits s", "slowdown")
ERRORS: Final = (
    "The share error is how far the worst waiting tenant is below its fair share, mean over time. "
    "Worst off is the tenant that had the least part of its fair share while it waited, mean over time. "
    "Each policy is compared with its own mechanism."
)
CENSORED: Final = (
    "Waits and slowdowns are over all tasks that arrived. "
    "A task that has not started has waited until the end of the run, and one that has not ended ends as early as it "
    "still may; where there are such tasks, the true number is larger, and ≥ says so. "
    "There is no makespan where the run ended before its tasks."
)
GANGS: Final = (
    "A group has started when its minimum runs. It is torn when fewer ran before that, and interrupted when it lost "
    "tasks with a node and fewer ran for a time."
)
SHARES: Final = (
    "A full line is what a tenant holds, a dashed line its fair share: what the policy's exact mechanism gives it for "
    "what it wants then. Each tenant's share is of the resource of which it has most, so shares may add up to more "
    "than 100 %."
)
STARTS: Final = (
    "A higher line is better. Each is of all tasks that arrived, so it stays below 100 % where some have not started, "
    "or ended, when the run ends."
)


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
    tenants = _rank_tenants([run.summary["tenants"] for run in runs])
    colours = {name: name_colour(place) for place, name in enumerate(tenants[:MOST_LINES])}
    parts += ["<h2>Fairness</h2>", *_format_fairness(runs), *_draw_shares(runs, colours, len(tenants))]
    parts += [
        "<h2>Waiting and completion</h2>",
        *_format_waits(runs),
        *_draw_distributions(runs, colours),
        *_format_jobs(runs),
    ]
    parts += ["<h2>Use of the nodes</h2>", *_format_use(runs), *_draw_use(runs)]
    for run in runs:
        parts += [f"<h2>{escape(run.policy)}</h2>", _format_tenants(run, colours), *_format_findings(run)]
    return "\n".join([*parts, "</body></html>", ""])


def _describe_scenario(scenario: Scenario) -> str:
    nodes = ", ".join(f"{shape.count} {shape.name}" for shape in scenario.shapes.values())
    span = "to the end" if scenario.horizon is None else f"for {scenario.horizon / NANOSECONDS:.12g} s"
    return (
        f"Nodes at the start: {nodes}. {len(scenario.tenants)} tenants, {len(scenario.workload)} workload entries, "
        f"{len(scenario.events)} events, seed {scenario.seed}, simulated {span}."
    )


# --- who is worst off ---


def _rank_tenants(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return all tenants, those that are worst off first.

    They are compared by the part of their fair shares that they had while they waited, then by their waits.
    summaries: of tenants by name, one for each policy; the worst of them counts.
    """

    def rank(name: str) -> tuple[float, float, str]:
        found = [tenants[name] for tenants in summaries if name in tenants]
        parts = [tenant["fair_share"]["mean_part"] for tenant in found]
        waits = [tenant["wait_seconds"]["mean"] for tenant in found]
        least = min((part for part in parts if part is not None), default=inf)
        return least, -max((wait for wait in waits if wait is not None), default=-inf), name

    return sorted({name for tenants in summaries for name in tenants}, key=rank)


def _tell_part(shown: int, there: int, of: str) -> str:
    """Return what a heading adds where not all is shown."""
    return f" ({shown} of {there}{of})" if shown < there else ""


def _format_bound(text: str, *, is_least: bool) -> str:
    """Return a number. is_least: the true one may be larger."""
    return f"≥\N{NO-BREAK SPACE}{text}" if is_least and text != NONE else text


# --- all policies ---


def _format_fairness(runs: Sequence[Run]) -> Iterator[str]:
    """Return how far the policies were from the fair shares of their mechanisms."""
    rows = []
    for run in runs:
        errors = [format_part(run.summary["share_error"][which]) for which in ("mean", "max")]
        rows.append([run.policy, *errors, _name_worst_off(run.summary), format_number(run.summary["jain"])])
    yield format_table(["policy", "share error", "worst share error", "worst off", "Jain's index"], rows)
    yield f"<p>{ERRORS}</p>"


def _format_waits(runs: Sequence[Run]) -> Iterator[str]:
    """Return how long tasks waited and took."""
    rows = []
    for run in runs:
        summary = run.summary
        counts = [str(summary["never_started"]), f"{summary['completed']} of {_count_arrived(summary)}"]
        rows.append([run.policy, *_format_times(summary), *counts, format_seconds(summary["makespan_seconds"])])
    yield format_table(["policy", *TIMES, "not started", "completed", "makespan s"], rows)
    yield f"<p>{CENSORED}</p>"
    yield from _format_gangs(runs)


def _format_gangs(runs: Sequence[Run]) -> Iterator[str]:
    """Return how soon groups started, where there are any."""
    rows = []
    for run in runs:
        of_tenant = {name: tenant["gangs"] for name, tenant in run.summary["tenants"].items() if "gangs" in tenant}
        for name, gangs in list(of_tenant.items())[:MOST_TABLE_TENANTS]:
            if gangs["arrived"]:
                is_cut = gangs["started"] < gangs["arrived"]
                waits = [format_seconds(gangs["wait_seconds"][which]) for which in ("mean", "max")]
                bounds = [_format_bound(wait, is_least=is_cut) for wait in waits]
                counts = [str(gangs["torn"]), str(gangs["interrupted"])]
                rows.append([run.policy, name, f"{gangs['started']} of {gangs['arrived']}", *bounds, *counts])
    if rows:
        yield f"<h3>Groups</h3><p>{GANGS}</p>"
        yield format_table(["policy", "tenant", "started", "wait s", "longest wait s", "torn", "interrupted"], rows)


def _count_arrived(summary: Mapping[str, Any]) -> int:
    completed: int = summary["completed"]
    unfinished: int = summary["unfinished"]
    return completed + unfinished


def _name_worst_off(summary: Mapping[str, Any]) -> str:
    tenants = summary["tenants"]
    for name in _rank_tenants([tenants]):
        part = tenants[name]["fair_share"]["mean_part"]
        if part is not None:
            return f"{name}: {format_part(part)}"
        break
    return NONE


def _format_times(summary: Mapping[str, Any]) -> list[str]:
    """Return mean and late waits and the mean slowdown, of a policy or of one of its tenants."""
    is_cut = summary["never_started"] > 0
    unfinished = summary["unfinished"] if "unfinished" in summary else summary["arrived"] - summary["completed"]
    waits = (format_seconds(summary["wait_seconds"][which]) for which in ("mean", "p95"))
    slowdown = format_number(summary["slowdown"]["mean"])
    return [*(_format_bound(wait, is_least=is_cut) for wait in waits), _format_bound(slowdown, is_least=unfinished > 0)]


def _draw_panels(
    what: str, x_name: str, lines: Mapping[str, Sequence[Line]], *, is_of_all: bool = False
) -> Iterator[str]:
    """Return a chart for each policy, all on one scale. is_of_all: lines are parts of all tasks, so they end at 1."""
    scale = Scale.of(line for some in lines.values() for line in some)
    scale = Scale(scale.right, 1.0) if is_of_all else scale
    yield '<div class="panels">'
    for policy, some in lines.items():
        yield draw_chart(f"{what} under {policy}", policy, x_name, some, scale)
    yield "</div>"


def _format_legend(signs: Iterable[tuple[str, str]]) -> str:
    return f'<p class="legend">{" ".join(f"<span>{sign}{escape(name)}</span>" for sign, name in signs)}</p>'


def _draw_shares(runs: Sequence[Run], colours: Mapping[str, str], there: int) -> Iterator[str]:
    which = _tell_part(len(colours), there, " tenants")
    yield f"<h3>Dominant shares and fair shares{which}, the worst off first</h3><p>{SHARES}</p>"
    signs = [(draw_sign(colour), name) for name, colour in colours.items()]
    yield _format_legend([*signs, (draw_sign(INK), "holds"), (draw_sign(INK, is_dashed=True), "fair share")])
    yield from _draw_panels("Dominant shares and fair shares", "", {r.policy: _find_shares(r, colours) for r in runs})


def _find_shares(run: Run, colours: Mapping[str, str]) -> list[Line]:
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in colours}
    fair: dict[str, list[tuple[float, float]]] = {name: [] for name in colours}
    for row in run.shares:
        if row.tenant in held:
            held[row.tenant].append((row.time / NANOSECONDS, row.dominant_share))
            if row.fair_share is not None:
                fair[row.tenant].append((row.time / NANOSECONDS, row.fair_share))
    lines = [Line(name, held[name], colour) for name, colour in colours.items()]
    return [*lines, *(Line(name, fair[name], colour, is_dashed=True) for name, colour in colours.items() if fair[name])]


def _draw_distributions(runs: Sequence[Run], colours: Mapping[str, str]) -> Iterator[str]:
    """Return how soon tasks started and ended, of each tenant and of all."""
    yield f"<p>{STARTS}</p>"
    signs = [(draw_sign(colour), name) for name, colour in colours.items()]
    yield _format_legend([*signs, (draw_sign(INK), ALL_TASKS)])
    for is_wait, verb, axis in ((True, "started", "from arrival to start"), (False, "ended", "from arrival to end")):
        what = f"Part of tasks that {verb} within a time"
        yield f"<h3>{what}</h3>"
        lines = {run.policy: _find_distributions(run, colours, is_wait=is_wait) for run in runs}
        yield from _draw_panels(what, axis, lines, is_of_all=True)


def _find_distributions(run: Run, colours: Mapping[str, str], *, is_wait: bool) -> list[Line]:
    """Return which part of the tasks that arrived started, or ended, within a time."""
    known: dict[str, list[float]] = defaultdict(list)
    longest: dict[str, float] = defaultdict(float)
    total: dict[str, int] = defaultdict(int)
    for first, last in _pair_attempts(run.tasks):
        until = first.start if is_wait else last.end
        seconds = ((run.end if until is None else until) - first.arrival) / NANOSECONDS
        for name in (first.tenant, ALL_TASKS):
            total[name] += 1
            longest[name] = max(longest[name], seconds)
            if until is not None:
                known[name].append(seconds)

    def find(name: str) -> Points:
        return make_distribution(known[name], total[name], longest[name])

    lines = [Line(ALL_TASKS, find(ALL_TASKS), INK)]
    return [*lines, *(Line(name, find(name), colour) for name, colour in colours.items() if total[name])]


def _pair_attempts(rows: Sequence[TaskRow]) -> Iterator[tuple[TaskRow, TaskRow]]:
    """Return the first and the last attempt of each task."""
    for row, after in zip_longest(rows, rows[1:]):
        if row.attempts <= 1:
            first = row
        if after is None or after.attempts <= 1:
            yield first, row


def _format_jobs(runs: Sequence[Run]) -> Iterator[str]:
    """Return how long jobs took, by how many tasks they have."""
    found: dict[str, dict[int, list[tuple[float, bool]]]] = {run.policy: defaultdict(list) for run in runs}
    for run in runs:
        tasks = sorted((last for _, last in _pair_attempts(run.tasks)), key=_find_job)
        for _, each in groupby(tasks, key=_find_job):
            job = list(each)
            until = max(run.end if row.end is None else row.end for row in job)
            seconds = (until - min(row.arrival for row in job)) / NANOSECONDS
            found[run.policy][_find_size(len(job))].append((seconds, any(row.end is None for row in job)))
    sizes = sorted({size for by_size in found.values() for size in by_size})
    if not sizes:
        return
    yield "<h3>Jobs by size</h3><p>Mean seconds from a job's first arrival to its last end, over all jobs. "
    yield "A job that has not ended counts up to the end of the run; where there are such jobs, ≥ says so.</p>"
    rows = [[policy, *(_format_mean(by_size[size]) for size in sizes)] for policy, by_size in found.items()]
    yield format_table(["policy", *map(_name_size, sizes)], rows)


def _find_job(row: TaskRow) -> tuple[str, str]:
    return row.tenant, row.task.rpartition("-")[0]


def _find_size(tasks: int) -> int:
    return next((place for place, most in enumerate(JOB_SIZES) if tasks <= most), len(JOB_SIZES))


def _name_size(place: int) -> str:
    low = 1 if place == 0 else JOB_SIZES[place - 1] + 1
    if place == len(JOB_SIZES):
        return f"{low} tasks or more"
    return f"{low} task" if JOB_SIZES[place] == low else f"{low} to {JOB_SIZES[place]} tasks"


def _format_mean(times: Sequence[tuple[float, bool]]) -> str:
    mean = sum(seconds for seconds, _ in times) / len(times) if times else None
    return _format_bound(format_seconds(mean), is_least=any(is_cut for _, is_cut in times))


# --- the nodes ---


def _format_use(runs: Sequence[Run]) -> Iterator[str]:
    used = {run.policy: {r: part for r, part in run.summary["utilisation"].items() if r != "pods"} for run in runs}
    most: dict[str, float] = defaultdict(float)
    for parts in used.values():
        for resource, part in parts.items():
            most[resource] = max(most[resource], part or 0.0)
    chosen = sorted(sorted(most, key=lambda resource: -most[resource])[:MOST_TABLE_RESOURCES])
    which = _tell_part(len(chosen), len(most), " resources, those of which most is used")
    yield f"<p>Part of each resource that is used, mean over time{which}.</p>"
    rows = [[policy, *(format_part(parts.get(name)) for name in chosen)] for policy, parts in used.items()]
    yield format_table(["policy", *chosen], rows)


def _draw_use(runs: Sequence[Run]) -> Iterator[str]:
    """Return the use of each resource over time. Of many shapes those are drawn of which most stays unused."""
    parts: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = {}
    unused: dict[tuple[str, str], float] = defaultdict(float)
    for run in runs:
        for row in run.utilisation:
            if row.resource != "pods" and row.capacity:
                by_class = parts.setdefault(row.resource, {}).setdefault(run.policy, {})
                by_class.setdefault(row.server_class, []).append((row.time / NANOSECONDS, row.used / row.capacity))
                unused[row.resource, row.server_class] += row.capacity - row.used
    right = max((run.end for run in runs), default=0) / NANOSECONDS or 1.0
    for resource, by_policy in sorted(parts.items()):
        names = dict.fromkeys(name for by_class in by_policy.values() for name in by_class)
        chosen = sorted(names, key=lambda name: -unused[resource, name])[:MOST_LINES]
        which = _tell_part(len(chosen), len(names), " shapes, those with most of it unused")
        yield f"<h3>Part of {escape(resource)} that is used, by shape of node{which}</h3>"
        yield '<div class="panels">'
        for policy, by_class in by_policy.items():
            rows = [(name, by_class.get(name, [])) for name in chosen]
            yield draw_rows(f"Part of {resource} that is used under {policy}", policy, "", rows, right)
        yield "</div>"


# --- one policy ---


def _format_tenants(run: Run, colours: Mapping[str, str]) -> str:
    headings = ["tenant", "part of its fair share while it waited", *TIMES, "not started", "completed"]
    tenants: Mapping[str, Any] = run.summary["tenants"]
    ranked = _rank_tenants([tenants])
    rows = []
    for name in ranked[:MOST_TABLE_TENANTS]:
        tenant = tenants[name]
        counts = [str(tenant["never_started"]), f"{tenant['completed']} of {tenant['arrived']}"]
        share = format_part(tenant["dominant_share"]["mean"])
        rows.append([name, format_part(tenant["fair_share"]["mean_part"]), *_format_times(tenant), *counts, share])
    which = _tell_part(len(rows), len(ranked), "; all are in summary.json")
    signs = {name: draw_sign(colour) for name, colour in colours.items()}
    table = format_table([*headings, "dominant share"], rows, signs)
    return f"<h3>Tenants{which}, the worst off first</h3>{table}"


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
            format_part(finding.has),
            format_part(finding.could_have),
        ]
        for finding in run.findings[:MOST_TABLE_FINDINGS]
    ]
    yield format_table(headings, rows)
