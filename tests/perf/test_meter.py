"""Each callback of a process is timed by what it computes, in the phase in which it runs."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from kube.assembled.processes import Process, run_processes
from perf.meter import Meter, metering


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """In a large process a collection of garbage takes longer than the limits."""
    gc.disable()
    yield
    gc.enable()


def compute(seconds: float) -> None:
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass


async def play(meter: Meter) -> None:
    async def work(seconds: float) -> None:
        await asyncio.sleep(60.0)
        compute(seconds)
        await asyncio.sleep(60.0)
        compute(seconds)

    meter.begin("busy")
    await Process().start(work(0.15), "busy")
    meter.begin("idle")
    compute(0.15)  # by the world, not by a process
    await Process().start(work(0.0), "idle")


def test_the_longest_callback_is_of_its_phase_and_the_world_does_not_count() -> None:
    with metering() as meter:
        run_processes(play(meter))

    busy, idle = meter.phases
    assert busy.longest >= 0.15
    assert busy.seconds >= 0.3
    assert busy.above == [2, 2, 0]
    assert (idle.name, idle.above) == ("idle", [0, 0, 0])


def test_after_it_callbacks_run_as_ever() -> None:
    with metering() as meter:
        pass
    run_processes(play(meter))

    assert [phase.seconds for phase in meter.phases] == [0.0, 0.0]


def test_an_error_ends_the_looks_from_outside() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(ZeroDivisionError), metering():
        raise ZeroDivisionError

    assert {*threading.enumerate()} <= before
