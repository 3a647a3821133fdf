"""Waits by what ends them, but for free capacity, which `store` finds by arrays."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping

from fairbind.model import TaskClass, TimeReached, Until, UsageBelow, Wait

Usage = Mapping[Hashable, int]
"""What counts towards limits, by the subject of the counter; a limit that is not there counts nothing."""


class Ends:
    """An index of waits by the values that end them; an empty one costs nothing.

    _by_value: the classes that wait for each value. _usages, _times: those of the values that no event
    tells of.
    """

    __slots__ = ("_by_value", "_times", "_usages")

    def __init__(self) -> None:
        self._by_value: dict[Until, dict[TaskClass, None]] = {}
        self._usages: set[UsageBelow] = set()
        self._times: set[TimeReached] = set()

    def add(self, wait: Wait) -> None:
        """Take the values of a wait."""
        for until in wait.until:
            self._by_value.setdefault(until, {})[wait.task_class] = None
            if isinstance(until, UsageBelow):
                self._usages.add(until)
            elif isinstance(until, TimeReached):
                self._times.add(until)

    def discard(self, wait: Wait) -> None:
        """Forget the values of a wait."""
        for until in wait.until:
            waiting = self._by_value[until]
            del waiting[wait.task_class]
            if not waiting:
                del self._by_value[until]
                if isinstance(until, UsageBelow):
                    self._usages.remove(until)
                elif isinstance(until, TimeReached):
                    self._times.remove(until)

    @property
    def times(self) -> Iterable[TimeReached]:
        """The times for which classes wait."""
        return self._times

    def find_ended(self, events: Iterable[Until], usage: Usage, now: float) -> Collection[TaskClass]:
        """Return the classes whose wait may have ended, each once. events: what was told."""
        ended: dict[TaskClass, None] = {}
        past = [until for until in self._times if until.time <= now]
        for until in (*events, *self._find_fallen(usage), *past):
            ended.update(self._by_value.get(until, {}))
        return ended.keys()

    def _find_fallen(self, usage: Usage) -> list[UsageBelow]:
        """Return the usages that are below their amount."""
        return [until for until in self._usages if usage.get(until.subject, 0) < until.amount]
