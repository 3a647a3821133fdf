"""Tries: how many groups of one tenant are tried in vain in a cycle, so that its groups do not delay all others.

A try places the minimum task by task and takes it back when rules, keys or domains leave too few places, which nothing
cheaper tells. So only the first few groups of a tenant that fail are tried in a cycle, and a few more that take turns:
with each second the next ones in the order of their names, so that every group is tried in the end. Groups that fit, or
that have too few slots, cost no try in vain and are not bounded.

The turn follows from the time, so that a cycle decides the same whatever was before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MAX_TRIED_IN_VAIN = 4
"""So many groups of a tenant at most are tried in vain out of turn in a cycle, and so many have their turn."""

TURN_SECONDS = 1.0
"""After so long others have their turn."""


class Tries:
    """The tries of one cycle. owner_of: by name of the group who has it; tries of others are not bounded.

    passes_over: whether a group was passed over whose turn comes later.
    """

    def __init__(self, now: float, owner_of: Mapping[str, str]) -> None:
        """Begin without tries. now: seconds since the epoch."""
        self.owner_of = owner_of
        self._turn = int(now // TURN_SECONDS)
        self._failed = Counter[str]()
        self._next_of: dict[str, frozenset[str]] = {}
        self.passes_over = False

    @property
    def next_turn(self) -> float | None:
        """When other groups have their turn, seconds since the epoch; None: all were tried that had to be."""
        return (self._turn + 1) * TURN_SECONDS if self.passes_over else None

    def may_try(self, name: str) -> bool:
        """Tell whether a group may be tried, and note it if not."""
        owner = self.owner_of.get(name)
        is_allowed = owner is None or self._failed[owner] < MAX_TRIED_IN_VAIN or name in self._list_next(owner)
        self.passes_over |= not is_allowed
        return is_allowed

    def note_failed(self, name: str) -> None:
        """Note that a group was tried in vain."""
        if (owner := self.owner_of.get(name)) is not None:
            self._failed[owner] += 1

    def _list_next(self, owner: str) -> frozenset[str]:
        """Return the groups that have their turn."""
        if owner not in self._next_of:
            names = sorted(name for name, other in self.owner_of.items() if other == owner)
            first = self._turn * MAX_TRIED_IN_VAIN % len(names)
            self._next_of[owner] = frozenset((names[first:] + names[:first])[:MAX_TRIED_IN_VAIN])
        return self._next_of[owner]
