"""Laps of a scheduler: how far it is round its queue, as seen from the pods that it asks about.

It looks at one pod after the other, and a pod that it failed to place goes to the end. So when it asks about a pod for
the second time, it has looked at all pods meanwhile that were in its queue at the first time: it has gone **a lap**.
Pods of a higher priority come first always, so only those of the lowest priority that it has asked about tell of laps.
Where several schedulers ask, the quickest tells.

Times are in seconds, of one clock, and do not go back.
"""

from __future__ import annotations

from math import inf

IDLE_SECONDS = 5.0
"""A scheduler that has not asked for so long has nothing in its queue."""


class Laps:
    """The laps of a scheduler. backoff_seconds: the longest that it keeps a pod out of its queue.

    passed_until: what waits in the queue since then, or for longer, was looked at. asked_at: when it last asked.

    >>> laps = Laps(backoff_seconds=1.0)
    >>> for uid, now in (("uid-1", 3.0), ("uid-2", 4.0), ("uid-1", 5.0)):
    ...     laps.note_asked(uid, 0, now)
    >>> laps.passed_until, laps.is_busy(6.0)
    (2.0, True)
    """

    def __init__(self, backoff_seconds: float) -> None:
        self.passed_until = self.asked_at = self._began_at = -inf
        self._backoff_seconds = backoff_seconds
        self._asked: set[str] = set()
        self._lowest = inf

    def note_asked(self, uid: str, priority: int, now: float) -> None:
        """Note that the scheduler asks about a pod that waits."""
        self.asked_at = now
        self._lowest = min(self._lowest, priority)
        if uid in self._asked and priority <= self._lowest:
            self.passed_until = self._began_at - self._backoff_seconds
            self._asked.clear()
        if not self._asked:
            self._began_at, self._lowest = now, priority
        self._asked.add(uid)

    def forget(self, uid: str) -> None:
        """Note that a pod waits no longer."""
        self._asked.discard(uid)

    def is_busy(self, now: float) -> bool:
        """Tell whether the scheduler goes through its queue."""
        return now < self.asked_at + IDLE_SECONDS
