"""The tree of tenants in the exact problem, and what stands for it where a mechanism cannot have it.

A tenant whose tasks differ is an inner tenant of the problem, with its parts below it. They grow in proportion to what
it wants of each, and its level is the largest share of all that it holds, used up or not: as of any tenant with tasks,
and other than an inner one's. So there is nothing to repeat, and its limits and guarantees have a place to stand.

Where there can be no tree it is flattened:

* A tenant's weight is the product, along its path, of weight over the sum of the weights of the siblings that want
  something.
* A limit is divided by these weights among the tenants below it that want something, the smallest subtrees first, and
  ends what they want. It does not count for tasks that may run on other servers than those that it is about.
* Guarantees and priorities do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.tree import ROOT, Bounds, Tree, make_bounds
from fairbind.model import Snapshot, Tenant
from fairbind.model.hierarchy import BELOW_THE_ROOT, Hierarchy
from fairbind.scheduling.fair_shares.demand_groups import ServerGroups
from fairbind.scheduling.fair_shares.tenant_bounds import TenantBound, TenantBounds
from fairbind.scheduling.fair_shares.within_limits import divide_by_weight


def plant_tree(
    problem: Problem,
    snapshot: Snapshot,
    groups: ServerGroups,
    bounds: TenantBounds,
    *,
    owners: Sequence[str],
    grows_i: FloatArray,
) -> Problem:
    """Return the problem with the snapshot's tree, the bounds, and weights among siblings.

    problem: of the parts. owners: of which leaf each is. grows_i: how fast it grows beside other parts of that leaf.
    """
    vertices = _Vertices(snapshot, owners)
    sums = dict.fromkeys(vertices.mixed, 0.0)
    for name, grows in zip(owners, grows_i.tolist(), strict=True):
        if name in sums:
            sums[name] += grows
    weights = [
        grows / sums[name] if name in sums else float(vertices.tenants[name].weight)
        for name, grows in zip(owners, grows_i.tolist(), strict=True)
    ]
    return replace(
        problem,
        tenant_names=vertices.name_units(),
        weight_i=np.array(weights),
        tree=vertices.build_tree(problem.resources, groups, bounds),
    )


class _Vertices:
    """The vertices of the tree: a unit for each part, the inner tenants above some part, and leaves with several parts.

    owners: the leaf of each unit. inner, mixed: names of the two kinds of others.
    """

    def __init__(self, snapshot: Snapshot, owners: Sequence[str]) -> None:
        self.owners = owners
        self.tenants = {tenant.name: tenant for tenant in snapshot.tenants}
        self.inner = find_inner_above(snapshot.hierarchy, owners)
        self.mixed = [name for name, parts in Counter(owners).items() if parts > 1]
        self._hierarchy = snapshot.hierarchy
        units = len(owners)
        self._of_inner = {name: units + n for n, name in enumerate(self.inner)}
        self._of_mixed = {name: units + len(self.inner) + n for n, name in enumerate(self.mixed)}
        self._of_leaf = {name: i for i, name in enumerate(owners)} | self._of_mixed

    def name_units(self) -> tuple[str, ...]:
        """Return names for the units that no other vertex has."""
        seen: dict[str, int] = {}
        names = []
        for name in self.owners:
            seen[name] = seen.get(name, 0) + 1
            names.append(f"{self._name_leaf(name)}#{seen[name]}" if name in self._of_mixed else self._name_leaf(name))
        return tuple(names)

    def build_tree(self, resources: Sequence[str], groups: ServerGroups, bounds: TenantBounds) -> Tree:
        """Return the tree."""
        hierarchy = self._hierarchy
        places = [
            *(BELOW_THE_ROOT if name in self._of_mixed else hierarchy.get_place(name) for name in self.owners),
            *(hierarchy.inner[name].place for name in self.inner),
            *(hierarchy.get_place(name) for name in self.mixed),
        ]
        parents = [ROOT if place.parent is None else self._of_inner[place.parent] for place in places]
        parents[: len(self.owners)] = [
            self._of_mixed.get(name, parent) for name, parent in zip(self.owners, parents, strict=False)
        ]
        others = [*(hierarchy.inner[name].tenant for name in self.inner), *(self.tenants[name] for name in self.mixed)]
        return Tree(
            inner_names=(*self.inner, *map(self._name_leaf, self.mixed)),
            parent_v=np.array(parents, dtype=np.intp),
            priority_v=np.array([place.priority for place in places], dtype=np.intp),
            weight_n=np.array([float(tenant.weight) for tenant in others]),
            resource_weight_nr=_get_resource_weights(others, resources),
            guarantees=self._make_bounds(bounds.guarantees, resources, groups),
            limits=self._make_bounds(bounds.limits, resources, groups),
            place_v=np.arange(len(places)),
            mixed=np.arange(len(self.inner), len(others)),
        )

    def _name_leaf(self, name: str) -> str:
        """Return a name for a leaf that no inner tenant has."""
        return f"{name}#own" if name in self._of_inner else name

    def _make_bounds(self, found: Iterable[TenantBound], resources: Sequence[str], groups: ServerGroups) -> Bounds:
        rows: list[tuple[int, int, float, list[int] | None]] = []
        for bound in found:
            vertex = self._of_inner.get(bound.tenant)
            if vertex is None and bound.tenant not in self._hierarchy.inner:
                vertex = self._of_leaf.get(bound.tenant)
            if vertex is not None:
                classes = np.flatnonzero(groups.find_within(bound.on_k)).tolist()
                rows.append((vertex, resources.index(bound.resource), bound.amount, classes))
        return make_bounds(rows, len(groups.names))


def _get_resource_weights(tenants: Sequence[Tenant], resources: Sequence[str]) -> FloatArray:
    rows = [[float(tenant.resource_weights.get(name, 1)) for name in resources] for tenant in tenants]
    return np.array(rows, dtype=np.float64).reshape(len(tenants), len(resources))


def find_inner_above(hierarchy: Hierarchy, leaves: Iterable[str]) -> list[str]:
    """Return the names of the inner tenants that some of these leaves are below, sorted."""
    return sorted({inner.tenant.name for leaf in set(leaves) for inner in hierarchy.list_above(leaf)})


def flatten_tree(problem: Problem, weight_i: FloatArray) -> Problem:
    """Return the problem without its tree, with fewer tasks where limits end what is wanted.

    weight_i: what each unit's leaf has, flattened. Weights of the problem are left as they are.
    """
    tree = problem.tree
    if tree is None:
        return problem
    is_part_i = tree.find_mixed()[tree.parent_v[: tree.tenants]] & (tree.parent_v[: tree.tenants] != ROOT)
    weight_i = np.where(is_part_i, weight_i * problem.weight_i, weight_i)
    below_vi, limits, tasks_i = tree.find_below(), tree.limits, problem.tasks_i.copy()
    for b in np.argsort(below_vi[limits.vertex_b].sum(axis=1), kind="stable").tolist():
        need_i = below_vi[limits.vertex_b[b]] * problem.demand_ir[:, limits.resource_b[b]]
        elsewhere_i = (problem.eligible_ik & ~limits.on_bk[b]).any(axis=1)
        rows = np.flatnonzero((need_i > 0) & ~elsewhere_i)
        wanted = need_i[rows] * tasks_i[rows]
        tasks_i[rows] = divide_by_weight(float(limits.amount_b[b]), wanted, weight_i[rows]) / need_i[rows]
    return replace(problem, tree=None, tasks_i=tasks_i)


def list_below(hierarchy: Hierarchy, leaves: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the places, in a sequence of leaves, of those below each inner tenant."""
    below: dict[str, list[int]] = {name: [] for name in sorted(hierarchy.inner)}
    for n, leaf in enumerate(leaves):
        for inner in hierarchy.list_above(leaf):
            below[inner.tenant.name].append(n)
    return {name: tuple(found) for name, found in below.items()}
