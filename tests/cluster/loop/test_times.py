"""A cycle runs when the time comes that the one before it named, though nothing changes."""

from __future__ import annotations

import pytest

from cluster.loop.test_pacing import Machine
from fairbind.cluster.loop.pacing import COALESCE_SECONDS, SWEEP_SECONDS
from fairbind.cluster.loop.pacing_events import CycleEnded, CycleFailed, Decided, RunCycle


def decide(machine: Machine, now: float, again_in: float | None) -> float:
    """Let a cycle say after how long another one may decide more; return when it said it."""
    machine.begin_cycle(now)
    at = max(machine.wake_at, now)
    machine.feed(Decided([], complete=True, classes=1, again_in=again_in), at)
    machine.feed(CycleEnded(0.0), at)
    return at


def find_next_cycle(machine: Machine) -> float:
    """Return when the next cycle runs if nothing changes."""
    for _ in range(200):
        now = machine.wake_at
        if any(isinstance(instruction, RunCycle) for instruction in machine.tick(now)):
            return now
    pytest.fail("no cycle runs")


@pytest.mark.parametrize("seconds", [0.001, 0.3, 12.5, 120.0])
def test_a_cycle_runs_at_the_time_that_the_one_before_it_named(seconds: float) -> None:
    machine = Machine()
    at = decide(machine, 1.0, seconds)
    assert find_next_cycle(machine) == pytest.approx(at + seconds + COALESCE_SECONDS)


def test_a_named_time_counts_once() -> None:
    machine = Machine()
    decide(machine, 1.0, 2.0)
    at = find_next_cycle(machine)
    machine.feed(Decided([], complete=True, classes=1), at)
    machine.feed(CycleEnded(0.0), at)
    assert find_next_cycle(machine) > SWEEP_SECONDS


@pytest.mark.parametrize("again_in", [None, 7.0, 200.0])
def test_a_later_cycle_names_another_time_or_none(again_in: float | None) -> None:
    machine = Machine()
    decide(machine, 1.0, 20.0)
    at = decide(machine, 3.0, again_in)
    if again_in is None:
        assert find_next_cycle(machine) > SWEEP_SECONDS
    else:
        assert find_next_cycle(machine) == pytest.approx(at + again_in + COALESCE_SECONDS)


def test_a_time_that_comes_while_a_cycle_fails_is_not_lost() -> None:
    machine = Machine()
    decide(machine, 1.0, 2.0)
    at = find_next_cycle(machine)
    machine.feed(CycleFailed(None), at)
    assert find_next_cycle(machine) < at + 2.0
