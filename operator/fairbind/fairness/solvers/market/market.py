"""A market in which tenants with budgets buy parts of servers: what several mechanisms come down to.

Tenant i has the budget w_i and gets gain_ki tasks for the whole of server k. A part f_ki of k loads the server's slot r
(a resource, or its time) by f_ki * load_kri; no slot takes more than 1. Each slot has a price, and a tenant who wants a
whole server pays the norm of the prices weighted with its load, (sum over r of load_kri * price_kr ** p) ** (1 / p)
with the server's own exponent p. In an equilibrium no tenant buys where tasks are dearer than elsewhere, each spends
its budget or has all its tasks, and slots that are not full cost nothing.

With p = 1 this is the market of Eisenberg and Gale, and the equilibrium maximises the sum of w_i log(tasks of i). With
p = alpha it is alpha-PF-VDS (Khamse-Ashari et al., section 3.2): take the p-th power of the prices for multipliers.

A server may add b times the plain cost to that: then the unit of prices is not free, and what a whole server costs is
``utility``'s mean of the prices (inequality 16 with the utilities of equation 22).

With p < 1 prices differ by more than numbers hold: as loads do, to the power 1 / p. So everything of such a server that
is a price, a cost or a worth is kept as its p-th power (its root): ``min(p, 1)`` is the power for all servers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.utility import Utility, make_utility


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """What is for sale and who buys. K servers, R slots of each, I tenants.

    gain_ki: tasks for a whole server, each tenant's divided by their sum (scale_i), 0 where it may not buy.
    limit_i: the most that i wants, in the same unit; inf allowed. load_kri: 0..1, shape (K, R, I).
    exponent_k: p. log_linear_k: log b, -inf for none. weight_i: budgets, > 0, they sum to 1. elsewhere_i: what they
    have beside what they buy here.
    """

    weight_i: FloatArray
    limit_i: FloatArray
    gain_ki: FloatArray
    load_kri: FloatArray
    exponent_k: FloatArray
    log_linear_k: FloatArray
    scale_i: FloatArray
    elsewhere_i: FloatArray

    @property
    def usable_ki(self) -> BoolArray:
        """Who may buy of what."""
        return np.asarray(self.gain_ki > 0)

    @property
    def root_k(self) -> FloatArray:
        """The power to which prices, costs and worths of a server are kept: min(p, 1)."""
        return np.minimum(self.exponent_k, 1.0)

    @property
    def norm_k(self) -> FloatArray:
        """The power to which its prices, as they are kept, are its multipliers: max(p, 1)."""
        return np.maximum(self.exponent_k, 1.0)

    @property
    def has_linear(self) -> bool:
        """Tell whether some server adds a linear term."""
        return bool((self.log_linear_k > -np.inf).any())

    def get_utility(self, unit_k: FloatArray) -> Utility:
        """Return how multipliers follow from prices, both in units of these prices and their multipliers, (K,)."""
        return make_utility(self.norm_k, 1 / self.root_k, self.log_linear_k, unit_k)

    @property
    def worth_power(self) -> float:
        """The power to which the worth of a task is kept, for all servers: the largest root."""
        return float(self.root_k.max())

    @property
    def is_slot_kr(self) -> BoolArray:
        """Slots that some tenant loads; the others do not exist."""
        return np.asarray((self.load_kri > 0).any(axis=2))

    def get_gains(self, part_ki: FloatArray) -> FloatArray:
        """Return what each tenant gets here, in the unit of the limits, shape (I,)."""
        gains_i: FloatArray = (self.gain_ki * part_ki).sum(axis=0)
        return gains_i

    def get_totals(self, part_ki: FloatArray) -> FloatArray:
        """Return each tenant's total with what it has elsewhere, in the unit of the limits, shape (I,)."""
        return self.get_gains(part_ki) + self.elsewhere_i

    def get_worths(self, totals_i: FloatArray) -> FloatArray:
        """Return the worth of a task to each tenant at these totals, to the power ``worth_power``, shape (I,)."""
        worths_i: FloatArray = (self.weight_i / totals_i) ** self.worth_power
        return worths_i

    def get_loads(self, part_ki: FloatArray) -> FloatArray:
        """Return how full the slots are, shape (K, R)."""
        loads_kr: FloatArray = (self.load_kri @ part_ki[:, :, None])[:, :, 0]
        return loads_kr

    def get_tasks(self, part_ki: FloatArray) -> FloatArray:
        """Return tasks of the instance, shape (I, K)."""
        tasks_ik: FloatArray = (self.gain_ki * part_ki * self.scale_i).T
        return tasks_ik


