"""Siblings: where two tenants of a tree are compared, and how far these are, at the end of a cycle.

Two tenants are compared where their paths from the root part: by the two children of the tenant that is above both.

The question is always who would come first once there is free capacity for some task. So the resources that this task
asks for count, although nothing may be free of them now: else all tenants above others would be level when a cluster is
full, and the next cycle, in which a task has ended, would decide otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import sub
from typing import NamedTuple

from fairbind.model import TaskClass
from fairbind.model.hierarchy import Place
from fairbind.scheduling.cycle.order.tree import Guaranteed, Tree
from fairbind.scheduling.cycle.order.used_up import UsedUp
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure


class Sibling(NamedTuple):
    """A tenant of the tree. An inner one may have the name of a leaf below it."""

    name: str
    is_inner: bool


class Step(NamedTuple):
    """Where a tenant is on a pool, and by how much one task more would raise that."""

    sibling: Sibling
    share: float
    step: float


Asked = frozenset[int]
"""The resources that a task asks for: they count in levels even where they are used up."""
_NOTHING: Asked = frozenset()


def find_asked(task_class: TaskClass) -> Asked:
    """Return the resources that tasks of a class ask for."""
    return frozenset(r for r, demand in enumerate(task_class.demand_r) if demand > 0)


class Siblings:
    """Answers about tenants of one tree; without a tree all tenants are siblings."""

    def __init__(
        self, tree: Tree | None, measure: Measure, free: FreeCapacity, progress_of: Mapping[str, Progress]
    ) -> None:
        """Take the state of a draft. progress_of: of the leaves."""
        self._tree = tree
        self._measure = measure
        self._progress_of = progress_of
        self._used_up: UsedUp | None = None if tree is None else tree.build_used_up(measure, free)
        self._paths: dict[str, tuple[Sibling, ...]] = {}
        self._levels: dict[tuple[Sibling, int, Asked], int] = {}
        self._shares: dict[tuple[Sibling, int, Asked], float] = {}

    def list_path(self, leaf: str) -> tuple[Sibling, ...]:
        """Return a leaf and the inner tenants above it, the one below the root first."""
        path = self._paths.get(leaf)
        if path is None:
            above = () if self._tree is None else [each.tenant.name for each in self._tree.hierarchy.list_above(leaf)]
            path = self._paths[leaf] = (*(Sibling(name, True) for name in reversed(list(above))), Sibling(leaf, False))
        return path

    def find_parting(self, leaf: str, other: str) -> tuple[Sibling, Sibling]:
        """Return the two siblings by which two leaves are compared; they are other ones than each other."""
        pairs = zip(self.list_path(leaf), self.list_path(other), strict=False)
        return next((one, another) for one, another in pairs if one != another)

    def group_children(self, leaves: Iterable[str]) -> dict[Sibling | None, dict[Sibling, None]]:
        """Return the children of each tenant on the paths of some leaves; those of the root by None."""
        children: dict[Sibling | None, dict[Sibling, None]] = {}
        for leaf in leaves:
            parent: Sibling | None = None
            for each in self.list_path(leaf):
                children.setdefault(parent, {})[each] = None
                parent = each
        return children

    def compute_level(self, sibling: Sibling, pool: int, asked: Asked) -> int:
        """Return the level on a pool."""
        key = sibling, pool, asked if sibling.is_inner else _NOTHING
        if key not in self._levels:
            if sibling.is_inner:
                used_up = self._find_used_up(pool, asked)
                level = self._measure.compute_inner_level(self._get_inner(sibling.name), pool, used_up)
            else:
                level = self._measure.compute_level(self._progress_of[sibling.name], pool)
            self._levels[key] = level
        return self._levels[key]

    def compute_share(self, sibling: Sibling, pool: int, asked: Asked) -> float:
        """Return the level for people."""
        key = sibling, pool, asked if sibling.is_inner else _NOTHING
        if key not in self._shares:
            self._shares[key] = self._measure_share(sibling, pool, asked)
        return self._shares[key]

    def _measure_share(self, sibling: Sibling, pool: int, asked: Asked) -> float:
        if sibling.is_inner:
            used_up = self._find_used_up(pool, asked)
            return self._measure.compute_inner_share(self._get_inner(sibling.name), pool, used_up)
        return self._measure.compute_share(self._progress_of[sibling.name], pool)

    def measure_steps(self, task_class: TaskClass, pool: int) -> list[Step]:
        """Return what one task more of a class would change along the path of its tenant, the root's child first."""
        path, asked = self.list_path(task_class.tenant), find_asked(task_class)
        before = [self.compute_share(sibling, pool, asked) for sibling in path]
        progress, above = self._progress_of[task_class.tenant], [self._get_inner(each.name) for each in path[:-1]]
        self._measure.add(progress, task_class, pool)
        for inner in above:
            inner.add(task_class.share_demand_r)
        after = [self._measure_share(sibling, pool, asked) for sibling in path]
        for inner in above:
            inner.remove(task_class.share_demand_r)
        self._measure.remove(progress, task_class, pool)
        return [Step(*each) for each in zip(path, before, map(sub, after, before), strict=True)]

    def find_inner_weight(self, sibling: Sibling) -> float | None:
        """Return the weight of an inner tenant among its siblings; None for a leaf."""
        if self._tree is None or not sibling.is_inner:
            return None
        return float(self._tree.hierarchy.inner[sibling.name].tenant.weight)

    def get_priority(self, sibling: Sibling) -> int:
        """Return the priority among siblings."""
        return 0 if self._tree is None else self._get_place(self._tree, sibling).priority

    def get_guaranteed(self, sibling: Sibling) -> Guaranteed | None:
        """Return what is guaranteed to it; None: nothing."""
        return None if self._tree is None else self._tree.get_guaranteed(self._get_place(self._tree, sibling))

    def _get_place(self, tree: Tree, sibling: Sibling) -> Place:
        hierarchy = tree.hierarchy
        return hierarchy.inner[sibling.name].place if sibling.is_inner else hierarchy.get_place(sibling.name)

    def _get_inner(self, name: str) -> Progress:
        assert self._tree is not None, "without a tree there is no inner tenant"
        return self._tree.get_progress(self._tree.hierarchy.inner[name])

    def _find_used_up(self, pool: int, asked: Asked) -> frozenset[int]:
        """Return the resources that do not count for inner tenants on a pool."""
        return (
            frozenset() if self._used_up is None else self._used_up.get(pool if self._measure.is_by_pool else 0) - asked
        )
