"""Competitive equilibrium from equal incomes: tenants buy resources with budgets, at the prices that clear the market.

Each tenant gets a budget (its weight) and spends it on as many tasks as it can pay for. At the equilibrium prices no
resource is overused, and a resource that is left over is free. The allocation maximises the weighted sum of logarithms
of the tasks (Eisenberg and Gale), so it is unique. A tenant with finite tasks buys no more than these and keeps the
rest of its budget.

Paper: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, section 5.2;
the market goes back to Varian, "Equity, envy, and efficiency", 1974.
Complexity: O(I R^2 + R^3) per step of the interior-point method, some 10 to 30 steps.
Guarantees: Pareto optimality; envy-freeness, sharing incentive. It is not strategy-proof (section 6.1.2).

>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> instance = reduce_problem(make_problem([[9, 18]], [[1, 4], [3, 1]]))
>>> solve_ceei(instance).tasks_ik[:, 0].round(9).tolist()
[4.090909091, 1.636363636]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import BUDGET_ERROR
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.verify import CertificateError, check_feasible
from fairbind.fairness.solvers.market.market import make_market
from fairbind.fairness.solvers.market.market_active_set import find_exact_equilibrium
from fairbind.model.errors import SolverError


def solve_ceei(instance: Instance) -> Solution:
    """Return the allocation of one pool; the price of a resource is for its whole capacity, and budgets sum to 1."""
    market = make_market(instance, np.ones(1))
    guess, _ = find_exact_equilibrium(market)
    return Solution(market.get_tasks(guess.part_ki), {"price_r": guess.price_kr[0]})


def certify_ceei(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove that the prices clear the market.

    Each tenant spends its budget, or has all its tasks for no more than the budget, and a resource that is left over
    costs nothing. Then no other allocation has a higher weighted sum of logarithms: the prices are its multipliers.
    """
    excess = check_feasible(instance, solution.tasks_ik, "ceei")
    tasks_i, price_r = solution.tasks_ik[:, 0], solution.evidence["price_r"]
    if price_r.shape != instance.capacity_kr[0].shape or not (np.isfinite(price_r).all() and (price_r >= 0).all()):
        raise SolverError("ceei: the prices are negative or no numbers")
    left_r = np.maximum(1 - tasks_i @ instance.demand_ir / instance.capacity_kr[0], 0.0)
    unsold = float((price_r * left_r).sum())
    spent_i = tasks_i * (instance.demand_ir / instance.capacity_kr[0] @ price_r) / instance.weight_i
    is_served_i = tasks_i >= instance.limit_i * (1 - BUDGET_ERROR)
    wrong_i = np.where(is_served_i, np.maximum(spent_i - 1, 0.0), np.abs(spent_i - 1))
    wrong = float(wrong_i.max())
    if not wrong <= BUDGET_ERROR:
        tenant = int(instance.rank_i[wrong_i.argmax()])
        words = f"{{tenant}} spends {spent_i[wrong_i.argmax()]:.9g} times its budget"
        raise CertificateError("ceei", words, wrong, tenant=tenant)
    if not unsold <= BUDGET_ERROR:
        raise CertificateError("ceei", f"resources worth {unsold:.3g} of all budgets are left over at a price", unsold)
    return {
        "method": "prices",
        "prices": [float(price) for price in price_r],
        "largestExcess": excess,
        "largestMisspending": wrong,
        "unsold": unsold,
    }


CEEI = Mechanism(
    id="ceei",
    name="Competitive equilibrium from equal incomes",
    paper='Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011',
    section="5.2",
    story=(
        "Each buys resources with its budget, the weight, at prices that clear the market. So the product of the "
        "tasks, each to the power of the weight, is as large as it can be. A tenant with a demand of its own pays "
        "little, and a lie about the demand can pay."
    ),
    options=frozenset({Option.WEIGHT, Option.TASKS}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_ceei,
    certify=certify_ceei,
    is_one_bidder=True,
)
