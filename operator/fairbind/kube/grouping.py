"""Server classes of the nodes, remembered: they change seldom, and comparing thousands of nodes takes milliseconds.

Two nodes can be of one class only if every task that waits now may use both or none. So the answer depends on the
capacities and on the set of different eligibility vectors; a few sets come and go with the queues, and their answers
are kept until a capacity changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairbind.model import Placement
from fairbind.model.servers import BoolArray, IntArray
from fairbind.scheduling import compute_server_classes

Classes = tuple[NDArray[np.int32], tuple[str, ...]]

_REMEMBERED = 16


class ServerGrouping:
    """Computes classes, and remembers the last few answers."""

    def __init__(self) -> None:
        self._valid_for: tuple[int, float] | None = None
        self._answers: dict[frozenset[bytes], Classes] = {}

    def compute(
        self,
        names: Sequence[str],
        capacity_kr: IntArray,
        capacity_version: int,
        placements: Iterable[Placement],
        tolerance: float,
    ) -> Classes:
        """Return each node's class and the classes' names, as `compute_server_classes` does.

        capacity_version: changes whenever names or capacities do. placements: of the tasks that wait.
        """
        if (capacity_version, tolerance) != self._valid_for:
            self._valid_for = capacity_version, tolerance
            self._answers.clear()
        arrays = {id(placement.eligible_k): placement.eligible_k for placement in placements}
        vectors = {np.packbits(eligible_k).tobytes(): eligible_k for eligible_k in arrays.values()}
        key = frozenset(vectors)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.pop(next(iter(self._answers)))
            signatures = compute_signatures(list(vectors.values()), len(names))
            answer = self._answers[key] = compute_server_classes(capacity_kr, signatures, names, tolerance)
        return answer


def compute_signatures(eligible_sk: Sequence[BoolArray], count: int) -> list[bytes]:
    r"""Return for each of `count` nodes which of the vectors hold there, as bytes that are equal when the nodes are.

    Equal for the same set of vectors whatever their order is.

    >>> compute_signatures([np.array([True, False, True])], 3)
    [b'\x80', b'\x00', b'\x80']
    """
    if not eligible_sk:
        return [b""] * count
    bits_ks = np.packbits(np.stack(eligible_sk), axis=0).T
    return [row.tobytes() for row in np.ascontiguousarray(bits_ks)]
