"""Trials change no decision, and look at the classes of one tenant."""

from __future__ import annotations

import pytest

from perf.cycle_cost import list_cases
from perf.fork_cost import TRIALS, measure
from perf.test_cycle_cost import collector

__all__ = ["collector"]

ROUNDS = 3
CYCLES = 3
"""For each pod: it comes, it is seen to be bound, and it ends."""


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_what_was_tried_changes_no_decision_and_looks_at_one_tenant(policy: str) -> None:
    case = list_cases(part=0.05)[0]
    found = measure(case, ROUNDS, policy)

    tried, plain = found["decisions"]
    assert tried == plain
    assert found["trials"] == ROUNDS * CYCLES * TRIALS
    assert found["looked_at"] == case.waiting // case.tenants
