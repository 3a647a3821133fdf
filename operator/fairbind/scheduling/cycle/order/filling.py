"""Progressive filling: again and again, who is furthest behind and has a task that fits.

The candidates are pairs of a queue (a tenant's; or one of all tenants, for `fifo`) and a pool (the whole cluster, or a
class of servers). The one with the least level comes next; ties go by the names of tenant and class. A tenant that
holds nothing is at level 0 on all pools; where shares are compared, it begins where its task takes the least part.

Each queue lies in a heap with its least level. While tasks are only placed, levels only grow and pools only close, so
a stored level is a lower bound. It is exact while neither the tenant's progress nor the pool has changed, so a queue is
looked at again only when it comes to the top. When a task is taken back, the filling must `reopen`. When a topology
domain opens to some classes, `reopen_classes` puts only those queues back at the start that had closed something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace

from fairbind.model import DomainRules
from fairbind.scheduling.cycle.order.task_queues import NEVER, Choice, TenantQueue
from fairbind.scheduling.policies.measures import Measure


class Filling:
    """Which queue, which pool, which task and which server come next. Queues must be in the order of their names."""

    __slots__ = ("_epochs", "_heap", "_queues", "_ruled", "_versions")

    def __init__(self, queues: Sequence[TenantQueue], measure: Measure) -> None:
        self._queues = queues
        self._versions = measure.pools.version_p
        self._heap: list[tuple[int, int, int, int, int]] = []
        self._epochs = [0] * len(queues)
        """How often a queue was put back: entries of the heap from before that are void."""
        self._ruled: dict[DomainRules, list[tuple[int, int]]] | None = None
        self._begin()

    def _begin(self) -> None:
        """Have every queue looked at; without a server there may be no pool, and then nothing fits anywhere."""
        count = len(self._queues) if len(self._versions) > 0 else 0
        self._heap = [(0, n, 0, NEVER, self._epochs[n]) for n in range(count)]

    def reopen(self) -> None:
        """Forget all levels and all that fitted nowhere: free capacity has come back, or tasks went."""
        self._begin()
        for queue in self._queues:
            queue.reopen()

    def reopen_classes(self, opened: Iterable[DomainRules]) -> None:
        """Look again at classes with these rules that were seen not to fit somewhere: a domain is open again."""
        if self._ruled is None:
            self._ruled = {}
            for n, queue in enumerate(self._queues):
                for rules, number in queue.list_ruled():
                    self._ruled.setdefault(rules, []).append((n, number))
        for rules in opened:
            for n, number in self._ruled.get(rules, ()):
                queue = self._queues[n]
                if queue.is_narrowed(number):
                    queue.reopen_class(number)
                    self._epochs[n] += 1
                    heappush(self._heap, (0, n, 0, NEVER, self._epochs[n]))

    def note_placed(self, server: int) -> None:
        """Do nothing with a server on which something was placed: it only matters in a tree."""

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        heap = self._heap
        while heap:
            level, n, pool, version, epoch = heap[0]
            if epoch != self._epochs[n]:
                heappop(heap)
                continue
            queue = self._queues[n]
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

    def _get_version(self, queue: TenantQueue, pool: int) -> int:
        """Return a number that changes whenever the level of the queue in this pool may have changed."""
        return 0 if queue.progress is None else queue.progress.version + self._versions[pool]
