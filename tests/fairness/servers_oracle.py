"""What the definitions of PS-DSF and alpha-PF-VDS say, word by word, by linear programs on the problem as written.

Nothing is shared with the product: no classes, groups, levels or prices.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.problem import FloatArray, Problem
from fairness.levelling import compute_tasks_alone
from fairness.textbook import Row, maximize

SAME = 1e-7  # relative: shares that count as equal
HAS_ALL = 1e-9  # relative: what a tenant may lack of its tasks and have them all


def list_capacity_rows(problem: Problem, alone_ik: FloatArray, entry: int) -> list[Row]:
    """Inequalities on the tasks of one entry, in parts of what the tenants could run there alone."""
    usable_i = problem.eligible_ik[:, entry] & (alone_ik[:, entry] > 0)
    parts_i = np.where(usable_i, alone_ik[:, entry], 0.0)
    if not problem.divisible_k[entry]:
        return [(usable_i.astype(np.float64), 1.0)]
    capacity_r = problem.count_k[entry] * problem.capacity_kr[entry]
    return [
        (problem.demand_ir[:, r] * parts_i / capacity_r[r], 1.0)
        for r in range(capacity_r.size)
        if capacity_r[r] > 0 and (problem.demand_ir[:, r] * parts_i).any()
    ]


def compute_best_gain(problem: Problem, tasks_ik: FloatArray) -> float:
    """Return the most, relative, that a tenant can add without taking from somebody with no higher share there.

    Definition 4 of PS-DSF: the tenant's total is maximized over all allocations in which, on every server, nobody whose
    weighted virtual dominant share is at most the tenant's has less than now.
    """
    alone_ik = compute_tasks_alone(problem)
    usable_ik = problem.eligible_ik & (alone_ik > 0)
    totals_i = tasks_ik.sum(axis=1)
    share_ik = np.full(alone_ik.shape, np.inf)
    np.divide(totals_i[:, None], problem.weight_i[:, None] * alone_ik, out=share_ik, where=usable_ik)
    part_ik = np.divide(tasks_ik, alone_ik, out=np.zeros_like(alone_ik), where=usable_ik)
    worst = 0.0
    for tenant in np.flatnonzero(usable_ik.any(axis=1) & (problem.tasks_i > 0)):
        gain = 0.0
        for entry in np.flatnonzero(usable_ik[tenant]).tolist():
            keeps_i = (share_ik[:, entry] <= share_ik[tenant, entry] * (1 + SAME)) & usable_ik[:, entry]
            least_i = np.where(keeps_i, part_ik[:, entry], 0.0)
            least_i[tenant] = 0.0
            # One unknown: the program's answer is what the tightest row leaves, exactly, however little it needs of it.
            most = min(
                (bound - coefficients_i @ least_i) / coefficients_i[tenant]
                for coefficients_i, bound in list_capacity_rows(problem, alone_ik, entry)
                if coefficients_i[tenant] > 0
            )
            gain += max(most - part_ik[tenant, entry], 0.0) * alone_ik[tenant, entry]
        gain = min(gain, problem.tasks_i[tenant] - totals_i[tenant])
        worst = max(worst, gain / totals_i[tenant])
    return worst


def compute_slopes(problem: Problem, share_i: FloatArray, alpha: float, entry: int) -> FloatArray:
    """Return g' of (22) relative to its largest, from shares of all servers of the entry; z counts one of them."""
    a, b = problem.utility_a_k[entry], problem.utility_b_k[entry]
    if b == 0:
        slope_i: FloatArray = (share_i / share_i.min()) ** -alpha
        return slope_i
    log_z_i = np.log(share_i) + np.log(problem.count_k[entry])
    with np.errstate(divide="ignore"):
        log_i = np.logaddexp(alpha * (np.log(a) - log_z_i), np.log(b) - log_z_i)
    relative_i: FloatArray = np.exp(log_i - log_i.max())
    return relative_i


def compute_best_slope(problem: Problem, tasks_ik: FloatArray, alpha_k: FloatArray) -> float:
    """Return the largest left side of (16) over all servers and other uses y of them, of what the present use weighs.

    y: everything that the server's own capacity and the tenants' finite tasks leave possible.
    """
    alone_ik = compute_tasks_alone(problem)
    usable_ik = problem.eligible_ik & (alone_ik > 0)
    totals_i = tasks_ik.sum(axis=1)
    worst = 0.0
    for entry in range(alone_ik.shape[1]):
        usable_i = usable_ik[:, entry] & (problem.tasks_i > 0)
        if not usable_i.any():
            continue
        share_i = totals_i[usable_i] / (problem.weight_i * alone_ik[:, entry])[usable_i]
        slope_i = np.zeros(totals_i.size)
        slope_i[usable_i] = compute_slopes(problem, share_i, alpha_k[entry], entry)
        part_i = np.where(usable_i, tasks_ik[:, entry] / np.where(usable_i, alone_ik[:, entry], 1.0), 0.0)
        most_i = np.where(usable_i, np.inf, 0.0)
        finite_i = usable_i & np.isfinite(problem.tasks_i)
        left_i = np.maximum(problem.tasks_i[finite_i] - totals_i[finite_i], 0.0)
        left_i[left_i <= HAS_ALL * problem.tasks_i[finite_i]] = 0.0  # a slope may be 1e12 times another
        most_i[finite_i] = part_i[finite_i] + left_i / alone_ik[finite_i, entry]
        best_i = maximize(slope_i, list_capacity_rows(problem, alone_ik, entry), most=most_i)
        reached = float(slope_i @ best_i)
        if reached > 0:
            worst = max(worst, float(slope_i @ (best_i - part_i)) / reached)
    return worst
