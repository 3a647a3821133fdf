"""Runs one workload once and prints what it cost as JSON; `sim.py` starts it in a process of its own.

    sim_case.py WORKLOAD fairbind|scan PART TRACES

Seconds are processor time of this process, which has one thread.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:1] = [str(Path(__file__).resolve().parents[1])]

from fairbind.simulator.driver import simulate  # noqa: E402
from fairbind.simulator.parsing import parse_scenario  # noqa: E402
from fairbind.simulator.report import compute_report  # noqa: E402
from fairbind.simulator.results import Run  # noqa: E402
from fairbind.simulator.scenario import Scenario  # noqa: E402
from fairbind.simulator.tables import CSV, write_results  # noqa: E402
from fairbind.simulator.workload import Workload, draw_workload  # noqa: E402
from perf.sim_cases import WORKLOADS  # noqa: E402  the path comes first
from perf.sim_scan import DirectScan  # noqa: E402

POLICY = "best-fit-drfh"
MEBIBYTE_IN_KIB = 1024


class Clock:
    """Seconds of parts: of this process's processor, and by the wall."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.wall = 0.0

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Time a block."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.parts[part] = time.process_time() - cpu
        self.wall += time.perf_counter() - wall


def main() -> None:
    """Run what the command line says."""
    name, kind, part, traces = sys.argv[1:]
    clock = Clock()
    with clock.time("read"):
        document = WORKLOADS[name].make(Path(traces), float(part))
        scenario = parse_scenario(document | {"reservations": {"mode": "Off"}})  # the scan has none
    with clock.time("draw"):
        workload = draw_workload(scenario)
    figures = run_scan(scenario, workload, clock) if kind == "scan" else run_fairbind(scenario, workload, clock)
    print(
        json.dumps(
            {
                "status": "done",
                "tasks": len(workload.arrival_t),
                "tenants": len(scenario.tenants),
                "servers": sum(shape.count for shape in scenario.shapes.values()),
                "entries": len(scenario.workload),
                **figures,
                "parts": {part: round(seconds, 3) for part, seconds in clock.parts.items()},
                "seconds": round(sum(clock.parts.values()), 3),
                "wall_seconds": round(clock.wall, 3),
                "memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEBIBYTE_IN_KIB),
            }
        )
    )


def run_fairbind(scenario: Scenario, workload: Workload, clock: Clock) -> dict[str, Any]:
    """Do all that `fairbind simulate --out DIR --tables csv` does, from the scenario on."""
    with clock.time("simulate"):
        run = simulate(scenario, workload, POLICY)
    with clock.time("write"), tempfile.TemporaryDirectory() as folder:
        write_results(Path(folder), [run], CSV, composite=scenario.composite, notes=scenario.notes)
        (Path(folder) / "report.html").write_text(compute_report(scenario, [run]), encoding="utf-8")
    starts = [(row.start, row.task, row.server) for row in run.tasks if row.start is not None]
    return {"decisions": len(starts), "mean_wait_seconds": compute_mean_wait(run)}


def compute_mean_wait(run: Run) -> float:
    waits = [row.start - row.arrival for row in run.tasks if row.start is not None]
    return round(sum(waits) / max(1, len(waits)) / 1e9, 3)


def run_scan(scenario: Scenario, workload: Workload, clock: Clock) -> dict[str, Any]:
    """Simulate by scanning."""
    scan = DirectScan(scenario, workload)
    with clock.time("simulate"):
        scan.live()
    arrival = workload.arrival_t.tolist()
    waits = [start.time - arrival[start.number] for start in scan.starts]
    return {
        "decisions": len(scan.starts),
        "mean_wait_seconds": round(sum(waits) / max(1, len(waits)) / 1e9, 3),
    }


if __name__ == "__main__":
    main()
