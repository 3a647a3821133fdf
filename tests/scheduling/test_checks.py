"""Snapshots that cannot be meant are refused with the name of the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from fairbind.model import MAX_AMOUNT, Holding, InvalidProblemError, Placement, ServerTable, Snapshot, Targets, Tenant
from fairbind.model.hierarchy import Guarantee, Hierarchy, InnerTenant, Place
from scheduling.rules import build_domains
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide

Change = Callable[[Snapshot], Snapshot]


def build_good() -> Snapshot:
    servers = build_servers({"s": (4, 4)})
    return build_snapshot(servers, [build_class("a", (1, 1), build_placement(servers))])


def with_class(**changes: Any) -> Change:
    return lambda good: replace(good, task_classes=(replace(good.task_classes[0], **changes),))


def with_tenant(**changes: Any) -> Change:
    return lambda good: replace(good, tenants=(replace(good.tenants[0], **changes),))


def with_servers(**changes: Any) -> Change:
    return lambda good: replace(good, servers=replace(good.servers, **changes))


def with_classes(shares_by_class: dict[str, tuple[float, ...]], class_of: dict[str, int]) -> Targets:
    return Targets("drfh", ("cpu",), {"a": (0.5,)}, ("x",), class_of, shares_by_class)


def with_tree(leaves: dict[str, Place], **parents: str | None) -> Change:
    inner = {name: InnerTenant(Tenant(name), Place(parent)) for name, parent in parents.items()}
    return lambda good: replace(good, hierarchy=Hierarchy(leaves, inner))


def promise(amount: int, count: int = 1) -> Place:
    return Place(guarantees=(Guarantee("a", "cpu", amount, build_domains([0] * count)),))


CASES: list[tuple[str, Change]] = [
    ("leaf 'b' is not one of the tenants", with_tree({"b": Place()})),
    ("leaf 'a': parent 'x' is not", with_tree({"a": Place("x")}, y=None)),
    ("inner tenant 'y': parent 'x' is not", with_tree({"a": Place("y")}, y="x")),
    ("inner tenant 'x' is below itself", with_tree({"a": Place()}, x="x")),
    ("inner tenant '[xy]' is below itself", with_tree({"a": Place("z")}, z="x", x="y", y="x")),
    (
        "inner tenant 'x' is named 'y'",
        lambda good: replace(good, hierarchy=Hierarchy({}, {"x": InnerTenant(Tenant("y"), Place())})),
    ),
    ("a guarantee is 0; it must be above 0", with_tree({"a": promise(0)})),
    ("servers must have the shape", with_tree({"a": promise(1, count=2)})),
    ("counts_r and total_r", lambda good: replace(good, counts_r=(True,))),
    ("counts_r and total_r", lambda good: replace(good, total_r=(4, 4, 4))),
    ("must have the shape", with_servers(free_kr=np.zeros((1, 3), dtype=np.int64))),
    ("must have the shape", with_servers(capacity_kr=np.zeros((2, 2), dtype=np.int64))),
    ("must not exceed", with_servers(free_kr=np.full((1, 2), MAX_AMOUNT + 1, dtype=np.int64))),
    ("'a' is there twice", lambda good: replace(good, tenants=(*good.tenants, Tenant("a")))),
    ("allocated_r must have 2", with_tenant(allocated_r=(1,))),
    ("weights must be above 0", with_tenant(weight=Fraction(0))),
    ("weights must be above 0", with_tenant(resource_weights={"cpu": Fraction(-1)})),
    ("demands of holdings must have 2", with_tenant(holdings=(Holding((1,), (1, 1), 1),))),
    ("demands of holdings must have 2", with_tenant(holdings=(Holding((1, 1), (1, 1, 1), 1),))),
    ("the count -1", with_tenant(holdings=(Holding((1, 1), (1, 1), -1),))),
    ("'a' has .* it needs 1 shares", lambda good: replace(good, targets=Targets("drf", ("cpu",), {"a": (-0.5,)}))),
    ("'a' has .* it needs 1 shares", lambda good: replace(good, targets=Targets("drf", ("cpu",), {"a": (nan,)}))),
    ("'a' has .* it needs 0 shares", lambda good: replace(good, targets=Targets("drf", (), {"a": (0.5,)}))),
    ("'a' has .* it needs 1 shares", lambda good: replace(good, targets=with_classes({"a": (0.5, 0.5)}, {}))),
    ("'a' has .* it needs 1 shares", lambda good: replace(good, targets=with_classes({"a": (inf,)}, {}))),
    ("'s' is in class 1 of 1", lambda good: replace(good, targets=with_classes({"a": (0.5,)}, {"s": 1}))),
    ("'b' is not one of the tenants", with_class(tenant="b")),
    ("has no tasks", with_class(tasks=())),
    ("demand_r is", with_class(demand_r=(1,))),
    ("demand_r is", with_class(demand_r=(-1, 1))),
    ("share_demand_r is", with_class(share_demand_r=(1, MAX_AMOUNT + 1))),
    ("eligible_k must have", with_class(placement=Placement(np.ones(2, dtype=np.bool_)))),
    (
        "preference_k must have",
        with_class(placement=Placement(np.ones(1, dtype=np.bool_), np.zeros(3, dtype=np.int64))),
    ),
]


@pytest.mark.parametrize(("message", "change"), CASES)
def test_a_snapshot_that_cannot_be_meant_is_refused(message: str, change: Change) -> None:
    good = build_good()
    assert len(decide(good).bindings) == 1

    with pytest.raises(InvalidProblemError, match=message):
        decide(change(good))


def test_no_servers_and_no_resources_are_fine() -> None:
    none = ServerTable(
        (), np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.int64), np.zeros(0, dtype=np.bool_),
        np.zeros(0, dtype=np.int32), (),
    )  # fmt: skip
    task_class = build_class("a", (), Placement(np.zeros(0, dtype=np.bool_)), 2)

    report = decide(Snapshot((), (), (), none, (Tenant("a"),), (task_class,)))

    assert [(wait.waiting, wait.rejections) for wait in report.waits] == [(2, ())]
