"""The least that waiting tasks ask for of each resource: with less of it free on every server, none gets any more.

Between two cycles a few classes come and go, and within a cycle a few run out. So the amounts are kept sorted, and a
draft notes beside them which classes have run out in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from fairbind.model import TaskClass


class AskedAmounts:
    """What the waiting classes of a snapshot ask for; blocked ones ask for nothing.

    amounts: for each resource the different amounts above 0, ascending. counts: how many classes ask for each.
    """

    __slots__ = ("amounts", "counts")

    def __init__(self, axes: int, task_classes: Iterable[TaskClass]) -> None:
        """Take some classes. axes: the number of resources."""
        self.counts: list[Counter[int]] = [Counter() for _ in range(axes)]
        for task_class in task_classes:
            if task_class.blocked is None:
                for counter, demand in zip(self.counts, task_class.demand_r, strict=True):
                    counter[demand] += 1
        for counter in self.counts:
            counter.pop(0, None)
        self.amounts = [sorted(counter) for counter in self.counts]

    def add(self, task_class: TaskClass) -> None:
        """Take one more class."""
        for r, demand in enumerate(_list_demands(task_class)):
            if demand:
                if not self.counts[r][demand]:
                    insort(self.amounts[r], demand)
                self.counts[r][demand] += 1

    def discard(self, task_class: TaskClass) -> None:
        """Forget a class that was taken."""
        for r, demand in enumerate(_list_demands(task_class)):
            if demand:
                self.counts[r][demand] -= 1
                if not self.counts[r][demand]:
                    del self.counts[r][demand], self.amounts[r][bisect_left(self.amounts[r], demand)]


def _list_demands(task_class: TaskClass) -> Sequence[int]:
    return task_class.demand_r if task_class.blocked is None else ()


class LeastAsked:
    """The least of these amounts during a draft: of each resource 1, the least amount, where no class asks for it.

    least_r: another object whenever one of them may be other. _gone_r: of each amount, how many classes have run out.
    """

    __slots__ = ("_asked", "_gone_r", "_place_r", "least_r")

    def __init__(self, asked: AskedAmounts) -> None:
        self._asked = asked
        self._gone_r: list[Counter[int]] = [Counter() for _ in asked.counts]
        self._place_r = [0] * len(asked.counts)
        self.least_r: Sequence[int] = [self._find(r) for r in range(len(asked.counts))]

    def _find(self, r: int) -> int:
        """Return the least amount of a resource; those before its place have run out."""
        amounts, counts, gone = self._asked.amounts[r], self._asked.counts[r], self._gone_r[r]
        place = self._place_r[r]
        while place < len(amounts) and gone and counts[amounts[place]] == gone[amounts[place]]:
            place += 1
        self._place_r[r] = place
        return amounts[place] if place < len(amounts) else 1

    def note_end(self, demand_r: Sequence[int]) -> None:
        """Note that no task of a class waits any more."""
        for r, demand in enumerate(demand_r):
            if demand:
                self._gone_r[r][demand] += 1
                if demand == self.least_r[r] and self._gone_r[r][demand] == self._asked.counts[r][demand]:
                    self.least_r = [*self.least_r[:r], self._find(r), *self.least_r[r + 1 :]]

    def take_back(self, demand_r: Sequence[int]) -> None:
        """Take the last `note_end` of such a class back."""
        for r, demand in enumerate(demand_r):
            if demand:
                self._gone_r[r][demand] -= 1
                self._place_r[r] = 0
                self.least_r = [*self.least_r[:r], self._find(r), *self.least_r[r + 1 :]]
