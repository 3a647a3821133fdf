"""From the raw result to docs/fairness-table.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fairness_table.inflation import PUBLISHED

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

DEVIATION: Final = (
    "* **deviation**: from PS-DSF, by equation (58) of its paper, of a tenant in the mean; 0 is PS-DSF, and times when "
    "a waiting tenant holds nothing do not count.\n"
)
"""What the column of that name is; older results lack it."""


def render_page(results: Mapping[str, Any], source: str) -> str:
    """Return the whole page. source: the name of the file with the raw result."""
    tables = "\n\n".join(_render_workload(name, each) for name, each in results["workloads"].items())
    text = TEMPLATE.read_text(encoding="utf-8")
    has_deviation = all("deviation" in row for each in results["workloads"].values() for row in each["rows"])
    text = text.replace("@DEVIATION@", DEVIATION if has_deviation else "")
    marks = {"@DATE@": results["date"][:10], "@SOURCE@": source, "@TABLES@": tables}
    for mark, value in {**marks, "@FILLED@": _render_filled(results), "@MINUTES@": _count_minutes(results)}.items():
        text = text.replace(mark, value)
    return text


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
    columns = [column for column in COLUMNS if all(column[1] in row for row in rows)]  # an older result lacks some
    headings = ["policy", *(heading for heading, _, _ in columns), *(f"{r.rpartition('/')[2]} used" for r in resources)]
    lines = [f"### {name}", ""]
    if results["composite"]:
        lines += [f"A composite: {results['composite']}.", ""]
    lines += [f"* {note}" for note in results["notes"]]
    lines += ["", f"| {' | '.join(headings)} |", f"|---{'|---:' * (len(headings) - 1)}|"]
    best = {key: _find_best([row[key] for row in rows], which) for _, key, which in columns}
    lines += [f"| `{row['policy']}` | {' | '.join(_render_row(row, resources, best))} |" for row in rows]
    return "\n".join(lines)


def _render_row(row: Mapping[str, Any], resources: Sequence[str], best: Mapping[str, str]) -> Iterator[str]:
    for key, wanted in best.items():
        shown = show(row[key])
        yield f"**{shown}**" if shown == wanted and shown != "-" else shown
    for resource in resources:
        yield show(row["utilisation"].get(resource))


def _find_best(values: Sequence[float | None], which: str) -> str:
    """Return the best value as it is shown, so that all that look equal to it are best."""
    known = [value for value in values if value is not None]
    return show((min if which == "least" else max)(known)) if known else "-"


def show(value: float | None) -> str:
    """Return a number as the table has it."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.3f}"
