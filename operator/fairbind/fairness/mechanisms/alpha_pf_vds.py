"""Alpha-proportional fairness of virtual dominant shares: each server trades fairness for use by its own exponent.

A tenant's virtual dominant share on a server is the number of its tasks, wherever they run, over the number that the
server could run if the tenant had it alone. Given what the others do, each server maximises the sum over its tenants of
weight * g(share / weight), where g' (z) = z ** -alpha: alpha = 1 is proportional fairness of the whole, large ones
approach PS-DSF. The division is an equilibrium: no server can do better alone. On a server that is not divisible (its
time is shared) every alpha says the same.

A tenant with finite tasks that has them all counts, for servers, with the share at which it would stop asking for more.

Paper: Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao, "An Efficient and Fair Multi-Resource Allocation Mechanism
for Heterogeneous Servers", section 3.2 (definition 6, inequality 16) and section 3.4.
Complexity: O(I K^2 R^2 + K^3 R^3) a step of the interior-point method, some 10 to 50 steps.
Guarantees: sharing incentive, and envy-freeness server by server, for alpha >= 1; Pareto optimality for alpha = 1
(theorem 3) and, for every alpha, on one server.

>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> problem = make_problem([[12, 4, 75], [8, 16, 0]], [[1, 1, 5], [1 / 3, 1 / 3, 5], [1 / 4, 1, 0], [1, 1 / 2, 0]])
>>> solve_alpha_pf_vds(reduce_problem(problem, alpha=3)).tasks_ik.sum(axis=1).round(4).tolist()
[2.0, 6.0, 12.3676, 4.9081]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import PLACE_MISMATCH, SUFFICIENT_MISMATCH
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.problems.verify import FEASIBILITY, CertificateError, check_feasible
from fairbind.fairness.solvers.iterative.distributed import solve_distributed
from fairbind.fairness.solvers.iterative.ps_mfa import solve_ps_mfa
from fairbind.fairness.solvers.market.best_response import BestResponses
from fairbind.fairness.solvers.market.interior_point import StepBudget
from fairbind.fairness.solvers.market.market import (
    Market,
    compute_charges,
    compute_mismatches,
    compute_worths,
    make_market,
)
from fairbind.fairness.solvers.market.market_active_set import Guess, find_exact_equilibrium, solve_active_set
from fairbind.fairness.solvers.market.tolerances import ACCEPTED_MISMATCH, CONVERGED_CHANGE
from fairbind.model.errors import SolverError

FIRST_RESPONSES, MOST_RESPONSES = 8, 128  # of every server, before the exact amounts are solved for again
STALLED = 0.5  # of the mismatch after half as many responses: above it, more responses hardly help
MOST_STEPS, MOST_SERVER_STEPS = 6000, 200  # Newton steps of one problem in all: at least, and for each server class
RESPONSE_WORK = 60_000  # tenants x servers x responses before giving up: some ten seconds


def solve_alpha_pf_vds(instance: Instance) -> Solution:
    """Return an equilibrium, with the prices of slots as `market` keeps them.

    To the power max(alpha, 1) they are the multipliers of the servers.
    """
    market = make_market(instance, instance.alpha_k, instance.log_linear_k)
    guess, _ = find_guess(market)
    return Solution(market.get_tasks(guess.part_ki), {"price_kr": guess.price_kr})


def find_guess(market: Market) -> tuple[Guess, float]:
    """Return the best equilibrium found and how far it is from one (the largest relative mismatch of any condition).

    Amounts that are too far apart for float64 can keep the search busy without end, so its steps are counted.
    """
    budget = StepBudget(MOST_STEPS + MOST_SERVER_STEPS * market.gain_ki.shape[0])
    best, mismatch = find_exact_equilibrium(market, budget)
    responses = BestResponses(market, budget)
    times, last = FIRST_RESPONSES, np.inf
    most = min(MOST_RESPONSES, RESPONSE_WORK // max(market.gain_ki.size, 1))
    while mismatch > ACCEPTED_MISMATCH and times <= most and not budget.is_spent:
        change = responses.run(times)
        solved, reached = solve_active_set(market, responses.get_guess(), budget)
        if reached < mismatch:
            best, mismatch = solved, reached
        is_stalled = reached > STALLED * last and mismatch <= SUFFICIENT_MISMATCH
        if change <= CONVERGED_CHANGE or is_stalled:
            break
        last = reached
        times *= 2
    return best, mismatch


def certify_alpha_pf_vds(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove inequality (16) with the prices.

    Three things are checked for each server. No tenant could use it for less than its worth (except tenants
    with all their tasks); no tenant with a part pays more than its worth; slots that are not full cost nothing. Weak
    duality then bounds the left side of (16), for whatever other use of the server. That bound has the exponent as a
    factor (what is off by e in prices is off by alpha e in multipliers), the three checks have not.
    """
    excess = check_feasible(instance, solution.tasks_ik, "alpha-pf-vds")
    market = make_market(instance, instance.alpha_k, instance.log_linear_k)
    part_ki = np.divide(
        solution.tasks_ik.T, instance.gamma_ik.T, out=np.zeros(market.gain_ki.shape), where=market.usable_ki
    )
    price_kr = solution.evidence["price_kr"]
    if price_kr.shape != market.load_kri.shape[:2] or not (np.isfinite(price_kr).all() and (price_kr >= 0).all()):
        raise SolverError("alpha-pf-vds: the prices are negative or no numbers")
    totals_i = market.get_totals(part_ki)
    if not (totals_i > 0).all():
        tenant = int(instance.rank_i[(totals_i <= 0).argmax()])
        raise CertificateError("alpha-pf-vds", "{tenant} gets nothing", np.inf, tenant=tenant)
    mismatch_ki = compute_mismatches(market, part_ki, price_kr, PLACE_MISMATCH)
    mismatch = float(mismatch_ki.max())
    if not mismatch <= PLACE_MISMATCH:
        server, group = np.unravel_index(int(mismatch_ki.argmax()), mismatch_ki.shape)
        words = f"{{tenant}} pays {mismatch:.3g} (of what it is worth) too much or too little on {{server}}"
        tenant = int(instance.rank_i[group])
        raise CertificateError("alpha-pf-vds", words, mismatch, tenant=tenant, server_class=int(server))
    charge_kr = compute_charges(market, part_ki, price_kr)
    emptiest = int(charge_kr.sum(axis=1).argmax())
    if not charge_kr[emptiest].sum() <= PLACE_MISMATCH:
        largest = float(charge_kr[emptiest].max())
        words = f"{largest:.3g} of what costs something is left over on {{server}}"
        raise CertificateError("alpha-pf-vds", words, largest, server_class=emptiest)
    gap_k = _bound_inequality(market, part_ki, price_kr)
    gap = float(gap_k.max())
    allowed = PLACE_MISMATCH * max(1.0, float(instance.alpha_k.max()))
    if not gap <= allowed:
        words = f"{{server}} could do better by {gap:.3g} of what it does"
        raise CertificateError("alpha-pf-vds", words, gap, server_class=int(gap_k.argmax()))
    return {"method": "inequality 16", "largestExcess": excess, "largestMismatch": mismatch, "largestGap": gap}


