"""A first idea of how much of which pairs an answer uses, by an interior-point method made for this one program.

    maximise t   subject to   sum_k u_ik = part_i t (free groups) or part_i (others), u >= 0,
                              sum_i need_ir u_ik / c_kr <= 1 for every class and resource.

u_ik is a part of class k. There are I K unknowns, but the equations of a Newton step reduce to as many as there are
rows of capacity, or groups, whichever are fewer: everything else is diagonal, or R x R blocks. So a step costs some
products of small matrices, and about fifteen are enough. What comes out is only used to choose what the exact method
begins with.

Method: Mehrotra, "On the implementation of a primal-dual interior point method", SIAM Journal on Optimization 1992.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray

STEPS = 40
BACK_OFF = 0.995  # how near to the boundary a step may go
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class InteriorProgram:
    """The program: need_ir, shape (I, R); inverse_kr: 1 / c_kr, 0 where the class has nothing; see the module."""

    usable_ik: BoolArray
    need_ir: FloatArray
    inverse_kr: FloatArray
    part_i: FloatArray
    is_free_i: BoolArray

    def use(self, amount_ik: FloatArray) -> FloatArray:
        """What the amounts take of each class and resource, shape (K, R)."""
        used_kr: FloatArray = (amount_ik.T @ self.need_ir) * self.inverse_kr
        return used_kr

    def cost(self, price_kr: FloatArray) -> FloatArray:
        """What one unit of each pair costs at the prices, shape (I, K)."""
        cost_ik: FloatArray = self.need_ir @ (price_kr * self.inverse_kr).T
        return cost_ik


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A primal-dual point, or a step: amounts u, slack of capacity, t; prices, worths, reduced costs."""

    amount_ik: FloatArray
    slack_kr: FloatArray
    level: float
    price_kr: FloatArray
    worth_i: FloatArray
    reduced_cost_ik: FloatArray


def find_interior_point(program: InteriorProgram, accuracy: float) -> Point:
    """Return a point near the middle of all optimal ones, with t within `accuracy`, relative, of the best.

    After STEPS steps it returns what it has: the caller only takes advice from it.
    """
    point = _make_start(program)
    exists_kr = program.inverse_kr > 0
    count = int(program.usable_ik.sum()) + int(exists_kr.sum())
    for _ in range(STEPS):
        dual = float(point.price_kr.sum() - point.worth_i[~program.is_free_i] @ program.part_i[~program.is_free_i])
        residual_i = np.abs(_compute_residual(program, point)) / program.part_i
        if abs(dual - point.level) <= accuracy * abs(point.level) and residual_i.max() <= accuracy:
            break
        newton = _Newton(program, point)
        center = (
            float((point.amount_ik * point.reduced_cost_ik).sum() + (point.price_kr * point.slack_kr).sum()) / count
        )
        guess = newton.find_step(-point.amount_ik * point.reduced_cost_ik, -point.price_kr * point.slack_kr)
        trial = _move(point, guess, *_find_lengths(program, point, guess, 1.0))
        reached = (
            float((trial.amount_ik * trial.reduced_cost_ik).sum() + (trial.price_kr * trial.slack_kr).sum()) / count
        )
        target = center * (reached / center) ** 3
        step = newton.find_step(
            np.where(
                program.usable_ik,
                target - point.amount_ik * point.reduced_cost_ik - guess.amount_ik * guess.reduced_cost_ik,
                0.0,
            ),
            np.where(exists_kr, target - point.price_kr * point.slack_kr - guess.price_kr * guess.slack_kr, 0.0),
        )
        point = _move(point, step, *_find_lengths(program, point, step, BACK_OFF))
    return point


