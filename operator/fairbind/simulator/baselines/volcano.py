"""The rule of Volcano, by our reading: the least weighted dominant share of all nodes' totals, usable or not.

Its plugins compare what a queue or a job holds with the totals of the nodes: `drf` the largest ratio of a resource
(https://github.com/volcano-sh/volcano/blob/master/docs/design/drf.md), `proportion` the same against the part of the
totals that a queue's weight deserves. Nodes count there that a queue cannot use
(https://github.com/volcano-sh/volcano/issues/3444). Here the totals are of every node that is there, cordoned ones too.

Left out: that a queue above what it deserves gets nothing at all.
"""

from __future__ import annotations

from fairbind.model import Snapshot
from fairbind.model.servers import sum_exactly
from fairbind.scheduling.policies.level_pools import ABSENT, LevelPools
from fairbind.scheduling.policies.measures import DominantShares


def build_measure(snapshot: Snapshot) -> DominantShares:
    """Return the weighted dominant share of the totals of all nodes."""
    total_r = sum_exactly(snapshot.servers.capacity_kr)
    return DominantShares(LevelPools([[total if total > 0 else ABSENT for total in total_r]]))
