"""Fit: how well a task suits a server. Less is better; only servers on which the task fits are compared.

Best fit is the heuristic H(i, l) of DRFH (TPDS 2015, eq. 9): the L1 distance between the task's demand vector and the
server's vector of what is left, both divided by their entry of a reference resource. The paper takes resource 1, which
is undefined for a task that asks nothing of it and depends on the order of the resources. Here the reference is the
task's dominant resource: the task asks for it and fits, so neither divisor is zero. Vectors are in parts of the
cluster's totals, otherwise bytes would drown the rest. Only resources that the cluster has and that the snapshot names
for it (`Snapshot.fits_r`) take part; as a rule these are the fairness resources.

Two others can be chosen (`Snapshot.fit`). The distance as the paper prints it has the first of these resources by name
as its reference, which the paper's resource 1, the CPUs, is; for a task that asks nothing of it, it is undefined, and
such a task's reference is its dominant resource. The paper also names the cosine of the angle between the two vectors
(section 5.2), for which no reference matters.

A task that asks for none of them has no direction to compare. It goes to the server that is least loaded: the
mean over all resources of the server, fairness resource or not, of the part in use. A server of nothing counts as full.

Each score is written twice, for many servers and for one, with the same operations in the same order, so both give
the same bits. A quotient of two amounts is rounded once, so equal proportions of different sizes tie exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Protocol

import numpy as np

from fairbind.model import Fit, Snapshot
from fairbind.model.servers import FloatArray, IndexArray, IntArray


class Score(Protocol):
    """How well one demand suits servers on which it fits.

    What it says about other servers is ignored, even if it is no number, and divisions by zero are expected there:
    the caller has silenced numpy's warnings about them.
    """

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        """Return the scores of servers with these indices, shape (n,). left_rn: what they have left, shape (R, n)."""
        ...

    def score_one(self, server: int, free_r: Sequence[int]) -> float:
        """Return the score of one server. free_r: what is free there, maybe below zero, length R."""
        ...


class FitRule(Protocol):
    """Makes the scores of demands in one snapshot."""

    def build_score(self, demand_r: Sequence[int]) -> Score:
        """Return the score for tasks of this demand."""
        ...


class NoPreference:
    """All servers are equal, so the one whose name comes first is taken."""

    __slots__ = ()

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:  # noqa: ARG002 (the protocol's shape)
        """Return zeros."""
        return np.zeros(len(servers))

    def score_one(self, server: int, free_r: Sequence[int]) -> float:  # noqa: ARG002 (the protocol's shape)
        """Return zero."""
        return 0.0


class ShapeDistance:
    """H(i, l) of DRFH, eq. 9, with the dominant resource as the reference.

    reference: index of the dominant resource. terms: for each other fairness resource r its index, the ratio of the
    totals C_reference / C_r, and the task's own (D_r / C_r) / (D_reference / C_reference).
    """

    __slots__ = ("_reference", "_terms")

    def __init__(self, reference: int, terms: Sequence[tuple[int, float, float]]) -> None:
        self._reference = reference
        self._terms = terms

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        """Return H for many servers."""
        distance: FloatArray | None = None
        reference = left_rn[self._reference]
        for r, scale, ratio in self._terms:
            term = left_rn[r] / reference
            term *= scale
            term -= ratio
            np.abs(term, out=term)
            distance = term if distance is None else np.add(distance, term, out=distance)
        return np.zeros(len(servers)) if distance is None else distance

    def score_one(self, server: int, free_r: Sequence[int]) -> float:  # noqa: ARG002 (the protocol's shape)
        """Return H for one server."""
        distance = 0.0
        reference = free_r[self._reference]
        for r, scale, ratio in self._terms:
            distance += abs(max(free_r[r], 0) / reference * scale - ratio)
        return distance


class Angle:
    """1 - the cosine of the angle between the demand and what is left, both in parts of the totals.

    Both are divided by their entry of the dominant resource first, so that equal proportions of different sizes tie.
    reference, terms: as of `ShapeDistance`.
    """

    __slots__ = ("_length", "_reference", "_terms")

    def __init__(self, reference: int, terms: Sequence[tuple[int, float, float]]) -> None:
        self._reference = reference
        self._terms = terms
        self._length = sqrt(1.0 + sum(ratio * ratio for _, _, ratio in terms))

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        """Return the scores of many servers."""
        product, square = np.ones(len(servers)), np.ones(len(servers))
        reference = left_rn[self._reference]
        for r, scale, ratio in self._terms:
            term = left_rn[r] / reference
            term *= scale
            product += term * ratio
            term *= term
            square += term
        np.sqrt(square, out=square)
        square *= self._length
        product /= square
        return np.subtract(1.0, product, out=product)

    def score_one(self, server: int, free_r: Sequence[int]) -> float:  # noqa: ARG002 (the protocol's shape)
        """Return the score of one server."""
        product = square = 1.0
        reference = free_r[self._reference]
        for r, scale, ratio in self._terms:
            term = max(free_r[r], 0) / reference * scale
            product += term * ratio
            square += term * term
        return 1.0 - product / (sqrt(square) * self._length)


class MeanLoad:
    """The mean part in use over the resources that the server has; for tasks without a direction.

    capacity_rk: base units, shape (R, K).
    """

    __slots__ = ("_axes_k", "_capacity_rk")

    def __init__(self, capacity_rk: IntArray) -> None:
        self._capacity_rk = np.maximum(capacity_rk, 1)
        self._axes_k = np.maximum(np.count_nonzero(capacity_rk > 0, axis=0), 1)

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        """Return the mean load of many servers."""
        left_share: FloatArray = np.zeros(len(servers))
        for capacity_k, left_n in zip(self._capacity_rk, left_rn, strict=True):
            left_share += left_n / capacity_k[servers]
        load: FloatArray = 1.0 - left_share / self._axes_k[servers]
        return load

    def score_one(self, server: int, free_r: Sequence[int]) -> float:
        """Return the mean load of one server."""
        left_share = 0.0
        for free, capacity in zip(free_r, self._capacity_rk[:, server].tolist(), strict=True):
            left_share += max(free, 0) / capacity
        return 1.0 - left_share / int(self._axes_k[server])


class FirstFit:
    """Makes the scores of first fit: none is better than another."""

    __slots__ = ()

    def __init__(self, snapshot: Snapshot) -> None:
        """Take nothing from the snapshot: first fit looks only at names."""

    def build_score(self, demand_r: Sequence[int]) -> Score:  # noqa: ARG002 (the same call as for best fit)
        """Return the score for tasks of this demand."""
        return NoPreference()


class BestFit:
    """Makes the scores of best fit for one snapshot, as its `fit` says."""

    __slots__ = ("_axes", "_capacity_kr", "_fit", "_load", "_total_r")

    def __init__(self, snapshot: Snapshot) -> None:
        self._fit = snapshot.fit
        self._total_r = snapshot.total_r
        self._capacity_kr = snapshot.servers.capacity_kr
        fits_r = snapshot.counts_r if snapshot.fits_r is None else snapshot.fits_r
        named = sorted((name, r) for r, name in enumerate(snapshot.resources))
        self._axes = [r for _, r in named if fits_r[r] and snapshot.total_r[r] > 0]
        self._load: MeanLoad | None = None

    def build_score(self, demand_r: Sequence[int]) -> Score:
        """Return the score for tasks of this demand."""
        total_r = self._total_r
        reference = find_dominant_axis(demand_r, total_r, self._axes)
        if reference is None:
            if self._load is None:
                self._load = MeanLoad(self._capacity_kr.T)
            return self._load
        if self._fit is Fit.FIRST_RESOURCE and demand_r[self._axes[0]] > 0:
            reference = self._axes[0]
        demand, total = demand_r[reference], total_r[reference]
        terms = tuple(
            (r, total / total_r[r], demand_r[r] * total / (total_r[r] * demand)) for r in self._axes if r != reference
        )
        return Angle(reference, terms) if self._fit is Fit.COSINE else ShapeDistance(reference, terms)


def find_dominant_axis(demand_r: Sequence[int], total_r: Sequence[int], axes: Sequence[int]) -> int | None:
    """Return the axis whose total the demand takes the largest part of, the first of equals; None if it takes none.

    >>> find_dominant_axis([1, 4], [9, 18], [0, 1])
    1
    """
    best, of, dominant = 0, 1, None
    for r in axes:
        if demand_r[r] * of > best * total_r[r]:
            best, of, dominant = demand_r[r], total_r[r], r
    return dominant