def _make_start(program: InteriorProgram) -> Point:
    """Everybody spread evenly over its classes, half of what is there used; equal prices, worths below the costs."""
    usable_ik, is_free_i, part_i = program.usable_ik, program.is_free_i, program.part_i
    amount_ik = usable_ik * (part_i / usable_ik.sum(axis=1))[:, None]
    level = 0.5 / float(program.use(amount_ik).max())
    amount_ik = amount_ik * np.where(is_free_i, level, 1.0)[:, None]
    exists_kr = program.inverse_kr > 0
    slack_kr = np.where(exists_kr, np.maximum(1 - program.use(amount_ik), 0.1), 0.0)
    price_kr = exists_kr.astype(np.float64)
    worth_i = 0.5 * np.where(usable_ik, program.cost(price_kr), np.inf).min(axis=1)
    scale = float(worth_i[is_free_i] @ part_i[is_free_i])
    price_kr, worth_i = price_kr / scale, worth_i / scale
    reduced_cost_ik = np.where(usable_ik, program.cost(price_kr) - worth_i[:, None], 0.0)
    return Point(amount_ik, slack_kr, level, price_kr, worth_i, reduced_cost_ik)


def _compute_residual(program: InteriorProgram, point: Point) -> FloatArray:
    """What each group lacks to its level, shape (I,)."""
    wanted_i = program.part_i * np.where(program.is_free_i, point.level, 1.0)
    residual_i: FloatArray = wanted_i - point.amount_ik.sum(axis=1)
    return residual_i


class _Newton:
    """The linear equations of a step at a point, reduced and ready to solve for several right-hand sides.

    With w_ik = u / reduced cost: M dp - N dv = f, -N' dp + S dv - g dt = h, g' dv = e, where M = blocks of classes +
    slack / price, N_(kr)i = w_ik a_ikr, S = sum_k w_ik.
    """

    def __init__(self, program: InteriorProgram, point: Point) -> None:
        self.program, self.point = program, point
        usable_ik, need_ir, inverse_kr = program.usable_ik, program.need_ir, program.inverse_kr
        (groups, resources), classes = need_ir.shape, inverse_kr.shape[0]
        self.weight_ik = np.divide(
            point.amount_ik, point.reduced_cost_ik, out=np.zeros(usable_ik.shape), where=usable_ik
        )
        self.sum_i = self.weight_ik.sum(axis=1)
        self.gain_i = np.where(program.is_free_i, program.part_i, 0.0)
        self.residual_i = _compute_residual(program, point)
        self.over_kr = np.where(inverse_kr > 0, 1 - program.use(point.amount_ik) - point.slack_kr, 0.0)
        self.error_ik = np.where(
            usable_ik, program.cost(point.price_kr) - point.worth_i[:, None] - point.reduced_cost_ik, 0.0
        )
        self.pull_in = ((self.weight_ik[:, :, None] * inverse_kr) * need_ir[:, None, :]).reshape(groups, -1)
        pairs_is = (need_ir[:, :, None] * need_ir[:, None, :]).reshape(groups, -1)
        self.block_krs = (self.weight_ik.T @ pairs_is).reshape(classes, resources, resources)
        self.block_krs *= inverse_kr[:, :, None] * inverse_kr[:, None, :]
        loose_kr = np.where(inverse_kr > 0, point.slack_kr / np.maximum(point.price_kr, TINY), 1.0)
        diagonal = np.arange(resources)
        self.block_krs[:, diagonal, diagonal] += loose_kr
        self.loose_kr = loose_kr
        self.by_rows = inverse_kr.size <= groups
        if self.by_rows:
            scaled_in = self.pull_in / np.sqrt(self.sum_i)[:, None]
            self.matrix = -(scaled_in.T @ scaled_in)
            index_kr = np.arange(inverse_kr.size).reshape(inverse_kr.shape)
            self.matrix[index_kr[:, :, None], index_kr[:, None, :]] += self.block_krs
        else:
            pull_kri = self.pull_in.T.reshape(classes, resources, groups)
            solved = np.linalg.solve(self.block_krs, pull_kri).reshape(-1, groups)
            self.matrix = np.diag(self.sum_i) - self.pull_in @ solved
        # Symmetric and positive but for rounding near the end, which this keeps away from 0.
        self.matrix[np.diag_indices_from(self.matrix)] *= 1 + 1e-13

    def find_step(self, aim_ik: FloatArray, aim_kr: FloatArray) -> Point:
        """Return the step that changes amount x reduced cost by aim_ik and price x slack by aim_kr, to first order."""
        program, point = self.program, self.point
        base_ik = np.divide(aim_ik, point.reduced_cost_ik, out=np.zeros(aim_ik.shape), where=program.usable_ik)
        base_ik -= self.weight_ik * self.error_ik
        aimed_slack_kr = np.where(program.inverse_kr > 0, aim_kr / np.maximum(point.price_kr, TINY), 0.0)
        f_n = (program.use(base_ik) + aimed_slack_kr - self.over_kr).ravel()
        h_i = self.residual_i - base_ik.sum(axis=1)
        price_n, worth_i, level = self._solve(f_n, h_i, 1.0 - float(self.gain_i @ point.worth_i))
        price_kr = np.where(program.inverse_kr > 0, price_n.reshape(program.inverse_kr.shape), 0.0)
        change_ik = np.where(program.usable_ik, program.cost(price_kr) - worth_i[:, None], 0.0)
        amount_ik = base_ik - self.weight_ik * change_ik
        slack_kr = self.over_kr - program.use(amount_ik)
        return Point(amount_ik, slack_kr, level, price_kr, worth_i, change_ik + self.error_ik)

    def _solve(self, f_n: FloatArray, h_i: FloatArray, e: float) -> tuple[FloatArray, FloatArray, float]:
        gain_i, sum_i = self.gain_i, self.sum_i
        if self.by_rows:
            right_n2 = np.stack([f_n + self.pull_in.T @ (h_i / sum_i), self.pull_in.T @ (gain_i / sum_i)], axis=1)
            price_n2 = np.linalg.solve(self.matrix, right_n2)
            worth_i2 = (np.stack([h_i, gain_i], axis=1) + self.pull_in @ price_n2) / sum_i[:, None]
        else:
            solved_n = np.linalg.solve(self.block_krs, f_n.reshape(*self.loose_kr.shape, 1)).ravel()
            worth_i2 = np.linalg.solve(self.matrix, np.stack([h_i + self.pull_in @ solved_n, gain_i], axis=1))
            right_n2 = self.pull_in.T @ worth_i2
            right_n2[:, 0] += f_n
            price_n2 = np.linalg.solve(self.block_krs, right_n2.reshape(*self.loose_kr.shape, 2)).reshape(-1, 2)
        level = (e - float(gain_i @ worth_i2[:, 0])) / float(gain_i @ worth_i2[:, 1])
        return price_n2[:, 0] + level * price_n2[:, 1], worth_i2[:, 0] + level * worth_i2[:, 1], level


