"""What the cycle promises, in worlds that one can work out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.model import ExclusiveKeys, InvalidProblemError, Placement, ServerTable, Task, Tenant
from fairbind.scheduling import POLICIES
from rejections import PORT_CONFLICT, UNWANTED, lack, unsupported
from scheduling.reference import check_report
from scheduling.strategies import POLICY_IDS
from scheduling.worlds import (
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    build_tasks,
    decide,
    order_of,
    places_of,
    weigh,
)

every_policy = pytest.mark.parametrize("policy", POLICY_IDS)
FAIR = [policy for policy in POLICY_IDS if POLICIES[policy].is_fair]


def test_the_tenant_furthest_behind_goes_first_and_ties_go_by_name() -> None:
    servers = build_servers({"s": (10, 10)})
    everywhere = build_placement(servers)
    classes = [build_class(name, (1, 1), everywhere, 5) for name in "cba"]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("a", allocated_r=(2, 0))])

    assert order_of(decide(snapshot)) == list("bcbcabcabc")


def test_what_a_tenant_holds_elsewhere_counts() -> None:
    """Its tasks on servers that are gone are still its share."""
    servers = build_servers({"gone": (10, 10), "s": (4, 4)}, unusable=["gone"])
    everywhere = build_placement(servers)
    classes = [build_class(name, (1, 1), everywhere, 9) for name in "ab"]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("a", allocated_r=(10, 10))])

    assert order_of(decide(snapshot)) == list("bbbb")


def test_shares_count_the_share_demand_and_room_the_real_one() -> None:
    """A task without requests takes no room but is not free: its tenant's turn passes."""
    servers = build_servers({"s": (10, 10)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (0, 0), everywhere, 3, share_demand_r=(1, 1)),
        build_class("b", (1, 1), everywhere, 3),
    ]

    report = decide(build_snapshot(servers, classes))

    assert order_of(report) == list("ababab")
    assert dict(report.weighted_shares) == {"a": 0.3, "b": 0.3}


@pytest.mark.parametrize("policy", FAIR)
def test_inside_a_tenant_priority_then_queue_time_then_uid(policy: str) -> None:
    servers = build_servers({"s": (10, 10)})
    everywhere = build_placement(servers)
    early, urgent = Task("u3", "n/1", 0, 1.0), Task("u4", "n/0", 7, 9.0)
    second, first = Task("u2", "n/2", 0, 2.0), Task("u1", "n/3", 0, 2.0)
    classes = [
        build_class("a", (2, 1), everywhere, [early, second]),
        build_class("a", (1, 1), everywhere, [urgent]),
        build_class("a", (1, 2), everywhere, [first]),
    ]

    report = decide(build_snapshot(servers, classes), policy)

    assert [bind.task.uid for bind in report.bindings] == ["u4", "u3", "u1", "u2"]


def test_fifo_goes_by_priority_queue_time_and_name_whoever_it_is() -> None:
    servers = build_servers({"s": (10, 10)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (1, 1), everywhere, [Task("u1", "a/z", 0, 1.0), Task("u2", "a/b", 0, 1.0)]),
        build_class("b", (1, 1), everywhere, [Task("u0", "b/a", 0, 1.0), Task("u9", "b/b", 1, 5.0)]),
        build_class("c", (1, 1), everywhere, [Task("u8", "c/0", 0, 0.5)]),
    ]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("c", allocated_r=(9, 9))])

    report = decide(snapshot, "fifo")

    assert [bind.task.name for bind in report.bindings] == ["b/b", "c/0", "a/b", "a/z", "b/a"]


@every_policy
def test_a_class_that_fits_nowhere_blocks_nobody(policy: str) -> None:
    """Not its tenant's other classes, though they come later, and nobody else."""
    servers = build_servers({"s": (4, 4)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (9, 0), everywhere, build_tasks("large", 2, priority=9)),
        build_class("a", (1, 1), everywhere, 2),
        build_class("b", (1, 1), everywhere, 2),
        build_class(
            "b", (1, 1), build_placement(servers, only=[], rejections=((UNWANTED, 1),)), [Task("x", "x", 9, 0)]
        ),
    ]

    report = decide(build_snapshot(servers, classes), policy)

    assert sorted(order_of(report)) == list("aabb")
    assert [(wait.task_class.tenant, wait.waiting, wait.rejections) for wait in report.waits] == [
        ("a", 2, ((lack("cpu"), 1),)),
        ("b", 1, ((UNWANTED, 1),)),
    ]


@every_policy
def test_a_blocked_class_waits_with_its_reason_and_blocks_nobody(policy: str) -> None:
    servers = build_servers({"s": (4, 4)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (1, 1), everywhere, build_tasks("odd", 2, priority=9), blocked=unsupported("affinity")),
        build_class("a", (1, 1), everywhere, 2),
    ]

    report = decide(build_snapshot(servers, classes), policy)

    assert len(report.bindings) == 2
    (wait,) = report.waits
    assert (wait.blocked, wait.rejections) == (unsupported("affinity"), ())
    assert (wait.waiting, wait.first.name) == (2, "odd/0000")


