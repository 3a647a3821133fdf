"""When a namespace's events or conditions are written again after a write failed."""

from __future__ import annotations

import itertools

from fairbind.cluster.loop.write_limits import (
    FIRST_REST_SECONDS,
    MAX_REMEMBERED,
    MAX_REST_SECONDS,
    PLACES_IN_A_ROW,
    WriteLimits,
)


def fail(limits: WriteLimits, place: str, now: float, asked_seconds: float | None = None) -> float:
    limits.begin(place)
    return limits.fail(place, now, asked_seconds)


def find_rest(limits: WriteLimits, place: str, now: float) -> float:
    return next(seconds for seconds in itertools.count() if limits.may_begin(place, now + seconds))


def test_a_failure_stops_only_its_own_place() -> None:
    limits = WriteLimits()
    assert fail(limits, "bad", 0.0) == 0.0
    assert not limits.may_begin("bad", FIRST_REST_SECONDS - 0.1)
    assert limits.may_begin("good", 0.0)


def test_each_rest_is_twice_as_long_up_to_a_bound_and_one_success_ends_them() -> None:
    limits = WriteLimits()
    now, rests = 0.0, []
    for _ in range(5):
        fail(limits, "bad", now)
        rests.append(find_rest(limits, "bad", now))
        now += rests[-1]
    assert rests == [5, 10, 20, MAX_REST_SECONDS, MAX_REST_SECONDS]
    limits.begin("bad")
    limits.succeed("bad", now)
    fail(limits, "bad", now)
    assert find_rest(limits, "bad", now) == FIRST_REST_SECONDS


def test_writes_that_failed_together_cost_one_rest() -> None:
    limits = WriteLimits()
    for _ in range(8):
        limits.begin("bad")
    for _ in range(8):
        limits.fail("bad", 0.0)
    assert find_rest(limits, "bad", 0.0) == FIRST_REST_SECONDS


def test_after_a_rest_one_write_at_a_time_finds_out() -> None:
    limits = WriteLimits()
    fail(limits, "bad", 0.0)
    limits.begin("bad")
    assert not limits.may_begin("bad", FIRST_REST_SECONDS)
    limits.leave("bad")
    assert limits.may_begin("bad", FIRST_REST_SECONDS)


def test_a_success_of_a_write_that_began_before_the_failure_ends_no_rest() -> None:
    limits = WriteLimits()
    limits.begin("bad")
    fail(limits, "bad", 0.0)
    limits.succeed("bad", 1.0)
    assert not limits.may_begin("bad", 2.0)


def test_the_servers_wish_for_patience_is_kept() -> None:
    limits = WriteLimits()
    fail(limits, "bad", 0.0, 12.0)
    assert find_rest(limits, "bad", 0.0) == 12.0


def test_failures_in_many_places_without_a_success_stop_everything() -> None:
    limits = WriteLimits()
    rests = [fail(limits, f"p{n}", 0.0, 9.0) for n in range(PLACES_IN_A_ROW)]
    assert rests == [0.0] * (PLACES_IN_A_ROW - 1) + [9.0]


def test_a_success_anywhere_shows_that_not_everything_fails() -> None:
    limits = WriteLimits()
    for n in range(3 * PLACES_IN_A_ROW):
        assert fail(limits, f"p{n}", 0.0) == 0.0
        limits.begin("good")
        limits.succeed("good", 0.0)


def test_memory_is_bounded() -> None:
    limits = WriteLimits()
    for n in range(MAX_REMEMBERED + 100):
        fail(limits, f"p{n}", 0.0)
    assert len(limits._places) <= MAX_REMEMBERED
    other = WriteLimits()
    for n in range(100):
        other.begin(f"p{n}")
        other.succeed(f"p{n}", 0.0)
    assert not other._places
