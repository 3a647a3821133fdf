"""The books of gate mode: limits, room that is given back, shares that are not."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.turnstile import MOST_UNGATED, TIMEOUT_SECONDS, OnItsWay, Turnstile

A, B = "a", "b"


def fill(turnstile: Turnstile, tenant: str, count: int, asking: set[str], now: float = 0.0) -> int:
    """Return how many of so many pods of a tenant may be opened."""
    return sum(turnstile.open(f"{tenant}{n}-{now}", tenant, "node", now, asking=asking) for n in range(count))


def test_one_tenant_alone_has_all_places_and_no_more() -> None:
    assert fill(Turnstile(), A, 500, {A}) == MOST_UNGATED


def test_a_tenant_has_its_part_and_leaves_the_rest_to_who_asks() -> None:
    turnstile = Turnstile()
    assert fill(turnstile, A, 500, {A, B}) == MOST_UNGATED // 2
    assert fill(turnstile, B, 500, {A, B}) == MOST_UNGATED // 2


def test_more_tenants_than_places_have_one_each_as_long_as_there_are_any() -> None:
    turnstile = Turnstile(most=2)
    asking = {"a", "b", "c"}
    assert [fill(turnstile, tenant, 5, asking) for tenant in sorted(asking)] == [1, 1, 0]


def test_no_gate_is_opened_twice() -> None:
    turnstile = Turnstile()
    turnstile.recover("x", A, None, 0.0)
    assert not turnstile.open("x", A, "node", 0.0, asking={A})
    assert turnstile.get("x") == OnItsWay(A, None)
    turnstile.expire(TIMEOUT_SECONDS)
    assert not turnstile.open("x", A, "node", 99.0, asking={A})


def test_after_the_time_out_the_room_is_given_back_and_the_share_is_not() -> None:
    turnstile = Turnstile()
    assert turnstile.open("x", A, "node", 5.0, asking={A})
    assert turnstile.find_next_timeout() == 5.0 + TIMEOUT_SECONDS
    assert turnstile.expire(34.9) == []
    assert turnstile.get("x") == OnItsWay(A, "node")
    assert turnstile.expire(35.0) == ["x"]
    assert turnstile.get("x") == OnItsWay(A, None)
    assert turnstile.is_overdue("x")
    assert turnstile.expire(99.0) == []
    assert turnstile.find_next_timeout() == inf


def test_pods_that_are_never_placed_do_not_stop_the_others_for_longer_than_the_time_out() -> None:
    turnstile = Turnstile(most=3)
    assert fill(turnstile, A, 9, {A}) == 3
    assert fill(turnstile, B, 9, {A, B}) == 0
    turnstile.expire(TIMEOUT_SECONDS)
    assert fill(turnstile, B, 9, {A, B}, now=TIMEOUT_SECONDS) == 1
    assert len(turnstile) == 4


@pytest.mark.parametrize("expires", [False, True])
def test_who_is_bound_or_gone_leaves_its_place(*, expires: bool) -> None:
    turnstile = Turnstile(most=1)
    assert turnstile.open("x", A, "node", 0.0, asking={A})
    if expires:
        turnstile.expire(TIMEOUT_SECONDS)
    turnstile.end("x")
    turnstile.end("x")
    assert turnstile.get("x") is None
    assert not turnstile.is_overdue("x")
    assert turnstile.find_next_timeout() == inf
    assert fill(turnstile, A, 9, {A}) == 1


def test_a_pod_that_comes_back_has_a_time_of_its_own() -> None:
    turnstile = Turnstile()
    assert turnstile.open("x", A, "node", 0.0, asking={A})
    turnstile.end("x")
    assert turnstile.open("x", A, "node", 10.0, asking={A})
    assert turnstile.expire(30.0) == []
    assert turnstile.expire(40.0) == ["x"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "end", "expire", "recover"]), st.integers(0, 9), st.integers(0, 9)), max_size=60
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
            if turnstile.open(uid, tenant, "node", now, asking={"t0", "t1", "t2"}):
                assert uid not in opened
                assert len(timely) < 4
                opened[uid] = now
        elif step == "recover":
            turnstile.recover(uid, tenant, None, now)
            opened.setdefault(uid, now)
        elif step == "end":
            turnstile.end(uid)
            opened.pop(uid, None)
        else:
            turnstile.expire(now)
            assert all(turnstile.is_overdue(each) == (began + 10.0 <= now) for each, began in opened.items())
        assert len(turnstile) == len(opened)
        assert turnstile.find_next_timeout() <= now + 10.0 or turnstile.find_next_timeout() == inf
