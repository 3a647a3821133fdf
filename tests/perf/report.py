"""From raw results to the tables that people read: in the terminal and in docs/benchmarks/README.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perf.google_servers import GOOGLE_SERVERS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "benchmarks"
RESULTS = FOLDER / "results"
PAGE = FOLDER / "README.md"
TEMPLATE = Path(__file__).with_name("page.template")
OURS, THEIRS, GATE, EXTENDER, LIMIT = "fairbind", "kube-scheduler", "gate", "extender", "bare binds"
GATE_LIMIT = "bare openings"

RANK = {OURS: 0, THEIRS: 1, GATE: 2, EXTENDER: 3, LIMIT: 4, GATE_LIMIT: 5}
CORES = {
    "fairbind": (OURS,),
    "kube-scheduler": (THEIRS,),
    "API server": ("kube-apiserver",),
    "etcd": ("etcd",),
    "controllers, kwok": ("kube-controller-manager", "kwok"),
    "benchmark": ("benchmark",),
}
FOREIGN = "all else"
MARK = r"\*"
GATE_RATE, GATE_PART = 100.0, 0.8
"""Gate mode is to reach so many pods a second, and this part of kube-scheduler alone."""
SINGLE_SECONDS = 0.3
"""In gate mode, one pod on an idle cluster is to be bound within this time, at the 99th percentile."""
GOOGLE_RATES = {"best-fit-drfh": 30_000, "ps-dsf": 15_000}
"""By policy: so many decisions a second are wanted of a backlog on Google's servers."""
DISTURBED = 0.2
"""More than this part of the machine for programs that are no part of the benchmark disturbs a measurement."""

Results = Mapping[str, Any]


def render_page(results: Results, source: str) -> str:
    """Return the whole page. source: the name of the file with the raw results."""
    machine, versions = results["machine"], results["versions"]
    replacements = {
        "@DATE@": str(results["date"])[:10],
        "@MACHINE@": "{cpu}, {cores} cores, {memory_gib} GiB, {system}".format(**machine),
        "@VERSIONS@": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "@MINUTES@": f"{results['seconds'] / 60:.0f}",
        "@SOURCE@": f"[results/{source}](results/{source})",
        "@PODS@": f"{results['plan']['pods']:,}",
        "@ROUNDS@": str(results["plan"]["rounds"]),
        "@IN_FLIGHT@": str(results["plan"]["in_flight"]),
        "@TABLES@": render_tables(results),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for mark, text in replacements.items():
        page = page.replace(mark, text)
    return page


def render_tables(results: Results) -> str:
    """Return all tables as Markdown."""
    parts = [
        ("Backlog", render_backlogs(results)),
        ("Where the CPU went: cores in use, of a backlog", render_cpu(results)),
        ("Arrivals", render_arrivals(results)),
        ("One pod at a time", render_singles(results)),
        ("Idle, memory, start", render_idles(results)),
        ("The pure cycle", render_figures(results["cycle"]["figures"])),
        ("The pure cycle on Google's servers, with 900 tenants", render_figures(get_google(results, "backlogs"))),
        ("One pod arrives: snapshot and cycle", render_figures(get_google(results, "arrivals"))),
        ("What was wanted", render_goals(results)),
    ]
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts if table)


def render_backlogs(results: Results) -> str:
    rows = []
    for nodes, contender, runs in group_backlogs(results):
        limit, theirs = compute_limit(results, nodes, contender), compute_rate(results, nodes, THEIRS)
        rate = compute_rate(results, nodes, contender)
        rows.append(
            [
                f"{nodes:,}",
                contender,
                ", ".join(f"{run['rate']:.0f}{find_mark(results, run)}" for run in runs),
                f"{rate:.0f}",
                f"{rate / limit:.0%}" if limit else "",
                f"{rate / theirs:.2f}" if theirs else "",
                f"{min(run['bound'] for run in runs):,} of {runs[0]['pods']:,}",
            ]
        )
    head = ["nodes", "who", "pods/s in each round", "mean", "of the limit", "times kube-scheduler", "bound"]
    return render_table(head, rows)


def render_cpu(results: Results) -> str:
    """CPU cores in use by each process from the start to the last binding, averaged over the rounds."""
    rows = [
        [f"{nodes:,}", contender, *render_cores(results, [run["cpu"] for run in runs])]
        for nodes, contender, runs in group_backlogs(results)
    ]
    return render_table(["nodes", "who", *CORES, FOREIGN], rows)


