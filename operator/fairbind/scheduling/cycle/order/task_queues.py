"""The tasks of a class in a class queue, and the classes of a tenant (for `fifo`: of all tenants) in a tenant queue.

A tenant queue knows the pools in which something of it may still fit. While tasks are only placed, free capacity only
shrinks. A pool in which nothing fitted is then closed, and so is a class that did not fit into a pool, until the queue
is reopened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from fairbind.model import DomainRules, InvariantError, Task, TaskClass
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.servers.shapes import PinnedShape, Shape, Shapes
from fairbind.scheduling.policies.levels import Progress, find_least_level, find_zero_levels
from fairbind.scheduling.policies.measures import Measure

NEVER = -1
"""No version: a level was not looked at yet."""

SortKey = tuple[int, float, str, str]
SortRule = Callable[[Task], SortKey]


def compute_sort_key(task: Task) -> SortKey:
    """Return what orders the tasks of one tenant: higher priority, then earlier queue time, then uid."""
    return -task.priority, task.queue_time, task.uid, ""


def compute_arrival(task: Task) -> SortKey:
    """Return what orders all tasks for `fifo`: higher priority, then earlier queue time, then name (then uid)."""
    return -task.priority, task.queue_time, task.name, task.uid


@dataclass(frozen=True, slots=True)
class Asked:
    """What several tasks ask for. kinds: sets of resources, each as bits. least_r: the least of each, above 0."""

    kinds: frozenset[int]
    least_r: Sequence[int]

    @classmethod
    def join(cls, several: Sequence[Asked]) -> Asked:
        """Return what all these ask for together; there is at least one."""
        kinds = frozenset[int]().union(*(each.kinds for each in several))
        return cls(kinds, list(map(min, zip(*(each.least_r for each in several), strict=True))))


class ClassQueue:
    """The tasks of one class that still wait, in their order. tasks: all of them, in the order that the rule gives."""

    __slots__ = ("_next", "_rule", "_shape", "_shapes", "_tasks", "progress", "sort_key", "task_class")

    def __init__(
        self, task_class: TaskClass, tasks: Sequence[Task], *, progress: Progress, rule: SortRule, shapes: Shapes
    ) -> None:
        self.task_class = task_class
        self.progress = progress
        self._shapes = shapes
        self._shape: Shape | PinnedShape | None = None
        self._rule = rule
        self._tasks = tasks
        self._next = 0
        self.sort_key: SortKey | None = rule(tasks[0])

    @property
    def first(self) -> Task:
        """The task that is next; there must be one."""
        return self._tasks[self._next]

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._tasks) - self._next

    @property
    def fits_nowhere(self) -> bool:
        """Whether it has been seen that no task of the class fits."""
        return self._shape is not None and not self._shape.has_open()

    @property
    def never_fitted(self) -> bool:
        """Whether it has been seen that no server had enough for a task of the class at any time; False: not known."""
        return isinstance(self._shape, Shape) and not self._shape.has_begun

    @property
    def is_narrowed(self) -> bool:
        """Whether it was seen that nothing fits somewhere, which the opening of a domain may end."""
        return self._shape is not None and self._shape.is_narrowed

    @property
    def reach(self) -> Sequence[int]:
        """The pools in which it may use a server."""
        return self._shapes.find_pools(self.task_class)

    @property
    def shape(self) -> Shape | PinnedShape:
        """What its tasks share, and knows where they fit."""
        if self._shape is None:
            self._shape = self._shapes.get_shape(self.task_class)
        return self._shape

    @property
    def may_fit(self) -> bool:
        """Whether it has tasks left, and one of them may fit somewhere; False is certain."""
        return self.sort_key is not None and self.shape.has_open()

    def fork(self, shapes: Shapes) -> ClassQueue:
        """Return a queue that is where this one is, and goes on apart from it."""
        forked = copy(self)
        forked._shapes, forked._shape = shapes, None  # noqa: SLF001 (its own kind)
        return forked

    def find_server(self, pool: int) -> int | None:
        """Return the best server of the pool for the next task, or None."""
        return self.shape.find_server(pool, self._tasks[self._next])

    def pop(self) -> Task:
        """Take the first task out."""
        task = self._tasks[self._next]
        self._next += 1
        self.sort_key = self._rule(self._tasks[self._next]) if self._next < len(self._tasks) else None
        return task

    def close(self) -> None:
        """Let none of its tasks be decided any more."""
        self.sort_key = None

    def push_back(self) -> None:
        """Put the task back that was taken out last."""
        self._next -= 1
        self.sort_key = self._rule(self._tasks[self._next])


class Choice(NamedTuple):
    """The next placement: the first task of this queue goes to this server of this pool."""

    queue: ClassQueue
    server: int
    pool: int


class TenantQueue:
    """Classes that wait in one order: those of one tenant, or of all.

    progress: whose level decides when the queue is served; None: it has no level. open_pools: indices, ascending.
    _deferred: gives more classes, or None, once the line is next; see `Draft`.
    _levels: a heap of (level, pool, version) for a few open pools; what is not of the current version is a lower bound.
    _pinned: classes that may use one server, by its pool, as far as they may fit; None: not looked at yet.
    """

    __slots__ = (
        "_deferred",
        "_heads",
        "_levels",
        "_measure",
        "_pinned",
        "_queues",
        "_reaching",
        "_wide",
        "open_pools",
        "progress",
    )

    def __init__(
        self,
        queues: Sequence[ClassQueue],
        progress: Progress | None,
        measure: Measure,
        deferred: Callable[[], Sequence[ClassQueue]] | None = None,
    ) -> None:
        self.progress = progress
        self._deferred = deferred
        self.open_pools: IndexArray = measure.pools.every_p
        self._measure = measure
        self._queues = queues
        self._wide = [queue for queue in queues if queue.task_class.pin is None]
        self._pinned: dict[int, list[ClassQueue]] | None = None
        self._levels: list[tuple[int, int, int]] = []
        self._reaching: dict[int, list[int]] | None = None
        self._heads: dict[int, list[tuple[SortKey, int]]] = {}

    def __len__(self) -> int:
        """How many classes there are, as far as they have come."""
        return len(self._queues)

    def find_asked(self) -> Asked | None:
        """Return what its classes ask for that may fit somewhere; None: there are none."""
        axes = len(self.progress.held_r) if self.progress is not None else 0
        if self._deferred is not None:  # each resource by itself is a bound for all that may come
            return Asked(frozenset(1 << r for r in range(axes)), (1,) * axes)
        demands = {
            queue.task_class.demand_r for queue in self._queues if queue.sort_key is not None and not queue.fits_nowhere
        }
        if not demands:
            return None
        kinds = frozenset(sum(1 << r for r, demand in enumerate(demand_r) if demand) for demand_r in demands)
        return Asked(kinds, [min(filter(None, demand_n), default=1) for demand_n in zip(*demands, strict=True)])

    def find_bound(self) -> int | None:
        """Return a level that is not above the one in the pool that comes next, as long as tasks are only placed.

        None: without open pools.
        """
        if self._measure.may_fall and self.progress is not None and len(self.open_pools) > 0:
            return self._measure.find_bound(self.progress, self.open_pools)
        least = self.find_pool()
        return None if least is None else least[0]

    def list_ruled(self) -> list[tuple[DomainRules, int]]:
        """Return the classes with rules, as (rules, number)."""
        return [(rules, n) for n, queue in enumerate(self._queues) if (rules := queue.task_class.rules) is not None]

    def is_narrowed(self, n: int) -> bool:
        """Whether the class with this number waits, and it was seen that nothing of it fits somewhere."""
        return self._queues[n].sort_key is not None and self._queues[n].is_narrowed

    def reopen(self) -> None:
        """Forget what fitted nowhere, and how far the tenant is: free capacity has come back, or its tasks went."""
        self.open_pools = self._measure.pools.every_p
        self._levels.clear()
        self._heads.clear()
        self._pinned = None

    def reopen_class(self, n: int) -> None:
        """Forget that nothing fitted of the class with this number: a domain is open that was closed to it."""
        queue = self._queues[n]
        pools = queue.reach
        self.open_pools = np.union1d(self.open_pools, np.array(pools, dtype=np.intp))
        self._levels.clear()
        if queue.task_class.pin is not None:
            self._pinned = None
        for pool in pools:
            heads = self._heads.get(pool)
            if heads is not None and queue.sort_key is not None:
                heappush(heads, (queue.sort_key, n))

    def find_pool(self) -> tuple[int, int] | None:
        """Return the least level on an open pool and that pool, the first of equals; None without open pools."""
        progress, heap, measure = self.progress, self._levels, self._measure
        if len(self.open_pools) == 0:
            return None
        if progress is None:
            return 0, int(self.open_pools[0])
        if len(measure.pools.amount_pr) == 1:
            return measure.compute_level(progress, 0), 0
        if len(self.open_pools) > measure.max_kept_levels:
            return measure.find_least_level(progress, self.open_pools)
        if not heap:
            heap.extend((0, pool, NEVER) for pool in self.open_pools.tolist())
        while True:  # until the least one is not only a lower bound but a level
            level, pool, version = heap[0]
            current = progress.version + measure.pools.version_p[pool]
            if version == current:
                return level, pool
            heapreplace(heap, (measure.compute_level(progress, pool), pool, current))

    def find_choice(self, level: int, pool: int) -> Choice | None:
        """Return the next placement of the queue, which is at this level in this pool; None: nothing fits there."""
        if self._deferred is not None:
            more, self._deferred = self._deferred(), None
            self._queues = [*self._queues, *more]
            self._wide.extend(more)
            if not self._queues:
                return None
        if level == 0 and self.progress is not None and self._measure.begins_small and len(self.open_pools) > 1:
            return self._find_beginning(self.progress)
        heads = self._heads.get(pool)
        if heads is None:
            heads = self._heads[pool] = self._collect_heads(pool)
        while heads:
            sort_key, n = heads[0]
            queue = self._queues[n]
            if queue.sort_key is None:
                heappop(heads)
            elif queue.sort_key != sort_key:
                heapreplace(heads, (queue.sort_key, n))
            else:
                server = queue.find_server(pool)
                if server is not None:
                    return Choice(queue, server, pool)
                heappop(heads)
        return None

    def close_pools(self, seen: int) -> None:
        """Close every pool in which no class of the queue fits any more, as far as that has been seen.

        seen: a pool in which nothing fitted. Raises InvariantError if it would stay open: the filling would never end.
        """
        if all(
            queue.sort_key is None for queue in self._queues
        ):  # also when what was deferred has no free capacity any more
            self.open_pools = self.open_pools[:0]
            return
        open_p = np.zeros(len(self._measure.pools.amount_pr), dtype=np.bool_)
        for queue in self._wide:
            if queue.sort_key is not None:
                queue.shape.add_open(open_p)
        open_p[self._find_pinned_pools(seen)] = True
        if open_p[seen]:
            raise InvariantError(f"pool {seen} stays open for a queue in which nothing fits there")
        self.open_pools = np.flatnonzero(open_p)
        self._levels.clear()

    def _find_pinned_pools(self, seen: int) -> list[int]:
        """Return the pools in which a class that may use one server may still fit.

        There may be as many such classes as servers, so after a first look at all only those of the pool that was seen
        are looked at again.
        """
        if self._pinned is None:
            self._pinned = {}
            for queue in self._queues:
                if queue.task_class.pin is not None and queue.may_fit:
                    for pool in queue.reach:
                        self._pinned.setdefault(pool, []).append(queue)
        left = self._pinned.get(seen)
        while left and not left[-1].may_fit:
            left.pop()
        if not left:
            self._pinned.pop(seen, None)
        return list(self._pinned)

    def _collect_heads(self, pool: int) -> list[tuple[SortKey, int]]:
        """Return a heap of the classes that can use a server of the pool, by the sort key of their next task."""
        if self._reaching is None:
            self._reaching = {}
            for n, queue in enumerate(self._queues):
                for reached in queue.reach:
                    self._reaching.setdefault(reached, []).append(n)
        heads = [
            (sort_key, n) for n in self._reaching.get(pool, ()) if (sort_key := self._queues[n].sort_key) is not None
        ]
        heapify(heads)
        return heads

    def _find_beginning(self, progress: Progress) -> Choice | None:
        """Return the first task that fits in a pool where the level is 0, in the one of which it takes the least part.

        That is where a filling with ever smaller tasks would begin. By name, one task in the wrong pool could cost
        others many.
        """
        pools = self._measure.pools
        zero_pools = find_zero_levels(progress, pools, self.open_pools)
        waiting = [(queue.sort_key, n) for n, queue in enumerate(self._queues) if queue.sort_key is not None]
        for _, n in sorted(waiting):
            queue = self._queues[n]
            among = queue.shape.choose_open(zero_pools)
            while len(among) > 0:
                _, pool = find_least_level(progress, pools, among, queue.task_class.share_demand_r)
                server = queue.find_server(pool)
                if server is not None:
                    return Choice(queue, server, pool)
                among = among[among != pool]
        return None
