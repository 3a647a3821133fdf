"""Where pods on their way will come to a node, as far as it can be foreseen.

A pod whose gate is open, or is asked to open, holds room on the node that was decided for it. Another scheduler places
it, there or elsewhere. When it comes to another node, the room there may be promised to a second pod, while its own is
free. If that were decided once more, more pods would have an open gate than the nodes can hold. So before each snapshot
the pods that do not fit where they were promised room are moved in the books:

* On a node that is gone, or on which more is held than it has, the youngest promises are taken back until the rest
  fits.
* Each of these pods gets room on the fullest node that it may use and where it fits, the oldest first.
* One that fits nowhere holds no room, and counts in its tenant's share. It is the first to get room where some comes
  free. Others may use meanwhile what is too little for it.
* One whose gate is not open yet stays where it is if it fits nowhere, and its opening finds out (`has_room`). It stays
  too where pods are narrowed, for it is being narrowed to its node and others like it.

A pod whose gate is opened so that a node is bought for it is homeless from the beginning.
The pods that a new leader finds on their way get room in the same manner: the operator before it decided room for them,
and nothing says where. Requests and the nodes that a pod may use are looked at; ports and other pods are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fairbind.cluster.cache.nodes import Servers
from fairbind.cluster.cache.pending import compute_vector
from fairbind.cluster.cache.pods import Held, Opened, PodEntry
from fairbind.cluster.cache.volumes import Volumes
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.model import PolicySettings
from fairbind.model.servers import IntArray, sum_free_shares
from fairbind.scheduling import POLICIES


class NodeBooks(Protocol):
    """The books, as far as room on nodes is concerned."""

    entries: dict[str, PodEntry]
    servers: Servers
    eligibility: Eligibility
    volumes: Volumes
    settings: PolicySettings
    narrows_to_nodes: bool


class Forecast:
    """The pods on their way, in the order of their promises.

    promised: those that hold room on a node where no one has seen them yet. homeless: those whose room was lost.
    """

    def __init__(self) -> None:
        self.promised: dict[str, PodEntry] = {}
        self.homeless: dict[str, PodEntry] = {}

    def note(self, entry: PodEntry) -> None:
        """Follow a pod of the other scheduler that was moved in the books."""
        facts, position = entry.facts, entry.position
        if facts.node is None and isinstance(position, Held) and position.node == entry.assumed:
            self.promised.setdefault(facts.uid, entry)
            self.homeless.pop(facts.uid, None)
        else:
            self.promised.pop(facts.uid, None)
            if not isinstance(position, Opened):
                self.homeless.pop(facts.uid, None)

    def forget(self, uid: str) -> None:
        """Look no more for room for a pod."""
        self.promised.pop(uid, None)
        self.homeless.pop(uid, None)

    def find_moves(self, books: NodeBooks) -> list[tuple[PodEntry, str | None]]:
        """Return which pods are to be moved to which node, or to none; those without one are remembered as homeless.

        The arrays of the nodes must be up to date.
        """
        free_kr = books.servers.free_kr.copy()
        narrows = books.narrows_to_nodes or POLICIES[books.settings.policy].decides_class
        lost = self._take_back(books.servers, free_kr, may_move_gated=not narrows)
        return self._seek(books, [*self.homeless.values(), *lost], free_kr)

    def find_homes(self, books: NodeBooks, opened: Sequence[PodEntry]) -> list[tuple[PodEntry, str | None]]:
        """Return where pods on their way that have no room get some; those that fit nowhere are homeless."""
        return self._seek(books, opened, books.servers.free_kr.copy())

    def _seek(self, books: NodeBooks, pods: Sequence[PodEntry], free_kr: IntArray) -> list[tuple[PodEntry, str | None]]:
        moves: list[tuple[PodEntry, str | None]] = []
        in_vain: set[tuple[object, object]] = set()  # room only shrinks on the way
        for entry in pods:
            shape = entry.facts.demand.real, entry.facts.constraints
            node = None
            if entry.facts.claims or shape not in in_vain:
                node = _find_node(books, entry, free_kr)
            if node is None and not entry.facts.claims:
                in_vain.add(shape)
            if node is None and entry.facts.gated:
                continue
            if node is None:
                self.homeless[entry.facts.uid] = entry
            if node != entry.assumed:
                moves.append((entry, node))
        return moves

    def _take_back(self, servers: Servers, free_kr: IntArray, *, may_move_gated: bool) -> list[PodEntry]:
        """Return the pods whose promises must be taken back, the oldest first, and add their room to what is free."""
        lost: dict[str, PodEntry] = {}
        for uid, entry in reversed(self.promised.items()):
            assert entry.assumed is not None
            if entry.facts.gated and not may_move_gated:
                continue
            server = servers.index.get(entry.assumed)
            if server is None:
                lost[uid] = entry
                continue
            lacking_r = free_kr[server] < 0
            if lacking_r.any():
                demand_r = _find_demand(entry, servers)
                if (demand_r[lacking_r] > 0).any():
                    free_kr[server] += demand_r
                    lost[uid] = entry
        return [lost[uid] for uid in reversed(lost)]


def find_opened(entries: Mapping[str, PodEntry]) -> list[PodEntry]:
    """Return the pods on their way that have no room, the oldest first."""
    opened = [entry for entry in entries.values() if isinstance(entry.position, Opened)]
    return sorted(opened, key=lambda entry: (entry.facts.created, entry.facts.uid))


def _find_node(books: NodeBooks, entry: PodEntry, free_kr: IntArray) -> str | None:
    """Return the fullest node that a pod may use and where it fits, and take its room there; None: there is none."""
    servers, facts = books.servers, entry.facts
    demand_r = _find_demand(entry, servers)
    constraints = books.volumes.constrain(facts) if facts.claims else facts.constraints
    eligible_k = books.eligibility.get_placement(constraints).eligible_k
    # What a pod does not ask for may be overcommitted.
    fits_k = np.flatnonzero(eligible_k & ((free_kr >= demand_r) | (demand_r == 0)).all(axis=1))
    if not fits_k.size:
        return None
    server = int(fits_k[int(sum_free_shares(free_kr[fits_k], servers.capacity_kr[fits_k]).argmin())])
    free_kr[server] -= demand_r
    return servers.names[server]


def _find_demand(entry: PodEntry, servers: Servers) -> IntArray:
    return np.array(compute_vector(entry.facts.demand.real, servers.axes), dtype=np.int64)
