"""The tasks of one replica. One that ends by itself ends the replica, unless it may pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fairbind.kube.part_failures import PartFailures
from fairbind.model import FairbindError

CHECK_SECONDS = 1.0


class Tasks:
    """Tasks by their names.

    passing: names of tasks that may come to their end while everything goes on.
    """

    def __init__(self, failures: PartFailures, passing: frozenset[str]) -> None:
        self._failures = failures
        self._passing = passing
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, name: str) -> bool:
        """Tell whether a task of this name was started and has not ended."""
        return name in self._tasks

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task whose error ends the replica."""
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)

    def start_reporting(self, part: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a part that only reports: its errors end nothing."""
        self.start(part, self._failures.keep_running(part, run))

    def drop(self, name: str) -> None:
        """Cancel a task, if there is one of this name, and do not wait for its end."""
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()

    async def end(self, name: str) -> None:
        """Cancel a task and wait for its end."""
        await cancel([self._tasks.pop(name)])

    async def end_all(self) -> None:
        """Cancel all tasks and wait for their ends."""
        await cancel(self._tasks.values())

    async def run_until(self, stopping: asyncio.Task[Any], work: Coroutine[Any, Any, None] | None = None) -> bool:
        """Wait for the work (or for ever); False when the stop came first. Raises when a task has ended by itself."""
        working = asyncio.create_task(work or asyncio.Event().wait(), name="wait")
        try:
            while not stopping.done() and not working.done():
                waited = {stopping, working, *self._tasks.values()}
                await asyncio.wait(waited, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                self._check()
        finally:
            await cancel([working])
        return not stopping.done()

    def _check(self) -> None:
        for name, task in list(self._tasks.items()):
            if not task.done():
                continue
            error = None if task.cancelled() else task.exception()
            if name in self._passing and error is None:
                del self._tasks[name]
                continue
            raise FairbindError(f"{name} has ended: {error or 'for no known reason'}") from error


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends, whatever these are."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
