"""Reasons: counted like kube-scheduler counts, and who comes before."""

from __future__ import annotations

import pytest

from fairbind.model import ExclusiveKeys, FairnessReason, PolicySettings, Tenant
from fairbind.scheduling import UnschedulableCache, run_cycle
from rejections import PORT_CONFLICT, lack, taint, unsupported
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide


def test_a_server_counts_once_for_each_resource_that_it_lacks() -> None:
    servers = build_servers({"a": (1, 9, 0), "b": (1, 1, 0), "c": (9, 9, 0), "d": (9, 9, 9)})
    placement = build_placement(servers, only=["a", "b", "c"], rejections=((taint("gpu"), 1),))
    snapshot = build_snapshot(servers, [build_class("t", (2, 2, 1), placement)], resources=("cpu", "memory", "gpu"))

    (wait,) = decide(snapshot).waits

    assert wait.rejections == (
        (lack("cpu"), 2),
        (lack("gpu"), 3),
        (lack("memory"), 1),
        (taint("gpu"), 1),
    )


def test_a_server_with_conflicting_claims_is_not_asked_for_room() -> None:
    servers = build_servers({"a": (1, 1), "b": (1, 1)}, taken_keys={"a": ["p/80"]})
    placement = build_placement(servers, exclusive_keys=ExclusiveKeys(frozenset({"p/80"}), frozenset({"p/80"})))
    snapshot = build_snapshot(servers, [build_class("t", (2, 0), placement)])

    assert decide(snapshot).waits[0].rejections == ((lack("cpu"), 1), (PORT_CONFLICT, 1))


def test_counts_are_those_after_the_last_placement() -> None:
    servers = build_servers({"a": (4, 4), "b": (1, 1)})
    snapshot = build_snapshot(servers, [build_class("t", (2, 0), build_placement(servers), 3)])

    (wait,) = decide(snapshot).waits

    assert (wait.waiting, wait.first.name, wait.rejections) == (1, "t-2-0/0002", ((lack("cpu"), 2),))


def test_waits_come_by_tenant_and_turn() -> None:
    servers = build_servers({"a": (1, 1)})
    everywhere = build_placement(servers)
    classes = [build_class(tenant, (demand, 2), everywhere) for tenant in "ba" for demand in (4, 3, 2)]

    waits = decide(build_snapshot(servers, classes)).waits

    assert [(wait.task_class.tenant, wait.first.uid) for wait in waits] == [
        (tenant, f"{tenant}-{demand}-2-0000") for tenant in "ab" for demand in (2, 3, 4)
    ]


def test_the_reason_names_who_is_further_below_and_waits_for_the_same_servers() -> None:
    """C is lowest but waits for another server; d holds nothing but waits for nothing."""
    servers = build_servers({"x": (10, 10), "y": (10, 10)}, free={"x": (0, 0), "y": (0, 0)})
    on_x, on_y = build_placement(servers, only=["x"]), build_placement(servers, only=["y"])
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 1), on_x), build_class("b", (1, 1), on_x), build_class("c", (1, 1), on_y)],
        tenants=[Tenant("a", allocated_r=(6, 2)), Tenant("b", allocated_r=(2, 3)), Tenant("c"), Tenant("d")],
    )

    waits = {wait.task_class.tenant: wait.fairness for wait in decide(snapshot).waits}

    assert waits == {"a": FairnessReason(0.3, "b", 0.15), "b": None, "c": None}
    assert all(wait.fairness is None for wait in decide(snapshot, "fifo").waits)


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(
    ("rival", "own", "is_named"),
    [
        ([(2, 1)], (2, 0), False),  # b needs a GPU, and a must have the node without one
        ([(2, 0)], (2, 0), True),
        ([(500, 0)], (2, 0), False),  # no node will ever hold it
        ([(500, 0), (9, 1), (2, 0)], (2, 0), True),  # the smallest of what b waits with counts
        ([(2, 0)], (500, 0), False),  # nor a's own task
    ],
)
def test_who_could_never_use_the_server_is_no_rival(
    rival: list[tuple[int, int]], own: tuple[int, int], *, is_named: bool, remembers: bool
) -> None:
    servers = build_servers({"cpu": (8, 0), "gpu": (8, 4)}, free={"cpu": (1, 0), "gpu": (1, 4)})
    at_cpu, everywhere = build_placement(servers, only=["cpu"]), build_placement(servers)
    classes = [build_class("a", own, at_cpu), *(build_class("b", each, everywhere) for each in rival)]
    tenants = [Tenant("a", allocated_r=(9, 0)), Tenant("b", allocated_r=(1, 0))]
    unschedulable = UnschedulableCache() if remembers else None
    snapshot = build_snapshot(servers, classes, tenants=tenants)
    for _ in range(2):
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable)
        first = next(wait for wait in report.waits if wait.task_class.tenant == "a")
        assert (first.fairness is not None) is is_named
        assert first.is_too_large is (own == (500, 0))
        if unschedulable is not None:
            unschedulable.forget_some(1)
            snapshot = build_snapshot(servers, [build_class("a", own, at_cpu), *classes[1:]], tenants=tenants)


def test_equal_shares_are_no_reason() -> None:
    servers = build_servers({"x": (10, 10)}, free={"x": (0, 0)})
    everywhere = build_placement(servers)
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 1), everywhere), build_class("b", (1, 1), everywhere)],
        tenants=[Tenant("a", allocated_r=(5, 5)), Tenant("b", allocated_r=(5, 5))],
    )

    assert all(wait.fairness is None for wait in decide(snapshot).waits)


def test_blocked_tasks_are_nobodys_rivals() -> None:
    servers = build_servers({"x": (10, 10)}, free={"x": (0, 0)})
    everywhere = build_placement(servers)
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 1), everywhere), build_class("b", (1, 1), everywhere, blocked=unsupported("it"))],
        tenants=[Tenant("a", allocated_r=(10, 10)), Tenant("b")],
    )

    assert [wait.fairness for wait in decide(snapshot).waits] == [None, None]


@pytest.mark.parametrize(("policy", "expected"), [("ps-dsf", FairnessReason(0.5, "b", 0.25)), ("best-fit-drfh", None)])
def test_ps_dsf_compares_on_the_class_and_drfh_on_the_cluster(policy: str, expected: FairnessReason | None) -> None:
    """By totals b is ahead because of its devices; on the servers without any, it is behind."""
    servers = build_servers({"gpu": (2, 4), "plain": (8, 0)}, free={"gpu": (0, 0), "plain": (0, 0)})
    plain = build_placement(servers, only=["plain"])
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 0), plain), build_class("b", (1, 0), plain)],
        tenants=[Tenant("a", allocated_r=(4, 0)), Tenant("b", allocated_r=(2, 4))],
        resources=("cpu", "gpu"),
    )

    assert decide(snapshot, policy).waits[0].fairness == expected


def test_waits_name_no_rival_where_nothing_asks_for_one() -> None:
    servers = build_servers({"x": (8, 8)}, free={"x": (1, 1)})
    classes = [build_class(name, (2, 2), build_placement(servers)) for name in "ab"]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("a", allocated_r=(4, 4))])

    asked, not_asked = (run_cycle(snapshot, PolicySettings(), 0.0, finds_rivals=each).waits for each in (True, False))

    assert [wait.fairness is not None for wait in asked] == [True, False]
    assert [wait.fairness for wait in not_asked] == [None, None]
    assert [wait.rejections for wait in asked] == [wait.rejections for wait in not_asked]
