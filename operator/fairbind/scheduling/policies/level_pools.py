"""Pools: what tenants' levels are compared on: the whole cluster, each server class, or the classes of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairbind.model import ServerTable, Snapshot, TargetClasses, Targets
from fairbind.model.servers import BoolArray, FloatArray, IndexArray, IntArray

ABSENT = -1
"""Stands in a pool for a resource that the pool never had or that does not count."""

_LOW_BITS = 32


@dataclass(slots=True)
class LevelPools:
    """The pools that levels refer to. Pool p of a policy with classes is the server class p.

    amount_pr: c, Python integers, ABSENT where a resource does not count. pool_k: each server's pool; None: one for
    all. residual: whether a placement takes from the pool. version_p: grows with every change of the pool.
    inverse_rp: 1 / c as float64, 0 where a resource does not count, infinity where nothing is left, shape (R, P).
    kind_p: pools of equal amounts have equal numbers. every_p: all pools, ascending; not to be written to.
    """

    amount_pr: list[list[int]]
    pool_k: NDArray[np.int32] | None = None
    residual: bool = False
    version_p: list[int] = field(init=False)
    inverse_rp: FloatArray = field(init=False)
    kind_p: list[int] = field(init=False)
    every_p: IndexArray = field(init=False)
    _kinds: dict[tuple[int, ...], int] = field(init=False, default_factory=dict)
    _left_pr: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.amount_pr)
        self.version_p, self.kind_p, self.every_p = [0] * count, [0] * count, np.arange(count)
        # Below zero where tasks took what was reserved for them: the pool has nothing left then.
        self._left_pr = [list(amount_r) for amount_r in self.amount_pr] if self.residual else []
        self.inverse_rp = np.zeros((len(self.amount_pr[0]) if count else 0, count))
        for pool in range(count):
            self._follow(pool)

    def take(self, pool: int, demand_r: Sequence[int]) -> None:
        """Take a task's demand from a residual pool; other pools stay as they are."""
        if self.residual:
            self.version_p[pool] += 1
            self._shift(pool, [-demand for demand in demand_r])

    def give(self, pool: int, gained_r: Sequence[int]) -> None:
        """Give back to a residual pool what is left more on one of its servers; other pools stay as they are."""
        if self.residual:
            self.version_p[pool] += 1
            self._shift(pool, gained_r)

    def get_pool(self, server: int) -> int:
        """Return the pool of a server."""
        return 0 if self.pool_k is None else int(self.pool_k[server])

    def _shift(self, pool: int, gained_r: Sequence[int]) -> None:
        amount_r, left_r = self.amount_pr[pool], self._left_pr[pool]
        for r, gained in enumerate(gained_r):
            if amount_r[r] != ABSENT:
                left_r[r] += gained
                amount_r[r] = max(left_r[r], 0)
        self._follow(pool)

    def _follow(self, pool: int) -> None:
        """Let inverse and kind follow the amounts."""
        amount_r = self.amount_pr[pool]
        self.inverse_rp[:, pool] = [1 / amount if amount > 0 else inf if amount == 0 else 0.0 for amount in amount_r]
        self.kind_p[pool] = self._kinds.setdefault(tuple(amount_r), len(self._kinds))


def compute_cluster_pool(snapshot: Snapshot) -> LevelPools:
    """Return one pool: the totals of all usable servers."""
    return LevelPools([[total if total > 0 else ABSENT for total in snapshot.total_r]])


def compute_class_pools(snapshot: Snapshot) -> LevelPools:
    """Return a pool for each server class: the capacities of its usable servers together."""
    servers = snapshot.servers
    return _make_class_pools(servers, servers.usable_k, servers.class_k, len(servers.class_names))


def compute_open_class_pools(snapshot: Snapshot) -> LevelPools:
    """Return the same with one more pool, the last one, if there are open servers that are not usable: all of these.

    Their capacity counts for the levels there, and nowhere else.
    """
    return _make_class_pools(snapshot.servers, *_set_unusable_apart(snapshot.servers))


