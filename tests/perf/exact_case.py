"""One case in a process of its own, so that its memory and its imports are its own; prints one line of JSON.

`exact.py` starts this; by hand:
.venv/bin/python tests/perf/exact_case.py '{"group": "", "mechanism": "drf", "tenants": 9}'
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path[:1] = [str(Path(__file__).resolve().parents[1])]

from perf.exact_problems import TEXTBOOK, Case, make_case_problem  # noqa: E402  the path comes first

LONG_SECONDS = 5.0  # a case that takes longer is not repeated
REPEATS = 3


def main() -> None:
    """Measure the case of the first argument; the second is the limit of memory in GiB."""
    limit = int(float(sys.argv[2]) * 2**30) if len(sys.argv) > 2 else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    case = Case(**json.loads(sys.argv[1]))
    try:
        outcome = measure(case)
    except MemoryError:
        outcome = {"status": "out of memory"}
    print(json.dumps(outcome))


def measure(case: Case) -> dict[str, Any]:
    """Return seconds of each run (the first one imports what it needs) and the memory before and at the most."""
    problem = make_case_problem(case)
    run: Callable[[], Mapping[str, Any]]
    if case.solver == TEXTBOOK:
        from perf.exact_textbook import solve_textbook  # noqa: PLC0415  ours must not pay for scipy

        def run() -> Mapping[str, Any]:
            return {"total": float(solve_textbook(problem, case.mechanism).sum())}
    else:
        from fairbind.fairness.solve import compute_allocation  # noqa: PLC0415

        def run() -> Mapping[str, Any]:
            allocation = compute_allocation(problem, case.mechanism)
            return {"total": float(allocation.totals_i.sum()), "certificate": _shorten(allocation.certificate)}

    before = read_peak_mib()
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    answer: dict[str, Any] = {}
    while len(seconds) < REPEATS and sum(seconds) < LONG_SECONDS:
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        answer = dict(run())
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    return {
        "status": "optimal",
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "memory_before_mib": before,
        "memory_mib": read_peak_mib(),
        **answer,
    }


def read_peak_mib() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _shorten(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is as long as the problem."""
    return {name: value for name, value in certificate.items() if isinstance(value, (str, int, float))}


if __name__ == "__main__":
    main()
