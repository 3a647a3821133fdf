"""Reads the tree of a problem: `parent`, `priority`, `guarantee`, `limit` and `mixed` of its tenants.

A tenant that another one names as its parent is an inner tenant and has no tasks of its own. Whatever is no tree is
refused with the path that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fairbind.fairness.problems.fields import (
    NamedPlace,
    Path,
    check_known,
    complain,
    read_flag,
    read_list,
    read_mapping,
    read_object,
    read_text,
    read_whole,
    show_value,
)
from fairbind.fairness.problems.tree import MOST_LEVELS, ROOT, Tree, make_bounds

TREE_FIELDS: Final = ("parent", "priority", "guarantee", "limit", "mixed")
ENTRY_FIELDS: Final = ("resources", "servers")
OF_TASKS: Final = ("demand", "tasks", "eligible")
LEAST_PRIORITY, MOST_PRIORITY = -1000, 1000

ReadAmount = Callable[[object, Path], float]
ReadServers = Callable[[object, Path], list[int]]
Entry = tuple[dict[int, float], list[int] | None]  # amounts by resource, and servers' places or all


@dataclass(slots=True)
class TreeReader:
    """The fields of a tree, tenant by tenant, in the document's order."""

    axis: Mapping[str, int]
    read_amount: ReadAmount
    read_servers: ReadServers
    children: Mapping[str, list[str]]
    places: dict[str, int] = field(default_factory=dict)
    parents: dict[str, tuple[str, Path]] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    weights: dict[str, tuple[float, list[float]]] = field(default_factory=dict)  # of inner tenants
    entries: dict[str, dict[str, list[Entry]]] = field(default_factory=lambda: {"guarantee": {}, "limit": {}})
    mixed: dict[str, Path] = field(default_factory=dict)
    has_tree: bool = False

    def is_inner(self, name: object) -> bool:
        """Return whether some tenant names this one as its parent."""
        return isinstance(name, str) and name in self.children

    def check_inner(self, tenant: Mapping[str, object], path: Path) -> None:
        """Raise FieldError if an inner tenant has tasks."""
        for name in OF_TASKS:
            if name in tenant:
                below = ", ".join(self.children[str(tenant["name"])][:3])
                complain((*path, name), f"must be left out: only its children have tasks ({below})")

    def read(self, tenant: Mapping[str, object], path: Path) -> None:
        """Read one tenant's fields. Its name is known to be right."""
        name = str(tenant["name"])
        self.places[name] = len(self.places)
        self.has_tree = self.has_tree or any(field_ in tenant for field_ in TREE_FIELDS)
        if "parent" in tenant:
            at = (*path, "parent")
            self.parents[name] = read_text(tenant["parent"], at, "a tenant's name"), at
        if "priority" in tenant:
            self.priorities[name] = read_whole(tenant["priority"], (*path, "priority"), LEAST_PRIORITY, MOST_PRIORITY)
        if "mixed" in tenant and read_flag(tenant["mixed"], (*path, "mixed")):
            self.mixed[name] = (*path, "mixed")
        for field_, found in self.entries.items():
            if field_ in tenant:
                found[name] = self._read_entries(tenant[field_], (*path, field_))

    def _read_entries(self, value: object, path: Path) -> list[Entry]:
        entries: list[Entry] = []
        for place, one in enumerate(read_list(value, path, "objects with resources")):
            at: Path = (*path, place)
            entry = read_object(one, at, ENTRY_FIELDS, required=("resources",))
            amounts: dict[int, float] = {}
            for name, amount in read_mapping(
                entry["resources"], (*at, "resources"), "an object of amounts by resource"
            ).items():
                check_known(name, (*at, "resources", name), self.axis, "is no resource of this problem")
                amounts[self.axis[name]] = self.read_amount(amount, (*at, "resources", name))
            if not amounts:
                complain((*at, "resources"), "must name at least one resource, not {}")
            servers = None
            if "servers" in entry:
                read_list(entry["servers"], (*at, "servers"), "servers' names")
                servers = self.read_servers(entry["servers"], (*at, "servers"))
            entries.append((amounts, servers))
        return entries

    def make(self, leaves: Sequence[str], servers: int) -> Tree | None:
        """Return the tree, None if no tenant has any of its fields; raise FieldError if it is none."""
        if not self.has_tree:
            return None
        for name, path in self.mixed.items():
            self._check_mixed(name, path)
        for name, (_, path) in self.parents.items():
            self._check_path(name, path)
        inner = tuple(self.weights)
        names = [*leaves, *inner]
        vertex = {name: v for v, name in enumerate(names)}
        bounds = {
            field_: make_bounds(
                [
                    (vertex[name], resource, amount, found)
                    for name, entries in by_name.items()
                    for amounts, found in entries
                    for resource, amount in amounts.items()
                ],
                servers,
            )
            for field_, by_name in self.entries.items()
        }
        return Tree(
            inner_names=inner,
            parent_v=np.array(
                [vertex[self.parents[name][0]] if name in self.parents else ROOT for name in names], dtype=np.intp
            ),
            priority_v=np.array([self.priorities.get(name, 0) for name in names], dtype=np.intp),
            weight_n=np.array([weight for weight, _ in self.weights.values()], dtype=np.float64),
            resource_weight_nr=np.array([weights for _, weights in self.weights.values()], dtype=np.float64).reshape(
                len(inner), len(self.axis)
            ),
            guarantees=bounds["guarantee"],
            limits=bounds["limit"],
            place_v=np.array([self.places[name] for name in names], dtype=np.intp),
            mixed=np.array([n for n, name in enumerate(inner) if name in self.mixed], dtype=np.intp),
        )

    def _check_mixed(self, name: str, path: Path) -> None:
        """Raise FieldError unless all tenants below this one can be kinds of its tasks."""
        if name not in self.children:
            complain(path, "must be left out: no tenant is below it")
        for child in self.children[name]:
            if child in self.children:
                complain(path, f"must be left out: {child} is no kind of its tasks, but has tenants below it")

    def _check_path(self, name: str, path: Path) -> None:
        """Raise FieldError for a path that comes back to itself or is too long."""
        above = [name]
        while above[-1] in self.parents:
            above.append(self.parents[above[-1]][0])
            if above[-1] == name:
                complain(path, f"must not lead back to the tenant itself: {' > '.join(above)}")
            if above[-1] in above[:-1]:
                return  # a circle further up, which its own tenants tell of
        if len(above) - (self.parents[name][0] in self.mixed) > MOST_LEVELS:
            shown = " > ".join(reversed(above))
            complain(path, f"must be at most {MOST_LEVELS} levels deep, not {len(above)}: {shown}")


def find_children(entries: Sequence[object]) -> dict[str, list[str]]:
    """Return the names of the children by the parent's name. Raises FieldError for a parent that no tenant is.

    A parent that is no text is left to the reader of the tenant, which refuses it.

    >>> find_children([{"name": "dev", "parent": "eng"}, {"name": "eng"}, 5])
    {'eng': ['dev']}
    """
    names = [entry["name"] for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)]
    known = dict.fromkeys(names)
    children: dict[str, list[str]] = {}
    for i, entry in enumerate(entries):
        parent = entry.get("parent") if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(parent, str):
            path = ("tenants", name_place(i, entry), "parent")
            check_known(parent, path, known, f"{show_value(parent)} is no tenant of this problem")
            children.setdefault(parent, []).append(str(entry.get("name")))
    return children


def name_place(place: int, entry: object) -> int:
    """Return the place of an entry, with its name where it has one that a message can show."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return NamedPlace(place, name) if isinstance(name, str) and name.strip() and name.isprintable() else place
