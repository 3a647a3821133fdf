"""Soft wishes: which of the servers with room a task takes, also where a placement of the same cycle changes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings

from fairbind.model import (
    DomainCounter,
    EvenPreference,
    InvalidProblemError,
    Preference,
    Preferences,
    PullPreference,
    ServerPreference,
    Snapshot,
    TaskClass,
)
from scheduling.reference import check_report
from scheduling.rules import FOUR, ZONES, add_rules, add_wishes, build_counter
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.worlds import (
    build_class,
    build_placement,
    build_snapshot,
    decide,
    describe,
    order_of,
    places_of,
)


def build_wishing(*wishes: Preference, tasks: int = 1, subjects: str = "", name: str = "t") -> TaskClass:
    task_class = build_class(name, (1, 1), build_placement(FOUR), tasks)
    return replace(
        task_class, preferences=Preferences(wishes) if wishes else None, counts_as=frozenset(subjects.split())
    )


def place(*task_classes: TaskClass) -> list[str]:
    return places_of(decide(build_snapshot(FOUR, task_classes)))


def like(*amounts: int, weight: int = 1, is_dislike: bool = False) -> ServerPreference:
    return ServerPreference(np.array(amounts, dtype=np.int64), weight, is_dislike)


def count_zones(*counts: int) -> DomainCounter:
    return build_counter("x", ZONES, list(counts))


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_wishes))
@settings(max_examples=2 * settings().max_examples)
def test_every_step_is_what_policy_and_wishes_say(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)
        check_report(snapshot, decide(snapshot, policy))


@pytest.mark.slow
@given(snapshot=snapshots().flatmap(add_rules).flatmap(add_wishes))
def test_wishes_rank_only_what_rules_leave_open(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)
        check_report(snapshot, decide(snapshot, policy))


def test_tasks_are_spread_over_domains_as_far_as_there_is_room_and_then_go_on() -> None:
    even = EvenPreference(((count_zones(0, 0, 0), 1),), 2)

    placed = place(build_wishing(even, tasks=36, subjects="x"))

    assert [place[0] for place in placed[:6]] == ["a", "b", "c", "a", "b", "c"]
    assert {name: placed.count(name) for name in FOUR.names} == dict.fromkeys(FOUR.names, 9)


@pytest.mark.parametrize(
    ("skew", "expected"),
    [
        (1, "b1"),  # a: 5, others: 0, so 0 and 100 points, twice, and 100 for a
        (3, "b1"),  # 7 and 2, so 28 and 100
        (16, "a1"),  # 20 and 15, so 75 and 100
    ],
)
def test_a_large_skew_makes_a_small_wish(skew: int, expected: str) -> None:
    """Three tasks in three domains weigh 3 ln 5 = 4.83; what is allowed besides is added everywhere."""
    even = EvenPreference(((count_zones(3, 0, 0), skew),), 2)

    assert place(build_wishing(even, like(35, 35, 0, 0))) == [expected]


def test_tasks_follow_those_that_they_wish_to_be_with_and_avoid_others() -> None:
    near = PullPreference(((count_zones(0, 1, 0), 10),), 2)
    away = PullPreference(((count_zones(1, 0, 1), -10),), 2)

    assert place(build_wishing(near)) == ["b1"]
    assert place(build_wishing(away)) == ["b1"]


def test_a_placement_of_the_cycle_draws_the_next_one_to_its_domain() -> None:
    near = PullPreference(((count_zones(0, 0, 0), 1),), 2)
    first = replace(build_class("a", (1, 1), build_placement(FOUR, only=["c1"])), counts_as=frozenset({"x"}))

    report = decide(build_snapshot(FOUR, [first, build_wishing(near, tasks=3)]))

    assert order_of(report)[0] == "a"
    assert places_of(report) == ["c1"] * 4


def test_wishes_come_before_fit_and_fit_decides_among_equals() -> None:
    servers = replace(FOUR, free_kr=np.array([[9, 9], [2, 2], [9, 9], [3, 3]]))
    task_class = build_wishing(like(5, 5, 0, 0))
    tasks = replace(task_class, demand_r=(2, 1), share_demand_r=(2, 1))

    assert places_of(decide(build_snapshot(servers, [tasks])))[0] in {"a1", "a2"}
    assert places_of(decide(build_snapshot(servers, [replace(tasks, preferences=None)])))[0] == "a1"


def test_scores_are_relative_to_the_servers_that_have_room() -> None:
    """Among all, b1 has 50 points for what it has and 2 * 10 for its few taints; among those with room, 100 and 0."""
    liking, dislike = like(100, 0, 50, 0), like(0, 5, 9, 5, weight=2, is_dislike=True)
    full = replace(FOUR, free_kr=np.array([[0, 0], [9, 9], [9, 9], [9, 9]]))
    expected = {"a2": 2 * (100 - 100 * 5 // 9), "b1": 100 + 0}

    report = decide(build_snapshot(full, [build_wishing(liking, dislike)]))

    assert places_of(report) == [max(expected, key=lambda name: expected[name])]


def test_the_order_of_tenants_is_the_same_with_wishes() -> None:
    even = EvenPreference(((count_zones(4, 0, 0), 1),), 2)
    for policy in ("best-fit-drfh", "first-fit-drfh", "tsf", "fifo"):
        orders = []
        for wishes in ((), (even,)):
            classes = [build_wishing(*wishes, tasks=8, name=name, subjects="x") for name in ("one", "two", "three")]
            orders.append(order_of(decide(build_snapshot(FOUR, classes), policy)))
        assert orders[0] == orders[1]


def test_wishes_about_nothing_change_nothing() -> None:
    nothing = (
        like(3, 3, 3, 3),
        PullPreference(((count_zones(2, 2, 2), 5),), 1),
        EvenPreference(((count_zones(1, 1, 1), 1),), 1),
    )
    plain = build_wishing(tasks=20)

    reports = [
        decide(build_snapshot(FOUR, [each])) for each in (plain, replace(plain, preferences=Preferences(nothing)))
    ]

    assert describe(reports[0]) == describe(reports[1])


def test_amounts_are_one_for_each_server() -> None:
    with pytest.raises(InvalidProblemError, match="amount_k of a wish must have the shape"):
        place(build_wishing(like(1, 2)))
