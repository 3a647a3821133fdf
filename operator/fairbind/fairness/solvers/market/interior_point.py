"""Equilibria of a `Market` by an interior-point method: all conditions at once, loosened, and tightened step by step.

Every condition of the equilibrium is a pair of which at least one must be 0: the part that i buys of k and how much too
dear k is for i; a slot's free capacity and its price; what i still lacks to its limit and how much it could pay beyond
it. The method keeps all of them positive and drives all products down together, by Newton steps with Mehrotra's
predictor. A task's worth to i is an unknown of its own, worth x tasks = budget one more product: so with p = 1 all else
is linear.

A step solves for the prices only: a tenant's own unknowns couple by a diagonal and one product (everything it buys
makes its budget go further), so each is eliminated by the Sherman-Morrison formula, and one dense system of K R
unknowns is left. Complexity of a step: O(I K^2 R^2 + K^3 R^3); 10 to 40 steps, however many tenants.

With p = 1 the problem is convex and the method always succeeds; otherwise it need not, and the caller must look at
`Equilibrium.gap`.

Where exponents are p < 1, the worth of a task is kept as its p-th power too, as the costs are (see `market`), so that
those conditions stay linear. Where they differ, the worths are kept to the largest of these powers, and so are costs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.market import Market, compute_costs, sum_others, sum_powers
from fairbind.fairness.solvers.market.tolerances import (
    DUALITY_GAP,
    SHORTEST_STEP,
    SMALLEST_START_PART,
    START_COMPLEMENTARITY,
    START_IMBALANCE,
    UNEVEN_PRODUCT,
)

BACK_OFF = 0.995  # how far a step goes towards the first value that would become 0
SHORT = 0.2  # a step below it goes towards the middle instead
STALL = 12  # steps without progress before giving up
HIGHEST_STEPS = 300
NEAR_STEPS = 14  # enough from a start that is any good
CAREFUL_BACK_OFF, CAREFUL_STALL = 0.7, 40  # the same for steps with a centring that the caller chose
# Powers and quotients of a step that goes astray may be no numbers: the caller sees it from the outcome.
QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")
SOLUTIONS = 2  # of the linear system: the second one is for what the first one lost to rounding


class StepBudget:
    """How many more Newton steps one problem may cost in all. Mutable; when it is spent, the best so far is returned.

    >>> budget = StepBudget(1)
    >>> budget.take(), budget.take(), budget.is_spent
    (True, False, True)
    """

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def is_spent(self) -> bool:
        """Whether no step is left."""
        return self.left <= 0

    def take(self) -> bool:
        """Take a step off, if there is one; return whether there was."""
        if self.is_spent:
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Equilibrium:
    """A (nearly) balanced market.

    part_ki: parts of servers bought; price_kr: prices of slots, for `market.compute_costs`. relief_i: by how much the
    worth of one more task is above what a task costs the tenant (only at its limit), both to the power
    `market.worth_power`. gap: what is still unbalanced, as a part of all budgets. steps: how many it took.
    """

    part_ki: FloatArray
    price_kr: FloatArray
    relief_i: FloatArray
    gap: float
    steps: int


_Products = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """All unknowns: pairs (part, surplus), (price, slack), (relief, slack_i). Those that do not exist are (0, 1).

    worth_i and relief_i are of tasks, surplus_ki is between costs and worths of whole servers, all to the power
    `market.worth_power`.
    """

    part_ki: FloatArray
    price_kr: FloatArray
    worth_i: FloatArray
    relief_i: FloatArray
    surplus_ki: FloatArray
    slack_kr: FloatArray
    slack_i: FloatArray

    def moved(self, step: Point, length: float) -> Point:
        """Return the point so much of the step further."""
        return Point(*(getattr(self, f.name) + length * getattr(step, f.name) for f in fields(self)))

    def products(self) -> _Products:
        """Return the products of the pairs."""
        return self.part_ki * self.surplus_ki, self.price_kr * self.slack_kr, self.relief_i * self.slack_i

    def longest(self, step: Point) -> float:
        """Return the length of the step at which the first value becomes 0."""
        length = np.inf
        for f in fields(self):
            value, change = getattr(self, f.name), getattr(step, f.name)
            falls = change < 0
            length = min(length, float((value[falls] / -change[falls]).min(initial=np.inf)))
        return length


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """By how much the equations (not the products) fail, and their sum in money."""

    cost_ki: FloatArray
    load_kr: FloatArray
    limit_i: FloatArray
    budget_i: FloatArray
    money: float


class Newton:
    """The linear system at one point, for several right-hand sides.

    For one tenant it is diag(surplus / part) + curvature gain gain^T. Where it buys, surplus / part is next to 0, so
    its inverse is a difference of two large numbers; `_solve_tenants` and the matrix take it apart before it rounds.
    """

    def __init__(self, system: System, point: Point, residual: Residual) -> None:
        market = system.market
        self.system, self.point, self.residual = system, point, residual
        servers, slots, tenants = market.load_kri.shape
        self.ease_ki = point.part_ki / (point.surplus_ki * system.unit_ki)
        self.gain_ease_ki = market.gain_ki * self.ease_ki
        pull_ki = market.gain_ki * self.gain_ease_ki
        self.main_i = pull_ki.argmax(axis=0)
        self.tenants = np.arange(tenants)
        self.totals_i = market.get_totals(point.part_ki)
        self.curvature_i = market.worth_power * point.worth_i / self.totals_i
        self.flatness_i = 1 / (self.curvature_i + point.relief_i / point.slack_i)
        self.pull_i = pull_ki.sum(axis=0)
        self.pivot_i = self.flatness_i + self.pull_i
        others_ki = self.flatness_i + sum_others(pull_ki)

        self.per_price_kri = system.get_cost_slopes(point.price_kr) * system.unit_ki[:, None]
        loads = (market.load_kri * self.gain_ease_ki[:, None, :]).reshape(servers * slots, -1)
        slopes = (self.per_price_kri * self.gain_ease_ki[:, None, :]).reshape(servers * slots, -1)
        matrix = -(loads / self.pivot_i) @ slopes.T
        own_ki = self.ease_ki * (others_ki / self.pivot_i)
        each = np.arange(servers)
        matrix.reshape(servers, slots, servers, slots)[each, :, each, :] = (
            market.load_kri * own_ki[:, None, :]
        ) @ self.per_price_kri.transpose(0, 2, 1)
        matrix[np.diag_indices_from(matrix)] += self._over_price(point.slack_kr, 1.0).ravel()
        self.scale = 1 / np.sqrt(np.abs(np.diagonal(matrix)))
        self.matrix = matrix * self.scale[:, None] * self.scale

    def _over_price(self, value_kr: FloatArray, otherwise: float) -> FloatArray:
        """Divide by the prices; where there is no slot, `otherwise`."""
        return np.divide(value_kr, self.point.price_kr, out=np.full_like(value_kr, otherwise), where=self.system.slots)

    def _solve_tenants(self, right_ki: FloatArray, along_i: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Solve each tenant's system for right + along * gain; return the parts and what they make together, (I,).

        What the main server's row says is a multiple of gain, solved by hand. A tenant at its limit has an `along` that
        is large beside what it may still change, so that must not be added to anything, and the changes of its parts
        cancel, so their sum must not be taken.
        """
        gain_ki = self.system.market.gain_ki
        base_i = right_ki[self.main_i, self.tenants] / gain_ki[self.main_i, self.tenants]
        rest_ki = right_ki - gain_ki * base_i
        rest_ki[self.main_i, self.tenants] = 0.0
        pull_i = (self.gain_ease_ki * rest_ki).sum(axis=0)
        step_i = self.flatness_i / self.pivot_i * (base_i + along_i)
        solved_ki: FloatArray = self.ease_ki * (rest_ki - gain_ki * (pull_i / self.pivot_i))
        solved_ki += self.gain_ease_ki * step_i
        return solved_ki, step_i * self.pull_i + self.flatness_i * (pull_i / self.pivot_i)

    def find_step(self, products: _Products, budget_i: FloatArray) -> Point:
        """Return the step that changes the products by these amounts, to first order, and the residuals to 0."""
        product_ki, product_kr, product_i = products
        system, point, residual, market = self.system, self.point, self.residual, self.system.market
        wanted_i = (product_i - point.relief_i * residual.limit_i) / point.slack_i - budget_i / self.totals_i
        right_ki = (product_ki * system.inverse(point.part_ki) - residual.cost_ki) * system.unit_ki
        right_ki[~system.pairs] = 0.0
        part_ki, totals_i = self._solve_tenants(right_ki, -wanted_i)
        price_kr = np.zeros_like(product_kr)
        wanted_kr = self._over_price(product_kr, 0.0) - residual.load_kr
        stiff_kr = self._over_price(point.slack_kr, 1.0)
        for _ in range(SOLUTIONS):
            right = (wanted_kr + market.get_loads(part_ki) - stiff_kr * price_kr).ravel()
            change_kr = (np.linalg.solve(self.matrix, right * self.scale) * self.scale).reshape(price_kr.shape)
            price_kr += change_kr
            more_ki, more_i = self._solve_tenants(-(change_kr[:, None, :] @ self.per_price_kri)[:, 0], 0.0)
            part_ki += more_ki
            totals_i += more_i
        slack_i = np.where(system.has_limit_i, residual.limit_i - totals_i, 0.0)
        return Point(
            part_ki=part_ki,
            price_kr=price_kr,
            worth_i=budget_i / self.totals_i - self.curvature_i * totals_i,
            relief_i=np.where(system.has_limit_i, (product_i - point.relief_i * slack_i) / point.slack_i, 0.0),
            surplus_ki=(product_ki - point.surplus_ki * part_ki) * system.inverse(point.part_ki),
            slack_kr=np.where(system.slots, self._over_price(product_kr, 0.0) - stiff_kr * price_kr, 0.0),
            slack_i=slack_i,
        )


