"""Resources that are used up: no server has as much free of them as the least that a waiting task asks for.

What an inner tenant holds of such a resource no longer counts: its level would stay high for something that no task can
get, and what is left of other resources would go to others first.

For each resource a server that has enough is kept in mind. Only where that one has too little is another looked for,
beyond it: so all that is looked at in a cycle are the servers once, for each pool and resource.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairbind.model import ServerTable
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.least_asked import LeastAsked
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.policies.level_pools import LevelPools


class UsedUp:
    """Answers by pool. `follow` catches up with what was placed, `forget` begins again.

    pools: None where levels are compared on the whole cluster. axes: the resources that count in levels.
    _least_r: of `LeastAsked`, when it began. _placed_on: where something was placed since the last `follow`.
    _members: the servers of a pool that accept tasks. _place: for each pool and resource where the server with enough
    is among these. _watched: by server, the pools and resources for which it is kept.
    """

    __slots__ = (
        "_accepting_k",
        "_axes",
        "_free",
        "_known",
        "_least",
        "_least_r",
        "_members",
        "_place",
        "_placed_on",
        "_pools",
        "_watched",
    )

    def __init__(
        self,
        servers: ServerTable,
        free: FreeCapacity,
        pools: LevelPools | None,
        axes: Sequence[int],
        least: LeastAsked,
    ) -> None:
        self._accepting_k = servers.accepting_k
        self._free = free
        self._pools = pools
        self._axes = axes
        self._least = least
        self._members: dict[int, IndexArray] = {}
        self.forget()

    def forget(self) -> None:
        """Begin again: free capacity has come back."""
        self._known: dict[int, frozenset[int]] = {}
        self._place: dict[tuple[int, int], int] = {}
        self._watched: dict[int, list[tuple[int, int]]] = {}
        self._placed_on: list[int] = []
        self._least_r = self._least.least_r

    def note_placed(self, server: int) -> None:
        """Note that something was placed on a server."""
        self._placed_on.append(server)

    def get(self, pool: int) -> frozenset[int]:
        """Return the resources that are used up on a pool."""
        known = self._known.get(pool)
        if known is None:
            known = self._known[pool] = frozenset(r for r in self._axes if not self._find(pool, r, 0))
        return known

    def follow(self) -> bool:
        """Catch up with what was placed since, and tell whether an answer that was given is another now."""
        if self._least_r is not self._least.least_r:
            before = self._known
            self.forget()
            return any(self.get(pool) != known for pool, known in before.items())
        changed, placed_on, self._placed_on = False, self._placed_on, []
        for server in placed_on:
            for pool, r in self._watched.pop(server, ()):
                place = self._place[pool, r]
                if not self._find(pool, r, place):
                    self._known[pool] |= {r}
                    changed = True
        return changed

    def _find(self, pool: int, r: int, start: int) -> bool:
        """Keep in mind the first server with enough from a place on; False: there is none."""
        members, least, left_k = self._get_members(pool), self._least_r[r], self._free.left_rk[r]
        if start < len(members) and left_k[members[start]] >= least:
            place = start
        else:
            enough = np.flatnonzero(left_k[members[start:]] >= least)
            if len(enough) == 0:
                return False
            place = start + int(enough[0])
        self._place[pool, r] = place
        self._watched.setdefault(int(members[place]), []).append((pool, r))
        return True

    def _get_members(self, pool: int) -> IndexArray:
        members = self._members.get(pool)
        if members is None:
            is_member_k = self._accepting_k
            if self._pools is not None and self._pools.pool_k is not None:
                is_member_k = is_member_k & (self._pools.pool_k == pool)
            members = self._members[pool] = np.flatnonzero(is_member_k)
        return members
