"""Parts of the places: whatever one tenant takes, some are left; and who flows does not fall behind."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter
from fairbind.cluster.other_schedulers.places import FLOW_SECONDS, PART, Places, Round

A, B = "a", "b"


def take_all(places: Places, tenant: str, now: float = 0.0) -> int:
    """Return how many places a tenant gets that takes all it can, all of them open."""
    count = 0
    while places.may_enter(tenant):
        places.enter(tenant, now)
        places.open(f"{tenant}{now}-{count}", tenant, now)
        count += 1
    return count


def make_flowing() -> Places:
    """Return places of which A has its part, and B has one and may have more."""
    places = Places(16)
    take_all(places, A)
    places.enter(B, 0.0)
    return places


def test_each_tenant_that_takes_all_that_it_can_leaves_some_to_the_next() -> None:
    places = Places(200)
    assert [take_all(places, f"t{n}") for n in range(5)] == [150, 38, 9, 3, 0]


@given(st.integers(1, 300), st.integers(1, 20))
def test_tenants_that_take_one_place_after_the_other_have_equal_parts(most: int, tenants: int) -> None:
    places, counts = Places(most), [0] * tenants
    while any(places.may_enter(f"t{n}") for n in range(tenants)):
        for n in range(tenants):
            if places.may_enter(f"t{n}"):
                places.enter(f"t{n}", 0.0)
                counts[n] += 1
    assert max(counts) - min(counts) <= 1
    assert sum(counts) >= most * tenants * PART // (tenants * PART + 1)


def test_others_wait_for_a_tenant_that_flows() -> None:
    places = make_flowing()
    waiting = Round(places, FLOW_SECONDS / 2)
    assert [waiting.take(A), waiting.take(B)] == [False, False]
    assert waiting.ends_at == FLOW_SECONDS


@pytest.mark.parametrize(("now", "ends_at"), [(0.0, FLOW_SECONDS), (FLOW_SECONDS, inf)])
def test_beside_a_tenant_that_is_waited_for_others_take_one_place_each(now: float, ends_at: float) -> None:
    places = Places(8)
    take_all(places, A)
    begun = Round(places, now)
    assert [begun.take(tenant) for tenant in (A, B, B)] == [False, True, False]
    assert begun.ends_at == ends_at


def test_amid_a_round_newcomers_take_one_place_each() -> None:
    gate_limiter = GateLimiter(most=12)
    for n in range(9):
        gate_limiter.open(f"{A}{n}", A, 0.0)
    assert [gate_limiter.lets_in(tenant) for tenant in (A, B)] == [False, True]
    assert [gate_limiter.let_newcomers_in(0.0).take(tenant) for tenant in (A, B)] == [False, True]
    gate_limiter.open(B, B, 0.0)
    assert not gate_limiter.lets_in(B)
    assert not gate_limiter.let_newcomers_in(0.0).take(B)


def test_amid_a_round_a_newcomer_gets_nothing_where_no_place_is_free() -> None:
    gate_limiter = GateLimiter(most=1)
    gate_limiter.open(A, A, 0.0)
    assert not gate_limiter.lets_in(B)
    assert not gate_limiter.let_newcomers_in(0.0).take(B)


def test_a_tenant_whose_oldest_pod_is_passed_by_is_waited_for_no_longer() -> None:
    places = make_flowing()
    for opened_at in (0.0, FLOW_SECONDS / 2, FLOW_SECONDS):
        places.note_placed(opened_at, A, max(opened_at, FLOW_SECONDS / 2))
        given = Round(places, FLOW_SECONDS)
        assert [given.take(A), given.take(B), given.take(B)] == [False, *[opened_at == FLOW_SECONDS] * 2]


def test_what_was_opened_in_one_moment_may_be_placed_in_any_order_over_any_time() -> None:
    places = make_flowing()
    for n in range(100):
        places.note_placed(FLOW_SECONDS / 2, A, 9.0 * n)
        given = Round(places, 9.0 * n)
        assert [given.take(A), given.take(B)] == [False, False]


def test_a_round_gives_away_what_the_places_then_let_in() -> None:
    places = Places(50)
    take_all(places, A)
    given = Round(places, 9.0)
    order = [f"t{n % 3}" for n in range(30)]
    taken = [tenant for tenant in order if given.take(tenant)]
    for tenant in taken:
        assert places.may_enter(tenant)
        places.enter(tenant, 9.0)
    assert not any(places.may_enter(tenant) for tenant in order)


# --- plans of several ---


def test_a_plan_takes_the_places_of_its_tenant_and_leaves_those_of_others() -> None:
    places = Places(8)
    begun = Round(places, 0.0)
    assert [begun.take(A, 100), begun.take(A), begun.take(B)] == [True, False, True]


def test_two_plans_that_need_more_places_than_there_are_do_not_begin_together() -> None:
    gate_limiter = GateLimiter(most=8)
    members = [(f"{A}{n}", A) for n in range(100)]
    begun = gate_limiter.begin_round(0.0)
    assert [begun.take(A, 100), begun.take(B, 3), begun.take(B, 2), begun.take("c")] == [True, False, True, False]
    assert gate_limiter.open_all(members, 0.0)
    assert gate_limiter.free == 2
    for uid, _ in members:
        gate_limiter.note_open(uid, 1.0)

    assert not gate_limiter.open_all([(f"{B}{n}", B) for n in range(3)], 1.0)
    assert not gate_limiter.begin_round(1.0).take(B, 3)
    assert gate_limiter.open_all([(f"{B}{n}", B) for n in range(2)], 1.0)

    for uid, _ in members:
        gate_limiter.end(uid, 2.0, bound=True)
    assert gate_limiter.begin_round(2.0).take(B, 100)


def test_pods_without_a_place_are_overdue_as_others_are_and_may_be_opened_again() -> None:
    gate_limiter = GateLimiter(most=2, timeout_seconds=5.0)
    members = [(f"{A}{n}", A) for n in range(6)]
    assert gate_limiter.open_all(members, 0.0)
    assert sorted(gate_limiter.expire(5.0)) == [uid for uid, _ in members]
    assert gate_limiter.free == 2
    assert gate_limiter.open_all(members, 6.0)
    for uid, _ in members:
        gate_limiter.end(uid, 7.0)
    assert gate_limiter.open_all([(f"{B}{n}", B) for n in range(9)], 8.0)


def test_amid_a_round_no_plan_of_several_begins() -> None:
    gate_limiter = GateLimiter(most=12)
    assert [gate_limiter.let_newcomers_in(0.0).take(A, count) for count in (2, 1)] == [False, True]


def test_a_tenant_with_a_refused_pod_has_a_plan_on_its_way_all_the_same() -> None:
    places = Places(16)
    places.note_refused(A)
    begun = Round(places, 0.0)
    assert [begun.take(A, 9), begun.take(A, 2)] == [True, False]


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60), st.booleans()), max_size=60))
def test_what_a_round_gives_away_is_opened_and_exceeds_the_places_by_less_than_one_plan(
    most: int, steps: list[tuple[int, int, bool]]
) -> None:
    gate_limiter, on_way = GateLimiter(most=most), list[list[str]]()
    for number, (tenant, count, ends) in enumerate(steps):
        if ends and on_way:
            for uid in on_way.pop(tenant % len(on_way)):
                gate_limiter.end(uid, float(number), bound=True)
        members = [(f"{number}-{n}", f"t{tenant}") for n in range(count)]
        may = gate_limiter.begin_round(float(number)).take(f"t{tenant}", count)
        assert gate_limiter.open_all(members, float(number)) == may
        assert may or on_way, "a plan that is alone is not kept waiting"
        if may:
            on_way.append([uid for uid, _ in members])
        assert gate_limiter.free >= 0
        assert len(gate_limiter) < most + max(map(len, on_way), default=1)
