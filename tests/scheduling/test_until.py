"""What ends a wait is a value of it: of each kind a dummy, which no feature uses yet, is looked at when it must be."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import cycle as repeat
from typing import Any

import numpy as np
import pytest

from fairbind.model import (
    FREE_CAPACITY,
    ClaimChange,
    CycleReport,
    Event,
    GroupComplete,
    PolicySettings,
    ServerChange,
    Snapshot,
    TaskClass,
    Tenant,
    TimeReached,
    Until,
    UsageBelow,
    Wait,
)
from fairbind.scheduling import UnschedulableCache, run_cycle
from fairbind.scheduling.cycle import cycle
from fairbind.scheduling.cycle.order import task_queues
from fairbind.scheduling.cycle.waits.explain import explain_waits
from scheduling.ending_worlds import EndingWorld as Reserving
from scheduling.test_reservations import fill
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot

FULL = build_servers({"x": (4, 4), "y": (4, 4)}, free={"x": (0, 0), "y": (0, 0)})
EVERYWHERE = build_placement(FULL)
CLASSES = [build_class("a", (2, 1 + n), EVERYWHERE) for n in range(3)]
BUSY = Tenant("a", allocated_r=(4, 4))
EVENTS: list[Event] = [ServerChange("x"), GroupComplete("ns/g"), ClaimChange("ns/c")]
OTHERS: list[Until] = [UsageBelow("a limit", 4), TimeReached(60.0)]


class World:
    """Three classes that fit nowhere. The first of them waits for something else than free capacity."""

    def __init__(self, *until: Until) -> None:
        self.memory = UnschedulableCache()
        self.held: dict[Hashable, int] = {"a limit": 4}
        self.free = FULL.free_kr
        assert len(self.decide().waits) == 3
        remembered = self.memory._remembered
        wait = remembered[CLASSES[0]]
        remembered.change(removed=[CLASSES[0]])
        remembered.change(added=[replace(wait, until=until)])

    def build(self) -> Snapshot:
        snapshot = build_snapshot(replace(FULL, free_kr=self.free), CLASSES, tenants=[BUSY])
        return replace(snapshot, held=self.held)

    def decide(self, now: float = 0.0) -> CycleReport:
        return run_cycle(self.build(), PolicySettings(), now, unschedulable=self.memory, explains=False)

    def look(self, now: float = 0.0) -> list[TaskClass]:
        """Return the classes at which a cycle looks."""
        seen: list[TaskClass] = []

        class Seen(task_queues.ClassQueue):
            def __init__(self, task_class: TaskClass, *arguments: object, **options: object) -> None:
                seen.append(task_class)
                super().__init__(task_class, *arguments, **options)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fairbind.scheduling.cycle.draft.ClassQueue", Seen)
            assert len(self.decide(now).waits) == 3
        return seen


def fall(world: World) -> None:
    world.held = {"a limit": 3}


def vanish(world: World) -> None:
    """The limit is gone."""
    world.held = {}


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_that_is_told_ends_the_waits_for_it(event: Event) -> None:
    world = World(event)
    assert world.look() == []
    for other in EVENTS:
        if other != event:
            world.memory.note_event(other)
    world.memory.note_event(type(event)("other"))
    assert world.look() == []

    world.memory.note_event(event)
    assert world.look() == [CLASSES[0]]


@pytest.mark.parametrize("change", [fall, vanish])
def test_usage_that_falls_ends_the_waits_for_it(change: Callable[[World], None]) -> None:
    world = World(UsageBelow("a limit", 4))
    assert world.look() == []
    world.held = {"a limit": 5, "another": 1}
    assert world.look() == []

    change(world)
    assert world.look() == [CLASSES[0]]


def test_a_time_ends_the_waits_for_it() -> None:
    world = World(TimeReached(60.0))
    assert world.decide(now=45.0).again_in == 15.0
    assert world.look(now=59.9) == []

    assert world.look(now=60.0) == [CLASSES[0]]
    assert world.decide(now=60.0).again_in is None


def add_times(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Let these times, in turn, end the waits that cycles explain, beside free capacity."""

    def explain(**parts: Any) -> list[Wait]:
        waits = zip(explain_waits(**parts), repeat(times), strict=False)
        return [replace(wait, until=(*FREE_CAPACITY, TimeReached(time))) for wait, time in waits]

    monkeypatch.setattr(cycle, "explain_waits", explain)


@pytest.mark.parametrize("memory", [None, UnschedulableCache()])
def test_a_cycle_says_how_long_the_first_time_that_ends_a_wait_is_away(
    monkeypatch: pytest.MonkeyPatch, memory: UnschedulableCache | None
) -> None:
    """Of all waits that it reports, whether they are remembered or not; what is past ends none."""
    add_times(monkeypatch, 20.0, 90.0, 60.0)
    report = run_cycle(build_snapshot(FULL, CLASSES, tenants=[BUSY]), PolicySettings(), 25.0, unschedulable=memory)
    assert report.again_in == 35.0


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, 0.5), (5.0, 0.75)])
def test_what_comes_first_of_a_time_and_a_look_at_reservations_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: float
) -> None:
    cluster = Reserving({"a": 8, "b": 8})
    fill(cluster)
    assert cluster.decide(1.0).again_in is None

    add_times(monkeypatch, cluster.now + 0.25 + seconds)
    assert cluster.decide(0.25).again_in == expected


@pytest.mark.parametrize("until", [*EVENTS, *OTHERS])
def test_free_capacity_does_not_end_a_wait_for_something_else(until: Until) -> None:
    world = World(until)
    world.free = np.array([[2, 3], [2, 2]])
    report = world.decide()

    assert [bind.task.uid for bind in report.bindings] == [task.uid for each in CLASSES[1:3] for task in each.tasks]
    assert [wait.until for wait in report.waits] == [(until,)]


@pytest.mark.parametrize("until", [*EVENTS, *OTHERS])
def test_each_of_several_values_ends_a_wait(until: Until) -> None:
    world = World(*FREE_CAPACITY, until)
    world.free = np.array([[0, 0], [2, 1]])
    assert [bind.task.uid for bind in world.decide().bindings] == [CLASSES[0].tasks[0].uid]

    world = World(*FREE_CAPACITY, until)
    fall(world)
    for event in EVENTS:
        world.memory.note_event(event)
    assert world.look(now=60.0) == [CLASSES[0]]


@pytest.mark.parametrize("until", [*EVENTS, *OTHERS])
def test_what_was_looked_at_in_vain_waits_for_what_refuses_it_now(until: Until) -> None:
    world = World(until)
    fall(world)
    for event in EVENTS:
        world.memory.note_event(event)
    assert [wait.until for wait in world.decide(now=60.0).waits] == [FREE_CAPACITY] * 3

    assert world.look(now=61.0) == []
    world.free = np.array([[0, 0], [2, 1]])
    assert [bind.task.uid for bind in world.decide(now=62.0).bindings] == [CLASSES[0].tasks[0].uid]


def test_a_class_that_goes_waits_for_nothing() -> None:
    world = World(*EVENTS, *OTHERS)
    snapshot = replace(world.build(), task_classes=tuple(CLASSES[1:]))
    run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=world.memory)

    ends = world.memory._remembered._ends
    assert not ends._by_value
    assert not ends._times
    assert not ends._usages


def test_where_nothing_is_remembered_no_event_is() -> None:
    """Else a cluster in which few wait would gather events for ever."""
    memory = UnschedulableCache()
    for event in EVENTS:
        memory.note_event(event)
    memory.forget()

    assert not memory._events
