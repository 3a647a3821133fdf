"""Arrange the servers that a placement allows in the order in which shapes look at them.

The order is by pool, then by preference (most wanted first), then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fairbind.model import Pin, Placement, ServerTable
from fairbind.model.servers import BoolArray, IndexArray
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.policies.level_pools import LevelPools

Slices = list[tuple[int, int]]

SMALL_PART = 0.5
"""An arrangement of a smaller part of the servers first leaves out changed servers that are not in it."""


class Arrangement:
    """The servers that a placement allows in a draft, in the order of pool, preference, name, whatever they have left.

    servers: indices, shape (n,). position_k: where each server is in it, n where it is not. pools: where it has
    servers, ascending; starts: the position where each of them starts. is_small: whether most servers are not in it.
    is_identity: whether it is all by name. restricted_k: servers of it that are closed to tasks of the placement
    whatever is free, shape (K,); None: none ever was.
    _slices: by pool, as (start, stop), the most wanted first; empty ones are left out.
    """

    __slots__ = (
        "_free",
        "_gains_seen",
        "_most_left_r",
        "_pools",
        "_slices",
        "is_identity",
        "is_small",
        "pools",
        "position_k",
        "restricted_k",
        "servers",
        "starts",
    )

    def __init__(self, placement: Placement, table: ServerTable, pools: LevelPools, free: FreeCapacity) -> None:
        self._slices: Mapping[int, Slices]
        servers = np.flatnonzero(placement.eligible_k & table.accepting_k)
        if pools.pool_k is not None or placement.preference_k is not None:
            servers, self._slices = _arrange(servers, placement, pools)
        else:
            self._slices = {0: [(0, len(servers))]} if len(servers) > 0 else {}
        self.servers: IndexArray = servers
        self.pools = list(self._slices)
        self.starts = [slices[0][0] for slices in self._slices.values()]
        count = len(table.names)
        self.is_small = len(servers) < SMALL_PART * count
        self.is_identity = len(servers) == count and bool((servers == np.arange(count)).all())
        self.position_k: NDArray[np.intp] = np.full(count, len(servers), dtype=np.intp)
        self.position_k[servers] = np.arange(len(servers))
        self._most_left_r: list[float] | None = None
        self.restricted_k: BoolArray | None = None
        self._pools = pools
        self._free = free
        self._gains_seen = 0

    def fork(self) -> Arrangement:
        """Return the same servers, closed and opened from now on apart from these."""
        forked = copy(self)
        forked.restricted_k = None if self.restricted_k is None else self.restricted_k.copy()
        return forked

    def find_most_left(self) -> Sequence[float]:
        """Return the most that one of its servers has had left of each resource, or more, whenever this is asked."""
        free, gains = self._free, self._free.gains
        if self._most_left_r is None:
            free_nr = free.free_kr if self.is_identity else free.free_kr[self.servers]
            self._most_left_r = free_nr.max(axis=0, initial=0).tolist()
        if self._gains_seen != len(gains):
            gained_rn = free.left_rk[:, gains[self._gains_seen :]]
            self._most_left_r = np.maximum(self._most_left_r, gained_rn.max(axis=1)).tolist()
            self._gains_seen = len(gains)
        return self._most_left_r

    def find_gained_pools(self, since: int) -> set[int]:
        """Return the pools where a server of the arrangement has gained some since `FreeCapacity.gains` was so long."""
        gained = {server for server in self._free.gains[since:] if self.position_k[server] < len(self.servers)}
        return {self._pools.get_pool(server) for server in gained}

    def restrict(self, servers: Iterable[int]) -> list[int]:
        """Close servers to tasks of the placement, and return those of them that were open."""
        restricted_k = self.restricted_k
        if restricted_k is None:
            restricted_k = self.restricted_k = np.zeros(len(self.position_k), dtype=np.bool_)
        changed = [server for server in dict.fromkeys(servers) if not restricted_k[server]]
        restricted_k[changed] = True
        return changed

    def lift(self, servers: Iterable[int]) -> list[int]:
        """Open servers again that were closed by `restrict`, and return those of them that were closed."""
        restricted_k = self.restricted_k
        if restricted_k is None:
            return []
        changed = [server for server in dict.fromkeys(servers) if restricted_k[server]]
        restricted_k[changed] = False
        return changed

    def find_pinned(self, pin: Pin) -> int | None:
        """Return the server of a pin, if it is one of these."""
        server = pin.server
        return server if server is not None and self.position_k[server] < len(self.servers) else None

    def get_slices(self, pool: int) -> Slices:
        """Return the pool's slices as (start, stop), the most wanted first; empty ones are left out."""
        return self._slices[pool]


def _arrange(servers: IndexArray, placement: Placement, pools: LevelPools) -> tuple[IndexArray, dict[int, Slices]]:
    """Return the servers in the order of pool, preference, name and each pool's slices of equal preference."""
    zeros = np.zeros(len(servers), dtype=np.int64)
    pool = zeros if pools.pool_k is None else pools.pool_k[servers].astype(np.int64)
    preference = zeros if placement.preference_k is None else -placement.preference_k[servers].astype(np.int64)
    order = np.lexsort((preference, pool))
    pool, preference = pool[order], preference[order]
    cuts = np.flatnonzero((np.diff(pool) != 0) | (np.diff(preference) != 0)) + 1
    edges = [0, *cuts.tolist(), len(servers)]
    slices: dict[int, Slices] = {}
    for start, stop in pairwise(edges):
        if start < stop:
            slices.setdefault(int(pool[start]), []).append((start, stop))
    return servers[order], slices
