"""Server classes of the nodes, remembered: they change seldom, and comparing thousands of nodes takes milliseconds.

Two nodes can be of one class only if every task that waits now may use both or none. So the answer depends on the
capacities and on the set of different eligibility vectors; sets come and go with the queues, and the answers that were
asked for last are kept until a capacity changes.

Thousands of nodes are of a few kinds as a rule. Nodes of equal capacity that the same tasks may use are of one class in
any case, so only one of each such kind, the first by name, is compared with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairbind.derived import Memo, Setting
from fairbind.model import Placement, TargetClasses, Targets
from fairbind.model.servers import BoolArray, IntArray
from fairbind.scheduling import compute_server_classes
from fairbind.scheduling.policies.level_pools import classify_servers

Classes = tuple[NDArray[np.int32], tuple[str, ...]]
NumberArray = NDArray[np.int64]

_Nodes = tuple[Sequence[str], IntArray, BoolArray | None]
_REMEMBERED = 8
_MANY_VECTORS = 62
"""So many bits fit into a number; with more vectors rows of bits are numbered."""


class ServerGrouping:
    """Computes classes, and remembers the last few answers."""

    def __init__(self) -> None:
        self._form = Setting((-1, 0.0))
        self._nodes: _Nodes = (), np.zeros((0, 0), dtype=np.int64), None
        self._classes = Memo(self._group, of=(self._form,), most=_REMEMBERED)
        self._target_classes = Memo(self._classify, of=(self._form,), most=_REMEMBERED)

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
        self._nodes = names, capacity_kr, usable_k
        self._form.set((capacity_version, tolerance))
        return self._classes(frozenset(placements))

    def classify(self, targets: Targets) -> TargetClasses:
        """Return the classes of targets as the nodes were when it was computed last; these tell some apart."""
        return self._target_classes(targets)

    def _classify(self, targets: Targets) -> TargetClasses:
        """Return the classes of some targets, in which all nodes count: any may take tasks."""
        names, capacity_kr, _ = self._nodes
        return classify_servers(targets, names, capacity_kr, np.ones(len(names), dtype=np.bool_))

    def _group(self, placements: frozenset[Placement]) -> Classes:
        """Return the classes of the nodes as these placements divide them."""
        (names, capacity_kr, usable_k), (_, tolerance) = self._nodes, self._form.value
        eligible_sk = (each.eligible_k if usable_k is None else each.eligible_k & usable_k for each in placements)
        vectors = {np.packbits(eligible_k).tobytes(): eligible_k for eligible_k in eligible_sk}
        signature_k = number_signatures([vectors[key] for key in sorted(vectors)], len(names))
        kind_k = number_rows(np.column_stack((capacity_kr, signature_k)))
        first_of_kind = np.unique(kind_k, return_index=True)[1]
        class_of_kind, class_names = compute_server_classes(
            capacity_kr[first_of_kind],
            signature_k[first_of_kind].tolist(),
            [names[first] for first in first_of_kind.tolist()],
            tolerance,
        )
        return class_of_kind[kind_k], class_names


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
