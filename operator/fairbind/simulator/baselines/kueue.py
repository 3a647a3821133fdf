"""The rule of Kueue's fair sharing, by our reading: the least weighted share of what exceeds the nominal quota.

The value of a queue is the maximum over the resources of (requests above the nominal quota) / (all nominal quotas of
its cohort), divided by the weight; the least value is admitted first
(https://github.com/kubernetes-sigs/kueue/tree/main/keps/1714-fair-sharing, "Share value function and weights").

Ours to say: the quotas. Each tenant's is its part of the totals by weight, of each resource, so together they are the
cluster. Up to it a tenant's value is nothing; among such the name decides, as everywhere here.

Left out: preemption by the same value, flavours (nodes of one kind with quotas of their own), hierarchies of cohorts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from fairbind.model import Snapshot
from fairbind.scheduling.policies.levels import Progress
from fairbind.simulator.baselines.fraction_measure import FractionMeasure


class SharesAboveQuota(FractionMeasure):
    """The weighted dominant share of what a tenant holds above its part of the totals."""

    label: ClassVar[str] = "weighted share above its quota"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._weights = {tenant.name: tenant.weight for tenant in snapshot.tenants}
        self._sum = sum(self._weights.values(), Fraction(0))

    def compute_exactly(self, progress: Progress, pool: int) -> Fraction:
        """Return the level of a tenant."""
        held_r, total_r = progress.held_r, self.pools.amount_pr[pool]
        weight = self._weights[progress.name]
        largest = max((Fraction(held_r[r], total_r[r]) for r, _, _ in progress.terms), default=Fraction(0))
        return max(Fraction(0), largest - weight / self._sum) / weight
