"""When cycles explain all waiting classes again, and when there is a cycle though nothing has changed.

That is to look at other classes of a tenant that has very many, what must be reserved, and waits that a time ends.
"""

from __future__ import annotations

from math import inf

from fairbind.scheduling import MANY_CLASSES

MAX_EXPLAINED = 1_024
"""Classes that one cycle explains again, though nothing has changed for them."""
EXPLAIN_SECONDS = 5.0
EXPLAIN_SECONDS_PER_CLASS = 5e-4
"""The age that an explanation may have when very many classes wait: a fiftieth of the time goes into explanations."""


def is_recalling(classes: int) -> bool:
    """Tell whether so many classes wait that a cycle recalls what fitted nowhere in the one before it."""
    return classes >= MANY_CLASSES


class Rounds:
    """See the module. Times are in seconds. has_changed: whether something changed since the last cycle began."""

    def __init__(self) -> None:
        self.has_changed = False
        self._decides_since = 0.0
        self._explain_at = -inf
        self._follows_change = False
        self._unexplained_parts = 0
        self._explain_wake_at = inf
        self._others_at = -inf
        self._others_wake_at = inf
        self._again_wake_at = inf

    @property
    def wake_at(self) -> float:
        """When a cycle is due for its sake alone."""
        return min(self._explain_wake_at, self._others_wake_at, self._again_wake_at)

    def take_due(self, now: float) -> bool:
        """Tell whether a cycle is due for its sake alone, and forget that it was."""
        is_due = now >= self.wake_at
        if now >= self._explain_wake_at:
            self._explain_wake_at = inf
        if now >= self._others_wake_at:
            self._others_wake_at = inf
        if now >= self._again_wake_at:
            self._again_wake_at = inf
        return is_due

    def begin_cycle(self, now: float) -> tuple[bool, bool]:
        """Return whether the cycle that begins explains all of its part again, and whether it looks at others."""
        self._decides_since = now
        self._follows_change, self.has_changed = self.has_changed, False
        looks_at_others = now >= self._others_at
        if looks_at_others:
            self._others_wake_at = inf
        return now >= self._explain_at, looks_at_others

    def look_at_others(self, time: float) -> None:
        """Let a cycle look at others, not before this time."""
        self._others_at = self._others_wake_at = time

    def decide_again_at(self, time: float) -> None:
        """Let a cycle run at this time, though nothing changes; infinite: none must."""
        self._again_wake_at = time

    def note_classes(self, classes: int) -> None:
        """Say when the next part is explained: now and then, and each once more after the last change."""
        if not is_recalling(classes):
            return
        parts = -(-classes // MAX_EXPLAINED)
        has_explained = self._decides_since >= self._explain_at
        if self._follows_change or not has_explained or not self._unexplained_parts:
            self._unexplained_parts = parts
        if has_explained:
            self._unexplained_parts -= 1
            self._explain_at = self._decides_since + max(EXPLAIN_SECONDS, EXPLAIN_SECONDS_PER_CLASS * classes) / parts
        self._explain_wake_at = self._explain_at if self._unexplained_parts else inf
