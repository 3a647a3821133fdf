"""Task shares and sums of shares, exactly; and what people read of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import MAX_AMOUNT, Holding, Snapshot, Tenant
from fairbind.scheduling.policies.measures import SumsOfShares, TaskShares, compute_task_share, get_progress
from scheduling.worlds import (
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    count_by_tenant,
    decide,
    order_of,
    weigh,
)

amounts = st.integers(1, MAX_AMOUNT)


def build_two_kinds(*tenants: Tenant) -> Snapshot:
    """Two classes: x has 4 CPUs and 12 of memory, y has 12 CPUs and 4 of memory."""
    servers = build_servers({"x": (4, 12), "y": (12, 4)})
    classes = [build_class(tenant.name, (1, 1), build_placement(servers), 9) for tenant in tenants]
    return build_snapshot(servers, classes, tenants=tenants)


@given(capacities=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4), demand=st.tuples(amounts, amounts))
def test_the_task_share_is_one_in_what_all_classes_run(
    capacities: list[tuple[int, int]], demand: tuple[int, int]
) -> None:
    tasks = sum((min(Fraction(c, d) for c, d in zip(row, demand, strict=True)) for row in capacities), Fraction(0))
    totals = [sum(column) for column in zip(*capacities, strict=True)]

    assert compute_task_share(demand, capacities, totals, [0, 1]) == 1 / tasks


def test_a_class_without_a_resource_runs_no_task_that_asks_for_it() -> None:
    assert compute_task_share((1, 1), [(8, 2), (8, -1)], (16, 2), [0, 1]) == Fraction(1, 2)
    assert compute_task_share((1, 0), [(8, 2), (8, -1)], (16, 2), [0, 1]) == Fraction(1, 16)
    assert compute_task_share((1, 1), [(8, -1), (-1, 2)], (8, 2), [0, 1]) == Fraction(1, 2)  # its dominant share
    assert compute_task_share((0, 3), [(8, 2)], (8, 2), [0]) == 0


def test_task_shares_ask_how_many_the_cluster_could_run() -> None:
    """A task (1, 3) runs 4 + 4/3 times, one (1, 1) 8 times: by dominant shares they would be at 3/16 and 1/16."""
    snapshot = build_two_kinds(Tenant("a"), Tenant("b"))
    measure = TaskShares(
        replace(
            snapshot,
            tenants=(
                Tenant("a", allocated_r=(1, 3), holdings=(Holding((1, 3), (1, 3), 1),)),
                Tenant("b", allocated_r=(2, 2), holdings=(Holding((1, 1), (1, 1), 2),)),
            ),
        )
    )
    progress_of = get_progress(snapshot)

    assert measure.compute_share(progress_of["a"], 0) == pytest.approx(3 / 16)
    assert measure.compute_share(progress_of["b"], 0) == pytest.approx(1 / 4)
    assert measure.compute_level(progress_of["a"], 0) < measure.compute_level(progress_of["b"], 0)


@given(
    count=st.integers(1, 1_000),
    demand=st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)),
    weight=st.fractions(Fraction(1, 1000), Fraction(1000), max_denominator=1000).filter(lambda w: w > 0),
    factor=st.integers(1, 7),
)
def test_equal_task_shares_are_equal_however_they_came_about(
    count: int, demand: tuple[int, int], weight: Fraction, factor: int
) -> None:
    """Task by task, as one lump, or with a multiple of the weight and of the tasks."""
    total = (demand[0] * count, demand[1] * count)
    more = (total[0] * factor, total[1] * factor)
    tenants = (
        Tenant("a", weight, {}, total, (Holding(demand, demand, count),)),
        Tenant("b", weight, {}, total),
        Tenant("c", weight * factor, {}, more, (Holding(demand, demand, count * factor),)),
        Tenant("d", weight * factor, {}, more, (Holding(demand, demand, count),)),
    )
    snapshot = build_two_kinds(*tenants)
    measure = TaskShares(snapshot)

    levels = {measure.compute_level(progress, 0) for progress in get_progress(snapshot).values()}

    assert len(levels) == 1


def test_sums_of_rounded_shares_are_rounded_once_more() -> None:
    """Three times a sixth is a half to the last digit, though a sixth has no end in binary."""
    servers = build_servers({"s": (6, 6)})
    tenants = [
        Tenant("a", allocated_r=(3, 0), holdings=(Holding((1, 0), (1, 0), 3),)),
        Tenant("b", allocated_r=(3, 0), holdings=(Holding((3, 0), (3, 0), 1),)),
    ]
    snapshot = build_snapshot(servers, [], tenants=tenants)
    measure, progress_of = TaskShares(snapshot), get_progress(snapshot)

    assert measure.compute_level(progress_of["a"], 0) == measure.compute_level(progress_of["b"], 0)


def test_task_shares_differ_from_dominant_shares_where_servers_differ() -> None:
    servers = build_servers({"x": (40, 120), "y": (120, 40)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 3), placement, 99), build_class("b", (1, 1), placement, 99)]
    snapshot = build_snapshot(servers, classes)

    by_dominance, by_tasks = count_by_tenant(decide(snapshot)), count_by_tenant(decide(snapshot, "tsf"))

    assert by_tasks["a"] / by_tasks["b"] == pytest.approx((160 / 3) / 80, rel=0.05)
    assert by_dominance["a"] / by_dominance["b"] == pytest.approx(1 / 3, rel=0.05)


def test_sums_of_shares_count_every_resource() -> None:
    """NSDI 2011, section 5.1: assets of a and b are equal when 3 x + 3 y of (9, 18) are: tasks (1, 4) and (3, 1)."""
    snapshot = build_two_kinds(
        Tenant("a", allocated_r=(4, 0)), Tenant("b", Fraction(2), {"memory": Fraction(2)}, (4, 4))
    )
    measure, progress_of = SumsOfShares(snapshot), get_progress(snapshot)

    assert measure.compute_share(progress_of["a"], 0) == 4 / 16
    assert measure.compute_share(progress_of["b"], 0) == 4 / 32 + 4 / 64
    assert measure.compute_level(progress_of["b"], 0) < measure.compute_level(progress_of["a"], 0)


def test_equal_sums_are_equal_to_the_digit() -> None:
    """Thirds and sixths of different totals: a sum of rounded terms would break the tie."""
    servers = build_servers({"s": (3, 6)})
    tenants = [Tenant("a", allocated_r=(1, 1)), Tenant("b", allocated_r=(0, 3)), Tenant("c", allocated_r=(1, 1))]
    snapshot = build_snapshot(servers, [], tenants=tenants)
    measure, progress_of = SumsOfShares(snapshot), get_progress(snapshot)

    assert len({measure.compute_level(progress, 0) for progress in progress_of.values()}) == 1


def test_a_tenant_of_balanced_tasks_gets_less_by_sums() -> None:
    servers = build_servers({"s": (60, 60)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 1), placement, 60), build_class("b", (1, 0), placement, 60)]
    snapshot = build_snapshot(servers, classes, tenants=[weigh("a"), weigh("b")])

    assert count_by_tenant(decide(snapshot, "asset-fairness")) == {"a": 20, "b": 40}
    assert order_of(decide(snapshot, "asset-fairness"))[:6] == list("abbabb")


@pytest.mark.parametrize(
    ("policy", "measure"), [("tsf", "weighted task share"), ("asset-fairness", "weighted sum of shares")]
)
def test_the_reason_names_the_measure(policy: str, measure: str) -> None:
    servers = build_servers({"s": (4, 4)}, free={"s": (0, 0)})
    classes = [build_class(name, (1, 1), build_placement(servers)) for name in "ab"]
    tenants = [Tenant("a", allocated_r=(3, 3)), Tenant("b", allocated_r=(1, 1))]

    reason = decide(build_snapshot(servers, classes, tenants=tenants), policy).waits[0].fairness

    assert reason is not None
    assert (reason.next_tenant, reason.measure) == ("b", measure)
