"""What is shown of a cluster: figures that sum up all tenants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairbind.model.overview import GAP_CAUSES, ShareGap, TenantOverview, compute_share_error, find_share_gap


def make_tenant(dominant_share: float, fair_share: float | None, *, backlogged: bool = True) -> TenantOverview:
    return TenantOverview(
        "a", 1.0, dominant_share, "cpu", dominant_share, {}, 1, {}, backlogged=backlogged, fair_share=fair_share
    )


def test_the_share_error_is_that_of_the_worst_tenant_that_waits() -> None:
    assert compute_share_error([make_tenant(0.25, 0.5), make_tenant(0.125, 0.25), make_tenant(0.5, 0.25)]) == 0.25


def test_who_waits_for_nothing_lacks_nothing() -> None:
    """Its fair share is of a moment ago, when it still wanted more."""
    idle, waiting = make_tenant(0.0, 0.75, backlogged=False), make_tenant(0.25, 0.5)

    assert compute_share_error([idle, waiting]) == 0.25
    assert compute_share_error([idle]) == 0.0


def test_without_a_known_fair_share_there_is_no_share_error() -> None:
    assert compute_share_error([make_tenant(0.25, None)]) is None
    assert compute_share_error([make_tenant(0.25, None), make_tenant(0.25, 0.5)]) == 0.25


@pytest.mark.parametrize("cause", GAP_CAUSES)
def test_a_gap_has_the_cause_that_somebody_can_end(cause: str) -> None:
    tenant = make_tenant(0.25, 0.5)
    if cause != "history":
        tenant = replace(tenant, pending={"ineligible": 1})
    if cause in {"refused", "reserved"}:
        tenant = replace(tenant, reserved_nodes=1)

    assert find_share_gap(tenant, is_refused=cause == "refused") == ShareGap(0.5, cause)


def test_who_waits_for_nothing_or_has_no_fair_share_has_no_gap() -> None:
    assert find_share_gap(make_tenant(0.25, 0.5, backlogged=False), is_refused=False) is None
    assert find_share_gap(make_tenant(0.25, None), is_refused=False) is None
    assert find_share_gap(make_tenant(0.0, 0.0), is_refused=False) is None
    assert find_share_gap(make_tenant(0.75, 0.5), is_refused=False) == ShareGap(0.0, "history")