def make_market(instance: Instance, exponent_k: FloatArray, log_linear_k: FloatArray | None = None) -> Market:
    """Return the market of an instance: slots are resources, on non-divisible servers the time (slot 0).

    log_linear_k: None for no linear terms.
    """
    gain_ki = instance.gamma_ik.T
    scale_i = gain_ki.sum(axis=0)
    per_capacity_kr = np.divide(
        1.0, instance.capacity_kr, out=np.zeros_like(instance.capacity_kr), where=instance.capacity_kr > 0
    )
    load_kri = gain_ki[:, None, :] * instance.demand_ir.T[None] * per_capacity_kr[:, :, None]
    whole = ~instance.divisible_k
    load_kri[whole] = 0.0
    load_kri[whole, 0] = gain_ki[whole] > 0
    return Market(
        weight_i=instance.weight_i,
        limit_i=instance.limit_i / scale_i,
        gain_ki=gain_ki / scale_i,
        load_kri=np.minimum(load_kri, 1.0),
        exponent_k=exponent_k,
        log_linear_k=np.full(exponent_k.shape, -np.inf) if log_linear_k is None else log_linear_k,
        scale_i=scale_i,
        elsewhere_i=np.zeros_like(scale_i),
    )


def compute_costs(market: Market, price_kr: FloatArray) -> FloatArray:
    """Return what a whole server costs each tenant, shape (K, I)."""
    if (market.exponent_k <= 1).all() and not market.has_linear:
        plain_ki: FloatArray = (price_kr[:, None, :] @ market.load_kri)[:, 0]
        return plain_ki
    highest_k, sum_ki = sum_powers(market, price_kr)
    if market.has_linear:
        blended_ki: FloatArray = highest_k * market.get_utility(highest_k[:, 0]).find_prices(sum_ki)
        return blended_ki
    costs_ki: FloatArray = highest_k * sum_ki ** (1 / market.norm_k[:, None])
    return costs_ki


def sum_powers(market: Market, price_kr: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each server's highest price, (K, 1), and multipliers of whole servers, that price's being 1, (K, I)."""
    highest_k = np.maximum(price_kr.max(axis=1), np.finfo(float).tiny)[:, None]
    multiplier_kr = market.get_utility(highest_k[:, 0]).find_multipliers(price_kr / highest_k)
    sum_ki: FloatArray = (multiplier_kr[:, None, :] @ market.load_kri)[:, 0]
    return highest_k, sum_ki


def compute_worths(market: Market, totals_i: FloatArray) -> FloatArray:
    """Return what a whole server is worth to each tenant who has so much, shape (K, I)."""
    worth_ki: FloatArray = (market.gain_ki * (market.weight_i / totals_i)) ** market.root_k[:, None]
    return worth_ki


def compute_mismatches(market: Market, part_ki: FloatArray, price_kr: FloatArray, tolerance: float) -> FloatArray:
    """Return how far worth and cost are apart, as a part of the worth, where they must not be, shape (K, I).

    No server may cost a tenant less than its worth (except tenants with all their tasks, to within tolerance), and no
    tenant may have a part that costs more. Worth and cost are the real ones here, of which roots are kept.
    """
    totals_i = market.get_totals(part_ki)
    worth_ki = compute_worths(market, totals_i)
    ratio_ki = np.divide(compute_costs(market, price_kr), worth_ki, out=np.ones_like(worth_ki), where=market.usable_ki)
    with np.errstate(over="ignore"):  # too dear by more than numbers hold
        ratio_ki **= 1 / market.root_k[:, None]
    may_want_i = totals_i < market.limit_i * (1 - tolerance)
    return np.maximum(np.where(may_want_i, 1 - ratio_ki, 0.0), np.where(part_ki > 0, ratio_ki - 1, 0.0))


def compute_charges(market: Market, part_ki: FloatArray, price_kr: FloatArray) -> FloatArray:
    """Return what is asked for the capacity that slots have left, which must be nothing, shape (K, R).

    The part that is left, times the slot's multiplier, of the server's highest one.
    """
    highest_k = np.maximum(price_kr.max(axis=1, keepdims=True), np.finfo(float).tiny)
    left_kr = np.maximum(1 - market.get_loads(part_ki), 0.0)
    charges_kr: FloatArray = market.get_utility(highest_k[:, 0]).find_multipliers(price_kr / highest_k) * left_kr
    return charges_kr


def sum_others(value_ki: FloatArray) -> FloatArray:
    """Return, for each server and tenant, the sum over the other servers. Values are >= 0; none is lost to rounding.

    >>> sum_others(np.array([[1e20, 1.0], [3.0, 2.0]])).tolist()
    [[3.0, 2.0], [1e+20, 1.0]]
    """
    largest_i, tenants = value_ki.argmax(axis=0), np.arange(value_ki.shape[1])
    rest_ki = value_ki.copy()
    rest_ki[largest_i, tenants] = 0.0
    others_ki: FloatArray = value_ki.sum(axis=0) - value_ki
    others_ki[largest_i, tenants] = rest_ki.sum(axis=0)
    return others_ki


def with_loads(market: Market, load_kri: FloatArray) -> Market:
    """Return the market with other loads, at plain prices (p = 1)."""
    return replace(
        market,
        load_kri=load_kri,
        exponent_k=np.ones_like(market.exponent_k),
        log_linear_k=np.full_like(market.exponent_k, -np.inf),
    )
