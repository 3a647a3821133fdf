"""The program of Eisenberg and Gale, solved by cvxpy with Clarabel: a second route to the markets' equilibria."""

from __future__ import annotations

import warnings

import numpy as np

from fairbind.fairness.problems.problem import FloatArray, Problem
from fairness.levelling import compute_tasks_alone
from fairness.servers_oracle import list_capacity_rows


def compute_eisenberg_gale_totals(problem: Problem) -> FloatArray:
    """Return the tasks of each tenant that maximize the weighted sum of their logarithms, shape (I,)."""
    import cvxpy as cp  # noqa: PLC0415 - seconds, in every worker that collects tests

    alone_ik = compute_tasks_alone(problem)
    usable_ik = problem.eligible_ik & (alone_ik > 0)
    runs = np.flatnonzero(usable_ik.any(axis=1) & (problem.tasks_i > 0))
    scale_i = np.where(usable_ik, alone_ik, 0.0).sum(axis=1)[runs]
    gain_ik = np.where(usable_ik, alone_ik, 0.0)[runs] / scale_i[:, None]
    part_ik = cp.Variable(gain_ik.shape, nonneg=True)
    total_i = cp.sum(cp.multiply(gain_ik, part_ik), axis=1)  # type: ignore[attr-defined]
    constraints = [part_ik[~usable_ik[runs]] == 0] if not usable_ik[runs].all() else []
    for entry in range(gain_ik.shape[1]):
        for coefficients_i, bound in list_capacity_rows(problem, alone_ik, entry):
            constraints.append(coefficients_i[runs] @ part_ik[:, entry] <= bound)
    finite = np.flatnonzero(np.isfinite(problem.tasks_i[runs]))
    if finite.size:
        constraints.append(total_i[finite] <= problem.tasks_i[runs][finite] / scale_i[finite])
    weight_i = problem.weight_i[runs] / problem.weight_i[runs].sum()
    logarithms_i = cp.log(total_i)  # type: ignore[attr-defined]
    program = cp.Problem(cp.Maximize(weight_i @ logarithms_i), constraints)
    with warnings.catch_warnings():
        # It says so whenever the last digits that it is asked for are beyond it.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)  # type: ignore[no-untyped-call]
    totals_i = np.zeros(problem.weight_i.size)
    totals_i[runs] = total_i.value * scale_i
    return totals_i
