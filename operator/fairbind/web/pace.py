"""Limits how often clients begin something: one rate for all of them, and a lower one for each address.

A handshake or a request costs milliseconds of the interpreter that also decides, and a client can ask for thousands of
them. No client is turned away. A client that comes too early waits; the one that has waited longest goes first, unless
its address has used up its rate. After a second in which nothing began, a second's worth may begin at once.
"""

from __future__ import annotations

import asyncio
from math import inf

MOST_REMEMBERED = 256
"""Addresses, beside those that have had a part of their second's worth."""


class Pace:
    """Belongs to one event loop. per_second: of all clients. per_address: of one of them. inf: no bound."""

    def __init__(self, per_second: float, per_address: float) -> None:
        self._per_address = per_address
        self._of_all = _Allowance(per_second)
        self._of: dict[str, _Allowance] = {}
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, address: str) -> asyncio.Future[None]:
        """Return what is done when a client of an address may begin; it may be cancelled."""
        admission = asyncio.get_running_loop().create_future()
        self._waiting[admission] = address
        self._begin()
        return admission

    def _begin(self) -> None:
        """Let all begin who may now, and look again when the next one may."""
        loop = asyncio.get_running_loop()
        now, next_at = loop.time(), inf
        for admission, address in list(self._waiting.items()):
            if admission.done():  # it was cancelled
                del self._waiting[admission]
                continue
            own = self._of.get(address) or _Allowance(self._per_address)
            may_begin_at = max(self._of_all.next_at, own.next_at)
            if may_begin_at > now:
                next_at = min(next_at, may_begin_at)
                continue
            del self._waiting[admission]
            self._of_all.take(now)
            own.take(now)
            self._of[address] = own
            admission.set_result(None)
        if len(self._of) > MOST_REMEMBERED:
            self._of = {address: own for address, own in self._of.items() if own.full_at > now}
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(next_at, self._begin) if self._waiting else None


class _Allowance:
    """A second's worth, of which some may be taken. full_at: when all of it is there again."""

    def __init__(self, per_second: float) -> None:
        self._seconds = 1.0 / per_second
        self.full_at = -inf

    @property
    def next_at(self) -> float:
        """From when on one may be taken."""
        return self.full_at - 1.0 + self._seconds

    def take(self, now: float) -> None:
        """Take one."""
        self.full_at = max(self.full_at, now) + self._seconds
