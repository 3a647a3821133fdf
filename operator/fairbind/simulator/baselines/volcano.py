"""The rule of Volcano, by our reading: the least weighted dominant share of all nodes' totals, usable or not.

Its plugins compare what a queue or a job holds with the totals of the nodes: `drf` the largest ratio of a resource
(https://github.com/volcano-sh/volcano/blob/master/docs/design/drf.md), `proportion` the same against the part of the
totals that a queue's weight deserves. Nodes count there that a queue cannot use
(https://github.com/volcano-sh/volcano/issues/3444). Here the totals are of every node that is there, cordoned ones too.

Left out: that a queue above what it deserves gets nothing at all.
"""

from __future__ import annotations

from fairbind.model import Snapshot
from fairbind.scheduling.policies.level_pools import ABSENT, LevelPools
from fairbind.scheduling.policies.measures import DominantShares

_LOW_BITS = 32


def build_measure(snapshot: Snapshot) -> DominantShares:
    """Return the weighted dominant share of the totals of all nodes."""
    capacity_kr = snapshot.servers.capacity_kr
    high_r = (capacity_kr >> _LOW_BITS).sum(axis=0).tolist()
    low_r = (capacity_kr & ((1 << _LOW_BITS) - 1)).sum(axis=0).tolist()
    total_r = [(high << _LOW_BITS) + low for high, low in zip(high_r, low_r, strict=True)]
    return DominantShares(LevelPools([[total if total > 0 else ABSENT for total in total_r]]))
