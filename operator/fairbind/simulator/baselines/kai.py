"""The rule of KAI, by our reading: who has the least part of its fair share, which is divided resource by resource.

Of each resource by itself queues get their quota, and then the rest by their over-quota weights, never more than they
request; the queue whose allocation is further below its fair share is scheduled first
(https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/fairness/README.md, "Resource Division Algorithm" and "Fair
Share"). Here quotas are nothing, weights are the tenants', and the allocation of a queue is compared where it has come
furthest: the largest ratio over the resources.

Left out: quotas, priorities among queues, hierarchies, reclaim and consolidation, usage over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from fairbind.model import Snapshot
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import ClusterMeasure


class PartsOfDividedResources(ClusterMeasure):
    """What a tenant holds in parts of its fair share, the largest part over the resources."""

    label: ClassVar[str] = "part of its fair share"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        weights = {tenant.name: tenant.weight for tenant in snapshot.tenants}
        demands = _find_demands(snapshot)
        self._fair_r: dict[int, Mapping[str, Fraction]] = {
            r: divide(total, {name: demand_r[r] for name, demand_r in demands.items()}, weights)
            for r, total in enumerate(self.pools.amount_pr[0])
            if total > 0
        }

    def compute_level(self, progress: Progress, pool: int) -> int:  # noqa: ARG002 (there is one pool)
        """Return the level of a tenant."""
        level = 0
        for r, _, _ in progress.terms:
            held, fair = progress.held_r[r], self._fair_r[r][progress.name]
            if held > 0:
                if fair == 0:
                    return INFINITE_LEVEL
                level = max(level, (held * fair.denominator << KEY_BITS) // fair.numerator)
        return level

    def compute_share(self, progress: Progress, pool: int) -> float:  # noqa: ARG002 (there is one pool)
        """Return the level for people; a resource of which the tenant's share is nothing is left out."""
        pairs = ((progress.held_r[r], self._fair_r[r][progress.name]) for r, _, _ in progress.terms)
        return max((float(held / fair) for held, fair in pairs if fair > 0), default=0.0)


def _find_demands(snapshot: Snapshot) -> dict[str, list[int]]:
    """Return what each tenant holds and waits for, base units."""
    demands = {tenant.name: list(tenant.allocated_r) or [0] * len(snapshot.resources) for tenant in snapshot.tenants}
    for task_class in snapshot.task_classes:
        if task_class.blocked is None:
            count, demand_r = len(task_class.tasks), demands[task_class.tenant]
            demands[task_class.tenant] = [
                demand + count * more for demand, more in zip(demand_r, task_class.share_demand_r, strict=True)
            ]
    return demands


def divide(total: int, demands: Mapping[str, int], weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return each tenant's part of a resource: by weight, no more than its demand; what is left over goes to others.

    >>> divide(12, {"a": 2, "b": 20, "c": 20}, {"a": Fraction(1), "b": Fraction(1), "c": Fraction(4)})
    {'a': Fraction(2, 1), 'b': Fraction(2, 1), 'c': Fraction(8, 1)}
    """
    left, weight = Fraction(total), sum(weights.values(), Fraction(0))
    fair: dict[str, Fraction] = {}
    for name in sorted(demands, key=lambda name: (demands[name] / weights[name], name)):
        fair[name] = min(Fraction(demands[name]), left * weights[name] / weight)
        left -= fair[name]
        weight -= weights[name]
    return {name: fair[name] for name in demands}
