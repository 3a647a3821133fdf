"""Pacing begins all binds of a plan or none, in bind mode and in gate mode."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.loop.test_pacing import Machine, find
from fairbind.cluster.loop.bind_limits import (
    FAILURES_IN_A_ROW,
    MAX_STALLED_IN_NAMESPACE,
    PLACES_WHEN_SLOW,
    PROBES,
    BindLimits,
)
from fairbind.cluster.loop.pacing import MAX_OUTSTANDING, Pacing
from fairbind.cluster.loop.pacing_events import (
    BackOff,
    BindEnded,
    BindResult,
    BindWithdrawn,
    CycleEnded,
    Decided,
    Forget,
    Instruction,
    Resume,
    RunCycle,
)
from fairbind.cluster.other_schedulers.gate_limiter import STUCK_SECONDS, GateLimiter
from fairbind.model import Bind, Plan, Task


def make_plan(count: int, tenant: str = "t", namespace: str = "ns") -> Plan:
    numbers = range(count)
    return Plan(
        tuple([Bind(Task(f"{tenant}{n}", f"{namespace}/{tenant}{n}", 0, 0.0), tenant, "node") for n in numbers])
    )


def decide(machine: Machine, plans: Sequence[Plan], now: float, *, gated: bool = False) -> Sequence[Instruction]:
    machine.begin_cycle(now)
    opens = frozenset(bind.task.uid for plan in plans for bind in plan.binds if gated)
    instructions = machine.feed(Decided(plans, True, 1, opens), now + 1.0)
    machine.feed(CycleEnded(0.0), now + 1.0)
    return instructions


def make_gates(most: int) -> Machine:
    machine = Machine()
    machine.pacing = Pacing(GateLimiter(most=most))
    machine.tick(0.0)
    return machine


def test_a_plan_begins_whole_and_takes_as_many_places_as_it_has_binds() -> None:
    machine, plan = Machine(), make_plan(3)
    assert decide(machine, [plan], 1.0) == [plan]
    assert machine.pacing.get_state().outstanding == 3


@pytest.mark.parametrize("gated", [False, True])
def test_a_plan_of_which_one_goes_leaves_all_its_places(*, gated: bool) -> None:
    machine = make_gates(8)
    decide(machine, [make_plan(3)], 1.0, gated=gated)
    for n in range(3):
        machine.feed(BindWithdrawn(f"t{n}"), 2.0)
    assert machine.pacing.get_state().outstanding == 0
    assert decide(machine, [make_plan(6, "u")], 10.0, gated=gated) == [make_plan(6, "u")]


@pytest.mark.parametrize("gated", [False, True])
def test_a_plan_that_cannot_hold_its_capacity_leaves_the_order_for_a_while(*, gated: bool) -> None:
    machine = make_gates(8)
    decide(machine, [make_plan(3)], 1.0, gated=gated)
    for n in range(3):
        assert machine.feed(BindWithdrawn(f"t{n}", is_stuck=True), 2.0) == [BackOff(f"t{n}")]
    assert machine.pacing.get_state().outstanding == 0
    assert find(Resume, machine.tick(2.0 + STUCK_SECONDS)) == [Resume(f"t{n}") for n in range(3)]


@pytest.mark.parametrize("gated", [False, True])
def test_of_a_plan_whose_second_fails_those_that_were_not_sent_wait_on(*, gated: bool) -> None:
    machine = make_gates(8)
    decide(machine, [make_plan(3)], 1.0, gated=gated)
    for uid, result, is_postponed in (("t1", BindResult.FAILED, True), ("t2", BindResult.DEFERRED, False)):
        assert find(Forget, machine.feed(BindEnded(uid, result), 2.5)) == [Forget(uid, postponed=is_postponed)]
    assert machine.feed(BindEnded("t0", BindResult.BOUND), 2.5) is not None
    assert machine.pacing.get_state().outstanding == 0


def test_no_gate_of_a_plan_is_opened_while_no_place_is_free() -> None:
    machine, plan = make_gates(1), make_plan(3)
    assert decide(machine, [make_plan(1, "u")], 1.0, gated=True) == [make_plan(1, "u")]
    assert decide(machine, [plan], 10.0, gated=True) == [BackOff(f"t{n}") for n in range(3)]
    assert machine.pacing.get_state().outstanding == 1
    assert find(Resume, machine.tick(11.0 + STUCK_SECONDS)) == [Resume(f"t{n}") for n in range(3)]


@pytest.mark.parametrize("gated", [False, True])
def test_a_plan_that_is_larger_than_all_limits_begins_where_one_place_is_free(*, gated: bool) -> None:
    machine, plan = make_gates(8), make_plan(300)
    assert decide(machine, [make_plan(1, "u")], 1.0, gated=gated) == [make_plan(1, "u")]
    assert decide(machine, [plan], 10.0, gated=gated) == [plan]
    assert machine.pacing.get_state().outstanding == 301 > MAX_OUTSTANDING


def test_where_the_gate_of_one_is_being_opened_still_the_others_are_decided_again_at_once() -> None:
    machine = make_gates(8)
    decide(machine, [make_plan(1)], 1.0, gated=True)
    assert decide(machine, [make_plan(3)], 10.0, gated=True) == [BackOff("t0")]
    assert machine.wake_at <= 11.0
    assert find(RunCycle, [*machine.tick(11.0), *machine.tick(12.0)])


def fail_namespace(limits: BindLimits) -> None:
    """Let a namespace fail so often that only probes of it begin."""
    for n in range(FAILURES_IN_A_ROW):
        assert limits.begin(f"f{n}", "t", "ns", 0.0)
        limits.stall(f"f{n}", failed=True)
        limits.end(f"f{n}", 0.0)


def list_members(plan: Plan, namespaces: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(bind.task.uid, bind.tenant, name) for bind, name in zip(plan.binds, namespaces, strict=True)]


def test_no_binding_of_a_plan_begins_while_one_of_its_namespaces_has_too_few_places() -> None:
    limits, plan = BindLimits(), make_plan(300)
    fail_namespace(limits)
    assert all(limits.begin(f"p{n}", "t", "ns", 0.0) for n in range(PROBES))
    members = list_members(plan, ["ns", *["other"] * 299])
    assert not limits.begin_all(members, 0.0)
    assert not limits.begin("single", "t", "ns", 0.0)

    released = limits.release(limits.find_next_release() + 60.0)
    assert released == []  # the probes are under way
    limits.end("p0", 60.0, failed=True)
    assert limits.release(limits.find_next_release()) == [uid for uid, *_ in members], "it returns as a whole"
    assert limits.begin_all(members, 66.0), "although its namespace has one place"
    assert not limits.begin("other", "t", "ns", 66.0)


def test_a_plan_of_a_namespace_that_does_not_fail_begins_whatever_is_under_way() -> None:
    limits = BindLimits()
    assert limits.begin("single", "t", "ns", 0.0)
    assert limits.begin_all(list_members(make_plan(300), ["ns"] * 300), 0.0)


def make_slow(beside: int) -> BindLimits:
    """Return limits with a plan of 30 under way, of a namespace that takes long. beside: so many other bindings."""
    limits = BindLimits()
    assert all(limits.begin(f"o{n}", "t", "ns", 0.0) for n in range(beside + 1))
    assert limits.begin_all(list_members(make_plan(30), ["ns"] * 30), 0.0)
    limits.stall(f"o{beside}", failed=False)
    return limits


def test_a_slow_namespace_sends_a_plan_that_is_larger_than_its_places_where_little_else_is_under_way() -> None:
    limits = make_slow(PLACES_WHEN_SLOW - 1)
    assert PLACES_WHEN_SLOW < 30
    assert all(limits.may_send(f"t{n}") for n in range(30))


def test_of_a_plan_that_a_slow_namespace_did_not_begin_to_send_nothing_is_sent_beyond_its_places() -> None:
    limits = make_slow(PLACES_WHEN_SLOW)
    assert not any(limits.may_send(f"t{n}") for n in range(30))


def test_of_a_plan_that_is_sent_in_part_the_rest_follows_in_a_namespace_that_is_slow_now() -> None:
    limits = BindLimits()
    assert limits.begin_all(list_members(make_plan(30), ["ns"] * 30), 0.0)
    assert limits.may_send("t0")
    for n in range(PLACES_WHEN_SLOW + 1):
        assert limits.begin(f"o{n}", "t", "ns", 0.0)
    limits.stall("t0", failed=False)
    assert all(limits.may_send(f"t{n}") for n in range(1, 30))
    for n in range(PLACES_WHEN_SLOW):
        limits.stall(f"o{n}", failed=False)
    for n in range(1, MAX_STALLED_IN_NAMESPACE - PLACES_WHEN_SLOW):
        assert limits.may_send("t29")
        limits.stall(f"t{n}", failed=False)
    assert not limits.may_send("t29"), "too many of its namespace take long"
