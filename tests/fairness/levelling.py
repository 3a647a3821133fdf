"""Lexicographic max-min on several servers as a textbook does it, by scipy: the slow second route of the tests.

One variable per tenant and server, amounts in parts of the totals, one program of its own per tenant to find out who is
stuck. Nothing is shared with the product: no merging, no prices, no bases.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem
from fairness.textbook import maximize


def compute_dominant_share_per_task(problem: Problem) -> FloatArray:
    """Max over r of d_ir / (C_r w_ir), for tenants that need nothing that is missing."""
    exists_r = problem.total_r > 0
    part_ir = problem.demand_ir[:, exists_r] / problem.total_r[exists_r] / problem.resource_weight_ir[:, exists_r]
    share_i: FloatArray = part_ir.max(axis=1, initial=0.0)
    return share_i


def compute_tasks_alone(problem: Problem) -> FloatArray:
    """How many tasks each server entry, all its servers together, runs for each tenant alone, (I, K)."""
    alone_ik = np.zeros(problem.eligible_ik.shape)
    for i, demand_r in enumerate(problem.demand_ir):
        needs_r = demand_r > 0
        alone_ik[i] = (problem.count_k[:, None] * problem.capacity_kr[:, needs_r] / demand_r[needs_r]).min(axis=1)
    return alone_ik


def compute_reference_tasks(problem: Problem, level_per_task_i: FloatArray) -> FloatArray:
    """Return the tasks of each tenant, shape (I,), whose levels are lexicographically largest when sorted."""
    usable_ik = problem.eligible_ik & (compute_tasks_alone(problem) > 0)
    active = np.flatnonzero(usable_ik.any(axis=1) & (problem.tasks_i > 0))
    totals_i = np.zeros(usable_ik.shape[0])
    if active.size:
        totals_i[active] = _raise_levels(problem, level_per_task_i[active], usable_ik[active], active)
    return totals_i


def _raise_levels(
    problem: Problem,
    level_per_task_i: FloatArray,
    usable_ik: BoolArray,
    active: np.ndarray[tuple[int], np.dtype[np.intp]],
) -> FloatArray:
    pairs = [(i, k) for i in range(active.size) for k in range(usable_ik.shape[1]) if usable_ik[i, k]]
    scale = 1.0 / level_per_task_i  # tasks per level
    rows: list[tuple[FloatArray, float]] = []
    for k in range(usable_ik.shape[1]):
        for r in np.flatnonzero(problem.capacity_kr[k] > 0):
            left_r = problem.count_k[k] * problem.capacity_kr[k, r]
            row = [problem.demand_ir[active[i], r] * scale[i] / left_r if server == k else 0.0 for i, server in pairs]
            rows.append((np.array([*row, 0.0]), 1.0))
    owner = np.array([i for i, _ in pairs])
    own = [np.append((owner == i).astype(float), 0.0) for i in range(active.size)]
    most_i = problem.tasks_i[active] * level_per_task_i
    rows += [(own[i], float(most_i[i])) for i in range(active.size) if np.isfinite(most_i[i])]
    level_i = np.zeros(active.size)
    free = list(range(active.size))
    kept: list[tuple[FloatArray, float]] = []
    top = np.append(np.zeros(len(pairs)), 1.0)
    while free:
        raised = [(top - own[i], 0.0) for i in free]
        reached = float(maximize(top, rows + kept + raised)[-1])
        at_least = [(-own[i], -reached * (1 - 1e-11)) for i in free]
        best = {i: float(own[i] @ maximize(own[i], rows + kept + at_least)) for i in free}
        stuck = [i for i in free if best[i] <= reached * (1 + 1e-7)]
        assert stuck
        level_i[stuck] = reached
        kept += [(-own[i], -reached * (1 - 1e-11)) for i in stuck]
        free = [i for i in free if i not in stuck]
    tasks_i: FloatArray = level_i / level_per_task_i
    return tasks_i