def render_cores(results: Results, uses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many cores each kind of process used on average, and then all others: one cell for each."""
    seconds = sum(use["seconds"] for use in uses)
    cells = [
        f"{sum(use['by_process'].get(name, 0.0) for use in uses for name in names) / seconds:.2f}"
        for names in CORES.values()
    ]
    return [*cells, f"{sum(compute_foreign(results, use) * use['seconds'] for use in uses) / seconds:.2f}"]


def compute_foreign(results: Results, use: Mapping[str, Any]) -> float:
    """Return how many cores were busy with what is no part of the benchmark; the kernel's own threads count too."""
    busy: float = use["busy"] * results["machine"]["cores"]
    used: float = sum(use["by_process"].values()) / use["seconds"]
    return max(0.0, busy - used)


def is_disturbed(results: Results, run: Mapping[str, Any]) -> bool:
    """Whether other programs took so much of the machine that the figures say little."""
    cores: int = results["machine"]["cores"]
    return compute_foreign(results, run["cpu"]) > DISTURBED * cores


def find_mark(results: Results, run: Mapping[str, Any]) -> str:
    """Return the mark of a disturbed measurement, or nothing."""
    return MARK if is_disturbed(results, run) else ""


def find_marks(results: Results, nodes: int, *contenders: str) -> str:
    """Return the mark when one of these contenders has only disturbed rounds at this size."""
    by_contender = (
        [run for run in results["backlogs"] if (run["nodes"], run["contender"]) == (nodes, name)] for name in contenders
    )
    return MARK if any(all(is_disturbed(results, run) for run in runs) for runs in by_contender) else ""


def render_arrivals(results: Results) -> str:
    runs = [*results["arrivals"], *results.get("arrival_limits", ())]
    rows = [
        [
            f"{run['nodes']:,}",
            run["contender"] + find_mark(results, run),
            f"{run['reached_rate']:.0f}",
            f"{run['bound']:,} of {run['pods']:,}",
            *(f"{run[f'{name}_seconds']:.3f}" for name in ("p50", "p99", "max")),
            *render_cores(results, [run["cpu"]]),
        ]
        for run in sorted(runs, key=lambda run: (run["nodes"], RANK[run["contender"]]))
    ]
    return render_table(["nodes", "who", "pods/s", "bound", "p50 (s)", "p99 (s)", "longest (s)", *CORES, FOREIGN], rows)


def render_singles(results: Results) -> str:
    """How long one pod takes on a cluster that is idle."""
    rows = [
        [
            f"{run['nodes']:,}",
            run["contender"] + find_mark(results, run),
            f"{run['bound']:,} of {run['pods']:,}",
            *(f"{run[f'{name}_seconds']:.3f}" for name in ("p50", "p99", "max")),
        ]
        for run in sorted(results.get("singles", ()), key=lambda run: (run["nodes"], RANK[run["contender"]]))
    ]
    return render_table(["nodes", "who", "bound", "p50 (s)", "p99 (s)", "longest (s)"], rows)


def render_idles(results: Results) -> str:
    rows = []
    for run in sorted(results["idles"], key=lambda run: RANK[run["contender"]]):
        backlogs = [b for b in results["backlogs"] if (b["contender"], b["nodes"]) == (run["contender"], run["nodes"])]
        ready = ", ".join(f"{backlog['ready_seconds']:.1f}" for backlog in backlogs)
        memory = max(run["memory_mib"], *(backlog["memory_mib"] for backlog in backlogs))
        rows.append(
            [
                f"{run['nodes']:,}",
                run["contender"],
                f"{run['pods']:,}",
                f"{run['cores']:.1%}",
                f"{memory:.0f}",
                f"{run['restart_ready_seconds']:.1f}",
                ready,
            ]
        )
    head = [
        "nodes",
        "who",
        "pods",
        "idle, of a core",
        "memory (MiB)",
        "start to ready, all bound (s)",
        "none bound (s)",
    ]
    return render_table(head, rows)


def get_google(results: Results, part: str) -> Sequence[Mapping[str, Any]]:
    """Return a part of the figures of tests/perf/google.py; older results have none."""
    figures: Sequence[Mapping[str, Any]] = results["cycle"].get("google", {}).get(part, ())
    return figures


def render_figures(runs: Sequence[Mapping[str, Any]]) -> str:
    """The figures of a program, whatever it measures."""
    if not runs:
        return ""
    head = list(runs[0])
    titles = [name.replace("_", " ") for name in head]
    return render_table(titles, [[_format(run.get(name)) for name in head] for run in runs])


def render_goals(results: Results) -> str:
    """What the project wants of itself, and whether it was reached in this run."""
    rows = [
        [goal, figure, "unknown" if MARK in figure.partition(" (")[0] else "yes" if met else "no"]
        for goal, figure, met in find_goals(results)
    ]
    return render_table(["wanted", "measured", "reached"], rows)


def find_goals(results: Results) -> list[tuple[str, str, bool]]:
    """Return (goal, figure, whether it was reached) for each goal that this run could measure."""
    goals = []
    for nodes in sorted(results["plan"]["nodes"]):
        ours, theirs, limit = (compute_rate(results, nodes, name) for name in (OURS, THEIRS, LIMIT))
        at = f"at {nodes:,} nodes"
        if ours and theirs:
            mark = find_marks(results, nodes, OURS, THEIRS)
            figure = f"{ours / theirs:.2f} x{mark}{render_unfiltered(results, nodes, THEIRS, '.2f')}"
            goals.append((f"2.0 x kube-scheduler {at}", figure, ours >= 2.0 * theirs))
        if ours and limit:
            mark = find_marks(results, nodes, OURS, LIMIT)
            figure = f"{ours / limit:.0%}{mark}{render_unfiltered(results, nodes, LIMIT, '.0%')}"
            goals.append((f"80 % of the bare binds {at}", figure, ours >= 0.8 * limit))
    least = {
        run["nodes"]: f"{run['p99_seconds']:.3f} s{find_mark(results, run)}"
        for run in results.get("arrival_limits", ())
    }
    for run in sorted(results["arrivals"], key=lambda run: run["nodes"]):
        if run["contender"] == OURS:
            p99, nodes = run["p99_seconds"], run["nodes"]
            limit_figure = f" ({LIMIT}: {least[nodes]})" if nodes in least else ""
            figure = f"{p99:.3f} s{find_mark(results, run)}{limit_figure}"
            goals.append((f"arriving, p99 below 1 s at {nodes:,} nodes", figure, p99 < 1.0))
    for run in results["idles"]:
        if run["contender"] == OURS:
            at = f"with {run['nodes']:,} nodes and {run['pods']:,} pods"
            memory, ready = run["memory_mib"], run["restart_ready_seconds"]
            goals.append((f"idle below 3 % of a core {at}", f"{run['cores']:.1%}", run["cores"] < 0.03))
            goals.append((f"memory below 400 MiB {at}", f"{memory:.0f} MiB", memory < 400))
            goals.append((f"ready within 10 s {at}", f"{ready:.1f} s", ready < 10))
    return goals + find_gate_goals(results) + find_cycle_goals(results["cycle"]["figures"]) + find_google_goals(results)


def find_gate_goals(results: Results) -> list[tuple[str, str, bool]]:
    """Return the goals of gate mode: pods a second, beside kube-scheduler alone, and how long one pod takes."""
    goals = []
    for nodes in sorted(results["plan"]["nodes"]):
        gate, theirs = (compute_rate(results, nodes, name) for name in (GATE, THEIRS))
        at = f"at {nodes:,} nodes"
        if gate:
            figure = f"{gate:.0f}/s{find_marks(results, nodes, GATE)}"
            goals.append((f"gate mode: {GATE_RATE:.0f} pods/s {at}", figure, gate >= GATE_RATE))
        if gate and theirs:
            figure = (
                f"{gate / theirs:.2f} x{find_marks(results, nodes, GATE, THEIRS)}{render_gate_limit(results, nodes)}"
            )
            goals.append((f"gate mode: {GATE_PART} x kube-scheduler {at}", figure, gate >= GATE_PART * theirs))
        singles = {run["contender"]: run for run in results.get("singles", ()) if run["nodes"] == nodes}
        if (run := singles.get(GATE)) is not None:
            p99, is_whole = run["p99_seconds"], run["bound"] == run["pods"]
            other = f" ({THEIRS}: {singles[THEIRS]['p99_seconds']:.3f} s)" if THEIRS in singles else ""
            figure = f"{p99:.3f} s{find_mark(results, run)}{other}"
            goals.append(
                (f"gate mode: one pod, p99 below {SINGLE_SECONDS} s {at}", figure, is_whole and p99 < SINGLE_SECONDS)
            )
    return goals


def render_gate_limit(results: Results, nodes: int) -> str:
    """Return, in parentheses, what the bare openings reach of kube-scheduler alone; nothing when they were not run."""
    limit, theirs = (compute_rate(results, nodes, name) for name in (GATE_LIMIT, THEIRS))
    mark = find_marks(results, nodes, GATE_LIMIT, THEIRS)
    return f" ({GATE_LIMIT}: {limit / theirs:.2f} x{mark})" if limit else ""


def find_cycle_goals(figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, bool]]:
    """Return the goals of the pure cycle: decisions a second on the most servers, and how that grew from the fewest."""
    goals = []
    for shapes in dict.fromkeys(figure["shapes"] for figure in figures):
        by_size = {
            figure["servers"]: figure["decisions_per_second"] for figure in figures if figure["shapes"] == shapes
        }
        few, many = min(by_size), max(by_size)
        rate, ratio = by_size[many], by_size[few] / by_size[many]
        at = f"at {many:,} servers, {shapes}"
        goals.append((f"cycle: 20,000 decisions/s {at}", f"{rate:,.0f}/s", rate >= 20_000))
        if few < many:
            goals.append((f"cycle: at most twice the cost of {few:,} {at}", f"{ratio:.2f} x", ratio <= 2.0))
    return goals


