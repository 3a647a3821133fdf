"""The election as the deciding side sees it, and an elector that runs in another thread.

The lease must be renewed while a cycle runs, however long that takes. So the elector has a thread and a connection of
its own, and the deciding side reads from it whether the lease is held, at the very moment of sending.

One thing must not happen: leadership is lost and won again while the deciding side is busy, another replica has led in
between, and what was decided before is sent now. So each loss begins a new term, and the fence is open only in a term
that the deciding side has been told of. It is told of all losses and wins, in their order, on its own loop.

A replica whose deciding side does not turn for `STALLED_SECONDS` must not lead for ever because another thread of it
lives: its lease is not renewed any more, runs out, and the fence closes by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.loop_thread import LoopThread

STALLED_SECONDS = 20.0
"""Longer than any cycle should take; another replica leads half a minute after a deciding side has died."""

OnChange = Callable[[bool], None]


class Election(Protocol):
    """What the operator needs of an elector: `Elector` on the same loop, or `ThreadedElector`."""

    @property
    def problem(self) -> str | None:
        """Why the election does not go on; None while it does."""

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment."""

    def may_bind(self, margin_seconds: float | None = None) -> bool:
        """Say whether more than the margin is left of our lease. This is the fence: ask right before sending."""

    async def run(self) -> None:
        """Stand for election until cancelled."""

    async def release(self) -> None:
        """Give the lease back; `run` must have ended."""


class ThreadedElector:
    """An elector that runs in another thread. Everything here is called on one loop, that of `run`."""

    def __init__(self, make_elector: Callable[[OnChange], Elector], thread: LoopThread, on_change: OnChange) -> None:
        """make_elector: with a client that belongs to the thread's loop. on_change: called on the loop of `run`."""
        self._thread = thread
        self._on_change = on_change
        self._elector = make_elector(self._report)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known_term: int | None = None  # the term in which we were told that we lead

    @property
    def problem(self) -> str | None:
        """Why the election does not go on; None while it does."""
        return self._elector.problem

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment, and know it."""
        return self.may_bind()

    def may_bind(self, margin_seconds: float | None = None) -> bool:
        """Say whether more than the margin is left of the lease that we know of. Ask right before sending."""
        # In this order: a lease of a later term is seen only after that term has begun.
        return self._elector.may_bind(margin_seconds) and self._elector.term == self._known_term

    async def run(self) -> None:
        """Stand for election until cancelled."""
        self._loop = asyncio.get_running_loop()
        await self._thread.run(self._elector.run())

    async def release(self) -> None:
        """Give the lease back; `run` must have ended."""
        await self._thread.run(self._elector.release())

    def _report(self, leading: bool) -> None:  # noqa: FBT001 - the elector's callback, in its thread
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # our loop has ended, and with it everything that decides
                self._loop.call_soon_threadsafe(self._take_notice, leading, self._elector.term)

    def _take_notice(self, leading: bool, term: int) -> None:  # noqa: FBT001 - the same, on our loop
        self._known_term = term if leading else None
        self._on_change(leading)
