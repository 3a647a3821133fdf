"""What is reserved for a group: with known run times it starts by the time that it was promised, whatever fills in."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import CycleReport, Plan, PolicySettings, Snapshot
from fairbind.model.reservations import Reservation
from fairbind.what_if import virtual_operator
from scheduling.reference import World
from scheduling.reference_reservations import is_open, take_plan
from seeds import draw_seeds
from simulator.scenarios import Json, find_starts, make_entry, make_scenario, run

SIZES = {"g0": 4, "g1": 6, "g2": 3}


class Recorder(Decider):
    """Notes when groups start for which something is reserved, and how many tasks of others start there before.

    promised: until when each group was to start, when something was first reserved for it, without a break since then.
    overtaken: groups of whose set a tenant that is further behind took some, and when the latest part of that set was
    reserved. Nothing is promised to them until something is reserved again.
    kept: by how much groups started earlier. wrong: who took some of it and was not further behind by then.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.promised: dict[str, float] = {}
        self.overtaken: dict[str, float] = {}
        self.kept: list[float] = []
        self.wrong: list[str] = []
        self.filled_in = 0

    def decide(
        self, snapshot: Snapshot, settings: PolicySettings, now: float, order: RunCycle, **named: Any
    ) -> CycleReport:
        before = tuple(each for each in self.reservations.list_all() if each.group)
        report = super().decide(snapshot, settings, now, order, **named)
        judge = World(snapshot, settings.policy)
        for plan in report.plans:
            group = f"{plan.binds[0].task.name.rpartition('-')[0]}-0 (Job)"
            if not plan.is_single and group in self.promised:
                self.kept.append(self.promised.pop(group) - now)
            self._judge(plan, before, judge, now)
        self._find_promises()
        return report

    def _judge(self, plan: Plan, reserved: tuple[Reservation, ...], judge: World, now: float) -> None:
        """Note who takes some of what is reserved, and whether they may, by what tenants hold by now."""
        for bind in plan.binds:
            task_class = judge.snapshot.task_classes[judge.find_class(bind)]
            others = [each for each in reserved if each.server == bind.server and each.group != task_class.group_name]
            self.filled_in += len(others)
            for each in others:
                if not is_open(each, task_class, now):
                    self.overtaken[each.group] = max(other.since for other in reserved if other.group == each.group)
        if take_plan(judge, plan, reserved, now):
            self.wrong.append(f"{plan.binds[0].tenant} at {now}")

    def _find_promises(self) -> None:
        """Note until when groups start."""
        reserved = [each for each in self.reservations.list_all() if each.group]
        latest = {each.group: max(other.since for other in reserved if other.group == each.group) for each in reserved}
        self.overtaken = {group: since for group, since in self.overtaken.items() if latest.get(group) == since}
        expected = {each.group: each.expected for each in reserved if each.group not in self.overtaken}
        self.promised = {group: self.promised.get(group, until) for group, until in expected.items()}


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


FOUND = [("ceei", 8), ("ceei", 12)]
"""Under these tenants took what was reserved for a group that were further behind at the last review only."""


@pytest.mark.parametrize(
    ("policy", "seed"), [*product(["best-fit-drfh", "first-fit-drfh", "ceei"], draw_seeds(1, nightly=30)), *FOUND]
)
def test_no_group_starts_later_than_it_was_promised(policy: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[Recorder]()

    def make(*arguments: Any, **named: Any) -> Recorder:
        found.append(Recorder(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(virtual_operator, "Decider", make)
    starts = find_starts(run(draw_crowd(seed), policy))
    assert None not in [starts[f"{name}-0"] for name in SIZES]

    [recorder] = found
    assert recorder.kept
    assert min(recorder.kept) >= -1e-6
    assert recorder.wrong == []
    assert recorder.filled_in > 0, "nothing was filled in"
