"""Lexicographic max-min: the least level as high as it can be, then the next least, and so on, on servers that differ.

In each round a linear program (`level_lp`) raises the level of all free groups together, as far as it can. Then the
groups that cannot rise, by the program's duals, are fixed at that level: not all groups at the level, only those with a
positive dual. All placements stay free: a fixed group keeps its level and not its servers. A group whose tasks all run
is fixed, too.

The certificate is one set of prices a round, and needs nothing else from the procedure. At prices p >= 0 a task of i
costs at least v_i wherever it is placed, so that every allocation satisfies sum_i v_i x_i <= sum(p). If that holds with
equality, v_i > 0 and no group with v_j > 0 has a level above that of i, then i can only get more when a group with no
more gets less. An allocation in which this is so for each group with tasks left is max-min fair, and so the
lexicographic optimum, which is unique in the levels (Radunovic and Le Boudec, "A unified framework for max-min and
min-max fairness with applications", IEEE/ACM Transactions on Networking 2007, theorem 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.negligible import drop_negligible
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.problems.verify import CertificateError, check_feasible
from fairbind.fairness.solvers.maxmin.level_lp import LevelProgram
from fairbind.fairness.solvers.maxmin.lp_refinement import refine_tasks
from fairbind.fairness.solvers.maxmin.tolerances import EQUAL_LEVELS, OPTIMALITY_GAP, POSITIVE_DUAL, SUMMATION_ERROR
from fairbind.fairness.solvers.maxmin.warm_basis import carry_over, prune
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model.errors import SolverError


def solve_lexicographic(instance: Instance, level_per_task_i: FloatArray, warm: WarmStart | None = None) -> Solution:
    """Return the lexicographic max-min allocation of the levels tasks x level_per_task_i, with its prices (N, K, R)."""
    start = None
    if warm is not None and warm.state is not None:
        start = carry_over(warm.state, warm.group_before_i, warm.class_before_k, instance.usable_ik)
    program = LevelProgram(instance, level_per_task_i, start)
    limit_level_i = instance.limit_i * level_per_task_i
    level_i = np.zeros(limit_level_i.shape)
    reached_i = np.full(limit_level_i.shape, np.inf)  # where the programs were when a level was fixed
    is_free_i = np.ones(limit_level_i.shape, dtype=bool)
    # What an equal (weighted) part of each class would give each tenant: never too much.
    level = float((instance.gamma_ik.sum(axis=1) * level_per_task_i * instance.weight_i).min())
    prices: list[FloatArray] = []
    tasks_ik = np.zeros(instance.usable_ik.shape)
    while is_free_i.any():
        optimum = program.solve(is_free_i, np.minimum(level_i, reached_i), level)
        tasks_ik = optimum.tasks_ik
        worth_i = compute_worth(instance, optimum.price_kr) / level_per_task_i
        if not worth_i[is_free_i].any():
            raise SolverError("the linear program's prices let a tenant rise for nothing")
        # The level that the prices prove, not the one that the solver reached, is right to rounding.
        level = float(optimum.price_kr.sum() - worth_i[~is_free_i] @ level_i[~is_free_i]) / float(
            worth_i[is_free_i].sum()
        )
        has_all_i = is_free_i & (limit_level_i <= level * (1 + EQUAL_LEVELS))
        reached_i[is_free_i] = optimum.level
        if has_all_i.any():
            # They ask for less than t, so the others may rise further: solve again before any group is fixed at t.
            level_i[has_all_i] = limit_level_i[has_all_i]
            is_free_i &= ~has_all_i
            continue
        stuck_i = is_free_i & (worth_i > POSITIVE_DUAL * worth_i[is_free_i].max())
        level_i[stuck_i] = level
        is_free_i &= ~stuck_i
        prices.append(optimum.price_kr)
    if warm is not None:
        warm.state = prune(program.warm_basis)
    price_nkr = np.array(prices).reshape(-1, *instance.capacity_kr.shape)
    is_priced_kr: BoolArray = np.asarray((price_nkr > 0).any(axis=0))
    total_i = np.minimum(level_i / level_per_task_i, instance.limit_i)
    return Solution(_refine(instance, tasks_ik, total_i, is_priced_kr), {"prices_nkr": price_nkr})


def _refine(instance: Instance, tasks_ik: FloatArray, total_i: FloatArray, is_priced_kr: BoolArray) -> FloatArray:
    """Return the tasks without the solver's rounding: negligible ones go first, if others can take them up."""
    trimmed_ik = drop_negligible(instance, tasks_ik)
    if trimmed_ik is not tasks_ik:
        refined_ik = refine_tasks(instance, trimmed_ik, total_i, is_priced_kr)
        if (refined_ik.T @ instance.demand_ir <= instance.capacity_kr * (1 + EQUAL_LEVELS)).all():
            return refined_ik
    return refine_tasks(instance, tasks_ik, total_i, is_priced_kr)


