"""From the raw result to docs/fairness-table.md."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairbind.simulator.sweep.confidence import compute_interval
from fairness_table.inflation import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "fairness-table.md"
RESULTS: Final = DOCS / "benchmarks" / "results" / "fairness"
TEMPLATE: Final = Path(__file__).with_name("page.template")
GPU_SUFFIX: Final = "/gpu"
FILLED: Final = "openb-filled"
"""The key of the run that fills openb; see `fairness_table.inflation`."""

COLUMNS: Final = (
    ("error, DRFH", "share_error_drfh", "least"),
    ("error, PS-DSF", "share_error_ps-dsf", "least"),
    ("worst part, DRFH", "worst_part_drfh", "most"),
    ("worst part, PS-DSF", "worst_part_ps-dsf", "most"),
    ("deviation", "deviation", "least"),
    ("envies", "envies", "least"),
    ("better alone", "alone_better", "least"),
    ("Jain", "jain", "most"),
    ("slowdown", "slowdown_mean", "least"),
    ("slowdown, p95", "slowdown_p95", "least"),
    ("completed", "completed", "most"),
    ("GPUs idle", "gpus_unallocated", "least"),
)
"""Heading, key of the row, and whether the least or the most is best."""
ERRORS: Final = ("share_error_drfh", "share_error_ps-dsf")
"""The columns that are shown with intervals, and drawn."""
CONFIDENCE: Final = 0.95
PICTURE: Final = DOCS / "images" / "fairness-table.svg"
OUR_COLOURS: Final = {
    "best-fit-drfh": "#0072B2",
    "first-fit-drfh": "#CC79A7",
    "ps-dsf": "#D55E00",
    "tsf": "#009E73",
}
THEIR_MARKERS: Final = {
    "volcano-rule": "s",
    "yunikorn-rule": "^",
    "kueue-rule": "v",
    "kai-rule": "D",
    "armada-rule": "P",
    "kube-scheduler-rule": "X",
}

Values = Sequence[float | None]


def write_page(results: Mapping[str, Any], source: str) -> None:
    """Write the page and its picture."""
    PAGE.write_text(render_page(results, source), encoding="utf-8")
    draw_errors(results, PICTURE)


def render_page(results: Mapping[str, Any], source: str) -> str:
    """Return the whole page. source: the name of the file with the raw result."""
    tables = "\n\n".join(_render_workload(name, each) for name, each in results["workloads"].items())
    text = TEMPLATE.read_text(encoding="utf-8")
    marks = {"@DATE@": results["date"][:10], "@SOURCE@": source, "@TABLES@": tables}
    for mark, value in {**marks, "@FILLED@": _render_filled(results), "@MINUTES@": _count_minutes(results)}.items():
        text = text.replace(mark, value)
    return text


def draw_errors(results: Mapping[str, Any], path: Path) -> None:
    """Draw each workload: the error by DRFH across, by PS-DSF upward, a mark with its intervals for each policy."""
    import matplotlib as mpl  # noqa: PLC0415  slow, and only for this
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "fairbind", "svg.fonttype": "none", "font.size": 9}):
        workloads = results["workloads"]
        figure = Figure(figsize=(13.0, 6.5), layout="constrained")
        panels: list[Axes] = list(figure.subplots(2, 4).flat)
        for panel, (name, each) in zip(panels, workloads.items(), strict=False):
            _draw_panel(panel, name, each["rows"])
        handles, labels = panels[0].get_legend_handles_labels()
        for unused in panels[len(workloads) :]:
            unused.set_axis_off()
        panels[-1].legend(handles, labels, loc="center", frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(panel: Axes, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for place, row in enumerate(rows):
        policy = row["policy"]
        if policy not in {**OUR_COLOURS, **THEIR_MARKERS}:
            continue
        (across, up), spans = zip(*(_find_spans(row[key]) for key in ERRORS), strict=True)
        panel.errorbar(
            across,
            up,
            xerr=spans[0],
            yerr=spans[1],
            marker=THEIR_MARKERS.get(policy, "o"),
            color=OUR_COLOURS.get(policy, "#666666"),
            markersize=max(5, 9 - place),
            markerfacecolor="none" if policy in THEIR_MARKERS else None,
            linewidth=0.8,
            linestyle="none",
            label=policy,
        )
    panel.set(title=name, xlabel="error by DRFH (totals)", ylabel="error by PS-DSF (per node)")
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.grid(visible=True, linewidth=0.3)


def _find_spans(values: Values) -> tuple[float, tuple[tuple[float], tuple[float]]]:
    """Return the mean, and how far the interval goes below and above it."""
    interval = compute_interval(_list_known(values), CONFIDENCE)
    mean = interval.mean or 0.0
    low, high = (mean if end is None else end for end in (interval.low, interval.high))
    return mean, ((mean - low,), (high - mean,))


def _count_minutes(results: Mapping[str, Any]) -> str:
    parts = [*results["workloads"].values(), results.get(FILLED, {"seconds": 0})]
    return f"{max(1, round(sum(part['seconds'] for part in parts) / 60))}"


def _render_filled(results: Mapping[str, Any]) -> str:
    """Return the table of openb filled, and beside it what is published."""
    if FILLED not in results:
        return "The raw result has no such run: its files were not there."
    lines = ["| rule | GPUs | seeds | 100 % arrived | 130 % arrived |", "|---|---|---:|---:|---:|"]
    published = [
        {"rule": f"{name}, as published", "gpus": "parts", "seeds": 10, "allocated": values}
        for name, values in PUBLISHED.items()
    ]
    for row in [*published, *results[FILLED]["rows"]]:
        shown = " | ".join(f"{value:.1%}" for value in row["allocated"])
        lines.append(f"| {row['rule']} | {row['gpus']} | {row['seeds']} | {shown} |")
    return "\n".join(lines)


def _render_workload(name: str, results: Mapping[str, Any]) -> str:
    rows = results["rows"]
    resources = sorted({r for row in rows for r in row["utilisation"] if r in {"cpu", "memory"} or r.endswith("gpu")})
    headings = ["policy", *(heading for heading, _, _ in COLUMNS), *(f"{r.rpartition('/')[2]} used" for r in resources)]
    lines = [f"### {name}", ""]
    if results["composite"]:
        lines += [f"A composite: {results['composite']}.", ""]
    lines += [f"* {note}" for note in results["notes"]]
    lines += [f"* {results['seeds']} seeds, for all policies the same"] if results["seeds"] > 1 else []
    lines += ["", f"| {' | '.join(headings)} |", f"|---{'|---:' * (len(headings) - 1)}|"]
    best = {key: find_best({row["policy"]: row[key] for row in rows}, which) for _, key, which in COLUMNS}
    lines += [f"| `{row['policy']}` | {' | '.join(_render_row(row, resources, best))} |" for row in rows]
    return "\n".join(lines)


def _render_row(row: Mapping[str, Any], resources: Sequence[str], best: Mapping[str, Collection[str]]) -> Iterator[str]:
    for key, policies in best.items():
        shown = show_interval(row[key]) if key in ERRORS else show(find_mean(row[key]))
        yield f"**{shown}**" if row["policy"] in policies else shown
    for resource in resources:
        yield show(find_mean(row["utilisation"].get(resource, ())))


def find_best(values_of: Mapping[str, Values], which: str) -> Collection[str]:
    """Return the policy with the best mean, and those that cannot be told from it. values_of: by policy, by seed.

    Seeds draw the same tasks for all policies, so differences are taken seed by seed: two cannot be told apart where
    the interval of their mean difference holds 0.
    """
    means = {policy: mean for policy, values in values_of.items() if (mean := find_mean(values)) is not None}
    if not means:
        return ()
    first = (min if which == "least" else max)(means, key=lambda policy: means[policy])
    return {policy for policy in means if policy == first or _are_close(values_of[policy], values_of[first])}


def _are_close(one: Values, other: Values) -> bool:
    differences = [a - b for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    interval = compute_interval(differences, CONFIDENCE)
    if interval.low is None or interval.high is None:
        return interval.mean == 0
    return interval.low <= 0 <= interval.high


def find_mean(values: Values) -> float | None:
    """Return the mean of the known values."""
    known = _list_known(values)
    return statistics.fmean(known) if known else None


def _list_known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def show_interval(values: Values) -> str:
    """Return a mean with its interval as the table has it."""
    interval = compute_interval(_list_known(values), CONFIDENCE)
    if interval.low is None:
        return show(interval.mean)
    return f"{show(interval.mean)} ({show(interval.low)} to {show(interval.high)})"


def show(value: float | None) -> str:
    """Return a number as the table has it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.3f}"
