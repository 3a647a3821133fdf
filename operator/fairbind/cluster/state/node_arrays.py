"""The arrays over the nodes that exist, in name order. Those that were handed out are never written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fairbind.cluster.state.node_state import Axes, NodeState, compute_rows
from fairbind.derived import Given
from fairbind.model.servers import BoolArray, IntArray


class NodeArrays:
    """The capacity of nodes and what is free there.

    names: of the nodes. index: their places, by name. capacity_kr, free_kr: along the axes. usable_k: which take pods
    at all. capacity: changes when names, capacities or usable nodes are others.
    """

    def __init__(self, axes: Axes) -> None:
        self.names: tuple[str, ...] = ()
        self.index: Mapping[str, int] = {}
        self.capacity_kr: IntArray = np.zeros((0, len(axes)), dtype=np.int64)
        self.free_kr: IntArray = self.capacity_kr.copy()
        self.usable_k: BoolArray = np.zeros(0, dtype=np.bool_)
        self.capacity = Given()

    def rebuild(self, states: Sequence[NodeState], axes: Axes, usable_k: BoolArray) -> None:
        """Make new arrays, for other nodes or along other axes."""
        self.capacity_kr, self.free_kr = compute_rows(states, axes)
        self.usable_k = usable_k
        self.capacity.note_change()

    def rewrite(self, rows: IntArray, states: Sequence[NodeState], axes: Axes, usable_n: BoolArray | None) -> None:
        """Write the rows of some nodes. usable_n: None where only what tenants' pods hold there is another."""
        capacity_nr, free_nr = compute_rows(states, axes)
        self.free_kr = self.free_kr.copy()
        self.free_kr[rows] = free_nr
        if usable_n is None:
            return
        if (self.capacity_kr[rows] != capacity_nr).any() or (self.usable_k[rows] != usable_n).any():
            self.capacity_kr, self.usable_k = self.capacity_kr.copy(), self.usable_k.copy()
            self.capacity_kr[rows], self.usable_k[rows] = capacity_nr, usable_n
            self.capacity.note_change()
