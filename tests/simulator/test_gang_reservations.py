"""What is reserved for a group: with known run times it starts by the time that it was promised, whatever fills in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import CycleReport, PolicySettings, Snapshot
from fairbind.what_if import virtual_operator
from seeds import draw_seeds
from simulator.scenarios import Json, find_starts, make_entry, make_scenario, run

SIZES = {"g0": 4, "g1": 6, "g2": 3}


class Recorder(Decider):
    """Notes when groups start for which something is reserved, and how many tasks of others start there before.

    promised: until when each group was to start, when something was first reserved for it, without a break since then.
    overtaken: the groups before which some tenant came by its share since then: to that one nothing was promised.
    kept: by how much it started earlier.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.promised: dict[str, float] = {}
        self.overtaken: set[str] = set()
        self.kept: list[float] = []
        self.filled_in = 0

    def decide(
        self, snapshot: Snapshot, settings: PolicySettings, now: float, order: RunCycle, **named: Any
    ) -> CycleReport:
        reserved = {each.server for each in self.reservations.list_all() if each.group}
        report = super().decide(snapshot, settings, now, order, **named)
        for plan in report.plans:
            group = f"{plan.binds[0].task.name.rpartition('-')[0]}-0 (Job)"
            if not plan.is_single and group in self.promised and group not in self.overtaken:
                self.kept.append(self.promised.pop(group) - now)
            self.filled_in += sum(bind.server in reserved and bind.tenant != "a" for bind in plan.binds)
        promises = self._find_promises(now)
        self.promised = {group: self.promised.get(group, expected) for group, expected in promises.items()}
        return report

    def _find_promises(self, now: float) -> dict[str, float]:
        """Return until when groups start before which no tenant came by its share."""
        reserved = [each for each in self.reservations.list_all() if each.group]
        self.overtaken &= {each.group for each in reserved}
        self.overtaken |= {each.group for each in reserved if each.behind}
        return {each.group: max(each.expected, now) for each in reserved if each.group not in self.overtaken}


def draw_crowd(seed: int) -> Json:
    """Return three groups of whole nodes among a stream of small tasks."""
    stream = np.random.default_rng(seed)
    small = [
        make_entry(
            f"s{number}",
            tenant="bc"[number % 2],
            tasks=120,
            cpu=int(stream.integers(1, 4)),
            arrival={"poisson": 0.5},
            duration={"uniform": [5, 60]},
        )
        for number in range(4)
    ]
    groups = [
        make_entry(name, tasks=size, cpu=8, duration=40, gang={"min": size}, arrival={"at": int(at)})
        for (name, size), at in zip(SIZES.items(), stream.integers(30, 200, len(SIZES)), strict=True)
    ]
    return make_scenario(*small, *groups, tenants="abc", cpu=8, count=8, seed=seed, knownRunTimes=True, horizon=2000)


@pytest.mark.parametrize("policy", ["best-fit-drfh", "first-fit-drfh", "ceei"])
def test_no_group_starts_later_than_it_was_promised(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[Recorder]()

    def make(*arguments: Any, **named: Any) -> Recorder:
        found.append(Recorder(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(virtual_operator, "Decider", make)
    for seed in draw_seeds(1, nightly=30):
        starts = find_starts(run(draw_crowd(seed), policy))
        assert None not in [starts[f"{name}-0"] for name in SIZES]

    kept = [seconds for each in found for seconds in each.kept]
    assert len(kept) >= len(found)
    assert min(kept) >= -1e-6
    assert sum(each.filled_in for each in found) > 0, "nothing was filled in"
