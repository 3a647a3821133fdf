"""The books of gate mode: limits, room that is given back, shares that are not."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.other_schedulers.gate_limiter import (
    AWAY_TIMES,
    MOST_UNGATED,
    SLOW_TIMES,
    TIMEOUT_SECONDS,
    GateLimiter,
    ScaleUp,
)
from fairbind.cluster.other_schedulers.laps import IDLE_SECONDS, Laps
from fairbind.cluster.other_schedulers.node_waits import SCALE_UP_SECONDS
from fairbind.cluster.other_schedulers.places import FLOW_SECONDS, STUCK_PART

A, B = "a", "b"
BACKOFF_SECONDS = 10.0


def fill(gate_limiter: GateLimiter, tenant: str, count: int, now: float = 0.0) -> list[str]:
    """Return which of so many pods of a tenant may be opened."""
    return [uid for n in range(count) if gate_limiter.open(uid := f"{tenant}{n}-{now}", tenant, now)]


def test_no_more_are_on_their_way_than_there_are_places() -> None:
    gate_limiter = GateLimiter()
    opened = [uid for n in range(9) for uid in fill(gate_limiter, f"tenant-{n}", 200)]
    assert len(opened) == MOST_UNGATED
    assert gate_limiter.free == 0


def test_users_of_a_tenant_have_one_part_together() -> None:
    gate_limiter = GateLimiter(most=8, most_scale_ups=2)
    round_ = gate_limiter.begin_round(0.0)
    assert [round_.take(f"u{n}@a") for n in range(8)] == [True] * 6 + [False] * 2
    assert [gate_limiter.open(f"p{n}", f"u{n}@a", 0.0) for n in range(8)] == [True] * 6 + [False] * 2
    assert not gate_limiter.lets_in("v@a")
    assert gate_limiter.open("b", B, 0.0)
    outcomes = [gate_limiter.scale_up(f"s{n}", f"u{n}@a", 0.0) for n in range(3)]
    assert outcomes == [ScaleUp.OPEN, ScaleUp.OPEN, ScaleUp.WAIT]
    gate_limiter.recover("r", "v@a", 0.0)
    assert gate_limiter.free == 0


def test_a_gate_that_is_opened_again_takes_no_second_place() -> None:
    gate_limiter = GateLimiter(most=2)
    gate_limiter.recover("x", A, 0.0)
    assert gate_limiter.open("x", A, 0.0)
    assert gate_limiter.free == 1
    gate_limiter.expire(TIMEOUT_SECONDS)
    assert gate_limiter.free == 2
    assert gate_limiter.open("x", A, 99.0), "it was decided again, so room is kept for it"
    assert gate_limiter.free == 1
    assert gate_limiter.find_next_timeout() == 99.0 + TIMEOUT_SECONDS


def test_the_time_out_ends_a_pods_time_once() -> None:
    gate_limiter = GateLimiter()
    assert gate_limiter.open("x", A, 5.0)
    assert gate_limiter.find_next_timeout() == 5.0 + TIMEOUT_SECONDS
    assert gate_limiter.expire(34.9) == []
    assert not gate_limiter.is_overdue("x")
    assert gate_limiter.expire(35.0) == ["x"]
    assert gate_limiter.is_overdue("x")
    assert gate_limiter.expire(99.0) == []
    assert gate_limiter.find_next_timeout() == inf


def test_pods_that_are_never_placed_leave_places_to_others_at_once_and_all_after_the_time_out() -> None:
    gate_limiter = GateLimiter(most=8)
    assert len(fill(gate_limiter, A, 9)) == 6
    assert len(fill(gate_limiter, B, 9)) == 2
    gate_limiter.expire(TIMEOUT_SECONDS)
    assert len(fill(gate_limiter, B, 9, now=TIMEOUT_SECONDS)) == 6
    assert len(gate_limiter) == 14


def test_a_tenant_with_a_refused_pod_has_a_small_part_and_one_more_place_for_each_pod_that_is_bound() -> None:
    gate_limiter = GateLimiter()
    uids = fill(gate_limiter, A, 9)
    gate_limiter.note_refused(uids[2])
    gate_limiter.expire(TIMEOUT_SECONDS)
    now = TIMEOUT_SECONDS
    again = fill(gate_limiter, A, 30, now - 1)
    assert len(again) == 30, "its scheduler may be slow"
    for uid in again:
        gate_limiter.end(uid, now)
    gate_limiter.note_refused(uids[2])
    assert len(fill(gate_limiter, A, 100, now)) == MOST_UNGATED // STUCK_PART
    assert len(fill(gate_limiter, B, 100, now)) == 100, "others have all places that they need"
    gate_limiter.end(uids[0], now)
    assert fill(gate_limiter, A, 100, now + 1) == [], "one that is gone shows nothing"
    gate_limiter.end(uids[1], now, bound=True)
    assert len(fill(gate_limiter, A, 20, now + 2)) == 1
    gate_limiter.note_refused(uids[2])
    assert fill(gate_limiter, A, 20, now + 3) == [], "it begins again"


def place_later(gate_limiter: GateLimiter, uid: str, now: float) -> None:
    """Open a gate of another tenant and place the pod."""
    assert gate_limiter.open(uid, B, now)
    gate_limiter.note_open(uid, now)
    gate_limiter.end(uid, now, bound=True)


def test_a_pod_is_passed_by_when_one_that_was_opened_clearly_later_is_bound() -> None:
    gate_limiter = GateLimiter()
    first, second = fill(gate_limiter, A, 2)
    gate_limiter.note_open(second, 0.0)
    gate_limiter.note_open(first, 0.0)
    place_later(gate_limiter, "x", FLOW_SECONDS / 2)
    assert not gate_limiter.was_passed(first), "it was opened in the same moment, so to say"
    gate_limiter.recover("y", B, FLOW_SECONDS)
    gate_limiter.end("y", FLOW_SECONDS, bound=True)
    assert not gate_limiter.was_passed(first), "it is not known since when that one was open"
    assert gate_limiter.open("late", B, 0.0)
    gate_limiter.note_open("late", FLOW_SECONDS)
    gate_limiter.end("late", 3 * FLOW_SECONDS, bound=True)
    assert not gate_limiter.was_passed(first), "that one took longer than the first had waited before"
    place_later(gate_limiter, "z", FLOW_SECONDS)
    gate_limiter.expire(TIMEOUT_SECONDS)
    assert gate_limiter.was_passed(first)


def test_a_scheduler_that_asks_passes_a_pod_by_with_a_lap_and_not_by_what_it_places() -> None:
    laps = Laps(BACKOFF_SECONDS)
    gate_limiter = GateLimiter(laps=laps)
    (uid,) = fill(gate_limiter, A, 1)
    gate_limiter.note_open(uid, 0.0)
    place_later(gate_limiter, "later", 2 * FLOW_SECONDS)
    assert not gate_limiter.was_passed(uid)
    for now in (BACKOFF_SECONDS - 1.0, BACKOFF_SECONDS, BACKOFF_SECONDS + 1.0):
        assert not gate_limiter.was_passed(uid)
        laps.note_asked("other", 0, now)
    assert gate_limiter.was_passed(uid), "a lap began when the pod was in the queue for certain"


@pytest.mark.parametrize(
    ("asked", "ends_at"),
    [
        ([], AWAY_TIMES * TIMEOUT_SECONDS),
        ([("a", 0)], TIMEOUT_SECONDS),
        ([("a", n) for n in range(400)], TIMEOUT_SECONDS),
        ([(f"a{n}", n) for n in range(400)], SLOW_TIMES * TIMEOUT_SECONDS),
        ([(f"a{n % 80}", n) for n in range(400)], 160.0),
        ([(f"a{n}", n) for n in range(50)], 50.0 - 1.0 + IDLE_SECONDS),
    ],
    ids=["away", "idle", "one again and again", "always others", "a lap that ends", "idle after a while"],
)
def test_a_pods_time_is_over_when_a_scheduler_that_asks_has_passed_it_by_or_is_idle(
    asked: list[tuple[str, int]], ends_at: float
) -> None:
    """A lap that begins within the backoff tells nothing; here the next one takes 80 seconds."""
    laps = Laps(BACKOFF_SECONDS)
    gate_limiter = GateLimiter(laps=laps)
    (uid,) = fill(gate_limiter, A, 1)
    at = {now: name for name, now in asked}

    def is_over(now: float) -> bool:
        if now in at:
            laps.note_asked(at[int(now)], 0, now)
        return uid in gate_limiter.expire(now)

    assert next(now for now in map(float, range(1000)) if is_over(now)) == ends_at


def test_a_pod_that_was_late_before_shows_nothing_when_it_is_placed() -> None:
    gate_limiter = GateLimiter()
    (late,) = fill(gate_limiter, B, 1)
    gate_limiter.expire(TIMEOUT_SECONDS)
    gate_limiter.end(late, TIMEOUT_SECONDS)
    (first,) = fill(gate_limiter, A, 1, TIMEOUT_SECONDS)
    gate_limiter.note_open(first, TIMEOUT_SECONDS)
    place_later(gate_limiter, late, TIMEOUT_SECONDS + FLOW_SECONDS)
    assert not gate_limiter.was_passed(first)
    place_later(gate_limiter, "x", TIMEOUT_SECONDS + FLOW_SECONDS)
    assert gate_limiter.was_passed(first)


def test_a_pod_whose_opening_is_answered_late_passes_only_those_by_that_were_open_before_it_was_asked_for() -> None:
    """It may have been open all the time: the request was heard, and the answer lost."""
    gate_limiter = GateLimiter()
    (late,) = fill(gate_limiter, B, 1)
    (first,) = fill(gate_limiter, A, 1, 3.0)
    gate_limiter.note_open(first, 3.0)
    gate_limiter.note_open(late, 10.0)
    gate_limiter.end(late, 10.1, bound=True)
    assert not gate_limiter.was_passed(first)


def test_a_pod_whose_opening_failed_before_shows_nothing_when_it_is_placed() -> None:
    gate_limiter = GateLimiter()
    (failed,) = fill(gate_limiter, B, 1)
    gate_limiter.end(failed, 1.0)
    (first,) = fill(gate_limiter, A, 1, 2.0)
    gate_limiter.note_open(first, 2.0)
    place_later(gate_limiter, failed, 3.0 + FLOW_SECONDS)
    assert not gate_limiter.was_passed(first)


def test_no_pod_counts_as_passed_by_while_its_tenant_flows() -> None:
    gate_limiter = GateLimiter()
    first, second, third = fill(gate_limiter, A, 3)
    for uid in (first, second, third):
        gate_limiter.note_open(uid, 0.0)
    gate_limiter.end(second, 5.0, bound=True)
    place_later(gate_limiter, "x", 5.0)
    assert not gate_limiter.was_passed(first)


@pytest.mark.parametrize("expires", [False, True])
def test_who_is_bound_or_gone_leaves_its_place(*, expires: bool) -> None:
    gate_limiter = GateLimiter(most=1)
    assert gate_limiter.open("x", A, 0.0)
    if expires:
        gate_limiter.expire(TIMEOUT_SECONDS)
    gate_limiter.end("x", 0.0)
    gate_limiter.end("x", 0.0)
    assert "x" not in gate_limiter
    assert not gate_limiter.is_overdue("x")
    assert gate_limiter.find_next_timeout() == inf
    assert len(fill(gate_limiter, A, 9)) == 1


def test_a_pod_that_comes_back_has_a_time_of_its_own() -> None:
    gate_limiter = GateLimiter()
    assert gate_limiter.open("x", A, 0.0)
    gate_limiter.end("x", 0.0)
    assert gate_limiter.open("x", A, 10.0)
    assert gate_limiter.expire(30.0) == []
    assert gate_limiter.expire(40.0) == ["x"]


def test_pods_without_room_take_no_places_and_have_no_time_until_they_get_room() -> None:
    gate_limiter = GateLimiter(most=1, most_scale_ups=2)
    assert [gate_limiter.scale_up(uid, A, 0.0) for uid in ("x", "y", "z")] == [ScaleUp.OPEN, ScaleUp.OPEN, ScaleUp.WAIT]
    assert gate_limiter.scale_up("v", B, 0.0) is ScaleUp.OPEN
    assert gate_limiter.free == 1
    assert gate_limiter.find_next_timeout() == inf
    gate_limiter.note_capacity("x", 100.0, has_capacity=True)
    gate_limiter.note_capacity("x", 110.0, has_capacity=True)
    assert gate_limiter.free == 0
    assert gate_limiter.find_next_timeout() == 100.0 + TIMEOUT_SECONDS
    assert gate_limiter.scale_up("z", A, 100.0) is ScaleUp.OPEN, "one more may look for a node"
    gate_limiter.note_capacity("x", 120.0, has_capacity=False)
    assert (gate_limiter.free, gate_limiter.find_next_timeout()) == (1, inf)
    gate_limiter.note_capacity("x", 200.0, has_capacity=True)
    assert gate_limiter.expire(200.0 + TIMEOUT_SECONDS) == ["x"]
    gate_limiter.note_capacity("x", 300.0, has_capacity=True)
    assert gate_limiter.is_overdue("x"), "it had its time"


def test_the_time_of_others_goes_on_without_room() -> None:
    gate_limiter = GateLimiter(most_scale_ups=2)
    gate_limiter.open("x", A, 0.0)
    gate_limiter.note_capacity("x", 10.0, has_capacity=False)
    gate_limiter.note_capacity("unknown", 10.0, has_capacity=False)
    assert gate_limiter.expire(TIMEOUT_SECONDS) == ["x"]


def test_a_tenant_is_passed_over_when_none_of_its_pods_got_room_for_long() -> None:
    gate_limiter = GateLimiter(most_scale_ups=2)
    for uid, now in (("x", 0.0), ("y", 50.0)):
        gate_limiter.scale_up(uid, A, now)
    assert gate_limiter.scale_up("z", A, SCALE_UP_SECONDS - 1.0) is ScaleUp.WAIT
    assert gate_limiter.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.PASS
    gate_limiter.end("x", 0.0, bound=True)
    assert gate_limiter.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.OPEN
    assert gate_limiter.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.PASS, "it is open"


def test_a_tenant_that_makes_other_pods_again_and_again_is_waited_for_less_and_less() -> None:
    gate_limiter, waited, known = GateLimiter(most_scale_ups=2), list[float](), list[str]()
    for n, now in enumerate(range(0, 40_000, 50)):
        if len(known) == 2 and n % 10 == 0:
            gate_limiter.end(known.pop(0), now)
        verdict = gate_limiter.scale_up(uid := f"pod-{n}", A, now)
        known += [uid] * (verdict is ScaleUp.OPEN)
        waited += [now] * (verdict is ScaleUp.WAIT)
    for start, end, part in ((0, 2_000, 0.4), (2_000, 10_000, 0.3), (10_000, 40_000, 0.06)):
        assert sum(start <= now < end for now in waited) * 50 <= part * (end - start)
    assert gate_limiter.is_passed_over(A, 39_000.0), "others come first now, also where it has none"


@pytest.mark.parametrize("most", [0, 1])
def test_after_a_restart_pods_without_room_scale_up_where_pods_may(most: int) -> None:
    gate_limiter = GateLimiter(most_scale_ups=most)
    gate_limiter.recover("x", A, 0.0, has_capacity=False)
    gate_limiter.recover("y", A, 0.0, has_capacity=True)
    assert gate_limiter.expire(TIMEOUT_SECONDS) == (["y"] if most else ["x", "y"])
    assert gate_limiter.scale_up("z", A, 0.0) is (ScaleUp.WAIT if most else ScaleUp.PASS)
    assert len(gate_limiter) == 2
    gate_limiter.end("x", 0.0)
    assert gate_limiter.scale_up("z", A, 0.0) is (ScaleUp.OPEN if most else ScaleUp.PASS)


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "end", "bound", "expire", "recover"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_in_any_history_limits_hold_and_time_goes_on(steps: list[tuple[str, int, int]]) -> None:
    gate_limiter = GateLimiter(most=4, timeout_seconds=10.0)
    opened: dict[str, float] = {}
    now = 0.0
    for step, pod, seconds in steps:
        now += seconds
        uid, tenant = f"p{pod}", f"t{pod % 3}"
        if step == "open":
            timely = [each for each in opened if not gate_limiter.is_overdue(each)]
            if gate_limiter.open(uid, tenant, now) and uid not in opened:
                assert len(timely) < 4
                opened[uid] = now
        elif step == "recover":
            gate_limiter.recover(uid, tenant, now)
            opened.setdefault(uid, now)
        elif step in {"end", "bound"}:
            gate_limiter.end(uid, now, bound=step == "bound")
            opened.pop(uid, None)
        else:
            gate_limiter.expire(now)
            assert all(gate_limiter.is_overdue(each) == (began + 10.0 <= now) for each, began in opened.items())
        assert len(gate_limiter) == len(opened)
        assert gate_limiter.free == 4 - sum(not gate_limiter.is_overdue(each) for each in opened)
        assert gate_limiter.find_next_timeout() <= now + 10.0 or gate_limiter.find_next_timeout() == inf
