"""One linear program: raise the level of some groups together while the others keep theirs.

    maximise t   subject to   level of i >= t      for groups that rise,
                              level of i >= kept_i for groups that do not,
                              no class's resource used beyond what it has.

A group's level is its tasks times `level_per_task_i`. Columns are pairs (group, class), in units of a level near the
answer, rows are relative to what each class has: so weights of 1e-3 and 1e3, and a huge server among small ones, are
all of the size of 1 to the solver. Only some pairs need to be in the program: the others are priced, and those that
would help are added until none does.

Solved by HiGHS' primal simplex from the last basis: a round of the lexicographic procedure changes the right-hand sides
so that the last answer stays feasible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fairbind.fairness.instance import Instance, IntArray
from fairbind.fairness.problem import BoolArray, FloatArray
from fairbind.model.errors import SolverError

if TYPE_CHECKING:
    import highspy

TOLERANCE = 1e-10  # HiGHS' least for feasibility
SMALLEST_ENTRY = 1e-12  # HiGHS' least: smaller entries are dropped
PRIMAL_SCALE = 1e2
LEEWAY = 1e-11  # of a kept level
HELPS = 1e-10  # a pair helps when it is cheaper by this part of what its group pays for a level


@dataclass(slots=True)
class Basis:
    """Where the simplex method stands: HiGHS' basis statuses, of the pairs, of the level t and of the rows."""

    pairs: list[highspy.HighsBasisStatus]
    level: highspy.HighsBasisStatus
    capacity_rows: list[highspy.HighsBasisStatus]
    level_rows: list[highspy.HighsBasisStatus]


@dataclass(frozen=True, slots=True, eq=False)
class Rise:
    """An optimal answer: the level t, tasks (I, K), prices of all that a class has of r (K, R), worth of a level (I,).

    The prices prove that t is the most: at them, everything is worth sum(price_kr), and a level of i costs at least
    worth_i wherever it is placed.
    """

    level: float
    tasks_ik: FloatArray
    price_kr: FloatArray
    worth_i: FloatArray


