"""Variants of a problem, and how many tasks a tenant would run with a server or another tenant's bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairbind.fairness.problems.instance import IntArray, compute_gamma
from fairbind.fairness.problems.problem import FloatArray, Problem

Rows = IntArray | npt.NDArray[np.bool_]


def as_solved(problem: Problem) -> Problem:
    """Return the problem that the allocation's arrays refer to: pooled if the problem asks for it."""
    return problem.pooled() if problem.is_pooled else problem


def compute_alone(problem: Problem) -> FloatArray:
    """Return the tasks that each tenant runs when it has all servers of an entry to itself, shape (I, K)."""
    gamma_ik = compute_gamma(problem.count_k[:, None] * problem.capacity_kr, problem.demand_ir)
    return np.where(problem.eligible_ik, gamma_ik, 0.0)


def compute_worth(
    problem: Problem, alone_ik: FloatArray, owner: int, tasks_k: FloatArray, price_ir: FloatArray | None = None
) -> FloatArray:
    """Return the tasks that each tenant would run with the owner's bundle on each server, shape (I, K).

    tasks_k: the owner's. price_ir: entitlements; a tenant with twice the owner's entitlement to a resource is compared
    with twice the owner's amount of it, without price_ir with the amount itself. On a server that is not divisible the
    owner has time.
    """
    entitled_ir = np.ones(problem.demand_ir.shape) if price_ir is None else price_ir
    held_kr = tasks_k[:, None] * problem.demand_ir[owner] / entitled_ir[owner]
    worth_ik = compute_gamma(held_kr, problem.demand_ir / entitled_ir)
    if not problem.divisible_k.all():
        scale_i = (entitled_ir / entitled_ir[owner]).min(axis=1)
        time_k = np.divide(tasks_k, alone_ik[owner], out=np.zeros(tasks_k.shape), where=alone_ik[owner] > 0)
        worth_ik = np.where(problem.divisible_k, worth_ik, time_k * alone_ik * scale_i[:, None])
    return np.where(alone_ik > 0, worth_ik, 0.0)


def drop_utilities(problem: Problem, **others: Any) -> Problem:
    """Return the problem as mechanisms without exponents take it. others: further fields to replace."""
    servers = problem.alpha_k.shape
    return replace(
        problem,
        alpha_k=np.full(servers, np.nan),
        utility_a_k=np.ones(servers),
        utility_b_k=np.zeros(servers),
        expected_tenants=None,
        **others,
    )


def keep_tenants(problem: Problem, kept: Rows) -> Problem:
    """Return the problem with these tenants only; the others are no longer expected either."""
    names = np.array(problem.tenant_names, dtype=object)[kept]
    gone = len(problem.tenant_names) - names.size
    return replace(
        problem,
        expected_tenants=None if problem.expected_tenants is None else problem.expected_tenants - gone,
        tenant_names=tuple(names),
        demand_ir=problem.demand_ir[kept],
        weight_i=problem.weight_i[kept],
        tasks_i=problem.tasks_i[kept],
        eligible_ik=problem.eligible_ik[kept],
        resource_weight_ir=problem.resource_weight_ir[kept],
        tree=None if problem.tree is None else problem.tree.keep(np.arange(len(problem.tenant_names))[kept]),
    )


def keep_servers(problem: Problem, kept: Rows) -> Problem:
    """Return the problem with these server entries only."""
    names = np.array(problem.server_names, dtype=object)[kept]
    return replace(
        problem,
        server_names=tuple(names),
        capacity_kr=problem.capacity_kr[kept],
        count_k=problem.count_k[kept],
        divisible_k=problem.divisible_k[kept],
        alpha_k=problem.alpha_k[kept],
        utility_a_k=problem.utility_a_k[kept],
        utility_b_k=problem.utility_b_k[kept],
        eligible_ik=problem.eligible_ik[:, kept],
    )


def keep_resource(problem: Problem, resource: int) -> Problem:
    """Return the problem with one resource; all tenants must need it."""
    return replace(
        problem,
        resources=(problem.resources[resource],),
        capacity_kr=problem.capacity_kr[:, [resource]],
        demand_ir=problem.demand_ir[:, [resource]],
        resource_weight_ir=problem.resource_weight_ir[:, [resource]],
    )


def find_distinct_tenants(problem: Problem) -> IntArray:
    """Return one tenant of each kind, in the problem's order: for equal tenants the answer is the same.

    In a tree each has a place of its own.
    """
    if problem.tree is not None:
        return np.arange(len(problem.tenant_names))
    rows = np.concatenate(
        [
            problem.demand_ir,
            problem.weight_i[:, None],
            problem.tasks_i[:, None],
            problem.resource_weight_ir,
            problem.eligible_ik.astype(np.float64),
        ],
        axis=1,
    )
    return np.sort(np.unique(rows, axis=0, return_index=True)[1])


def choose(candidates: IntArray, most: int, generator: np.random.Generator | None) -> IntArray:
    """Return at most so many of the candidates, in their order: random, or evenly spread without a generator."""
    if candidates.size <= most:
        return candidates
    if generator is None:
        return candidates[np.linspace(0, candidates.size - 1, most).astype(np.intp)]
    return np.sort(generator.choice(candidates, most, replace=False))
