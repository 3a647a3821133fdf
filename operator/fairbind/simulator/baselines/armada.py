"""The rule of Armada, by our reading: the least weighted cost, the next task's included.

The cost of a queue is the largest fraction of the totals over the resources, divided by its weight. Queues are compared
by the cost that they would have with their next job, so of two equal queues the one with the smaller job comes first
(https://github.com/armadaproject/armada/blob/master/docs/scheduling_and_preempting_jobs.md, "Resource usage and
fairness" and "Job scheduling order").

A task that fits nowhere when a cycle begins is left out of its tenant's order, as Armada leaves it out for the rest of
the round. One that ceases to fit in the cycle stands there until another one of its tenant's starts.

Left out: preemption to the fair share and eviction; bids; limits.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import ClassVar

import numpy as np

from fairbind.model import Snapshot, TaskClass
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key
from fairbind.scheduling.policies.levels import Progress
from fairbind.simulator.baselines.fraction_measure import FractionMeasure

_Demand = tuple[int, ...]


class CostsWithNextTask(FractionMeasure):
    """The weighted dominant share that a tenant would have with one more task, the next in its order."""

    label: ClassVar[str] = "weighted cost with its next task"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._weights = {tenant.name: tenant.weight for tenant in snapshot.tenants}
        self._classes: dict[str, list[TaskClass]] = defaultdict(list)
        for task_class in snapshot.task_classes:
            if task_class.blocked is None and _fits_somewhere(task_class, snapshot):
                self._classes[task_class.tenant].append(task_class)
        self._orders: dict[str, list[_Demand]] = {}
        self._places: dict[str, list[int]] = defaultdict(lambda: [0])

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task; those before it in the tenant's order did not fit."""
        super().add(progress, task_class, pool)
        order, places = self._get_order(progress.name), self._places[progress.name]
        place = places[-1]
        while place < len(order) and order[place] != task_class.share_demand_r:
            place += 1
        places.append(min(place + 1, len(order)))

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        super().remove(progress, task_class, pool)
        self._places[progress.name].pop()

    def compute_exactly(self, progress: Progress, pool: int) -> Fraction:
        """Return the level of a tenant."""
        order, place = self._get_order(progress.name), self._places[progress.name][-1]
        next_r = order[place] if place < len(order) else (0,) * len(progress.held_r)
        total_r = self.pools.amount_pr[pool]
        cost = max(
            (Fraction(progress.held_r[r] + next_r[r], total_r[r]) for r, _, _ in progress.terms), default=Fraction(0)
        )
        return cost / self._weights[progress.name]

    def _get_order(self, tenant: str) -> list[_Demand]:
        """Return what the tenant's waiting tasks count in shares, in their order."""
        order = self._orders.get(tenant)
        if order is None:
            sort_keys = [
                (compute_sort_key(task), task_class.share_demand_r)
                for task_class in self._classes[tenant]
                for task in task_class.tasks
            ]
            order = self._orders[tenant] = [demand_r for _, demand_r in sorted(sort_keys)]
        return order


def _fits_somewhere(task_class: TaskClass, snapshot: Snapshot) -> bool:
    """Return whether an eligible server has enough free for a task, whatever its exclusive keys and topology say."""
    servers, demand_r = snapshot.servers, np.array(task_class.demand_r)
    if task_class.pin is not None:
        pinned = task_class.pin.server
        return pinned is not None and bool((servers.free_kr[pinned] >= demand_r)[demand_r > 0].all())
    return bool((servers.free_kr[task_class.placement.eligible_k] >= demand_r)[:, demand_r > 0].all(axis=1).any())
