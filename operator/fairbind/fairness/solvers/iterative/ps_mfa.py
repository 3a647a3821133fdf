"""PS-MFA: a projected gradient descent of the merit function that stays within the capacities.

Amounts move along the gradient, projected so that no full resource overflows and one with a multiplier stays full;
multipliers of full resources move along theirs. The step is as long as (51) to (53) allow, from a guess by Barzilai and
Borwein: it ends exactly where a resource becomes full or a multiplier 0.

Paper: Khamse-Ashari et al., section 5.1 (algorithm I, equations 44 to 53). The second term of (47) is what leads away
from points that are no solutions (lemma 4), and slows everything else down; it is taken where the rest has all but
vanished. Complexity of an iteration: O(I K R + K R^3). Their number has no bound: where a pair ends without tasks
next to a price that is nearly right, the gradient is as small as the cube of what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.iterative.game import Game, make_game
from fairbind.fairness.solvers.iterative.tolerances import (
    DESCENT_RESIDUAL,
    FIRST_STEP,
    FULL,
    LANDED,
    SHORTEST_STEP,
)
from fairbind.model.errors import SolverError

MOST_ITERATIONS = 20_000
LONGER, SHORTER = 4.0, 0.3  # than the step before, and than one that the merit does not fall with
ALL_BUT_VANISHED = 0.1  # of the second term of (47)
ACTIVE_SETS = 20  # tried for one projection; about as many as there are resources are enough


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """A point on the way: amounts, multipliers, which slots are full, the merit."""

    amount_ki: FloatArray
    multiplier_kr: FloatArray
    full_kr: BoolArray
    merit: float


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """Where to go from a point: of the amounts and of the multipliers, shapes (K, I) and (K, R)."""

    amount_ki: FloatArray
    multiplier_kr: FloatArray

    @property
    def square(self) -> float:
        """Return the squared length."""
        return float((self.amount_ki**2).sum() + (self.multiplier_kr**2).sum())

    def multiply(self, other: Direction) -> float:
        """Return the inner product."""
        return float((self.amount_ki * other.amount_ki).sum() + (self.multiplier_kr * other.multiplier_kr).sum())

    def subtract(self, other: Direction) -> Direction:
        """Return the difference."""
        return Direction(self.amount_ki - other.amount_ki, self.multiplier_kr - other.multiplier_kr)


def solve_ps_mfa(instance: Instance, *, residual: float = DESCENT_RESIDUAL, most: int = MOST_ITERATIONS) -> Solution:
    """Return the solution, with its report. residual: at which to stop. most: iterations.

    Raises SolverError if the residual is still larger then.
    """
    game = make_game(instance)
    none_kr = np.zeros(game.demand_kri.shape[:2])
    point = Descent(game.start_ki, none_kr, none_kr > 0, game.compute_merit(game.start_ki, none_kr))
    step, before, iterations = FIRST_STEP, None, 0
    reached = game.compute_residual(point.amount_ki, point.multiplier_kr)
    while reached > residual and iterations < most:
        iterations += 1
        direction = find_direction(game, point)
        if before is not None:
            step = _guess_step(step, before, (point, direction), is_odd=iterations % 2 == 1)
        following = _descend(game, point, direction, step)
        if following is None:
            break
        before, point = (point, direction), following
        reached = game.compute_residual(point.amount_ki, point.multiplier_kr)
    slackness = game.compute_slackness(point.amount_ki, point.multiplier_kr)
    if not slackness <= residual:
        raise SolverError(f"PS-MFA left {slackness:.2g} of what costs something free; it must be at most {residual:g}")
    report = {
        "iterations": iterations,
        "merit": point.merit,
        "residual": reached,
        "largestGap": game.compute_gap(point.amount_ki, point.multiplier_kr),
    }
    if not reached <= residual:
        why = f"ended at a point that is no solution after {iterations:,}" if iterations < most else f"did {most:,}"
        raise SolverError(
            f"PS-MFA {why} iterations with the residual {reached:.2g} and the merit {point.merit:.2g}; it must get to "
            f"{residual:g}"
        )
    values = {"multiplier_kr": game.get_multipliers(point.multiplier_kr)}
    return Solution(game.get_tasks(point.amount_ki), {"report": report, **values})


def compute_gradients(game: Game, amount_ki: FloatArray, multiplier_kr: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the gradients of the merit by amounts, (93), and by multipliers, (94), shapes (K, I) and (K, R)."""
    totals_i = amount_ki.sum(axis=0)
    excess_ki = game.get_prices(multiplier_kr) - game.get_slopes(totals_i)
    length_ki = np.hypot(amount_ki, excess_ki)
    failure_ki = np.where(game.usable_ki, length_ki - amount_ki - excess_ki, 0.0)
    length_ki = np.where(length_ki > 0, length_ki, 1.0)
    by_amount_ki = failure_ki * (amount_ki / length_ki - 1)
    by_excess_ki = failure_ki * (excess_ki / length_ki - 1)
    by_total_i = (by_excess_ki * game.get_bends(totals_i)).sum(axis=0)
    gradient_ki = np.where(game.usable_ki, by_amount_ki + by_total_i, 0.0)
    return gradient_ki, game.get_loads(by_excess_ki)


