"""From the raw results of the simulator to docs/benchmarks/simulator.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perf.report import FOLDER, render_table
from perf.sim_cases import WORKLOADS

RESULTS = FOLDER / "results" / "simulator"
PAGE = FOLDER / "simulator.md"
TEMPLATE = Path(__file__).with_name("sim.template")
LEAST_RATIO = 5.0
MEBIBYTES_IN_GIB = 1024
COLUMNS = (
    "workload", "size", "by", "tasks", "servers", "tenants", "seconds", "to simulate", "us a task", "MiB", "load",
    "version",
)  # fmt: skip


def write_page(results: Mapping[str, Any], source: Path) -> None:
    """Write the page of raw results that lie in a file."""
    PAGE.write_text(render_page(results, source.name), encoding="utf-8")


def render_page(results: Mapping[str, Any], name: str) -> str:
    """Return the page. name: of the file of the raw results."""
    machine = results["machine"]
    values = {
        "SOURCE": f"[results/simulator/{name}](results/simulator/{name})",
        "DATE": results["date"][:10],
        "MACHINE": f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}",
        "VERSIONS": ", ".join(
            f"{name} {version}"
            for name, version in results["versions"].items()
            if name in {"fairbind", "Python", "numpy"}
        ),
        "TABLES": render_tables(results),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def render_tables(results: Mapping[str, Any]) -> str:
    """Return the tables: what was wanted, and what each case took."""
    goals = render_table(("wanted", "measured", "reached"), list(find_goals(results)))
    return f"{goals}\n\n{render_table(COLUMNS, list(_list_cases(results)))}"


def find_goals(results: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield what was wanted of each workload at its full size, what was measured, and whether that reaches it."""
    full = {(case["workload"], case["kind"]): case for case in results["cases"] if case["part"] == 1.0}
    for workload in WORKLOADS.values():
        ours = full.get((workload.name, "fairbind"), {"status": "not measured"})
        scan = full.get((workload.name, "scan"), {"status": "not measured"})
        seconds, memory = ours.get("seconds"), ours.get("memory_mib")
        if workload.most_seconds is not None:
            wanted = f"{workload.name}: below {workload.most_seconds:g} s"
            yield [wanted, *_judge(ours, seconds, "s", is_met=seconds is not None and seconds < workload.most_seconds)]
        if workload.most_gib is not None:
            gib = None if memory is None else memory / MEBIBYTES_IN_GIB
            wanted = f"{workload.name}: below {workload.most_gib:g} GiB"
            yield [wanted, *_judge(ours, gib, "GiB", is_met=gib is not None and gib < workload.most_gib)]
        ratio = None
        if ours["status"] == scan["status"] == "done":
            ratio = scan["parts"]["simulate"] / ours["parts"]["simulate"]
        wanted = f"{workload.name}: {LEAST_RATIO:g} x as fast as the scan"
        yield [wanted, *_judge(scan, ratio, "x", is_met=ratio is not None and ratio >= LEAST_RATIO)]


def _judge(case: Mapping[str, Any], figure: float | None, unit: str, *, is_met: bool) -> list[str]:
    if figure is None:
        return [case["status"], "not measured"]
    return [f"{figure:.3g} {unit}", "yes" if is_met else "no"]


def _list_cases(results: Mapping[str, Any]) -> Iterator[list[str]]:
    for case in sorted(results["cases"], key=lambda each: (list(WORKLOADS).index(each["workload"]), -each["part"])):
        size = "full" if case["part"] == 1.0 else f"{case['part']:g} of it"
        names = [case["workload"], size, case["kind"]]
        if case["status"] != "done":
            yield [*names, case["status"], *[""] * 8]
            continue
        simulate = case["parts"]["simulate"]
        yield [
            *names,
            f"{case['tasks']:,}",
            f"{case['servers']:,}",
            f"{case['tenants']:,}",
            f"{case['seconds']:.1f}",
            f"{simulate:.1f}",
            f"{1e6 * simulate / case['tasks']:.0f}",
            f"{case['memory_mib']:,}",
            f"{case['load']:.1f}",
            str(case.get("version", "")),
        ]
