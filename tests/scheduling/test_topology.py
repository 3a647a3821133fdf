"""Rules about topology domains: each placement changes who may go where, and the cycle follows it within a cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fairbind.model import (
    FLAT,
    AffinityRule,
    DomainRule,
    DomainRules,
    Hierarchy,
    InnerTenant,
    LimitRule,
    Pin,
    Place,
    PolicySettings,
    SeparationRule,
    ServerTable,
    Snapshot,
    SpreadRule,
    TaskClass,
    Tenant,
)
from fairbind.scheduling import UnschedulableCache, run_cycle
from fairbind.scheduling.fair_shares.problem import ExactProblem, make_exact_problem, solve_exactly
from scheduling.drafts import count_placed
from scheduling.reference import check_report
from scheduling.rules import AFFINITY, FOUR, FULL, HOSTS, OWN, SPREAD, ZONES, add_rules, build_counter, build_domains
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, build_tasks, decide


def build_ruled(*rules: DomainRule, tasks: int, subjects: str = "", demand_r: tuple[int, ...] = (1, 1)) -> TaskClass:
    task_class = build_class("t", demand_r, build_placement(FOUR), tasks)
    return replace(task_class, rules=DomainRules(rules) if rules else None, counts_as=frozenset(subjects.split()))


def count_by_server(*task_classes: TaskClass, hierarchy: Hierarchy = FLAT) -> dict[str, int]:
    report = decide(replace(build_snapshot(FOUR, task_classes), hierarchy=hierarchy), "best-fit-drfh")
    servers = [bind.server for bind in report.bindings]
    return {server: servers.count(server) for server in sorted(set(servers))}


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_rules))
@settings(max_examples=2 * settings().max_examples)
def test_every_step_is_what_policy_and_rules_say(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)
        check_report(snapshot, decide(snapshot, policy))


def test_tasks_are_spread_over_domains_and_reopen_them() -> None:
    zone = SpreadRule(build_counter("x", ZONES, [0, 0, 0]), 1, 1, True, SPREAD)

    counts = count_by_server(build_ruled(zone, tasks=7, subjects="x"))

    by_zone = sorted([counts.get("a1", 0) + counts.get("a2", 0), counts["b1"], counts["c1"]])
    assert by_zone == [2, 2, 3]


@pytest.mark.parametrize(("server", "expected"), [("a1", {"a1": 1}), ("a2", {"a2": 2}), ("b1", {"b1": 2})])
def test_tasks_that_are_promised_to_a_server_count_there_and_nowhere_else(
    server: str, expected: dict[str, int]
) -> None:
    """A third task in the zone of a1 is too many, and one is to come to a1 itself; b1 fills its own zone."""
    zones = build_domains([0, 0, 1, 1])
    rule = SpreadRule(build_counter("x", zones, [0, 0]), 2, 1, True, SPREAD, ((0, 1),))
    task_class = replace(build_ruled(rule, tasks=3, subjects="x"), placement=build_placement(FOUR, only=[server]))

    assert count_by_server(task_class) == expected


def test_promised_tasks_lift_the_least_count_of_the_only_domain_that_has_it() -> None:
    zones = build_domains([0, 0, 1, 1])
    rule = SpreadRule(build_counter("x", zones, [0, 5]), 1, 1, True, SPREAD, ((0, 2),))
    task_class = replace(build_ruled(rule, tasks=1, subjects="x"), placement=build_placement(FOUR, only=["a1"]))

    assert count_by_server(task_class) == {"a1": 1}


def test_a_server_to_which_tasks_are_promised_opens_when_other_domains_have_more() -> None:
    zones = build_domains([0, 0, 1, 1])
    rule = SpreadRule(build_counter("x", zones, [1, 0]), 2, 1, True, SPREAD, ((0, 1),))
    waiting = replace(build_ruled(rule, tasks=1, subjects="x"), placement=build_placement(FOUR, only=["a1"]))
    bringer = build_class("z", (2, 2), build_placement(FOUR, only=["b1"]), 1)

    assert count_by_server(waiting) == {}
    assert count_by_server(waiting, replace(bringer, counts_as=frozenset({"x"}))) == {"a1": 1, "b1": 1}


@pytest.mark.parametrize("has_tree", [False, True])
def test_a_task_that_counts_opens_a_domain_to_another_class_that_came_before_it(*, has_tree: bool) -> None:
    """The first class waits for a zone with an x; the second brings it there, with a demand that only b1 can meet."""
    rule = AffinityRule((build_counter("x", ZONES, [0, 0, 0]),), False, AFFINITY)
    waiting = build_ruled(rule, tasks=3)
    bringer = build_class("z", (2, 2), build_placement(FOUR, only=["b1"]))

    top = InnerTenant(Tenant("top", allocated_r=(0, 0)), Place())
    tree = Hierarchy({waiting.tenant: Place("top"), "z": Place()}, {"top": top}) if has_tree else FLAT
    counts = count_by_server(waiting, replace(bringer, counts_as=frozenset({"x"})), hierarchy=tree)

    assert counts == {"b1": 4}


def test_the_first_of_tasks_that_want_to_be_together_begins_anywhere() -> None:
    rule = AffinityRule((build_counter("x", ZONES, [0, 0, 0]),), True, AFFINITY)

    counts = count_by_server(build_ruled(rule, tasks=8, subjects="x", demand_r=(2, 2)))

    assert counts in ({"a1": 4, "a2": 4}, {"b1": 4}, {"c1": 4})


def test_tasks_that_keep_apart_take_a_server_each_and_the_rest_waits_for_it() -> None:
    rule = SeparationRule(build_counter("x", HOSTS, [0, 0, 1, 0]), OWN)
    task_class = build_ruled(rule, tasks=5, subjects="x")

    report = decide(build_snapshot(FOUR, [task_class]), "best-fit-drfh")

    assert sorted(bind.server for bind in report.bindings) == ["a1", "a2", "c1"]
    (wait,) = report.waits
    assert wait.waiting == 2
    assert wait.rejections == ((OWN, 4),)


def test_servers_take_as_much_of_what_tasks_bring_as_they_may() -> None:
    """The third server has 2 already; the last is in no domain, so nothing limits it but its room."""
    counter = build_counter("disks", build_domains([0, 1, 2, -1]), [0, 0, 2])
    rule = LimitRule(counter, 2, np.array([5, 1, 6]), FULL)
    task_class = replace(build_ruled(rule, tasks=20, demand_r=(2, 2)), brings=(("disks", 2),))

    report = decide(build_snapshot(FOUR, [task_class]), "best-fit-drfh")

    counts = Counter(bind.server for bind in report.bindings)
    assert counts == {"a1": 2, "b1": 2, "c1": 4}
    (wait,) = report.waits
    assert wait.waiting == 12
    assert dict(wait.rejections)[FULL] == 3


def test_tasks_that_bring_different_amounts_share_a_limit() -> None:
    counter = build_counter("disks", HOSTS, [0, 0, 0, 0])
    most_d = np.array([3, 0, 0, 0])
    small, large = (
        replace(build_ruled(LimitRule(counter, amount, most_d, FULL), tasks=1), brings=(("disks", amount),))
        for amount in (1, 2)
    )
    assert count_by_server(small, large) == {"a1": 2}
    assert count_by_server(small, large, large) == {"a1": 2}
    assert count_by_server(small, small, small, small) == {"a1": 3}


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_what_was_remembered_to_fit_nowhere_is_looked_at_when_a_domain_opens(policy: str) -> None:
    memory, settings_ = UnschedulableCache(), PolicySettings(policy=policy)
    rule = AffinityRule((build_counter("x", ZONES, [0, 0, 0]),), False, AFFINITY)
    waiting = build_ruled(rule, tasks=1)
    before = build_snapshot(FOUR, [waiting])
    assert run_cycle(before, settings_, 0.0, unschedulable=memory).bindings == ()

    bringer = replace(build_class("t", (2, 2), build_placement(FOUR)), counts_as=frozenset({"x"}))
    report = run_cycle(build_snapshot(FOUR, [waiting, bringer]), settings_, 1.0, unschedulable=memory)

    assert len(report.bindings) == 2
    assert report.waits == ()


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_a_domain_that_opens_lets_in_what_was_looked_at_because_another_server_has_room(policy: str) -> None:
    """Two servers gain room in one resource each. A task that is placed in another zone opens that zone."""
    memory, settings_ = UnschedulableCache(), PolicySettings(policy=policy)
    rule = AffinityRule((build_counter("x", ZONES, [0, 0, 0]),), False, AFFINITY)
    full = replace(FOUR, free_kr=np.array([[0, 0], [0, 0], [9, 9], [0, 0]]))
    waiting = build_ruled(rule, tasks=1)
    assert run_cycle(build_snapshot(full, [waiting]), settings_, 0.0, unschedulable=memory).bindings == ()

    grown = replace(full, free_kr=full.free_kr + np.array([[9, 0], [0, 9], [0, 0], [0, 0]]))
    bringer = build_class("t", (1, 1), build_placement(FOUR, only=[FOUR.names[2]]))
    classes = [waiting, replace(bringer, counts_as=frozenset({"x"}))]
    report = run_cycle(build_snapshot(grown, classes), settings_, 1.0, unschedulable=memory)

    assert [bind.server for bind in report.bindings] == [FOUR.names[2]] * 2


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_rules), explains=st.booleans())
def test_what_fitted_nowhere_is_forgotten_when_counts_change(snapshot: Snapshot, explains: bool) -> None:  # noqa: FBT001
    """Two cycles with a memory decide like two without it, when each begins with what the one before placed."""
    for policy in POLICY_IDS:
        note(policy)
        memory = UnschedulableCache()
        for limit in (1, 2, None):
            settings_ = PolicySettings(policy=policy)
            alone = run_cycle(snapshot, settings_, 0.0, limit=limit)
            recalling = run_cycle(snapshot, settings_, 0.0, limit=limit, unschedulable=memory, explains=explains)
            assert recalling.bindings == alone.bindings
            placed = [(find_class(snapshot, bind.task.uid), list(snapshot.servers.names).index(bind.server))
                      for bind in alone.bindings]  # fmt: skip
            classes = tuple(count_placed([*snapshot.task_classes], placed)) if placed else snapshot.task_classes
            snapshot = replace(snapshot, task_classes=classes)


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("policy", POLICY_IDS)
def test_a_zone_that_a_decision_closed_is_open_again_when_it_is_not_carried_out(
    policy: str, *, is_pinned: bool
) -> None:
    """The pod of b takes a1, closes a2 to that of a, and goes before it is bound. Only a1 gains capacity by that."""
    memory, settings_ = UnschedulableCache(), PolicySettings(policy=policy)
    rule = SeparationRule(build_counter("x", ZONES, [0, 0, 0]), OWN)
    tasks = build_tasks("a", 1, queue_time=1.0)
    apart = replace(build_class("a", (1, 1), build_placement(FOUR, only=["a2"]), tasks), rules=DomainRules((rule,)))
    if is_pinned:
        apart = replace(apart, placement=build_placement(FOUR), pin=Pin("a2", 1))
    bringer = replace(build_class("b", (1, 1), build_placement(FOUR, only=["a1"])), counts_as=frozenset({"x"}))

    def decide_next(*task_classes: TaskClass) -> list[tuple[str, str]]:
        snapshot = build_snapshot(FOUR, task_classes, tenants=[Tenant("a", allocated_r=(9, 9))])
        report = run_cycle(snapshot, settings_, 0.0, unschedulable=memory)
        return [(bind.tenant, bind.server) for bind in report.bindings]

    assert decide_next(apart, bringer) == [("b", "a1")]
    assert decide_next(apart) == [("a", "a2")]


@given(snapshot=snapshots().flatmap(add_rules), order=st.randoms(use_true_random=False), explains=st.booleans())
@settings(max_examples=2 * settings().max_examples)
def test_what_decisions_closed_is_open_again_when_none_is_carried_out(
    snapshot: Snapshot, order: Random, *, explains: bool
) -> None:
    """Each cycle sees the same world, but for who comes first; nothing need be told that decisions were lost."""
    unschedulable, policy = UnschedulableCache(), PolicySettings(order.choice(POLICY_IDS))
    for _ in range(4):
        weights = [Fraction(order.choice([1, 10, 1000])) for _ in snapshot.tenants]
        tenants = [replace(each, weight=weight) for each, weight in zip(snapshot.tenants, weights, strict=True)]
        now = replace(snapshot, tenants=tuple(tenants))
        remembering = run_cycle(now, policy, 0.0, unschedulable=unschedulable, explains=explains)
        afresh = run_cycle(now, policy, 0.0)
        assert remembering.bindings == afresh.bindings
        assert [wait.first.uid for wait in remembering.waits] == [wait.first.uid for wait in afresh.waits]


def test_a_domain_that_opens_while_classes_are_held_has_all_looked_at() -> None:
    """Server a1 gains room: who takes part of it opens a2 to `lonely`, which had no queue, while `held` waits."""
    memory, settings_ = UnschedulableCache(), PolicySettings()
    rule = AffinityRule((build_counter("x", ZONES, [0, 0, 0]),), False, AFFINITY)
    lonely = replace(build_class("a", (2, 2), build_placement(FOUR, only=["a2"])), rules=DomainRules((rule,)))
    bringer = replace(build_class("b", (4, 4), build_placement(FOUR)), counts_as=frozenset({"x"}))
    held = build_class("c", (4, 4), build_placement(FOUR))
    full = replace(FOUR, free_kr=np.full((4, 2), 2, dtype=np.int64))
    gained = replace(full, free_kr=full.free_kr + np.array([[7, 7], [0, 0], [0, 0], [0, 0]]))

    def decide_next(servers: ServerTable) -> dict[str, str]:
        snapshot = build_snapshot(servers, [lonely, bringer, held])
        report = run_cycle(snapshot, settings_, 0.0, unschedulable=memory, explains=False)
        assert len(report.bindings) + len(report.waits) == 3
        return {bind.tenant: bind.server for bind in report.bindings}

    assert decide_next(full) == {}
    assert decide_next(gained) == {"a": "a2", "b": "a1", "c": "a1"}


@pytest.mark.parametrize("policy", ["ps-dsf", "rps-dsf"])
def test_a_pool_without_room_stays_closed_when_a_domain_in_it_opens(policy: str) -> None:
    """It ended the cycle with an InvariantError: the pool was open again, and no queue was put back to look at it."""
    servers = build_servers({"a": (20, 20), "b": (100, 90)}, free={"b": (2, 3)})
    rule = AffinityRule((build_counter("x", build_domains([0, 1]), [1, 0]),), False, AFFINITY)
    large = build_class("t", (5, 5), build_placement(servers), 9)
    bringer = build_class("u", (1, 1), build_placement(servers, only=["b"]))
    classes = [replace(large, rules=DomainRules((rule,))), replace(bringer, counts_as=frozenset({"x"}))]
    tenants = [Tenant(name, allocated_r=held, allocated_by_server={"b": held})
               for name, held in (("t", (1, 1)), ("u", (5, 5)))]  # fmt: skip

    report = decide(build_snapshot(servers, classes, tenants=tenants), policy)

    assert sorted(bind.server for bind in report.bindings) == ["a"] * 4 + ["b"]


def test_the_fair_share_is_that_of_an_empty_cluster_whatever_the_domains_hold() -> None:
    rule = SeparationRule(build_counter("x", HOSTS, [1, 1, 1, 1]), OWN)
    ruled, plain = build_ruled(rule, tasks=9), build_ruled(tasks=9)

    assert decide(build_snapshot(FOUR, [ruled]), "best-fit-drfh").bindings == ()
    answers = [solve_exactly(make_exact(build_snapshot(FOUR, [each]))) for each in (ruled, plain)]

    assert answers[0].fair_shares == answers[1].fair_shares == {"t": 0.25}


def make_exact(snapshot: Snapshot) -> ExactProblem:
    exact = make_exact_problem(snapshot, PolicySettings())
    assert exact is not None
    return exact


def find_class(snapshot: Snapshot, uid: str) -> TaskClass:
    return next(each for each in snapshot.task_classes if any(task.uid == uid for task in each.tasks))


def test_members_of_domains() -> None:
    domains = build_domains([1, -1, 0, 1], size=3)

    assert [domains.find_members(domain).tolist() for domain in range(3)] == [[2], [0, 3], []]
    assert np.array_equal(domains.domain_k, [1, -1, 0, 1])
