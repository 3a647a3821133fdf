"""Measures: by what the policies compare tenants, each as an integer that orders them exactly.

* `DominantShares`: the weighted (virtual) dominant share on a pool, see `fairbind.scheduling.policies.levels`.
* `SumsOfShares`: the weighted sum of the shares of all resources (asset fairness; NSDI 2011, section 5.1).
* `TaskShares`: the weighted sum over the tasks of 1 / (how many of that task the whole cluster could run) (TSF).
* `TargetRatios`: what the tenant holds, in parts of its target (`fairbind.model.Targets`).

While tasks only come, a level never falls, and the filling relies on it. A caller that takes a task back (`remove`,
`evict`) must have the filling begin again with all levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import ClassVar, Protocol

from fairbind.model import RunningTask, Snapshot, TaskClass, Tenant
from fairbind.model.decisions import WEIGHTED_SHARE
from fairbind.model.servers import IndexArray
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.level_pools import (
    ABSENT,
    LevelPools,
    compute_class_pools,
    compute_cluster_pool,
    compute_open_class_pools,
    compute_target_pools,
    has_target_classes,
)
from fairbind.scheduling.policies.levels import EXACT_POOLS, Progress, compute_progress, find_least_level
from fairbind.scheduling.policies.subtrees import list_leaves

Undo = Callable[[], None]
"""Takes one change back; every change since must have been taken back."""

GUARD_BITS = 64
"""Sums of rounded terms carry so many digits more and are rounded at last, so that equal sums are equal."""

_HALF = 1 << GUARD_BITS - 1


class Measure(Protocol):
    """How far tenants have come.

    pools: on what; a measure of the whole cluster has one pool. label: what the numbers are, for people, after "its".
    max_kept_levels: a line with more open pools asks `find_least_level`; with fewer it keeps the levels that have not
    changed. begins_small: whether who holds nothing begins in the pool of which its task takes the least part.
    is_by_pool: whether a tenant's level may be another in each pool. may_fall: whether it may fall while tasks are only
    placed, because the pool that comes next is another one.
    """

    pools: LevelPools
    is_by_pool: bool
    may_fall: bool
    max_kept_levels: ClassVar[int]
    begins_small: ClassVar[bool]

    @property
    def label(self) -> str: ...  # noqa: D102

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant on a pool, exactly."""
        ...

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the least level on one of these pools, and its pool, the first of equals. among: ascending."""
        ...

    def find_bound(self, progress: Progress, among: IndexArray) -> int:
        """Return a level that `find_least_level` never gives less than on some of these pools."""
        ...

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:
        """Return the level of an inner tenant on a pool, exactly. used_up: the resources that are left out."""
        ...

    def compute_inner_share(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> float:
        """Return the same for people."""
        ...

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people."""
        ...

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task of a class, placed in a pool."""
        ...

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        ...

    def evict(self, progress: Progress, running: RunningTask, pool: int | None, gained_r: Sequence[int]) -> Undo:
        """Count one running task less, and return what takes that back.

        pool: of its server; None when that is not in the table. gained_r: by how much more is left on open servers.
        """
        ...


class DominantShares:
    """The weighted dominant share on a pool: DRF, DRFH, PS-DSF, rPS-DSF."""

    label: ClassVar[str] = WEIGHTED_SHARE
    max_kept_levels: ClassVar[int] = EXACT_POOLS
    begins_small: ClassVar[bool] = True
    may_fall = False

    def __init__(self, pools: LevelPools) -> None:
        self.pools = pools
        self.is_by_pool = pools.pool_k is not None
        self._is_lasting = len(pools.amount_pr) == 1 and not pools.residual

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant on a pool; on one whose amounts do not change it is known until it changes."""
        amount_r = self.pools.amount_pr[pool]
        if not self._is_lasting:
            return progress.compute_level(amount_r)
        if progress.known is None or progress.known[0] is not amount_r:
            progress.known = amount_r, progress.compute_level(amount_r)
        return progress.known[1]

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the least level on one of these pools and its pool."""
        return find_least_level(progress, self.pools, among)

    def find_bound(self, progress: Progress, among: IndexArray) -> int:
        """Return the least level on one of these pools."""
        return find_least_level(progress, self.pools, among)[0]

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:
        """Return the level of an inner tenant on a pool."""
        amount_r = self.pools.amount_pr[pool]
        return progress.compute_level(_leave_out(amount_r, used_up) if used_up else amount_r)

    def compute_inner_share(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> float:
        """Return the same for people."""
        return progress.compute_share(_leave_out(self.pools.amount_pr[pool], used_up))

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people; a resource of which nothing is left is left out."""
        return progress.compute_share(self.pools.amount_pr[pool])

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task."""
        progress.add(task_class.share_demand_r)
        self.pools.take(pool, task_class.demand_r)

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        progress.remove(task_class.share_demand_r)
        self.pools.give(pool, task_class.demand_r)

    def evict(self, progress: Progress, running: RunningTask, pool: int | None, gained_r: Sequence[int]) -> Undo:
        """Count one running task less, and return what takes that back."""
        progress.remove(running.share_demand_r)
        if pool is not None:
            self.pools.give(pool, gained_r)

        def undo() -> None:
            progress.add(running.share_demand_r)
            if pool is not None:
                self.pools.give(pool, [-gained for gained in gained_r])

        return undo


def _leave_out(amount_r: Sequence[int], used_up: AbstractSet[int]) -> Sequence[int]:
    """Return the amounts of a pool without those of some resources."""
    return [ABSENT if r in used_up else amount for r, amount in enumerate(amount_r)] if used_up else amount_r


class ClusterMeasure(ABC):
    """What the measures of the whole cluster have in common."""

    max_kept_levels: ClassVar[int] = EXACT_POOLS
    begins_small: ClassVar[bool] = False
    is_by_pool = False
    may_fall = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = compute_cluster_pool(snapshot)

    @abstractmethod
    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant."""

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the level, and the only pool."""
        pool = int(among[0])
        return self.compute_level(progress, pool), pool

    def find_bound(self, progress: Progress, among: IndexArray) -> int:
        """Return the level."""
        return self.compute_level(progress, int(among[0]))

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:
        """Return the level of an inner tenant: the weighted dominant share, where a measure says nothing else."""
        return progress.compute_level(_leave_out(self.pools.amount_pr[pool], used_up))

    def compute_inner_share(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> float:
        """Return the same for people."""
        return self.compute_inner_level(progress, pool, used_up) / (1 << KEY_BITS)

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:  # noqa: ARG002 (there is one pool)
        """Count one more task."""
        progress.add(task_class.share_demand_r)

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:  # noqa: ARG002 (there is one pool)
        """Take back what `add` counted."""
        progress.remove(task_class.share_demand_r)

    def evict(
        self,
        progress: Progress,
        running: RunningTask,
        pool: int | None,  # noqa: ARG002 (there is one pool)
        gained_r: Sequence[int],  # noqa: ARG002 (which does not change)
    ) -> Undo:
        """Count one running task less, and return what takes that back."""
        progress.remove(running.share_demand_r)
        return lambda: progress.add(running.share_demand_r)


class SumsOfShares(ClusterMeasure):
    """The weighted sum over the resources of what a tenant holds in parts of the total: asset fairness."""

    label: ClassVar[str] = "weighted sum of shares"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._terms: dict[str, tuple[list[tuple[int, int]], int]] = {}
        self._inner_terms: dict[str, tuple[list[tuple[int, int]], int]] = {}

    def compute_level(self, progress: Progress, pool: int) -> int:  # noqa: ARG002 (there is one pool)
        """Return the level of a tenant."""
        terms, divisor = self._get_terms(progress, self._terms)
        held_r = progress.held_r
        return (sum(held_r[r] * factor for r, factor in terms) << KEY_BITS) // divisor

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:  # noqa: ARG002
        """Return the level of an inner tenant."""
        terms, divisor = self._get_terms(progress, self._inner_terms)
        held_r = progress.held_r
        return (sum(held_r[r] * factor for r, factor in terms if r not in used_up) << KEY_BITS) // divisor

    def compute_share(self, progress: Progress, pool: int) -> float:  # noqa: ARG002 (there is one pool)
        """Return the level for people."""
        terms, divisor = self._get_terms(progress, self._terms)
        return sum(progress.held_r[r] * factor for r, factor in terms) / divisor

    def _get_terms(
        self, progress: Progress, terms_of: dict[str, tuple[list[tuple[int, int]], int]]
    ) -> tuple[list[tuple[int, int]], int]:
        """Return for each counting r the factor of what is held, and the divisor of the sum, all whole numbers.

        terms_of: those that are known, by name; an inner tenant may have the name of another one.
        """
        known = terms_of.get(progress.name)
        if known is None:
            total_r = self.pools.amount_pr[0]
            part_of = {r: Fraction(factor, divisor * total_r[r]) for r, factor, divisor in progress.terms}
            common = lcm(*(part.denominator for part in part_of.values()))
            terms = [(r, part.numerator * (common // part.denominator)) for r, part in part_of.items()]
            known = terms_of[progress.name] = terms, common
        return known


class TaskShares(ClusterMeasure):
    """The weighted sum over a tenant's tasks of 1 / (how many of that task the whole cluster could run): TSF.

    That number is counted with each server class as one pool, and what is held on servers that are not usable as one
    more, as the exact mechanism counts it, and counts only resources that count for shares. A task that no class could
    run, though the cluster has all that it asks for, counts with its dominant share. Weights of single resources have
    no meaning here.
    """

    label: ClassVar[str] = "weighted task share"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._axes = [r for r, total in enumerate(snapshot.total_r) if total > 0 and snapshot.counts_r[r]]
        self._total_r = snapshot.total_r
        self._class_pr = _compute_amounts(snapshot)
        self._keys: dict[tuple[int, ...], int] = {}
        self._tenants = {tenant.name: tenant for tenant in snapshot.tenants}
        self._weights = {tenant.name: tenant.weight.as_integer_ratio() for tenant in snapshot.tenants}
        self._sums = {tenant.name: self._compute_sum(tenant) for tenant in snapshot.tenants}
        self._holdings: dict[str, _TaskHoldings] = {}
        self._hierarchy = snapshot.hierarchy
        self._placed: dict[str, Counter[tuple[int, ...]]] = {}
        self._inner: dict[str, _InnerTasks] = {}
        self._above: dict[str, tuple[str, ...]] = {}

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant; it is known until the progress changes."""
        amount_r = self.pools.amount_pr[pool]
        if progress.known is None or progress.known[0] is not amount_r:
            progress.known = amount_r, _scale(self._sums[progress.name], self._weights[progress.name])
        return progress.known[1]

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people."""
        return self.compute_level(progress, pool) / (1 << KEY_BITS)

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task."""
        super().add(progress, task_class, pool)
        self._count(progress.name, task_class.share_demand_r, 1)

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        super().remove(progress, task_class, pool)
        self._count(progress.name, task_class.share_demand_r, -1)

    def evict(self, progress: Progress, running: RunningTask, pool: int | None, gained_r: Sequence[int]) -> Undo:
        """Count one running task less: one of those told task by task, or a part of the rest."""
        undo_progress = super().evict(progress, running, pool, gained_r)
        held = self._holdings.get(progress.name)
        if held is None:
            held = self._holdings[progress.name] = _TaskHoldings(self._tenants[progress.name])
        rest_r, demand_r = held.rest_r, running.share_demand_r
        self._forget_inner(progress.name)
        is_counted = held.counts[demand_r] > 0
        if is_counted:
            held.counts[demand_r] -= 1
            less = self._get_key(demand_r)
        else:
            held.rest_r = [rest - demand for rest, demand in zip(rest_r, demand_r, strict=False)]
            less = self._get_rest_key(rest_r) - self._get_rest_key(held.rest_r)
        self._sums[progress.name] -= less

        def undo() -> None:
            undo_progress()
            self._forget_inner(progress.name)
            held.counts[demand_r] += is_counted
            held.rest_r = rest_r
            self._sums[progress.name] += less

        return undo

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:  # noqa: ARG002
        """Return the level of an inner tenant: for a task, what is used up counts as if it had no end."""
        inner = self._inner.get(progress.name)
        if inner is None:
            inner = self._inner[progress.name] = self._gather(progress.name)
        if inner.used_up != used_up:
            inner.used_up = used_up
            inner.sum = sum(count * self._get_key(demand_r, used_up) for demand_r, count in inner.counts.items())
        return _scale(inner.sum, inner.weight)

    def _gather(self, name: str) -> _InnerTasks:
        """Return all tasks of the leaves below an inner tenant."""
        counts = Counter[tuple[int, ...]]()
        for leaf in list_leaves(self._hierarchy)[name]:
            held = self._holdings.get(leaf) or _TaskHoldings(self._tenants[leaf])
            counts.update(held.counts)
            counts.update(self._placed.get(leaf, ()))
            if any(held.rest_r):
                counts[tuple(max(rest, 0) for rest in held.rest_r)] += 1
        return _InnerTasks(counts, self._hierarchy.inner[name].tenant.weight.as_integer_ratio())

    def _count(self, name: str, share_demand_r: tuple[int, ...], count: int) -> None:
        """Count tasks that were placed for a leaf and all inner tenants above it."""
        key = self._get_key(share_demand_r)
        self._sums[name] += count * key
        if not self._hierarchy.inner:
            return
        self._placed.setdefault(name, Counter())[share_demand_r] += count
        for above in self._list_above(name):
            inner = self._inner.get(above)
            if inner is not None:
                inner.counts[share_demand_r] += count
                inner.sum += count * (self._get_key(share_demand_r, inner.used_up) if inner.used_up else key)

    def _list_above(self, name: str) -> tuple[str, ...]:
        """Return the names of the inner tenants above a leaf."""
        above = self._above.get(name)
        if above is None:
            above = self._above[name] = tuple(each.tenant.name for each in self._hierarchy.list_above(name))
        return above

    def _forget_inner(self, name: str) -> None:
        """Have the tasks below the inner tenants above a leaf gathered again."""
        for above in self._list_above(name):
            self._inner.pop(above, None)

    def _compute_sum(self, tenant: Tenant) -> int:
        """Return the sum over what the tenant holds; what is not told task by task counts as one task."""
        held = _TaskHoldings(tenant)
        total = sum(count * self._get_key(share_demand_r) for share_demand_r, count in held.counts.items())
        return total + self._get_rest_key(held.rest_r)

    def _get_rest_key(self, rest_r: Sequence[int]) -> int:
        return self._get_key(tuple(max(rest, 0) for rest in rest_r)) if any(rest_r) else 0

    def _get_key(self, share_demand_r: tuple[int, ...], used_up: AbstractSet[int] = frozenset()) -> int:
        """Return what a task counts. used_up: the resources of which there is as if without end."""
        if used_up:
            share_demand_r = tuple(0 if r in used_up else demand for r, demand in enumerate(share_demand_r))
        key = self._keys.get(share_demand_r)
        if key is None:
            share = compute_task_share(share_demand_r, self._class_pr, self._total_r, self._axes)
            key = (share.numerator << KEY_BITS + GUARD_BITS) // share.denominator
            self._keys[share_demand_r] = key
        return key


