"""Which nodes reach the volumes of a task, for all nodes at once: what `volume_topology` says of one."""

from __future__ import annotations

from functools import reduce

import numpy as np

from fairbind.cluster.filters.node_columns import NodeColumns
from fairbind.cluster.filters.volume_topology import PRESENT_NAMES
from fairbind.cluster.objects.volume_facts import TOPOLOGY_LABELS, VolumeTopology
from fairbind.model.servers import BoolArray


def match_affinities(topology: VolumeTopology, columns: NodeColumns) -> BoolArray:
    """Return which nodes the volumes' node affinity allows, shape (K,)."""
    match_k = columns.match_pairs(())
    for terms in topology.affinities:
        match_k &= reduce(np.logical_or, map(columns.match_term, terms), np.zeros_like(match_k))
    return match_k


def match_zones(topology: VolumeTopology, columns: NodeColumns) -> BoolArray:
    """Return which nodes the volumes' zone labels allow, shape (K,)."""
    match_k = columns.match_pairs(())
    for key, values in topology.zones:
        found_k = columns.match_values(key, values)
        other = PRESENT_NAMES.get(key)
        if other is not None:
            found_k = found_k | (columns.match_values(other, values) & ~columns.match_present(key))
        match_k &= found_k
    if topology.zones:
        match_k |= ~reduce(np.logical_or, map(columns.match_present, TOPOLOGY_LABELS))
    return match_k
