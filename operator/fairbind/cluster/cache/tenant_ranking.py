"""Which tenants come before others, as far as that can be told without a pod and a node.

Two tenants are compared where their paths from the root part, by the two siblings there: by priority, then by weighted
share. Guarantees are left out, for they are about a pod and a node. Of an inner tenant all counts that it holds: what
comes free next is not used up then.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

from fairbind.cluster.tenancy.tenants import PRIORITIES
from fairbind.cluster.tenancy.users import is_user
from fairbind.model.overview import ClusterOverview, TenantOverview

Rank = tuple[tuple[int, float, str], ...]
"""Priority (negated), weighted share and name of each tenant on a path, the root's child first."""

_LAST: Final[Rank] = ((PRIORITIES[1] + 1, 0.0, ""),)


class Standing(NamedTuple):
    """A leaf with waiting pods that comes before another one. share: weighted, of the sibling that is compared.

    compared: that sibling, the one with which it is compared, and the share of this; None: the two leaves themselves.
    """

    tenant: str
    share: float
    compared: tuple[str, str, float] | None = None


class TenantRanking:
    """The ranks of all tenants of one overview."""

    def __init__(self, overview: ClusterOverview) -> None:
        self._shown = {tenant.name: tenant for tenant in overview.shown}
        self._rank_of = {tenant.name: self.find_rank(tenant) for tenant in overview.tenants}
        ranks = [(self._rank_of[tenant.name], tenant.name) for tenant in overview.tenants if tenant.backlogged]
        self._leaves = sorted(ranks)
        self._declared = sorted({rank[:-1] if is_user(name) else rank for rank, name in ranks})

    def find_rank(self, tenant: TenantOverview) -> Rank:
        """Return where a tenant is: a smaller rank comes first, and those below a tenant come after it."""
        path = [tenant]
        while (parent := path[-1].parent) is not None:
            path.append(self._shown[parent])
        return tuple((-each.priority, each.weighted_share, each.name) for each in reversed(path))

    def get_leaf_rank(self, leaf: str) -> Rank:
        """Return where a leaf is; one that has come since is last."""
        return self._rank_of.get(leaf, _LAST)

    def count_before(self, tenant: TenantOverview) -> int:
        """Return how many others come before a tenant that have pods which they could place; users are no tenants."""
        return bisect_left(self._declared, self.find_rank(tenant))

    def list_before(self, leaf: TenantOverview) -> tuple[Standing, ...]:
        """Return the leaves that come before another one, the first one first."""
        rank = self.find_rank(leaf)
        before = self._leaves[: bisect_left(self._leaves, (rank, leaf.name))]
        return tuple(_compare(rank, other, name) for other, name in before)


def _compare(own_rank: Rank, other_rank: Rank, name: str) -> Standing:
    pairs = zip(own_rank, other_rank, strict=False)
    depth, own, other = next((depth, *pair) for depth, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    is_between_leaves = depth == len(own_rank) == len(other_rank)
    return Standing(name, other[1], None if is_between_leaves else (other[2], own[2], own[1]))