def _scale(tasks: int, weight: tuple[int, int]) -> int:
    """Return a sum over tasks as a level. weight: as numerator and denominator."""
    return (tasks * weight[1] // weight[0] + _HALF) >> GUARD_BITS


@dataclass(slots=True)
class _InnerTasks:
    """The tasks of all below an inner tenant, by what they count in shares. sum: over them, without what is used up.

    used_up: None before the first question; the sum means nothing until then. weight: as numerator and denominator.
    """

    counts: Counter[tuple[int, ...]]
    weight: tuple[int, int]
    sum: int = 0
    used_up: AbstractSet[int] | None = None


def _compute_amounts(snapshot: Snapshot) -> list[list[int]]:
    """Return what each class has, and last, if there is any, what is held on servers that are not usable."""
    class_pr = compute_class_pools(snapshot).amount_pr
    usable_r = [sum(max(amount, 0) for amount in amounts) for amounts in zip(*class_pr, strict=True)]
    resting_r = [total - usable for total, usable in zip(snapshot.total_r, usable_r, strict=False)]
    return [*class_pr, resting_r] if any(amount > 0 for amount in resting_r) else list(class_pr)


class _TaskHoldings:
    """What a tenant holds: counts of its tasks by what they count in shares, and the rest, which is not told apart."""

    __slots__ = ("counts", "rest_r")

    def __init__(self, tenant: Tenant) -> None:
        self.counts: Counter[tuple[int, ...]] = Counter()
        self.rest_r = list(tenant.allocated_r)
        for holding in tenant.holdings:
            self.counts[holding.share_demand_r] += holding.count
            self.rest_r = [
                rest - holding.count * demand for rest, demand in zip(self.rest_r, holding.share_demand_r, strict=False)
            ]


def compute_task_share(
    share_demand_r: Sequence[int], class_pr: Sequence[Sequence[int]], total_r: Sequence[int], axes: Sequence[int]
) -> Fraction:
    """Return 1 / (how many tasks of this demand the server classes run together, parts of tasks included).

    class_pr: what each class has, base units. total_r: the sum of it. axes: the resources that count and exist.

    >>> compute_task_share([1, 4], [[9, 18], [2, 0]], [11, 18], [0, 1])
    Fraction(2, 9)
    """
    demanded = [(r, share_demand_r[r]) for r in axes if share_demand_r[r] > 0]
    if not demanded:
        return Fraction(0)
    # For each resource, what the classes have of it that it is the bottleneck of.
    bottleneck_r = dict.fromkeys((r for r, _ in demanded), 0)
    for amount_r in class_pr:
        scarcest, demand = demanded[0]
        for r, other in demanded[1:]:
            if amount_r[r] * demand < amount_r[scarcest] * other:
                scarcest, demand = r, other
        bottleneck_r[scarcest] += max(amount_r[scarcest], 0)
    tasks = sum((Fraction(bottleneck_r[r], demand) for r, demand in demanded), Fraction(0))
    return 1 / tasks if tasks > 0 else max(Fraction(demand, total_r[r]) for r, demand in demanded)


def build_cluster_shares(snapshot: Snapshot) -> DominantShares:
    """Return the weighted dominant share of the cluster's totals."""
    return DominantShares(compute_cluster_pool(snapshot))


def build_class_shares(snapshot: Snapshot) -> DominantShares:
    """Return the weighted virtual dominant share on each class of servers: the snapshot's, or those of its targets."""
    compute = compute_target_pools if has_target_classes(snapshot.targets) else compute_open_class_pools
    return DominantShares(compute(snapshot))


def get_progress(snapshot: Snapshot) -> dict[str, Progress]:
    """Return each tenant's progress at the beginning of a cycle, in the order of their names."""
    tenants = sorted(snapshot.tenants, key=lambda tenant: tenant.name)
    return {tenant.name: compute_progress(tenant, snapshot) for tenant in tenants}
