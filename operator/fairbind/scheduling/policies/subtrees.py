"""Subtrees: which leaves are below an inner tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from fairbind.model.hierarchy import Hierarchy


@lru_cache(maxsize=1)
def list_leaves(hierarchy: Hierarchy) -> Mapping[str, Sequence[str]]:
    """Return the leaves below each inner tenant that has some, by name. The last answer is kept."""
    below: dict[str, list[str]] = {name: [] for name in hierarchy.inner}
    for leaf in hierarchy.leaves:
        for inner in hierarchy.list_above(leaf):
            below[inner.tenant.name].append(leaf)
    return below
