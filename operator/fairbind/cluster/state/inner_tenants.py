"""Tenants that have others below them: which there are, and what all below each hold.

Each pod counts in its leaf and in all inner tenants above that. So a leaf that comes below another parent takes along
what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from fairbind.cluster.state.tenant_usage import ONE, ZERO, InnerUsage, TenantSums, TenantUsage
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.tree import NO_TREE, TenantTree, build_tree
from fairbind.cluster.tenancy.users import find_tenant_of_leaf


class InnerTenants:
    """See the module. tree: of declared tenants. root: above all tenants; of it only the weights below are counted."""

    def __init__(self) -> None:
        self.tree: TenantTree = NO_TREE
        self.by_name: dict[str, InnerUsage] = {}
        self.root = InnerUsage("")

    def find_parent(self, leaf: str) -> str | None:
        """Return the inner tenant above a leaf; None: the root."""
        return find_parent(leaf, self.tree)

    def find_above(self, leaf: str) -> tuple[InnerUsage, ...]:
        """Return all inner tenants above a leaf, the nearest first."""
        parent = self.find_parent(leaf)
        return () if parent is None else (self.by_name[parent], *self.by_name[parent].above)

    def enter(self, leaf: TenantUsage) -> None:
        """Take a leaf that has come, and holds nothing yet."""
        leaf.above = self.find_above(leaf.name)
        for each in leaf.above:
            each.leaves[leaf.name] = leaf

    def leave(self, leaf: TenantUsage) -> None:
        """Let a leaf go that holds nothing any more."""
        for each in leaf.above:
            del each.leaves[leaf.name]

    def set_tenants(self, specs: Mapping[str, TenantSpec], leaves: Iterable[TenantUsage]) -> None:
        """Take the declared tenants. leaves: all there are; each comes to where it belongs now."""
        tree = build_tree(specs.values())
        self.tree = self.tree if tree == self.tree else tree
        gone = [name for name in self.by_name if name not in self.tree.inner]
        for name in sorted(self.tree.inner, key=lambda name: self.tree.path_of(name).count("/")):
            usage = self.by_name.get(name)
            if usage is None:
                usage = self.by_name[name] = InnerUsage(name)
            spec = specs[name]
            usage.weight, usage.resource_weights, usage.since = spec.weight, spec.resource_weights, spec.created
            usage.above = tuple(self.by_name[each] for each in self.tree.list_above(name))
        leaves = list(leaves)
        for leaf in leaves:
            self._move(leaf)
        for name in gone:
            del self.by_name[name]
        self._sum_weights(leaves)

    def _move(self, leaf: TenantUsage) -> None:
        """Bring what a leaf holds from the inner tenants above it to those that are above it now."""
        above = self.find_above(leaf.name)
        if above == leaf.above:
            return
        for each in leaf.above:
            each.add(leaf, -1)
        self.leave(leaf)
        self.enter(leaf)
        for each in leaf.above:
            each.add(leaf, 1)

    def _sum_weights(self, leaves: Iterable[TenantUsage]) -> None:
        self.root.active_below = ZERO
        for inner in self.by_name.values():
            inner.active_below = ZERO
        every: list[TenantSums] = [*leaves, *self.by_name.values()]
        for each in every:
            each.active_weight = each.weight if each.is_active else ZERO
            self._find_above_of(each).active_below += each.active_weight

    def _find_above_of(self, usage: TenantSums) -> InnerUsage:
        return usage.above[0] if usage.above else self.root

    def follow_weights(self, leaf: TenantUsage) -> None:
        """Bring the active weights to what a leaf has now."""
        for each in (leaf, *leaf.above):
            weight = each.weight if each.is_active else ZERO
            if weight is not each.active_weight:
                self._find_above_of(each).active_below += weight - each.active_weight
                each.active_weight = weight

    def compute_part(self, leaf: TenantUsage) -> Fraction:
        """Return which part of the cluster is a leaf's, by the weights of all tenants that have pods."""
        part = ONE
        for each in (leaf, *leaf.above):
            part *= each.weight / self._find_above_of(each).active_below
        return part


def find_parent(leaf: str, tree: TenantTree) -> str | None:
    """Return the inner tenant above a leaf: a user's tenant, the tenant whose own namespaces it has, or a parent."""
    tenant = find_tenant_of_leaf(leaf)
    return tenant if tenant in tree.inner else tree.parent_of.get(tenant)
