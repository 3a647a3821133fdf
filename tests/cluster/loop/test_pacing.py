"""Each rule of pacing, with plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from fairbind.cluster.loop import postponements, rounds
from fairbind.cluster.loop.pacing import Pacing, PacingState
from fairbind.cluster.loop.pacing_events import (
    Announce,
    Beat,
    BindEnded,
    BindResult,
    BindWithdrawn,
    Changed,
    CycleEnded,
    CycleFailed,
    CycleSkipped,
    Decided,
    Event,
    Forget,
    Instruction,
    NothingWaits,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.model import Bind, Plan, Task

NOT_SENT = [BindResult.FENCED, BindResult.STALE, BindResult.OVERCOMMITTED, BindResult.DEFERRED]
POSTPONED = sorted({result for result in BindResult if not result.is_done} - {*NOT_SENT})


def make_binds(count: int) -> list[Plan]:
    return [Plan((Bind(Task(f"u{n}", f"ns/u{n}", 0, 0.0), "t", "server"),)) for n in range(count)]


class Machine:
    """Pacing with its first tick at time 0, and what it said last about time."""

    def __init__(self) -> None:
        self.pacing = Pacing()
        self.wake_at = 0.0
        assert self.tick(0.0) == [Beat()]

    def feed(self, event: Event, now: float) -> list[Instruction]:
        """Return the instructions without the time of the next tick, which comes first and once."""
        instructions = list(self.pacing.handle(event, now))
        for first in instructions[:1]:
            if isinstance(first, WakeAt):
                self.wake_at = first.time
                del instructions[0]
        assert not any(isinstance(instruction, WakeAt) for instruction in instructions)
        return instructions

    def tick(self, now: float) -> list[Instruction]:
        return self.feed(Tick(), now)

    def begin_cycle(self, now: float) -> RunCycle:
        """Change something and go through the pause; the cycle begins at its end."""
        self.feed(Changed(), now)
        while self.wake_at <= now:
            self.tick(now)
        (order,) = self.tick(self.wake_at)
        assert isinstance(order, RunCycle)
        return order

    def cycle(
        self, now: float, *, binds: int = 0, complete: bool = True, classes: int = 1, seconds: float = 0.0
    ) -> float:
        """Make a cycle after a change; return its end."""
        self.begin_cycle(now)
        at = max(self.wake_at, now)
        self.feed(Decided(make_binds(binds), complete, classes), at)
        assert self.feed(CycleEnded(seconds), at + seconds) == [Beat()]
        return at + seconds

    def end_binds(self, count: int, now: float) -> None:
        for n in range(count):
            assert self.feed(BindEnded(f"u{n}", BindResult.BOUND), now) == [Announce(f"u{n}")]


def find(kind: type[Instruction], instructions: Iterable[Instruction]) -> Sequence[Instruction]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


# --- batches ---


def test_a_change_starts_a_pause_and_its_end_a_cycle() -> None:
    machine = Machine()
    assert machine.feed(Changed(), 1.0) == []
    assert machine.wake_at == 1.0  # the pause begins when the loop turns: what was read in one go is one batch
    assert machine.tick(1.2) == []
    assert machine.wake_at == pytest.approx(1.25)
    assert machine.tick(machine.wake_at) == [RunCycle(256, explains=True)]


def test_what_changes_during_the_pause_belongs_to_the_batch() -> None:
    machine = Machine()
    machine.feed(Changed(), 1.0)
    machine.tick(1.0)
    assert not machine.pacing.handle(Changed(), 1.01)  # the first one woke, and is not taken yet
    (order,) = machine.tick(1.05)
    assert isinstance(order, RunCycle)
    machine.feed(Decided([], complete=True, classes=1), 1.05)
    assert machine.feed(CycleEnded(0.0), 1.05) == [Beat()]
    assert machine.wake_at == pytest.approx(1.05 + 5.0)


def test_a_change_during_a_cycle_is_taken_after_it() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    assert machine.pacing.handle(Changed(), 1.06) == []
    machine.feed(Decided([], complete=True, classes=1), 1.07)
    machine.feed(CycleEnded(0.02), 1.07)
    assert machine.wake_at == 1.07


@pytest.mark.parametrize(("seconds", "pause"), [(0.005, 0.05), (0.02, 0.08), (0.5, 2.0)])
def test_cycles_that_only_look_at_others_take_a_fifth_of_the_time_at_most(seconds: float, pause: float) -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    machine.feed(Decided([], complete=True, classes=1), 1.05)
    end = 1.05 + seconds
    machine.feed(CycleEnded(seconds, is_next_different=True), end)
    while not (instructions := machine.tick(machine.wake_at)):
        pass
    assert instructions == [RunCycle(256, explains=True)]
    assert machine.wake_at == pytest.approx(end + pause)


def test_a_change_does_not_wait_for_others_to_be_looked_at() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    machine.feed(Decided([], complete=True, classes=1), 1.05)
    machine.feed(CycleEnded(0.5, is_next_different=True), 1.55)
    assert machine.begin_cycle(1.6) == RunCycle(256, explains=True, rotates=False)
    assert machine.wake_at == pytest.approx(2.1)  # half a second after the change
    machine.feed(Decided([], complete=True, classes=1), 2.1)
    machine.feed(CycleEnded(0.1), 2.2)
    assert machine.begin_cycle(2.3) == RunCycle(256, explains=True, rotates=False)
    machine.feed(Decided([], complete=True, classes=1), 2.4)
    machine.feed(CycleEnded(0.1), 2.5)
    assert machine.wake_at == pytest.approx(1.55 + 1.5)
    machine.tick(machine.wake_at)
    assert machine.tick(machine.wake_at) == [RunCycle(256, explains=True)]
    machine.feed(Decided([], complete=True, classes=1), machine.wake_at)
    machine.feed(CycleEnded(0.0), machine.wake_at)
    assert machine.begin_cycle(9.0) == RunCycle(256, explains=True)  # nothing is left to be looked at


def test_the_pause_is_at_least_as_long_as_the_last_cycle() -> None:
    machine = Machine()
    end = machine.cycle(1.0, seconds=3.0)
    machine.feed(Changed(), end)
    machine.tick(end)
    assert machine.wake_at == end + 3.0
    assert machine.tick(end + 2.9) == []  # too early, whoever sent it
    assert find(RunCycle, machine.tick(end + 3.0))


def test_changes_before_the_first_tick_count() -> None:
    machine = Pacing()
    assert machine.handle(Changed(), 0.0) == []
    assert machine.handle(Tick(), 1.0) == [WakeAt(1.0), Beat()]


def test_a_tick_too_early_says_nothing_new() -> None:
    machine = Machine()
    assert machine.wake_at == 5.0
    assert machine.pacing.handle(Tick(), 2.0) == []


# --- limit ---


def test_the_limit_is_what_is_not_outstanding() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=100)
    assert machine.begin_cycle(end).limit == 156
    assert machine.pacing.get_state() == PacingState(100, has_more=False, last_cycle_seconds=0.0, postponed=0)


def test_a_cycle_that_the_limit_ended_goes_on_at_low_water_without_a_pause() -> None:
    machine = Machine()
    machine.cycle(1.0, binds=256, complete=False)
    machine.end_binds(95, 2.0)
    assert machine.wake_at > 2.0
    machine.end_binds(1, 2.5)
    assert machine.wake_at == 2.5
    assert machine.tick(2.5) == [RunCycle(96, explains=True)]


def test_above_low_water_a_change_waits() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256, complete=False)
    machine.feed(Changed(), end)
    assert machine.wake_at == end
    assert machine.tick(end) == [Beat()]
    assert machine.wake_at == end + 5.0


def test_a_change_at_the_limit_is_decided_at_low_water_although_the_last_cycle_was_complete() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256)
    machine.feed(Changed(), end)
    machine.tick(end)
    assert machine.tick(machine.wake_at) == [Beat()]  # after the pause: no cycle
    machine.end_binds(96, 3.0)
    assert machine.wake_at == 3.0
    assert machine.tick(3.0) == [RunCycle(96, explains=True)]


def test_bindings_that_end_wake_nobody_when_nothing_is_left() -> None:
    machine = Machine()
    machine.cycle(1.0, binds=256)
    machine.end_binds(256, 2.0)
    assert machine.wake_at > 2.0


def test_a_cycle_that_is_not_complete_with_few_outstanding_goes_on_at_once() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    machine.feed(Decided(make_binds(256), complete=False, classes=1), 1.05)
    for n in range(96):
        assert machine.feed(BindWithdrawn(f"u{n}"), 1.05) == []
    assert machine.feed(CycleEnded(0.0), 1.05) == [Beat()]
    assert machine.wake_at == 1.05
    assert machine.tick(1.05) == [RunCycle(96, explains=True)]


def test_bindings_that_end_during_a_cycle_do_not_wake_for_what_it_may_still_decide() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256, complete=False)
    machine.end_binds(96, end)
    machine.tick(end)
    machine.end_binds(100, end)
    machine.feed(Decided([], complete=True, classes=1), end)
    machine.feed(CycleEnded(0.0), end)
    assert machine.wake_at == end + 5.0


def test_decisions_are_begun_in_their_order() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    binds = make_binds(3)
    assert machine.feed(Decided(binds, complete=True, classes=1), 1.05) == binds


# --- who may not decide, and nothing to decide ---


def test_a_skipped_cycle_waits_for_the_next_event() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    assert machine.feed(CycleSkipped(), 1.05) == [Beat()]
    assert machine.wake_at == pytest.approx(6.05)


def test_a_skipped_cycle_forgets_not_that_more_is_left() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256, complete=False)
    machine.end_binds(96, end)
    assert find(RunCycle, machine.tick(end))
    assert machine.feed(CycleSkipped(), end) == [Beat()]
    assert machine.wake_at == end + 5.0  # and does not ask again and again
    machine.feed(Changed(), end + 1.0)
    assert find(RunCycle, machine.tick(end + 1.0))


def test_when_nothing_waits_nothing_is_left_and_the_pause_stays() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256, complete=False, seconds=2.0)
    machine.end_binds(96, end)
    machine.tick(end)
    assert machine.feed(NothingWaits(), end + 0.1) == [Beat()]
    assert machine.pacing.get_state() == PacingState(160, has_more=False, last_cycle_seconds=2.0, postponed=0)


# --- failed cycles ---


def test_after_a_failed_cycle_comes_a_while_and_then_a_pause() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    assert machine.feed(CycleFailed(None), 1.5) == []
    assert machine.wake_at == 2.5
    machine.feed(Changed(), 1.6)
    assert machine.wake_at == 2.5
    assert machine.tick(2.5) == [Beat()]
    assert machine.wake_at == 2.5
    assert machine.tick(2.5) == []
    assert machine.tick(machine.wake_at) == [RunCycle(256, explains=True)]
    assert machine.wake_at == pytest.approx(2.55)


def test_a_failed_cycle_goes_on_with_what_was_left() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=256, complete=False)
    machine.end_binds(96, end)
    machine.tick(end)
    machine.feed(CycleFailed(3), end)
    assert machine.pacing.get_state().has_more
    machine.tick(end + 1.0)
    assert machine.tick(end + 1.0) == [RunCycle(96, explains=True)]
    machine.feed(CycleFailed(0), end + 1.0)
    assert not machine.pacing.get_state().has_more


# --- explanations ---


def explain(machine: Machine, now: float, classes: int) -> bool:
    order = machine.begin_cycle(now)
    at = max(machine.wake_at, now)
    machine.feed(Decided([], complete=True, classes=classes), at)
    machine.feed(CycleEnded(0.0), at)
    return order.explains


def test_where_few_classes_wait_all_are_looked_at_each_time() -> None:
    machine = Machine()
    assert [explain(machine, float(now), 199) for now in (1, 2, 3)] == [True, True, True]
    assert machine.wake_at > 8.0


def test_where_many_wait_all_are_explained_now_and_then_and_once_more_after_the_last_change() -> None:
    machine = Machine()
    assert explain(machine, 1.0, 200)  # at 1.05
    assert machine.wake_at == pytest.approx(6.05)  # only the beat: nothing was recalled since
    assert not explain(machine, 3.0, 200)
    assert machine.wake_at == pytest.approx(6.05)  # now it is for the explanation
    assert machine.tick(machine.wake_at) == []
    assert machine.tick(machine.wake_at) == [RunCycle(256, explains=True)]
    machine.feed(Decided([], complete=True, classes=200), 6.1)
    machine.feed(CycleEnded(0.0), 6.1)
    assert not explain(machine, 7.0, 200)
    assert not explain(machine, 8.0, 200)
    assert machine.wake_at == pytest.approx(11.1)


def count_explanations(classes: int, seconds: float) -> int:
    """Return how many cycles explain when something changes all the time."""
    machine = Machine()
    return sum(explain(machine, 1.0 + n / 10, classes) for n in range(int(seconds * 10)))


def test_very_many_classes_are_explained_less_often() -> None:
    """Each cycle explains so many that it takes a fiftieth of the time, at 1 ms for a hundred of them."""
    assert count_explanations(rounds.MAX_EXPLAINED, 100.0) == 20
    for parts, age in ((5, rounds.EXPLAIN_SECONDS), (50, 25.6)):
        times = count_explanations(parts * rounds.MAX_EXPLAINED, 100.0) / parts
        assert 0.8 * 100.0 / age < times < 1.1 * 100.0 / age


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_after_the_last_change_each_part_is_explained_once(parts: int) -> None:
    machine, classes = Machine(), parts * rounds.MAX_EXPLAINED
    for second in range(1, 8):
        explain(machine, float(second), classes)
    last_change, explained = 7.0, list[float]()
    while machine.wake_at < 100.0:
        for instruction in machine.tick(now := machine.wake_at):
            if isinstance(instruction, RunCycle):
                assert instruction.explains
                explained.append(now - last_change)
                machine.feed(Decided([], complete=True, classes=classes), now)
                machine.feed(CycleEnded(0.0), now)
    assert len(explained) in {parts, parts - 1}  # the cycle of the change may have explained the first
    assert explained[-1] <= 2 * rounds.EXPLAIN_SECONDS


def test_an_explanation_counts_although_its_cycle_failed() -> None:
    machine = Machine()
    assert machine.begin_cycle(1.0).explains
    machine.feed(CycleFailed(200), 1.05)
    machine.tick(2.05)
    machine.tick(2.05)
    assert machine.tick(2.1) == [RunCycle(256, explains=False)]


def test_an_error_after_the_decisions_counts_the_classes_once() -> None:
    machine = Machine()
    machine.begin_cycle(1.0)
    machine.feed(Decided([], complete=True, classes=200), 1.05)
    machine.feed(CycleFailed(None), 1.05)
    machine.tick(2.05)
    machine.tick(2.05)
    machine.tick(2.1)
    machine.feed(CycleFailed(None), 2.1)
    assert machine.wake_at == pytest.approx(3.1)
    assert machine.tick(machine.wake_at) == [Beat()]


# --- bindings ---


@pytest.mark.parametrize("result", NOT_SENT)
def test_a_binding_that_was_not_sent_is_taken_back_at_once(result: BindResult) -> None:
    machine = Machine()
    machine.cycle(1.0, binds=1)
    assert machine.feed(BindEnded("u0", result), 2.0) == [Forget("u0", postponed=False)]
    assert machine.pacing.get_state().postponed == 0


@pytest.mark.parametrize("result", POSTPONED)
def test_a_pod_is_postponed_twice_as_long_each_time_until_it_is_bound(result: BindResult) -> None:
    machine = Machine()
    at, pauses = 1.0, []
    for _ in range(6):
        at = machine.cycle(at, binds=1)
        assert machine.feed(BindEnded("u0", result), at) == [Forget("u0", postponed=True)]
        at, started = machine.wake_at, at
        while (said := machine.tick(at)) != [Resume("u0")]:
            assert said == [Beat()]
            at = machine.wake_at
        pauses.append(at - started)
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 10.0, 10.0])
    at = machine.cycle(at, binds=1)
    machine.end_binds(1, at)
    at = machine.cycle(at, binds=1)
    machine.feed(BindEnded("u0", result), at)
    assert machine.wake_at == at + 1.0


def test_only_so_many_failures_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponements, "MAX_REMEMBERED", 2)
    machine = Machine()
    machine.cycle(1.0, binds=9)
    for uid in ("a", "b", "c"):
        machine.feed(BindEnded(uid, BindResult.FAILED), 2.0)
    assert machine.tick(3.0) == [Resume("a"), Resume("b"), Resume("c")]
    for uid in ("c", "a"):  # a was forgotten for c
        machine.feed(BindEnded(uid, BindResult.FAILED), 10.0)
    assert machine.tick(11.0) == [Resume("a")]
    assert machine.tick(12.0) == [Resume("c")]


def test_pods_are_resumed_before_the_cycle_that_is_due() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=1)
    machine.feed(BindEnded("u0", BindResult.FAILED), end)
    machine.feed(Changed(), end + 0.97)
    machine.tick(end + 0.97)
    assert machine.tick(end + 1.5) == [Resume("u0")]
    assert not machine.pacing.handle(Changed(), end + 1.5)  # as the resumed pod causes it
    assert machine.wake_at <= end + 1.5
    assert find(RunCycle, machine.tick(end + 1.5))
    machine.feed(Decided([], complete=True, classes=1), end + 1.5)
    machine.feed(CycleEnded(0.0), end + 1.5)
    assert machine.wake_at == end + 6.5  # no second cycle


def test_a_tick_during_a_cycle_says_nothing() -> None:
    machine = Machine()
    end = machine.cycle(1.0, binds=1)
    machine.feed(BindEnded("u0", BindResult.FAILED), end)
    machine.begin_cycle(end + 0.5)
    assert machine.pacing.handle(Tick(), end + 2.0) == []
    machine.feed(Decided([], complete=True, classes=1), end + 2.0)
    machine.feed(CycleEnded(1.5), end + 2.0)
    assert machine.wake_at == end + 1.0
    assert machine.tick(end + 2.0) == [Resume("u0")]


def test_the_time_comes_first_so_that_what_is_caused_later_counts() -> None:
    machine = Machine()
    machine.cycle(1.0, binds=1)
    said = machine.pacing.handle(BindEnded("u0", BindResult.FAILED), 2.0)
    assert said == [WakeAt(3.0), Forget("u0", postponed=True)]


# --- when nothing happens ---


def test_it_beats_and_sweeps_when_nothing_happens() -> None:
    machine = Machine()
    beats = 0
    while (said := machine.tick(machine.wake_at)) == [Beat()]:
        beats += 1
    assert (beats, said) == (59, [])
    assert machine.wake_at == pytest.approx(300.05)
    assert find(RunCycle, machine.tick(machine.wake_at))
    machine.feed(NothingWaits(), machine.wake_at)
    assert machine.tick(machine.wake_at) == [Beat()]


def test_changes_do_not_delay_the_sweep() -> None:
    machine = Machine()
    end = machine.cycle(298.0)
    assert machine.wake_at == end + 5.0
    assert machine.tick(end + 5.0) == []
    assert find(RunCycle, machine.tick(machine.wake_at))