def find_direction(game: Game, point: Descent) -> Direction:
    """Return the direction of steps 1 and 2 of the algorithm: (46) to (48)."""
    gradient_ki, gradient_kr = compute_gradients(game, point.amount_ki, point.multiplier_kr)
    has_price_kr = point.multiplier_kr > 0
    amount_ki = -gradient_ki
    for k in np.flatnonzero(point.full_kr.any(axis=1)).tolist():
        users, full = np.flatnonzero(game.usable_ki[k]), np.flatnonzero(point.full_kr[k])
        demand_ri = game.demand_kri[k][np.ix_(full, users)]
        amount_ki[k, users] = project(amount_ki[k, users], demand_ri, has_price_kr[k, full])
    rise_kr = game.get_loads(amount_ki)
    leaves_kr = ~has_price_kr & (rise_kr < -FULL * np.abs(rise_kr).max())
    gradient_kr = np.where(leaves_kr, 0.0, gradient_kr)  # (40): what is not full has no multiplier
    overflow_kr = np.where(leaves_kr, 0.0, game.get_loads(-gradient_ki))  # beta of (45)
    extra_kr = np.where(point.full_kr & (overflow_kr * gradient_kr <= 0), overflow_kr, 0.0)
    plain = Direction(amount_ki, _keep_above_zero(-gradient_kr, point))
    extra = _keep_above_zero(extra_kr - gradient_kr, point)
    blended = Direction(amount_ki, extra)
    return blended if plain.square < ALL_BUT_VANISHED**2 * float((extra_kr**2).sum()) else plain


def _keep_above_zero(change_kr: FloatArray, point: Descent) -> FloatArray:
    """Return the changes of multipliers of full slots; those at 0 only rise (48)."""
    rising_kr = np.where(point.multiplier_kr > 0, change_kr, np.maximum(change_kr, 0.0))
    return np.where(point.full_kr, rising_kr, 0.0)


def project(vector_n: FloatArray, demand_rn: FloatArray, is_kept_r: BoolArray) -> FloatArray:
    """Return the nearest vector v with demand @ v = 0 in the rows that are kept, and <= 0 in the others.

    >>> project(np.array([1.0, 1.0]), np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([False, False])).tolist()
    [0.0, 1.0]
    """
    scale = float(np.abs(demand_rn).max()) * float(np.abs(vector_n).max(initial=0.0))
    active_r = is_kept_r | (demand_rn @ vector_n > 0)
    projected_n = vector_n
    for _ in range(ACTIVE_SETS):
        force_r = np.zeros(active_r.size)
        rows = demand_rn[active_r]
        if rows.size:
            force_r[active_r] = np.linalg.lstsq(rows @ rows.T, rows @ vector_n, rcond=None)[0]
        projected_n = vector_n - force_r @ demand_rn
        pulls_r = active_r & ~is_kept_r & (force_r < -FULL * np.abs(force_r).max(initial=0.0))
        breaks_r = ~active_r & (demand_rn @ projected_n > FULL * scale)
        active_r = active_r.copy()
        if pulls_r.any():
            active_r[np.where(pulls_r, force_r, np.inf).argmin()] = False
        elif breaks_r.any():
            active_r[np.where(breaks_r, demand_rn @ projected_n, -np.inf).argmax()] = True
        else:
            break
    return projected_n


def _guess_step(
    step: float, before: tuple[Descent, Direction], now: tuple[Descent, Direction], *, is_odd: bool
) -> float:
    """Return the step of Barzilai and Borwein, the long and the short one in turn."""
    (point, direction), (following, turned) = before, now
    moved = Direction(following.amount_ki - point.amount_ki, following.multiplier_kr - point.multiplier_kr)
    bent = direction.subtract(turned)
    product = moved.multiply(bent)
    if product <= 0:
        return step * LONGER
    return moved.square / product if is_odd else product / bent.square


def _descend(game: Game, point: Descent, direction: Direction, step: float) -> Descent | None:
    """Return the next point (steps 3 and 4); None if no step is short enough for the merit to fall."""
    loads_kr, rise_kr = game.get_loads(point.amount_ki), game.get_loads(direction.amount_ki)
    fills_kr = game.market.is_slot_kr & ~point.full_kr & (rise_kr > 0)
    fall_kr = -direction.multiplier_kr
    empties_kr = point.full_kr & (fall_kr > 0)
    until_full_kr = np.divide(1 - loads_kr, rise_kr, out=np.full_like(rise_kr, np.inf), where=fills_kr)
    until_zero_kr = np.divide(point.multiplier_kr, fall_kr, out=np.full_like(fall_kr, np.inf), where=empties_kr)
    length = min(step, float(until_full_kr.min()), float(until_zero_kr.min()))
    while length > SHORTEST_STEP:
        amount_ki = point.amount_ki + length * direction.amount_ki
        multiplier_kr = point.multiplier_kr + length * direction.multiplier_kr
        if game.compute_merit(amount_ki, multiplier_kr) < point.merit:
            break
        length *= SHORTER
    else:
        return None
    leaves_kr = point.full_kr & (point.multiplier_kr <= 0) & (rise_kr < -FULL * np.abs(rise_kr).max())
    free_kr = 1 - game.get_loads(amount_ki)
    is_full_kr = (point.full_kr & ~leaves_kr) | (until_full_kr <= length * (1 + LANDED))
    is_full_kr |= game.market.is_slot_kr & ~leaves_kr & (free_kr <= FULL)
    is_zero_kr = ~is_full_kr | (until_zero_kr <= length * (1 + LANDED))
    multiplier_kr = np.where(is_zero_kr, 0.0, np.maximum(multiplier_kr, 0.0))
    return Descent(amount_ki, multiplier_kr, is_full_kr, game.compute_merit(amount_ki, multiplier_kr))
