"""The same as in `test_histories` where most decisions are plans of several pods."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.kube.operator import compose
from fairbind.model import CycleReport, Plan
from kube.assembled.processes import run_processes
from kube.assembled.test_histories import live
from seeds import draw_seeds

HISTORIES, BATCH = 60, 20
LARGEST = 6

pytestmark = pytest.mark.slow


class RandomJoiner(Decider):
    """Joins decisions that follow each other to plans of random sizes."""

    def decide(self, *arguments: Any, **options: Any) -> CycleReport:
        report = super().decide(*arguments, **options)
        binds, plans, dice = list(report.bindings), list[Plan](), random.Random(len(report.bindings))
        while binds:
            count = dice.randint(1, LARGEST)
            plans.append(Plan(tuple(binds[:count])))
            del binds[:count]
        return replace(report, plans=tuple(plans))


@pytest.mark.parametrize("first", draw_seeds(HISTORIES)[::BATCH])
def test_random_histories_of_plans_end_well(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "Decider", RandomJoiner)
    for seed in range(first, first + BATCH):
        run_processes(live(seed))
