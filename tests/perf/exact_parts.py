"""Which numerical parts of the exact library pay: ``.venv/bin/python tests/perf/exact_parts.py``.

Each part is left out, and problems that it is for are solved with and without it, in turn, each in a process of its
own. Counted are the answers that the certificate accepts; measured is the processor time for all of them. Writes
docs/benchmarks/results/exact/parts/parts.json, from which `exact.py --render` makes a table of exact.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from fairbind.fairness.mechanisms import alpha_pf_vds, ps_dsf  # noqa: E402  the path comes first
from fairbind.fairness.mechanisms.registry import MECHANISMS  # noqa: E402
from fairbind.fairness.problems.problem import Problem  # noqa: E402
from fairbind.fairness.solve import compute_allocation  # noqa: E402
from fairbind.fairness.solvers.maxmin import level_lp  # noqa: E402
from fairbind.fairness.solvers.psdsf.psdsf_active_set import Division  # noqa: E402
from fairbind.fairness.solvers.psdsf.psdsf_market_start import make_feasible  # noqa: E402
from fairbind.model.errors import SolverError  # noqa: E402
from fairness.families import families_for  # noqa: E402
from perf.exact_problems import Case, make_case_problem  # noqa: E402
from perf.exact_report import PARTS  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402

SEEDS = range(6)
ALPHAS = (0.01, 0.1, 0.5, 2.0, 5.0, 10.0)
LIMIT_SECONDS = 60  # of processor time, for one large problem
FAMILIES_LIMIT_SECONDS = 240
REPEATS = 2
FAMILIES = "all families of the tests"
NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of problems, solved with everything or without a part.

    part: the name of the part. without: what is left out, or NONE. case: a large problem; None for the families.
    """

    part: str
    mechanism: str
    without: str
    case: dict[str, Any] | None = None


def leave_out_best_response() -> None:
    """The interior-point and the active-set method only."""
    alpha_pf_vds.FIRST_RESPONSES = alpha_pf_vds.MOST_RESPONSES + 1


def leave_out_psdsf_active_set() -> None:
    """What sweeps and markets give is the answer."""

    def keep(search: ps_dsf.Search, rough: Division, rounds: int) -> None:
        del rounds
        search.keep(make_feasible(search.market, rough))

    ps_dsf.Search.solve_active_set = keep  # type: ignore[assignment, method-assign]


def leave_out_psdsf_market_start() -> None:
    """Only sweeps lead to the exact amounts."""
    ps_dsf.MARKETS = 0


def leave_out_column_generation() -> None:
    """All pairs are in the program at once."""
    level_lp.PAIRS_AT_ONCE = sys.maxsize


