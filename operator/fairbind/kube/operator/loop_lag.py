"""How late the event loop comes back to its clock: what one long computation costs everything else on it.

A timer is set every fifth of a second. How late it comes is the lag; the longest of the last minute is reported,
because a scrape every 30 s would miss nearly every single one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PERIOD_SECONDS = 0.2
SHOWN_SECONDS = 60.0


class LoopLag:
    """The lags of the last minute. report: takes the longest of them, in seconds, after every one."""

    def __init__(self, clock: Callable[[], float], report: Callable[[float], None]) -> None:
        self._clock = clock
        self._report = report
        self._lags: deque[float] = deque(maxlen=round(SHOWN_SECONDS / PERIOD_SECONDS))

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock() + PERIOD_SECONDS
            await asyncio.sleep(PERIOD_SECONDS)
            self.note(self._clock() - due)

    def note(self, seconds: float) -> None:
        """Take one lag; a clock that is coarser than the timer may say below 0."""
        self._lags.append(max(0.0, seconds))
        self._report(max(self._lags))
