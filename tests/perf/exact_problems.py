"""What the exact mechanisms are measured on: problems of any size, the same from the same case."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from perf.google_servers import GOOGLE_SERVERS, GOOGLE_SHAPES

SERVERS_PER_CLASS = 250
TEXTBOOK = "textbook"  # instead of ours: the linear program with one variable per tenant and server, by scipy
BY_CLASS = "textbook by class"  # the same with one variable per tenant and class of equal servers


@dataclass(frozen=True, slots=True)
class Case:
    """One problem for one solver.

    mechanism: its id. solver: "fairbind", TEXTBOOK or BY_CLASS. servers: "pool" (one), "google" (Table 1, ten entries
    with counts), "google singly" (an entry for each server) or "random" (as many different entries as `classes`).
    of_google: how many of Table 1's servers. is_mixed: with weights, finite tasks and eligibility, as far as the
    mechanism takes them; otherwise all tenants are entitled to the same, want no end and may run everywhere.
    group: which table or panel it belongs to. change: "weight", "demand" or "count": solve again after that changed.
    """

    group: str
    mechanism: str
    tenants: int
    servers: str = "pool"
    classes: int = 10
    resources: int = 2
    of_google: int = GOOGLE_SERVERS
    is_mixed: bool = False
    solver: str = "fairbind"
    change: str = ""


def make_case_problem(case: Case) -> Problem:
    """Return the problem of a case. Demands are 1/300 to 1/3 of an average server; no two tenants are equal."""
    generator = np.random.default_rng(20_260_101)
    capacity_kr, count_k, shape_k = _make_servers(case, generator)
    average_r = count_k @ capacity_kr / count_k.sum()
    tenants, resources = case.tenants, capacity_kr.shape[1]
    demand_ir = average_r * np.exp(generator.uniform(np.log(1 / 300), np.log(1 / 3), (tenants, resources)))
    if case.servers == "pool":
        demand_ir /= 10 * tenants
    if not case.is_mixed:
        return make_problem(capacity_kr, demand_ir, count_k=count_k)
    options = MECHANISMS[case.mechanism].options
    weight_i = generator.choice([1.0, 2.0, 3.0, 4.0], tenants)
    equal_part_i = (count_k @ capacity_kr / demand_ir).min(axis=1) / tenants
    tasks_i = np.where(generator.random(tenants) < 0.5, np.inf, equal_part_i * generator.uniform(0.2, 3, tenants))
    shapes = int(shape_k.max()) + 1
    eligible_is = generator.random((tenants, shapes)) < 0.8
    eligible_is[np.arange(tenants), generator.integers(0, shapes, tenants)] = True
    return make_problem(
        capacity_kr,
        demand_ir,
        count_k=count_k,
        weight_i=weight_i if Option.WEIGHT in options else None,
        tasks_i=tasks_i if Option.TASKS in options else None,
        eligible_ik=eligible_is[:, shape_k] if Option.ELIGIBLE in options else None,
    )


def change_problem(problem: Problem, change: str) -> Problem:
    """Return the problem after the change of a case: of one tenant, or of the size of one entry."""
    if change == "weight":
        return replace(problem, weight_i=_change(problem.weight_i, factor=2.0))
    if change == "demand":
        return replace(problem, demand_ir=_change(problem.demand_ir, factor=1.1))
    if change == "count":
        return replace(problem, count_k=problem.count_k + (np.arange(problem.count_k.size) == 0))
    return problem


def _change(amounts: FloatArray, *, factor: float) -> FloatArray:
    """Return a copy in which the fourth row (or number) is another."""
    changed = amounts.copy()
    changed[3] *= factor
    return changed


def _make_servers(case: Case, generator: np.random.Generator) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return (capacity of one server of each entry, servers in each entry, number of each entry's shape)."""
    if case.servers == "pool":
        return np.ones((1, case.resources)), np.ones(1), np.zeros(1, dtype=np.intp)
    if case.servers == "random":
        capacity_kr = np.exp(generator.uniform(np.log(0.25), 0, (case.classes, case.resources)))
        count_k = generator.integers(1, 2 * SERVERS_PER_CLASS, case.classes).astype(np.float64)
        return capacity_kr, count_k, np.arange(case.classes)
    table = np.array(GOOGLE_SHAPES)
    count_k = np.floor(table[:, 0] * case.of_google / GOOGLE_SERVERS)
    count_k[0] += case.of_google - count_k.sum()
    capacity_kr, count_k = table[count_k > 0, 1:], count_k[count_k > 0]
    shape_k = np.arange(count_k.size)
    if case.servers == "google":
        return capacity_kr, count_k, shape_k
    shape_k = np.repeat(shape_k, count_k.astype(np.intp))
    return capacity_kr[shape_k], np.ones(shape_k.size), shape_k
