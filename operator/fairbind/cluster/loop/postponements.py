"""Pods whose binding failed, or whose gate cannot open now: when each is decided again."""

from __future__ import annotations

import heapq
from math import inf

FIRST_POSTPONE_SECONDS = 1.0
MAX_POSTPONE_SECONDS = 10.0
MAX_REMEMBERED = 10_000
"""The most pods that are known to have failed before."""


class Postponements:
    """Pods that wait for their time, and for how long each that failed was postponed last. Times are in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._due: list[tuple[float, int, str]] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many pods wait for their time."""
        return len(self._due)

    @property
    def wake_at(self) -> float:
        """When the first of them is due."""
        return self._due[0][0] if self._due else inf

    def postpone(self, uid: str, now: float) -> None:
        """Let a pod that failed wait, twice as long each time."""
        seconds = min(2 * self._seconds.get(uid, FIRST_POSTPONE_SECONDS / 2), MAX_POSTPONE_SECONDS)
        if len(self._seconds) >= MAX_REMEMBERED:
            self._seconds.pop(next(iter(self._seconds)))
        self._seconds[uid] = seconds
        self.resume_at(now + seconds, uid)

    def forgive(self, uid: str) -> None:
        """Forget that a pod failed: it is bound."""
        self._seconds.pop(uid, None)

    def resume_at(self, time: float, uid: str) -> None:
        """Let a pod wait until then."""
        self._count += 1
        heapq.heappush(self._due, (time, self._count, uid))

    def pop_due(self, now: float) -> list[str]:
        """Return the UIDs of the pods whose time has come, in this order, and let them go."""
        due: list[str] = []
        while self._due and self._due[0][0] <= now:
            due.append(heapq.heappop(self._due)[2])
        return due
