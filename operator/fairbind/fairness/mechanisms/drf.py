"""Dominant resource fairness: all weighted dominant shares rise at the same speed until a resource is used up.

A tenant stops when a resource that its tasks need is used up, or when all its tasks run; the other tenants go on. So
the weighted dominant shares are max-min fair: no tenant could get more unless a tenant with no higher share got less.

Paper: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, sections 4.1
(Algorithm 1, for divisible tasks) and 4.3 (weights, also one per resource).
Complexity: at most one round per resource; a round costs O(I log I + I R).
Guarantees, for any weights: sharing incentive, envy-freeness, Pareto optimality, strategy-proofness (all proved in
section 5 of the paper).

>>> import numpy as np
>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> solve_drf(reduce_problem(make_problem([[9, 18]], [[1, 4], [3, 1]]))).tasks_ik[:, 0].round(9).tolist()
[3.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import OPTIMALITY_GAP, SUMMATION_ERROR
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.problems.verify import CertificateError, check_feasible


def solve_drf(instance: Instance) -> Solution:
    """Return the allocation of one pool, by water filling."""
    speed_i = instance.weight_i / instance.share_per_task_i
    return Solution(fill_pool(instance.capacity_kr[0], instance.demand_ir, speed_i, instance.limit_i)[:, None])


def fill_pool(capacity_r: FloatArray, demand_ir: FloatArray, speed_i: FloatArray, limit_i: FloatArray) -> FloatArray:
    """Return the tasks, shape (I,), if they grow as level * speed_i until a resource or the limit stops each tenant.

    When a resource is used up, all tenants that need it stop; the others go on. Amounts in any unit. demand_ir may be
    0, but every tenant needs some resource of the pool.
    """
    tasks_i = np.zeros(speed_i.shape)
    is_moving_i = np.ones(speed_i.shape, dtype=bool)
    while is_moving_i.any():
        moving = np.flatnonzero(is_moving_i)
        left_r = capacity_r - np.where(is_moving_i, 0.0, tasks_i) @ demand_ir
        level, full_r = _find_next_stop(left_r, demand_ir[moving], speed_i[moving], limit_i[moving])
        tasks_i[moving] = np.minimum(level * speed_i[moving], limit_i[moving])
        is_stopped_i = (level * speed_i[moving] >= limit_i[moving]) | (demand_ir[moving] > 0)[:, full_r].any(axis=1)
        is_moving_i[moving] = ~is_stopped_i
    return tasks_i


def _find_next_stop(
    left_r: FloatArray, demand_ir: FloatArray, speed_i: FloatArray, limit_i: FloatArray
) -> tuple[float, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the level at which the first resource is used up, and which are; inf if limits stop all tenants first.

    The use of r at a level is the sum of d_ir * min(level * speed_i, limit_i): concave, piecewise linear. Its pieces
    are found by sorting the levels at which tenants meet their limits.
    """
    stop_i = limit_i / speed_i
    order = np.argsort(stop_i, kind="stable")
    finite = order[np.isfinite(stop_i[order])]
    levels_r = np.full(left_r.shape, np.inf)
    for r in range(left_r.size):
        rate_i = demand_ir[order, r] * speed_i[order]
        use_i = demand_ir[finite, r] * limit_i[finite]
        rate_after = np.append(np.cumsum(rate_i[::-1])[::-1], 0.0)[1 : finite.size + 1]
        piece = int(np.searchsorted(np.cumsum(use_i) + stop_i[finite] * rate_after, left_r[r]))
        # The piece is found by running sums, which round; its level by pairwise ones, which hardly do.
        left, rate = left_r[r] - use_i[:piece].sum(), rate_i[piece:].sum()
        if rate > 0:
            levels_r[r] = max(left, 0.0) / rate
    level = float(levels_r.min(initial=np.inf))
    return level, (levels_r <= level) & np.isfinite(levels_r)


def certify_drf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove that weighted dominant shares are max-min fair: each tenant has all its tasks, or a bottleneck.

    A bottleneck of i is a used-up resource that i needs and that no tenant with a higher level needs. More for i would
    have to come from a tenant there with no higher level.
    """
    level_i = solution.tasks_ik[:, 0] * instance.share_per_task_i / instance.weight_i
    excess = check_feasible(instance, solution.tasks_ik, "drf")
    gap = check_bottlenecks(instance, solution.tasks_ik[:, 0], level_i, "drf")
    return {"method": "bottlenecks", "largestExcess": excess, "largestGap": gap}


def check_bottlenecks(instance: Instance, tasks_i: FloatArray, level_i: FloatArray, mechanism_id: str) -> float:
    """Return how much more, as a part of its own level, the worst tenant could get; raise SolverError if too much."""
    used_r = tasks_i @ instance.demand_ir
    left_r = np.maximum(instance.capacity_kr[0] - used_r, 0.0)
    needs_ir = instance.demand_ir > 0
    highest_r = np.where(needs_ir, level_i[:, None], 0.0).max(axis=0)
    own_use_ir = np.maximum(tasks_i[:, None] * instance.demand_ir, np.finfo(float).tiny)
    growth_ir = np.maximum(left_r - SUMMATION_ERROR, 0.0) / own_use_ir
    with np.errstate(divide="ignore", invalid="ignore"):
        lag_ir = np.where(highest_r > level_i[:, None], highest_r / level_i[:, None] - 1, 0.0)
    gap_i = np.where(needs_ir, np.maximum(growth_ir, lag_ir), np.inf).min(axis=1)
    gap_i = np.minimum(gap_i, np.where(np.isfinite(instance.limit_i), np.abs(1 - tasks_i / instance.limit_i), np.inf))
    gap = float(gap_i.max(initial=0.0))
    if not gap <= OPTIMALITY_GAP:
        words = f"{{tenant}} could get {gap:.3g} more of its own"
        raise CertificateError(mechanism_id, words, gap, tenant=int(instance.rank_i[gap_i.argmax()]))
    return gap


DRF = Mechanism(
    id="drf",
    name="Dominant resource fairness",
    paper='Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011',
    section="4.1, 4.3",
    story=(
        "A tenant's dominant share is the largest part that it holds of any resource of the pool. All weighted "
        "dominant shares rise together; a tenant that needs a used-up resource stops, the others go on."
    ),
    options=frozenset({Option.WEIGHT, Option.RESOURCE_WEIGHTS, Option.TASKS}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_drf,
    certify=certify_drf,
)
