"""The complementarity problem of alpha-PF-VDS and its merit function, in units that make it well scaled.

Every server k maximises the sum of its tenants' utilities, given what they have elsewhere (problem 1). With multipliers
lambda_kr of its capacities, x is a solution if and only if (28) and (29) hold: lambda_kr and the free capacity, x_ki
and f_ki, are never negative and never both positive, where f_ki = sum over r of lambda_kr d_ir - g'(share) / gamma_ki.
Tasks that end without limit are not part of the paper's problem, so finite tasks are refused.

Paper: Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao, "An Efficient and Fair Multi-Resource Allocation Mechanism
for Heterogeneous Servers", section 4. Capacities are 1, a server's utility is divided by a constant, so that slopes
are about 1, and a tenant's amounts are parts of servers, in the mean. No answer depends on these units, the speed does:
it is some ten times that of units in which x_ki and f_ki are about equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.problems.verify import RefusedTenantError
from fairbind.fairness.solvers.market.market import Market, make_market

NEARLY_FULL = 0.999  # of the resource that is used most on each server, at the start


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Servers (K) that divide themselves between tenants (I). amounts x_ki: tasks in the game's units.

    gamma_ki: amount of i that the whole of k is; 1 where i may not use it. demand_kri: part of slot r that an amount of
    1 uses. factor_k: what utilities are multiplied by. unit_i: tasks of the market's unit in an amount of 1.
    linear_k: b of the utilities. start_ki: an allocation within capacities, in which each server is nearly full.
    """

    market: Market
    gamma_ki: FloatArray
    demand_kri: FloatArray
    factor_k: FloatArray
    unit_i: FloatArray
    linear_k: FloatArray
    start_ki: FloatArray

    @property
    def usable_ki(self) -> BoolArray:
        """Pairs of server and tenant that may use it, shape (K, I)."""
        return self.market.usable_ki

    def get_slopes(self, totals_i: FloatArray) -> FloatArray:
        """Return g'(share) / gamma: what one more amount adds to the server's sum of utilities, shape (K, I)."""
        worth_ki = self.market.weight_i * self.gamma_ki / totals_i
        power_ki = worth_ki ** self.market.exponent_k[:, None]
        slopes_ki: FloatArray = self.factor_k[:, None] * (power_ki + self.linear_k[:, None] * worth_ki) / self.gamma_ki
        return slopes_ki

    def get_bends(self, totals_i: FloatArray) -> FloatArray:
        """Return by how much slopes fall with the total, shape (K, I)."""
        exponent_k, worth_ki = self.market.exponent_k[:, None], self.market.weight_i * self.gamma_ki / totals_i
        power_ki = exponent_k * worth_ki**exponent_k
        bends_ki: FloatArray = self.factor_k[:, None] * (power_ki + self.linear_k[:, None] * worth_ki)
        return bends_ki / (self.gamma_ki * totals_i)

    def get_prices(self, multiplier_kr: FloatArray) -> FloatArray:
        """Return what an amount costs at the multipliers, shape (K, I)."""
        prices_ki: FloatArray = (multiplier_kr[:, None, :] @ self.demand_kri)[:, 0]
        return prices_ki

    def get_loads(self, amount_ki: FloatArray) -> FloatArray:
        """Return how full the slots are, shape (K, R)."""
        loads_kr: FloatArray = (self.demand_kri @ amount_ki[:, :, None])[:, :, 0]
        return loads_kr

    def compute_merit(self, amount_ki: FloatArray, multiplier_kr: FloatArray) -> float:
        """Return Psi of (37): half of the squared Fischer-Burmeister functions of all x_ki and f_ki; 0 at a solution.

        inf where a tenant has nothing, and so no slope.
        """
        totals_i = amount_ki.sum(axis=0)
        if not (totals_i > 0).all():
            return float("inf")
        excess_ki = self.get_prices(multiplier_kr) - self.get_slopes(totals_i)
        failure_ki = np.hypot(amount_ki, excess_ki) - amount_ki - excess_ki
        return 0.5 * float((failure_ki[self.usable_ki] ** 2).sum())

    def compute_residual(self, amount_ki: FloatArray, multiplier_kr: FloatArray) -> float:
        """Return the largest |min(part of i's total on k, how much too dear k is for i, relative to what it is worth)|.

        0 at a solution, in no units.
        """
        totals_i = amount_ki.sum(axis=0)
        slopes_ki = self.get_slopes(totals_i)
        dear_ki = self.get_prices(multiplier_kr) / slopes_ki - 1
        return float(np.abs(np.minimum(amount_ki / totals_i, dear_ki))[self.usable_ki].max())

    def compute_slackness(self, amount_ki: FloatArray, multiplier_kr: FloatArray) -> float:
        """Return the largest part of a server's value that is asked for free capacity; 0 where (28) holds."""
        asked_kr = multiplier_kr * np.abs(1 - self.get_loads(amount_ki))
        sum_k = multiplier_kr.sum(axis=1)
        return float(np.divide(asked_kr.sum(axis=1), sum_k, out=np.zeros_like(sum_k), where=sum_k > 0).max())

    def compute_gap(self, amount_ki: FloatArray, multiplier_kr: FloatArray) -> float:
        """Return a bound on the left side of inequality (16), over the best that a server could do, by weak duality."""
        slopes_ki, prices_ki = self.get_slopes(amount_ki.sum(axis=0)), self.get_prices(multiplier_kr)
        with np.errstate(divide="ignore", invalid="ignore"):
            raised_k = np.where(self.usable_ki, slopes_ki / prices_ki, 0.0).max(axis=1)
            best_k = raised_k * multiplier_kr.sum(axis=1)
            gap_k = 1 - (slopes_ki * amount_ki).sum(axis=1) / best_k
        has_users_k = self.usable_ki.any(axis=1)
        return max(float(np.where(np.isfinite(gap_k), gap_k, 1.0)[has_users_k].max()), 0.0)

    def get_tasks(self, amount_ki: FloatArray) -> FloatArray:
        """Return tasks of the instance within capacities, shape (I, K); what exceeds them by rounding is taken off."""
        amount_ki = np.where(self.usable_ki, np.maximum(amount_ki, 0.0), 0.0)
        fullest_k = np.maximum(self.get_loads(amount_ki).max(axis=1, initial=0.0), 1.0)
        tasks_ik: FloatArray = (amount_ki / fullest_k[:, None] * self.unit_i * self.market.scale_i).T
        return tasks_ik

    def get_multipliers(self, multiplier_kr: FloatArray) -> FloatArray:
        """Return the multipliers of inequality (16) in the instance's units, shape (K, R)."""
        return multiplier_kr / self.factor_k[:, None]


