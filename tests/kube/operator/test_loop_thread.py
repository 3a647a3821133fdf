"""A second loop in a thread of its own: results, errors and cancellations find their way back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from fairbind.kube.operator.loop_thread import LoopThread
from fairbind.model import FairbindError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("side")
    made.start()
    yield made
    made.stop()


async def name_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise FairbindError("broken")


async def test_work_runs_in_the_thread_and_its_result_comes_back(thread: LoopThread) -> None:
    assert await thread.run(name_thread()) == "side"
    assert threading.current_thread().name != "side"


async def test_an_error_comes_back(thread: LoopThread) -> None:
    with pytest.raises(FairbindError, match="broken"):
        await thread.run(fail())


async def test_a_cancellation_is_passed_on_and_its_end_is_waited_for(thread: LoopThread) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    running = asyncio.create_task(thread.run(work()))
    assert await asyncio.to_thread(begun.wait, 60.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_context_is_entered_and_left_in_the_thread(thread: LoopThread) -> None:
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def context() -> AsyncIterator[int]:
        seen.append(await name_thread())
        yield 7
        seen.append(await name_thread())

    async with thread.entered(context()) as value:
        assert value == 7
    assert seen == ["side", "side"]


async def test_what_runs_when_the_thread_stops_is_ended_and_says_so(thread: LoopThread) -> None:
    running = asyncio.create_task(thread.run(asyncio.Event().wait()))
    await thread.run(name_thread())
    await asyncio.to_thread(thread.stop)
    with pytest.raises(FairbindError, match="side"):
        await running
    with pytest.raises(FairbindError, match="has ended"):
        await thread.run(name_thread())
    thread.call(print)  # nobody is there, and nothing happens


async def test_it_goes_on_while_the_main_loop_is_busy(thread: LoopThread) -> None:
    turns: list[float] = []

    async def turn() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0.01)

    running = asyncio.create_task(thread.run(turn()))
    await thread.run(name_thread())
    before, ends_at = len(turns), time.monotonic() + 2.0
    while time.monotonic() < ends_at:
        pass
    assert len(turns) - before >= 4  # alone it would be 200
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
