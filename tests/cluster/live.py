"""The operator's own loop through a history, by asyncio in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from cluster.histories import EPOCH, HistoricWorld, History, Timeline, set_constants
from fairbind.cluster.loop import deciding
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.operator.loop import Journal, SchedulingLoop
from kube.operator.simulation import VirtualLoop

DRAIN_SECONDS = 100.0
SETTLING_TURNS = 20


async def flush() -> None:
    """Let all happen that follows from what has happened, before time passes."""
    for _ in range(SETTLING_TURNS):
        await asyncio.sleep(0)


class HistoricBinder:
    """Binds as the history says.

    moment: held by what happens next. A long cycle makes many timers due at once, and what asyncio does with events
    that come in one turn of its loop is not what the histories are about.
    """

    def __init__(self, world: HistoricWorld) -> None:
        self._world = world
        self.moment = asyncio.Lock()

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, on_stall: Callable[[bool], None]
    ) -> BindResult:
        assert (namespace, name, node, on_stall is None) == ("ns", uid, "only", False)
        seconds, result = self._world.draw_binding(uid)
        await asyncio.sleep(seconds)
        async with self.moment:
            await flush()
        if result is None:
            raise RuntimeError("broken")
        return result


def run_live(history: History, patch: pytest.MonkeyPatch, *, journal: Journal | None = None) -> Timeline:
    """Return what the loop does."""
    set_constants(history, patch)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        timeline = Timeline(lambda: runner.get_loop().time() - 1000.0)
        runner.run(_live(history, timeline, cast("VirtualLoop", runner.get_loop()), patch, journal))
    return timeline


async def _live(
    history: History, timeline: Timeline, loop: VirtualLoop, patch: pytest.MonkeyPatch, journal: Journal | None
) -> None:
    def spend(seconds: float) -> None:
        loop._jumping.now += seconds

    world = HistoricWorld(history, timeline, spend)
    patch.setattr(deciding, "run_cycle", world.run_cycle)
    binder = HistoricBinder(world)
    scheduling = SchedulingLoop(
        world,
        binder,
        world,
        observer=cast("Any", world),
        health=cast("Any", world),
        may_decide=lambda: world.leads,
        clock=loop.time,
        wall_clock=lambda: EPOCH + timeline.clock(),
        journal=journal,
    )
    world.on_change = scheduling.wake
    running = asyncio.create_task(scheduling.run())

    async def happen(at: float, what: str, count: int) -> None:
        await asyncio.sleep(at - timeline.clock())
        async with binder.moment:
            await flush()
            world.happen(what, count)

    await asyncio.gather(*(happen(*event) for event in [*history.events, (history.seconds, "wake", 0)]))
    world.is_over = True
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert await scheduling.drain(DRAIN_SECONDS)
    timeline.note("decided", scheduling.decided)