class RisingProgram:
    """The program, the pairs that are in it and the basis of its last answer; see the module."""

    def __init__(self, instance: Instance, level_per_task_i: FloatArray) -> None:
        self.instance = instance
        self.level_per_task_i = level_per_task_i
        classes, resources = instance.capacity_kr.shape
        self.inverse_kr = np.divide(
            1.0, instance.capacity_kr, out=np.zeros((classes, resources)), where=instance.capacity_kr > 0
        )
        self.group_p, self.class_p = (index.astype(np.intp) for index in np.nonzero(instance.usable_ik))
        self.has_pair_ik = instance.usable_ik.copy()
        self.basis: Basis | None = None
        self._highs = make_highs()

    def solve(self, rises_i: BoolArray, kept_i: FloatArray, level_guess: float) -> Rise:
        """Return the highest level of those that rise while the others keep `kept_i`. level_guess: sets the unit."""
        for _ in range(8):
            rise = self._solve_in_units(rises_i, np.where(rises_i, level_guess, kept_i))
            if 1e-3 < rise.level / level_guess < 1e3:
                return rise
            level_guess = rise.level
        raise SolverError(f"the level does not settle: {level_guess:.3g}")

    def _solve_in_units(self, rises_i: BoolArray, unit_i: FloatArray) -> Rise:
        tasks_i = unit_i / self.level_per_task_i
        use_ir = self.instance.demand_ir * tasks_i[:, None]
        part_i = compute_cheapest(self.instance.usable_ik, use_ir, self.inverse_kr)
        while True:
            level, amount_p, price_kr = self._solve_pairs(rises_i, use_ir / part_i[:, None], part_i)
            worth_i = np.where(self.has_pair_ik, use_ir @ (price_kr * self.inverse_kr).T, np.inf).min(axis=1)
            if not self._add_pairs(use_ir, price_kr, worth_i):
                break
        tasks_ik = np.zeros(self.instance.usable_ik.shape)
        tasks_ik[self.group_p, self.class_p] = amount_p * (tasks_i / part_i)[self.group_p]
        unit = float(unit_i[rises_i][0])
        return Rise(level * unit, tasks_ik, price_kr, worth_i)

    def _add_pairs(self, use_ir: FloatArray, price_kr: FloatArray, worth_i: FloatArray) -> bool:
        """Add the pairs that are cheaper than what their group pays now; return whether there were any."""
        cost_ik = use_ir @ (price_kr * self.inverse_kr).T
        helps_ik = self.instance.usable_ik & ~self.has_pair_ik & (cost_ik < worth_i[:, None] * (1 - HELPS))
        group_p, class_p = np.nonzero(helps_ik)
        self.has_pair_ik |= helps_ik
        self.group_p = np.concatenate([self.group_p, group_p])
        self.class_p = np.concatenate([self.class_p, class_p])
        return bool(group_p.size)

    def _solve_pairs(
        self, rises_i: BoolArray, use_ir: FloatArray, part_i: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Solve with the pairs that are in; return t in its unit, amounts of pairs (parts of a class), prices."""
        highs, rows = self._highs, self.inverse_kr.size
        highs.passModel(make_model(self.group_p, self.class_p, use_ir, self.inverse_kr, rises_i, part_i))
        highs.setBasis(self._make_basis(use_ir * part_i[:, None]))
        highs.run()
        check_optimal(highs)
        solution, basis = highs.getSolution(), highs.getBasis()
        columns, statuses = list(basis.col_status), list(basis.row_status)
        self.basis = Basis(columns[1:], columns[0], statuses[:rows], statuses[rows:])
        column, dual = np.array(solution.col_value) / PRIMAL_SCALE, np.array(solution.row_dual[:rows])
        price_kr = np.maximum(dual, 0.0).reshape(self.inverse_kr.shape)
        return float(column[0]), np.maximum(column[1:], 0.0), price_kr

    def _make_basis(self, use_ir: FloatArray) -> highspy.HighsBasis:
        """Return the last basis, with new pairs at 0; the first time, everybody on the cheapest of its classes."""
        import highspy  # noqa: PLC0415  # see fairbind.fairness: imported where it is used

        status = highspy.HighsBasisStatus
        if self.basis is None:
            self.basis = self._make_first_basis(use_ir)
        last = self.basis
        basis = highspy.HighsBasis()
        basis.col_status = [last.level, *last.pairs, *[status.kLower] * (self.group_p.size - len(last.pairs))]
        basis.row_status = [*last.capacity_rows, *last.level_rows]
        basis.valid = True
        return basis

    def _make_first_basis(self, use_ir: FloatArray) -> Basis:
        """Everybody on one class, levels equal, the first row to fill full: feasible, and near enough to start."""
        import highspy  # noqa: PLC0415

        status = highspy.HighsBasisStatus
        cost_p = (use_ir[self.group_p] * self.inverse_kr[self.class_p]).max(axis=1)
        order = np.lexsort((cost_p, self.group_p))
        first = np.flatnonzero(np.diff(self.group_p[order], prepend=-1))
        chosen = order[first]
        used_kr = np.zeros(self.inverse_kr.shape)
        np.add.at(used_kr, self.class_p[chosen], use_ir[self.group_p[chosen]])
        pairs = [status.kLower] * self.group_p.size
        for pair in chosen.tolist():
            pairs[pair] = status.kBasic
        capacity_rows = [status.kBasic] * self.inverse_kr.size
        capacity_rows[int((used_kr * self.inverse_kr).argmax())] = status.kUpper
        return Basis(pairs, status.kBasic, capacity_rows, [status.kLower] * use_ir.shape[0])


def compute_cheapest(usable_ik: BoolArray, use_ir: FloatArray, inverse_kr: FloatArray) -> FloatArray:
    """Return the least part of one class that each group needs for its use, shape (I,)."""
    part_ik = np.zeros(usable_ik.shape)
    for r in range(use_ir.shape[1]):
        np.maximum(part_ik, use_ir[:, r, None] * inverse_kr[:, r], out=part_ik)
    cheapest_i: FloatArray = np.where(usable_ik, part_ik, np.inf).min(axis=1)
    return cheapest_i


def make_highs() -> highspy.Highs:
    """Return a silent HiGHS with the tightest tolerances, for primal simplex from a given basis."""
    import highspy  # noqa: PLC0415

    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("presolve", "off"),
        ("solver", "simplex"),
        ("simplex_strategy", 4),  # primal
        ("threads", 1),
        ("simplex_scale_strategy", 0),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", TOLERANCE),
        ("small_matrix_value", SMALLEST_ENTRY),
    ):
        highs.setOptionValue(option, value)
    return highs


def make_model(
    group_p: IntArray,
    class_p: IntArray,
    use_ir: FloatArray,
    inverse_kr: FloatArray,
    rises_i: BoolArray,
    part_i: FloatArray,
) -> highspy.HighsLp:
    """Return the program for HiGHS: columns t and the pairs, rows (class, resource) <= 1 and the levels of the groups."""
    import highspy  # noqa: PLC0415

    (groups, resources), rows, pairs = use_ir.shape, inverse_kr.size, group_p.size
    risers = np.flatnonzero(rises_i)
    index_pe = np.concatenate([class_p[:, None] * resources + np.arange(resources), rows + group_p[:, None]], axis=1)
    value_pe = np.concatenate([use_ir[group_p] * inverse_kr[class_p], np.ones((pairs, 1))], axis=1)
    keep_pe = value_pe != 0
    model = highspy.HighsLp()
    model.sense_ = highspy.ObjSense.kMaximize
    model.num_col_, model.num_row_ = pairs + 1, rows + groups
    model.col_cost_ = np.append(1.0, np.zeros(pairs))
    model.col_lower_, model.col_upper_ = np.zeros(pairs + 1), np.full(pairs + 1, np.inf)
    model.row_lower_ = np.concatenate(
        [np.full(rows, -np.inf), np.where(rises_i, 0.0, PRIMAL_SCALE * part_i * (1 - LEEWAY))]
    )
    model.row_upper_ = np.concatenate([np.full(rows, PRIMAL_SCALE), np.full(groups, np.inf)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts = risers.size + np.append(0, np.cumsum(keep_pe.sum(axis=1)))
    model.a_matrix_.start_ = np.append(0, starts).astype(np.int32)
    model.a_matrix_.index_ = np.append(rows + risers, index_pe[keep_pe]).astype(np.int32)
    model.a_matrix_.value_ = np.append(-part_i[risers], value_pe[keep_pe])
    return model


def check_optimal(highs: highspy.Highs) -> None:
    """Raise SolverError unless HiGHS says that its answer is optimal."""
    import highspy  # noqa: PLC0415

    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"the linear program is {highs.modelStatusToString(status).lower()}, not optimal")


def compute_worth(instance: Instance, price_kr: FloatArray) -> FloatArray:
    """Return what a task of each group costs at the cheapest of its classes, shape (I,), at prices of whole classes."""
    has_kr = instance.capacity_kr > 0
    unit_price_kr = np.divide(price_kr, instance.capacity_kr, out=np.zeros(price_kr.shape), where=has_kr)
    cost_ik: npt.NDArray[np.float64] = np.where(instance.usable_ik, instance.demand_ir @ unit_price_kr.T, np.inf)
    worth_i: FloatArray = cost_ik.min(axis=1)
    return worth_i
