"""Processes in one event loop of virtual time: each can be frozen, and goes on after its thaw from wherever it was.

What a process does runs in its context. While it is frozen its callbacks are held back, its timers too; time passes for
all others. What it has sent is on its way all the same, for that belongs to the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

from kube.operator.simulation import VirtualLoop

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def _run_at_once(callback: Callable[[], object]) -> None:
    callback()


_run: Callable[[Callable[[], object]], None] = _run_at_once
_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """What runs together and stops together."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._held: list[_Gate] = []
        self._context = contextvars.copy_context()
        self._context.run(_process.set, self)

    def start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Run it, and all that it starts, in this process."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self._context)

    def freeze(self) -> None:
        """Stop, as by SIGSTOP."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Go on, with everything that came due meanwhile, in its order."""
        self.is_frozen = False
        held, self._held = self._held, []
        for gate in held:
            gate.run_soon()

    def hold(self, gate: _Gate) -> None:
        """Keep a callback until the thaw."""
        self._held.append(gate)


class _Gate:
    """A callback of a process: held back while the process is frozen, and gone when its handle was cancelled."""

    def __init__(
        self, loop: ProcessLoop, process: Process, context: contextvars.Context, callback: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._process = process
        self._context = context
        self._callback = callback
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        """Run the callback, if its process runs."""
        if self._process.is_frozen:
            self._process.hold(self)
        elif self.handle is None or not self.handle.cancelled():
            _run(self._callback)

    def run_soon(self) -> None:
        """Run what was held back; whoever cancels it has the handle of before."""
        self._loop.call_ungated(self.run, self._context)


class ProcessLoop(VirtualLoop):
    """Virtual time, in which what belongs to a process waits while that is frozen."""

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        gate = _Gate(self, process, context, functools.partial(callback, *args))
        gate.handle = super().call_soon(gate.run, context=context)
        return gate.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        gate = _Gate(self, process, context, functools.partial(callback, *args))
        handle = super().call_at(when, gate.run, context=context)
        gate.handle = handle
        return handle

    def call_ungated(self, callback: Callable[[], object], context: contextvars.Context) -> None:
        """Call soon what asks by itself whether its process runs."""
        super().call_soon(callback, context=context)


@contextlib.contextmanager
def timed(run: Callable[[Callable[[], object]], None]) -> Iterator[None]:
    """Let every callback of a process be run by this function, as to time it."""
    global _run  # noqa: PLW0603 - the callbacks of all loops
    _run = run
    try:
        yield
    finally:
        _run = _run_at_once


def run_processes(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        return runner.run(main)
