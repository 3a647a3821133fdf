"""What does it cost to try an eviction? `.venv/bin/python tests/perf/fork_cost.py --help`.

The full cluster of `cycle_cost.py`: 1,000 nodes, where 40 tenants wait with 5,000 pods, each for something else.
Timed is the processor time of a fork of the draft after its last decision; of a trial in it, which evicts a pod of half
a node and places the pod that takes its room; and of the next cycle, for one pod that comes and fits. Compared with it
is the same cycle where no fork was made, in a second cluster that lives through the same. Both decide the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from fairbind.model.policy import DEFAULT_POLICY  # noqa: E402  the path comes first
from fairbind.scheduling import POLICIES  # noqa: E402
from fairbind.scheduling.cycle import cycle as cycles  # noqa: E402
from fairbind.scheduling.cycle.draft import Draft  # noqa: E402
from fairbind.scheduling.cycle.fork import Fork  # noqa: E402
from perf.cycle_cost import COMES, Case, World, list_cases  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402

Json = dict[str, Any]
TRIALS = 3
"""Forks of each draft, one after the other."""


class _Decided(World):
    """A world that remembers what was decided in it. digest: of all decisions. cycle_ms: of the last pod that came."""

    def __init__(self, case: Case, policy: str) -> None:
        self.digest = sha256()
        super().__init__(case, policy)

    def decide(self) -> Any:
        found = super().decide()
        self.digest.update(repr([(bind.task.uid, bind.server) for bind in found[1]]).encode())
        return found

    def measure_next(self) -> float:
        """Return the milliseconds of the cycle for a pod that comes and fits, which ends afterwards."""
        ((change, times), *_) = self.have_pod_come()
        assert change == COMES
        return sum(times)


class Trials:
    """Tries evictions on each draft that ends while it is patched in, and notes the milliseconds of forks and trials.

    looked_at: at how many classes each trial looked.
    """

    def __init__(self) -> None:
        self.fork_ms: list[float] = []
        self.trial_ms: list[float] = []
        self.looked_at: list[int] = []

    def run(self, draft: Draft) -> None:
        """Evict a task from some servers, one after the other, each in a fork of its own."""
        names = list(draft.snapshot.running)
        for n in range(TRIALS):
            (running, *_) = draft.snapshot.running[names[n * len(names) // TRIALS]]
            begin = time.process_time()
            fork = Fork(draft)
            made = time.process_time()
            fork.evict(running)
            choice = fork.find_choice()
            assert choice is not None
            fork.take(choice)
            looked_at = fork.looked_at
            fork.discard()
            end = time.process_time()
            self.fork_ms.append(1_000.0 * (made - begin))
            self.trial_ms.append(1_000.0 * (end - made))
            self.looked_at.append(looked_at)

    def make_draft(self, *arguments: Any, **options: Any) -> Draft:
        """Return a draft that is tried at its end."""
        trials = self

        class Tried(Draft):
            def end(self) -> None:
                trials.run(self)
                super().end()

        return Tried(*arguments, **options)


def measure(case: Case, rounds: int, policy: str = DEFAULT_POLICY) -> Json:
    """Return the medians in milliseconds, how many classes a trial looked at, and what both clusters decided."""
    tried, plain, trials = _Decided(case, policy), _Decided(case, policy), Trials()
    after: list[float] = []
    without: list[float] = []
    for _ in range(rounds):
        with patch.object(cycles, "Draft", trials.make_draft):
            tried.measure_next()
        plain.measure_next()
        after.append(tried.measure_next())
        without.append(plain.measure_next())
    figures = {"fork": trials.fork_ms, "trial": trials.trial_ms, "next cycle": after, "without forks": without}
    return {
        "case": case.name,
        "trials": len(trials.trial_ms),
        "median_ms": {name: round(statistics.median(each), 3) for name, each in figures.items()},
        "p99_ms": {name: round(sorted(each)[len(each) * 99 // 100], 3) for name, each in figures.items()},
        "looked_at": statistics.median(trials.looked_at),
        "decisions": [tried.digest.hexdigest()[:16], plain.digest.hexdigest()[:16]],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the numbers where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often a pod comes (100)")
    parser.add_argument("--policy", choices=list(POLICIES), default=DEFAULT_POLICY, help=f"decides ({DEFAULT_POLICY})")
    parser.add_argument("--output", type=Path, help="write the numbers here, too")
    options = parser.parse_args(arguments)
    found = measure(list_cases()[0], options.rounds, options.policy)
    about: Json = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "rounds": options.rounds}
    about |= {"policy": options.policy, "machine": describe_machine(), "versions": describe_versions()}
    text = json.dumps({**about, **found}, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
