"""The linear programs as the papers write them, solved by scipy: a variable for each tenant and each server or class.

They know nothing of who is frozen when, or of what was solved before. Only for problems without weights, limits,
eligibility and zero demands, for which one program (or one an arrival) is the whole mechanism.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import (  # type: ignore[import-untyped]
    csr_array,
    diags_array,
    eye_array,
    hstack,
    kron,
    vstack,
)

from fairbind.fairness.problems.problem import FloatArray, Problem


class NoProgramError(ValueError):
    """The mechanism is not a linear program."""


def solve_textbook(problem: Problem, mechanism: str, *, is_by_class: bool = False) -> FloatArray:
    """Return tasks per tenant, shape (I,). Raises NoProgramError where there is no linear program.

    is_by_class: equal servers are one of their added capacity, as the entries of the problem have them.
    """
    if is_by_class:
        capacity_kr = problem.capacity_kr * problem.count_k[:, None]
    else:
        capacity_kr = np.repeat(problem.capacity_kr, problem.count_k.astype(np.intp), axis=0)
    if mechanism == "dynamic-drf":
        return _solve_arrivals(problem)
    share_ir = problem.demand_ir / problem.total_r
    if mechanism in ("drf", "drfh"):
        level_per_task_i = share_ir.max(axis=1)
    elif mechanism == "asset-fairness":
        level_per_task_i = share_ir.sum(axis=1)
    elif mechanism == "tsf":
        monopoly_ki = (capacity_kr[:, None, :] / problem.demand_ir).min(axis=2)
        level_per_task_i = 1 / monopoly_ki.sum(axis=0)
    else:
        raise NoProgramError(mechanism)
    return _solve_max_min(capacity_kr, problem.demand_ir, level_per_task_i)


def _solve_max_min(capacity_kr: FloatArray, demand_ir: FloatArray, level_per_task_i: FloatArray) -> FloatArray:
    """Maximise t subject to sum_k x_ik level_i = t, sum_i x_ik d_ir <= c_kr. Columns: x_11, x_12 ... x_IK, t."""
    servers, tenants = capacity_kr.shape[0], level_per_task_i.size
    per_server = kron(csr_array(demand_ir.T), eye_array(servers), format="csr")
    per_tenant = kron(diags_array(level_per_task_i), csr_array(np.ones((1, servers))), format="csr")
    equal = hstack([per_tenant, csr_array(-np.ones((tenants, 1)))], format="csr")
    below = hstack([per_server, csr_array((per_server.shape[0], 1))], format="csr")
    objective = np.zeros(below.shape[1])
    objective[-1] = -1.0
    answer = linprog(
        objective, A_ub=below, b_ub=capacity_kr.T.ravel(), A_eq=equal, b_eq=np.zeros(tenants), method="highs"
    )
    if answer.status != 0:
        raise RuntimeError(answer.message)
    tasks_i: FloatArray = np.asarray(answer.x)[:-1].reshape(tenants, servers).sum(axis=1)
    return tasks_i


def _solve_arrivals(problem: Problem) -> FloatArray:
    """The program (1) of dynamic DRF for every arrival: maximise M with x_i >= M, x_i >= before, use <= k/n.

    In units of 1/n, so that the solver's absolute tolerance is not larger than what the first arrivals get.
    """
    share_ir = problem.demand_ir / problem.total_r
    dominant_i = share_ir.max(axis=1)
    normal_ir = share_ir / dominant_i[:, None]
    count = dominant_i.size
    shares = np.zeros(0)
    for k in range(1, count + 1):
        rows = vstack(
            [
                hstack([-eye_array(k), csr_array(np.ones((k, 1)))]),
                hstack([csr_array(normal_ir[:k].T), csr_array((normal_ir.shape[1], 1))]),
            ],
            format="csr",
        )
        bound = np.concatenate([np.zeros(k), np.full(normal_ir.shape[1], float(k))])
        before = np.append(shares, [0.0, 0.0])
        objective = np.append(np.zeros(k), -1.0)
        answer = linprog(
            objective, A_ub=rows, b_ub=bound, bounds=[(least * (1 - 1e-9), None) for least in before], method="highs"
        )
        if answer.status != 0:
            raise RuntimeError(answer.message)
        shares = np.maximum(np.append(shares, 0.0), answer.x[-1])
    tasks_i: FloatArray = shares / count / dominant_i
    return tasks_i
