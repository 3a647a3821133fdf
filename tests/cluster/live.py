"""The operator's own loop through a history, by asyncio in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from cluster.histories import EPOCH, History, HistoricWorld, Timeline
from fairbind.kube import loop as loop_module
from fairbind.kube.binder import BindResult
from fairbind.kube.loop import SchedulingLoop
from kube.outbound.simulation import VirtualLoop

DRAIN_SECONDS = 100.0


class HistoricBinder:
    """Binds as the history says."""

    def __init__(self, world: HistoricWorld) -> None:
        self._world = world

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> BindResult:
        assert (namespace, name, node) == ("ns", uid, "only")
        seconds, result = self._world.draw_binding(uid)
        if seconds:
            await asyncio.sleep(seconds)
        if result is None:
            raise RuntimeError("broken")
        return result


def run_live(history: History, patch: pytest.MonkeyPatch, rules: object = loop_module) -> Timeline:
    """Return what the loop does. rules: the module whose constants the history sets."""
    for name, value in history.constants.items():
        patch.setattr(rules, name, value)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        timeline = Timeline(lambda: runner.get_loop().time() - 1000.0)
        runner.run(_live(history, timeline, cast("VirtualLoop", runner.get_loop()), patch))
    return timeline


async def _live(history: History, timeline: Timeline, loop: VirtualLoop, patch: pytest.MonkeyPatch) -> None:
    def spend(seconds: float) -> None:
        loop._jumping.now += seconds

    world = HistoricWorld(history, timeline, spend)
    patch.setattr(loop_module, "run_cycle", world.run_cycle)
    scheduling = SchedulingLoop(
        world,
        HistoricBinder(world),
        world,
        observer=cast("Any", world),
        health=cast("Any", world),
        may_decide=lambda: world.leads,
        clock=loop.time,
        wall_clock=lambda: EPOCH + timeline.clock(),
    )
    world.on_change = scheduling.wake
    running = asyncio.create_task(scheduling.run())
    for at, what, count in [*history.events, (history.seconds, "wake", 0)]:
        await asyncio.sleep(at - timeline.clock())
        world.happen(what, count)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert await scheduling.drain(DRAIN_SECONDS)
    timeline.note("decided", scheduling.decided)
