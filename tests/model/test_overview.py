"""What is shown of a cluster: figures that sum up all tenants."""

from __future__ import annotations

from fairbind.model.overview import TenantOverview, compute_share_error


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
