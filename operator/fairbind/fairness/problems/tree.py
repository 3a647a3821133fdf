"""The tree of a problem's tenants: who is below whom, what is guaranteed to a tenant, and what limits it.

The vertices of a tree are the tenants with tasks, in the order of the problem (I of them), and then the inner tenants
(N), which have no tasks of their own. What is guaranteed to a vertex, or limits it, counts all that is below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

MOST_LEVELS = 6
"""Of tenants, kinds of tasks not counted: one more than Tenants of a cluster may have, for the users of the lowest."""
ROOT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Amounts of one resource each that a vertex has on some of the servers: guarantees, or limits.

    vertex_b, resource_b: places, shape (B,). amount_b: >= 0. on_bk: the server entries that count, shape (B, K).
    """

    vertex_b: IntArray
    resource_b: IntArray
    amount_b: FloatArray
    on_bk: BoolArray

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The tree. V = I + N vertices; read-only.

    parent_v: the vertex above, ROOT for none, shape (V,). priority_v: among siblings, high first. weight_n: of the
    inner tenants among their siblings, > 0; those of the others are the problem's. resource_weight_nr: > 0, divides an
    inner tenant's share of r. place_v: where the tenant stands in the document. mixed: places among the inner tenants
    of those that are one tenant with tasks that differ, a kind of task in each tenant below: what is used up counts in
    their levels, as in the level of any tenant with tasks.
    """

    inner_names: tuple[str, ...]
    parent_v: IntArray
    priority_v: IntArray
    weight_n: FloatArray
    resource_weight_nr: FloatArray
    guarantees: Bounds
    limits: Bounds
    place_v: IntArray
    mixed: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        _freeze(self)

    @property
    def tenants(self) -> int:
        """The number of tenants with tasks."""
        return self.parent_v.size - len(self.inner_names)

    def find_below(self) -> BoolArray:
        """Return which tenants with tasks are each vertex or below it, shape (V, I)."""
        below_vi = np.zeros((self.parent_v.size, self.tenants), dtype=np.bool_)
        for tenant in range(self.tenants):
            vertex = tenant
            while vertex != ROOT:
                below_vi[vertex, tenant] = True
                vertex = int(self.parent_v[vertex])
        return below_vi

    def find_mixed(self) -> BoolArray:
        """Return which vertices are one tenant with tasks that differ, shape (V,)."""
        mixed_v = np.zeros(self.parent_v.size, dtype=np.bool_)
        mixed_v[self.tenants + self.mixed] = True
        return mixed_v

    def keep(self, tenants: IntArray) -> Tree:
        """Return the tree with these tenants with tasks only, in this order, and all inner tenants."""
        before = self.tenants
        inner = np.arange(before, self.parent_v.size)
        rows = np.concatenate([tenants, inner])
        now_v = np.full(self.parent_v.size + 1, ROOT)  # the last one is ROOT's own
        now_v[rows] = np.arange(rows.size)
        return replace(
            self,
            parent_v=now_v[self.parent_v[rows]],
            priority_v=self.priority_v[rows],
            place_v=self.place_v[rows],
            guarantees=_keep_bounds(self.guarantees, now_v),
            limits=_keep_bounds(self.limits, now_v),
        )

    def pooled(self) -> Tree:
        """Return the tree over one server that has everything; all bounds must be of all servers."""
        return replace(
            self,
            guarantees=replace(self.guarantees, on_bk=self.guarantees.on_bk[:, :1]),
            limits=replace(self.limits, on_bk=self.limits.on_bk[:, :1]),
        )


def _keep_bounds(bounds: Bounds, now_v: IntArray) -> Bounds:
    kept = now_v[bounds.vertex_b] != ROOT
    return Bounds(now_v[bounds.vertex_b[kept]], bounds.resource_b[kept], bounds.amount_b[kept], bounds.on_bk[kept])


def make_bounds(rows: list[tuple[int, int, float, list[int] | None]], servers: int) -> Bounds:
    """Return bounds from rows of vertex, resource, amount and servers; None for all servers."""
    on_bk = np.zeros((len(rows), servers), dtype=np.bool_)
    for b, (_, _, _, found) in enumerate(rows):
        on_bk[b, slice(None) if found is None else found] = True
    return Bounds(
        np.array([row[0] for row in rows], dtype=np.intp),
        np.array([row[1] for row in rows], dtype=np.intp),
        np.array([row[2] for row in rows], dtype=np.float64),
        on_bk,
    )


def _freeze(value: Any) -> None:
    for each in fields(value):
        array = getattr(value, each.name)
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