def make_game(instance: Instance) -> Game:
    """Return the game of an instance. Raises RefusedTenantError for finite tasks."""
    for group in np.flatnonzero(np.isfinite(instance.limit_i))[:1].tolist():
        words = "the iterative solvers take no finite tasks; leave them out, or solve without --solver"
        raise RefusedTenantError(int(instance.rank_i[group]), "tasks", words)
    market = make_market(instance, instance.alpha_k, instance.log_linear_k)
    usable_ki = market.usable_ki
    gamma_ki = np.where(usable_ki, market.gain_ki, 1.0)
    weight_ki = np.where(usable_ki, market.weight_i, 0.0)
    fullest_k = market.get_loads(weight_ki).max(axis=1, initial=0.0)
    part_ki = np.divide(weight_ki, fullest_k[:, None], out=np.zeros_like(weight_ki), where=fullest_k[:, None] > 0)
    part_ki *= NEARLY_FULL
    plain = Game(
        market=market,
        gamma_ki=gamma_ki,
        demand_kri=np.zeros_like(market.load_kri),
        factor_k=np.ones(gamma_ki.shape[0]),
        unit_i=np.ones(gamma_ki.shape[1]),
        linear_k=np.exp(market.log_linear_k),
        start_ki=np.where(usable_ki, part_ki * gamma_ki, 0.0),
    )
    totals_i = plain.start_ki.sum(axis=0)
    relative_ki = plain.get_slopes(totals_i) * totals_i / market.weight_i
    factor_k = np.array(
        [1 / np.median(row[own]) if own.any() else 1.0 for row, own in zip(relative_ki, usable_ki, strict=True)]
    )
    unit_i = totals_i / part_ki.sum(axis=0)
    gamma_ki = np.where(usable_ki, gamma_ki / unit_i, 1.0)
    return Game(
        market=market,
        gamma_ki=gamma_ki,
        demand_kri=np.where(usable_ki[:, None, :], market.load_kri / gamma_ki[:, None, :], 0.0),
        factor_k=factor_k,
        unit_i=unit_i,
        linear_k=plain.linear_k,
        start_ki=plain.start_ki / unit_i,
    )
