"""Nominated pods: capacity of a node that is promised to a pod which is not bound yet.

kube-scheduler evicts pods for one of higher priority, writes the node's name into `status.nominatedNodeName` and binds
the pod when the evicted ones have gone. Until then it is the nominated pod's, under any scheduler: a pod of its
priority or a lower one that takes it undoes the eviction. A pod of higher priority may take it, and of course the
nominated pod itself. That is how kube-scheduler reads the field, and so do we. Autoscalers and queueing controllers
write the field, too: the pod goes to that node when it fits there, whatever it would like of nodes.

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

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.filters.promised_pods import Nomination
from fairbind.cluster.state.node_books import Axes, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.model import Placement
from fairbind.model.wishes import ServerWish, SoftWishes

NOMINATED_WEIGHT = 1_000_000
"""Of the wish of a nominated pod for its node; all other weights together are far below."""
MOST_KNOWN = 4_096
"""So many placements are remembered at most."""


@dataclass(frozen=True, slots=True)
class NominationChange:
    """The change after which the field of one of our own pods says what it should.

    version: of the pod. node: None: nothing any more, unless others have written it. said: what it says.
    """

    uid: str
    namespace: str
    name: str
    version: str
    node: str | None
    said: str | None = None


class Nominations:
    """All of them. version: grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_uid: dict[str, Nomination] = {}
        self._priorities: Counter[int] = Counter()
        self._least_changed: int | None = None
        self._placements: dict[tuple[int, int | None, str | None, bool], tuple[Placement, Placement]] = {}
        self._made_for: tuple[int, Axes, Mapping[str, int]] = -1, (), {}

    def add(self, nomination: Nomination) -> None:
        """Take a promise."""
        self._by_uid[nomination.uid] = nomination
        self._count(nomination.priority, 1)

    def remove(self, nomination: Nomination) -> None:
        """Take back what `add` took."""
        del self._by_uid[nomination.uid]
        self._count(nomination.priority, -1)

    def find_above_priority(self, priority: int) -> int | None:
        """Return the highest promised priority that a pod of this priority is above, or None."""
        return max((promised for promised in self._priorities if promised < priority), default=None)

    def take_least_changed(self) -> int | None:
        """Return the least priority that came or went; pods above it may overtake others now. Asked again: None."""
        least, self._least_changed = self._least_changed, None
        return least

    def reserve(
        self, base: Placement, key: QueueKey, axes: Axes, index: Mapping[str, int], *, prefers: bool = True
    ) -> Placement:
        """Return a placement with the promised room that pods of a class may use; the same while nothing changes.

        index: of each node by its name; another object when it changes. prefers: whether the placement says which nodes
        they like best; then a nominated pod likes its node best of all.
        """
        if not key.has_reserved:
            return base
        version, known_axes, known_index = self._made_for
        is_known = (version, known_axes) == (self.version, axes) and known_index is index
        if not is_known or len(self._placements) > MOST_KNOWN:
            self._made_for = self.version, axes, index
            self._placements.clear()
        asked = id(base), key.above_priority, key.nominated, prefers
        known = self._placements.get(asked)
        if known is None:
            made = replace(base, reserved=self._find_room(key, axes, index))
            server = self._find_server(key, index) if prefers else None
            if server is not None:
                made = replace(made, preference_k=_prefer(base, server))
            known = self._placements[asked] = base, made
        return known[1]

    def add_wish(self, wishes: SoftWishes, key: QueueKey, index: Mapping[str, int]) -> SoftWishes:
        """Return the soft wishes of a class with that of a nominated pod for its node, which outweighs the others."""
        server = self._find_server(key, index)
        if server is None:
            return wishes
        amount_k = np.zeros(len(index), dtype=np.int64)
        amount_k[server] = 1
        amount_k.flags.writeable = False
        return SoftWishes((*wishes.wishes, ServerWish(amount_k, NOMINATED_WEIGHT, most=1)))

    def _find_server(self, key: QueueKey, index: Mapping[str, int]) -> int | None:
        """Return the server to which the pod of a class is nominated; None: to none that is there."""
        nomination = None if key.nominated is None else self._by_uid.get(key.nominated)
        return None if nomination is None else index.get(nomination.node)

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


def _prefer(base: Placement, server: int) -> NDArray[np.int64]:
    """Return the preferences of a placement with one server above all others, shape (K,)."""
    if base.preference_k is None:
        preference_k = np.zeros(len(base.eligible_k), dtype=np.int64)
    else:
        preference_k = base.preference_k.copy()
    preference_k[server] = int(preference_k.max()) + 1
    preference_k.flags.writeable = False
    return preference_k
