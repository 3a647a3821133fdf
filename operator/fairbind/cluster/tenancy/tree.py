"""The tree of tenants as their Tenants declare it, and whose parent does not count and why.

A Tenant may name a parent that is not there, or lead back to itself. Such a tenant hangs below the root, and with it
all that is below it; no other tenant notices. The answer follows from the objects alone, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model.hierarchy import MAX_DEPTH

MAX_CHILDREN: Final = 4_999
"""So many children of one tenant at most, the oldest; the root may have more."""
_SHOWN_OF_A_CIRCLE = 8


class TroubleReason(StrEnum):
    """Reasons why a parent does not count, as the condition ParentValid has them."""

    CIRCLE = "Circle"
    MISSING_PARENT = "MissingParent"
    PARENT_DELETED = "ParentDeleted"
    TOO_DEEP = "TooDeep"
    TOO_MANY = "TooMany"


class ParentTrouble(NamedTuple):
    """Why a tenant hangs below the root although it names a parent. message: with the path."""

    reason: TroubleReason
    message: str


@dataclass(frozen=True, slots=True)
class TenantTree:
    """Who is below whom. parent_of, children_of: parents that count; children are sorted by name.

    trouble_of: tenants whose parent does not count. inner: tenants that have others below them, declared ones or users.
    """

    parent_of: Mapping[str, str]
    children_of: Mapping[str, tuple[str, ...]]
    trouble_of: Mapping[str, ParentTrouble]
    inner: frozenset[str]

    def list_above(self, name: str) -> Iterator[str]:
        """Yield the tenants above one, the nearest first."""
        while (parent := self.parent_of.get(name)) is not None:
            yield parent
            name = parent

    def path_of(self, name: str) -> str:
        """Return the names from the top down to a tenant: research/vis/va."""
        return "/".join([*reversed(list(self.list_above(name))), name])


NO_TREE: Final = TenantTree({}, {}, {}, frozenset())


def build_tree(specs: Iterable[TenantSpec]) -> TenantTree:
    """Return the tree of these tenants, in time that grows as their number does (sorting apart).

    >>> tree = build_tree([TenantSpec("va", parent="vis"), TenantSpec("vis", parent="ml"), TenantSpec("ml")])
    >>> tree.path_of("va"), tree.children_of, sorted(tree.inner)
    ('ml/vis/va', {'ml': ('vis',), 'vis': ('va',)}, ['ml', 'vis'])
    """
    by_name = {spec.name: spec for spec in specs}
    if not any(spec.parent is not None or spec.users_label is not None for spec in by_name.values()):
        return NO_TREE
    build = _Build(by_name)
    build.find_parents()
    build.cut_circles()
    build.cut_late_children()
    build.cut_deep_ones()
    inner = build.children_of.keys() | {spec.name for spec in by_name.values() if spec.users_label is not None}
    return TenantTree(build.parent_of, build.children_of, dict(sorted(build.trouble_of.items())), frozenset(inner))


class _Build:
    """A tree that is being built: first all that is claimed, then less."""

    def __init__(self, by_name: Mapping[str, TenantSpec]) -> None:
        self.by_name = by_name
        self.parent_of: dict[str, str] = {}
        self.children_of: dict[str, tuple[str, ...]] = {}
        self.trouble_of: dict[str, ParentTrouble] = {}

    def find_parents(self) -> None:
        """Keep the parents that are there and stay."""
        for name, spec in sorted(self.by_name.items()):
            parent = spec.parent
            if parent is None:
                continue
            if parent not in self.by_name:
                self._trouble(name, TroubleReason.MISSING_PARENT, f"there is no valid Tenant {parent}: {parent}/{name}")
            elif self.by_name[parent].is_deleted:
                self._trouble(name, TroubleReason.PARENT_DELETED, f"{parent} is being deleted: {parent}/{name}")
            else:
                self.parent_of[name] = parent

    def cut_circles(self) -> None:
        """Hang every member of a circle below the root."""
        done: set[str] = set()
        for start in list(self.parent_of):
            walk: dict[str, None] = {}
            name: str | None = start
            while name is not None and name not in done and name not in walk:
                walk[name] = None
                name = self.parent_of.get(name)
            if name in walk:
                ways = list(walk)
                self._cut_circle(ways[ways.index(name) :])
            done.update(walk)

    def _cut_circle(self, circle: list[str]) -> None:
        """Hang these below the root. circle: each one's parent is the next; the last one's is the first."""
        for n, name in enumerate(circle):
            above = [circle[(n + m) % len(circle)] for m in range(1, min(len(circle), _SHOWN_OF_A_CIRCLE))]
            gap = ["..."] if len(circle) > _SHOWN_OF_A_CIRCLE else []
            path = "/".join([name, *gap, *reversed(above), name])
            self._trouble(name, TroubleReason.CIRCLE, f"the tenant would be above itself: {path}")
        for name in circle:
            del self.parent_of[name]

    def cut_late_children(self) -> None:
        """Leave each parent its oldest children, as many as it may have."""
        children_of: dict[str, list[str]] = {}
        for name, parent in self.parent_of.items():
            children_of.setdefault(parent, []).append(name)
        for parent, children in children_of.items():
            if len(children) > MAX_CHILDREN:
                children.sort(key=lambda name: (self.by_name[name].created, name))
                for name in children[MAX_CHILDREN:]:
                    message = f"{parent} has {MAX_CHILDREN} older children, the most that count: {parent}/{name}"
                    self._trouble(name, TroubleReason.TOO_MANY, message)
                    del self.parent_of[name]
                del children[MAX_CHILDREN:]
            self.children_of[parent] = tuple(sorted(children))

    def cut_deep_ones(self) -> None:
        """Hang what is too many levels below the root there itself, with all that is below it."""
        level = [name for name in self.children_of if name not in self.parent_of]
        paths = {name: name for name in level}
        while level:
            below: list[str] = []
            for parent in level:
                kept = self.children_of.get(parent, ())
                path = paths[parent]
                if kept and path.count("/") + 1 >= MAX_DEPTH:
                    for name in kept:
                        self._cut_deep(name, f"{path}/{name}")
                        paths[name] = name
                    del self.children_of[parent]
                else:
                    paths.update((name, f"{path}/{name}") for name in kept)
                below += kept
            level = below
        self.children_of = dict(sorted(self.children_of.items()))

    def _cut_deep(self, name: str, path: str) -> None:
        message = f"{MAX_DEPTH + 1} levels below the root, {MAX_DEPTH} are the most: {path}"
        self._trouble(name, TroubleReason.TOO_DEEP, message)
        del self.parent_of[name]

    def _trouble(self, name: str, reason: TroubleReason, message: str) -> None:
        self.trouble_of[name] = ParentTrouble(reason, f"{message}; the tenant is a child of the root")
