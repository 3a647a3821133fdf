"""Deciders whose first cycle joins all that it decides to one plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_order

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import Bind, CycleReport, Plan, PolicySettings, Snapshot, plan_each

MOST = 1_000
"""So many are decided, whatever is ordered."""


class JoiningDecider(Decider):
    """See the module. plans: the plans of the first cycle. singles: so many of its binds come before the large plan.

    joins_always: whether later cycles do so, too.
    """

    plans: list[Plan]
    singles = 0
    joins_always = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.plans = []

    def decide(
        self, snapshot: Snapshot, settings: PolicySettings, now: float, order: RunCycle, **options: Any
    ) -> CycleReport:
        if self.plans and not self.joins_always:
            return super().decide(snapshot, settings, now, order, **options)
        report = super().decide(snapshot, settings, now, replace_order(order, limit=MOST), **options)
        plans = self.join(report.bindings) if report.bindings else ()
        self.plans += plans
        return replace(report, plans=tuple(plans))

    def join(self, binds: tuple[Bind, ...]) -> Sequence[Plan]:
        return [*plan_each(binds[: self.singles]), Plan(binds[self.singles :])]


class TornDecider(JoiningDecider):
    """One in whose plan the second pod is not there."""

    def join(self, binds: tuple[Bind, ...]) -> Sequence[Plan]:
        first, second, *others = binds
        return [Plan((first, replace(second, task=replace(second.task, uid="gone")), *others))]
