"""Which amounts servers can hold: a linear program that places tasks, and its prices where it cannot.

    maximise t   subject to   tasks of u on all classes = held_u + t * (wanted_u - held_u),
                              no class's resource, no limit is exceeded,
                              tasks of u on some classes >= what is kept for it there.

If t reaches 1, the wanted tasks can be placed. Otherwise the prices p of all that a class has of a resource, q of a
a limit and s of what is kept give an inequality that every division satisfies and the wanted one does not:

    sum_u v_u tasks_u <= sum(p) + sum(q * limits) - sum(s * kept),

v_u the least over the classes of what a task of u costs there, less what s gives back. It holds for any p, q, s >= 0
for which no v_u is negative, whatever the program said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairbind.fairness.problems.tree import BoolArray, FloatArray, IntArray
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.fairness.solvers.trees.tolerances import (
    DUAL_FEASIBILITY,
    KEPT_LOSS,
    POSITIVE_PRICE,
    PRIMAL_FEASIBILITY,
    SMALLEST_COEFFICIENT,
)
from fairbind.model.errors import SolverError

if TYPE_CHECKING:
    import highspy

SCALE = 1e2  # a class is so much to HiGHS, which makes its tolerance of 1e-10 as much smaller


@dataclass(frozen=True, slots=True, eq=False)
class Servers:
    """What there is to place on. Units U, classes K, resources R, limits L, amounts that are kept F.

    need_lu: what a task of a unit takes of a limit, where the limit counts; on_lk: which classes it counts.
    kept_f: tasks of unit_f that must be on the classes on_fk.
    """

    capacity_kr: FloatArray
    demand_ur: FloatArray
    usable_uk: BoolArray
    need_lu: FloatArray
    amount_l: FloatArray
    on_lk: BoolArray
    unit_f: IntArray
    kept_f: FloatArray
    on_fk: BoolArray

    @property
    def per_capacity_kr(self) -> FloatArray:
        """1 / capacity, 0 where there is none."""
        inverse_kr: FloatArray = np.divide(
            1.0, self.capacity_kr, out=np.zeros_like(self.capacity_kr), where=self.capacity_kr > 0
        )
        return inverse_kr


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of all that a class has of a resource (K, R), of a limit (L,) and of what is kept (F,); all >= 0."""

    class_kr: FloatArray
    limit_l: FloatArray
    kept_f: FloatArray


def make_inequality(servers: Servers, prices: Prices) -> tuple[FloatArray, float]:
    """Return what a task of each unit costs at least, (U,), and what everything is worth; see the module."""
    cost_uk = servers.demand_ur @ (prices.class_kr * servers.per_capacity_kr).T
    cost_uk = cost_uk + (servers.need_lu * prices.limit_l[:, None]).T @ servers.on_lk
    cost_uk = np.where(servers.usable_uk, cost_uk, np.inf)
    back_f = prices.kept_f.copy()
    for f in np.flatnonzero(back_f > 0).tolist():
        back_f[f] = min(back_f[f], float(cost_uk[servers.unit_f[f], servers.on_fk[f]].min()))
        cost_uk[servers.unit_f[f], servers.on_fk[f]] -= back_f[f]
    worth_u: FloatArray = cost_uk.min(axis=1)
    total = prices.class_kr.sum() + prices.limit_l @ servers.amount_l - back_f @ servers.kept_f
    return np.where(np.isfinite(worth_u), np.maximum(worth_u, 0.0), 0.0), float(total)


