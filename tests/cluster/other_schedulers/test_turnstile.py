"""The books of gate mode: limits, room that is given back, shares that are not."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.other_schedulers.node_waits import SCALE_UP_SECONDS
from fairbind.cluster.other_schedulers.places import FLOW_SECONDS, STUCK_PART
from fairbind.cluster.other_schedulers.turnstile import MOST_UNGATED, TIMEOUT_SECONDS, ScaleUp, Turnstile

A, B = "a", "b"


def fill(turnstile: Turnstile, tenant: str, count: int, now: float = 0.0) -> list[str]:
    """Return which of so many pods of a tenant may be opened."""
    return [uid for n in range(count) if turnstile.open(uid := f"{tenant}{n}-{now}", tenant, now)]


def test_no_more_are_on_their_way_than_there_are_places() -> None:
    turnstile = Turnstile()
    opened = [uid for n in range(9) for uid in fill(turnstile, f"tenant-{n}", 200)]
    assert len(opened) == MOST_UNGATED
    assert turnstile.free == 0


def test_a_gate_that_is_opened_again_takes_no_second_place() -> None:
    turnstile = Turnstile(most=2)
    turnstile.recover("x", A, 0.0)
    assert turnstile.open("x", A, 0.0)
    assert turnstile.free == 1
    turnstile.expire(TIMEOUT_SECONDS)
    assert turnstile.free == 2
    assert turnstile.open("x", A, 99.0), "it was decided again, so room is kept for it"
    assert turnstile.free == 1
    assert turnstile.find_next_timeout() == 99.0 + TIMEOUT_SECONDS


def test_the_time_out_ends_a_pods_time_once() -> None:
    turnstile = Turnstile()
    assert turnstile.open("x", A, 5.0)
    assert turnstile.find_next_timeout() == 5.0 + TIMEOUT_SECONDS
    assert turnstile.expire(34.9) == []
    assert not turnstile.is_overdue("x")
    assert turnstile.expire(35.0) == ["x"]
    assert turnstile.is_overdue("x")
    assert turnstile.expire(99.0) == []
    assert turnstile.find_next_timeout() == inf


def test_pods_that_are_never_placed_leave_places_to_others_at_once_and_all_after_the_time_out() -> None:
    turnstile = Turnstile(most=8)
    assert len(fill(turnstile, A, 9)) == 6
    assert len(fill(turnstile, B, 9)) == 2
    turnstile.expire(TIMEOUT_SECONDS)
    assert len(fill(turnstile, B, 9, now=TIMEOUT_SECONDS)) == 6
    assert len(turnstile) == 14


def test_a_tenant_with_a_refused_pod_has_a_small_part_and_one_more_place_for_each_pod_that_is_bound() -> None:
    turnstile = Turnstile()
    uids = fill(turnstile, A, 9)
    turnstile.note_refused(uids[2])
    turnstile.expire(TIMEOUT_SECONDS)
    now = TIMEOUT_SECONDS
    again = fill(turnstile, A, 30, now - 1)
    assert len(again) == 30, "its scheduler may be slow"
    for uid in again:
        turnstile.end(uid, now)
    turnstile.note_refused(uids[2])
    assert len(fill(turnstile, A, 100, now)) == MOST_UNGATED // STUCK_PART
    assert len(fill(turnstile, B, 100, now)) == 100, "others have all places that they need"
    turnstile.end(uids[0], now)
    assert fill(turnstile, A, 100, now + 1) == [], "one that is gone shows nothing"
    turnstile.end(uids[1], now, bound=True)
    assert len(fill(turnstile, A, 20, now + 2)) == 1
    turnstile.note_refused(uids[2])
    assert fill(turnstile, A, 20, now + 3) == [], "it begins again"


def place_later(turnstile: Turnstile, uid: str, now: float) -> None:
    """Open a gate of another tenant and place the pod."""
    assert turnstile.open(uid, B, now)
    turnstile.note_open(uid, now)
    turnstile.end(uid, now, bound=True)


def test_a_pod_is_passed_by_when_one_that_was_opened_clearly_later_is_bound() -> None:
    turnstile = Turnstile()
    first, second = fill(turnstile, A, 2)
    turnstile.note_open(second, 0.0)
    turnstile.note_open(first, 0.0)
    place_later(turnstile, "x", FLOW_SECONDS / 2)
    assert not turnstile.was_passed(first), "it was opened in the same moment, so to say"
    turnstile.recover("y", B, FLOW_SECONDS)
    turnstile.end("y", FLOW_SECONDS, bound=True)
    assert not turnstile.was_passed(first), "it is not known since when that one was open"
    assert turnstile.open("late", B, 0.0)
    turnstile.note_open("late", FLOW_SECONDS)
    turnstile.end("late", 3 * FLOW_SECONDS, bound=True)
    assert not turnstile.was_passed(first), "that one took longer than the first had waited before"
    place_later(turnstile, "z", FLOW_SECONDS)
    turnstile.expire(TIMEOUT_SECONDS)
    assert turnstile.was_passed(first)


def test_what_is_opened_soon_after_the_first_is_not_passed_by() -> None:
    turnstile = Turnstile(grace_seconds=10.0)
    for opened_at, is_passed in ((0.0, False), (9.0, False), (10.0, True)):
        (uid,) = fill(turnstile, A, 1, opened_at)
        turnstile.note_open(uid, opened_at)
        place_later(turnstile, f"later-{opened_at}", opened_at + 2 * FLOW_SECONDS)
        assert turnstile.was_passed(uid) == is_passed


def test_a_pod_that_was_late_before_shows_nothing_when_it_is_placed() -> None:
    turnstile = Turnstile()
    (late,) = fill(turnstile, B, 1)
    turnstile.expire(TIMEOUT_SECONDS)
    turnstile.end(late, TIMEOUT_SECONDS)
    (first,) = fill(turnstile, A, 1, TIMEOUT_SECONDS)
    turnstile.note_open(first, TIMEOUT_SECONDS)
    place_later(turnstile, late, TIMEOUT_SECONDS + FLOW_SECONDS)
    assert not turnstile.was_passed(first)
    place_later(turnstile, "x", TIMEOUT_SECONDS + FLOW_SECONDS)
    assert turnstile.was_passed(first)


def test_a_pod_whose_opening_is_answered_late_passes_only_those_by_that_were_open_before_it_was_asked_for() -> None:
    """It may have been open all the time: the request was heard, and the answer lost."""
    turnstile = Turnstile()
    (late,) = fill(turnstile, B, 1)
    (first,) = fill(turnstile, A, 1, 3.0)
    turnstile.note_open(first, 3.0)
    turnstile.note_open(late, 10.0)
    turnstile.end(late, 10.1, bound=True)
    assert not turnstile.was_passed(first)


def test_a_pod_whose_opening_failed_before_shows_nothing_when_it_is_placed() -> None:
    turnstile = Turnstile()
    (failed,) = fill(turnstile, B, 1)
    turnstile.end(failed, 1.0)
    (first,) = fill(turnstile, A, 1, 2.0)
    turnstile.note_open(first, 2.0)
    place_later(turnstile, failed, 3.0 + FLOW_SECONDS)
    assert not turnstile.was_passed(first)


def test_no_pod_counts_as_passed_by_while_its_tenant_flows() -> None:
    turnstile = Turnstile()
    first, second, third = fill(turnstile, A, 3)
    for uid in (first, second, third):
        turnstile.note_open(uid, 0.0)
    turnstile.end(second, 5.0, bound=True)
    place_later(turnstile, "x", 5.0)
    assert not turnstile.was_passed(first)


@pytest.mark.parametrize("expires", [False, True])
def test_who_is_bound_or_gone_leaves_its_place(*, expires: bool) -> None:
    turnstile = Turnstile(most=1)
    assert turnstile.open("x", A, 0.0)
    if expires:
        turnstile.expire(TIMEOUT_SECONDS)
    turnstile.end("x", 0.0)
    turnstile.end("x", 0.0)
    assert "x" not in turnstile
    assert not turnstile.is_overdue("x")
    assert turnstile.find_next_timeout() == inf
    assert len(fill(turnstile, A, 9)) == 1


def test_a_pod_that_comes_back_has_a_time_of_its_own() -> None:
    turnstile = Turnstile()
    assert turnstile.open("x", A, 0.0)
    turnstile.end("x", 0.0)
    assert turnstile.open("x", A, 10.0)
    assert turnstile.expire(30.0) == []
    assert turnstile.expire(40.0) == ["x"]


def test_pods_without_room_take_no_places_and_have_no_time_until_they_get_room() -> None:
    turnstile = Turnstile(most=1, most_scale_ups=2)
    assert [turnstile.scale_up(uid, A, 0.0) for uid in ("x", "y", "z")] == [ScaleUp.OPEN, ScaleUp.OPEN, ScaleUp.WAIT]
    assert turnstile.scale_up("v", B, 0.0) is ScaleUp.OPEN
    assert turnstile.free == 1
    assert turnstile.find_next_timeout() == inf
    turnstile.note_room("x", 100.0, has_room=True)
    turnstile.note_room("x", 110.0, has_room=True)
    assert turnstile.free == 0
    assert turnstile.find_next_timeout() == 100.0 + TIMEOUT_SECONDS
    assert turnstile.scale_up("z", A, 100.0) is ScaleUp.OPEN, "one more may look for a node"
    turnstile.note_room("x", 120.0, has_room=False)
    assert (turnstile.free, turnstile.find_next_timeout()) == (1, inf)
    turnstile.note_room("x", 200.0, has_room=True)
    assert turnstile.expire(200.0 + TIMEOUT_SECONDS) == ["x"]
    turnstile.note_room("x", 300.0, has_room=True)
    assert turnstile.is_overdue("x"), "it had its time"


def test_the_time_of_others_goes_on_without_room() -> None:
    turnstile = Turnstile(most_scale_ups=2)
    turnstile.open("x", A, 0.0)
    turnstile.note_room("x", 10.0, has_room=False)
    turnstile.note_room("unknown", 10.0, has_room=False)
    assert turnstile.expire(TIMEOUT_SECONDS) == ["x"]


def test_a_tenant_is_passed_over_when_none_of_its_pods_got_room_for_long() -> None:
    turnstile = Turnstile(most_scale_ups=2)
    for uid, now in (("x", 0.0), ("y", 50.0)):
        turnstile.scale_up(uid, A, now)
    assert turnstile.scale_up("z", A, SCALE_UP_SECONDS - 1.0) is ScaleUp.WAIT
    assert turnstile.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.PASS
    turnstile.end("x", 0.0, bound=True)
    assert turnstile.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.OPEN
    assert turnstile.scale_up("z", A, 50.0 + SCALE_UP_SECONDS) is ScaleUp.PASS, "it is open"


def test_a_tenant_that_makes_other_pods_again_and_again_is_waited_for_less_and_less() -> None:
    turnstile, waited, known = Turnstile(most_scale_ups=2), list[float](), list[str]()
    for n, now in enumerate(range(0, 40_000, 50)):
        if len(known) == 2 and n % 10 == 0:
            turnstile.end(known.pop(0), now)
        verdict = turnstile.scale_up(uid := f"pod-{n}", A, now)
        known += [uid] * (verdict is ScaleUp.OPEN)
        waited += [now] * (verdict is ScaleUp.WAIT)
    for start, end, part in ((0, 2_000, 0.4), (2_000, 10_000, 0.3), (10_000, 40_000, 0.06)):
        assert sum(start <= now < end for now in waited) * 50 <= part * (end - start)
    assert turnstile.is_passed_over(A, 39_000.0), "others come first now, also where it has none"


@pytest.mark.parametrize("most", [0, 1])
def test_after_a_restart_pods_without_room_scale_up_where_pods_may(most: int) -> None:
    turnstile = Turnstile(most_scale_ups=most)
    turnstile.recover("x", A, 0.0, has_room=False)
    turnstile.recover("y", A, 0.0, has_room=True)
    assert turnstile.expire(TIMEOUT_SECONDS) == (["y"] if most else ["x", "y"])
    assert turnstile.scale_up("z", A, 0.0) is (ScaleUp.WAIT if most else ScaleUp.PASS)
    assert len(turnstile) == 2
    turnstile.end("x", 0.0)
    assert turnstile.scale_up("z", A, 0.0) is (ScaleUp.OPEN if most else ScaleUp.PASS)


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "end", "bound", "expire", "recover"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_in_any_history_limits_hold_and_time_goes_on(steps: list[tuple[str, int, int]]) -> None:
    turnstile = Turnstile(most=4, timeout_seconds=10.0)
    opened: dict[str, float] = {}
    now = 0.0
    for step, pod, seconds in steps:
        now += seconds
        uid, tenant = f"p{pod}", f"t{pod % 3}"
        if step == "open":
            timely = [each for each in opened if not turnstile.is_overdue(each)]
            if turnstile.open(uid, tenant, now) and uid not in opened:
                assert len(timely) < 4
                opened[uid] = now
        elif step == "recover":
            turnstile.recover(uid, tenant, now)
            opened.setdefault(uid, now)
        elif step in {"end", "bound"}:
            turnstile.end(uid, now, bound=step == "bound")
            opened.pop(uid, None)
        else:
            turnstile.expire(now)
            assert all(turnstile.is_overdue(each) == (began + 10.0 <= now) for each, began in opened.items())
        assert len(turnstile) == len(opened)
        assert turnstile.free == 4 - sum(not turnstile.is_overdue(each) for each in opened)
        assert turnstile.find_next_timeout() <= now + 10.0 or turnstile.find_next_timeout() == inf
