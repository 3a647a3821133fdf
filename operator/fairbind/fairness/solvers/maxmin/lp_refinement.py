"""Refines the answer of a linear program's solver whose totals and used-up resources are known.

A solver's tolerance of 1e-10 of a class is large for a tenant whose weight is 1e-6 of another's. The totals that the
levels imply are known up to rounding, and so are the used-up resources (those with a price). Both are linear equations
in the tasks, and the solver's answer is close to a solution.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.maxmin.tolerances import (
    COMPLEMENTARITY,
    EXCESS,
    LARGEST_CORRECTION,
    RANK_DEFICIENCY,
    RESIDUAL,
)

STEPS = 3


def refine_tasks(instance: Instance, tasks_ik: FloatArray, total_i: FloatArray, is_priced_kr: BoolArray) -> FloatArray:
    """Return the tasks with the given totals that use up each priced resource and exceed none.

    Least squares in the relative changes of the pairs, weighted by their part of the group's total: tasks that are 0
    stay 0. Solved for one multiplier per priced row. Complexity: O(rows^3 + groups rows^2).
    """
    if not (np.minimum(tasks_ik.sum(axis=1), total_i) > 0).all():
        return tasks_ik  # nothing to refine: a group was lost altogether
    tasks_ik = tasks_ik * (total_i / tasks_ik.sum(axis=1))[:, None]
    # A price of 1e-14 beside others is rounding; what it is for is not used up.
    is_held_kr = is_priced_kr & (tasks_ik.T @ instance.demand_ir > instance.capacity_kr * (1 - COMPLEMENTARITY))
    for _ in range(STEPS):
        is_held_kr = is_held_kr | (tasks_ik.T @ instance.demand_ir > instance.capacity_kr * (1 + EXCESS))
        class_n, resource_n = np.nonzero(is_held_kr)
        need_in = total_i[:, None] * instance.demand_ir[:, resource_n] / instance.capacity_kr[class_n, resource_n]
        is_same_class_nn = class_n[:, None] == class_n
        part_ik = tasks_ik / total_i[:, None]
        use_in = part_ik[:, class_n] * need_in
        left_n = 1 - use_in.sum(axis=0)
        if np.abs(left_n).max(initial=0.0) < RESIDUAL:
            break
        matrix = np.where(is_same_class_nn, need_in.T @ use_in, 0.0) - use_in.T @ use_in
        try:
            multiplier_n = np.linalg.lstsq(matrix, left_n, rcond=RANK_DEFICIENCY)[0]
        except np.linalg.LinAlgError:
            break  # the certificate decides about what there is
        of_class_nk = np.eye(part_ik.shape[1])[class_n]
        change_ik = (need_in * multiplier_n) @ of_class_nk - (use_in @ multiplier_n)[:, None]
        if np.abs(change_ik[tasks_ik > 0]).max() > LARGEST_CORRECTION:
            break
        tasks_ik = tasks_ik * (1 + change_ik)
        tasks_ik *= (total_i / tasks_ik.sum(axis=1))[:, None]
    return tasks_ik
