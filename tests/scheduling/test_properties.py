"""What must hold for every policy in every world."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fairbind.model import Fit, Snapshot, TaskClass
from scheduling.reference import check_report
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.worlds import apply_report, decide, describe

policies = st.sampled_from(POLICY_IDS)


@given(snapshot=snapshots())
@settings(max_examples=2 * settings().max_examples)
def test_every_step_is_what_the_policy_says(snapshot: Snapshot) -> None:
    """All policies in one world: to make one takes ten times as long as to decide in it and to judge that."""
    taken_keys = dict(snapshot.servers.taken_keys)
    for policy in POLICY_IDS:
        note(policy)

        report = decide(snapshot, policy)

        assert report.complete
        check_report(snapshot, report)
        assert snapshot.servers.taken_keys == taken_keys


@given(snapshot=snapshots(), fit=st.sampled_from([Fit.FIRST_RESOURCE, Fit.COSINE]))
def test_every_step_is_what_the_fit_says(snapshot: Snapshot, fit: Fit) -> None:
    """Of the policies one for each way in which servers are looked at: all, two that are drawn, those of a class."""
    fitted = replace(snapshot, fit=fit)
    for policy in ("best-fit-drfh", "two-choices-drfh", "ps-dsf", "fifo"):
        note(policy)

        check_report(fitted, decide(fitted, policy))


@st.composite
def reserved_snapshots(draw: st.DrawFn) -> Snapshot:
    """Snapshots in which a part of what was free is kept for some classes."""
    snapshot = draw(snapshots())
    servers = snapshot.servers
    parts = draw(st.dictionaries(st.integers(0, len(servers.names) - 1), st.integers(1, 4), max_size=3))
    free_kr = servers.free_kr.copy()
    reserved = {}
    for server, quarters in parts.items():
        reserved[server] = tuple(max(free, 0) * quarters // 4 for free in free_kr[server].tolist())
        free_kr[server] -= reserved[server]
    classes = [
        replace(task_class, placement=replace(task_class.placement, reserved=draw(st.sampled_from([{}, reserved]))))
        for task_class in snapshot.task_classes
    ]
    return replace(snapshot, servers=replace(servers, free_kr=free_kr), task_classes=tuple(classes))


@given(snapshot=reserved_snapshots())
def test_what_is_reserved_is_used_by_those_for_whom_it_is_and_by_nobody_else(snapshot: Snapshot) -> None:
    # What is left of a class for rps-dsf is less by what was reserved, until the next snapshot says who took it.
    for policy in sorted({*POLICY_IDS} - {"rps-dsf"}):
        note(policy)

        check_report(snapshot, decide(snapshot, policy))


def spell_out(task_class: TaskClass) -> TaskClass:
    """Return a class with a pin as one whose placement says all."""
    pin, placement = task_class.pin, task_class.placement
    if pin is None:
        return task_class
    eligible_k = np.zeros_like(placement.eligible_k)
    eligible_k[[] if pin.server is None else [pin.server]] = True
    spelt_out = replace(placement, eligible_k=eligible_k, preference_k=None, rejections=pin.rejections)
    return replace(task_class, placement=spelt_out, pin=None)


@given(snapshot=reserved_snapshots() | snapshots(), limit=st.none() | st.integers(0, 12))
def test_a_pin_decides_as_a_placement_that_says_the_same(snapshot: Snapshot, limit: int | None) -> None:
    spelt_out = replace(snapshot, task_classes=tuple(map(spell_out, snapshot.task_classes)))

    for policy in POLICY_IDS:
        note(policy)
        assert describe(decide(snapshot, policy, limit=limit)) == describe(decide(spelt_out, policy, limit=limit))


@given(policy=policies, snapshot=snapshots(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_classes_does_not_matter(policy: str, snapshot: Snapshot, order: Random) -> None:
    shuffled = list(snapshot.task_classes)
    order.shuffle(shuffled)
    again = replace(snapshot, task_classes=tuple(shuffled))

    assert describe(decide(again, policy)) == describe(decide(snapshot, policy))


@given(policy=policies, snapshot=snapshots(), limit=st.integers(0, 12))
def test_a_limit_gives_the_first_decisions(policy: str, snapshot: Snapshot, limit: int) -> None:
    whole, part = decide(snapshot, policy), decide(snapshot, policy, limit=limit)

    assert part.bindings == whole.bindings[:limit]
    assert part.complete == (len(whole.bindings) <= limit)
    check_report(snapshot, part)


@given(
    policy=policies,
    snapshot=snapshots(),
    factor=st.sampled_from([Fraction(1, 1000), Fraction(1, 7), Fraction(3), Fraction(10**9)]),
)
def test_a_common_factor_of_the_weights_changes_nothing(policy: str, snapshot: Snapshot, factor: Fraction) -> None:
    scaled = tuple(replace(tenant, weight=tenant.weight * factor) for tenant in snapshot.tenants)
    again = replace(snapshot, tenants=scaled)

    assert decide(again, policy).bindings == decide(snapshot, policy).bindings


@given(policy=policies, snapshot=snapshots())
def test_one_tenant_alone_gets_all_that_fits(policy: str, snapshot: Snapshot) -> None:
    """Whatever its weight and whatever it holds already: nothing is kept back for others."""
    name = snapshot.task_classes[0].tenant
    own = tuple(task_class for task_class in snapshot.task_classes if task_class.tenant == name)
    alone = replace(snapshot, task_classes=own)

    report = decide(alone, policy)

    check_report(alone, report)
    assert all(wait.fairness is None for wait in report.waits)


@given(policy=policies, snapshot=snapshots())
def test_the_next_cycle_goes_on_where_a_limit_stopped(policy: str, snapshot: Snapshot) -> None:
    """The filling has no memory beyond the snapshot."""
    whole = decide(snapshot, policy)
    half = decide(snapshot, policy, limit=len(whole.bindings) // 2)

    rest = decide(apply_report(snapshot, half), policy)

    assert half.bindings + rest.bindings == whole.bindings