class Placing:
    """The program for servers; only what is wanted changes from call to call."""

    def __init__(self, servers: Servers) -> None:
        """Write down what does not change."""
        self.servers = servers
        self._highs = make_silent_highs()
        for option, value in (
            ("primal_feasibility_tolerance", PRIMAL_FEASIBILITY),
            ("dual_feasibility_tolerance", DUAL_FEASIBILITY),
            ("small_matrix_value", SMALLEST_COEFFICIENT),
        ):
            self._highs.setOptionValue(option, value)
        unit_p, class_p = np.nonzero(servers.usable_uk)
        load_pr = servers.demand_ur[unit_p] * servers.per_capacity_kr[class_p]
        self._unit_p, self._class_p = unit_p, class_p
        self._tasks_p = 1 / load_pr.max(axis=1)  # a column is so many tasks: all that the class can run
        self._scale_u = np.zeros(servers.demand_ur.shape[0])
        np.maximum.at(self._scale_u, unit_p, self._tasks_p)
        self._load_pr = load_pr * self._tasks_p[:, None]

    def place(self, held_u: FloatArray, wanted_u: FloatArray) -> tuple[float, FloatArray, Prices]:
        """Return t, the tasks at t by unit and class, and the prices; what is held can be placed."""
        import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

        servers, highs = self.servers, self._highs
        highs.passModel(self._make_model(held_u, wanted_u))
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            highs.clearSolver()
            highs.setOptionValue("presolve", "off")
            highs.run()
            highs.setOptionValue("presolve", "choose")
            if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                status = highs.modelStatusToString(highs.getModelStatus())
                raise SolverError(f"the linear program that places tasks is {status.lower()}, not optimal")
        solution = highs.getSolution()
        column = np.maximum(np.array(solution.col_value), 0.0) / SCALE
        tasks_uk = np.zeros(servers.usable_uk.shape)
        tasks_uk[self._unit_p, self._class_p] = column[1:] * self._tasks_p
        dual = np.array(solution.row_dual)
        classes, limits = servers.capacity_kr.size, servers.amount_l.size
        price_kr = _clean(dual[:classes]).reshape(servers.capacity_kr.shape)
        price_l = _clean(dual[classes : classes + limits])
        kept_f = _clean(-dual[classes + limits : classes + limits + servers.kept_f.size])
        return (
            float(column[0]),
            tasks_uk,
            Prices(
                price_kr,
                np.divide(price_l, servers.amount_l, out=np.zeros_like(price_l), where=servers.amount_l > 0),
                kept_f / np.where(self._scale_u > 0, self._scale_u, 1.0)[servers.unit_f],
            ),
        )

    def _make_model(self, held_u: FloatArray, wanted_u: FloatArray) -> highspy.HighsLp:
        """Return the program: columns t and the pairs; rows (class, resource), limits, what is kept, units."""
        import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

        servers, unit_p, class_p = self.servers, self._unit_p, self._class_p
        (classes, resources), pairs = servers.capacity_kr.shape, unit_p.size
        limits, kept, units = servers.amount_l.size, servers.kept_f.size, self._scale_u.size
        scale_u = np.where(self._scale_u > 0, self._scale_u, 1.0)
        first_limit = classes * resources
        first_kept, first_unit = first_limit + limits, first_limit + limits + kept
        amount_l = np.where(servers.amount_l > 0, servers.amount_l, 1.0)
        of_limit_pl = np.where(
            servers.on_lk[:, class_p], servers.need_lu[:, unit_p] * self._tasks_p / amount_l[:, None], 0.0
        ).T
        of_kept_pf = np.where(
            (servers.unit_f[:, None] == unit_p) & servers.on_fk[:, class_p], self._tasks_p / scale_u[unit_p], 0.0
        ).T
        index_pe = np.concatenate(
            [
                class_p[:, None] * resources + np.arange(resources),
                np.broadcast_to(first_limit + np.arange(limits + kept), (pairs, limits + kept)),
                first_unit + unit_p[:, None],
            ],
            axis=1,
        )
        value_pe = np.concatenate(
            [self._load_pr, of_limit_pl, of_kept_pf, (self._tasks_p / scale_u[unit_p])[:, None]], axis=1
        )
        is_there_pe = value_pe != 0
        way_u = np.maximum(wanted_u - held_u, 0.0) / scale_u
        moving = np.flatnonzero(way_u > 0)
        model = highspy.HighsLp()
        model.sense_ = highspy.ObjSense.kMaximize
        model.num_col_, model.num_row_ = pairs + 1, first_unit + units
        model.col_cost_ = np.append(1.0, np.zeros(pairs))
        model.col_lower_ = np.zeros(pairs + 1)
        model.col_upper_ = np.append(SCALE, np.full(pairs, np.inf))
        model.row_lower_ = np.concatenate(
            [
                np.full(first_kept, -np.inf),
                SCALE * servers.kept_f / scale_u[servers.unit_f] * (1 - KEPT_LOSS),
                SCALE * held_u / scale_u * (1 - KEPT_LOSS),
            ]
        )
        model.row_upper_ = np.concatenate([np.full(first_kept, SCALE), np.full(kept, np.inf), SCALE * held_u / scale_u])
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = moving.size + np.append(0, np.cumsum(is_there_pe.sum(axis=1)))
        model.a_matrix_.start_ = np.append(0, starts).astype(np.int32)
        model.a_matrix_.index_ = np.append(first_unit + moving, index_pe[is_there_pe]).astype(np.int32)
        model.a_matrix_.value_ = np.append(-way_u[moving], value_pe[is_there_pe])
        return model


def _clean(price: FloatArray) -> FloatArray:
    """Return prices without rounding, none below 0."""
    cleaned: FloatArray = np.where(price > POSITIVE_PRICE * np.abs(price).max(initial=0.0), price, 0.0)
    return cleaned
