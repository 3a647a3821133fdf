"""Levels: exact, by the resources that the pool has, and as floats for people."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import MAX_AMOUNT, ServerTable, Snapshot, Tenant, compute_share_key, compute_weighted_share
from fairbind.scheduling import compute_virtual_dominant_shares
from fairbind.scheduling.policies.level_pools import (
    ABSENT,
    compute_class_pools,
    compute_cluster_pool,
    compute_residual_pools,
)
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from rejections import unsupported
from scheduling.worlds import (
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    decide,
    order_of,
    places_of,
    weigh,
)

positive = st.integers(1, MAX_AMOUNT)
weights = st.fractions(Fraction(1, 1000), Fraction(1000), max_denominator=1000)


def build_cpu_and_gpu(*, held: tuple[int, ...] = (4, 0)) -> Snapshot:
    """Two classes: "gpu" has (4, 2), "plain" two servers of (8, 0), one of which is cordoned off."""
    servers = build_servers(
        {"gpu": (4, 2), "plain-1": (8, 0), "plain-2": (8, 0), "spoilt": (8, 0)},
        free={"gpu": (1, 0), "plain-1": (8, 0), "plain-2": (-3, 0)},
        unusable=["spoilt"],
    )
    return build_snapshot(
        servers,
        [build_class("a", (1, 0), build_placement(servers, only=["plain-1"]))],
        tenants=[Tenant("a", Fraction(2), allocated_r=held), Tenant("b")],
        resources=("cpu", "gpu"),
    )


@given(
    held=st.lists(st.integers(0, MAX_AMOUNT), min_size=3, max_size=3),
    pool=st.lists(positive, min_size=3, max_size=3),
    weight=weights,
)
def test_levels_and_shares_are_those_of_the_model(held: list[int], pool: list[int], weight: Fraction) -> None:
    terms = tuple((r, weight.denominator, weight.numerator) for r in (0, 2))
    progress = Progress("a", held, terms)

    denominators = [weight * pool[0], None, weight * pool[2]]
    assert progress.compute_level(pool) == compute_share_key(held, denominators)
    assert progress.compute_share(pool) == compute_weighted_share(held, denominators)
    assert progress.compute_level([pool[0], pool[1], ABSENT]) == compute_share_key(held, [*denominators[:2], None])


def test_pools_sum_usable_servers_only() -> None:
    snapshot = build_cpu_and_gpu()

    assert compute_cluster_pool(snapshot).amount_pr == [[20, 2]]
    assert snapshot.servers.class_names == ("gpu", "plain-1")
    assert compute_class_pools(snapshot).amount_pr == [[4, 2], [16, ABSENT]]
    assert compute_residual_pools(snapshot).amount_pr == [[1, 0], [8, ABSENT]]


def test_sums_do_not_overflow() -> None:
    count = 2_000
    names = tuple(f"n{k:04}" for k in range(count))
    amounts = np.full((count, 1), MAX_AMOUNT, dtype=np.int64)
    zeros = np.zeros(count, dtype=np.int32)
    servers = ServerTable(names, amounts, amounts.copy(), np.ones(count, dtype=np.bool_), zeros, ("n0000",))
    snapshot = Snapshot(("cpu",), (True,), (count * MAX_AMOUNT,), servers, (), ())

    assert compute_class_pools(snapshot).amount_pr == [[count * MAX_AMOUNT]]


def test_something_held_of_what_is_used_up_is_infinitely_far() -> None:
    progress = Progress("a", [0, 1], ((0, 1, 1), (1, 1, 1)))

    assert progress.compute_level([5, 0]) == INFINITE_LEVEL
    assert progress.compute_level([0, 5]) < INFINITE_LEVEL
    assert progress.compute_level([5, ABSENT]) == 0


def test_virtual_dominant_shares_count_everything_held_but_only_what_the_class_has() -> None:
    snapshot = build_cpu_and_gpu(held=(4, 1))

    shares = compute_virtual_dominant_shares(snapshot, {"a": ["gpu", "plain-1", "gone"], "nobody": ["gpu"]})

    assert shares == {"a": {"gpu": 0.5, "plain-1": 0.125}, "b": {}}


def test_virtual_dominant_shares_are_told_for_classes_in_reach_unless_others_are_named() -> None:
    assert compute_virtual_dominant_shares(build_cpu_and_gpu()) == {"a": {"plain-1": 0.125}, "b": {}}


def test_a_class_that_may_not_be_placed_reaches_nothing() -> None:
    snapshot = build_cpu_and_gpu()
    blocked = build_class("a", (1, 0), snapshot.task_classes[0].placement, blocked=unsupported("not honoured"))

    assert compute_virtual_dominant_shares(build_snapshot(snapshot.servers, [blocked], resources=("cpu", "gpu"))) == {
        "a": {}
    }


def test_ps_dsf_counts_a_held_gpu_only_where_there_are_gpus() -> None:
    """By totals a is far ahead with its only GPU; on servers without one it has nothing yet and takes its turn."""
    servers = build_servers({"gpu": (4, 1), "plain": (8, 0)})
    placement = build_placement(servers, only=["plain"])
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 0), placement, 4), build_class("b", (1, 0), placement, 4)],
        tenants=[Tenant("a", allocated_r=(0, 1)), Tenant("b")],
        resources=("cpu", "gpu"),
    )

    assert order_of(decide(snapshot, "ps-dsf")) == list("abababab")
    assert order_of(decide(snapshot, "best-fit-drfh")) == list("bbbbaaaa")


def test_rps_dsf_turns_away_from_a_class_that_fills_up_and_ps_dsf_does_not() -> None:
    servers = build_servers({"large": (12, 12), "small": (10, 10)}, free={"large": (3, 12)})
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 1), build_placement(servers), 3)],
        tenants=[Tenant("a", allocated_r=(1, 1))],
    )

    assert places_of(decide(snapshot, "ps-dsf")) == ["large"] * 3
    assert places_of(decide(snapshot, "rps-dsf")) == ["small"] * 3


def test_rps_dsf_still_places_where_a_resource_is_used_up() -> None:
    """A holds the GPUs and nothing is left of them: it comes last there, but the room is not wasted."""
    servers = build_servers({"gpu": (4, 1)}, free={"gpu": (4, 0)})
    placement = build_placement(servers)
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 0), placement, 9), build_class("b", (1, 0), placement, 2)],
        tenants=[Tenant("a", Fraction(1000), allocated_r=(0, 1)), Tenant("b")],
        resources=("cpu", "gpu"),
    )

    report = decide(snapshot, "rps-dsf")

    assert order_of(report) == list("bbaa")
    assert report.waits[0].fairness is None


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_weights_divide_shares(policy: str) -> None:
    servers = build_servers({"s": (12, 12)})
    placement = build_placement(servers)
    classes = [build_class(name, (1, 1), placement, 12) for name in "abc"]
    snapshot = build_snapshot(servers, classes, tenants=[weigh("a"), weigh("b", 2), weigh("c", 3)])

    assert [order_of(decide(snapshot, policy)).count(name) for name in "abc"] == [2, 4, 6]


def test_a_weight_of_one_resource_counts_inside_the_maximum() -> None:
    """Weighted DRF, NSDI 2011, section 4.3: a may have twice as much memory, which is what it is short of."""
    servers = build_servers({"s": (90, 90)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 3), placement, 90), build_class("b", (1, 3), placement, 90)]
    snapshot = build_snapshot(servers, classes, tenants=[weigh("a", memory=2), weigh("b", cpu=2)])

    assert [order_of(decide(snapshot)).count(name) for name in "ab"] == [20, 10]
