"""From the raw results of the exact mechanisms to docs/benchmarks/exact.md and its picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from perf.exact_problems import BY_CLASS, TEXTBOOK
from perf.report import FOLDER, render_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = FOLDER / "results" / "exact"
PAGE = FOLDER / "exact.md"
PARTS = RESULTS / "parts" / "parts.json"
PICTURE = FOLDER / "exact.svg"
TEMPLATE = Path(__file__).with_name("exact.template")

COARSE_SECONDS = 0.2
"""Some kernels count processor time in steps of several milliseconds: where less was used, the clock is more exact."""

# (mechanisms, tenants, servers, classes, resources, seconds): all of issue size; the last is what is wanted.
GOALS = (
    (("drfh", "tsf"), 1000, "google", 10, 2, 1.0),
    (("drfh", "tsf"), 1000, "random", 50, 4, 5.0),
    (("ps-dsf",), 1000, "google", 10, 2, 1.0),
    (("ps-dsf",), 1000, "random", 50, 4, 10.0),
    (("alpha-pf-vds",), 200, "google", 10, 2, 2.0),
    (("drf", "dynamic-drf"), 100_000, "pool", 1, 2, 1.0),
    (("drf", "dynamic-drf"), 100_000, "pool", 1, 4, 1.0),
)
CHANGE_GOAL = ("drfh", "ps-dsf"), 5.0
START_GOAL = 0.6
# Group, which size grows, title of the panel.
PANELS = (
    ("tenants", "tenants", "tenants (10 classes, 3 resources)"),
    ("classes", "classes", "server classes (300 tenants, 3 resources)"),
    ("resources", "resources", "resources (300 tenants, 10 classes)"),
    ("tenants of a pool", "tenants", "tenants of one pool (3 resources)"),
    ("servers", "of_google", "servers of 10 shapes (100 tenants, 2 resources)"),
)
COLOURS = {
    "drfh": "#0072B2",
    "tsf": "#56B4E9",
    "ps-dsf": "#D55E00",
    "alpha-pf-vds": "#CC79A7",
    "per-server-drf": "#009E73",
    "drf": "#0072B2",
    "dynamic-drf": "#D55E00",
    "asset-fairness": "#009E73",
    "ceei": "#CC79A7",
    "drbf": "#E69F00",
}

Results = Mapping[str, Any]
Outcome = Mapping[str, Any]


def write_page(results: Results, source: Path) -> None:
    """Write the page and the picture."""
    PAGE.write_text(render_page(results, source.name), encoding="utf-8")
    draw_growth(results, PICTURE)


def render_page(results: Results, source: str) -> str:
    """Return the whole page. source: the name of the file with the raw results."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    replacements = {
        "@DATE@": str(results["date"])[:10],
        "@MINUTES@": f"{results['seconds'] / 60:.0f}",
        "@MACHINE@": "{cpu}, {cores} cores, {memory_gib} GiB, {system}".format(**results["machine"]),
        "@VERSIONS@": versions,
        "@SOURCE@": f"[results/exact/{source}](results/exact/{source})",
        "@LIMIT_SECONDS@": f"{results['limits']['seconds']:.0f}",
        "@LIMIT_GIB@": f"{results['limits']['memory_gib']:.0f}",
        "@TABLES@": render_tables(results),
        "@PARTS@": describe_parts(PARTS),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for mark, text in replacements.items():
        page = page.replace(mark, text)
    return page


def render_tables(results: Results) -> str:
    """Return all tables as Markdown."""
    parts = [
        ("What was wanted", render_goals(results)),
        ("Ours and the textbook", render_sizes(results)),
        ("Refused answers and other failures", render_failures(results)),
        ("Again after one change", render_changes(results)),
        ("Start of the command line", render_start(results)),
        *((f"Growth: {title}", render_growth(results, group, size)) for group, size, title in PANELS),
    ]
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts if table)


def render_goals(results: Results) -> str:
    rows = [[goal, figure, "yes" if is_met else "no"] for goal, figure, is_met in find_goals(results)]
    return render_table(["wanted", "measured", "reached"], rows)


def find_goals(results: Results) -> Iterator[tuple[str, str, bool]]:
    """Yield (goal, figure, whether it was reached) for each goal that this run measured."""
    for mechanisms, tenants, servers, classes, resources, wanted in GOALS:
        sizes = {"tenants": tenants, "servers": servers, "classes": classes, "resources": resources}
        for mechanism in mechanisms:
            for case in _find(results, "goals", mechanism=mechanism, solver="fairbind", **sizes):
                what = f"{mechanism}, {describe_size(case)}, {describe_kind(case)}: below {wanted:g} s"
                yield what, describe_seconds(case), compute_seconds(case) < wanted
    mechanisms, factor = CHANGE_GOAL
    for case in _find(results, "changes"):
        if case["mechanism"] in mechanisms and "again_seconds" in case:
            what = f"{case['mechanism']}, {describe_size(case)}, {case['change']} changed: {factor:g} x faster"
            ratio = compute_gain(case)
            yield what, f"{ratio:.1f} x", ratio >= factor
    for start in results["start"]:
        seconds = min(start["seconds"])
        yield f"`{start['command']}`: below {START_GOAL} s", f"{seconds:.2f} s", seconds < START_GOAL


