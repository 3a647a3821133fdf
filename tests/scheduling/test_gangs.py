"""Groups: the minimum is placed as one plan, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, note

from fairbind.model import CycleReport, GroupTopology, PolicySettings, Snapshot, TaskClass, TaskGroup
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from scheduling.gangs import check_gangs, gang_snapshots
from scheduling.limits import TenantLimit, add_limits, limit_tenants
from scheduling.random_trees import add_tree
from scheduling.rules import add_rules, add_wishes, build_domains
from scheduling.strategies import POLICY_IDS
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, build_tasks, decide

TWO = build_servers({"n1": (4, 8), "n2": (4, 8)})


def build_gang(
    lacking: int, demand_r: tuple[int, ...] = (1, 1), tasks: int | None = None, name: str = "g", tenant: str = "a"
) -> TaskClass:
    """A class on two servers whose tasks are a group's."""
    made = build_class(tenant, demand_r, build_placement(TWO), build_tasks(name, tasks or lacking))
    return replace(made, group=TaskGroup(name, lacking))


def list_plans(report: CycleReport) -> list[list[str]]:
    """The tasks of each plan."""
    return [[bind.task.uid for bind in plan.binds] for plan in report.plans]


@given(snapshot=gang_snapshots())
def test_every_plan_is_what_the_policy_says(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)

        check_gangs(snapshot, decide(snapshot, policy))


@given(
    snapshot=gang_snapshots(more=[add_rules]) | gang_snapshots(more=[add_limits]) | gang_snapshots(more=[add_wishes])
)
def test_every_plan_is_what_rules_limits_and_wishes_allow(snapshot: Snapshot) -> None:
    for policy in ("best-fit-drfh", "ps-dsf", "fifo"):
        note(policy)

        check_gangs(snapshot, decide(snapshot, policy))


@given(snapshot=gang_snapshots(more=[add_limits, add_tree]))
def test_every_plan_is_what_the_order_in_a_tree_says(snapshot: Snapshot) -> None:
    for policy in ("best-fit-drfh", "ps-dsf", "tsf", "fifo"):
        note(policy)

        check_gangs(snapshot, decide(snapshot, policy))


@given(snapshot=gang_snapshots())
def test_what_is_recalled_changes_no_decision(snapshot: Snapshot) -> None:
    """The second cycle sees the same classes, and so recalls what did not fit in the first one."""
    cache, state = UnschedulableCache(), CycleState()
    settings = PolicySettings("best-fit-drfh")
    for _ in range(2):
        report = run_cycle(snapshot, settings, 0.0, unschedulable=cache, state=state, explains=False)

        check_gangs(snapshot, report)


def test_the_minimum_is_one_plan_and_the_rest_come_one_by_one() -> None:
    report = decide(build_snapshot(TWO, [build_gang(3, tasks=5)]))

    assert list(map(len, list_plans(report))) == [3, 1, 1]


def test_a_group_that_does_not_fit_leaves_no_trace_and_says_what_is_short() -> None:
    report = decide(build_snapshot(TWO, [build_gang(9), build_class("b", (4, 8), build_placement(TWO), 2)]))

    assert list(map(len, list_plans(report))) == [1, 1]
    (wait,) = report.waits
    assert wait.group is not None
    assert (wait.group.lacking, wait.group.fitting, wait.group.short) == (9, 0, (((1, 1), 9),))


def test_the_reasons_are_those_of_the_tasks_that_are_lacking() -> None:
    (wait,) = decide(build_snapshot(TWO, [build_gang(9)])).waits

    assert wait.group is not None
    assert wait.group.fitting == 8
    assert [(str(reason.kind), reason.subject, count) for reason, count in wait.rejections] == [
        ("insufficient", "cpu", 2)
    ]


def test_a_group_is_one_step_of_filling() -> None:
    """Tenant b holds nothing and comes second; the group raises a's share by all of its tasks."""
    others = build_class("b", (1, 1), build_placement(TWO), 6)

    report = decide(build_snapshot(TWO, [build_gang(4), others]))

    assert list(map(len, list_plans(report))) == [4, 1, 1, 1, 1]


def test_a_group_larger_than_the_limit_is_decided() -> None:
    report = decide(build_snapshot(TWO, [build_gang(8)]), limit=3)

    assert list(map(len, list_plans(report))) == [8]


def test_a_group_that_has_begun_comes_before_the_order_of_shares() -> None:
    begun = build_gang(8)
    assert begun.group is not None
    begun = replace(begun, tenant="z", group=replace(begun.group, is_begun=True))

    report = decide(build_snapshot(TWO, [build_class("a", (1, 1), build_placement(TWO), 3), begun]))

    assert list_plans(report)[0][0].startswith("g-")


def test_each_role_has_its_part_of_the_minimum() -> None:
    group = TaskGroup("g", 3, (("lead", 1),))
    lead = replace(build_gang(1, (4, 8), name="lead"), group=group, role="lead")
    workers = replace(build_gang(4, (1, 1), name="worker"), group=group, role="worker")

    (plan, *_) = list_plans(decide(build_snapshot(TWO, [workers, lead])))

    assert plan == ["lead-0000", "worker-0000", "worker-0001"]


