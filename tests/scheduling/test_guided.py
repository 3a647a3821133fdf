"""Guided policies: the policy says who is next, the targets say on which class of servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairbind.model import PolicySettings, Snapshot, Tenant
from fairbind.scheduling import POLICIES, reads_targets
from scheduling.test_target_ratios import aim
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide, order_of, places_of

GUIDED = sorted(policy.id for policy in POLICIES.values() if policy.is_guided)
HALVES = {"a": (0.5, 0.5), "b": (0.5, 0.5)}


def build(*tenants: Tenant, a: int = 6, b: int = 6) -> Snapshot:
    """Two servers of one shape, which targets tell apart: a belongs on k2, b on k1."""
    servers = build_servers({"k1": (6, 6), "k2": (6, 6)})
    classes = [
        build_class("a", (1, 1), build_placement(servers), a),
        build_class("b", (1, 1), build_placement(servers), b),
    ]
    targets = aim(HALVES, {"a": (0.0, 0.5), "b": (0.5, 0.0)}, k1=0, k2=1)
    return replace(build_snapshot(servers, classes, tenants=tenants), targets=targets)


@pytest.mark.parametrize("policy", GUIDED)
def test_each_goes_where_its_target_is_in_the_order_of_the_policy(policy: str) -> None:
    snapshot = build()
    report, greedy = decide(snapshot, policy), decide(replace(snapshot, targets=None), policy)

    assert order_of(report) == list("ab") * 6
    assert set(zip(order_of(report), places_of(report), strict=True)) == {("a", "k2"), ("b", "k1")}
    assert set(places_of(greedy)[:6]) != {"k1", "k2"} or policy == "two-choices-drfh"


@pytest.mark.parametrize("policy", GUIDED)
def test_what_does_not_fit_there_goes_elsewhere(policy: str) -> None:
    """Nobody waits for a class that is full, and nobody stops at its target."""
    report = decide(build(a=10, b=2), policy)

    assert [place for who, place in zip(order_of(report), places_of(report), strict=True) if who == "a"] == [
        "k2"
    ] * 6 + ["k1"] * 4


@pytest.mark.parametrize("policy", GUIDED)
def test_who_has_come_since_may_go_anywhere(policy: str) -> None:
    snapshot = build(a=1, b=1)
    newcomer = build_class("c", (1, 1), snapshot.task_classes[0].placement, 10)
    report = decide(
        replace(snapshot, task_classes=(*snapshot.task_classes, newcomer), tenants=(*snapshot.tenants, Tenant("c"))),
        policy,
    )

    assert order_of(report).count("c") == 10


def test_targets_that_know_one_class_guide_nothing() -> None:
    snapshot = build()
    one = replace(aim(HALVES, {"a": (0.5,), "b": (0.5,)}, k1=0, k2=0), class_names=("x",))

    report = decide(replace(snapshot, targets=one))
    assert report.bindings == decide(replace(snapshot, targets=None)).bindings


def test_who_reads_targets_is_a_setting() -> None:
    reading = {name for name in POLICIES if reads_targets(PolicySettings(name))}
    unguided = {name for name in POLICIES if reads_targets(PolicySettings(name, guided=False))}

    assert reading - unguided == {*GUIDED} == {"best-fit-drfh", "first-fit-drfh", "two-choices-drfh", "ps-dsf", "tsf"}
    assert not reading & {"fifo", "asset-fairness", "rps-dsf"}
