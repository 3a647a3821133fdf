"""Tries of groups: a tenant with many that fail costs a cycle a few tries, and each group is tried in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import (
    CycleReport,
    DomainCounter,
    DomainRules,
    Domains,
    PolicySettings,
    SeparationRule,
    Snapshot,
    TaskClass,
    TaskGroup,
)
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.gangs.tries import MAX_TRIED_IN_VAIN, TURN_SECONDS
from rejections import PORT_CONFLICT
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, build_tasks

TWO = build_servers({"n1": (4, 8), "n2": (4, 8)})
MANY = 40
Builder = Callable[[str, str], list[TaskClass]]


def build_sizes(tenant: str, name: str, demands: Sequence[int] = (3, 2)) -> list[TaskClass]:
    """A group of two tasks of each size: each size by itself fits, and both together do not."""
    placement, group = build_placement(TWO), TaskGroup(name, 2 * len(demands))
    return [
        replace(build_class(tenant, (demand, 0), placement, build_tasks(f"{name}{demand}", 2)), group=group)
        for demand in demands
    ]


def build_apart(tenant: str, name: str) -> list[TaskClass]:
    """A group of three tasks, each of which wants a server without another one."""
    domains = Domains(np.arange(2, dtype=np.int32), 2)
    counter = DomainCounter(name, domains, np.zeros(2, dtype=np.int64))
    made = build_class(tenant, (1, 0), build_placement(TWO), build_tasks(name, 3))
    rules = DomainRules((SeparationRule(counter, PORT_CONFLICT),))
    return [replace(made, group=TaskGroup(name, 3), rules=rules, counts_as=frozenset({name}))]


BUILDERS = pytest.mark.parametrize("build", [build_sizes, build_apart], ids=["sizes", "rules"])


def run(snapshot: Snapshot, turn: int) -> CycleReport:
    return run_cycle(snapshot, PolicySettings(), turn * TURN_SECONDS, find_owner=find_tenant_of_leaf)


def list_tried(report: CycleReport) -> set[str]:
    """The groups that were tried in vain."""
    return {wait.group.name for wait in report.waits if wait.group is not None and wait.group.is_tried}


@BUILDERS
@pytest.mark.parametrize("users", ["a", "ab"], ids=["one user", "two users"])
def test_a_tenant_with_many_groups_that_fail_costs_a_few_tries(build: Builder, users: str) -> None:
    classes = [each for number in range(MANY) for each in build(f"{users[number % len(users)]}@t", f"g{number:02}")]
    snapshot = build_snapshot(TWO, [*classes, *build_sizes("z", "other", (1,))])
    for turn in range(3):
        report = run(snapshot, turn)

        assert [[bind.tenant for bind in plan.binds] for plan in report.plans] == [["z", "z"]]
        assert 0 < len(list_tried(report)) <= 2 * MAX_TRIED_IN_VAIN
        assert {wait.group.name for wait in report.waits if wait.group is not None} == {
            f"g{number:02}" for number in range(MANY)
        }
        assert report.again_in == TURN_SECONDS


@BUILDERS
def test_each_group_is_tried_in_its_turn(build: Builder) -> None:
    snapshot = build_snapshot(TWO, [each for number in range(MANY) for each in build("a", f"g{number:02}")])
    tried = set[str]()
    for turn in range(1000, 1000 + MANY // MAX_TRIED_IN_VAIN):
        tried |= list_tried(run(snapshot, turn))

    assert len(tried) == MANY


@BUILDERS
@pytest.mark.parametrize("recalls", [False, True])
def test_a_group_that_fits_behind_many_that_do_not_is_placed_in_its_turn(build: Builder, *, recalls: bool) -> None:
    classes = [each for number in range(MANY) for each in build("a", f"g{number:02}")]
    snapshot = build_snapshot(TWO, [*classes, *build_sizes("a", "late", (1, 2))])
    state, unschedulable = (CycleState(), UnschedulableCache()) if recalls else (None, None)
    placed = [
        run_cycle(snapshot, PolicySettings(), turn * TURN_SECONDS, state=state, unschedulable=unschedulable).plans
        for turn in range(MANY // MAX_TRIED_IN_VAIN + 1)
    ]

    assert [len(plan.binds) for plans in placed for plan in plans][:1] == [4]


@pytest.mark.parametrize("tries_all", [False, True])
def test_the_operator_bounds_tries_and_trials_of_people_do_not(*, tries_all: bool) -> None:
    snapshot = build_snapshot(TWO, [each for number in range(MANY) for each in build_apart("a", f"g{number:02}")])
    report = Decider(tries_all=tries_all).decide(snapshot, PolicySettings(), 0.0, RunCycle(256, explains=True))

    assert (len(list_tried(report)) == MANY) is tries_all


def test_groups_that_fit_and_those_without_slots_are_not_bounded() -> None:
    servers = build_servers({f"n{number}": (4, 8) for number in range(MANY)})
    placement = build_placement(servers)
    large = [
        replace(each, placement=placement)
        for number in range(MANY)
        for each in build_sizes("a", f"a{number:02}", (5, 1))
    ]
    fitting = [
        replace(each, placement=placement) for number in range(10) for each in build_sizes("a", f"b{number:02}", (3, 1))
    ]
    report = run(build_snapshot(servers, [*large, *fitting]), 0)

    assert len(report.plans) == 10
    assert len(list_tried(report)) == MANY
    assert report.again_in is None
