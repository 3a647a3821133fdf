"""Reductions: a mechanism should agree with a simpler one on one server, with one resource, with one bottleneck.

On one server that is dominant resource fairness. With one resource, or one that is every tenant's dominant resource on
every server, it is the max-min fair division of that resource. Both references are certified mechanisms of this
library.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.variants import (
    as_solved,
    choose,
    compute_alone,
    drop_utilities,
    keep_resource,
    keep_servers,
    keep_tenants,
)
from fairbind.fairness.properties.witness import TRIES, Property, Witness, find_worst, is_larger, number, percent
from fairbind.fairness.solve import compute_allocation

MOST_SERVERS = 4
EQUAL = 1e-12  # relative: how nearly a resource must be the most needed one


def find_unlike_drf(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return a tenant whose tasks differ from drf on one of the servers (each alone, with its eligible tenants)."""
    del tries
    solved = as_solved(problem)
    alone_ik = compute_alone(solved)
    servers = choose(np.flatnonzero(solved.divisible_k), MOST_SERVERS, generator)
    for server in servers:
        users = np.flatnonzero(alone_ik[:, server] > 0)
        if not users.size:
            continue
        one = keep_tenants(keep_servers(solved, np.array([server])), users)
        is_whole = len(solved.server_names) == 1 and users.size == len(solved.tenant_names)
        got = allocation if is_whole else compute_allocation(one, mechanism_id, alpha=alpha)
        drf = compute_allocation(drop_utilities(one), "drf")
        where = f"alone on server {solved.server_names[server]}"
        witness = _compare(SINGLE_SERVER_REDUCTION.id, one, got.totals_i, drf.totals_i, f"{where}, by drf")
        if witness is not None:
            return witness
    return None


