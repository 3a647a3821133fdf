"""One linear program: the level of some groups as high as possible together, while the others keep theirs.

    maximise t   subject to   level of i >= t      for free groups,
                              level of i >= kept_i for the others,
                              no class's resource used beyond what it has.

A group's level is its tasks times `level_per_task_i`. Columns are pairs (group, class) in parts of a class, so that
prices of a small tenant are not lost beside those of one with a weight 1e6 times as large. Only some pairs need to be
in the program (column generation): the others are priced, and those of negative reduced cost are added until none is.

Solved by HiGHS' primal simplex from the last basis: a round of the lexicographic procedure changes the right-hand sides
so that the last answer stays feasible. A large problem begins with the pairs where a task takes the least part of a
class. In one that was solved before with a small difference, pairs and bases are those of that time (`warm_basis`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairbind.fairness.problems.instance import Instance, IntArray
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.fairness.solvers.maxmin.tolerances import (
    ACCEPTED_INFEASIBILITY,
    DUAL_FEASIBILITY,
    KEPT_LEVEL_LOSS,
    PRIMAL_FEASIBILITY,
    REDUCED_COST,
    SMALLEST_COEFFICIENT,
)
from fairbind.fairness.solvers.maxmin.warm_basis import Basis, WarmBasis
from fairbind.model.errors import SolverError

if TYPE_CHECKING:
    import highspy

PRIMAL, DUAL = 4, 1  # HiGHS' numbers of its simplex methods
PRIMAL_SCALE = 1e2  # a class is so much to HiGHS, which makes its tolerance as much smaller
PAIRS_AT_ONCE = 4000  # so many pairs are put into the program at once
FIRST_PAIRS = 3  # of a group, in a large problem
MORE_PAIRS = 10  # of a group, at a time
UNIT_RANGE = 1e3  # how far t may be from the unit of levels before the unit is changed


@dataclass(frozen=True, slots=True, eq=False)
class LevelSolution:
    """An optimal answer: the level t, tasks (I, K), prices of all that a class has of r (K, R).

    The prices prove that t is the most: at them, everything is worth sum(price_kr), and a level of i costs at least
    worth_i wherever it is placed.
    """

    level: float
    tasks_ik: FloatArray
    price_kr: FloatArray


class LevelProgram:
    """The program, the pairs that are in it and the basis of its last answer; see the module."""

    def __init__(self, instance: Instance, level_per_task_i: FloatArray, start: WarmBasis | None) -> None:
        self.instance = instance
        self.level_per_task_i = level_per_task_i
        self.inverse_kr = np.zeros(instance.capacity_kr.shape)
        np.divide(1.0, instance.capacity_kr, out=self.inverse_kr, where=instance.capacity_kr > 0)
        self._before = start
        self._basis: Basis | None = None
        self._highs = make_highs()
        if start is not None:
            self.warm_basis = WarmBasis(start.shape, start.group_p, start.class_p)
        else:
            group_p, class_p = np.nonzero(self._choose_first_pairs())
            self.warm_basis = WarmBasis(instance.usable_ik.shape, group_p, class_p)
        self.has_pair_ik = np.zeros(instance.usable_ik.shape, dtype=bool)
        self.has_pair_ik[self.warm_basis.group_p, self.warm_basis.class_p] = True

    def _choose_first_pairs(self) -> BoolArray:
        """Return the pairs to begin with: all, or in a large problem those of which a class runs the most tasks."""
        usable_ik = self.instance.usable_ik
        return self._choose_pairs(usable_ik, FIRST_PAIRS) if int(usable_ik.sum()) > PAIRS_AT_ONCE else usable_ik

    def solve(self, is_free_i: BoolArray, kept_i: FloatArray, level_guess: float) -> LevelSolution:
        """Return the highest level of the free groups while the others keep `kept_i`. level_guess: sets the unit."""
        if self._before is not None and len(self.warm_basis.bases) < len(self._before.bases):
            self._basis = self._before.bases[len(self.warm_basis.bases)]
            level_guess = self._before.levels[len(self.warm_basis.bases)]
        for _ in range(8):
            optimum = self._solve_in_units(is_free_i, np.where(is_free_i, level_guess, kept_i), level_guess)
            if 1 / UNIT_RANGE < optimum.level / level_guess < UNIT_RANGE:
                assert self._basis is not None
                self.warm_basis.bases.append(self._basis)
                self.warm_basis.levels.append(optimum.level)
                return optimum
            level_guess = optimum.level
        raise SolverError(f"the level does not converge: {level_guess:.3g}")

    def _make_uses(self, unit_i: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what each group needs for its unit of level (I, R), and the least part of one class that is (I,)."""
        use_ir = self.instance.demand_ir * (unit_i / self.level_per_task_i)[:, None]
        part_ik = np.zeros(self.instance.usable_ik.shape)
        for r in range(use_ir.shape[1]):
            np.maximum(part_ik, use_ir[:, r, None] * self.inverse_kr[:, r], out=part_ik)
        part_i = np.where(self.instance.usable_ik, part_ik, np.inf).min(axis=1)
        if not (np.isfinite(part_i) & (part_i > 0)).all():
            raise SolverError("amounts are too far apart for float64")
        return use_ir, part_i

    def _solve_in_units(self, is_free_i: BoolArray, unit_i: FloatArray, level_unit: float) -> LevelSolution:
        use_ir, part_i = self._make_uses(unit_i)
        need_ir = use_ir / part_i[:, None]
        while True:
            level, amount_p, price_kr = self._solve_pairs(is_free_i, need_ir, part_i)
            cost_ik = need_ir @ (price_kr * self.inverse_kr).T
            worth_i = np.where(self.has_pair_ik, cost_ik, np.inf).min(axis=1)
            is_improving_ik = (
                self.instance.usable_ik & ~self.has_pair_ik & (cost_ik < worth_i[:, None] * (1 - REDUCED_COST))
            )
            if not is_improving_ik.any():
                break
            self._add_pairs(is_improving_ik, MORE_PAIRS)
        tasks_ik = np.zeros(self.instance.usable_ik.shape)
        tasks_per_part_i = unit_i / self.level_per_task_i / part_i
        tasks_ik[self.warm_basis.group_p, self.warm_basis.class_p] = (
            amount_p * tasks_per_part_i[self.warm_basis.group_p]
        )
        return LevelSolution(level * level_unit, tasks_ik, price_kr)

    def _choose_pairs(self, candidate_ik: BoolArray, most: int) -> BoolArray:
        """Return the candidates, of each group and of each class the `most` of which the class runs the most tasks."""
        rank_ik = np.where(candidate_ik, self.instance.gamma_ik, -1.0)
        return candidate_ik & (_find_largest(rank_ik, most, axis=1) | _find_largest(rank_ik, most, axis=0))

    def _add_pairs(self, candidate_ik: BoolArray, most: int) -> None:
        """Put some of the candidates in, as `_choose_pairs` does."""
        chosen_ik = self._choose_pairs(candidate_ik, most)
        group_p, class_p = np.nonzero(chosen_ik)
        self.has_pair_ik |= chosen_ik
        self.warm_basis.group_p = np.concatenate([self.warm_basis.group_p, group_p])
        self.warm_basis.class_p = np.concatenate([self.warm_basis.class_p, class_p])

    def _solve_pairs(
        self, is_free_i: BoolArray, need_ir: FloatArray, part_i: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Solve with the pairs that are in; return t in its unit, amounts of pairs (parts of a class), prices."""
        highs, rows = self._highs, self.inverse_kr.size
        group_p, class_p = self.warm_basis.group_p, self.warm_basis.class_p
        if self._basis is None:
            self._basis = make_first_basis(group_p, class_p, need_ir * part_i[:, None], self.inverse_kr)
        highs.passModel(make_model(group_p, class_p, need_ir, self.inverse_kr, is_free_i, part_i))
        highs.setBasis(make_highs_basis(self._basis, group_p.size))
        run(highs)
        solution, basis = highs.getSolution(), highs.getBasis()
        columns, row_statuses = list(basis.col_status), list(basis.row_status)
        self._basis = Basis(columns[0], columns[1:], row_statuses[:rows], row_statuses[rows:])
        column = np.maximum(solution.col_value, 0.0) / PRIMAL_SCALE
        price_kr = np.maximum(solution.row_dual[:rows], 0.0).reshape(self.inverse_kr.shape)
        return float(column[0]), column[1:], price_kr


def _find_largest(rank_ik: FloatArray, most: int, axis: int) -> BoolArray:
    """Mark the `most` largest along an axis."""
    is_largest_ik = np.zeros(rank_ik.shape, dtype=bool)
    if most >= rank_ik.shape[axis]:
        return ~is_largest_ik
    largest = np.argpartition(-rank_ik, most - 1, axis=axis).take(np.arange(most), axis=axis)
    np.put_along_axis(is_largest_ik, largest, values=True, axis=axis)
    return is_largest_ik


def make_highs() -> highspy.Highs:
    """Return a silent HiGHS with the tightest tolerances, for primal simplex from a given basis."""
    highs = make_silent_highs()
    for option, value in (
        ("presolve", "off"),
        ("solver", "simplex"),
        ("simplex_strategy", PRIMAL),
        ("simplex_scale_strategy", 0),  # the program is scaled already
        ("primal_feasibility_tolerance", PRIMAL_FEASIBILITY),
        ("dual_feasibility_tolerance", DUAL_FEASIBILITY),
        ("small_matrix_value", SMALLEST_COEFFICIENT),
    ):
        highs.setOptionValue(option, value)
    return highs


def make_model(
    group_p: IntArray,
    class_p: IntArray,
    need_ir: FloatArray,
    inverse_kr: FloatArray,
    is_free_i: BoolArray,
    part_i: FloatArray,
) -> highspy.HighsLp:
    """Return the program for HiGHS: columns t and the pairs, rows (class, resource) and the levels of the groups."""
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    (groups, resources), rows, pairs = need_ir.shape, inverse_kr.size, group_p.size
    free = np.flatnonzero(is_free_i)
    index_pe = np.concatenate([class_p[:, None] * resources + np.arange(resources), rows + group_p[:, None]], axis=1)
    value_pe = np.concatenate([need_ir[group_p] * inverse_kr[class_p], np.ones((pairs, 1))], axis=1)
    keep_pe = value_pe != 0
    kept_i = np.where(is_free_i, 0.0, PRIMAL_SCALE * part_i * (1 - KEPT_LEVEL_LOSS))
    model = highspy.HighsLp()
    model.sense_ = highspy.ObjSense.kMaximize
    model.num_col_, model.num_row_ = pairs + 1, rows + groups
    model.col_cost_ = np.append(1.0, np.zeros(pairs))
    model.col_lower_, model.col_upper_ = np.zeros(pairs + 1), np.full(pairs + 1, np.inf)
    model.row_lower_ = np.concatenate([np.full(rows, -np.inf), kept_i])
    model.row_upper_ = np.concatenate([np.full(rows, PRIMAL_SCALE), np.full(groups, np.inf)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts = free.size + np.append(0, np.cumsum(keep_pe.sum(axis=1)))
    model.a_matrix_.start_ = np.append(0, starts).astype(np.int32)
    model.a_matrix_.index_ = np.append(rows + free, index_pe[keep_pe]).astype(np.int32)
    model.a_matrix_.value_ = np.append(-part_i[free], value_pe[keep_pe])
    return model


def make_first_basis(group_p: IntArray, class_p: IntArray, use_ir: FloatArray, inverse_kr: FloatArray) -> Basis:
    """Each group on its cheapest class, levels equal, the first row to fill full: feasible."""
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    status = highspy.HighsBasisStatus
    cost_p = (use_ir[group_p] * inverse_kr[class_p]).max(axis=1)
    order = np.lexsort((cost_p, group_p))
    chosen = order[np.flatnonzero(np.diff(group_p[order], prepend=-1))]
    used_kr = np.zeros(inverse_kr.shape)
    np.add.at(used_kr, class_p[chosen], use_ir[group_p[chosen]])
    pairs = [status.kLower] * group_p.size
    for pair in chosen.tolist():
        pairs[pair] = status.kBasic
    capacities = [status.kBasic] * inverse_kr.size
    capacities[int((used_kr * inverse_kr).argmax())] = status.kUpper
    return Basis(status.kBasic, pairs, capacities, [status.kLower] * use_ir.shape[0])


def make_highs_basis(basis: Basis, pairs: int) -> highspy.HighsBasis:
    """Return HiGHS' form of a basis, with pairs that are newer than it at 0."""
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    new = [highspy.HighsBasisStatus.kLower] * (pairs - len(basis.pairs))
    made = highspy.HighsBasis()
    made.col_status = [basis.level, *basis.pairs, *new]
    made.row_status = [*basis.capacities, *basis.groups]
    made.valid = True
    return made


def run(highs: highspy.Highs) -> None:
    """Solve, or raise SolverError.

    When few groups are still free, what is left to them can be so thin that primal simplex does not find its way: then
    dual simplex goes on from there, and after that begins again.
    """
    for strategy in (PRIMAL, DUAL):
        highs.setOptionValue("simplex_strategy", strategy)
        highs.run()
        if is_optimal(highs):
            break
    else:
        highs.clearSolver()
        highs.run()
    highs.setOptionValue("simplex_strategy", PRIMAL)
    if not is_optimal(highs):
        status = highs.modelStatusToString(highs.getModelStatus())
        raise SolverError(f"the linear program is {status.lower()}, not optimal")


def is_optimal(highs: highspy.Highs) -> bool:
    """Whether HiGHS says that its answer is optimal, or "unknown" of one that is.

    It does the latter when its own rounding exceeds its tolerance. `lp_refinement` takes that out, and the certificate
    decides.
    """
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    status, reached = highs.getModelStatus(), highs.getInfo()
    is_near = (
        reached.max_primal_infeasibility <= ACCEPTED_INFEASIBILITY
        and reached.max_dual_infeasibility <= DUAL_FEASIBILITY
    )
    is_unknown = status == highspy.HighsModelStatus.kUnknown
    return bool(status == highspy.HighsModelStatus.kOptimal or (is_unknown and is_near))
