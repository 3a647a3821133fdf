"""Linear programs as the papers write them, solved by scipy: the slow second route that the tests compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]

from fairbind.fairness.problems.problem import FloatArray

Row = tuple[FloatArray, float]
TOLERANCE = 1e-10
SLACK = 10 * TOLERANCE
"""How much less than reached is asked for, as a part: with less than the tolerance some versions see no solution."""


def maximize(
    objective: FloatArray, rows: Sequence[Row], *, least: FloatArray | None = None, most: FloatArray | None = None
) -> FloatArray:
    """Return x that maximizes objective @ x with coefficients @ x <= bound for all rows and least <= x <= most.

    least: 0 if left out; most: no limit if left out.
    """
    lower = np.zeros(objective.size) if least is None else least
    upper = np.full(objective.size, np.inf) if most is None else most
    answer = linprog(
        -objective,
        A_ub=np.array([coefficients for coefficients, _ in rows]),
        b_ub=np.array([bound for _, bound in rows]),
        bounds=np.stack([lower, upper], axis=1),
        method="highs-ds",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    assert answer.status == 0, answer.message
    return np.asarray(answer.x, dtype=np.float64)


def compute_max_min_levels(use_ri: FloatArray, left_r: FloatArray, least: FloatArray, most: FloatArray) -> FloatArray:
    """Return the levels that are lexicographically largest when sorted, with use_ri @ levels <= room_r.

    Raises the least level by one program, holds those that cannot exceed it by one of their own each, and goes on.
    """
    count = use_ri.shape[1]
    levels, free = np.zeros(count), list(range(count))
    lower, upper = least.copy(), most.copy()
    while free:
        rows = [(np.append(use_ri[r], 0.0), float(left_r[r])) for r in range(use_ri.shape[0])]
        rows += [(np.append(-_unit(count, i), 1.0), 0.0) for i in free]  # t <= level of i
        bounds = {"least": np.append(lower, 0.0), "most": np.append(upper, np.inf)}
        reached = maximize(_unit(count + 1, count), rows, **bounds)[-1]
        bounds["least"][-1] = reached * (1 - SLACK)
        stuck = [i for i in free if maximize(_unit(count + 1, i), rows, **bounds)[i] <= reached * (1 + 1e-7)]
        assert stuck
        levels[stuck] = reached
        lower[stuck] = upper[stuck] = reached
        # What rounding let them exceed must not make the next program infeasible.
        lower[stuck] *= 1 - SLACK
        free = [i for i in free if i not in stuck]
    return levels


def _unit(size: int, place: int) -> FloatArray:
    vector = np.zeros(size)
    vector[place] = 1.0
    return vector
