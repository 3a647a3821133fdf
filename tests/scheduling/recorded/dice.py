"""Dice that fall the same on every version of Python: only `random()` is promised to stay, so all is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class Dice:
    """Draws of one case. salt: keeps cases of different kinds apart."""

    __slots__ = ("_random",)

    def __init__(self, salt: int, number: int) -> None:
        self._random = Random(salt * 1_000_003 + number).random

    def below(self, count: int) -> int:
        """Return a whole number from 0 to count - 1."""
        return int(self._random() * count)

    def between(self, least: int, most: int) -> int:
        """Return a whole number from least to most, both included."""
        return least + self.below(most - least + 1)

    def chance(self, part: float) -> bool:
        """Return True so often."""
        return self._random() < part

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.below(len(items))]

    def shuffle(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in another order."""
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def sift(self, items: Sequence[Item], part: float) -> list[Item]:
        """Return so large a part of the items, in their order."""
        return [item for item in items if self.chance(part)]
