"""How loudly a trouble is logged that may come a thousand times."""

from __future__ import annotations

import logging
from collections.abc import Callable


class Complaints:
    """A trouble is a warning, but not again within `pause_seconds`; those who look closely see it each time."""

    def __init__(self, pause_seconds: float, clock: Callable[[], float]) -> None:
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._warned_at: dict[str, float] = {}

    def choose_level(self, kind: str = "") -> int:
        """Return the level of the line that is written now. kind: of the trouble; each kind has a pause of its own."""
        now = self._clock()
        if kind in self._warned_at and now - self._warned_at[kind] < self._pause_seconds:
            return logging.DEBUG
        self._warned_at[kind] = now
        return logging.WARNING

    def forget(self, kind: str = "") -> None:
        """Let the next trouble of a kind be a warning."""
        self._warned_at.pop(kind, None)
