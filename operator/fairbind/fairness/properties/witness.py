"""Defines properties and witnesses against them, and which differences count.

A violation counts if it is more than `SMALLEST_VIOLATION` of what the tenant should have and more than `SOLVER_NOISE`
of what the tenant could run alone on everything that it may use: smaller differences are rounding of solvers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem

SMALLEST_VIOLATION = 1e-6
SOLVER_NOISE = 1e-9
TIE = 1e-7  # relative: violations that differ by less are equally large, and the one that is listed first is named
TRIES = 20


@dataclass(frozen=True, slots=True)
class Witness:
    """A violation of a property: which tenant, what and by how much.

    text: one line for a reader. size: the violation as a part of what the tenant should have (1: twice as much would
    be right). evidence: plain JSON values to check it with.
    """

    property: str
    text: str
    size: float
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"property": self.property, "text": self.text, "size": self.size, "evidence": dict(self.evidence)}


class Finder(Protocol):
    """Looks for a witness against a property of one mechanism on one problem."""

    def __call__(
        self,
        problem: Problem,
        mechanism_id: str,
        allocation: Allocation,
        *,
        alpha: float | None = None,
        generator: np.random.Generator | None = None,
        tries: int = TRIES,
    ) -> Witness | None:
        """Return a witness or None.

        allocation: the mechanism's, for this problem and alpha. generator, tries: for properties that are searched;
        without a generator only deterministic candidates are tried.
        """
        ...


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its definition, its source and the search for a witness against it.

    options: those that a mechanism must take for the property to apply. is_searched: None from `find` means only that
    the search found nothing; otherwise it means that the property holds here, within the tolerance. is_for_trees:
    whether it means something for tenants in a tree.
    """

    id: str
    name: str
    definition: str
    source: str
    find: Finder
    options: frozenset[Option] = frozenset()
    is_searched: bool = False
    is_for_trees: bool = False


def counts(shortfall_i: FloatArray, wanted_i: FloatArray, alone_i: FloatArray) -> BoolArray:
    """Return which shortfalls are more than rounding; all in tasks, shape (I,)."""
    is_counted: BoolArray = (shortfall_i > SMALLEST_VIOLATION * wanted_i) & (shortfall_i > SOLVER_NOISE * alone_i)
    return is_counted


def find_worst(got_i: FloatArray, wanted_i: FloatArray, alone_i: FloatArray) -> tuple[int, float] | None:
    """Return the tenant that falls short of its due by the largest part, and that part; None if no tenant does.

    >>> find_worst(np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([9.0, 9.0]))
    (0, 0.5)
    """
    shortfall_i = wanted_i - got_i
    is_counted_i = counts(shortfall_i, wanted_i, alone_i)
    if not is_counted_i.any():
        return None
    part_i = np.where(is_counted_i, shortfall_i / np.where(is_counted_i, wanted_i, 1.0), 0.0)
    worst = find_first_largest(part_i)
    return worst, float(part_i[worst])


def find_first_largest(size_i: FloatArray) -> int:
    """Return the first of the largest values, ignoring differences by rounding.

    >>> find_first_largest(np.array([1.0, 2.0, 2.0 + 1e-12]))
    1
    """
    return int((size_i >= size_i.max() * (1 - TIE)).argmax())


def is_larger(size: float, other: float) -> bool:
    """Return whether one violation is larger than the other by more than rounding."""
    return size > other * (1 + TIE)


def number(value: float) -> str:
    """Return a number as text for a reader.

    >>> number(2.0), number(1 / 3)
    ('2', '0.333333')
    """
    return f"{value:.6g}"


def percent(part: float) -> str:
    """Return a part as percent.

    >>> percent(0.256), percent(2e-5)
    ('25.6 %', '0.002 %')
    """
    return f"{100 * part:.3g} %"
