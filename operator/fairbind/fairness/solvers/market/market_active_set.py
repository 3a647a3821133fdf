"""The exact equilibrium of a `Market`, from a rough one that already shows who buys where and what costs something.

Once that is known the conditions are equations, which Newton's method solves. It uses the system of the interior-point
method, with the pairs that must be 0 taken out, and holds back a little where equations do not say how much to change
(who sits where can be open). Should a step take more from a pair than it has, the pair is taken out; should a tenant
find a server cheaper than its own, it comes in; the same with prices and with tenants that have all their tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.interior_point import (
    QUIET,
    Newton,
    Point,
    Residual,
    StepBudget,
    System,
    find_equilibrium,
)
from fairbind.fairness.solvers.market.market import Market, compute_charges, compute_mismatches, with_loads
from fairbind.fairness.solvers.market.tolerances import (
    ACCEPTED_MISMATCH,
    CONVERGED_MISMATCH,
    ENTERING_PART,
    LIMIT_EXCESS,
    LIMIT_REACHED,
    NEGLIGIBLE_PRICE,
    NEGLIGIBLE_TOTAL,
    PRIMAL_FEASIBILITY,
    REDUCED_COST,
    REGULARISATION,
    SMALLEST_TOTAL,
)

CENTRINGS = (0.7, 0.85)  # of the interior-point method, where its own does not find one
ROUNDS = 25
LONGEST = 0.5  # the most that a price may change in one step, of itself


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """Parts bought, prices of slots, and by how much a task is worth more than it costs (at the limit only).

    All as in `interior_point.Equilibrium`.
    """

    part_ki: FloatArray
    price_kr: FloatArray
    relief_i: FloatArray


def make_guess(market: Market, part_ki: FloatArray, price_kr: FloatArray) -> Guess:
    """Return the guess of given parts and prices."""
    totals_i = market.get_totals(part_ki)
    worth_i = market.get_worths(np.maximum(totals_i, np.finfo(float).tiny))
    system = System(market)
    price_ki = system.get_prices(system.get_costs(price_kr))
    paid_i = np.where(part_ki > 0, price_ki, 0.0).max(axis=0)
    has_all_i = totals_i >= market.limit_i * (1 - PRIMAL_FEASIBILITY)
    return Guess(part_ki, price_kr, np.where(has_all_i, np.maximum(worth_i - paid_i, 0.0), 0.0))


@QUIET
def compute_mismatch(market: Market, guess: Guess) -> float:
    """Return by how much the worst of all conditions fails: limits, slack, costs and worths, prices of free slots."""
    totals_i = market.get_totals(guess.part_ki)
    if not (totals_i > 0).all():
        return np.inf
    failures = (
        totals_i / market.limit_i - 1,
        market.get_loads(guess.part_ki) - 1,
        compute_charges(market, guess.part_ki, guess.price_kr),
        compute_mismatches(market, guess.part_ki, guess.price_kr, LIMIT_REACHED),
    )
    worst = float(np.max([failure.max() for failure in failures]))
    return worst if np.isfinite(worst) else np.inf


def find_exact_equilibrium(market: Market, budget: StepBudget | None = None) -> tuple[Guess, float]:
    """Return the exact equilibrium that the interior-point method leads to, and its mismatch (0 is perfect).

    If that is not one, shorter and shorter steps of the method are tried, and then the equilibrium of the market with
    p = 1 everywhere as a guess; that always exists.
    """
    best, mismatch = solve_active_set(market, find_interior_guess(market, budget=budget), budget)
    for centring in (*CENTRINGS, None):
        if mismatch <= ACCEPTED_MISMATCH:
            break
        if centring is None:
            rough = find_plain_guess(market, budget)
        else:
            rough = find_interior_guess(market, centring=centring, budget=budget)
        solved, reached = solve_active_set(market, rough, budget)
        if reached < mismatch:
            best, mismatch = solved, reached
    return best, mismatch


def find_interior_guess(market: Market, *, centring: float | None = None, budget: StepBudget | None = None) -> Guess:
    """Return what the interior-point method leads to."""
    equilibrium = find_equilibrium(market, centring=centring, budget=budget)
    return Guess(equilibrium.part_ki, equilibrium.price_kr, equilibrium.relief_i)


def find_plain_guess(market: Market, budget: StepBudget | None = None) -> Guess:
    """Return what it leads to with p = 1 everywhere."""
    plain = find_interior_guess(with_loads(market, market.load_kri), budget=budget)
    power = market.worth_power
    worth_i = market.weight_i / np.maximum(market.get_totals(plain.part_ki), np.finfo(float).tiny)
    relief_i = worth_i**power - np.maximum(worth_i - plain.relief_i, 0.0) ** power
    return Guess(plain.part_ki, plain.price_kr ** market.root_k[:, None], relief_i)


@QUIET
def solve_active_set(market: Market, guess: Guess, budget: StepBudget | None = None) -> tuple[Guess, float]:
    """Return the best guess met on the way to the equilibrium, and its mismatch (0 is perfect)."""
    best, mismatch = guess, compute_mismatch(market, guess)
    if mismatch <= CONVERGED_MISMATCH:
        return best, mismatch
    state = _State(market, guess)
    for _ in range(ROUNDS):
        if budget is not None and not budget.take():
            break
        try:
            guess = state.step()
        except np.linalg.LinAlgError:
            break
        if not all(np.isfinite(values).all() for values in (guess.part_ki, guess.price_kr, state.worth_i)):
            break
        reached = compute_mismatch(market, guess)
        if reached < mismatch:
            best, mismatch = guess, reached
        if mismatch <= CONVERGED_MISMATCH:
            break
        state.correct()
    return best, mismatch


class _State:
    """The unknowns, and the choice of those that are not 0: pairs, prices, tenants that have all their tasks."""

    def __init__(self, market: Market, guess: Guess) -> None:
        self.market = market
        self.system = System(market)
        self.limit_i = np.where(np.isfinite(market.limit_i), market.limit_i, 1.0)
        self.has_all_i: BoolArray = np.zeros(market.weight_i.shape, dtype=bool)
        self.part_ki = guess.part_ki
        self.price_kr = guess.price_kr
        self.relief_i = guess.relief_i
        self.served_ki: BoolArray = guess.part_ki > 0
        self.priced_kr: BoolArray = guess.price_kr > 0
        price_ki = self._get_prices()
        cheapest_i = self._serve_lost(price_ki)
        totals_i = market.get_totals(guess.part_ki)
        least_i = market.weight_i * NEGLIGIBLE_TOTAL
        worth_i = market.get_worths(np.maximum(totals_i, least_i))
        self.worth_i = np.where(totals_i > least_i, worth_i, cheapest_i)
        short_i = np.where(np.isfinite(market.limit_i), 1 - totals_i / self.limit_i, np.inf)
        self.has_all_i = short_i < self.relief_i / self.worth_i
        self.relief_i = np.where(self.has_all_i, self.relief_i, 0.0)
        self._give_little((totals_i <= least_i) & ~self.has_all_i, price_ki)

    def _get_prices(self) -> FloatArray:
        """Return the cost of each tenant's task on each server, inf where not eligible."""
        return self.system.get_prices(self.system.get_costs(self.price_kr))

    def _serve_lost(self, price_ki: FloatArray) -> FloatArray:
        """Serve each tenant without a server on its cheapest one; return the cost of each tenant's task there."""
        lost = np.flatnonzero(~self.served_ki.any(axis=0))
        self.served_ki[price_ki[:, lost].argmin(axis=0), lost] = True
        cheapest_i: FloatArray = np.maximum(price_ki.min(axis=0), np.finfo(float).tiny)
        return cheapest_i

    def _give_little(self, little_i: BoolArray, price_ki: FloatArray) -> None:
        """Give what the prices say to those who get so little that they do not matter for the prices."""
        market = self.market
        little = np.flatnonzero(little_i)
        own = price_ki[:, little].argmin(axis=0)
        wanted_i = market.weight_i[little] * price_ki[own, little] ** (-1 / market.worth_power)
        self.part_ki = np.where(little_i, 0.0, self.part_ki)
        self.part_ki[own, little] = wanted_i / market.gain_ki[own, little]
        self.served_ki[:, little] = self.part_ki[:, little] > 0

    def step(self) -> Guess:
        """Take a Newton step; return the outcome, without what became negative."""
        market, zero_i = self.market, np.zeros_like(self.worth_i)
        system = self._get_system(self.served_ki)
        totals_i = market.get_totals(self.part_ki)
        cost_ki = system.get_costs(self.price_kr)
        entry_ki = np.divide(
            np.maximum(
                totals_i, np.minimum(SMALLEST_TOTAL, self.worth_i ** (-1 / market.worth_power)) * market.weight_i
            ),
            market.gain_ki,
            out=np.zeros_like(cost_ki),
            where=self.served_ki,
        )
        point = Point(
            part_ki=np.where(self.served_ki, np.maximum(self.part_ki, ENTERING_PART * entry_ki), 0.0),
            price_kr=self.price_kr,
            worth_i=self.worth_i,
            relief_i=np.where(self.has_all_i, self.worth_i, 0.0),
            surplus_ki=np.where(self.served_ki, REGULARISATION * np.maximum(cost_ki, REGULARISATION), 1.0),
            slack_kr=np.where(self.priced_kr, REGULARISATION, 1.0),
            slack_i=np.where(self.has_all_i, REGULARISATION * self.limit_i, 1.0),
        )
        dear_ki = cost_ki - system.worth_ki * (self.worth_i - self.relief_i)
        held_i = market.get_totals(point.part_ki)
        budget_i = system.get_budgets(self.worth_i, held_i) + market.worth_power * self.worth_i * (held_i - totals_i)
        residual = Residual(
            cost_ki=np.where(self.served_ki, dear_ki, 0.0),
            load_kr=np.where(self.priced_kr, 1 - market.get_loads(self.part_ki), 0.0),
            limit_i=np.where(self.has_all_i, self.limit_i - totals_i, 0.0),
            budget_i=budget_i,
            money=0.0,
        )
        nothing = (np.zeros_like(self.part_ki), np.zeros_like(self.price_kr), zero_i)
        change = Newton(system, point, residual).find_step(nothing, budget_i)
        relative_kr = np.divide(change.price_kr, self.price_kr, out=np.zeros_like(self.price_kr), where=self.priced_kr)
        largest = max(float(np.abs(relative_kr).max()), float(np.abs(change.worth_i / self.worth_i).max()))
        length = min(1.0, LONGEST / largest) if largest > 0 else 1.0
        self.part_ki = self.part_ki + length * change.part_ki
        self.price_kr = np.where(self.priced_kr, np.maximum(self.price_kr + length * change.price_kr, 0.0), 0.0)
        self.worth_i = self.worth_i + length * change.worth_i
        self.relief_i = np.where(self.has_all_i, self.relief_i + length * change.relief_i, 0.0)
        return Guess(np.maximum(self.part_ki, 0.0), self.price_kr, np.maximum(self.relief_i, 0.0))

    def _get_system(self, pairs_ki: BoolArray) -> System:
        """Return the equations of the pairs and slots that count."""
        market = self.market
        return System(
            replace(
                market,
                gain_ki=np.where(pairs_ki, market.gain_ki, 0.0),
                load_kri=np.where(self.priced_kr[:, :, None], market.load_kri, 0.0),
                limit_i=np.where(self.has_all_i, market.limit_i, np.inf),
            )
        )

    def correct(self) -> None:
        """Take out what became negative, let in what should be there."""
        market = self.market
        leaves_ki = self.served_ki & (self.part_ki <= 0)
        self.part_ki = np.maximum(self.part_ki, 0.0)
        highest_k = self.price_kr.max(axis=1, keepdims=True)
        self.priced_kr = self.priced_kr & (self.price_kr > NEGLIGIBLE_PRICE * highest_k)
        self.price_kr = np.where(self.priced_kr, self.price_kr, 0.0)
        price_ki = self._get_prices()
        enters_ki = ~self.served_ki & (price_ki < (self.worth_i - self.relief_i) * (1 - REDUCED_COST))
        self.served_ki = (self.served_ki & ~leaves_ki) | enters_ki
        self._serve_lost(price_ki)
        is_overfull_kr = market.is_slot_kr & ~self.priced_kr & (market.get_loads(self.part_ki) > 1 + PRIMAL_FEASIBILITY)
        most_ki = market.gain_ki * self.worth_i ** (1 / market.worth_power)
        most_k = most_ki.max(axis=1, keepdims=True) ** market.root_k[:, None]
        self.price_kr = np.where(
            is_overfull_kr, np.maximum(highest_k, ENTERING_PART * most_k) * ENTERING_PART, self.price_kr
        )
        self.priced_kr = self.priced_kr | is_overfull_kr
        is_over_i = np.isfinite(market.limit_i) & (market.get_totals(self.part_ki) > self.limit_i * (1 + LIMIT_EXCESS))
        self.has_all_i = np.where(self.has_all_i, self.relief_i > 0, is_over_i)
        self.relief_i = np.where(self.has_all_i, np.maximum(self.relief_i, 0.0), 0.0)