def _bound_inequality(market: Market, part_ki: FloatArray, price_kr: FloatArray) -> FloatArray:
    """Return, for each server, a bound on the left side of (16) over the server's present value, shape (K,).

    In parts of the server the left side is sum of slope_i * (y_i - part_i), slope_i = (weighted share) ** -alpha. With
    multipliers m_r >= 0 and y feasible, sum of slope_i * y_i <= sum of m_r + sum of (slope_i - m @ load_i)^+ * most_i,
    where most_i is what i can have of the server at most. The multipliers are raised until only tenants that have all
    their tasks have a positive term, so such a tenant counts with min(slope_i, m @ load_i) * part_i.

    A tenant within `FEASIBILITY` of its limit has all its tasks: the bound is for its present number of tasks as the
    limit. Its slope may be many orders of magnitude above all others, so no rounding may be multiplied by it.
    """
    return np.maximum(_bound_trades(market, part_ki, price_kr), _bound_growth(market, part_ki, price_kr))


def _bound_trades(market: Market, part_ki: FloatArray, price_kr: FloatArray) -> FloatArray:
    """Return the bound if those near their limits have no more to gain, shape (K,).

    The unit is the server's highest price, so what others could pay cannot hide a loss.
    """
    slope_ki, charge_ki, multiplier_kr, raised_k = _compute_slopes(market, part_ki, price_kr, price_kr.max(axis=1))
    most_k = raised_k * multiplier_kr.sum(axis=1)
    paid_k = (np.minimum(slope_ki, raised_k[:, None] * charge_ki) * part_ki).sum(axis=1)
    relative_k: FloatArray = np.divide(most_k - paid_k, most_k, out=np.zeros_like(most_k), where=most_k > 0)
    return relative_k


