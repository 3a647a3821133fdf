"""What the examples of the DRF paper share: one pool, divided by a mechanism, and words for what comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from fairbind.fairness import Allocation, compute_allocation, make_problem
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.properties import PROPERTIES
from fairbind.simulator.reproduction.judging import CLOSE
from fairbind.simulator.reproduction.outcome import Panel, Series, Value

Numbers = Sequence[float]

LARGEST_DENOMINATOR: Final = 200
TWO_RESOURCES: Final = ("resource 1", "resource 2")


def write_number(value: float) -> str:
    """Return a number as a fraction, if it is one as the examples have, else as a decimal number.

    >>> write_number(45 / 11), write_number(12.0), write_number(2**0.5)
    ('45/11', '12', '1.414')
    """
    near = Fraction(value).limit_denominator(LARGEST_DENOMINATOR)
    return str(near) if math.isclose(near, value, rel_tol=CLOSE / 10) else f"{value:.4g}"


def write_numbers(values: npt.ArrayLike) -> str:
    """Return several numbers, or rows of numbers.

    >>> write_numbers([[6, 18], [12, 12]]), write_numbers([2 / 3, 1.0])
    ('(6, 18), (12, 12)', '(2/3, 1)')
    """
    return ", ".join(f"({', '.join(map(write_number, row))})" for row in np.atleast_2d(values).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """What the users of one pool have.

    tasks_i: shape (I,). held_ir, part_ir: amounts and parts of the pool, shape (I, R).
    """

    allocation: Allocation
    tasks_i: FloatArray
    held_ir: FloatArray
    part_ir: FloatArray

    def list_rows(self) -> list[tuple[Value, ...]]:
        """Return for each user: its name, tasks, amounts, parts, and the largest of these. See `list_columns`."""
        return [
            (name, float(tasks), *held, *parts, max(parts))
            for name, tasks, held, parts in zip(
                self.allocation.problem.tenant_names,
                self.tasks_i,
                self.held_ir.tolist(),
                self.part_ir.tolist(),
                strict=True,
            )
        ]

    def draw(self, title: str = "") -> Panel:
        """Return a picture of the users' parts."""
        problem = self.allocation.problem
        series = [
            Series(name, problem.resources, parts)
            for name, parts in zip(problem.tenant_names, self.part_ir.tolist(), strict=True)
        ]
        return Panel("bars", "Resource", "Allocated part", series, title)

    def describe(self, property_id: str) -> str:
        """Return what violates a property."""
        problem, mechanism = self.allocation.problem, self.allocation.mechanism
        witness = PROPERTIES[property_id].find(problem, mechanism, self.allocation)
        return "no violation is found" if witness is None else witness.text


def divide(
    mechanism: str,
    capacity: Numbers,
    demand_ir: Sequence[Numbers],
    *,
    resources: Sequence[str] = TWO_RESOURCES,
    users: Sequence[str] | None = None,
) -> Division:
    """Return how a mechanism divides one pool among endless divisible tasks. users: their names, else 1, 2 ..."""
    names = users or [f"user {place + 1}" for place in range(len(demand_ir))]
    problem = make_problem([capacity], demand_ir, resources=resources, tenant_names=names)
    allocation = compute_allocation(problem, mechanism)
    held_ir = allocation.totals_i[:, None] * problem.demand_ir
    return Division(allocation, allocation.totals_i, held_ir, held_ir / problem.capacity_kr[0])


def list_columns(resources: Sequence[str] = TWO_RESOURCES) -> tuple[str, ...]:
    """Return the names of what `Division.list_rows` returns."""
    amounts = [name.replace(" ", "_") for name in resources]
    return "user", "tasks", *amounts, *(f"{name}_share" for name in amounts), "dominant_share"
