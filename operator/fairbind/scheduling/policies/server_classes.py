"""Server classes: servers that are equal but for a small difference, treated as one pool by the PS-DSF policies.

Machines of one kind report slightly different capacities, and PS-DSF jumps between nearly identical servers: a
difference of a thousandth can take away all that sharing gains. Rounding to a grid would not help, because two nearly
equal values can lie on both sides of a grid line. So values are compared with each other: first every clear gap splits,
then, inside what has no gap, a class starts at the least value and takes all within the tolerance of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairbind.model import InvalidProblemError
from fairbind.model.servers import IntArray

LabelArray = NDArray[np.int64]

MAX_TOLERANCE = 0.5


def compute_server_classes(
    capacity_kr: IntArray, signatures: Sequence[Hashable], names: Sequence[str], tolerance: float
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return each server's class, shape (K,), and the classes' names, ascending; a class is named after its first.

    Two servers of one class have equal signatures, and in each resource capacities that differ by at most `tolerance`
    of the smaller one; zero equals only zero. The result depends on the order of neither servers nor resources.
    Complexity: O(R K log K) a pass, and two or three passes as a rule.

    capacity_kr: base units, never negative, shape (K, R). signatures: what else must be equal, such as who is eligible.
    tolerance: relative, from 0 to 0.5.

    >>> capacity_kr = np.array([[100, 0], [101, 0], [100, 1], [150, 0]])
    >>> class_k, class_names = compute_server_classes(capacity_kr, [0, 0, 0, 0], ["a", "b", "c", "d"], 0.02)
    >>> class_k.tolist(), class_names
    ([0, 0, 1, 2], ('a', 'c', 'd'))
    """
    if not 0 <= tolerance <= MAX_TOLERANCE:
        raise InvalidProblemError(f"server_class_tolerance is {tolerance}; it must be from 0 to {MAX_TOLERANCE}")
    numbers: dict[Hashable, int] = {}
    label_k = np.array([numbers.setdefault(signature, len(numbers)) for signature in signatures], dtype=np.int64)
    if len(names) == 0:
        return np.zeros(0, dtype=np.int32), ()
    label_k = _split_at_gaps(capacity_kr, label_k, tolerance)
    label_k = _split_long_chains(capacity_kr, label_k, tolerance)
    first_of: dict[int, str] = {}
    for label, name in zip(label_k.tolist(), names, strict=True):
        first_of[label] = min(name, first_of.get(label, name))
    class_names = tuple(sorted(first_of.values()))
    index_of = {name: index for index, name in enumerate(class_names)}
    class_of_label = {label: index_of[name] for label, name in first_of.items()}
    return np.array([class_of_label[label] for label in label_k.tolist()], dtype=np.int32), class_names


def _split_at_gaps(capacity_kr: IntArray, label_k: LabelArray, tolerance: float) -> LabelArray:
    """Split wherever two neighbouring values of a class differ too much, until nothing splits any more.

    A gap of a class is a gap of each of its parts, so the order of the splits does not matter.
    """
    count = -1
    while (largest := int(label_k.max())) != count:
        count = largest
        for value_k in capacity_kr.T:
            order = np.lexsort((value_k, label_k))
            label, value = label_k[order], value_k[order]
            breaks = (np.diff(label) != 0) | (np.diff(value) > tolerance * value[:-1])
            label_k = np.empty_like(label_k)
            label_k[order] = np.concatenate(([0], np.cumsum(breaks)))
    return label_k


def _split_long_chains(capacity_kr: IntArray, label_k: LabelArray, tolerance: float) -> LabelArray:
    """Cut classes whose values have no gap but reach further than the tolerance."""
    part_kr = np.zeros_like(capacity_kr)
    for r, value_k in enumerate(capacity_kr.T):
        order = np.lexsort((value_k, label_k))
        label, value = label_k[order], value_k[order]
        starts = np.flatnonzero(np.concatenate(([True], np.diff(label) != 0)))
        stops = np.append(starts[1:], len(value))
        long = value[stops - 1] - value[starts] > tolerance * value[starts]
        for start, stop in zip(starts[long].tolist(), stops[long].tolist(), strict=True):
            part_kr[order[start:stop], r] = _cut_chain(value[start:stop], tolerance)
    _, merged_k = np.unique(np.column_stack((label_k, part_kr)), axis=0, return_inverse=True)
    return merged_k.reshape(-1).astype(np.int64)


def _cut_chain(value: IntArray, tolerance: float) -> LabelArray:
    """Number the parts of ascending values: a part starts at its least value and takes all within the tolerance."""
    part = np.zeros(len(value), dtype=np.int64)
    start = 0
    while start < len(value):
        reach = value[start:] - value[start] <= tolerance * value[start]
        length = int(np.count_nonzero(reach))
        part[start : start + length] = start
        start += length
    return part
