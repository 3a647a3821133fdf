"""Levels of inner tenants during a filling."""

from __future__ import annotations

from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.pool_watch import PoolWatch
from fairbind.scheduling.cycle.order.used_up import UsedUp
from fairbind.scheduling.policies.levels import EXACT_POOLS, Progress
from fairbind.scheduling.policies.measures import Measure


class InnerLevels:
    """The levels of inner tenants, without what is used up. everywhere: that, where levels are of the whole cluster.

    watch: over the pools of candidates, where a level lasts as long as these do.
    version_p: of the pools.
    """

    __slots__ = ("_compute", "_used_up", "everywhere", "is_by_pool", "version_p", "watch")

    def __init__(self, measure: Measure, used_up: UsedUp, watch: PoolWatch) -> None:
        self._compute = measure.compute_inner_level
        self.watch = watch if measure.is_by_pool and not measure.pools.residual else None
        self.is_by_pool = measure.is_by_pool
        self.version_p = measure.pools.version_p
        self._used_up = used_up
        self.forget()

    def forget(self) -> None:
        """Begin again: free capacity has come back."""
        self._used_up.forget()
        if self.watch is not None:
            self.watch.forget()
        self.everywhere: frozenset[int] = frozenset() if self.is_by_pool else self._used_up.get(0)

    def note_placed(self, server: int) -> None:
        """Note that something was placed on a server."""
        self._used_up.note_placed(server)
        if self.watch is not None:
            self.watch.note_placed(server)

    def follow(self) -> bool:
        """Catch up with what was placed since, and tell whether more, or less, is used up now."""
        changed = self._used_up.follow()
        if changed and not self.is_by_pool:
            self.everywhere = self._used_up.get(0)
        return changed

    def compute(self, progress: Progress, pool: int) -> int:
        """Return the level on a pool."""
        used_up = self._used_up.get(pool) if self.is_by_pool else self.everywhere
        return self._compute(progress, pool, used_up)

    def compute_everywhere(self, progress: Progress) -> int:
        """Return the level on the whole cluster."""
        return self._compute(progress, 0, self.everywhere)


class LevelsOfOne:
    """The levels of one inner tenant, of which those are kept that have not changed.

    While tasks are only placed, levels only grow: one that was of an earlier time is a bound. _level_of: by pool.
    _version_of: of what a level is made of, when that was computed.
    """

    __slots__ = ("_level_of", "_levels", "_progress", "_version_of")

    def __init__(self, levels: InnerLevels, progress: Progress) -> None:
        self._levels = levels
        self._progress = progress
        self._level_of: dict[int, int] = {}
        self._version_of: dict[int, int] = {}

    def compute(self, pool: int) -> int:
        """Return the level on a pool."""
        levels = self._levels
        if not levels.is_by_pool:
            return levels.compute_everywhere(self._progress)
        version = self._progress.version + levels.version_p[pool]
        if self._version_of.get(pool) != version:
            self._level_of[pool] = levels.compute(self._progress, pool)
            self._version_of[pool] = version
        return self._level_of[pool]

    def find_least(self, pools: IndexArray) -> int:
        """Return the least level on some pools; where these are many, a bound of it."""
        if len(pools) > EXACT_POOLS or len(pools) == 0:
            return 0
        level_of, among = self._level_of, pools.tolist()
        for pool in among:
            level_of.setdefault(pool, 0)
        while True:  # until the least one is not only a bound
            pool = min(among, key=level_of.__getitem__)
            level = level_of[pool]
            if self.compute(pool) == level:
                return level

    def forget(self) -> None:
        """Keep nothing: levels may have fallen."""
        self._level_of.clear()
        self._version_of.clear()
