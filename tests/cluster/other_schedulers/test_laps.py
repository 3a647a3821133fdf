"""Laps of a scheduler's queue, as seen from the pods that it asks about."""

from __future__ import annotations

from math import inf

import pytest

from fairbind.cluster.other_schedulers.laps import Laps

HIGH, LOW = 1000, 0


def ask(laps: Laps, *asked: tuple[str, int]) -> None:
    """Ask about these pods, with their priorities, one a second."""
    for now, (uid, priority) in enumerate(asked):
        laps.note_asked(uid, priority, float(now))


def test_a_lap_ends_with_the_first_pod_that_is_asked_about_again() -> None:
    laps = Laps(0.0)
    ask(laps, ("a", LOW), ("b", LOW), ("c", LOW), ("b", LOW))
    assert laps.passed_until == 0.0
    laps.note_asked("a", LOW, 4.0)
    assert laps.passed_until == 0.0, "the next lap began with b"
    laps.note_asked("b", LOW, 5.0)
    assert laps.passed_until == 3.0


@pytest.mark.parametrize(("priority", "passed_until"), [(HIGH, -inf), (LOW, 2.0)])
def test_pods_that_come_first_always_tell_of_no_lap(priority: int, passed_until: float) -> None:
    laps = Laps(0.0)
    ask(laps, ("a", priority), ("b", LOW), ("a", priority), ("c", LOW), ("a", priority), ("d", LOW))
    assert laps.passed_until == passed_until


def test_where_only_one_priority_is_looked_at_it_tells_of_laps() -> None:
    laps = Laps(0.0)
    ask(laps, ("a", HIGH), ("b", HIGH), ("a", HIGH))
    assert laps.passed_until == 0.0


def test_what_waits_no_longer_tells_of_no_lap() -> None:
    laps = Laps(0.0)
    ask(laps, ("a", LOW), ("b", LOW))
    laps.forget("a")
    laps.note_asked("a", LOW, 2.0)
    assert laps.passed_until == -inf
