"""Soft preferences: which of the servers on which a task fits it should take. They close none of them.

Preferences are compared before fit. Each one gives every server on which the task fits a score from 0 to 100, and its
weight says how much of that counts; the server with the largest sum is taken, and of equal ones the one that fits best.
The scores are relative to the servers on which the task fits just now, so they change with what they are filled with,
and with what topology domains hold. Preferences that nothing in a cycle changes can be said as
`Placement.preference_k`, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairbind.model.topology import DomainCounter

FULL_SCORE = 100
"""What the server gets that a preference likes best."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ServerPreference:
    """A preference about the servers themselves. amount_k: never below zero, shape (K,), int64.

    The score is the amount in parts of the largest one; with `is_dislike` what is missing from there to the full score.
    most: what the amounts are parts of instead, at least as large as each of them and above zero.
    """

    amount_k: NDArray[np.int64]
    weight: int
    is_dislike: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PullPreference:
    """A preference to be near some tasks and away from others.

    pulls: counters of tasks, each with what one of them is worth in its domain; below zero: it is kept away from.
    The server with the least sum has the score 0 and the one with the largest the full one, with the others between.
    """

    pulls: tuple[tuple[DomainCounter, int], ...]
    weight: int


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class EvenPreference:
    """A preference to be where few such tasks are.

    counters: of tasks, each with the skew from which on it matters, at least 1. A server that is in no domain of one of
    them has the score 0.
    """

    counters: tuple[tuple[DomainCounter, int], ...]
    weight: int


Preference = ServerPreference | PullPreference | EvenPreference


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Preferences:
    """All preferences of a class. subjects: of all their counters."""

    preferences: tuple[Preference, ...]
    subjects: frozenset[Hashable] = field(init=False)

    def __post_init__(self) -> None:
        """Gather the subjects, which each cycle asks for."""
        object.__setattr__(self, "subjects", frozenset(counter.subject for counter in self.counters))

    @property
    def counters(self) -> tuple[DomainCounter, ...]:
        """All counters, in the order of the preferences."""
        return tuple(counter for preference in self.preferences for counter in list_counters(preference))


def list_counters(preference: Preference) -> list[DomainCounter]:
    """Return the counters of a preference."""
    match preference:
        case PullPreference():
            return [counter for counter, _ in preference.pulls]
        case EvenPreference():
            return [counter for counter, _ in preference.counters]
        case ServerPreference():
            return []
