"""Best-response dynamics of servers: each shares itself out as its own exponent asks, given what the others do.

One server and what its tenants have elsewhere are a small `Market`, and a server alone has just one best answer, which
the interior-point method always finds. To let the servers answer in turn until none changes its mind is slower than to
treat the whole market at once; but where exponents are large and that loses its way, this does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.solvers.market.interior_point import StepBudget
from fairbind.fairness.solvers.market.market import Market
from fairbind.fairness.solvers.market.market_active_set import (
    Guess,
    compute_mismatch,
    find_interior_guess,
    find_plain_guess,
    make_guess,
)
from fairbind.fairness.solvers.market.tolerances import ACCEPTED_RESPONSE_MISMATCH, CONVERGED_CHANGE, NEGLIGIBLE_PART


class BestResponses:
    """The state of the procedure."""

    def __init__(self, market: Market, budget: StepBudget | None = None) -> None:
        """Start with nothing."""
        self.market = market
        self.budget = budget
        self.part_ki = np.zeros(market.gain_ki.shape)
        self.price_kr = np.zeros(market.load_kri.shape[:2])

    def get_guess(self) -> Guess:
        """Return what there is now, without negligible parts; it stays what it is when servers respond again."""
        return _drop_negligible(self.market, make_guess(self.market, self.part_ki, self.price_kr.copy()))

    def run(self, times: int) -> float:
        """Let all servers respond so many times; return the largest change of the last time, of a tenant's total.

        A server that has no steps left to find its answer keeps the one it has.
        """
        market = self.market
        users_k = [np.flatnonzero(row) for row in market.usable_ki]
        change = np.inf
        for _ in range(times):
            before_ki = self.part_ki.copy()
            for k, users in enumerate(users_k):
                if self.budget is not None and self.budget.is_spent:
                    return change
                self._compute_best_response(k, users)
            moved_i = market.gain_ki * np.abs(self.part_ki - before_ki)
            change = float((moved_i / market.get_totals(self.part_ki)).max())
            if change <= CONVERGED_CHANGE:
                break
        return change

    def _compute_best_response(self, k: int, users: IntArray) -> None:
        """Solve one server's own market, of those who may use it and have not got all they want."""
        market = self.market
        gain_i = market.gain_ki[k, users]
        elsewhere_i = np.maximum(market.get_totals(self.part_ki)[users] - gain_i * self.part_ki[k, users], 0.0)
        self.part_ki[k] = 0.0
        self.price_kr[k] = 0.0
        wants = elsewhere_i < market.limit_i[users] * (1 - CONVERGED_CHANGE)
        if not wants.any():
            return
        own = users[wants]
        small = replace(
            market,
            weight_i=market.weight_i[own],
            limit_i=market.limit_i[own],
            gain_ki=market.gain_ki[k : k + 1, own],
            load_kri=market.load_kri[k : k + 1][:, :, own],
            exponent_k=market.exponent_k[k : k + 1],
            log_linear_k=market.log_linear_k[k : k + 1],
            scale_i=market.scale_i[own],
            elsewhere_i=elsewhere_i[wants],
        )
        answer = _drop_negligible(small, find_interior_guess(small, budget=self.budget))
        if compute_mismatch(small, answer) > ACCEPTED_RESPONSE_MISMATCH:
            other = _drop_negligible(small, find_plain_guess(small, self.budget))
            answer = min((answer, other), key=lambda guess: compute_mismatch(small, guess))
        self.part_ki[k, own] = answer.part_ki[0]
        self.price_kr[k] = answer.price_kr[0]


def _drop_negligible(market: Market, guess: Guess) -> Guess:
    """Return the guess without negligible parts, which are on their way to nothing."""
    is_there_ki = market.gain_ki * guess.part_ki > NEGLIGIBLE_PART * market.get_totals(guess.part_ki)
    return replace(guess, part_ki=np.where(is_there_ki, guess.part_ki, 0.0))
