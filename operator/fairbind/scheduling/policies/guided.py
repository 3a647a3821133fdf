"""Guiding by targets: the policy says who is next, the targets say on which class of servers.

A greedy rule decides task by task. It fills the servers that a tenant with few of them needs, and where levels differ
from class to class it fills one class with the first tenant that comes: the exact mechanism would have put each tenant
elsewhere. So once there is an exact answer, a tenant's next task goes to a class where the tenant lacks some of what
the answer gives it there, as long as one of these takes it.

* Tenants are compared as the policy compares them, so who is next stays the policy's matter.
* On which of several such classes: where the policy compares tenants by class, the one with the least level; else the
  one where the tenant lacks most.
* A tenant whose next task fits on no such class goes on elsewhere, so no task waits that would fit.
* A tenant that has come since the answer was made lacks something everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

import numpy as np

from fairbind.model import RunningTask, Snapshot, TaskClass
from fairbind.model.servers import IndexArray
from fairbind.scheduling.policies.level_pools import compute_target_pools, has_target_classes
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure, Undo
from fairbind.scheduling.policies.target_places import TargetPlaces

FIRST_POOL = np.zeros(1, dtype=np.intp)


class Guided:
    """A measure whose pools are the classes of the targets. measure: of the cluster, or of the same pools."""

    max_kept_levels: ClassVar[int] = 1
    begins_small: ClassVar[bool] = False

    def __init__(self, snapshot: Snapshot, measure: Measure) -> None:
        self._measure = measure
        self.is_by_pool = self.may_fall = measure.pools.pool_k is not None
        self.pools = measure.pools if self.is_by_pool else compute_target_pools(snapshot)
        self.label = measure.label
        self._places = TargetPlaces(snapshot, self.pools)

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant on a pool, as the policy compares it."""
        return self._measure.compute_level(progress, self._find_own(pool))

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the level on that of these pools where the tenant's next task belongs, and this pool."""
        place_n = self._places.get(progress.name)[among]
        if not self.is_by_pool:
            return self._measure.compute_level(progress, 0), int(among[place_n.argmin()])
        is_lacking_n = place_n < 1
        return self._measure.find_least_level(progress, among[is_lacking_n] if is_lacking_n.any() else among)

    def find_bound(self, progress: Progress, among: IndexArray) -> int:
        """Return the least level on one of these pools, lacking or not: those where it lacks something may close."""
        return self._measure.find_bound(progress, among if self.is_by_pool else FIRST_POOL)

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:
        """Return the level of an inner tenant on a pool, as the policy compares it."""
        return self._measure.compute_inner_level(progress, self._find_own(pool), used_up)

    def compute_inner_share(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> float:
        """Return the same for people."""
        return self._measure.compute_inner_share(progress, self._find_own(pool), used_up)

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people, as the policy compares it."""
        return self._measure.compute_share(progress, self._find_own(pool))

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task of a class, placed in a pool."""
        self._places.shift(progress.name, task_class.share_demand_r, pool, 1)
        self._measure.add(progress, task_class, self._find_own(pool))

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        self._places.shift(progress.name, task_class.share_demand_r, pool, -1)
        self._measure.remove(progress, task_class, self._find_own(pool))

    def evict(self, progress: Progress, running: RunningTask, pool: int | None, gained_r: Sequence[int]) -> Undo:
        """Count one running task less, and return what takes that back."""
        undo_place = self._places.evict(progress.name, running, pool)
        undo_measure = self._measure.evict(progress, running, None if pool is None else self._find_own(pool), gained_r)

        def undo() -> None:
            undo_measure()
            undo_place()

        return undo

    def _find_own(self, pool: int) -> int:
        """Return the measure's own pool."""
        return pool if self.is_by_pool else 0


def guide(build_measure: Callable[[Snapshot], Measure]) -> Callable[[Snapshot], Measure]:
    """Return what builds the same measure, guided where the snapshot's targets tell classes apart."""

    def build(snapshot: Snapshot) -> Measure:
        measure: Measure = build_measure(snapshot)
        return Guided(snapshot, measure) if has_target_classes(snapshot.targets) else measure

    return build
