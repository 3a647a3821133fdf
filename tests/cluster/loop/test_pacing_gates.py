"""Pacing of gate mode: an open gate holds its place until the pod has a node, and its room no longer than the time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.loop.test_pacing import Machine, find
from fairbind.cluster.loop.bind_limits import FAILURES_IN_A_ROW, PROBES
from fairbind.cluster.loop.openings import MAX_HELD_SECONDS
from fairbind.cluster.loop.pacing import MAX_OUTSTANDING, Pacing
from fairbind.cluster.loop.pacing_events import (
    Announce,
    BackOff,
    BindAnswered,
    BindAsked,
    BindEnded,
    BindResult,
    BindStalled,
    BindWithdrawn,
    Changed,
    CycleEnded,
    Decided,
    Event,
    Forget,
    GiveBack,
    Instruction,
    NothingWaits,
    PodArrived,
    PodOnItsWay,
    PodRefused,
    PodReserved,
    Resume,
    RunCycle,
)
from fairbind.cluster.other_schedulers.gate_limiter import STUCK_SECONDS, GateLimiter
from fairbind.cluster.other_schedulers.place_waits import PLACES_SECONDS
from fairbind.cluster.other_schedulers.places import FLOW_SECONDS
from fairbind.model import Bind, Plan, Task, list_binds

TIMEOUT = 30.0


EVERYTHING = RunCycle(MAX_OUTSTANDING, explains=True)
OWN_ONLY = RunCycle(MAX_OUTSTANDING, explains=True, opens=False)


def make_binds(count: int, tenant: str = "t", first: int = 0) -> list[Plan]:
    numbers = range(first, first + count)
    return [Plan((Bind(Task(f"{tenant}{n}", f"ns/{tenant}{n}", 0, 0.0), tenant, "node"),)) for n in numbers]


class Gates(Machine):
    """Pacing with so many places, and what it said last about time."""

    def __init__(self, most: int = 8, most_scale_ups: int = 0) -> None:
        super().__init__()
        self.gate_limiter = GateLimiter(most=most, most_scale_ups=most_scale_ups)
        self.pacing = Pacing(self.gate_limiter)
        self.tick(0.0)

    def find_cycle(self, now: float) -> Sequence[Instruction]:
        """Let something change, and let the pause pass."""
        self.feed(Changed(), now)
        return [cycle for at in (now, now, now + 1.0) for cycle in find(RunCycle, self.tick(at))]

    def decide(self, binds: list[Plan], now: float, *, complete: bool = True) -> Sequence[Instruction]:
        """Let a cycle that runs decide to open these gates."""
        opens = frozenset(bind.task.uid for bind in list_binds(binds))
        instructions = self.feed(Decided(binds, complete, 1, opens), now)
        self.feed(CycleEnded(0.0), now)
        return instructions


def run(gates: Gates, binds: list[Plan], now: float, *, complete: bool = True) -> Sequence[Instruction]:
    """Let a cycle run and decide, and the requests succeed."""
    assert gates.find_cycle(now)
    instructions = gates.decide(binds, now + 1.0, complete=complete)
    for bind in list_binds([each for each in instructions if isinstance(each, Plan)]):
        assert find(Announce, gates.feed(BindEnded(bind.task.uid, BindResult.BOUND), now + 1.0)) == []
    return instructions


def permit(gates: Gates, binds: list[Plan], now: float) -> list[str]:
    """Let a cycle run and decide, and the scheduler be told of the turns; return which pods have none."""
    assert any(gates.find_cycle(now) for _ in range(3)), "pods return first that were backed off"
    instructions = gates.decide(binds, now + 1.0)
    for bind in list_binds([each for each in instructions if isinstance(each, Plan)]):
        gates.feed(BindEnded(bind.task.uid, BindResult.PERMITTED), now + 1.0)
    return [each.uid for each in instructions if isinstance(each, BackOff)]


def answer(gates: Gates, uid: str, result: BindResult, now: float, *, stalls: bool = False) -> None:
    """Let the scheduler ask for a binding, and the API server answer."""
    gates.feed(BindAsked(f"{uid}/binding", "t", "ns"), now)
    if stalls:
        gates.feed(BindStalled(f"{uid}/binding", failed=True), now)
    gates.feed(BindAnswered(f"{uid}/binding", result), now)


@pytest.mark.parametrize("stalls", [False, True])
def test_where_bindings_that_another_scheduler_asks_for_fail_few_pods_have_a_turn(*, stalls: bool) -> None:
    gates = Gates(most=100)
    assert permit(gates, make_binds(FAILURES_IN_A_ROW), 10.0) == []
    for n in range(FAILURES_IN_A_ROW):
        answer(gates, f"t{n}", BindResult.FAILED, 12.0, stalls=stalls)
    assert len(permit(gates, make_binds(20, first=20), 20.0)) == 20 - PROBES
    assert len(permit(gates, make_binds(20, first=40), 30.0)) == 20 - PROBES, "to be told of a turn is no success"
    answer(gates, "t20", BindResult.BOUND, 32.0)
    assert permit(gates, make_binds(20, first=60), 40.0) == []
    assert gates.pacing.get_state().outstanding == 0


def test_bindings_that_another_scheduler_asks_for_take_places_until_they_end() -> None:
    gates = Gates()
    gates.feed(BindAsked("t0/binding", "t", "ns"), 10.0)
    assert gates.find_cycle(11.0) == [RunCycle(MAX_OUTSTANDING - 1, explains=True)]
    gates.feed(CycleEnded(0.0), 12.0)
    gates.feed(BindAnswered("t0/binding", BindResult.BOUND), 12.0)
    assert gates.pacing.get_state().outstanding == 0


def test_a_cycle_is_told_to_decide_pods_without_turns_only_when_no_place_is_free() -> None:
    gates = Gates(most=8)
    run(gates, make_binds(5), 10.0)
    assert find(BackOff, run(gates, [*make_binds(1, first=5), *make_binds(2, "other")], 20.0)) == []
    assert gates.find_cycle(30.0) == [OWN_ONLY]


def test_in_bind_mode_the_limit_is_as_it_was() -> None:
    machine = Machine()
    machine.feed(Changed(), 1.0)
    machine.tick(1.0)
    assert machine.tick(2.0) == [RunCycle(MAX_OUTSTANDING, explains=True)]


def fill(gates: Gates, now: float) -> None:
    """Let pods of three tenants take all eight places, and others wait for some."""
    run(gates, [*make_binds(3), *make_binds(3, "u"), *make_binds(2, "v")], now)
    assert gates.find_cycle(now + 2.0) == [OWN_ONLY]
    gates.feed(Decided([], complete=True, classes=1, is_rationed=True), now + 3.0)
    gates.feed(CycleEnded(0.0), now + 3.0)


def test_places_that_come_free_are_given_away_together() -> None:
    gates = Gates(most=16)
    run(gates, [*make_binds(6), *make_binds(6, "u"), *make_binds(3, "v"), *make_binds(1, "w")], 10.0)
    assert gates.find_cycle(20.0) == [OWN_ONLY]
    gates.feed(Decided([], complete=True, classes=1, is_rationed=True), 21.0)
    gates.feed(CycleEnded(0.0), 21.0)
    gates.feed(PodArrived("t0", is_bound=True), 21.1)
    assert gates.wake_at == 21.1 + PLACES_SECONDS
    gates.feed(PodArrived("t1", is_bound=True), 21.2)
    assert gates.wake_at == 21.2, "an eighth is free"


def test_a_tenant_that_flows_is_waited_for() -> None:
    gates = Gates(most=8)
    gate_limiter = gates.gate_limiter
    run(gates, make_binds(6), 10.0)
    assert gates.find_cycle(11.2) == [EVERYTHING]
    assert not gate_limiter.begin_round(11.5).take("t")
    gates.feed(Decided([], complete=True, classes=1, is_rationed=True), 11.5)
    gates.feed(CycleEnded(0.0), 11.5)
    assert gates.wake_at == 11.0 + FLOW_SECONDS
    assert find(RunCycle, gates.tick(11.0 + FLOW_SECONDS)) == []
    assert find(RunCycle, gates.tick(12.1)) == [EVERYTHING]
    gates.feed(NothingWaits(), 12.2)
    assert gates.wake_at > 13.0, "nothing waits for places any more"


def test_a_pod_that_is_not_bound_in_time_gives_its_room_back_and_leaves_its_place() -> None:
    gates = Gates(most=8)
    run(gates, make_binds(6), 10.0)
    while gates.wake_at < 11.0 + TIMEOUT:
        assert find(GiveBack, gates.tick(gates.wake_at)) == []
    assert find(GiveBack, gates.tick(11.0 + TIMEOUT)) == [GiveBack(f"t{n}") for n in range(6)]
    assert gates.find_cycle(50.0) == [EVERYTHING]


def test_the_places_of_those_whose_time_is_over_are_given_to_others_when_nothing_else_changes() -> None:
    """The room of a pod that the other scheduler has nominated stays taken, so no change wakes anything."""
    gates = Gates(most=8)
    fill(gates, 10.0)
    assert find(RunCycle, gates.tick(10.9 + TIMEOUT)) == []
    assert len(find(GiveBack, gates.tick(11.0 + TIMEOUT))) == 8
    assert gates.wake_at == 11.0 + TIMEOUT
    gates.tick(gates.wake_at)
    assert find(RunCycle, gates.tick(gates.wake_at)) == [EVERYTHING]


def test_a_gate_whose_request_outlasts_its_time_is_not_asked_to_open_twice() -> None:
    gates = Gates(most=8)
    assert gates.find_cycle(10.0)
    assert gates.decide(make_binds(1), 11.0) == make_binds(1)
    assert find(GiveBack, gates.tick(11.0 + TIMEOUT)) == [GiveBack("t0")]
    assert gates.find_cycle(50.0)
    assert gates.decide(make_binds(1), 51.0) == [BackOff("t0")]
    gates.feed(BindEnded("t0", BindResult.FAILED), 52.0)
    assert find(Resume, gates.tick(51.0 + STUCK_SECONDS)) == [Resume("t0"), Resume("t0")]
    assert gates.find_cycle(70.0)
    assert gates.decide(make_binds(1), 71.0) == make_binds(1)
    assert gates.pacing.get_state().outstanding == 1


def test_a_bound_pod_keeps_its_room() -> None:
    gates = Gates()
    run(gates, make_binds(1), 10.0)
    gates.feed(PodArrived("t0", is_bound=True), 12.0)
    assert find(GiveBack, gates.tick(11.0 + TIMEOUT)) == []


@pytest.mark.parametrize("result", [BindResult.FENCED, BindResult.FAILED, BindResult.CONFLICT])
def test_a_gate_that_did_not_open_leaves_its_place(result: BindResult) -> None:
    gates = Gates(most=1)
    assert gates.find_cycle(10.0)
    gates.decide(make_binds(1), 11.0)
    assert find(Forget, gates.feed(BindEnded("t0", result), 11.0))
    assert gates.find_cycle(20.0) == [EVERYTHING]
    assert find(GiveBack, gates.tick(11.0 + TIMEOUT)) == []


def test_one_that_does_not_begin_leaves_its_place() -> None:
    gates = Gates(most=1)
    assert gates.find_cycle(10.0)
    gates.feed(Decided(make_binds(1), complete=True, classes=1, opens=frozenset({"t0"})), 11.0)
    gates.feed(BindWithdrawn("t0"), 11.0)
    gates.feed(CycleEnded(0.0), 11.0)
    assert gates.find_cycle(20.0) == [EVERYTHING]


def test_a_stuck_tenant_waits_a_while_beyond_its_part_and_others_do_not() -> None:
    gates = Gates(most=8)
    run(gates, make_binds(1), 10.0)
    assert find(GiveBack, gates.tick(11.0 + TIMEOUT))
    gates.feed(PodRefused("t0"), 11.0 + TIMEOUT)
    instructions = run(gates, [*make_binds(3, first=1), *make_binds(3, "other")], 50.0)
    assert find(BackOff, instructions) == [BackOff("t2"), BackOff("t3")]
    assert len(find(Plan, instructions)) == 4
    assert find(Resume, gates.tick(51.0 + STUCK_SECONDS)) == [Resume("t2"), Resume("t3")]


def test_a_pod_that_a_new_leader_finds_on_its_way_has_a_place_and_its_time() -> None:
    gates = Gates(most=8)
    gates.feed(PodOnItsWay("x", "t"), 5.0)
    assert gates.find_cycle(6.0) == [EVERYTHING]
    gates.decide([], 7.0)
    assert find(GiveBack, gates.tick(5.0 + TIMEOUT)) == [GiveBack("x")]


def decide_scale_ups(gates: Gates, candidates: list[Plan], now: float) -> Sequence[Instruction]:
    """Let a cycle decide nothing and name pods that one more node could help."""
    assert gates.find_cycle(now)
    instructions = gates.feed(Decided((), complete=True, classes=1, scale_ups=list(list_binds(candidates))), now + 1.0)
    gates.feed(CycleEnded(0.0), now + 1.0)
    return instructions


def test_one_gate_a_cycle_is_opened_without_room_and_the_next_cycle_comes_at_once() -> None:
    gates = Gates(most=8, most_scale_ups=1)
    one, other = make_binds(1), make_binds(1, "other")
    assert decide_scale_ups(gates, [*one, *other], 10.0) == one
    assert gates.wake_at == 11.0
    assert find(Announce, gates.feed(BindEnded("t0", BindResult.BOUND), 11.0)) == []
    assert decide_scale_ups(gates, [*make_binds(1, first=1), *other], 20.0) == [], "the first has reached its most"
    gates.feed(PodReserved("t0", has_capacity=True), 30.0)
    assert decide_scale_ups(gates, other, 40.0) == other
    assert find(GiveBack, gates.tick(30.0 + TIMEOUT)) == [GiveBack("t0")]


@pytest.mark.parametrize(
    "event", [BindEnded("t0", BindResult.BOUND), BindEnded("t0", BindResult.FENCED), BindStalled("t0", failed=False)]
)
def test_no_gate_is_opened_without_room_before_those_with_room_are_open(event: Event) -> None:
    """The other scheduler would give it the room of one of them."""
    gates = Gates(most=8, most_scale_ups=1)
    free, late = make_binds(1), make_binds(1, "other")
    assert gates.find_cycle(10.0)
    assert gates.feed(Decided(free, True, 1, frozenset({"t0"}), list(list_binds(late))), 11.0) == free
    gates.feed(CycleEnded(0.0), 11.0)
    assert gates.wake_at > 11.5
    gates.feed(event, 11.5)
    assert gates.wake_at == 11.5, "the next cycle comes at once"
    gates.tick(11.5)
    assert decide_scale_ups(gates, late, 12.0) == late


def test_gates_with_room_that_are_opened_one_after_the_other_hold_it_back_for_a_second_at_most() -> None:
    gates = Gates(most=8, most_scale_ups=1)
    late, opened = make_binds(1, "other"), list[Plan]()
    for n in range(4):
        now = 10.0 + n * MAX_HELD_SECONDS / 2
        assert gates.find_cycle(now)
        free = make_binds(1, first=n)
        instructions = gates.feed(Decided(free, True, 1, frozenset({f"t{n}"}), list(list_binds(late))), now)
        gates.feed(CycleEnded(0.0), now)
        assert [each for each in instructions if each in free] == free
        opened += [each for each in late if each in instructions]
        if opened:
            break
    assert (opened, n) == (late, 2)


def test_one_that_could_not_be_opened_leaves_its_place_to_the_next() -> None:
    gates = Gates(most=8, most_scale_ups=1)
    decide_scale_ups(gates, make_binds(1), 10.0)
    assert find(Forget, gates.feed(BindEnded("t0", BindResult.FENCED), 11.0))
    assert decide_scale_ups(gates, make_binds(1, first=1), 20.0) == make_binds(1, first=1)


def test_one_whose_namespace_may_not_begin_leaves_the_order_and_the_next_has_its_place() -> None:
    gates = Gates(most=8, most_scale_ups=20)
    for n in range(FAILURES_IN_A_ROW + PROBES):
        decide_scale_ups(gates, make_binds(1, first=n), 10.0 * n)
        if n < FAILURES_IN_A_ROW:
            gates.feed(BindEnded(f"t{n}", BindResult.FAILED), 10.0 * n + 2.0)
    other = [Plan((Bind(Task("x", "elsewhere/x", 0, 0.0), "u", ""),))]
    late = make_binds(1, first=50)
    assert decide_scale_ups(gates, [*late, *other], 200.0) == [BackOff("t50"), *other]


def test_a_binding_beside_gates_is_announced() -> None:
    gates = Gates()
    assert gates.find_cycle(10.0)
    gates.feed(Decided(make_binds(1), complete=True, classes=1), 11.0)
    gates.feed(CycleEnded(0.0), 11.0)
    assert find(Announce, gates.feed(BindEnded("t0", BindResult.BOUND), 11.0)) == [Announce("t0")]
