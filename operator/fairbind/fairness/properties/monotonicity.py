"""Monotonicity: no remaining tenant should run less if a tenant leaves or capacity is added; tried one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties.variants import as_solved, choose, compute_alone, find_distinct_tenants, keep_tenants
from fairbind.fairness.properties.witness import TRIES, Property, Witness, find_worst, is_larger, number, percent
from fairbind.fairness.solve import compute_allocation

MOST_LEAVERS = 8
MOST_ADDITIONS = 16


def find_loss_by_leaving(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the tenant whose leaving costs another tenant most, or None. At most MOST_LEAVERS tenants are tried."""
    del tries
    solved = as_solved(problem)
    alone_i = compute_alone(solved).sum(axis=1)
    best: Witness | None = None
    leavers = find_distinct_tenants(solved) if len(solved.tenant_names) > 1 else np.zeros(0, dtype=np.intp)
    for leaver in choose(leavers, MOST_LEAVERS, generator):
        stays = np.flatnonzero(np.arange(len(solved.tenant_names)) != leaver)
        if not (allocation.totals_i[stays] > 0).any():
            continue
        after_i = compute_allocation(keep_tenants(solved, stays), mechanism_id, alpha=alpha).totals_i
        worst = find_worst(after_i, allocation.totals_i[stays], alone_i[stays])
        if worst is None or (best is not None and not is_larger(worst[1], best.size)):
            continue
        loser, part = worst
        name, gone = solved.tenant_names[stays[loser]], solved.tenant_names[leaver]
        before, after = float(allocation.totals_i[stays[loser]]), float(after_i[loser])
        best = Witness(
            POPULATION_MONOTONICITY.id,
            f"{name} runs {number(after)} tasks instead of {number(before)} when {gone} leaves ({percent(part)} less)",
            part,
            {"tenant": name, "leaves": gone, "tasks": before, "tasksAfter": after},
        )
    return best


def find_loss_by_growth(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the addition that costs some tenant most, or None. At most MOST_ADDITIONS are tried."""
    del tries
    solved = as_solved(problem)
    alone_i = compute_alone(solved).sum(axis=1)
    additions = list(_list_additions(solved))
    best: Witness | None = None
    for number_of in choose(np.arange(len(additions)), MOST_ADDITIONS, generator):
        what, larger = additions[number_of]
        after_i = compute_allocation(larger, mechanism_id, alpha=alpha).totals_i
        worst = find_worst(after_i, allocation.totals_i, alone_i)
        if worst is None or (best is not None and not is_larger(worst[1], best.size)):
            continue
        loser, part = worst
        name = solved.tenant_names[loser]
        before, after = float(allocation.totals_i[loser]), float(after_i[loser])
        best = Witness(
            RESOURCE_MONOTONICITY.id,
            f"{name} runs {number(after)} tasks instead of {number(before)} when {what} ({percent(part)} less)",
            part,
            {"tenant": name, "addition": what, "tasks": before, "tasksAfter": after},
        )
    return best


def _list_additions(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the additions: half as much or as much again of one resource of one entry, or one more server."""
    for k, server in enumerate(problem.server_names):
        for r, resource in enumerate(problem.resources):
            if problem.capacity_kr[k, r] > 0:
                for factor, how in ((1.5, "half"), (2.0, "as much")):
                    capacity_kr = problem.capacity_kr.copy()
                    capacity_kr[k, r] *= factor
                    yield f"{server} gets {how} again of its {resource}", replace(problem, capacity_kr=capacity_kr)
        if len(problem.server_names) > 1:
            count_k = problem.count_k.copy()
            count_k[k] += 1
            yield f"there is one more server like {server}", replace(problem, count_k=count_k)


POPULATION_MONOTONICITY = Property(
    id="population-monotonicity",
    name="Population monotonicity",
    definition="When a tenant leaves, none that stays runs fewer tasks.",
    source="Ghodsi et al., NSDI 2011, section 3; Wang et al., TPDS 2015, section 3.3",
    find=find_loss_by_leaving,
    is_searched=True,
)

RESOURCE_MONOTONICITY = Property(
    id="resource-monotonicity",
    name="Resource monotonicity",
    definition="When servers get more of a resource, or more servers come, no tenant runs fewer tasks.",
    source="Ghodsi et al., NSDI 2011, section 3, where it is shown to exclude sharing incentive or Pareto optimality",
    find=find_loss_by_growth,
    is_searched=True,
)
