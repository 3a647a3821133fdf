"""Sharing incentive and envy-freeness: is anybody worse off than with a slice of its own, or than somebody else?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.variants import as_solved, compute_alone, compute_worth
from fairbind.fairness.properties.witness import TRIES, Property, Witness, find_worst, is_larger, number, percent


def compute_slice(problem: Problem) -> FloatArray:
    """Return the tasks that each tenant runs with its part of every server it may use, shape (I,).

    The part is weight / sum of ALL weights, whether the others may use the server or not. With weights per resource it
    is weight x resource weight / the largest column sum of those, so that the slices together are at most everything.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> compute_slice(make_problem([[9, 18]], [[1, 4], [3, 1]])).tolist()
    [2.25, 1.5]
    """
    solved = as_solved(problem)
    entitled_ir = solved.weight_i[:, None] * solved.resource_weight_ir
    part_ir = entitled_ir / entitled_ir.sum(axis=0).max()
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
    """Return who would run most more tasks with its slice of every server, or None."""
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
    """Return who would gain most by somebody else's tasks on every server, scaled by their weights, or None."""
    del mechanism_id, alpha, generator, tries
    solved = as_solved(problem)
    alone_ik = compute_alone(solved)
    alone_i = alone_ik.sum(axis=1)
    entitled_ir = solved.weight_i[:, None] * solved.resource_weight_ir
    found: tuple[float, int, int, float] | None = None
    for owner in np.flatnonzero(allocation.totals_i > 0).tolist():
        worth_ik = compute_worth(solved, alone_ik, owner, allocation.tasks_ik[owner], entitled_ir)
        worth_i = np.minimum(worth_ik.sum(axis=1), solved.tasks_i)
        worst = find_worst(allocation.totals_i, worth_i, alone_i)
        if worst is not None and (found is None or is_larger(worst[1], found[0])):
            found = (worst[1], worst[0], owner, float(worth_i[worst[0]]))
    if found is None:
        return None
    part, tenant, owner, worth = found
    envious, envied = solved.tenant_names[tenant], solved.tenant_names[owner]
    got = float(allocation.totals_i[tenant])
    return Witness(
        ENVY_FREENESS.id,
        f"{envious} envies {envied}: it runs {number(got)} tasks and would run {number(worth)} with what {envied} has, "
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
