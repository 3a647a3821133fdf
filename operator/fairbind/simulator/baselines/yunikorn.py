"""The rule of YuniKorn, by our reading: the least fraction of its largest resource, whatever the weight.

Sibling queues are sorted by what they use (https://yunikorn.apache.org/docs/user_guide/sorting_policies, "fair"), in
parts of their guarantee and, without one, of the cluster's totals. Queues have no weights, so a tenant's has no effect.

Left out: guarantees, of which tenants have none here; and that resources beyond the largest decide ties.
"""

from __future__ import annotations

from typing import ClassVar

from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import ClusterMeasure


class LargestFractions(ClusterMeasure):
    """The largest fraction of the totals over the resources that count."""

    label: ClassVar[str] = "largest fraction"

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant."""
        held_r, total_r = progress.held_r, self.pools.amount_pr[pool]
        return max(((held_r[r] << KEY_BITS) // total_r[r] for r, _, _ in progress.terms), default=0)

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people."""
        held_r, total_r = progress.held_r, self.pools.amount_pr[pool]
        return max((held_r[r] / total_r[r] for r, _, _ in progress.terms), default=0.0)