PARTS_OUT: dict[str, Callable[[], None]] = {
    "best_response": leave_out_best_response,
    "psdsf_active_set": leave_out_psdsf_active_set,
    "psdsf_market_start": leave_out_psdsf_market_start,
    "column generation": leave_out_column_generation,
}
_SPREAD = Case("", "", 1000, "random", 50, 4)
_GOOGLE = Case("", "", 1000, "google")
LARGE: dict[str, tuple[Case, ...]] = {
    "alpha-pf-vds": (
        replace(_GOOGLE, tenants=200, is_mixed=True),
        replace(_SPREAD, tenants=300, classes=30, resources=3, is_mixed=True),
    ),
    "ps-dsf": (
        _GOOGLE,
        replace(_GOOGLE, is_mixed=True),
        replace(_SPREAD, tenants=300, classes=10, resources=3, is_mixed=True),
        _SPREAD,
        replace(_SPREAD, is_mixed=True),
    ),
    "drfh": (
        _GOOGLE,
        replace(_GOOGLE, is_mixed=True),
        replace(_SPREAD, tenants=300, classes=30, resources=3, is_mixed=True),
        _SPREAD,
        replace(_SPREAD, is_mixed=True),
        replace(_SPREAD, classes=100, is_mixed=True),
        replace(_SPREAD, tenants=3000, classes=30, resources=3),
    ),
}
MECHANISM_OF = {
    "best_response": "alpha-pf-vds",
    "psdsf_active_set": "ps-dsf",
    "psdsf_market_start": "ps-dsf",
    "column generation": "drfh",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all parts, or one trial, which is what this program starts itself for."""
    parser = argparse.ArgumentParser(prog="exact_parts.py", description="Measure what each numerical part is good for.")
    parser.add_argument("--trial", metavar="JSON", help="only this one; prints one line of JSON")
    parser.add_argument("--output", type=Path, default=PARTS)
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.trial is not None:
        print(json.dumps(run_trial(Trial(**json.loads(options.trial)))))
        return
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "limits": {"seconds": LIMIT_SECONDS, "families_seconds": FAMILIES_LIMIT_SECONDS},
        "trials": [],
    }
    for trials in make_plan():
        runs: dict[str, list[dict[str, Any]]] = {trial.without: [] for trial in trials}
        for _ in range(REPEATS):  # in turn, so that a busy machine is busy for both
            for trial in trials:
                if not any(run["status"] != "ended" for run in runs[trial.without]):
                    runs[trial.without].append(start_trial(trial))
        for trial in trials:
            results["trials"].append({**asdict(trial), "runs": runs[trial.without]})
            print(json.dumps(results["trials"][-1]), flush=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def make_plan() -> Iterator[tuple[Trial, Trial]]:
    """Yield each set of problems with everything, and without the part."""
    for part, mechanism in MECHANISM_OF.items():
        for case in (None, *(replace(case, mechanism=mechanism) for case in LARGE[mechanism])):
            told = None if case is None else asdict(case)
            yield Trial(part, mechanism, NONE, told), Trial(part, mechanism, part, told)


def start_trial(trial: Trial) -> dict[str, Any]:
    """Run the trial in a process of its own; it ends by itself when its processor time is up."""
    command = [sys.executable, "-W", "ignore", __file__, "--trial", json.dumps(asdict(trial))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return {"status": "out of time"}
    if done.returncode:
        return {"status": f"failed: {done.stderr.strip().rsplit(chr(10), 1)[-1]}"}
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def run_trial(trial: Trial) -> dict[str, Any]:
    """Solve the trial's problems; return how many there are, how many were answered, and the seconds."""
    import resource  # noqa: PLC0415  only in the process that is limited

    problems = list(_make_problems(trial))
    compute_allocation(*problems[0][:2], alpha=problems[0][2])  # imports what it needs
    if trial.without != NONE:
        PARTS_OUT[trial.without]()
    most = FAMILIES_LIMIT_SECONDS if trial.case is None else LIMIT_SECONDS
    spent = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + most, spent + most + 1))
    answered, slowest = 0, 0.0
    begin = time.process_time()
    for problem, mechanism, alpha in problems:
        own = time.process_time()
        try:
            compute_allocation(problem, mechanism, alpha=alpha)
            answered += 1
        except SolverError:
            pass
        slowest = max(slowest, time.process_time() - own)
    seconds = time.process_time() - begin
    return {
        "status": "ended",
        "problems": len(problems),
        "answered": answered,
        "seconds": seconds,
        "slowest": slowest,
    }


def _make_problems(trial: Trial) -> Iterator[tuple[Problem, str, float | None]]:
    alphas = ALPHAS if trial.mechanism == "alpha-pf-vds" else (None,)
    if trial.case is not None:
        yield make_case_problem(Case(**trial.case)), trial.mechanism, None
        return
    for family in families_for(MECHANISMS[trial.mechanism].options):
        for seed in SEEDS:
            generator = np.random.default_rng(seed)
            problem = family.make(generator)
            yield from ((problem, trial.mechanism, alpha) for alpha in alphas)
            if trial.mechanism == "alpha-pf-vds":
                alpha_k = np.exp(generator.uniform(np.log(0.05), np.log(20), len(problem.server_names)))
                yield replace(problem, alpha_k=alpha_k), trial.mechanism, None


if __name__ == "__main__":
    main()