class System:
    """The market's equations."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.pairs: BoolArray = market.usable_ki
        self.slots: BoolArray = market.is_slot_kr
        self.has_limit_i: BoolArray = np.isfinite(market.limit_i)
        self.limit_i = np.where(self.has_limit_i, market.limit_i, 1.0)
        self.relative_k = market.worth_power / market.root_k
        self.is_linear = bool((market.norm_k * self.relative_k == 1).all()) and not market.has_linear
        self.worth_ki = market.gain_ki**market.worth_power  # of a whole server, for a task's worth of 1
        # Costs in these units depend on a task's worth as totals do on parts: by the gains.
        self.unit_ki = np.where(self.pairs, market.gain_ki, 1.0) ** (1 - market.worth_power)
        weight_i = market.weight_i
        worth_k = (weight_i * market.gain_ki).sum(axis=1)
        # How much of all products each pair may have: its part of the budgets.
        self.aim_ki = np.where(self.pairs, weight_i / np.maximum(self.pairs.sum(axis=0), 1), 0.0)
        self.aim_kr = np.where(self.slots, (worth_k / np.maximum(self.slots.sum(axis=1), 1))[:, None], 0.0)
        self.aim_i = np.where(self.has_limit_i, weight_i, 0.0)
        self.aim = float(self.aim_ki.sum() + self.aim_kr.sum() + self.aim_i.sum())

    @property
    def aims(self) -> _Products:
        """What each pair's product may be, as a part of all: for servers, slots and limits."""
        return self.aim_ki, self.aim_kr, self.aim_i

    def inverse(self, part_ki: FloatArray) -> FloatArray:
        """Return 1 / part, 0 where there is none."""
        return _invert(part_ki, self.pairs)

    def get_costs(self, price_kr: FloatArray) -> FloatArray:
        """Return what a whole server costs each tenant, shape (K, I)."""
        costs_ki = compute_costs(self.market, price_kr)
        return costs_ki if self.is_linear else costs_ki ** self.relative_k[:, None]

    def get_cost_slopes(self, price_kr: FloatArray) -> FloatArray:
        """Return d cost_ki / d price_kr, shape (K, R, I)."""
        market = self.market
        if self.is_linear:
            return market.load_kri
        norm_k, relative_k = market.norm_k[:, None], self.relative_k[:, None]
        highest_k, sum_ki = sum_powers(market, price_kr)
        if market.has_linear:
            utility = market.get_utility(highest_k[:, 0])
            cost_ki = np.where(sum_ki > 0, utility.find_prices(sum_ki), 1.0)
            own_kr = np.where(self.slots, utility.find_slopes(price_kr / highest_k), 0.0)
            scale_ki = relative_k * (highest_k * cost_ki) ** (relative_k - 1) / utility.find_slopes(cost_ki)
            blended_kri: FloatArray = market.load_kri * own_kr[:, :, None] * scale_ki[:, None]
            return blended_kri
        outer_ki = np.where(sum_ki > 0, sum_ki, 1.0) ** (relative_k / norm_k - 1) * highest_k ** (relative_k - 1)
        outer_ki *= relative_k
        slopes_kri: FloatArray = (
            market.load_kri * ((price_kr / highest_k) ** (norm_k - 1))[:, :, None] * outer_ki[:, None]
        )
        return slopes_kri

    def get_residual(self, point: Point) -> Residual:
        """Return by how much the equations fail at the point."""
        market = self.market
        totals_i = market.get_totals(point.part_ki)
        net_i = point.worth_i - point.relief_i
        cost_ki = self.get_costs(point.price_kr) - self.worth_ki * net_i - point.surplus_ki
        cost_ki = np.where(self.pairs, cost_ki, 0.0)
        load_kr = np.where(self.slots, 1 - market.get_loads(point.part_ki) - point.slack_kr, 0.0)
        limit_i = np.where(self.has_limit_i, self.limit_i - totals_i - point.slack_i, 0.0)
        budget_i = self.get_budgets(point.worth_i, totals_i)
        money = np.abs(point.part_ki * cost_ki).sum() + np.abs(point.price_kr * load_kr).sum()
        money += np.abs(point.relief_i * limit_i).sum() + np.abs(budget_i).sum()
        return Residual(cost_ki, load_kr, limit_i, budget_i, float(money))

    def get_budgets(self, worth_i: FloatArray, totals_i: FloatArray) -> FloatArray:
        """Return what is left of the budgets: what is missing in the worths, times the totals."""
        budget_i: FloatArray = totals_i * (self.market.get_worths(totals_i) - worth_i)
        return budget_i

    def get_start(self) -> Point:
        """Each tenant has half of an even split, or half of its limit; prices exceed what any tenant would pay."""
        market = self.market
        weight_ki = np.where(self.pairs, market.weight_i, 0.0)
        part_ki = 0.5 * weight_ki / np.maximum(weight_ki.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        # Where a whole server of some tenant is more than its slot, an even split is, too: half of the slot is used.
        part_ki /= np.maximum(2 * market.get_loads(part_ki).max(axis=1), 1.0)[:, None]
        wanted_i = 0.5 * (self.limit_i - market.elsewhere_i)
        part_ki *= np.where(self.has_limit_i, np.minimum(1.0, wanted_i / market.get_gains(part_ki)), 1.0)
        totals_i = market.get_totals(part_ki)
        worth_i = market.get_worths(totals_i)
        relief_i = np.where(self.has_limit_i, 0.1 * worth_i, 0.0)
        high_k = (2 * market.gain_ki * (market.weight_i / totals_i)).max(axis=1)[:, None]
        price_kr = np.where(self.slots, high_k ** market.root_k[:, None], 0.0)
        surplus_ki = self.get_costs(price_kr) - self.worth_ki * (worth_i - relief_i)
        surplus_ki = np.maximum(surplus_ki, 0.1 * high_k**market.worth_power)
        return Point(
            part_ki=part_ki,
            price_kr=price_kr,
            worth_i=worth_i,
            relief_i=relief_i,
            surplus_ki=np.where(self.pairs, surplus_ki, 1.0),
            slack_kr=np.where(self.slots, 1 - market.get_loads(part_ki), 1.0),
            slack_i=np.where(self.has_limit_i, self.limit_i - totals_i, 1.0),
        )

    def get_start_near(self, part_ki: FloatArray, price_kr: FloatArray) -> Point:
        """Return a point near given parts and prices, none of whose pairs is too uneven."""
        market, weight_i = self.market, self.market.weight_i
        whole_ki = np.divide(weight_i, market.gain_ki, out=np.zeros_like(part_ki), where=self.pairs)
        part_ki = np.where(self.pairs, np.maximum(part_ki, SMALLEST_START_PART * whole_ki), 0.0)
        worth_i = market.get_worths(market.get_totals(part_ki))
        price_kr = np.where(self.slots, np.maximum(price_kr, START_COMPLEMENTARITY * self.aim_kr), 0.0)
        cost_ki = self.get_costs(price_kr)
        relief_i = np.maximum(worth_i - self.get_prices(cost_ki).min(axis=0), START_COMPLEMENTARITY * worth_i)
        surplus_ki = cost_ki - self.worth_ki * (worth_i - np.where(self.has_limit_i, relief_i, 0.0))
        surplus_ki = np.maximum(surplus_ki, START_COMPLEMENTARITY * cost_ki)
        part_ki = np.maximum(part_ki, START_COMPLEMENTARITY * self.aim_ki * _invert(surplus_ki, self.pairs))
        totals_i = market.get_totals(part_ki)
        slack_i = np.maximum(self.limit_i - totals_i, START_COMPLEMENTARITY * weight_i / relief_i)
        return Point(
            part_ki=part_ki,
            price_kr=price_kr,
            worth_i=market.get_worths(totals_i),
            relief_i=np.where(self.has_limit_i, START_COMPLEMENTARITY * weight_i / slack_i, 0.0),
            surplus_ki=np.where(self.pairs, START_COMPLEMENTARITY * self.aim_ki * self.inverse(part_ki), 1.0),
            slack_kr=np.where(
                self.slots, START_COMPLEMENTARITY * self.aim_kr / np.where(self.slots, price_kr, 1.0), 1.0
            ),
            slack_i=np.where(self.has_limit_i, slack_i, 1.0),
        )

    def get_prices(self, cost_ki: FloatArray) -> FloatArray:
        """Return what a task costs if a server costs so much; inf where it cannot be had."""
        return np.divide(cost_ki, self.worth_ki, out=np.full_like(cost_ki, np.inf), where=self.pairs)


def _invert(values: FloatArray, where: BoolArray) -> FloatArray:
    """Return 1 / values, 0 elsewhere."""
    inverse: FloatArray = np.divide(1.0, values, out=np.zeros_like(values), where=where)
    return inverse


@QUIET
def find_equilibrium(
    market: Market,
    *,
    gap: float = DUALITY_GAP,
    near: tuple[FloatArray, FloatArray] | None = None,
    centring: float | None = None,
    budget: StepBudget | None = None,
) -> Equilibrium:
    """Return the equilibrium, or how far the method came: `gap` says how near it is.

    gap: when to stop, as a part of all budgets. near: parts and prices of a similar market, to begin there; if it is
    none, that shows at once. centring: aim at that part of the present products in each step, instead of at what a
    predictor promises; the nearer to 1, the more steps, and the less a large exponent can lead astray. budget: of steps
    that this search shares with others; without one only HIGHEST_STEPS counts.
    """
    system = System(market)
    stall = STALL if centring is None else CAREFUL_STALL
    point = system.get_start() if near is None else system.get_start_near(*near)
    best, best_gap, best_step, step_number = point, np.inf, 0, 0
    for step_number in range(HIGHEST_STEPS if near is None else NEAR_STEPS):
        residual = system.get_residual(point)
        products = point.products()
        present = sum(float(product.sum()) for product in products) / system.aim
        shares = (product / np.where(aim > 0, aim, 1.0) for product, aim in zip(products, system.aims, strict=True))
        worst = max(float(share.max()) for share in shares)
        reached = max(present, 1e-3 * worst, residual.money)
        if reached < best_gap:
            best, best_gap, best_step = point, reached, step_number
        is_far = near is not None and residual.money > START_IMBALANCE
        if not np.isfinite(reached) or reached <= gap or step_number - best_step > stall or is_far:
            break
        if budget is not None and not budget.take():
            break
        try:
            if centring is None:
                point = _take_step(system, point, residual, present, worst)
            else:
                point = _take_careful_step(system, point, residual, centring * present)
        except np.linalg.LinAlgError:
            break
    return _round_off(system, best, best_gap, step_number)


def _round_off(system: System, point: Point, gap: float, steps: int) -> Equilibrium:
    """Return the equilibrium: of each pair that must have a 0, the smaller one (in its own unit) is set to 0."""
    market = system.market
    cost_ki = system.get_costs(point.price_kr)
    spent_ki = point.part_ki * market.gain_ki ** (1 - market.worth_power) * cost_ki**2
    is_served_ki = spent_ki > point.surplus_ki * (market.get_totals(point.part_ki) * point.worth_i)
    part_ki = np.where(is_served_ki, point.part_ki, 0.0)
    is_lost_i = ~(part_ki > 0).any(axis=0)
    part_ki[:, is_lost_i] = point.part_ki[:, is_lost_i]
    price_kr = np.where(point.price_kr > point.slack_kr * system.aim_kr, point.price_kr, 0.0)
    return Equilibrium(part_ki, price_kr, point.relief_i, gap, steps)


def _take_step(system: System, point: Point, residual: Residual, present: float, worst: float) -> Point:
    """Return the next point: a predictor towards 0, then a corrected step towards a part of the present products."""
    newton = Newton(system, point, residual)
    nothing = _sum_products(system, 0.0, point)
    probe = newton.find_step(nothing, residual.budget_i)
    length = min(1.0, point.longest(probe))
    after = sum(float(product.sum()) for product in point.moved(probe, length).products()) / system.aim
    centring = min(max((max(after, 0.0) / present) ** 3, 1e-6), 0.9)
    if worst > UNEVEN_PRODUCT * present:
        centring = max(centring, 0.3)
    curved_i = system.market.worth_power * probe.worth_i * system.market.get_gains(probe.part_ki)
    step = newton.find_step(_sum_products(system, centring * present, point, probe), residual.budget_i - curved_i)
    longest = point.longest(step)
    if longest < SHORT:
        step = newton.find_step(_sum_products(system, 0.5 * present, point), residual.budget_i)
        longest = point.longest(step)
    return _move(system, point, step, min(1.0, BACK_OFF * longest), residual, present)


def _take_careful_step(system: System, point: Point, residual: Residual, level: float) -> Point:
    """Return the next point, by a step towards that level of the products that stays well inside.

    Costs are not linear in the prices when exponents are not 1, and long steps then lose what they promised.
    """
    step = Newton(system, point, residual).find_step(_sum_products(system, level, point), residual.budget_i)
    return _move(system, point, step, min(1.0, CAREFUL_BACK_OFF * point.longest(step)), residual, level)


def _move(system: System, point: Point, step: Point, length: float, residual: Residual, level: float) -> Point:
    """Return the point so much of the step further, or less, if the equations would fail much more there."""
    allowed = 5 * level * system.aim
    while length > SHORTEST_STEP:
        moved = point.moved(step, length)
        if system.get_residual(moved).money <= max((1 - 0.1 * length) * residual.money, allowed):
            return moved
        length *= 0.6
    return point.moved(step, length)


def _sum_products(system: System, level: float, *taken: Point) -> _Products:
    """Return level times the aims, less the products of the points."""
    ki, kr, i = (level * aim for aim in system.aims)
    for point in taken:
        less_ki, less_kr, less_i = point.products()
        ki, kr, i = ki - less_ki, kr - less_kr, i - less_i
    return ki, kr, i
