"""The answer to a problem: tasks per tenant and server entry, with the proof that they are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solver's answer for an `Instance`, not yet verified.

    tasks_ik: tasks of each group on each class, shape (I, K). evidence: arrays or numbers by name (duals, prices,
    levels) with which the mechanism's `certify` checks the certificate.
    """

    tasks_ik: FloatArray
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """The values with which the certificate was checked, so that others can check it again.

    instance: the problem in the solver's units, where every total is 1. resources: the names of the instance's
    resources, in its order. values: prices, levels or multipliers by name; each name ends in the axes of its array.
    """

    instance: Instance
    resources: tuple[str, ...]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """A verified answer. Arrays follow the order of the problem's tenants (I) and server entries (K).

    tasks_ik: tasks of tenant i on all servers of entry k together, shape (I, K). totals_i: their sums.
    dominant_shares_i: max over r of total x d_ir / C_r, C over all entries; resources that no server has are left
    out. certificate: why the answer is right, as plain JSON values. status: "optimal", or "converged" for an iterative
    solver, whose certificate says how far it came; anything else is an error. proof: prices, levels and multipliers;
    None for an allocation computed elsewhere.
    """

    problem: Problem
    mechanism: str
    tasks_ik: FloatArray
    totals_i: FloatArray
    dominant_shares_i: FloatArray
    certificate: Mapping[str, Any]
    status: str = "optimal"
    proof: Proof | None = None
