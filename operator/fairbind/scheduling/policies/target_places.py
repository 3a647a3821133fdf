"""Places: how far tenants are on each class of the targets.

A tenant's place on a class is what it holds there, in parts of what its target gives it there. Below 1 it lacks
something. It orders the classes for one tenant and compares no tenants, so float64 will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

from fairbind.model import RunningTask, Snapshot, Tenant
from fairbind.model.servers import FloatArray
from fairbind.scheduling.policies.level_pools import LevelPools, get_target_classes
from fairbind.scheduling.policies.measures import Undo


@dataclass(slots=True)
class _Held:
    """What one tenant holds in each pool. target_p: by pool; None: it has no target. place_p: shape (P,)."""

    held_pr: list[list[int]]
    target_p: tuple[float, ...] | None
    place_p: FloatArray


class TargetPlaces:
    """The places of all tenants, as they are after what was counted. pools: of `compute_target_pools`."""

    def __init__(self, snapshot: Snapshot, pools: LevelPools) -> None:
        self._snapshot = snapshot
        self._pools = pools
        self._tenants = {tenant.name: tenant for tenant in snapshot.tenants}
        self._axes = [r for r, total in enumerate(snapshot.total_r) if total > 0 and snapshot.counts_r[r]]
        self._knows_classes = get_target_classes(snapshot) is not None
        self._pool_of: dict[str, int] | None = None
        self._held: dict[str, _Held] = {}

    def get(self, tenant: str) -> FloatArray:
        """Return the places of a tenant, shape (P,); infinity where its target is nothing."""
        return self._get_held(tenant).place_p

    def shift(self, tenant: str, share_demand_r: Sequence[int], pool: int, sign: int) -> None:
        """Count a task more (1) or less (-1) that a tenant holds in a pool."""
        held = self._get_held(tenant)
        held_r = held.held_pr[pool]
        for r, demand in enumerate(share_demand_r):
            held_r[r] += sign * demand
        held.place_p[pool] = self._compute_place(held_r, held.target_p, pool)

    def evict(self, tenant: str, running: RunningTask, pool: int | None) -> Undo:
        """Count a running task of a tenant less, and return what takes that back.

        pool: of its server; None when that is not in the table.
        """
        # A holding that the snapshot does not give by server is on no server, so nothing is taken from one.
        held = self._tenants[tenant]
        is_known = running.server in held.allocated_by_server or (self._knows_classes and held.allocated_by_class)
        if pool is None or not is_known:
            return lambda: None
        self.shift(tenant, running.share_demand_r, pool, -1)
        return partial(self.shift, tenant, running.share_demand_r, pool, 1)

    def _get_held(self, tenant: str) -> _Held:
        held = self._held.get(tenant)
        if held is None:
            held = self._held[tenant] = self._compute_held(self._tenants[tenant])
        return held

    def _compute_held(self, tenant: Tenant) -> _Held:
        targets, target_p = self._snapshot.targets, None
        if targets is not None and targets.class_names and tenant.name in targets.shares:
            # The last pool, of servers that have come since, is in no target.
            target_p = (*targets.shares_by_class.get(tenant.name, (0.0,) * len(targets.class_names)), 0.0)
        held_pr = self._sum_held(tenant)
        place_p = np.array([self._compute_place(held_r, target_p, pool) for pool, held_r in enumerate(held_pr)])
        return _Held(held_pr, target_p, place_p)

    def _sum_held(self, tenant: Tenant) -> list[list[int]]:
        """Return what a tenant holds in each pool."""
        if self._knows_classes and tenant.allocated_by_class:
            return [list(amount_r) for amount_r in tenant.allocated_by_class]
        held_pr = [[0] * len(self._snapshot.resources) for _ in self._pools.amount_pr]
        if self._pool_of is None:
            pool_k = self._pools.pool_k
            names = () if pool_k is None else self._snapshot.servers.names
            self._pool_of = dict(zip(names, [] if pool_k is None else pool_k.tolist(), strict=True))
        for server, amount_r in tenant.allocated_by_server.items():
            pool = self._pool_of.get(server)
            if pool is not None:
                held_pr[pool] = [held + more for held, more in zip(held_pr[pool], amount_r, strict=True)]
        return held_pr

    def _compute_place(self, held_r: list[int], target_p: tuple[float, ...] | None, pool: int) -> float:
        """Return how far a tenant is on a pool: in parts of its target there, or of the pool when it has none."""
        if len(self._pools.amount_pr) == 1:
            return 0.0
        if target_p is None:
            amount_r = self._pools.amount_pr[pool]
            return max((held_r[r] / amount_r[r] for r in self._axes if amount_r[r] > 0), default=0.0)
        if target_p[pool] == 0:
            return inf
        total_r = self._snapshot.total_r
        return max((held_r[r] / total_r[r] for r in self._axes), default=0.0) / target_p[pool]