def render_sizes(results: Results) -> str:
    """Ours plain and with options, memory, and the textbook's programs on the plain problem."""
    rows = []
    for case in _find(results, "goals", solver="fairbind", is_mixed=False):
        same = {name: case[name] for name in ("mechanism", "tenants", "servers", "classes", "resources")}
        mixed = next(_find(results, "goals", **same, solver="fairbind", is_mixed=True), {})
        textbook = next(_find(results, "goals", **same, solver=TEXTBOOK), {})
        by_class = next(_find(results, "goals", **same, solver=BY_CLASS), {})
        rows.append(
            [
                case["mechanism"],
                describe_size(case),
                describe_seconds(case),
                describe_seconds(mixed),
                describe_memory(mixed if "memory_mib" in mixed else case),
                describe_seconds(textbook),
                describe_memory(textbook),
                describe_ratio(textbook, case),
                describe_seconds(by_class),
                describe_ratio(by_class, case),
            ]
        )
    head = ["mechanism", "size", "plain", "mixed", "MiB", "textbook", "its MiB", "times ours", "by class", "times ours"]
    return render_table(head, rows)


def render_failures(results: Results) -> str:
    """What failed, other than by time or memory, and how: an answer that could not be proved is none."""
    rows = [
        [case["mechanism"], describe_size(case), describe_kind(case), str(case["status"]).removeprefix("failed: ")]
        for case in results["cases"]
        if str(case["status"]).startswith("failed")
    ]
    return render_table(["mechanism", "size", "kind", "why"], rows)


def render_changes(results: Results) -> str:
    rows = [
        [
            case["mechanism"],
            describe_size(case),
            case["change"],
            describe_seconds(case),
            _format_seconds(min(_choose_clock(case, "again_"), default=None)),
            f"{compute_gain(case):.1f}" if "again_seconds" in case else "",
        ]
        for case in _find(results, "changes")
    ]
    return render_table(["mechanism", "size", "changed", "from scratch", "again", "times faster"], rows)


def render_start(results: Results) -> str:
    """By the clock, from the call to the end, and the processor time in it."""
    rows = [
        [
            f"`{start['command']}`",
            *(f"{figure(start[kind]):.2f} s" for kind in ("seconds", "cpu_seconds") for figure in (min, median)),
        ]
        for start in results["start"]
    ]
    return render_table(["command", "best", "median", "processor time, best", "median"], rows)


def render_growth(results: Results, group: str, size: str) -> str:
    """A row a mechanism, a column a size, and the exponent between the last two sizes that were measured."""
    lines = dict(_find_lines(results, group, size))
    sizes = sorted({each for points in lines.values() for each, _ in points})
    rows = []
    for (mechanism, solver), points in lines.items():
        seconds = dict(points)
        name = mechanism if solver != TEXTBOOK else f"{mechanism} by the textbook"
        known = [(each, value) for each, value in points if math.isfinite(value)]
        exponent = ""
        if len(known) > 1:
            (small, fast), (large, slow) = known[-2:]
            exponent = f"{math.log(slow / fast) / math.log(large / small):.1f}"
        rows.append([name, *(_format_seconds(seconds.get(each)) for each in sizes), exponent])
    return render_table(["mechanism", *(f"{each:,}" for each in sizes), "last exponent"], rows)


def describe_parts(path: Path) -> str:
    """Return the table of the numerical parts with its source, or that they have not been measured."""
    if not path.exists():
        return "This table has not been measured yet: `tests/perf/exact_parts.py` measures it."
    source = f"Raw results: [results/exact/parts/{path.name}](results/exact/parts/{path.name})."
    return f"{source}\n\n{render_parts(json.loads(path.read_text(encoding='utf-8')))}"


def render_parts(parts: Results) -> str:
    """A row for each numerical part and set of problems, solved with everything and without the part."""
    rows = []
    for full, less in zip(parts["trials"][::2], parts["trials"][1::2], strict=True):
        case = full["case"]
        size = "all families of the tests" if case is None else f"{describe_size(case)}, {describe_kind(case)}"
        seconds, shorter = (describe_trial(trial) for trial in (full, less))
        rows.append([full["part"], full["mechanism"], size, *seconds, *shorter, describe_loss(full, less)])
    head = ["part", "mechanism", "problems", "answered", "seconds", "answered without", "seconds", "times as long"]
    return render_table(head, rows)


def describe_trial(trial: Outcome) -> tuple[str, str]:
    """Return how many problems were answered, and the seconds of the better run."""
    ended = [run for run in trial["runs"] if run["status"] == "ended"]
    if not ended:
        return "", str(trial["runs"][0]["status"])
    best = min(ended, key=lambda run: run["seconds"])
    return f"{best['answered']:,} of {best['problems']:,}", _format_seconds(best["seconds"])