def _bound_growth(market: Market, part_ki: FloatArray, price_kr: FloatArray) -> FloatArray:
    """Return what those near their limits, but not within `FEASIBILITY` of them, could add, shape (K,)."""
    totals_i = market.get_totals(part_ki)
    highest_k = np.maximum(price_kr.max(axis=1), compute_worths(market, totals_i).max(axis=1))
    slope_ki, charge_ki, multiplier_kr, raised_k = _compute_slopes(market, part_ki, price_kr, highest_k)
    extra_ki = np.maximum(slope_ki - raised_k[:, None] * charge_ki, 0.0)
    limit_i = np.where(np.isfinite(market.limit_i), market.limit_i, 0.0)
    slack_i = np.where(totals_i < limit_i * (1 - FEASIBILITY), limit_i - totals_i, 0.0)
    most_ki = np.divide(slack_i, market.gain_ki, out=np.zeros_like(part_ki), where=market.usable_ki)
    growth_k = (extra_ki * np.minimum(most_ki, 1.0)).sum(axis=1)
    best_k = raised_k * multiplier_kr.sum(axis=1) + (extra_ki * np.minimum(part_ki + most_ki, 1.0)).sum(axis=1)
    relative_k: FloatArray = np.divide(growth_k, best_k, out=np.zeros_like(best_k), where=best_k > 0)
    return relative_k


def _compute_slopes(
    market: Market, part_ki: FloatArray, price_kr: FloatArray, unit_k: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return slopes, what a whole server costs, multipliers, and by what factor those must be raised, in that unit.

    Slopes of tenants that have all their tasks may be inf.
    """
    totals_i = market.get_totals(part_ki)
    usable_ki, utility = market.usable_ki, market.get_utility(unit_k)
    unit_k = unit_k[:, None]
    worth_ki = compute_worths(market, totals_i)
    with np.errstate(over="ignore"):
        slope_ki = utility.find_multipliers(np.divide(worth_ki, unit_k, out=np.zeros_like(worth_ki), where=unit_k > 0))
    multiplier_kr = utility.find_multipliers(np.divide(price_kr, unit_k, out=np.zeros_like(price_kr), where=unit_k > 0))
    charge_ki = (multiplier_kr[:, None, :] @ market.load_kri)[:, 0]
    may_want_ki = usable_ki & (totals_i < market.limit_i * (1 - PLACE_MISMATCH))
    ratio_ki = np.divide(slope_ki, charge_ki, out=np.ones_like(slope_ki), where=may_want_ki & (charge_ki > 0))
    return slope_ki, charge_ki, multiplier_kr, ratio_ki.max(axis=1, initial=1.0)


ALPHA_PF_VDS = Mechanism(
    id="alpha-pf-vds",
    name="Alpha-proportional fairness of virtual dominant shares",
    paper=(
        'Khamse-Ashari et al., "An Efficient and Fair Multi-Resource Allocation Mechanism for Heterogeneous Servers"'
    ),
    section="3.2 (definition 6), 3.4",
    story=(
        "Every server maximises the sum of its tenants' utilities of their virtual dominant shares on it, with an "
        "exponent alpha: 1 uses servers best (proportional fairness), larger ones are fairer, up to PS-DSF. Servers "
        "can have exponents of their own."
    ),
    options=frozenset(
        {Option.WEIGHT, Option.TASKS, Option.SERVERS, Option.ELIGIBLE, Option.DIVISIBLE, Option.ALPHA, Option.UTILITY}
    ),
    level_scope=LevelScope.SERVER_CLASS,
    share_sum=ShareSum.DOMINANT,
    solve=solve_alpha_pf_vds,
    certify=certify_alpha_pf_vds,
    solvers={"ps-mfa": solve_ps_mfa, "distributed": solve_distributed},
    notes={
        "price_kr": (
            "price_kr ** max(alpha, 1), with the alpha of the class, is the multiplier of inequality (16); where the "
            "class has a linear term, linear * price_kr ** max(1 / alpha, 1) is added"
        ),
        "multiplier_kr": "of an iterative solver: the multipliers of inequality (16), nearly",
    },
)
