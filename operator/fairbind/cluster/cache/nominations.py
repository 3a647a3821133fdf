"""Nominated pods: capacity of a node that is promised to a pod which is not bound yet.

kube-scheduler evicts pods for one of higher priority, writes the node's name into `status.nominatedNodeName` and binds
the pod when the evicted ones have gone. Until then it is the nominated pod's, under any scheduler: a pod of its
priority or a lower one that takes it undoes the eviction. A pod of higher priority may take it, and of course the
nominated pod itself. That is how kube-scheduler reads the field, and so do we.

So what is promised comes off what is free on the node, and classes whose pods may use some of it all the same get it
back as `Placement.reserved`. Which promises those are depends on a pod's priority only by which promised priorities are
below it, and few are promised at a time; so hardly a class is split by it.

A promise ends with the pod: when it is bound (or we have decided to bind it), is deleted, ends, or loses the field. One
on a node that is not there means nothing until the node is there. Host ports of a nominated pod are not kept for it.
What other pods' affinity and spread make of it, `filters.promised_pods` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairbind.cluster.cache.node_books import Axes
from fairbind.cluster.cache.pending import QueueKey, compute_vector
from fairbind.cluster.filters.promised_pods import Nomination
from fairbind.model import Placement

MOST_KNOWN = 4_096
"""So many placements are remembered at most."""


@dataclass(frozen=True, slots=True)
class NominationChange:
    """What the field of one of our own pods should say. version: of the pod. node: None: nothing any more."""

    uid: str
    namespace: str
    name: str
    version: str
    node: str | None


class Nominations:
    """All of them. version: grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_uid: dict[str, Nomination] = {}
        self._priorities: Counter[int] = Counter()
        self._least_changed: int | None = None
        self._placements: dict[tuple[int, int | None, str | None], tuple[Placement, Placement]] = {}
        self._made_for: tuple[int, Axes, Mapping[str, int]] = -1, (), {}

    def add(self, nomination: Nomination) -> None:
        """Take a promise."""
        self._by_uid[nomination.uid] = nomination
        self._count(nomination.priority, 1)

    def remove(self, nomination: Nomination) -> None:
        """Take back what `add` took."""
        del self._by_uid[nomination.uid]
        self._count(nomination.priority, -1)

    def find_overtaken(self, priority: int) -> int | None:
        """Return the highest promised priority that a pod of this priority is above, or None."""
        return max((promised for promised in self._priorities if promised < priority), default=None)

    def take_least_changed(self) -> int | None:
        """Return the least priority that came or went; pods above it may overtake others now. Asked again: None."""
        least, self._least_changed = self._least_changed, None
        return least

    def reserve(self, base: Placement, key: QueueKey, axes: Axes, index: Mapping[str, int]) -> Placement:
        """Return a placement with the promised room that pods of a class may use; the same while nothing changes.

        index: of each node by its name; another object when it changes.
        """
        if not key.has_reserved:
            return base
        version, known_axes, known_index = self._made_for
        is_known = (version, known_axes) == (self.version, axes) and known_index is index
        if not is_known or len(self._placements) > MOST_KNOWN:
            self._made_for = self.version, axes, index
            self._placements.clear()
        known = self._placements.get((id(base), key.overtaken, key.nominee))
        if known is None:
            known = base, replace(base, reserved=self._find_room(key, axes, index))
            self._placements[id(base), key.overtaken, key.nominee] = known
        return known[1]

    def _find_room(self, key: QueueKey, axes: Axes, index: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
        rank, room = key.rank, dict[int, tuple[int, ...]]()
        for nomination in self._by_uid.values():
            if nomination.node in index and not rank.is_behind(nomination):
                server = index[nomination.node]
                promised_r = compute_vector(nomination.demand.real, axes)
                before_r = room.get(server, (0,) * len(axes))
                room[server] = tuple(one + other for one, other in zip(before_r, promised_r, strict=True))
        return room

    def _count(self, priority: int, sign: int) -> None:
        self.version += 1
        before = self._priorities[priority]
        self._priorities[priority] += sign
        if not before or not self._priorities[priority]:
            least = self._least_changed
            self._least_changed = priority if least is None else min(least, priority)
        if not self._priorities[priority]:
            del self._priorities[priority]
