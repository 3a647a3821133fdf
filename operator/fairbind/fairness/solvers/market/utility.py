"""The utilities of servers, as the rule by which multipliers follow from prices.

A price u of a whole server (what a tenant with the share z = 1 / u would pay) has the multiplier g'(1 / u) =
u ** alpha + b u: the family of equation (22) of Khamse-Ashari et al., divided by A ** alpha. Prices are kept as their
`market.root_k`-th powers y, so this is y ** norm + b y ** (1 / root). All values are relative to a unit price, whose
multiplier is 1: there the rule is a weighted mean of two powers, which neither overflows nor loses a term.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairbind.fairness.problems.problem import FloatArray

MOST_ROUNDS = 60  # of Newton's method; 4 to 8 are enough
_EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Utility:
    """The rule of each server, shapes (K, 1). log_power_k, log_linear_k: log of the two terms at the unit price."""

    norm_k: FloatArray
    steepness_k: FloatArray
    log_power_k: FloatArray
    log_linear_k: FloatArray

    def find_multipliers(self, price_kn: FloatArray) -> FloatArray:
        """Return the multipliers of prices, shape (K, N).

        >>> utility = make_utility(np.array([2.0]), np.array([1.0]), np.log([3.0]), np.array([1.0]))
        >>> utility.find_multipliers(np.array([[0.0, 1.0, 2.0]])).round(9).tolist()  # (u^2 + 3 u) / 4
        [[0.0, 1.0, 2.5]]
        """
        powers_kn: FloatArray = price_kn**self.norm_k
        if (self.log_linear_k == -np.inf).all():
            return powers_kn
        linear_kn = _weigh(self.log_linear_k, price_kn**self.steepness_k)
        multipliers_kn: FloatArray = _weigh(self.log_power_k, powers_kn) + linear_kn
        return multipliers_kn

    def find_slopes(self, price_kn: FloatArray) -> FloatArray:
        """Return the derivatives of the multipliers by the prices, shape (K, N)."""
        power_kn = _weigh(self.log_power_k, self.norm_k * price_kn ** (self.norm_k - 1))
        linear_kn = _weigh(self.log_linear_k, self.steepness_k * price_kn ** (self.steepness_k - 1))
        slopes_kn: FloatArray = power_kn + linear_kn
        return slopes_kn

    def find_prices(self, multiplier_kn: FloatArray) -> FloatArray:
        """Return the prices that have these multipliers, shape (K, N).

        In logarithms the rule is convex and rises by at least 1, so Newton's method comes down from the price at which
        one of the terms is enough.

        >>> utility = make_utility(np.array([2.0]), np.array([1.0]), np.log([3.0]), np.array([1.0]))
        >>> utility.find_prices(np.array([[0.0, 1.0, 2.5]])).round(9).tolist()
        [[0.0, 1.0, 2.0]]
        """
        with np.errstate(divide="ignore"):
            log_kn = np.log(multiplier_kn)
        is_some_kn = multiplier_kn > 0
        wanted_kn = np.where(is_some_kn, log_kn, 0.0)
        log_price_kn = np.minimum(
            (wanted_kn - self.log_power_k) / self.norm_k, (wanted_kn - self.log_linear_k) / self.steepness_k
        )
        for _ in range(MOST_ROUNDS):
            power_kn = self.log_power_k + self.norm_k * log_price_kn
            linear_kn = self.log_linear_k + self.steepness_k * log_price_kn
            reached_kn = np.logaddexp(power_kn, linear_kn)
            slope_kn = self.norm_k * np.exp(power_kn - reached_kn) + self.steepness_k * np.exp(linear_kn - reached_kn)
            change_kn = (reached_kn - wanted_kn) / slope_kn
            log_price_kn = log_price_kn - change_kn
            if (np.abs(change_kn) <= _EPSILON * np.maximum(np.abs(log_price_kn), 1.0)).all():
                break
        prices_kn: FloatArray = np.where(is_some_kn, np.exp(log_price_kn), 0.0)
        return prices_kn


def make_utility(norm_k: FloatArray, steepness_k: FloatArray, log_linear_k: FloatArray, unit_k: FloatArray) -> Utility:
    """Return the rule of y ** norm + b y ** steepness, log b = log_linear, in the unit of these prices, shape (K,)."""
    log_unit_k = np.log(np.maximum(unit_k, np.finfo(float).tiny))
    log_ratio_k = log_linear_k + (steepness_k - norm_k) * log_unit_k
    log_sum_k = np.logaddexp(0.0, log_ratio_k)
    return Utility(norm_k[:, None], steepness_k[:, None], -log_sum_k[:, None], (log_ratio_k - log_sum_k)[:, None])


def _weigh(log_weight_k: FloatArray, value_kn: FloatArray) -> FloatArray:
    """Return weight times value; a weight of 0 makes 0 of whatever there is."""
    weight_k = np.exp(log_weight_k)
    weighed_kn: FloatArray = np.where(weight_k > 0, weight_k * np.where(weight_k > 0, value_kn, 0.0), 0.0)
    return weighed_kn
