"""A problem as the document that `parse_problem` reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.tree import ROOT, Bounds


def describe_problem(problem: Problem) -> dict[str, Any]:
    """Return the problem as JSON values; what has its default is left out.

    >>> from fairbind.fairness import make_problem, parse_problem
    >>> problem = make_problem([[9]], [[3]], resources=["cpu"], server_names=["a"], tenant_names=["ada"], tasks_i=[2])
    >>> describe_problem(problem)["tenants"]
    [{'name': 'ada', 'demand': {'cpu': 3.0}, 'tasks': 2.0}]
    >>> parse_problem(describe_problem(problem)).tasks_i.tolist()
    [2.0]
    """
    document: dict[str, Any] = {
        "resources": list(problem.resources),
        "servers": [_describe_server(problem, k) for k in range(len(problem.server_names))],
        "tenants": _describe_tenants(problem),
    }
    if problem.expected_tenants is not None:
        document["expectedTenants"] = problem.expected_tenants
    if problem.is_pooled:
        document["pool"] = True
    return document


def _describe_server(problem: Problem, k: int) -> dict[str, Any]:
    server: dict[str, Any] = {
        "name": problem.server_names[k],
        "capacity": _describe_amounts(problem, problem.capacity_kr[k], 0.0),
    }
    if problem.count_k[k] != 1:
        server["count"] = int(problem.count_k[k])
    if not math.isnan(problem.alpha_k[k]):
        server["alpha"] = float(problem.alpha_k[k])
    if problem.utility_a_k[k] != 1:
        server["utilityA"] = float(problem.utility_a_k[k])
    if problem.utility_b_k[k] != 0:
        server["utilityB"] = float(problem.utility_b_k[k])
    if not problem.divisible_k[k]:
        server["divisible"] = False
    return server


def _describe_tenants(problem: Problem) -> list[dict[str, Any]]:
    """Return all tenants in the order of the document that they came from."""
    tenants = [_describe_tenant(problem, i) for i in range(len(problem.tenant_names))]
    tree = problem.tree
    if tree is None:
        return tenants
    for n, name in enumerate(tree.inner_names):
        inner: dict[str, Any] = {"name": name}
        if tree.weight_n[n] != 1:
            inner["weight"] = float(tree.weight_n[n])
        if n in tree.mixed:
            inner["mixed"] = True
        weights = _describe_amounts(problem, tree.resource_weight_nr[n], 1.0)
        tenants.append({**inner, "resourceWeights": weights} if weights else inner)
    names = [str(tenant["name"]) for tenant in tenants]
    for v, tenant in enumerate(tenants):
        if tree.parent_v[v] != ROOT:
            tenant["parent"] = names[tree.parent_v[v]]
        if tree.priority_v[v] != 0:
            tenant["priority"] = int(tree.priority_v[v])
        for field, bounds in (("guarantee", tree.guarantees), ("limit", tree.limits)):
            entries = [_describe_bound(problem, bounds, b) for b in np.flatnonzero(bounds.vertex_b == v).tolist()]
            if entries:
                tenant[field] = entries
    return [tenants[v] for v in np.argsort(tree.place_v, kind="stable").tolist()]


def _describe_bound(problem: Problem, bounds: Bounds, b: int) -> dict[str, Any]:
    bound: dict[str, Any] = {"resources": {problem.resources[bounds.resource_b[b]]: float(bounds.amount_b[b])}}
    if not bounds.on_bk[b].all():
        bound["servers"] = [problem.server_names[k] for k in np.flatnonzero(bounds.on_bk[b]).tolist()]
    return bound


def _describe_tenant(problem: Problem, i: int) -> dict[str, Any]:
    tenant: dict[str, Any] = {
        "name": problem.tenant_names[i],
        "demand": _describe_amounts(problem, problem.demand_ir[i], 0.0),
    }
    if problem.weight_i[i] != 1:
        tenant["weight"] = float(problem.weight_i[i])
    if math.isfinite(problem.tasks_i[i]):
        tenant["tasks"] = float(problem.tasks_i[i])
    if not problem.eligible_ik[i].all():
        allowed = zip(problem.server_names, problem.eligible_ik[i].tolist(), strict=True)
        tenant["eligible"] = [name for name, may_use in allowed if may_use]
    weights = _describe_amounts(problem, problem.resource_weight_ir[i], 1.0)
    return {**tenant, "resourceWeights": weights} if weights else tenant


def _describe_amounts(problem: Problem, amount_r: FloatArray, usual: float) -> dict[str, float]:
    amounts = zip(problem.resources, amount_r.tolist(), strict=True)
    return {name: amount for name, amount in amounts if amount != usual}
