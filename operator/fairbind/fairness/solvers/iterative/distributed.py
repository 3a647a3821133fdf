"""The distributed form of alpha-PF-VDS: each server moves its own amounts, and knows of the others only the totals.

A server raises the amount of a tenant that is worth more there than it costs, and lowers that of one that is worth less
(55, 56). Multipliers are no unknowns: they are how far loads come within epsilon of the capacities, over epsilon
squared (57). So loads end near 1 - epsilon + epsilon ** 2 * multiplier, and the limit is the solution only as epsilon
goes to 0. Here a server's loads are then scaled to its capacity.

Paper: Khamse-Ashari et al., section 5.2. The step is ours: the largest that a server's own curvature bears.
Complexity of an iteration: O(I K R); they grow as 1 / epsilon ** 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.solvers.iterative.game import Game, make_game
from fairbind.fairness.solvers.iterative.tolerances import AGREED_RESIDUAL, SMALLEST_AMOUNT, SMALLEST_EPSILON
from fairbind.model.errors import InvalidProblemError, SolverError

EPSILON = 0.05
LARGEST_EPSILON = 0.5
MOST_ITERATIONS = 200_000
MOST_BIAS = 2.0  # times epsilon: what a server could do better in the limit

Observer = Callable[[int, FloatArray, FloatArray], None]
"""Takes the iteration, the amounts and the multipliers."""


def solve_distributed(
    instance: Instance, *, epsilon: float = EPSILON, residual: float = AGREED_RESIDUAL, most: int = MOST_ITERATIONS
) -> Solution:
    """Return what the servers agree on, within capacities, with its report. residual: at which to stop.

    Raises SolverError if the residual is still larger after so many iterations or the limit is no equilibrium,
    InvalidProblemError for an epsilon that is out of range.
    """
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidProblemError(f"epsilon: must be from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}, not {epsilon!r}")
    game = make_distributed_game(instance, epsilon)
    amount_ki, multiplier_kr, iterations = iterate(game, epsilon, residual=residual, most=most)
    merit, reached = game.compute_merit(amount_ki, multiplier_kr), game.compute_residual(amount_ki, multiplier_kr)
    if not reached <= residual:
        raise SolverError(
            f"the distributed form did {iterations:,} iterations with epsilon {epsilon:g}, the residual {reached:.2g} "
            f"and the merit {merit:.2g}; it must get to {residual:g}"
        )
    fullest_k = game.get_loads(amount_ki).max(axis=1, initial=0.0)
    scaled_ki = np.divide(amount_ki, fullest_k[:, None], out=np.zeros_like(amount_ki), where=fullest_k[:, None] > 0)
    gap = game.compute_gap(scaled_ki, multiplier_kr)
    if not gap <= MOST_BIAS * epsilon:
        raise SolverError(
            f"the distributed form ends with epsilon {epsilon:g} at no equilibrium: a server could do better by "
            f"{gap:.2g} of what it does, of which {MOST_BIAS * epsilon:.2g} may be due to epsilon; take a smaller one"
        )
    report = {
        "iterations": iterations,
        "merit": merit,
        "residual": reached,
        "epsilon": epsilon,
        "largestLoad": float(fullest_k.max()),
        "largestGap": gap,
    }
    values = {"multiplier_kr": game.get_multipliers(multiplier_kr)}
    return Solution(game.get_tasks(scaled_ki), {"report": report, **values})


def make_distributed_game(instance: Instance, epsilon: float) -> Game:
    """Return the game with utilities of such sizes that a server's value, and so a multiplier, is about 1 / epsilon.

    A factor of a server's utility changes no answer, and loads are near capacities where multipliers are 1 / epsilon.
    """
    game = make_game(instance)
    value_k = (game.get_slopes(game.start_ki.sum(axis=0)) * game.start_ki).sum(axis=1)
    return replace(game, factor_k=game.factor_k / np.where(value_k > 0, value_k * epsilon, 1.0))


def iterate(
    game: Game, epsilon: float, *, residual: float = 0.0, most: int, observe: Observer | None = None
) -> tuple[FloatArray, FloatArray, int]:
    """Return amounts and multipliers where the residual is reached, or after so many iterations, and their number.

    observe: is shown each iteration.
    """
    amount_ki = game.start_ki / 2
    has_users_k = game.usable_ki.any(axis=1)
    curvature_k = np.linalg.norm(game.demand_kri, ord=2, axis=(1, 2)) ** 2 / epsilon**2
    for iteration in range(most + 1):
        multiplier_kr = np.maximum(game.get_loads(amount_ki) - 1 + epsilon, 0.0) / epsilon**2
        if observe is not None:
            observe(iteration, amount_ki, multiplier_kr)
        if iteration == most or game.compute_residual(amount_ki, multiplier_kr) <= residual:
            break
        totals_i = amount_ki.sum(axis=0)
        excess_ki = game.get_prices(multiplier_kr) - game.get_slopes(totals_i)
        steepest_k = np.where(game.usable_ki, game.get_bends(totals_i), 0.0).max(axis=1)
        steps_k = 1 / np.where(has_users_k, curvature_k + steepest_k, 1.0)
        stepped_ki = np.maximum(amount_ki - steps_k[:, None] * excess_ki, 0.0)
        amount_ki = np.where(game.usable_ki, stepped_ki, 0.0)
        lost_i = amount_ki.sum(axis=0) < SMALLEST_AMOUNT
        amount_ki[:, lost_i] = np.where(game.usable_ki[:, lost_i], SMALLEST_AMOUNT, 0.0)
    return amount_ki, multiplier_kr, iteration