def compute_residual_pools(snapshot: Snapshot) -> LevelPools:
    """Return the same pools with what their servers have left; an overcommitted one has nothing."""
    servers = snapshot.servers
    counted_k, pool_k, count = _set_unusable_apart(servers)
    capacity_pr = _compute_sums(servers.capacity_kr, counted_k, pool_k, count)
    left_pr = _compute_sums(np.maximum(servers.free_kr, 0), counted_k, pool_k, count)
    amount_pr = [
        [left if capacity > 0 else ABSENT for left, capacity in zip(left_r, capacity_r, strict=True)]
        for left_r, capacity_r in zip(left_pr, capacity_pr, strict=True)
    ]
    return LevelPools(amount_pr, pool_k, residual=True)


def _set_unusable_apart(servers: ServerTable) -> tuple[BoolArray, NDArray[np.int32], int]:
    """Return which servers count for levels, the pool of each server, and how many pools there are."""
    count = len(servers.class_names)
    if not (servers.accepting_k & ~servers.usable_k).any():
        return servers.usable_k, servers.class_k, count
    return servers.accepting_k, np.where(servers.usable_k, servers.class_k, count).astype(np.int32), count + 1


def _make_class_pools(servers: ServerTable, counted_k: BoolArray, pool_k: NDArray[np.int32], count: int) -> LevelPools:
    amount_pr = _compute_sums(servers.capacity_kr, counted_k, pool_k, count)
    return LevelPools([[a if a > 0 else ABSENT for a in amount_r] for amount_r in amount_pr], pool_k)


def has_target_classes(targets: Targets | None) -> bool:
    """Tell whether targets say on which of several classes of servers tenants should hold how much."""
    return targets is not None and len(targets.class_names) > 1


def compute_target_pools(snapshot: Snapshot) -> LevelPools:
    """Return a pool for each class of the targets, and a last one for servers that have come since.

    Without targets, or when their mechanism sees a single pool, it is one: the whole cluster.
    """
    classes = find_target_classes(snapshot)
    if classes is None:
        return compute_cluster_pool(snapshot)
    return LevelPools([[a if a > 0 else ABSENT for a in amount_r] for amount_r in classes.capacity_pr], classes.class_k)


def find_target_classes(snapshot: Snapshot) -> TargetClasses | None:
    """Return the classes of the snapshot's targets; None: there are none, or their mechanism sees a single pool."""
    targets, servers = snapshot.targets, snapshot.servers
    if targets is None or not targets.class_names:
        return None
    known = get_target_classes(snapshot)
    if known is not None:
        return known
    return classify_servers(targets, servers.names, servers.capacity_kr, servers.usable_k | servers.accepting_k)


def get_target_classes(snapshot: Snapshot) -> TargetClasses | None:
    """Return the classes of the targets that the snapshot knows already; None: it does not."""
    classes = snapshot.target_classes
    return classes if classes is not None and classes.targets is snapshot.targets else None


def classify_servers(
    targets: Targets, names: Sequence[str], capacity_kr: IntArray, counted_k: BoolArray
) -> TargetClasses:
    """Return the classes of targets, which tell some apart, as servers with these names have them.

    counted_k: which of them count in the amounts: those of a pool that only take tasks have levels, too.
    """
    count = len(targets.class_names) + 1
    class_of = targets.class_of
    class_k = np.array([class_of.get(name, count - 1) for name in names], dtype=np.int32)
    amount_pr = _compute_sums(capacity_kr, counted_k, class_k, count)
    return TargetClasses(targets, class_k, tuple(map(tuple, amount_pr)))


def _compute_sums(amount_kr: IntArray, counted_k: BoolArray, pool_k: NDArray[np.int32], count: int) -> list[list[int]]:
    """Sum over each pool's counted servers, exactly: high and low digits apart, so that float64 holds either sum."""
    counted_pool_k, counted_rk = pool_k[counted_k], amount_kr[counted_k].T
    sums_rp = []
    for amount_k in counted_rk:
        high_p = np.bincount(counted_pool_k, weights=amount_k >> _LOW_BITS, minlength=count).tolist()
        low_p = np.bincount(counted_pool_k, weights=amount_k & ((1 << _LOW_BITS) - 1), minlength=count).tolist()
        sums_rp.append([(int(high) << _LOW_BITS) + int(low) for high, low in zip(high_p, low_p, strict=True)])
    return [list(amount_r) for amount_r in zip(*sums_rp, strict=True)] if sums_rp else [[] for _ in range(count)]