def find_google_goals(results: Results) -> list[tuple[str, str, bool]]:
    """Return the goals of the cycle on Google's servers."""
    goals, backlogs = [], get_google(results, "backlogs")
    for policy, wanted in GOOGLE_RATES.items():
        by_size = {run["servers"]: run["decisions_per_second"] for run in backlogs if run["policy"] == policy}
        if GOOGLE_SERVERS in by_size:
            rate = by_size[GOOGLE_SERVERS]
            goal = f"{policy}: {wanted:,} decisions/s at {GOOGLE_SERVERS:,} servers, 900 tenants"
            goals.append((goal, f"{rate:,.0f}/s", rate >= wanted))
        if len(by_size) > 1:
            few, many = min(by_size), max(by_size)
            ratio = by_size[few] / by_size[many]
            goals.append(
                (f"{policy}: at most twice the cost of {few:,} at {many:,} servers", f"{ratio:.2f} x", ratio <= 2)
            )
    for run in get_google(results, "arrivals"):
        goal = f"{run['policy']}: one pod within 3 ms at {run['servers']:,} servers, {run['tenants']} tenants"
        goals.append((goal, f"{run['total_ms']:.2f} ms", run["total_ms"] <= 3.0))
    return goals


def render_unfiltered(results: Results, nodes: int, other: str, form: str) -> str:
    """Return our rate by the other's over all rounds, in parentheses; nothing when that is over the same rounds."""
    ours, theirs = (compute_rate(results, nodes, name, every=True) for name in (OURS, other))
    kept = [compute_rate(results, nodes, name) for name in (OURS, other)]
    return "" if [ours, theirs] == kept else f" ({ours / theirs:{form}} over all rounds)"