def describe_loss(full: Outcome, less: Outcome) -> str:
    """Return how many times as long it takes without the part; nothing where that leaves problems unanswered."""
    (answered, _), (answered_less, _) = (describe_trial(trial) for trial in (full, less))
    if answered != answered_less:
        return ""
    seconds, shorter = (min(run["seconds"] for run in trial["runs"]) for trial in (full, less))
    return f"{shorter / seconds:.1f}"


def draw_growth(results: Results, path: Path) -> None:
    """Write the picture: seconds against each size, both logarithmic."""
    import matplotlib as mpl  # noqa: PLC0415  slow, and only for this
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "fairbind", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(13.0, 9.0), layout="constrained")
        grid: Any = figure.subplots(3, 2)
        panels: list[Axes] = list(grid.flat)
        for panel, (group, size, title) in zip(panels, PANELS, strict=False):
            _draw_panel(panel, dict(_find_lines(results, group, size)), title)
        for unused in panels[len(PANELS) :]:
            unused.set_axis_off()
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(panel: Axes, lines: Mapping[tuple[str, str], Sequence[tuple[int, float]]], title: str) -> None:
    for (mechanism, solver), points in lines.items():
        known = [point for point in points if math.isfinite(point[1])]
        name = mechanism if solver != TEXTBOOK else f"{mechanism} by the textbook"
        style = "--" if solver == TEXTBOOK else "-"
        panel.plot(*zip(*known, strict=True), style, marker="o", markersize=3, color=COLOURS[mechanism], label=name)
    panel.set(xscale="log", yscale="log", xlabel=title, ylabel="seconds")
    sizes = sorted({size for points in lines.values() for size, _ in points})
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.grid(visible=True, linewidth=0.3)
    if lines:
        panel.legend(fontsize=7, frameon=False, handlelength=3.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _find_lines(
    results: Results, group: str, size: str
) -> Iterator[tuple[tuple[str, str], Sequence[tuple[int, float]]]]:
    """Yield ((mechanism, solver), its sizes with their seconds; infinite where there was no answer)."""
    cases = list(_find(results, group))
    for line in dict.fromkeys((case["mechanism"], case["solver"]) for case in cases):
        points = [(case[size], compute_seconds(case)) for case in cases if (case["mechanism"], case["solver"]) == line]
        if any(math.isfinite(seconds) for _, seconds in points):
            yield line, sorted(points)


def _find(results: Results, group: str, **wanted: object) -> Iterator[Outcome]:
    for case in results["cases"]:
        if case["group"] == group and all(case[name] == value for name, value in wanted.items()):
            yield case


def compute_seconds(case: Outcome) -> float:
    """Return the best run, without the first one (it imports) if there are others; infinite if none ended."""
    seconds = _choose_clock(case, "")
    return min(seconds[1:] or seconds, default=math.inf)


def compute_gain(case: Outcome) -> float:
    """Return how many times faster the problem was solved again after a change than from scratch."""
    return min(_choose_clock(case, "")) / min(_choose_clock(case, "again_"))


def _choose_clock(case: Outcome, kind: str) -> list[float]:
    """Return the runs' processor times, or what the clock showed where that is little."""
    used = case.get(f"{kind}seconds", [])
    clock = case.get(f"{kind}wall_seconds", used)
    return [passed if seconds < COARSE_SECONDS else seconds for seconds, passed in zip(used, clock, strict=True)]


def describe_seconds(case: Outcome) -> str:
    """Return the seconds, or why there are none; nothing if it was not measured."""
    if not case:
        return ""
    return _format_seconds(compute_seconds(case)) if case["status"] == "optimal" else str(case["status"]).split(":")[0]


def describe_ratio(textbook: Outcome, ours: Outcome) -> str:
    """Return how many times as long the textbook's program takes; nothing where it did not end."""
    ratio = compute_seconds(textbook) / compute_seconds(ours)
    return f"{ratio:,.1f}" if math.isfinite(ratio) else ""


def describe_memory(case: Outcome) -> str:
    """Return the largest memory of the process."""
    return f"{case['memory_mib']:,.0f}" if "memory_mib" in case else ""


def describe_size(case: Outcome) -> str:
    """Return tenants and servers in words."""
    servers = {
        "pool": f"one pool, {case['resources']} resources",
        "google": f"{case['of_google']:,} servers in 10 shapes",
        "google singly": f"{case['of_google']:,} servers, each an entry",
        "random": f"{case['classes']} classes, {case['resources']} resources",
    }
    return f"{case['tenants']:,} x {servers[case['servers']]}"


def describe_kind(case: Outcome) -> str:
    """Return whether the problem uses options."""
    return "mixed" if case["is_mixed"] else "plain"


def _format_seconds(seconds: float | None) -> str:
    return "" if seconds is None or not math.isfinite(seconds) else f"{seconds:.3g} s"