def find_unlike_max_min(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return a tenant whose tasks differ from the max-min fair division of one of the resources, taken alone."""
    del generator, tries
    solved = as_solved(problem)
    for r in range(len(solved.resources)):
        one = _keep_only(solved, r)
        if one is None:
            continue
        got = allocation if len(solved.resources) == 1 and one is solved else None
        totals_i = (got or compute_allocation(one, mechanism_id, alpha=alpha)).totals_i
        max_min_i = compute_max_min(one, 0, one.eligible_ik)
        where = f"with {solved.resources[r]} as the only resource, by a max-min fair division"
        witness = _compare(SINGLE_RESOURCE_REDUCTION.id, one, totals_i, max_min_i, where)
        if witness is not None:
            return witness
    return None


def find_unfair_bottleneck(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return a tenant whose tasks differ from the max-min fair division of the bottleneck; None without one."""
    del mechanism_id, alpha, generator, tries
    solved = as_solved(problem)
    bottleneck = find_bottleneck(solved)
    if bottleneck is None:
        return None
    max_min_i = compute_max_min(solved, bottleneck, compute_alone(solved) > 0)
    where = f"by a max-min fair division of the bottleneck {solved.resources[bottleneck]}"
    return _compare(BOTTLENECK_FAIRNESS.id, solved, allocation.totals_i, max_min_i, where)


def find_bottleneck(problem: Problem) -> int | None:
    """Return the resource of which, on every server, every tenant that can use it needs the largest part; or None.

    With weights per resource it must be the largest part both with and without them: with them it decides which tenant
    is behind, without them no other resource can run out first.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> find_bottleneck(make_problem([[9, 18], [4, 4]], [[1, 1], [3, 2]]))
    0
    """
    usable_ik = compute_alone(problem) > 0
    if not usable_ik.any():
        return None
    is_candidate_r = np.ones(len(problem.resources), dtype=bool)
    for server in np.flatnonzero(usable_ik.any(axis=0)):
        has_r = problem.capacity_kr[server] > 0
        users = usable_ik[:, server]
        part_ir = np.divide(
            problem.demand_ir[users], problem.capacity_kr[server], out=np.zeros((users.sum(), has_r.size)), where=has_r
        )
        for dominance_ir in (part_ir, part_ir / problem.resource_weight_ir[users]):
            is_candidate_r &= (dominance_ir >= dominance_ir.max(axis=1, keepdims=True) * (1 - EQUAL)).all(axis=0)
    candidates = np.flatnonzero(is_candidate_r)
    return int(candidates[0]) if candidates.size else None


def compute_max_min(problem: Problem, resource: int, usable_ik: np.ndarray) -> FloatArray:
    """Return the totals if one resource is divided max-min fairly by weight, ignoring all others, shape (I,)."""
    users = np.flatnonzero(usable_ik.any(axis=1))
    totals_i = np.zeros(len(problem.tenant_names))
    if users.size:
        one = keep_tenants(keep_resource(replace(problem, eligible_ik=usable_ik), resource), users)
        plain = drop_utilities(
            one,
            divisible_k=np.ones(one.divisible_k.shape, dtype=bool),
            resource_weight_ir=np.ones(one.resource_weight_ir.shape),
            weight_i=one.weight_i * one.resource_weight_ir[:, 0],
        )
        reference = "drf" if len(plain.server_names) == 1 else "drfh"
        totals_i[users] = compute_allocation(plain, reference).totals_i
    return totals_i


def _keep_only(problem: Problem, resource: int) -> Problem | None:
    """Return the problem with only this resource and the tenants that need it; None if no tenant does."""
    servers = problem.capacity_kr[:, resource] > 0
    if not servers.any():
        return None
    on_servers = keep_servers(problem, np.flatnonzero(servers))
    needs = (problem.demand_ir[:, resource] > 0) & (on_servers.eligible_ik.any(axis=1))
    if not needs.any():
        return None
    if servers.all() and needs.all() and len(problem.resources) == 1:
        return problem
    return keep_resource(keep_tenants(on_servers, np.flatnonzero(needs)), resource)


def _compare(
    property_id: str, problem: Problem, totals_i: FloatArray, reference_i: FloatArray, where: str
) -> Witness | None:
    """Return a tenant that gets less or more than in the reference, or None."""
    alone_i = compute_alone(problem).sum(axis=1)
    less = find_worst(totals_i, reference_i, alone_i)
    more = find_worst(reference_i, totals_i, alone_i)
    if less is None and more is None:
        return None
    if less is None or (more is not None and is_larger(more[1], less[1])):
        assert more is not None
        tenant, part = more
    else:
        tenant, part = less
    name, got, right = problem.tenant_names[tenant], float(totals_i[tenant]), float(reference_i[tenant])
    return Witness(
        property_id,
        f"{name} runs {number(got)} tasks; {where}, {number(right)} ({percent(part)} apart)",
        part,
        {"tenant": name, "tasks": got, "reference": right},
    )


SINGLE_SERVER_REDUCTION = Property(
    id="single-server-reduction",
    name="Reduction to DRF on one server",
    definition="On one server (each server of the problem as if it were the only one) each tenant gets what drf gives.",
    source="Wang et al., TPDS 2015, section 3.3 (single-server DRF)",
    find=find_unlike_drf,
)

SINGLE_RESOURCE_REDUCTION = Property(
    id="single-resource-reduction",
    name="Reduction to max-min fairness with one resource",
    definition=(
        "With one resource (each resource of the problem as if it were the only one), it is divided max-min fairly by "
        "weight, whatever server it is on."
    ),
    source="Wang et al., TPDS 2015, section 3.3 (single-resource fairness); Ghodsi et al., NSDI 2011, section 3",
    find=find_unlike_max_min,
)

BOTTLENECK_FAIRNESS = Property(
    id="bottleneck-fairness",
    name="Bottleneck fairness",
    definition=(
        "If there is a resource of which every tenant needs the largest part on every server that it can use, that "
        "resource is divided max-min fairly by weight."
    ),
    source="Khamse-Ashari et al., section 2.2, Definition 2; for one pool Ghodsi et al., NSDI 2011, section 3",
    find=find_unfair_bottleneck,
)
