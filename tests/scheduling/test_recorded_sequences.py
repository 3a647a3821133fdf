"""Worlds that go on, with and without a memory, are decided and explained as on the day of the recording."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduling.recorded.cases import CYCLES
from scheduling.recorded.recording import check_block, read_recorded
from scheduling.recorded.series import EVOLVING

# Other tests say what is covered; to trace these would cost minutes.
pytestmark = [pytest.mark.no_cover, pytest.mark.slow]


@pytest.mark.parametrize("start", EVOLVING.blocks)
def test_sequences_are_decided_as_recorded(start: int) -> None:
    check_block(EVOLVING, start)


def test_the_sequences_have_in_them_what_they_promise() -> None:
    found: Counter[str] = Counter()
    for number in range(0, EVOLVING.count, 21):
        *cycles, last = EVOLVING.play(number)
        assert len(cycles) == CYCLES
        recalled = int(last.removeprefix("recalled "))
        assert recalled == 0 or number % 2 == 0
        found["recalled"] += recalled
        for cycle in cycles:
            lines = cycle.splitlines()
            found["a binding"] += any(line.startswith("bind ") for line in lines)
            found["fairness"] += any(line.startswith("wait ") and not line.endswith(" -") for line in lines)
            found["incomplete"] += "complete=False" in lines[0]
            found["ports in conflict"] += "conflicting claims" in cycle

    reserved = {"a binding": 200, "fairness": 150, "incomplete": 5, "ports in conflict": 40, "recalled": 800}
    assert {what: found[what] for what, least in reserved.items() if found[what] < least} == {}


def test_no_two_sequences_are_decided_alike() -> None:
    assert len(set(read_recorded(EVOLVING))) == EVOLVING.count