def compute_rate(results: Results, nodes: int, contender: str, *, every: bool = False) -> float:
    """Return the mean of the rounds, pods a second; 0 without a round.

    every: of all rounds; otherwise of the undisturbed ones, if there are any.
    """
    runs = [run for run in results["backlogs"] if (run["nodes"], run["contender"]) == (nodes, contender)]
    runs = [run for run in runs if not math.isnan(run["rate"])]
    rates = [run["rate"] for run in runs if every or not is_disturbed(results, run)] or [run["rate"] for run in runs]
    return sum(rates) / len(rates) if rates else 0.0


def compute_limit(results: Results, nodes: int, contender: str) -> float:
    """Return the rate that is this contender's limit, pods a second; 0 without one.

    Gate mode's is that of the bare openings; where they were not run, and for all others, it is that of the bare binds.
    """
    own = compute_rate(results, nodes, GATE_LIMIT) if contender in {GATE, GATE_LIMIT} else 0.0
    return own or compute_rate(results, nodes, LIMIT)


def group_backlogs(results: Results) -> Iterable[tuple[int, str, list[dict[str, Any]]]]:
    """Yield (nodes, contender, its rounds)."""
    for nodes in sorted(results["plan"]["nodes"]):
        for contender in RANK:
            runs = [r for r in results["backlogs"] if (r["nodes"], r["contender"]) == (nodes, contender)]
            if runs:
                yield nodes, contender, runs


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; numbers are aligned to the right."""
    if not rows:
        return ""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(text[:1].isdigit() or not text for text in column[1:]) for column in columns]
    rule = ["-" * (width - right) + ":" * right for width, right in zip(widths, numeric, strict=True)]
    lines = [
        [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        for row in (head, *rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def _format(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
