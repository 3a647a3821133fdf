"""Progressive filling: again and again, who is furthest behind and has a task that fits.

The candidates are pairs of a queue (a tenant's; or one of all tenants, for `fifo`) and a pool (the whole cluster, or a
class of servers). The one with the least level comes next; ties go by the names of tenant and class. A tenant that
holds nothing is at level 0 on all pools; where shares are compared, it begins where its task takes the least part.

Each queue lies in a heap with its least level. While tasks are only placed, levels only grow and pools only close, so
a stored level is a lower bound. It is exact while neither the tenant's progress nor the pool has changed, so a queue is
looked at again only when it comes to the top. When a task is taken back, the filling must `reopen`. When a topology
domain opens to some classes, `reopen_classes` puts only those queues back at the start that had closed something.

Where few servers have room again, hundreds of tenants may have something that fits there, and the first leave no room.
Their queues are late: a level stands for them until their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from fairbind.model import DomainRules
from fairbind.scheduling.cycle.task_queues import NEVER, Choice, TenantQueue
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure

LATE = -2
"""Stands for the version where the level is one of a queue that is not made yet."""


class LateQueues(Protocol):
    """Queues that are made when their turn comes, by number."""

    def list_progress(self) -> Iterable[tuple[int, Progress]]:
        """Return the numbers of late queues, with whose level decides when it is their turn."""
        ...

    def make(self, number: int) -> TenantQueue | None:
        """Return a queue whose turn it is; None: nothing of it fits any more."""
        ...

    @property
    def are_void(self) -> bool:
        """Whether nothing of all of them fits any more."""
        ...


class Filling:
    """Which queue, which pool, which task and which server come next. Queues must be in the order of their names.

    late: makes those queues that are None, where all servers are one pool from which nothing is taken.
    """

    __slots__ = ("_epochs", "_heap", "_late", "_queues", "_ruled", "_versions")

    def __init__(self, queues: list[TenantQueue | None], measure: Measure, late: LateQueues) -> None:
        self._queues = queues
        self._late = late
        self._versions = measure.pools.version_p
        self._heap: list[tuple[int, int, int, int, int]] = []
        self._epochs = [0] * len(queues)
        """How often a queue was put back: entries of the heap from before that are void."""
        self._ruled: dict[DomainRules, list[tuple[int, int]]] | None = None
        self._begin()
        self._heap.extend((measure.compute_level(progress, 0), n, 0, LATE, 0) for n, progress in late.list_progress())
        heapify(self._heap)

    def _begin(self) -> None:
        """Have every queue looked at; without a server there may be no pool, and then nothing fits anywhere."""
        queues = self._queues if len(self._versions) > 0 else []
        self._heap = [(0, n, 0, NEVER, self._epochs[n]) for n, queue in enumerate(queues) if queue is not None]

    def reopen(self) -> None:
        """Forget all levels and all that fitted nowhere: room has come back, or tasks went."""
        self._begin()
        for queue in self._queues:
            if queue is not None:
                queue.reopen()

    def reopen_classes(self, opened: Iterable[DomainRules]) -> None:
        """Look again at classes with these rules that were seen not to fit somewhere: a domain is open again."""
        if self._ruled is None:
            self._ruled = {}
            for n, queue in enumerate(self._queues):
                for rules, number in () if queue is None else queue.list_ruled():
                    self._ruled.setdefault(rules, []).append((n, number))
        for rules in opened:
            for n, number in self._ruled.get(rules, ()):
                queue = self._queues[n]
                if queue is not None and queue.is_narrowed(number):
                    queue.reopen_class(number)
                    self._epochs[n] += 1
                    heappush(self._heap, (0, n, 0, NEVER, self._epochs[n]))

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        heap = self._heap
        while heap:
            level, n, pool, version, epoch = heap[0]
            if epoch != self._epochs[n]:
                heappop(heap)
                continue
            queue = self._queues[n]
            if queue is None:
                self._begin_late(n)
                continue
            if version == self._get_version(queue, pool):
                choice = queue.find_choice(level, pool)
                if choice is not None:
                    return choice
                queue.close_pools(pool)
            least = queue.find_pool()
            if least is None:
                heappop(heap)
            else:
                level, pool = least
                heapreplace(heap, (level, n, pool, self._get_version(queue, pool), epoch))
        return None

    def _begin_late(self, n: int) -> None:
        """Make the late queue that is the next, or leave it out, and all others that are late if none has room."""
        heap, queue = self._heap, self._late.make(n)
        if queue is not None:
            self._queues[n] = queue
            heapreplace(heap, (heap[0][0], n, 0, self._get_version(queue, 0), self._epochs[n]))
        elif self._late.are_void:
            heap[:] = [entry for entry in heap if self._queues[entry[1]] is not None]
            heapify(heap)
        else:
            heappop(heap)

    def _get_version(self, queue: TenantQueue, pool: int) -> int:
        """Return a number that changes whenever the level of the queue in this pool may have changed."""
        return 0 if queue.progress is None else queue.progress.version + self._versions[pool]
