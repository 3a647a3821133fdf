"""Server classes of the nodes, remembered: they change seldom, and comparing thousands of nodes takes milliseconds.

Two nodes can be of one class only if every task that waits now may use both or none. So the answer depends on the
capacities and on the set of different eligibility vectors; sets come and go with the queues, and the answers that were
asked for last are kept until a capacity changes.

Thousands of nodes are of a few kinds as a rule. Nodes of equal capacity that the same tasks may use are of one class in
any case, so only one of each such kind, the first by name, is compared with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_

import numpy as np
from numpy.typing import NDArray

from fairbind.model import Placement
from fairbind.model.servers import BoolArray, IntArray
from fairbind.scheduling import compute_server_classes

Classes = tuple[NDArray[np.int32], tuple[str, ...]]
NumberArray = NDArray[np.int64]

_REMEMBERED = 64
_MANY_VECTORS = 62
"""So many bits a number has room for; with more vectors rows of bits are numbered."""


class ServerGrouping:
    """Computes classes, and remembers the last few answers."""

    def __init__(self) -> None:
        self._valid_for: tuple[int, float] | None = None
        self._known: dict[frozenset[bytes], Classes] = {}
        self._last: tuple[list[Placement], Classes] | None = None
        self._capacity_number_k: NumberArray = np.zeros(0, dtype=np.int64)

    def compute(
        self,
        names: Sequence[str],
        capacity_kr: IntArray,
        capacity_version: int,
        placements: Iterable[Placement],
        tolerance: float,
        usable_k: BoolArray | None = None,
    ) -> Classes:
        """Return each node's class and the classes' names, as `compute_server_classes` does.

        names: ascending. capacity_version: changes whenever names, capacities or usable servers do. placements: those
        of the tasks that wait, each once. usable_k: whose capacity counts; who may use the others sets no two servers
        apart. None: all.
        """
        if (capacity_version, tolerance) != self._valid_for:
            self._valid_for = capacity_version, tolerance
            self._known.clear()
            self._last = None
            self._capacity_number_k = number_rows(capacity_kr)
        placements = list(placements)
        if self._last is not None and _are_identical(placements, self._last[0]):
            return self._last[1]
        eligible_sk = (each.eligible_k if usable_k is None else each.eligible_k & usable_k for each in placements)
        vectors = {np.packbits(eligible_k).tobytes(): eligible_k for eligible_k in eligible_sk}
        key = frozenset(vectors)
        answer = self._known.pop(key, None)
        if answer is None:
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            answer = self._group(names, capacity_kr, list(vectors.values()), tolerance)
        self._known[key] = answer  # at the end: the one at the front was asked for longest ago
        self._last = placements, answer
        return answer

    def _group(
        self, names: Sequence[str], capacity_kr: IntArray, eligible_sk: Sequence[BoolArray], tolerance: float
    ) -> Classes:
        signature_k = number_signatures(eligible_sk, len(names))
        both_kr = np.column_stack((self._capacity_number_k, signature_k))
        kind_k = number_rows(both_kr)
        first_of_kind = np.unique(kind_k, return_index=True)[1]
        class_of_kind, class_names = compute_server_classes(
            capacity_kr[first_of_kind],
            signature_k[first_of_kind].tolist(),
            [names[first] for first in first_of_kind.tolist()],
            tolerance,
        )
        return class_of_kind[kind_k], class_names


def _are_identical(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def number_rows(value_kr: IntArray) -> NumberArray:
    """Return a number from 0 on for each row, equal for equal rows.

    >>> number_rows(np.array([[4, 1], [2, 7], [4, 1]]))
    array([1, 0, 1])
    """
    rows: dict[bytes, int] = {}
    first_n: list[int] = []
    place_k = np.zeros(len(value_kr), dtype=np.int64)
    for k, row_r in enumerate(np.ascontiguousarray(value_kr)):  # a few kinds as a rule, so that few rows are compared
        place_k[k] = place = rows.setdefault(row_r.tobytes(), len(rows))
        if place == len(first_n):
            first_n.append(k)
    return _number_distinct_rows(value_kr[first_n])[place_k]


def _number_distinct_rows(value_nr: IntArray) -> NumberArray:
    number_n = np.zeros(len(value_nr), dtype=np.int64)
    for value_n in value_nr.T:
        distinct, code_n = np.unique(value_n, return_inverse=True)
        if len(distinct) > 1:
            # Column by column, renumbered each time: a product of two counts of rows never overflows.
            number_n = np.unique(number_n * len(distinct) + code_n.reshape(-1), return_inverse=True)[1].reshape(-1)
    return number_n


def number_signatures(eligible_sk: Sequence[BoolArray], count: int) -> NumberArray:
    """Return a number for each of `count` nodes, equal where the same of the vectors hold.

    >>> number_signatures([np.array([True, False, True]), np.array([True, False, False])], 3).tolist()
    [3, 0, 2]
    """
    if len(eligible_sk) > _MANY_VECTORS:
        bits_k = np.ascontiguousarray(np.packbits(np.array(eligible_sk), axis=0).T)
        rows_k = bits_k.view(np.dtype((np.void, bits_k.shape[1]))).reshape(-1)
        return np.unique(rows_k, return_inverse=True)[1].reshape(-1).astype(np.int64)
    number_k = np.zeros(count, dtype=np.int64)
    for eligible_k in eligible_sk:
        number_k = 2 * number_k + eligible_k
    return number_k
