"""Free volumes that groups of nodes have for claims of one kind, so that one cycle does not send more pods there.

Between cycles each volume that a pod has is taken. Within one cycle pods of a group are placed together, each where a
volume is free as the cycle began. So what they take is counted: nodes that reach a volume in common are one domain, and
a domain takes so many claims as it has volumes that suit them. That is exact where each node reaches volumes of its own
or each zone does, and claims ask for the same. Else a plan may still be refused, and be decided again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairbind.model.topology import NO_DOMAIN, CountArray, DomainCounter, Domains


class SuitingVolumes(NamedTuple):
    """What a counter of claims is about: those of a storage class that the same volumes suit.

    smallest: the first of these volumes. size: how many they are.
    """

    storage_class: str
    smallest: str
    size: int


class Stock(NamedTuple):
    """The free volumes for a kind of claims. counter: of claims that take one of them. most_d: the volumes, (D,)."""

    counter: DomainCounter
    most_d: CountArray


def make_stock(subject: SuitingVolumes, reaches: Sequence[NDArray[np.int64]], nodes: int) -> Stock:
    """Return a stock. reaches: for each volume the nodes that reach it. nodes: how many there are."""
    reaches = [reached for reached in reaches if reached.size]
    mark_k, is_reached_k = np.arange(nodes), np.zeros(nodes, dtype=np.bool_)
    for reached in reaches:
        is_reached_k[reached] = True
        if reached.size > 1:
            mark_k[np.isin(mark_k, mark_k[reached])] = mark_k[reached[0]]
    marks, domain_n = np.unique(mark_k[is_reached_k], return_inverse=True)
    domain_k = np.full(nodes, NO_DOMAIN, dtype=np.int32)
    domain_k[is_reached_k] = domain_n
    firsts = np.array([reached[0] for reached in reaches], dtype=np.intp)
    most_d = np.bincount(domain_k[firsts], minlength=len(marks)).astype(np.int64)
    counter = DomainCounter(subject, Domains(domain_k, len(marks)), np.zeros(len(marks), dtype=np.int64))
    return Stock(counter, most_d)
