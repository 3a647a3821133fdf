"""A decider whose first cycle joins all that it decides to one plan, of which the second pod is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fairbind.cluster.loop.deciding import Decider
from fairbind.model import CycleReport, Plan


class TornDecider(Decider):
    """See the module. plans: the plan."""

    plans: list[Plan]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.plans = []

    def decide(self, *arguments: Any, **options: Any) -> CycleReport:
        report = super().decide(*arguments, **options)
        if self.plans:
            return report
        first, second, *others = report.bindings
        gone = replace(second, task=replace(second.task, uid="gone"))
        self.plans.append(Plan((first, gone, *others)))
        return replace(report, plans=tuple(self.plans))
