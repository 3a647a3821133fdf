"""Run the benchmark of the exact library: ``make bench-exact``, or ``.venv/bin/python tests/perf/exact.py --help``.

Every case is measured in a process of its own: seconds, and the memory of that process. Beside ours stands the linear
program of the papers, solved by scipy, where the mechanism is one: with a variable for each tenant and server, and with
one for each tenant and class of equal servers. Writes raw results to docs/benchmarks/results/exact, and from them
docs/benchmarks/exact.md with its picture.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from perf.carrying_out import Report, carry_out  # noqa: E402  the path comes first
from perf.exact_problems import BY_CLASS, TEXTBOOK, Case  # noqa: E402
from perf.exact_report import RESULTS, render_tables, write_page  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402

CASE = Path(__file__).with_name("exact_case.py")
LIMIT_SECONDS, LIMIT_GIB = 120.0, 8.0
PATIENCE = 5.0  # times the limit, which is of processor time: for the clock, if others use the machine
MEMORY_MARKS = ("MemoryError", "Memory limit reached")  # of Python and numpy, and of HiGHS
START_REPEATS = 7
START_PROBLEM = {
    "resources": ["cpu", "memory"],
    "servers": [{"name": "a", "capacity": {"cpu": 9, "memory": 18}}],
    "tenants": [
        {"name": "t", "demand": {"cpu": 1, "memory": 4}},
        {"name": "u", "demand": {"cpu": 3, "memory": 1}},
    ],
}
POOLED = ("drf", "asset-fairness", "ceei", "drbf", "dynamic-drf")
SPREAD = ("drfh", "tsf", "per-server-drf", "ps-dsf", "alpha-pf-vds")
WITH_TEXTBOOK = ("drf", "asset-fairness", "dynamic-drf", "drfh", "tsf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    options = parse_arguments(arguments)
    cases = [case for case in make_plan(small=options.small) if case.mechanism in (options.only or (case.mechanism,))]
    carry_out(
        options,
        Report(RESULTS, render_tables, write_page),
        lambda date, output: run(cases, date, output, limit=options.limit),
        is_whole=not options.small and not options.only,
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="exact.py", description="Measure the exact mechanisms.")
    parser.add_argument("--small", action="store_true", help="tiny sizes: shows only that it works")
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these mechanisms")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="seconds of processor time for one case (120)"
    )
    parser.add_argument("--output", type=Path, help="where the raw results go (docs/benchmarks/results/exact)")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only make the page from raw results")
    return parser.parse_args(arguments)


def make_plan(*, small: bool) -> list[Case]:
    """Return all cases; with `small` the same ones with few tenants and servers."""
    cases = [*_make_goals(), *_make_growth(), *_make_changes()]
    if small:
        cases = [
            replace(
                case,
                tenants=min(case.tenants, 20),
                classes=min(case.classes, 5),
                resources=min(case.resources, 4),
                of_google=min(case.of_google, 40),
            )
            for case in cases
        ]
    return list(dict.fromkeys(cases))


def _make_goals() -> Iterator[Case]:
    """What the project wants of itself, plain and with all options, and the textbook beside the plain ones."""
    sizes = [
        *((mechanism, 1000, "google", 10, 2) for mechanism in SPREAD[:4]),
        *((mechanism, 1000, "google singly", 10, 2) for mechanism in SPREAD[:4]),
        *((mechanism, 1000, "random", 50, 4) for mechanism in SPREAD[:4]),
        ("alpha-pf-vds", 200, "google", 10, 2),
        *((mechanism, 100_000, "pool", 1, resources) for mechanism in POOLED for resources in (2, 4)),
    ]
    for mechanism, tenants, servers, classes, resources in sizes:
        case = Case("goals", mechanism, tenants, servers, classes, resources)
        yield case
        yield replace(case, is_mixed=True)
        if mechanism in WITH_TEXTBOOK and servers != "google singly":
            yield replace(case, solver=TEXTBOOK)
            if classes > 1:
                yield replace(case, solver=BY_CLASS)


def _make_growth() -> Iterator[Case]:
    """One size at a time, from small to large; with options, so that nothing is solved by luck."""
    for mechanism in SPREAD:
        base = Case("", mechanism, 300, "random", 10, 3, is_mixed=True)
        yield from (replace(base, group="tenants", tenants=tenants) for tenants in (30, 100, 300, 1000, 3000))
        yield from (replace(base, group="classes", classes=classes) for classes in (3, 10, 30, 100))
        yield from (replace(base, group="resources", resources=resources) for resources in (2, 4, 8, 16))
    base = Case("tenants of a pool", "", 0, classes=1, resources=3)
    by_textbook = replace(base, solver=TEXTBOOK)
    yield from (
        replace(base, mechanism=mechanism, tenants=tenants, is_mixed=True)
        for mechanism in POOLED
        for tenants in (100, 1000, 10_000, 100_000)
    )
    yield from (replace(by_textbook, mechanism="drf", tenants=tenants) for tenants in (100, 300, 1000, 3000, 10_000))
    yield from (replace(by_textbook, mechanism="dynamic-drf", tenants=tenants) for tenants in (30, 100, 300, 1000))
    yield from (
        Case("servers", "drfh", 100, "google singly", of_google=servers, solver=solver)
        for servers in (10, 30, 100, 300, 1000, 3000)
        for solver in ("fairbind", TEXTBOOK)
    )


def _make_changes() -> Iterator[Case]:
    """Solve again after one change."""
    for mechanism in ("drfh", "tsf", "ps-dsf"):
        for change in ("weight", "demand", "count"):
            yield Case("changes", mechanism, 1000, "google", is_mixed=True, change=change)
            yield Case("changes", mechanism, 1000, "random", 50, 4, is_mixed=True, change=change)


def run(cases: Sequence[Case], date: str, output: Path, *, limit: float) -> dict[str, Any]:
    """Measure everything and return the raw results; they are in the file after each case."""
    started = time.monotonic()
    results: dict[str, Any] = {
        "date": date,
        "machine": describe_machine(),
        "versions": describe_versions(),
        "limits": {"seconds": limit, "memory_gib": LIMIT_GIB},
        "start": measure_start(),
        "cases": [],
    }
    too_large: list[Case] = []
    for case in cases:
        outcome = {"status": "left out"}
        if not any(_is_larger(case, other) for other in too_large):
            outcome = run_case(case, limit)
        if outcome["status"] in ("out of time", "out of memory"):
            too_large.append(case)
        results["cases"].append({**asdict(case), **outcome})
        results["seconds"] = round(time.monotonic() - started)
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(_describe(case, outcome), flush=True)
    return results


def _is_larger(case: Case, other: Case) -> bool:
    """Whether the case is the other one, but larger in what its group lets grow."""
    if case.group in ("goals", "changes") or case.group != other.group:
        return False
    return _forget_sizes(case) == _forget_sizes(other)


def _forget_sizes(case: Case) -> Case:
    return replace(case, tenants=0, classes=0, resources=0, of_google=0)


def run_case(case: Case, limit: float, *, limit_gib: float = LIMIT_GIB) -> dict[str, Any]:
    """Run one case in a process of its own, on one thread, and return what it printed, or how it failed."""
    command = [sys.executable, str(CASE), json.dumps(asdict(case)), str(limit_gib), str(limit)]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE * limit,
            check=False,
            env={**os.environ, **one_thread},
        )
    except subprocess.TimeoutExpired:
        return {"status": "out of time"}
    if done.returncode == -signal.SIGXCPU:
        return {"status": "out of time"}
    if done.returncode:
        last = done.stderr.strip().rsplit("\n", 1)[-1]
        is_memory = done.returncode < 0 or any(mark in last for mark in MEMORY_MARKS)
        return {"status": "out of memory" if is_memory else f"failed: {last}"}
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def measure_start() -> list[dict[str, Any]]:
    """Return how long the command line takes for almost nothing, from the call to its end."""
    fairbind = Path(sys.executable).with_name("fairbind")
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.json"
        problem.write_text(json.dumps(START_PROBLEM), encoding="utf-8")
        commands = [["mechanisms"], *(["allocate", str(problem), "--mechanism", name] for name in ("drf", "drfh"))]
        figures = []
        for command in commands:
            seconds, cpu_seconds = [], []
            for _ in range(START_REPEATS):
                begin, cpu = time.perf_counter(), _read_children_seconds()
                subprocess.run([fairbind, *command], check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.perf_counter() - begin)
                cpu_seconds.append(_read_children_seconds() - cpu)
            shown = " ".join(Path(word).name for word in ["fairbind", *command])
            figures.append({"command": shown, "seconds": seconds, "cpu_seconds": cpu_seconds})
            print(f"{shown}: {min(seconds):.3f} s", flush=True)
    return figures


def _read_children_seconds() -> float:
    """Return the processor time of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _describe(case: Case, outcome: dict[str, Any]) -> str:
    figure = f"{min(outcome['seconds']):8.3f} s" if "seconds" in outcome else outcome["status"]
    kind = "mixed" if case.is_mixed else "plain"
    size = f"{case.tenants} x {case.servers}, {case.classes} classes, {case.resources} resources"
    return f"{case.group:18} {case.solver:8} {case.mechanism:15} {size:52} {kind} {case.change:7} {figure}"


if __name__ == "__main__":
    main()
