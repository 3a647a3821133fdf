"""A thread with an event loop of its own, for what must go on while the loop that decides is busy.

The interpreter lets waiting threads take turns every 5 ms, so a cycle of seconds delays this thread by milliseconds.
A caller that runs something here waits for it on its own loop: a cancellation is passed on, and its end is waited for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from fairbind.model import FairbindError

STOP_SECONDS = 5.0

Result = TypeVar("Result")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
_log = logging.getLogger(__name__)


class LoopThread:
    """Begins with `start` and ends with `stop`. A daemon: a hanging one does not keep the process from its end."""

    def __init__(self, name: str, *, make_loop: LoopFactory | None = None) -> None:
        self._name = name
        self._make_loop = make_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, and return when the loop runs."""
        begun = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(begun,), name=self._name, daemon=True)
        self._thread.start()
        begun.wait()

    def stop(self) -> None:
        """Cancel what still runs, and end. Waits a few seconds for it."""
        if self._thread is None:
            return
        self.call(self._require_event().set)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            _log.warning("the thread %r did not end in time", self._name)

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Call something in the thread, soon. Does nothing when its loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._require_loop().call_soon_threadsafe(callback, *args)

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something in the thread and return its result. FairbindError when the thread ended before it did."""
        outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()
        begun: list[asyncio.Task[Result]] = []

        def begin() -> None:
            task = self._require_loop().create_task(work)
            begun.append(task)
            task.add_done_callback(lambda ended: _pass_on(ended, outcome, self._name))

        def cancel() -> None:
            begun[0].cancel()

        try:
            self._require_loop().call_soon_threadsafe(begin)
        except RuntimeError:
            work.close()
            raise FairbindError(f"the thread {self._name!r} has ended") from None
        waiting = asyncio.wrap_future(outcome)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            self.call(cancel)
            await asyncio.wait({waiting})
            if not waiting.cancelled():
                waiting.exception()  # nothing else will look at it
            raise

    @contextlib.asynccontextmanager
    async def entered(self, context: AbstractAsyncContextManager[Result]) -> AsyncIterator[Result]:
        """Enter and leave a context in the thread."""
        value = await self.run(_enter(context))
        try:
            yield value
        finally:
            await self.run(_leave(context))

    def _live(self, begun: threading.Event) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._wait_for_end(begun))

    async def _wait_for_end(self, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        begun.set()
        await self._ended.wait()

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "it was not started"
        return self._loop

    def _require_event(self) -> asyncio.Event:
        assert self._ended is not None, "it was not started"
        return self._ended


def _pass_on(task: asyncio.Task[Result], outcome: concurrent.futures.Future[Result], thread: str) -> None:
    """Tell how a task ended."""
    if task.cancelled():
        outcome.set_exception(FairbindError(f"cancelled in the thread {thread!r}"))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def _enter(context: AbstractAsyncContextManager[Result]) -> Result:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)
