"""Nominated pods: capacity of a node that is reserved for a pod which is not bound yet.

kube-scheduler evicts pods for one of higher priority, writes the node's name into `status.nominatedNodeName` and binds
the pod when the evicted ones have gone. Until then it is the nominated pod's, under any scheduler: a pod of its
priority or a lower one that takes it undoes the eviction. A pod of higher priority may take it, and of course the
nominated pod itself. That is how kube-scheduler reads the field, and so do we. Autoscalers and queueing controllers
write the field, too: the pod goes to that node when it fits there, whatever it would like of nodes.

So what is reserved comes off what is free on the node, and classes whose pods may use some of it all the same get it
back as `Placement.reserved`. Which reservations those are depends on a pod's priority only by which reserved priorities
are below it, and few are reserved at a time; so hardly a class is split by it.

A reservation ends with the pod: when it is bound (or we have decided to bind it), is deleted, ends, or loses the field.
One on a node that is not there means nothing until the node is there. Host ports of a nominated pod are not kept for
it. What other pods' affinity and spread make of it, `filters.nominated_rules` says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.nominated_rules import Nomination, Rank
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.derived import Given, Memo, Rotation
from fairbind.model import Placement
from fairbind.model.preferences import Preferences, ServerPreference

NOMINATED_WEIGHT = 1_000_000
"""Of the preference of a nominated pod for its node; all other weights together are far below."""
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
    """All of them. changes: of them. priorities_to_follow: those that came or went, which pods above may overtake."""

    def __init__(self, eligibility: Eligibility) -> None:
        self.changes = Given()
        self._eligibility = eligibility
        self._by_uid: dict[str, Nomination] = {}
        self._priorities: Counter[int] = Counter()
        self.priorities_to_follow = Rotation[int]()
        self._placements = Memo(self._make_placement, of=(self.changes, eligibility.nodes), most=MOST_KNOWN)

    def add(self, nomination: Nomination) -> None:
        """Take a reservation."""
        self._by_uid[nomination.uid] = nomination
        self._count(nomination.priority, 1)

    def remove(self, nomination: Nomination) -> None:
        """Take back what `add` took."""
        del self._by_uid[nomination.uid]
        self._count(nomination.priority, -1)

    def find_above_priority(self, priority: int) -> int | None:
        """Return the highest reserved priority that a pod of this priority is above, or None."""
        return max((reserved for reserved in self._priorities if reserved < priority), default=None)

    def reserve(self, base: Placement, key: QueueKey, axes: Axes, *, prefers: bool = True) -> Placement:
        """Return a placement with the reserved capacity that pods of a class may use; the same while nothing changes.

        prefers: whether it says which nodes they like best; then a nominated pod likes its node best of all.
        """
        if not key.has_reserved:
            return base
        return self._placements(base, key.rank, axes, prefers)

    def _make_placement(self, base: Placement, rank: Rank, axes: Axes, prefers: bool) -> Placement:  # noqa: FBT001 - a part of the key
        """Return a placement with the reserved capacity that pods of a rank may use."""
        made = replace(base, reserved=self._find_free(rank, axes))
        server = self._find_server(rank.nominated) if prefers else None
        return made if server is None else replace(made, preference_k=_prefer(base, server))

    def add_preference(self, preferences: Preferences, key: QueueKey) -> Preferences:
        """Return the preferences of a class with that of a nominated pod for its node, which outweighs the others."""
        server = self._find_server(key.nominated)
        if server is None:
            return preferences
        amount_k = np.zeros(len(self._eligibility.index), dtype=np.int64)
        amount_k[server] = 1
        amount_k.flags.writeable = False
        return Preferences((*preferences.preferences, ServerPreference(amount_k, NOMINATED_WEIGHT, most=1)))

    def _find_server(self, uid: str | None) -> int | None:
        """Return the server to which a pod is nominated; None: to none that is there."""
        nomination = None if uid is None else self._by_uid.get(uid)
        return None if nomination is None else self._eligibility.index.get(nomination.node)

    def _find_free(self, rank: Rank, axes: Axes) -> dict[int, tuple[int, ...]]:
        index, free = self._eligibility.index, dict[int, tuple[int, ...]]()
        for nomination in self._by_uid.values():
            if nomination.node in index and not rank.is_behind(nomination):
                server = index[nomination.node]
                promised_r = compute_vector(nomination.demand.real, axes)
                before_r = free.get(server, (0,) * len(axes))
                free[server] = tuple(one + other for one, other in zip(before_r, promised_r, strict=True))
        return free

    def _count(self, priority: int, sign: int) -> None:
        self.changes.note_change()
        before = self._priorities[priority]
        self._priorities[priority] += sign
        if not before or not self._priorities[priority]:
            self.priorities_to_follow.add([priority])
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
