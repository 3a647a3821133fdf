"""What a tree's filling needs to know of it: units that grow, the vertices above them, levels and guarantees.

A unit is a tenant with tasks, or its tasks on some of the servers. The level of a vertex is a largest component: for
dominant shares one component a resource, for task shares a single one. A component is linear in the units' tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairbind.fairness.problems.tree import ROOT, BoolArray, FloatArray, IntArray

Shares = Callable[[BoolArray], FloatArray]
"""What a unit's task adds to each component of an inner tenant, (U, J), given which resources are used up, (R,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """Guarantees by what counts for them. need_pu: what a task of a unit adds, 0 where it does not count.

    vertex_p: whose it is. amount_p: how much is guaranteed. base_p: what is held besides the units' tasks.
    """

    vertex_p: IntArray
    amount_p: FloatArray
    need_pu: FloatArray
    base_p: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The tree over the units. Vertices 0 .. U-1 are the units, the others are above them.

    parent_v: ROOT for none. weight_v, priority_v: among siblings. level_u: of a task, before the weight, to compare a
    unit with its siblings. single_v: vertices whose level is the sum of their units' levels (a tenant that is several
    units). mixed_v: other vertices that are a tenant with tasks that differ, in whose level what is used up counts too.
    divisor_vj: of each component of the other vertices. limit_u: tasks that there are.
    """

    parent_v: IntArray
    weight_v: FloatArray
    priority_v: IntArray
    level_u: FloatArray
    single_v: BoolArray
    mixed_v: BoolArray
    divisor_vj: FloatArray
    limit_u: FloatArray
    shares: Shares
    promises: Promises

    @property
    def units(self) -> int:
        """The number of units."""
        return self.level_u.size

    def find_below(self) -> BoolArray:
        """Return which units are below each vertex, or are it, shape (V, U)."""
        below_vu = np.zeros((self.parent_v.size, self.units), dtype=np.bool_)
        for unit in range(self.units):
            vertex = unit
            while vertex != ROOT:
                below_vu[vertex, unit] = True
                vertex = int(self.parent_v[vertex])
        return below_vu

    def find_children(self) -> tuple[dict[int, IntArray], dict[int, list[int]]]:
        """Return the units and the other vertices directly below each vertex, ROOT among them."""
        units: dict[int, list[int]] = {}
        others: dict[int, list[int]] = {}
        for vertex, parent in enumerate(self.parent_v.tolist()):
            (units if vertex < self.units else others).setdefault(parent, []).append(vertex)
        return {parent: np.array(found, dtype=np.intp) for parent, found in units.items()}, others
