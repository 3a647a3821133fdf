"""Sharing incentive and envy-freeness: would a tenant run more with a slice of its own, or with another's bundle?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.variants import as_solved, compute_alone, compute_worth
from fairbind.fairness.properties.witness import (
    SMALLEST_VIOLATION,
    TRIES,
    Property,
    Witness,
    find_worst,
    is_larger,
    number,
    percent,
)


def compute_parts(problem: Problem) -> FloatArray:
    """Return the part of each resource that a tenant is entitled to, shape (I, R); see `compute_slice`."""
    entitled_ir = problem.weight_i[:, None] * problem.resource_weight_ir
    part_ir: FloatArray = entitled_ir / entitled_ir.sum(axis=0).max()
    return part_ir


def compute_slice(problem: Problem) -> FloatArray:
    """Return the tasks that each tenant runs with its part of every server that it may use, shape (I,).

    The part is weight / sum of ALL weights, whether or not the other tenants may use the server. With weights per
    resource it is weight x resource weight / the largest column sum of those products, so that the slices together do
    not exceed the capacity.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> compute_slice(make_problem([[9, 18]], [[1, 4], [3, 1]])).tolist()
    [2.25, 1.5]
    """
    solved = as_solved(problem)
    part_ir = compute_parts(solved)
    of_resources_ik = compute_alone(replace(solved, demand_ir=solved.demand_ir / part_ir))
    of_time_ik = part_ir.min(axis=1)[:, None] * compute_alone(solved)
    slice_i: FloatArray = np.where(solved.divisible_k, of_resources_ik, of_time_ik).sum(axis=1)
    return np.minimum(slice_i, solved.tasks_i)


def find_unshared(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the tenant that would gain most from its slice of every server, or None."""
    del mechanism_id, alpha, generator, tries
    slice_i = compute_slice(problem)
    alone_i = compute_alone(as_solved(problem)).sum(axis=1)
    worst = find_worst(allocation.totals_i, slice_i, alone_i)
    if worst is None:
        return None
    tenant, part = worst
    name, got, own = problem.tenant_names[tenant], float(allocation.totals_i[tenant]), float(slice_i[tenant])
    return Witness(
        SHARING_INCENTIVE.id,
        f"{name} runs {number(got)} tasks; its slice of every server would run {number(own)} ({percent(part)} less)",
        part,
        {"tenant": name, "tasks": got, "slice": own},
    )


def find_envy(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the tenant that would gain most from another's bundle on every server, scaled by weight, or None."""
    del mechanism_id, alpha, generator, tries
    return _find_envy(problem, allocation, is_whole=False)


def find_envy_beyond_one_task(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the tenant that gains most whole tasks from another's bundle, if more than one; else None."""
    del mechanism_id, alpha, generator, tries
    return _find_envy(problem, allocation, is_whole=True)


def _find_envy(problem: Problem, allocation: Allocation, *, is_whole: bool) -> Witness | None:
    """is_whole: count the whole tasks that others' parts of each entry would run, and allow one more than one's own."""
    solved = as_solved(problem)
    alone_ik = compute_alone(solved)
    alone_i = alone_ik.sum(axis=1)
    entitled_ir = solved.weight_i[:, None] * solved.resource_weight_ir
    allowed_i = allocation.totals_i + (1.0 if is_whole else 0.0)
    found: tuple[float, int, int, float] | None = None
    for owner in np.flatnonzero(allocation.totals_i > 0).tolist():
        worth_ik = compute_worth(solved, alone_ik, owner, allocation.tasks_ik[owner], entitled_ir)
        if is_whole:
            worth_ik = np.floor(worth_ik * (1 + SMALLEST_VIOLATION))
        worth_i = np.minimum(worth_ik.sum(axis=1), solved.tasks_i)
        worst = find_worst(allowed_i, worth_i, alone_i)
        if worst is not None and (found is None or is_larger(worst[1], found[0])):
            found = (worst[1], worst[0], owner, float(worth_i[worst[0]]))
    if found is None:
        return None
    part, tenant, owner, worth = found
    envious, envied = solved.tenant_names[tenant], solved.tenant_names[owner]
    got = float(allocation.totals_i[tenant])
    own, what = (ENVY_FREENESS_UP_TO_ONE_TASK, "whole tasks") if is_whole else (ENVY_FREENESS, "tasks")
    also = " even with one task more" if is_whole else ""
    would = f"{number(worth)} {what}" if is_whole else number(worth)
    return Witness(
        own.id,
        f"{envious} envies {envied}{also}: it runs {number(got)} tasks and would run {would} with what {envied} has, "
        f"weights taken in ({percent(part)} less)",
        part,
        {"tenant": envious, "envied": envied, "tasks": got, "tasksInstead": worth},
    )


SHARING_INCENTIVE = Property(
    id="sharing-incentive",
    name="Sharing incentive",
    definition=(
        "Every tenant runs at least as many tasks as with its part (weight / sum of all weights) of every server that "
        "it may use, or all that it has."
    ),
    source=(
        "Khamse-Ashari et al., section 3.3 (uniform allocation); the strong form of Wang et al., TPDS 2015, "
        "Definition 2; for one pool Ghodsi et al., NSDI 2011, section 3"
    ),
    find=find_unshared,
)

ENVY_FREENESS = Property(
    id="envy-freeness",
    name="Envy-freeness",
    definition=(
        "No tenant would run more tasks with what another has, server by server, scaled by weight / the other's weight."
    ),
    source="Wang et al., TPDS 2015, section 3.3 (server by server); weights as in Khamse-Ashari et al., section 2.1",
    find=find_envy,
)

ENVY_FREENESS_UP_TO_ONE_TASK = Property(
    id="envy-freeness-up-to-one-task",
    name="Envy-freeness up to one task",
    definition=(
        "No tenant would run more than one task more with what another has, counted in the whole tasks that fit into "
        "the other's part of each server entry, scaled by weight / the other's weight."
    ),
    source="here, for whole tasks: after Budish, 2011 (envy bounded by one good)",
    find=find_envy_beyond_one_task,
)
