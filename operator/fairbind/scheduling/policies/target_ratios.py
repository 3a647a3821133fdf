"""Following targets: who lags its target most is next.

A tenant's ratio is what it holds in parts of its target: the largest one over the resources, so that a tenant that has
all that it shall have of one resource leaves the rest of that to others, however much it lacks of another. The least
ratio comes next. On which of the target's server classes is decided by the same question there: what the tenant holds
on the class, in parts of what the target gives it there. So the tenant comes first and the class second: a tenant that
has its share, only elsewhere than the exact mechanism would have put it, takes nothing from others.

* No tenant stops at the target. Remaining capacity goes on in the order of the ratios, so no task waits that would fit.
* A class where the target gives the tenant nothing is its last choice, also servers that have come since.
* A tenant that has come since the targets were made is compared as if its target were its weight times what the others
  get for a weight of 1 on average. So without any targets this is the order of weighted dominant shares.
* A tenant whose target is nothing comes after all others; among such the weighted dominant share decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import ClassVar

import numpy as np

from fairbind.model import RunningTask, Snapshot, TaskClass, Tenant
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.level_pools import compute_target_pools
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import Undo


@dataclass(slots=True)
class _Standing:
    """How far one tenant is. What it holds, in parts of its target, is max over r of held_r * factor / divisor.

    terms: (r, factor, divisor) of it. offset: comes on top. target_p: by pool, None for a tenant without a target.
    held_pr: what it holds in each pool. place_p: how far the tenant is on each pool, shape (P,).
    """

    terms: tuple[tuple[int, int, int], ...]
    offset: int
    target_p: tuple[float, ...] | None
    held_pr: list[list[int]]
    place_p: FloatArray

    def compute_ratio(self, progress: Progress) -> int:
        """Return the ratio, exactly."""
        held_r = progress.held_r
        return self.offset + max(
            ((held_r[r] * factor << KEY_BITS) // divisor for r, factor, divisor in self.terms), default=0
        )


class TargetRatios:
    """What a tenant holds in parts of its target; on which pool is the tenant's own matter."""

    label: ClassVar[str] = "part of its target"
    max_kept_levels: ClassVar[int] = 1
    begins_small: ClassVar[bool] = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = compute_target_pools(snapshot)
        self._snapshot = snapshot
        self._tenants = {tenant.name: tenant for tenant in snapshot.tenants}
        self._targets = get_targets(snapshot)
        self._unit = compute_target_of_weight_one(snapshot, self._targets)
        self._axes = [r for r, total in enumerate(snapshot.total_r) if total > 0 and snapshot.counts_r[r]]
        pool_k = self.pools.pool_k
        self._pool_of = {} if pool_k is None else dict(zip(snapshot.servers.names, pool_k.tolist(), strict=True))
        self._standings: dict[str, _Standing] = {}

    def compute_level(self, progress: Progress, pool: int) -> int:  # noqa: ARG002 (it is the same on all pools)
        """Return the level of a tenant: the ratio."""
        return self._get_standing(progress).compute_ratio(progress)

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the level, and the one of these pools where the tenant lacks most of its target there."""
        pool = int(among[self._get_standing(progress).place_p[among].argmin()])
        return self.compute_level(progress, pool), pool

    def compute_share(self, progress: Progress, pool: int) -> float:  # noqa: ARG002 (it is the same on all pools)
        """Return the ratio for people, of a tenant that gets something; others have none."""
        terms = self._get_standing(progress).terms
        return max((progress.held_r[r] * factor / divisor for r, factor, divisor in terms), default=0.0)

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task of a class, placed in a pool."""
        progress.add(task_class.share_demand_r)
        self._shift(progress, task_class.share_demand_r, pool, 1)

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        progress.remove(task_class.share_demand_r)
        self._shift(progress, task_class.share_demand_r, pool, -1)

    def evict(
        self,
        progress: Progress,
        running: RunningTask,
        pool: int | None,
        gained_r: Sequence[int],  # noqa: ARG002 (no pool loses anything)
    ) -> Undo:
        """Count one running task less, and return what takes that back."""
        # What the snapshot does not tell by server is held nowhere in particular, so it goes from nowhere.
        is_known = running.server in self._tenants[progress.name].allocated_by_server
        at = pool if is_known else None
        progress.remove(running.share_demand_r)
        if at is not None:
            self._shift(progress, running.share_demand_r, at, -1)

        def undo() -> None:
            progress.add(running.share_demand_r)
            if at is not None:
                self._shift(progress, running.share_demand_r, at, 1)

        return undo

    def _shift(self, progress: Progress, share_demand_r: Sequence[int], pool: int, sign: int) -> None:
        """Count a task more or less that the tenant holds in a pool."""
        standing = self._get_standing(progress)
        held_r = standing.held_pr[pool]
        for r, demand in enumerate(share_demand_r):
            held_r[r] += sign * demand
        standing.place_p[pool] = self._compute_place(held_r, standing.target_p, pool)

    def _get_standing(self, progress: Progress) -> _Standing:
        standing = self._standings.get(progress.name)
        if standing is None:
            standing = self._standings[progress.name] = self._compute_standing(progress)
        return standing

    def _compute_standing(self, progress: Progress) -> _Standing:
        total_r = self._snapshot.total_r
        target = self._targets.get(progress.name)
        if target:
            terms = tuple((r, share.denominator, share.numerator * total_r[r]) for r, share in target.items())
        else:
            unit = self._unit if target is None else Fraction(1)
            terms = tuple(
                (r, factor * unit.denominator, divisor * unit.numerator * total_r[r])
                for r, factor, divisor in progress.terms
            )
        targets = self._snapshot.targets
        target_p = None
        if target is not None and targets is not None and targets.class_names:
            # The last pool, of servers that have come since, is in no target.
            target_p = (*targets.shares_by_class.get(progress.name, (0.0,) * len(targets.class_names)), 0.0)
        held_pr = self._compute_held(self._tenants[progress.name])
        place_p = np.array([self._compute_place(held_r, target_p, pool) for pool, held_r in enumerate(held_pr)])
        return _Standing(terms, INFINITE_LEVEL if target == {} else 0, target_p, held_pr, place_p)

    def _compute_held(self, tenant: Tenant) -> list[list[int]]:
        held_pr = [[0] * len(self._snapshot.resources) for _ in self.pools.amount_pr]
        for server, amount_r in tenant.allocated_by_server.items():
            pool = self._pool_of.get(server)
            if pool is not None:
                held_pr[pool] = [held + more for held, more in zip(held_pr[pool], amount_r, strict=True)]
        return held_pr

    def _compute_place(self, held_r: list[int], target_p: tuple[float, ...] | None, pool: int) -> float:
        """Return how far a tenant is on a pool: in parts of its target there, or of the pool when it has none.

        A comparison of pools for one tenant, so float64 will do; ties go to the first pool.
        """
        if len(self.pools.amount_pr) == 1:
            return 0.0
        if target_p is None:
            amount_r = self.pools.amount_pr[pool]
            return max((held_r[r] / amount_r[r] for r in self._axes if amount_r[r] > 0), default=0.0)
        if target_p[pool] == 0:
            return inf
        total_r = self._snapshot.total_r
        return max((held_r[r] / total_r[r] for r in self._axes), default=0.0) / target_p[pool]


def get_targets(snapshot: Snapshot) -> dict[str, dict[int, Fraction]]:
    """Return the targets above 0, by tenant and axis; a tenant whose target is nothing has an empty one."""
    if snapshot.targets is None:
        return {}
    axis_of = {name: r for r, name in enumerate(snapshot.resources) if snapshot.total_r[r] > 0 and snapshot.counts_r[r]}
    axes = [axis_of.get(name) for name in snapshot.targets.resources]
    return {
        name: {r: Fraction(share) for r, share in zip(axes, row, strict=True) if r is not None and share > 0}
        for name, row in snapshot.targets.shares.items()
    }


def compute_target_of_weight_one(snapshot: Snapshot, targets: Mapping[str, Mapping[int, Fraction]]) -> Fraction:
    """Return what the targets give for a weight of 1 on average, as dominant shares; 1 when no tenant gets anything."""
    served = [(max(targets[t.name].values()), t.weight) for t in snapshot.tenants if targets.get(t.name)]
    if not served:
        return Fraction(1)
    return sum((share for share, _ in served), Fraction(0)) / sum((weight for _, weight in served), Fraction(0))
