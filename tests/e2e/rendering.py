"""The chart as helm renders it, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]
Render = Callable[..., list[Json]]
"""Return the objects that the chart renders with these further arguments of helm."""

HOME = "fairbind-system"


def find(objects: Iterable[Json], kind: str, name: str = "fairbind") -> Json:
    """Return the one object of a kind and a name."""
    (found,) = (thing for thing in objects if (thing["kind"], thing["metadata"]["name"]) == (kind, name))
    return found


def list_kinds(objects: Iterable[Json]) -> set[tuple[str, str]]:
    """Return kind and name of each."""
    return {(thing["kind"], thing["metadata"]["name"]) for thing in objects}
