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

from perf.exact_problems import BY_CLASS, TEXTBOOK, Case, change_problem, make_case_problem  # noqa: E402  the path comes first

LONG_SECONDS = 5.0  # a case that takes longer is not repeated
REPEATS = 3


def main() -> None:
    """Measure the case of the first argument; the others are the most of memory (GiB) and processor time (s)."""
    for kind, unit, given in zip((resource.RLIMIT_AS, resource.RLIMIT_CPU), (2**30, 1), sys.argv[2:], strict=False):
        most = int(float(given) * unit)
        resource.setrlimit(kind, (most, most + unit))
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
    if case.solver in (TEXTBOOK, BY_CLASS):
        from perf.exact_textbook import solve_textbook  # noqa: PLC0415  ours must not pay for scipy

        def run() -> Mapping[str, Any]:
            tasks_i = solve_textbook(problem, case.mechanism, is_by_class=case.solver == BY_CLASS)
            return {"total": float(tasks_i.sum())}
    else:
        from fairbind.fairness.solve import compute_allocation  # noqa: PLC0415

        changed = change_problem(problem, case.change)

        def run() -> Mapping[str, Any]:
            allocation = compute_allocation(changed, case.mechanism)
            return {"total": float(allocation.totals_i.sum()), "certificate": _shorten(allocation.certificate)}

    before = read_peak_mib()
    answer: dict[str, Any] = {}
    watch = Stopwatch()
    while len(watch.seconds) < REPEATS and watch.spent < LONG_SECONDS:
        with watch:
            answer = dict(run())
    outcome = {"status": "optimal", "seconds": watch.seconds, "wall_seconds": watch.wall_seconds}
    if case.change:
        outcome |= measure_again(case)
    return {**outcome, "memory_before_mib": before, "memory_mib": read_peak_mib(), **answer}


def measure_again(case: Case) -> dict[str, Any]:
    """Return the seconds of going from the problem to the changed one and back, each from the other's answer.

    difference: the largest relative one of a tenant's tasks to the answer from scratch.
    """
    from fairbind.fairness.solve import compute_allocation  # noqa: PLC0415
    from fairbind.fairness.solvers.warm import WarmStart  # noqa: PLC0415

    problem = make_case_problem(case)
    changed = change_problem(problem, case.change)
    expected_i = compute_allocation(changed, case.mechanism).totals_i
    warm, difference, watch = WarmStart(), 0.0, Stopwatch()
    compute_allocation(problem, case.mechanism, warm=warm)
    while len(watch.seconds) < 2 * REPEATS and watch.spent < LONG_SECONDS:
        for version in (changed, problem):
            with watch:
                totals_i = compute_allocation(version, case.mechanism, warm=warm).totals_i
            if version is changed:
                difference = max(difference, float((abs(totals_i - expected_i) / expected_i.clip(1e-300)).max()))
    return {"again_seconds": watch.seconds, "again_wall_seconds": watch.wall_seconds, "difference": difference}


class Stopwatch:
    """Seconds of processor time and of the wall's clock of each `with`; everything runs on one thread.

    Others may use the machine: then processor time is what the wall's clock would show without them.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.wall_seconds: list[float] = []

    @property
    def spent(self) -> float:
        return sum(self.seconds)

    def __enter__(self) -> None:
        gc.collect()
        self._begin = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.process_time() - self._begin[0])
        self.wall_seconds.append(time.perf_counter() - self._begin[1])


def read_peak_mib() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _shorten(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is as long as the problem."""
    return {name: value for name, value in certificate.items() if isinstance(value, (str, int, float))}


if __name__ == "__main__":
    main()
