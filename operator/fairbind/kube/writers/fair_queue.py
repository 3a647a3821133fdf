"""What is to be written, in a queue for each tenant or namespace; the queues take turns.

In one queue for all, a tenant with twenty thousand pods would have all others hear of theirs minutes later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class FairQueue(Generic[Key, Item]):
    """Items that are not written yet, in queues by key. One holds `most`; what comes then takes its oldest's place."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues: OrderedDict[Key, deque[Item]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def queues(self) -> int:
        """How many queues hold something."""
        return len(self._queues)

    def count(self, key: Key) -> int:
        """How many items a queue holds."""
        items = self._queues.get(key)
        return 0 if items is None else len(items)

    def has_place(self, key: Key) -> bool:
        """Whether another item may be added to this queue without losing one."""
        return self.count(key) < self._most

    def add(self, key: Key, item: Item) -> Item | None:
        """Put an item at the end of its queue; return the one that lost its place to it."""
        items = self._queues.setdefault(key, deque())
        items.append(item)
        if len(items) > self._most:
            return items.popleft()
        self._count += 1
        return None

    def take(self, may_take: Callable[[Key], bool] = lambda _: True) -> Item | None:
        """Take the first item of the queue whose turn it is, of those that may be taken from; None: there is none."""
        key = next(filter(may_take, self._queues), None)
        if key is None:
            return None
        items = self._queues.pop(key)
        item = items.popleft()
        self._count -= 1
        if items:
            self._queues[key] = items
        return item

    def drop(self) -> None:
        """Drop the oldest item of the longest queue."""
        longest = max(self._queues, key=lambda key: len(self._queues[key]), default=None)
        if longest is not None:
            self._queues[longest].popleft()
            self._count -= 1
            if not self._queues[longest]:
                del self._queues[longest]

    def clear(self) -> None:
        """Drop all."""
        self._queues.clear()
        self._count = 0
