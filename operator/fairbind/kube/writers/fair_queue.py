"""What is to be written, in a line for each tenant or namespace; the lines take turns.

In one line for all, a tenant with twenty thousand pods would have all others hear of theirs minutes later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Line = TypeVar("Line", bound=Hashable)
Item = TypeVar("Item")


class FairQueue(Generic[Line, Item]):
    """Items that are not written yet. A line is as long as `most`; what comes then takes the place of the oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: OrderedDict[Line, deque[Item]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, line: Line) -> bool:
        """Whether another item may be added to this line without losing one."""
        items = self._lines.get(line)
        return items is None or len(items) < self._most

    def add(self, line: Line, item: Item) -> None:
        """Put an item at the end of its line."""
        self._count += self.has_room(line)
        self._lines.setdefault(line, deque(maxlen=self._most)).append(item)

    def take(self, may_take: Callable[[Line], bool] = lambda _: True) -> Item | None:
        """Take the first item of the line whose turn it is, among those that may be taken from; None: there is none."""
        line = next(filter(may_take, self._lines), None)
        if line is None:
            return None
        items = self._lines.pop(line)
        item = items.popleft()
        self._count -= 1
        if items:
            self._lines[line] = items
        return item

    def drop(self) -> None:
        """Drop the oldest item of the longest line."""
        longest = max(self._lines, key=lambda line: len(self._lines[line]), default=None)
        if longest is not None:
            self._lines[longest].popleft()
            self._count -= 1
            if not self._lines[longest]:
                del self._lines[longest]

    def clear(self) -> None:
        """Drop all."""
        self._lines.clear()
        self._count = 0
