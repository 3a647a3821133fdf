"""What is kept of derived values must be what is computed from nothing: `find_wrong` looks at all of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from fairbind.cluster.state.running import _NodeTasks
from fairbind.derived import Derived, Memo, Table
from fairbind.model import Domains
from fairbind.scheduling.policies.levels import Progress


def find_wrong(root: object) -> list[object]:
    """Return the derived values below an object that are not what is computed from nothing."""
    return [(kept, wrong) for kept in find_kept(root) for wrong in kept.list_wrong(is_alike)]


def find_kept(root: object) -> list[Derived[Any] | Memo[Any, Any] | Table[Any, Any]]:
    """Return all derived values below an object."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        each = todo.pop()
        if id(each) not in seen and _is_looked_at(each):
            seen[id(each)] = each
            todo.extend(_list_parts(each))
    return [each for each in seen.values() if isinstance(each, Derived | Memo | Table)]


def _is_looked_at(each: object) -> bool:
    return isinstance(each, dict | list | tuple | set | frozenset) or type(each).__module__.startswith("fairbind")


def _list_parts(each: Any) -> Iterator[object]:
    if isinstance(each, dict):
        return chain(each.keys(), each.values())
    if isinstance(each, _NodeTasks):  # it makes its tasks when they are asked for
        return iter(each.get())
    if isinstance(each, Domains):  # it sorts its members likewise
        return iter((each.size, each.domain_k))
    if isinstance(each, list | tuple | set | frozenset):
        return iter(each)
    slots = (name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ()))
    held = (getattr(each, name) for name in slots if hasattr(each, name))
    return chain(getattr(each, "__dict__", {}).values(), held)


def is_alike(one: Any, other: Any) -> bool:
    """Whether two values say the same, also where they are equal to themselves only."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_alike, one, other))
    if type(one).__module__.startswith("fairbind") and not isinstance(one, Progress):
        return is_alike([*_list_parts(one)], [*_list_parts(other)])
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(is_alike(value, other[key]) for key, value in one.items())
    return bool(one == other)  # of progress: how often something was counted in it and taken back does not matter
