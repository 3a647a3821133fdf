"""Pareto optimality: could a tenant run more without another tenant running less? One linear program answers.

Each tenant keeps its number of tasks, not their places. The program gives away the free capacity so that the sum of the
gains is largest, each gain as a part of what the tenant could run alone. The allocation is a feasible point of the
program, so either the sum is 0 or the optimum dominates it. Complexity: one LP with a variable per tenant and server
entry.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.verify import compute_held
from fairbind.fairness.properties.variants import as_solved, compute_alone
from fairbind.fairness.properties.witness import (
    SMALLEST_VIOLATION,
    TRIES,
    Property,
    Witness,
    find_first_largest,
    number,
)
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.model.errors import SolverError


def find_dominating(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return an allocation in which some tenant runs more and no tenant less, or None.

    It counts when the gains sum to more than SMALLEST_VIOLATION of what tenants could run alone.
    """
    del mechanism_id, alpha, generator, tries
    solved = as_solved(problem)
    alone_ik = compute_alone(solved)
    alone_i = alone_ik.sum(axis=1)
    if not (alone_i > 0).any():
        return None
    tasks_ik = _maximise_gains(solved, allocation.tasks_ik, alone_ik)
    gain_i = tasks_ik.sum(axis=1) - allocation.totals_i
    share_gain_i = np.divide(gain_i, alone_i, out=np.zeros(gain_i.shape), where=alone_i > 0)
    total = float(share_gain_i.sum())
    if total <= SMALLEST_VIOLATION:
        return None
    most = find_first_largest(share_gain_i)
    name, got, could = solved.tenant_names[most], float(allocation.totals_i[most]), float(tasks_ik[most].sum())
    size = (could - got) / max(could, np.finfo(float).tiny)
    totals = dict(zip(solved.tenant_names, tasks_ik.sum(axis=1).tolist(), strict=True))
    return Witness(
        PARETO_OPTIMALITY.id,
        f"{name} could run {number(could)} tasks instead of {number(got)}, and no other less",
        size,
        {"tenant": name, "tasks": got, "tasksInstead": could, "dominating": totals, "sumOfGains": total},
    )


def _maximise_gains(problem: Problem, tasks_ik: FloatArray, alone_ik: FloatArray) -> FloatArray:
    """Return the allocation with the largest sum of gains, shape (I, K).

    Variables are the parts of what each tenant could run alone on each server, so that all coefficients are at most 1.
    Bounds are relaxed by as much as the present allocation exceeds them (rounding), so that it stays feasible.
    """
    tenant_v, server_v = np.nonzero(alone_ik > 0)
    alone_v = alone_ik[tenant_v, server_v]
    alone_i = alone_ik.sum(axis=1)
    share_v = alone_v / alone_i[tenant_v]
    present_i = np.divide(tasks_ik.sum(axis=1), alone_i, out=np.zeros(alone_i.shape), where=alone_i > 0)
    most_i = np.divide(problem.tasks_i, alone_i, out=np.full(alone_i.shape, np.inf), where=alone_i > 0)
    capacity_kr = problem.count_k[:, None] * problem.capacity_kr
    scale_kr = np.where(capacity_kr > 0, capacity_kr, 1.0)
    use_vr = alone_v[:, None] * problem.demand_ir[tenant_v] / scale_kr[server_v]
    use_vr[~problem.divisible_k[server_v]] = 1.0  # a server that is not divisible: parts of its time
    part_v = tasks_ik[tenant_v, server_v] / alone_v
    used_kr = np.zeros(capacity_kr.shape)
    np.add.at(used_kr, server_v, part_v[:, None] * use_vr)

    servers, resources = capacity_kr.shape
    row_vr = alone_i.size + server_v[:, None] * resources + np.arange(resources)
    of_limit_vl, held_l, most_l = _use_limits(problem, tasks_ik, tenant_v, server_v, alone_v)
    row_vl = np.broadcast_to(alone_i.size + servers * resources + np.arange(held_l.size), of_limit_vl.shape)
    matrix_rows = np.concatenate([tenant_v[:, None], row_vr, row_vl], axis=1)
    matrix_values = np.concatenate([share_v[:, None], use_vr, of_limit_vl], axis=1)
    lower = np.concatenate([present_i, np.full(servers * resources + held_l.size, -np.inf)])
    upper = np.concatenate(
        [np.maximum(most_i, present_i), np.maximum(1.0, used_kr).ravel(), np.maximum(most_l, held_l)]
    )
    best_v = _solve(share_v, matrix_rows, matrix_values, lower, upper)
    best_ik = np.zeros(alone_ik.shape)
    best_ik[tenant_v, server_v] = np.maximum(best_v, 0.0) * alone_v
    return best_ik


def _use_limits(
    problem: Problem, tasks_ik: FloatArray, tenant_v: IntArray, server_v: IntArray, alone_v: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return of each of the tree's limits: what a variable uses (V, L), what is used, and what may be (L,)."""
    if problem.tree is None:
        return np.zeros((alone_v.size, 0)), np.zeros(0), np.zeros(0)
    tree, limits = problem.tree, problem.tree.limits
    most_l = (limits.amount_b > 0).astype(float)
    amount_l = np.where(limits.amount_b > 0, limits.amount_b, 1.0)
    counts_lv = limits.on_bk[:, server_v] & tree.find_below()[limits.vertex_b][:, tenant_v]
    need_lv: FloatArray = counts_lv * problem.demand_ir[tenant_v][:, limits.resource_b].T
    held_l: FloatArray = compute_held(tree, limits, tasks_ik, problem.demand_ir) / amount_l
    return (need_lv * alone_v / amount_l[:, None]).T, held_l, most_l


def _solve(
    gain_v: FloatArray, row_ve: np.ndarray, value_ve: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Maximise the sum of gain_v * v, v >= 0, with rows between their bounds; every variable has the same entries."""
    import highspy  # noqa: PLC0415  (18 ms, only for those who ask)

    variables, entries = row_ve.shape
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = variables, lower.size
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = gain_v
    program.col_lower_, program.col_upper_ = np.zeros(variables), np.full(variables, np.inf)
    program.row_lower_, program.row_upper_ = lower, upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(variables + 1) * entries
    program.a_matrix_.index_ = row_ve.ravel()
    program.a_matrix_.value_ = value_ve.ravel()
    solver = make_silent_highs()
    solver.setOptionValue("primal_feasibility_tolerance", 1e-10)
    solver.setOptionValue("dual_feasibility_tolerance", 1e-10)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"pareto-optimality: {solver.modelStatusToString(status)}")
    return np.array(solver.getSolution().col_value)


PARETO_OPTIMALITY = Property(
    id="pareto-optimality",
    name="Pareto optimality",
    definition="No tenant can run more tasks without another running fewer, however the tasks are placed.",
    source="Wang et al., TPDS 2015, section 3.3; Khamse-Ashari et al., section 2.1",
    find=find_dominating,
    is_for_trees=True,
)
