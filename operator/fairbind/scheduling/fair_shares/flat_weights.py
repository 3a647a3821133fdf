"""Weights of leaves as if all tenants were siblings: what stands for a tree where there can be none."""

from __future__ import annotations

from collections.abc import Iterable

from fairbind.model import Snapshot


def compute_flat_weights(snapshot: Snapshot, leaves: Iterable[str]) -> dict[str, float]:
    """Return for each of these leaves the product, along its path, of weight over the sum of the siblings' weights.

    Only siblings count that have some of these leaves below them, or are one. Without inner tenants: the weights.
    """
    hierarchy = snapshot.hierarchy
    weights = {tenant.name: float(tenant.weight) for tenant in snapshot.tenants}
    found = {leaf: weights[leaf] for leaf in leaves}
    if not hierarchy.inner:
        return found
    sums: dict[str | None, float] = {}
    above = {inner.tenant.name: inner for leaf in found for inner in hierarchy.list_above(leaf)}
    for inner in above.values():
        sums[inner.place.parent] = sums.get(inner.place.parent, 0.0) + float(inner.tenant.weight)
    for leaf, weight in found.items():
        parent = hierarchy.get_place(leaf).parent
        sums[parent] = sums.get(parent, 0.0) + weight
    for leaf in found:
        found[leaf] /= sums[hierarchy.get_place(leaf).parent]
        for inner in hierarchy.list_above(leaf):
            found[leaf] *= float(inner.tenant.weight) / sums[inner.place.parent]
    return found
