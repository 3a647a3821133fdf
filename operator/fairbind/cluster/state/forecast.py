"""Where pods on their way will come to a node, as far as it can be foreseen.

A pod whose gate is open, or is asked to open, holds capacity on the node that was decided for it. Another scheduler
places it, there or elsewhere. When it comes to another node, the capacity there may be reserved for a second pod, while
its own is free. If that were decided once more, more pods would have an open gate than the nodes can hold. So before
each snapshot the pods that do not fit where capacity was reserved for them are moved in the state:

* On a node that is gone, or on which more is held than it has, the youngest reservations are taken back until the rest
  fits.
* Each of these pods gets capacity on the fullest node that it may use and where it fits, the oldest first.
* One that fits nowhere holds no capacity, and counts in its tenant's share. It is the first to get capacity where
  some comes free. Others may use meanwhile what is too little for it.
* One whose gate is not open yet stays where it is if it fits nowhere, and its opening finds out (`has_capacity`). Where
  policies decide by server class it is being narrowed to the class of its node, and moves inside that alone. It does
  not move when some nodes of the class may not be among those that it is narrowed to.

A pod whose gate is opened so that a node is bought for it is unplaced from the beginning.
The pods that a new leader finds on their way get capacity in the same manner: the operator before it decided capacity
for them, and nothing says where. Requests and the nodes that a pod may use are looked at; ports and other pods are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.objects.facts import MOST_HOSTS
from fairbind.cluster.state.node_state import compute_vector
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.pod_filters import PodFilters
from fairbind.cluster.state.pod_index import PodIndex
from fairbind.cluster.state.pods import PodEntry
from fairbind.cluster.state.policy import PolicyState
from fairbind.cluster.state.positions import Bound, Opened
from fairbind.cluster.state.schedulers import Schedulers
from fairbind.cluster.state.volumes import Volumes
from fairbind.model import ServerTable
from fairbind.model.servers import BoolArray, IntArray, sum_free_shares
from fairbind.scheduling import POLICIES


class NodeStates(Protocol):
    """The state, as far as free capacity on nodes is concerned."""

    schedulers: Schedulers
    pods: PodIndex
    servers: Servers
    filters: PodFilters
    volumes: Volumes
    policy: PolicyState


class Forecast:
    """The pods on their way, in the order of their reservations.

    reserved: those that hold capacity on a node where no one has seen them yet. unplaced: those whose capacity was
    lost.
    """

    def __init__(self) -> None:
        self.reserved: dict[str, PodEntry] = {}
        self.unplaced: dict[str, PodEntry] = {}

    def note(self, entry: PodEntry) -> None:
        """Follow a pod of the other scheduler that was moved in the state."""
        facts, position = entry.facts, entry.position
        if facts.node is None and isinstance(position, Bound) and position.node == entry.assumed:
            self.reserved.setdefault(facts.uid, entry)
            self.unplaced.pop(facts.uid, None)
        else:
            self.reserved.pop(facts.uid, None)
            if not isinstance(position, Opened):
                self.unplaced.pop(facts.uid, None)

    def forget(self, uid: str) -> None:
        """Look no more for capacity for a pod."""
        self.reserved.pop(uid, None)
        self.unplaced.pop(uid, None)

    def find_moves(self, state: NodeStates, decided: ServerTable | None = None) -> list[tuple[PodEntry, str | None]]:
        """Return which pods are to be moved to which node, or to none; those without one are remembered as unplaced.

        The arrays of the nodes must be up to date. decided: the nodes as of the last decisions, with their classes;
        None: there were none.
        """
        free_kr = state.servers.arrays.free_kr.copy()
        class_k = None
        may_move_gated = not state.schedulers.narrows_to_nodes
        if POLICIES[state.policy.settings.policy].decides_class:
            may_move_gated = decided is not None and decided.names is state.servers.names
            class_k = decided.class_k if decided is not None and may_move_gated else None
        lost = self._take_back(state.servers, free_kr, may_move_gated=may_move_gated)
        return self._seek(state, [*self.unplaced.values(), *lost], free_kr, class_k)

    def find_free_nodes(self, state: NodeStates, opened: Sequence[PodEntry]) -> list[tuple[PodEntry, str | None]]:
        """Return where pods on their way without capacity get some; those that fit nowhere are unplaced."""
        return self._seek(state, opened, state.servers.arrays.free_kr.copy())

    def _seek(
        self,
        state: NodeStates,
        pods: Sequence[PodEntry],
        free_kr: IntArray,
        class_k: NDArray[np.int32] | None = None,
    ) -> list[tuple[PodEntry, str | None]]:
        """class_k: the class of each node, where pods behind the gate stay in that of their own."""
        moves: list[tuple[PodEntry, str | None]] = []
        in_vain: set[tuple[object, object, int | None]] = set()  # free capacity only shrinks on the way
        for entry in pods:
            within, within_k = None, None
            if class_k is not None and entry.facts.gated and entry.assumed is not None:
                server = state.servers.index.get(entry.assumed)
                if server is None:
                    continue
                within = int(class_k[server])
                within_k = class_k == class_k[server]
            shape = entry.facts.demand.real, entry.facts.constraints, within
            node = None
            if entry.facts.claims or shape not in in_vain:
                node = _find_node(state, entry, free_kr, within_k)
            if node is None and not entry.facts.claims:
                in_vain.add(shape)
            if node is None and entry.facts.gated:
                continue
            if node is None:
                self.unplaced[entry.facts.uid] = entry
            if node != entry.assumed:
                moves.append((entry, node))
        return moves

    def _take_back(self, servers: Servers, free_kr: IntArray, *, may_move_gated: bool) -> list[PodEntry]:
        """Return the pods whose reservations must be taken back, the oldest first; count their capacity as free."""
        lost: dict[str, PodEntry] = {}
        for uid, entry in reversed(self.reserved.items()):
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
    """Return the pods on their way that have no free capacity, the oldest first."""
    opened = [entry for entry in entries.values() if isinstance(entry.position, Opened)]
    return sorted(opened, key=lambda entry: (entry.facts.created, entry.facts.uid))


def _find_node(
    state: NodeStates, entry: PodEntry, free_kr: IntArray, in_class_k: BoolArray | None = None
) -> str | None:
    """Return the fullest node that a pod may use and where it fits, and take its capacity there; None: there is none.

    in_class_k: whether nodes are of the class in which it stays; None: it may go to any class.
    """
    servers, facts = state.servers, entry.facts
    demand_r = _find_demand(entry, servers)
    constraints = state.volumes.constrain(facts) if facts.claims else facts.constraints
    eligible_k = state.filters.eligibility.get_placement(constraints).eligible_k
    if in_class_k is not None:
        eligible_k = eligible_k & in_class_k
        if np.count_nonzero(eligible_k) > MOST_HOSTS:
            return None
    # What a pod does not ask for may be overcommitted.
    fits_k = np.flatnonzero(eligible_k & ((free_kr >= demand_r) | (demand_r == 0)).all(axis=1))
    if not fits_k.size:
        return None
    server = int(fits_k[int(sum_free_shares(free_kr[fits_k], servers.arrays.capacity_kr[fits_k]).argmin())])
    free_kr[server] -= demand_r
    return servers.names[server]


def _find_demand(entry: PodEntry, servers: Servers) -> IntArray:
    return np.array(compute_vector(entry.facts.demand.real, servers.axes), dtype=np.int64)