def compute_worth(instance: Instance, price_kr: FloatArray) -> FloatArray:
    """Return what a task of each group costs at the cheapest of its classes, shape (I,), at prices of whole classes."""
    unit_price_kr = np.zeros(price_kr.shape)
    np.divide(price_kr, instance.capacity_kr, out=unit_price_kr, where=instance.capacity_kr > 0)
    cost_ik = np.where(instance.usable_ik, instance.demand_ir @ unit_price_kr.T, np.inf)
    worth_i: FloatArray = cost_ik.min(axis=1)
    return worth_i


def certify_lexicographic(
    instance: Instance, level_per_task_i: FloatArray, solution: Solution, mechanism_id: str
) -> Mapping[str, Any]:
    """Prove by prices that the levels are max-min fair (see the module) or raise SolverError."""
    excess = check_feasible(instance, solution.tasks_ik, mechanism_id)
    total_i = solution.tasks_ik.sum(axis=1)
    level_i = total_i * level_per_task_i
    gap_i = np.full(total_i.shape, np.inf)
    for price_kr in solution.evidence["prices_nkr"]:
        gap_i = np.minimum(gap_i, _compute_gaps(instance, price_kr, total_i, level_i))
    has_limit_i = np.isfinite(instance.limit_i)
    gap_i[has_limit_i] = np.minimum(gap_i, np.abs(1 - total_i / instance.limit_i))[has_limit_i]
    worst = int(gap_i.argmax())
    if not gap_i[worst] <= OPTIMALITY_GAP:
        words = f"{{tenant}} could get {gap_i[worst]:.3g} of its own more"
        raise CertificateError(mechanism_id, words, float(gap_i[worst]), tenant=int(instance.rank_i[worst]))
    rounds = len(solution.evidence["prices_nkr"])
    return {"method": "prices", "rounds": rounds, "largestExcess": excess, "largestGap": float(gap_i[worst])}


def _compute_gaps(instance: Instance, price_kr: FloatArray, total_i: FloatArray, level_i: FloatArray) -> FloatArray:
    """Return how much more, as a part of its own, each group could get with no group below it getting less, shape (I,).

    At these prices, what is left when each group keeps the lesser of its own level and that of i:
    (sum(p) - sum_j v_j x_j min(1, level_i / level_j)) / (v_i x_i).
    """
    if not (price_kr >= 0).all():
        raise SolverError("a negative price")
    everything = float(price_kr.sum())
    spent_i = compute_worth(instance, price_kr) * total_i
    order = np.argsort(level_i)
    spent, level = spent_i[order], level_i[order]
    below = np.cumsum(spent)
    above = np.append(np.cumsum((spent / np.maximum(level, np.finfo(float).tiny))[::-1])[::-1], 0.0)[1:] * level
    left = everything - below - above
    gap_i = np.full(total_i.shape, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap_i[order] = np.maximum(left - SUMMATION_ERROR * everything, 0.0) / spent
    gap_i[~(spent_i > 0)] = np.inf
    return gap_i