@every_policy
def test_wishes_rank_before_fit(policy: str) -> None:
    servers = build_servers({"a": (8, 8), "b": (9, 3), "c": (9, 3)}, free={"c": (2, 2)})
    placement = build_placement(servers, wishes={"b": 1, "c": 2})
    snapshot = build_snapshot(servers, [build_class("t", (1, 1), placement, 6)])

    places = places_of(decide(snapshot, policy))

    if policy in {"ps-dsf", "rps-dsf"}:  # the pool comes first, then the wish
        check_report(snapshot, decide(snapshot, policy))
    else:
        assert places == ["c", "c", "b", "b", "b", "a"]


@every_policy
def test_a_claim_is_held_by_one_task_a_server(policy: str) -> None:
    """A wildcard takes "p/*" and conflicts with "p/any", which all take; two addresses of one port do not conflict."""
    servers = build_servers({"a": (9, 9), "b": (9, 9), "c": (9, 9)}, taken_keys={"b": ["p/any", "p/10.0.0.1"]})
    wildcard = build_placement(servers, exclusive_keys=ExclusiveKeys(frozenset({"p/any", "p/*"}), frozenset({"p/any"})))
    address = build_placement(
        servers, exclusive_keys=ExclusiveKeys(frozenset({"p/any", "p/10.0.0.2"}), frozenset({"p/*", "p/10.0.0.2"}))
    )
    classes = [
        build_class("t", (1, 1), wildcard, build_tasks("wild", 3, priority=1)),
        build_class("t", (1, 1), address, build_tasks("address", 3)),
    ]

    report = decide(build_snapshot(servers, classes), policy)

    assert [(bind.task.name, bind.server) for bind in report.bindings] == [
        ("wild/0000", "a"),
        ("wild/0001", "c"),
        ("address/0000", "b"),
    ]
    assert [wait.rejections for wait in report.waits] == [((PORT_CONFLICT, 3),)] * 2


@every_policy
def test_an_overcommitted_resource_takes_only_tasks_that_ask_nothing_of_it(policy: str) -> None:
    servers = build_servers({"a": (9, 9)}, free={"a": (-2, 9)})
    everywhere = build_placement(servers)
    classes = [build_class("t", (1, 1), everywhere), build_class("t", (0, 1), everywhere, 2)]

    report = decide(build_snapshot(servers, classes), policy)

    assert [bind.task.name for bind in report.bindings] == ["t-0-1/0000", "t-0-1/0001"]
    assert report.waits[0].rejections == ((lack("cpu"), 1),)


@every_policy
def test_an_unusable_server_takes_nothing_whatever_a_placement_says(policy: str) -> None:
    servers = build_servers({"a": (9, 9), "b": (9, 9)}, unusable=["a"])
    placement = build_placement(servers)
    placement.eligible_k.flags.writeable = True
    placement.eligible_k[:] = True

    assert places_of(decide(build_snapshot(servers, [build_class("t", (1, 1), placement)]), policy)) == ["b"]


@every_policy
def test_nothing_to_do_is_a_complete_report(policy: str) -> None:
    report = decide(build_snapshot(build_servers({"a": (1, 1)}), [], tenants=[weigh("b"), weigh("a")]), policy)

    assert (report.bindings, report.waits, report.complete) == ((), (), True)
    assert report.weighted_shares == (("a", 0.0), ("b", 0.0))
    assert report.policy == policy


@every_policy
def test_a_limit_leaves_out_what_is_not_certain(policy: str) -> None:
    servers = build_servers({"a": (4, 4)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (9, 9), everywhere, build_tasks("x", 1, priority=1)),
        build_class("a", (1, 1), everywhere, 9),
    ]
    snapshot = build_snapshot(servers, classes)

    report = decide(snapshot, policy, limit=2)

    assert (len(report.bindings), report.complete) == (2, False)
    assert [wait.task_class.demand_r for wait in report.waits] == [(9, 9)]
    assert decide(snapshot, policy, limit=4).complete
    assert not decide(snapshot, policy, limit=0).complete


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="limit is -1"):
        decide(build_snapshot(build_servers({"a": (1, 1)}), []), limit=-1)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_without_any_server_everything_waits(policy: str) -> None:
    nothing = np.zeros((0, 2), dtype=np.int64)
    nowhere = np.zeros(0, dtype=np.bool_)
    servers = ServerTable((), nothing, nothing.copy(), nowhere.copy(), np.zeros(0, dtype=np.int32), ())
    snapshot = build_snapshot(servers, [build_class("a", (1, 1), Placement(nowhere), 2)])

    report = decide(replace(snapshot, total_r=(0, 0)), policy)

    assert (report.bindings, report.complete) == ((), True)
    assert [(wait.task_class.tenant, wait.waiting, wait.rejections) for wait in report.waits] == [("a", 2, ())]
