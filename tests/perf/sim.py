"""Run the benchmark of the simulator: ``make bench-sim TRACES=folder``, or ``python tests/perf/sim.py --help``.

Each workload is simulated in a process of its own, by fairbind and by a direct scan of all servers for each decision.
The traces are published elsewhere and are no part of the project; a workload whose files are missing is left out.
Writes raw results to docs/benchmarks/results/simulator, and from them docs/benchmarks/simulator.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from perf.carrying_out import Report, carry_out  # noqa: E402  the path comes first
from perf.machine import describe_machine, describe_versions  # noqa: E402
from perf.sim_cases import WORKLOADS  # noqa: E402
from perf.sim_report import RESULTS, render_tables, write_page  # noqa: E402

CASE = Path(__file__).with_name("sim_case.py")
KINDS = ("fairbind", "scan")
SMALL = 0.002
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    options = parse_arguments(arguments)
    report = Report(RESULTS, render_tables, write_page)
    carry_out(options, report, lambda date, output: run(options, date, output), is_whole=not options.small)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sim.py", description="Measure the simulator.")
    parser.add_argument("--traces", type=Path, help="folder of the published traces")
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", choices=list(WORKLOADS), help="only these workloads")
    parser.add_argument("--part", type=float, default=1.0, help="of the servers and of the tasks (1)")
    parser.add_argument("--small", action="store_true", help="tiny sizes: shows only that it works")
    parser.add_argument("--output", type=Path, help="where the raw results go (docs/benchmarks/results/simulator)")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only make the page from raw results")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, date: str, output: Path) -> dict[str, Any]:
    """Measure everything and return the raw results; they are in the file after each case."""
    results: dict[str, Any] = {
        "date": date,
        "machine": describe_machine(),
        "versions": describe_versions(),
        "cases": [],
    }
    if output.exists():  # what is measured again is replaced
        results["cases"] = json.loads(output.read_text(encoding="utf-8"))["cases"]
    part = SMALL if options.small else options.part
    for name in options.only or WORKLOADS:
        for kind in KINDS:
            outcome = {"status": "left out: no traces"}
            if options.traces is not None or not WORKLOADS[name].needs_traces:
                outcome = run_case(name, kind, part, options.traces)
            case = {
                "workload": name,
                "kind": kind,
                "part": part,
                "load": os.getloadavg()[0],
                "version": results["versions"]["fairbind"],
                **outcome,
            }
            same = (name, kind, part)
            results["cases"] = [
                each for each in results["cases"] if (each["workload"], each["kind"], each["part"]) != same
            ] + [case]
            output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"{name}, {kind}: {outcome.get('seconds', outcome['status'])}", flush=True)
    return results


def run_case(name: str, kind: str, part: float, traces: Path | None) -> dict[str, Any]:
    """Run one case in a process of its own, on one thread, and return what it printed, or how it failed."""
    command = [sys.executable, str(CASE), name, kind, str(part), str(traces or "")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD})
    if done.returncode:
        return {"status": f"failed: {done.stderr.strip().rpartition(chr(10))[2]}"}
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


if __name__ == "__main__":
    main()
