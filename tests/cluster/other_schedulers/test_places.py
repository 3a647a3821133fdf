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