def test_a_member_at_a_limit_withholds_all() -> None:
    snapshot = limit_tenants(build_snapshot(TWO, [build_gang(4)]), [TenantLimit("a", 0, 3, (0, 0))])

    report = decide(snapshot)

    assert not report.plans
    (wait,) = report.waits
    assert wait.at_limit is not None
    assert wait.group is not None
    assert wait.group.fitting == 3


def test_what_must_be_free_is_named() -> None:
    gang = build_gang(1)
    assert gang.group is not None
    gang = replace(gang, group=replace(gang.group, least_free_r=(9, 0)))

    (wait,) = decide(build_snapshot(TWO, [gang])).waits

    assert wait.group is not None
    assert wait.group.lacking_r == (1, 0)


def test_what_is_reserved_for_the_group_is_part_of_what_must_be_free() -> None:
    """All of n1 is reserved for it."""
    servers = build_servers({"n1": (4, 8), "n2": (4, 8)}, free={"n1": (0, 0), "n2": (1, 1)})
    placement = replace(build_placement(servers), reserved={0: (4, 8)})
    made = build_class("a", (1, 1), placement, build_tasks("g", 4))
    gang = replace(made, group=TaskGroup("g", 4, least_free_r=(5, 0)))

    report = decide(build_snapshot(servers, [gang]))

    assert list(map(len, list_plans(report))) == [4]


@pytest.mark.parametrize(("is_required", "placed"), [(True, 0), (False, 5)])
def test_a_domain_that_is_required_or_preferred(is_required: bool, placed: int) -> None:  # noqa: FBT001
    gang = build_gang(5)
    topology = GroupTopology(build_domains([0, 1], 2), is_required)
    assert gang.group is not None
    gang = replace(gang, group=replace(gang.group, topology=topology))

    report = decide(build_snapshot(TWO, [gang]))

    assert len(report.bindings) == placed


def test_the_domain_with_the_least_that_holds_it_is_taken() -> None:
    servers = build_servers({"n1": (9, 9), "n2": (3, 9), "n3": (5, 9)})
    made = build_class("a", (1, 1), build_placement(servers), 4)
    gang = replace(made, group=TaskGroup("g", 4, topology=GroupTopology(build_domains([0, 1, 2], 3), True)))

    report = decide(build_snapshot(servers, [gang]))

    assert {bind.server for bind in report.bindings} == {"n3"}


@pytest.mark.parametrize(("free", "expected"), [(4, {"n1"}), (1, {"n3"}), (0, {"n3"})])
def test_of_a_preferred_domain_the_one_with_members_comes_first(free: int, expected: set[str]) -> None:
    servers = build_servers({"n1": (9, 9), "n2": (9, 9), "n3": (3, 9)}, free={"n1": (free, 9)})
    made = build_class("a", (1, 1), build_placement(servers), 2)
    topology = GroupTopology(build_domains([0, 1, 2], 3), is_required=False, home=0)
    gang = replace(made, group=TaskGroup("g", 2, topology=topology))

    report = decide(build_snapshot(servers, [gang]))

    assert {bind.server for bind in report.bindings} == expected


def test_all_classes_of_a_group_are_looked_at_when_one_may_fit() -> None:
    group, cache = TaskGroup("g", 2, (("lead", 1), ("worker", 1))), UnschedulableCache()
    made = [("lead", "n1"), ("worker", "n2")]
    classes = [
        replace(
            build_class("a", (1, 1), build_placement(TWO, only=[name]), build_tasks(role, 1)), group=group, role=role
        )
        for role, name in made
    ]

    def decide_with(free: dict[str, tuple[int, int]]) -> CycleReport:
        snapshot = build_snapshot(build_servers({"n1": (4, 8), "n2": (4, 8)}, free=free), classes)
        return run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=cache)

    assert not decide_with({"n1": (0, 0), "n2": (0, 0)}).plans
    assert not decide_with({"n1": (0, 0), "n2": (1, 1)}).plans
    assert list(map(len, list_plans(decide_with({"n1": (1, 1), "n2": (1, 1)})))) == [2]


def test_what_is_free_in_pieces_that_are_too_small_is_told() -> None:
    """Two tasks of 3 fit in 6 that are free, but not in 4 and 2."""
    pieces, full = build_gang(2, (3, 1)), build_gang(3, (3, 1))

    (scattered,) = decide(build_snapshot(build_servers({"n1": (4, 8), "n2": (2, 8)}), [pieces])).waits
    (short,) = decide(build_snapshot(TWO, [full])).waits

    assert scattered.group is not None
    assert scattered.group.scattered_r == (6, 16)
    assert short.group is not None
    assert short.group.scattered_r == ()


def test_a_group_is_asked_for_once_it_fits_and_is_taken_back_if_it_may_not_be_had() -> None:
    gang, other = replace(build_gang(5), is_rationed=True), build_class("b", (1, 1), build_placement(TWO), 8)
    asked: list[int] = []

    def refuse(_tenant: str, count: int) -> bool:
        asked.append(count)
        return False

    report = run_cycle(build_snapshot(TWO, [gang, other]), PolicySettings(), 0.0, may_have=refuse)

    assert asked == [5]
    assert report.is_rationed
    assert [bind.tenant for bind in report.bindings] == ["b"] * 8
    assert report.waits == ()
