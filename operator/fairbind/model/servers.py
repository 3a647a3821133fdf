"""Servers: machines with a capacity vector, kept as arrays in name order.

Index order is name order everywhere, so "the first of equals" is "the one whose name comes first".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

MAX_AMOUNT = 2**53
"""Amounts saturate here: still exact as float64, and a thousand of them still fit in an int64."""
_LOW_BITS = 32


@dataclass(frozen=True, slots=True, eq=False)
class ServerTable:
    """All servers, sorted by name. Arrays are read-only.

    names: K names, ascending.
    capacity_kr: what tenants' tasks may hold in all, shape (K, R), base units, never negative.
    free_kr: what is neither held nor reserved now, shape (K, R); below zero where the server is overcommitted.
    usable_k: whether they count in the totals C, shape (K,).
    open_k: whether tasks may go there whose placement allows it, shape (K,); None: to those that are usable, only. A
    task may tolerate what makes a server unusable.
    class_k: index of each server's class in `class_names`, shape (K,).
    class_names: one name for each server class; ascending.
    taken_keys: for a server's index the exclusive keys (see `ExclusiveKeys`) that are taken there; absent means none.
    fixed_keys: those of them that are taken by something that is not among the snapshot's running tasks.
    """

    names: tuple[str, ...]
    capacity_kr: IntArray
    free_kr: IntArray
    usable_k: BoolArray
    class_k: NDArray[np.int32]
    class_names: tuple[str, ...]
    taken_keys: Mapping[int, frozenset[str]] = field(default_factory=dict)
    fixed_keys: Mapping[int, frozenset[str]] = field(default_factory=dict)
    open_k: BoolArray | None = None

    def __post_init__(self) -> None:
        for array in (self.capacity_kr, self.free_kr, self.usable_k, self.class_k, self.accepting_k):
            array.flags.writeable = False

    @property
    def accepting_k(self) -> BoolArray:
        """Whether tasks may go there whose placement allows it, shape (K,)."""
        return self.usable_k if self.open_k is None else self.open_k

    def find_index(self, name: str) -> int | None:
        """Return the index of the server with a name, or None."""
        index = bisect_left(self.names, name)
        return index if index < len(self.names) and self.names[index] == name else None


def sum_exactly(amount_kr: IntArray) -> list[int]:
    """Return the sum over the servers of each resource, exactly. amount_kr: never negative, shape (K, R).

    High and low digits are summed apart, so that no int64 overflows.
    """
    high_r = (amount_kr >> _LOW_BITS).sum(axis=0).tolist()
    low_r = (amount_kr & ((1 << _LOW_BITS) - 1)).sum(axis=0).tolist()
    return [(high << _LOW_BITS) + low for high, low in zip(high_r, low_r, strict=True)]


def sum_free_shares(free_kr: IntArray, capacity_kr: IntArray) -> FloatArray:
    """Return the free parts of each server's resources, added up: the less, the fuller it is, shape (K,)."""
    shares_k: FloatArray = (free_kr / np.maximum(capacity_kr, 1)).sum(axis=1)
    return shares_k
