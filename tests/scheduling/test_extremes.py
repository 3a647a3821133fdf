"""Odd corners: huge and tiny numbers, crowds, and worlds large enough for every shortcut of the cycle."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import MAX_AMOUNT, ExclusiveKeys, Placement, PolicySettings, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.fair_shares.audit import audit, make_audit_scene
from fairbind.scheduling.fair_shares.problem import make_exact_problem
from fairbind.scheduling.policies.levels import EXACT_POOLS
from nights import leave_to_nights
from rejections import lack
from scheduling.reference import check_report
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.worlds import (
    apply_report,
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    count_by_tenant,
    decide,
    order_of,
    places_of,
    weigh,
)

every_policy = pytest.mark.parametrize("policy", POLICY_IDS)


def build_busy_world(*, servers: int, classes: int, tasks: int, seed: int) -> Snapshot:
    """A world in which many tasks are placed between two looks at a shape, with wishes, claims and small placements."""
    draw = random.Random(seed)
    kinds = [(16, 16, 10), (32, 8, 10), (8, 32, 10)]
    table = build_servers({f"s{k:03}": draw.choice(kinds) for k in range(servers)})
    placements = [build_placement(table)]
    for part in (0.9, 0.6, 0.2):
        placements.append(Placement(np.array([draw.random() < part for _ in range(servers)])))
        wish_k = np.array([draw.choice([0, 0, 1]) for _ in range(servers)], dtype=np.int64)
        placements.append(Placement(np.array([draw.random() < part for _ in range(servers)]), wish_k))
    port = frozenset({"p/80"})
    placements.append(build_placement(table, exclusive_keys=ExclusiveKeys(port, port)))
    made = []
    for n in range(classes):
        demand = (draw.randint(0, 4), draw.randint(0, 4), 1)
        group = tuple(Task(f"{n:02}-{t:03}", f"{t}/{n}", 0, float(draw.randint(0, 9))) for t in range(tasks))
        made.append(
            build_class(
                "abcde"[n % 5], demand, draw.choice(placements), sorted(group, key=lambda t: (t.queue_time, t.uid))
            )
        )
    return build_snapshot(
        table,
        made,
        tenants=[weigh("b", 2), weigh("c", "1/3")],
        resources=("cpu", "memory", "pods"),
        counts_r=(True, True, False),
    )


@every_policy
def test_a_busy_world_step_by_step(policy: str) -> None:
    snapshot = build_busy_world(servers=20, classes=8, tasks=20, seed=1)

    report = decide(snapshot, policy)

    assert len(report.bindings) > 80
    check_report(snapshot, report)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ps-dsf", "rps-dsf"])
@pytest.mark.parametrize("jitter", [0, 1])
def test_more_server_classes_than_are_compared_one_by_one(policy: str, jitter: int) -> None:
    """Each server is a class of its own: with equal capacities, so that all levels tie, and with slightly different."""
    snapshot = split_classes(build_busy_world(servers=2 * EXACT_POOLS, classes=8, tasks=8, seed=5), jitter=jitter)

    report = decide(snapshot, policy)

    assert len(report.bindings) > 50
    check_report(snapshot, report)


def split_classes(snapshot: Snapshot, *, jitter: int) -> Snapshot:
    servers = snapshot.servers
    count = len(servers.names)
    extra_kr = jitter * np.arange(count, dtype=np.int64)[:, None] % 3
    apart = replace(
        servers,
        capacity_kr=servers.capacity_kr + extra_kr,
        free_kr=servers.free_kr + extra_kr,
        class_k=np.arange(count, dtype=np.int32),
        class_names=servers.names,
    )
    return replace(snapshot, servers=apart, total_r=tuple(apart.capacity_kr.sum(axis=0).tolist()))


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("seed", leave_to_nights([2, 3], but=[2]))
def test_what_was_kept_up_to_date_equals_what_is_worked_out_afresh(policy: str, seed: int) -> None:
    """A cycle that starts in the middle scores all servers anew; the one that comes there has only followed changes."""
    snapshot = build_busy_world(servers=150, classes=60, tasks=40, seed=seed)
    whole = decide(snapshot, policy)
    total = len(whole.bindings)
    assert total > 600

    for start in (1, total // 3, 2 * total // 3, total - 5):
        middle = apply_report(snapshot, decide(snapshot, policy, limit=start))
        assert decide(middle, policy, limit=200).bindings == whole.bindings[start : start + 200]


@pytest.mark.slow
@every_policy
def test_a_thousand_equal_tenants_share_equally(policy: str) -> None:
    servers = build_servers({f"s{k}": (100, 100) for k in range(20)})
    everywhere = build_placement(servers)
    classes = [
        build_class(f"t{n:03}", (1, 1), everywhere, [Task(f"{n}-{t}", f"{n}/{t}", 0, t) for t in range(3)])
        for n in range(1000)
    ]

    report = decide(build_snapshot(servers, classes), policy)

    assert set(count_by_tenant(report).values()) == {2}
    if policy != "fifo":
        assert order_of(report)[:1000] == sorted(order_of(report)[:1000])


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_the_lightest_and_the_heaviest_weight(policy: str) -> None:
    servers = build_servers({"s": (10**6 + 1, 10**6 + 1)})
    everywhere = build_placement(servers)
    classes = [build_class(name, (1000, 1000), everywhere, 1200) for name in ("heavy", "light")]
    snapshot = build_snapshot(servers, classes, tenants=[weigh("heavy", 1000), weigh("light", "1/1000")])

    assert count_by_tenant(decide(snapshot, policy)) == {"heavy": 999, "light": 1}


@every_policy
def test_the_largest_amounts_are_exact(policy: str) -> None:
    """One unit too much is too much, also at 2**53."""
    servers = build_servers(
        {"a": (MAX_AMOUNT, MAX_AMOUNT), "b": (MAX_AMOUNT, MAX_AMOUNT)}, free={"a": (MAX_AMOUNT - 1, 5)}
    )
    everywhere = build_placement(servers)
    classes = [
        build_class("t", (MAX_AMOUNT, 0), everywhere, 2),
        build_class("u", (MAX_AMOUNT - 1, 1), everywhere, 2),
    ]

    report = decide(build_snapshot(servers, classes, tenants=[weigh("t", 1000)]), policy)

    assert sorted((bind.tenant, bind.server) for bind in report.bindings) == [("t", "b"), ("u", "a")]


def test_shares_that_differ_by_one_part_in_2_to_the_106_are_not_equal() -> None:
    """Floats would call it a tie and let the name decide."""
    servers = build_servers({"s": (MAX_AMOUNT, MAX_AMOUNT)})
    everywhere = build_placement(servers)
    snapshot = build_snapshot(
        servers,
        [build_class("a", (1, 0), everywhere), build_class("b", (1, 0), everywhere)],
        tenants=[
            Tenant("a", Fraction(MAX_AMOUNT - 1, MAX_AMOUNT), allocated_r=(MAX_AMOUNT - 1, 0)),
            Tenant("b", Fraction(MAX_AMOUNT - 2, MAX_AMOUNT - 1), allocated_r=(MAX_AMOUNT - 2, 0)),
        ],
    )

    assert order_of(decide(snapshot)) == ["b", "a"]


@every_policy
def test_a_resource_that_the_cluster_does_not_have_counts_for_nobody(policy: str) -> None:
    servers = build_servers({"s": (9, 0)})
    everywhere = build_placement(servers)
    classes = [build_class("a", (1, 0), everywhere, 2), build_class("b", (0, 1), everywhere, 2)]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("a", allocated_r=(0, 5))], resources=("cpu", "gpu"))

    report = decide(snapshot, policy)

    assert order_of(report) == ["a", "a"]
    assert report.weighted_shares == (("a", 2 / 9), ("b", 0.0))
    assert report.waits[0].rejections == ((lack("gpu"), 1),)


def leave_out_servers(snapshot: Snapshot) -> dict[str, Any]:
    nothing_kr = np.zeros((0, len(snapshot.resources)), dtype=np.int64)
    placements = {id(each.placement): Placement(np.zeros(0, dtype=np.bool_)) for each in snapshot.task_classes}
    classes = [replace(each, placement=placements[id(each.placement)], pin=None) for each in snapshot.task_classes]
    servers = replace(build_servers({}), capacity_kr=nothing_kr, free_kr=nothing_kr)
    return {"servers": servers, "task_classes": tuple(classes), "total_r": (0,) * len(snapshot.resources)}


def empty_a_part(snapshot: Snapshot, part: str) -> Snapshot:
    """Return a snapshot of which one part is empty."""
    nothing, servers = (0,) * len(snapshot.resources), snapshot.servers
    closed = replace(servers, usable_k=np.zeros(len(servers.names), dtype=np.bool_), open_k=None)
    bare = [replace(each, demand_r=nothing, share_demand_r=nothing) for each in snapshot.task_classes]
    holds_nothing = [replace(each, allocated_r=(), holdings=()) for each in snapshot.tenants]
    changes: dict[str, dict[str, Any]] = {
        "servers": leave_out_servers(snapshot),
        "usable servers": {"servers": closed, "total_r": nothing},
        "resources that count": {"counts_r": (False,) * len(nothing)},
        "tasks": {"task_classes": ()},
        "tenants": {"task_classes": (), "tenants": ()},
        "holdings": {"tenants": tuple(holds_nothing)},
        "demands": {"task_classes": tuple(bare)},
    }
    return replace(snapshot, **changes[part])


EMPTY_PARTS = ["servers", "usable servers", "resources that count", "tasks", "tenants", "holdings", "demands"]


@pytest.mark.parametrize("part", EMPTY_PARTS)
@given(snapshot=snapshots(), policy=st.sampled_from(POLICY_IDS))
def test_any_part_may_be_empty(part: str, snapshot: Snapshot, policy: str) -> None:
    """Cycle after cycle, and for the exact problem and the audit, too."""
    snapshot, settings = empty_a_part(snapshot, part), PolicySettings(policy)
    unschedulable, state = UnschedulableCache(), CycleState()
    for explains in (True, False, False):
        report = run_cycle(snapshot, settings, 0.0, unschedulable=unschedulable, state=state, explains=explains)
    check_report(snapshot, run_cycle(snapshot, settings, 0.0))
    assert not report.bindings or part not in {"servers", "tasks", "tenants"}
    assert make_exact_problem(snapshot, settings) is None or part not in {"servers", "tenants"}
    audit(make_audit_scene(snapshot))


@every_policy
def test_demands_of_nothing_all_go_at_once_and_cost_no_turn(policy: str) -> None:
    servers = build_servers({"s": (9, 9), "zero": (0, 0)})
    everywhere = build_placement(servers)
    tasks: list[TaskClass] = [build_class("a", (0, 0), everywhere, 3), build_class("b", (1, 1), everywhere, 3)]

    report = decide(build_snapshot(servers, tasks), policy)

    assert sorted(order_of(report)) == list("aaabbb")
    check_report(build_snapshot(servers, tasks), report)


def test_first_fit_goes_by_name_through_the_servers() -> None:
    servers = build_servers({"a": (2, 2), "b": (4, 4), "c": (4, 4)})
    snapshot = build_snapshot(servers, [build_class("t", (2, 1), build_placement(servers), 9)])

    assert places_of(decide(snapshot, "first-fit-drfh")) == ["a", "b", "b", "c", "c"]
