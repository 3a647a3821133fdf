"""Soft wishes: which of the servers on which a task fits it should take. They close none of them.

Wishes are compared before fit. Each one gives every server on which the task fits a score from 0 to 100, and its weight
says how much of that counts; the server with the largest sum is taken, and of equal ones the one that fits best. The
scores are relative to the servers on which the task fits just now, so they change with what they are filled with, and
with what topology domains hold. Wishes that nothing in a cycle changes can be said as `Placement.preference_k`, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairbind.model.topology import DomainCounter

FULL_SCORE = 100
"""What the server gets that a wish likes best."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ServerWish:
    """A wish about the servers themselves. amount_k: never below zero, shape (K,), int64.

    The score is the amount in parts of the largest one; with `is_dislike` what is missing from there to the full score.
    most: what the amounts are parts of instead, at least as large as each of them and above zero.
    """

    amount_k: NDArray[np.int64]
    weight: int
    is_dislike: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PullWish:
    """A wish to be near some tasks and away from others.

    pulls: counters of tasks, each with what one of them is worth in its domain; below zero: it is kept away from.
    The server with the least sum has the score 0 and the one with the largest the full one, with the others between.
    """

    pulls: tuple[tuple[DomainCounter, int], ...]
    weight: int


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class EvenWish:
    """A wish to be where few such tasks are.

    counters: of tasks, each with the skew from which on it matters, at least 1. A server that is in no domain of one of
    them has the score 0.
    """

    counters: tuple[tuple[DomainCounter, int], ...]
    weight: int


SoftWish = ServerWish | PullWish | EvenWish


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SoftWishes:
    """All soft wishes of a class. subjects: of all their counters."""

    wishes: tuple[SoftWish, ...]
    subjects: frozenset[Hashable] = field(init=False)

    def __post_init__(self) -> None:
        """Gather the subjects, which each cycle asks for."""
        object.__setattr__(self, "subjects", frozenset(counter.subject for counter in self.counters))

    @property
    def counters(self) -> tuple[DomainCounter, ...]:
        """All counters, in the order of the wishes."""
        return tuple(counter for wish in self.wishes for counter in list_counters(wish))


def list_counters(wish: SoftWish) -> list[DomainCounter]:
    """Return the counters of a wish."""
    match wish:
        case PullWish():
            return [counter for counter, _ in wish.pulls]
        case EvenWish():
            return [counter for counter, _ in wish.counters]
        case ServerWish():
            return []
