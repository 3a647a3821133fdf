"""No tenant gets beyond its limits, and who waits for one says so and goes on when it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fairbind.model import (
    CycleReport,
    LimitRule,
    PolicySettings,
    Rejection,
    RejectionKind,
    Snapshot,
    TaskClass,
    Tenant,
    UsageBelow,
)
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.reservations.needs import list_blocked
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly
from scheduling.limits import TenantLimit, add_limits, limit_tenants
from scheduling.reference import check_report
from scheduling.rules import FOUR, add_rules
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.worlds import build_class, build_placement, build_snapshot, decide

EVERYWHERE, LARGE = (0, 0, 0, 0), (0, 0, -1, -1)
"""All four servers, and the first two of them."""
CPU = Rejection(RejectionKind.AT_LIMIT, "tenant a for cpu")


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_limits) | snapshots().flatmap(add_rules).flatmap(add_limits))
@settings(max_examples=2 * settings().max_examples)
def test_every_step_is_what_policy_and_limits_say(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)
        check_report(snapshot, decide(snapshot, policy))


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_limits), explains=st.booleans(), falls=st.sampled_from([0, 1, 2]))
@settings(max_examples=2 * settings().max_examples)
def test_cycles_that_remember_decide_as_cycles_that_do_not(snapshot: Snapshot, falls: int, *, explains: bool) -> None:
    """What was placed counts as held afterwards; some of what is held goes between the cycles."""
    for policy in POLICY_IDS:
        note(policy)
        memory, state, now = UnschedulableCache(), CycleState(), snapshot
        for limit in (1, 2, None, None):
            settings_ = PolicySettings(policy=policy)
            alone = run_cycle(now, settings_, 0.0, limit=limit)
            remembering = run_cycle(
                now, settings_, 0.0, limit=limit, unschedulable=memory, state=state, explains=explains
            )
            assert remembering.bindings == alone.bindings
            if explains:
                waits = [[(wait.first, wait.at_limit) for wait in each.waits] for each in (remembering, alone)]
                assert waits[0] == waits[1]
            now = carry_out(now, alone, falls)


def carry_out(snapshot: Snapshot, report: CycleReport, falls: int) -> Snapshot:
    """Return the world after the decisions, and after some of what counts towards limits has ended."""
    names, held, free_kr = snapshot.servers.names, dict(snapshot.held), np.array(snapshot.servers.free_kr)
    placed: list[tuple[TaskClass, int]] = []
    for bind in report.bindings:
        task_class = next(each for each in snapshot.task_classes if bind.task in each.tasks)
        placed.append((task_class, names.index(bind.server)))
        free_kr[placed[-1][1]] -= np.array(task_class.demand_r)
        for rule in () if task_class.rules is None else task_class.rules.rules:
            if not isinstance(rule, LimitRule) or rule.rejection.kind != RejectionKind.AT_LIMIT:
                continue
            if rule.counter.domains.domain_k[placed[-1][1]] == 0:
                subject = rule.counter.subject
                held[subject] = held.get(subject, 0) + dict(task_class.brings)[subject]
    gone = {bind.task for bind in report.bindings}
    left = [
        each if gone.isdisjoint(each.tasks) else replace(each, tasks=tuple(t for t in each.tasks if t not in gone))
        for each in snapshot.task_classes
        if not gone.issuperset(each.tasks)
    ]
    return replace(
        snapshot,
        servers=replace(snapshot.servers, free_kr=free_kr),
        task_classes=tuple(left),
        held={subject: amount // 2**falls for subject, amount in held.items()},
    )


class World:
    """Pods of a tenant on four servers of 9 CPUs, beside those of another one; cycles remember."""

    def __init__(self, *limits: TenantLimit, only: Sequence[str] | None = None) -> None:
        self.memory, self.state = UnschedulableCache(), CycleState()
        self.limits = list(limits)
        self.classes = [
            build_class("a", (2, 0), build_placement(FOUR, only=only), 9),
            build_class("b", (9, 0), build_placement(FOUR), 9),
        ]
        self._known: dict[tuple[int, ...], Snapshot] = {}

    def decide(self) -> CycleReport:
        """Decide and carry nothing out. Classes are the same while only what is held is other."""
        key = tuple(limit.most for limit in self.limits)
        if key not in self._known:
            self._known[key] = limit_tenants(build_snapshot(FOUR, self.classes), self.limits)
        snapshot = replace(self._known[key], held={limit.subject: limit.held for limit in self.limits})
        policy = PolicySettings("first-fit-drfh")
        return run_cycle(snapshot, policy, 0.0, unschedulable=self.memory, explains=False)


def count(report: CycleReport, tenant: str) -> int:
    return sum(bind.tenant == tenant for bind in report.bindings)


def test_a_tenant_gets_what_its_limit_leaves_and_blocks_no_other() -> None:
    report = World(TenantLimit("a", 0, 6, EVERYWHERE, held=1)).decide()

    assert (count(report, "a"), count(report, "b")) == (2, 3)
    (wait,) = [each for each in report.waits if each.task_class.tenant == "a"]
    assert (wait.at_limit, wait.fairness, wait.waiting) == (CPU, None, 7)
    assert wait.rejections == ((CPU, 4),)
    assert wait.until == (UsageBelow(wait.task_class.rules.rules[0].counter.subject, 5),)  # type: ignore[union-attr]


def test_who_is_at_its_limit_comes_before_no_other() -> None:
    """Tenant a holds less than b, and would be named if it waited for the same capacity."""
    world = World(TenantLimit("a", 0, 2, EVERYWHERE))
    (wait,) = [each for each in world.decide().waits if each.task_class.tenant == "b"]
    assert wait.fairness is None

    world = World()
    (wait,) = [each for each in world.decide().waits if each.task_class.tenant == "b"]
    assert wait.fairness is not None


def test_who_is_known_to_be_at_its_limit_comes_before_no_other() -> None:
    """The cycle that makes the message remembers the classes at the limit from the one before."""
    classes = [build_class("a", (2, n), build_placement(FOUR)) for n in range(300)]
    first = limit_tenants(build_snapshot(FOUR, classes, tenants=[Tenant("b")]), [TenantLimit("a", 0, 0, EVERYWHERE)])
    later = build_class("b", (9, 0), build_placement(FOUR), 9)
    memory, policy = UnschedulableCache(), PolicySettings("best-fit-drfh")
    for _ in range(2):
        run_cycle(first, policy, 0.0, unschedulable=memory, explains=False)
    second = replace(first, task_classes=(*first.task_classes, later))
    report = run_cycle(second, policy, 0.0, unschedulable=memory, explains=False)

    (wait,) = [each for each in report.waits if each.task_class.tenant == "b"]
    assert (count(report, "b"), wait.fairness) == (4, None)


def test_nothing_is_reserved_for_who_is_at_its_limit() -> None:
    report = World(TenantLimit("a", 0, 2, EVERYWHERE)).decide()
    assert [each.task_class.tenant for each in report.waits] == ["a", "b"]
    assert [first.task_class.tenant for first, *_ in list_blocked(report.waits)] == ["b"]


def test_a_limit_of_some_nodes_leaves_the_others() -> None:
    report = World(TenantLimit("a", 0, 2, LARGE)).decide()
    servers = [bind.server for bind in report.bindings if bind.tenant == "a"]
    assert servers[0] == "a1"
    assert set(servers[1:]) <= {"b1", "c1"}
    (wait,) = [each for each in report.waits if each.task_class.tenant == "a"]
    assert wait.at_limit is None  # b1 and c1 are full, and one more of their kind would help
    assert (CPU, 2) in wait.rejections


def test_pods_that_may_use_no_other_nodes_are_at_the_limit_of_these() -> None:
    report = World(TenantLimit("a", 0, 2, LARGE), only=["a1", "a2"]).decide()
    (wait,) = [each for each in report.waits if each.task_class.tenant == "a"]
    assert wait.at_limit == CPU


def test_a_limit_of_all_nodes_is_told_where_no_node_is_for_the_pods() -> None:
    """An autoscaler that brings such a node would bring it in vain."""
    report = World(TenantLimit("a", 0, 1, EVERYWHERE), only=[]).decide()
    (wait,) = [each for each in report.waits if each.task_class.tenant == "a"]
    assert wait.at_limit == CPU


def test_pods_at_a_limit_go_on_in_the_cycle_in_which_usage_falls() -> None:
    world = World(TenantLimit("a", 0, 8, EVERYWHERE, held=8))
    world.classes = [build_class("a", (2, n), build_placement(FOUR)) for n in range(300)]
    assert count(world.decide(), "a") == 0
    assert count(world.decide(), "a") == 0

    world.limits = [replace(world.limits[0], held=4)]
    report = world.decide()
    assert count(report, "a") == 2
    assert len(report.waits) == 298


def test_pods_at_a_limit_go_on_when_it_rises() -> None:
    world = World(TenantLimit("a", 0, 8, EVERYWHERE, held=8))
    assert count(world.decide(), "a") == 0

    world.limits = [TenantLimit("a", 0, 12, EVERYWHERE, held=8)]
    assert count(world.decide(), "a") == 2


def test_fair_shares_are_of_what_the_limit_lets_run() -> None:
    """Without it each of the two tenants has half of the 36 CPUs."""
    few = build_classes_of_two()
    shares = [find_fair_shares(limit_tenants(few, limits)) for limits in ([], [TenantLimit("a", 0, 9, EVERYWHERE)])]
    assert shares[0] == pytest.approx({"a": 0.5, "b": 0.5})
    assert shares[1] == pytest.approx({"a": 0.25, "b": 0.75})


def test_a_limit_of_other_nodes_changes_no_fair_share() -> None:
    limited = limit_tenants(build_classes_of_two(), [TenantLimit("a", 0, 1, LARGE)])
    assert find_fair_shares(limited) == pytest.approx({"a": 0.5, "b": 0.5})


def build_classes_of_two() -> Snapshot:
    classes = [build_class("a", (1, 0), build_placement(FOUR), 20), build_class("a", (3, 0), build_placement(FOUR), 9)]
    return build_snapshot(FOUR, [*classes, build_class("b", (1, 0), build_placement(FOUR), 99)])


def find_fair_shares(snapshot: Snapshot) -> dict[str, float]:
    exact = make_exact_problem(snapshot, PolicySettings())
    assert exact is not None
    return dict(solve_exactly(exact).fair_shares)


def test_a_limit_below_what_is_held_only_stops_new_pods() -> None:
    report = World(TenantLimit("a", 0, 2, EVERYWHERE, held=30)).decide()
    assert count(report, "a") == 0
    assert count(report, "b") == 4