def _find_lengths(program: InteriorProgram, point: Point, step: Point, back_off: float) -> tuple[float, float]:
    """Return how far, at most 1, the primal and the dual part may go and stay positive."""
    exists_kr = program.inverse_kr > 0
    primal = (
        _find_length(point.amount_ik, step.amount_ik, program.usable_ik),
        _find_length(point.slack_kr, step.slack_kr, exists_kr),
    )
    dual = (
        _find_length(point.reduced_cost_ik, step.reduced_cost_ik, program.usable_ik),
        _find_length(point.price_kr, step.price_kr, exists_kr),
    )
    return min(1.0, back_off * min(primal)), min(1.0, back_off * min(dual))


def _find_length(value: FloatArray, change: FloatArray, counts: BoolArray) -> float:
    falls = counts & (change < 0)
    return float((value[falls] / -change[falls]).min(initial=np.inf))


def _move(point: Point, step: Point, primal: float, dual: float) -> Point:
    return replace(
        point,
        amount_ik=point.amount_ik + primal * step.amount_ik,
        slack_kr=point.slack_kr + primal * step.slack_kr,
        level=point.level + primal * step.level,
        price_kr=point.price_kr + dual * step.price_kr,
        worth_i=point.worth_i + dual * step.worth_i,
        reduced_cost_ik=point.reduced_cost_ik + dual * step.reduced_cost_ik,
    )
