"""Fills a tree: at every moment the least child grows, from the root down, until nothing can.

Of the siblings with a unit below them that can grow, those whose guarantee is not used up come first, then those of the
highest priority; among these the ones of least level, together. What a child gets is divided below it in the same way.
A unit can grow until it has all its tasks or a row that it needs is full. Rows are linear inequalities, such as "all
servers have so much of a resource". A resource whose row is full no longer counts in levels of inner tenants, so these
fall, and what is left goes to who is least by the resources that count.

Levels and rows are linear in the tasks between two events: a row is full, a unit has all its tasks, a guarantee is used
up, a sibling is reached, another component of a level becomes the largest. So the filling goes from event to event.
Where a child can grow without its level rising, it does so at once; of several such siblings the one grows whose
largest *growing* component is least.

Complexity: O(vertices * units) an event; events are at most a few for each vertex, resource and row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairbind.fairness.problems.tree import ROOT, BoolArray, FloatArray, IntArray
from fairbind.fairness.solvers.effort import Effort
from fairbind.fairness.solvers.trees.forest import Forest
from fairbind.fairness.solvers.trees.tolerances import FULL, SAME_EVENT, TIE, USED_UP
from fairbind.model.errors import SolverError

MOST_STATES = 128  # of a path are remembered
MOST_EVENTS = 100  # for each vertex, resource and row


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Inequalities that hold for every division: sum over u of need_mu * tasks_u <= amount_m, all >= 0.

    resource_m: the resource of which nothing is free when the row is full; -1 for other rows.
    """

    need_mu: FloatArray
    amount_m: FloatArray
    resource_m: IntArray

    def plus(self, need_u: FloatArray, amount: float) -> Rows:
        """Return the rows with one more."""
        return Rows(
            np.concatenate([self.need_mu, need_u[None]]),
            np.append(self.amount_m, amount),
            np.append(self.resource_m, -1),
        )


@dataclass(slots=True, eq=False)
class State:
    """Where a filling is: tasks, the full rows, the guarantees that are used up."""

    tasks_u: FloatArray
    full_m: BoolArray
    used_p: BoolArray

    def with_another_row(self) -> State:
        """Return the state for rows with one more that is not full."""
        return State(self.tasks_u, np.append(self.full_m, False), self.used_p)


_Candidates = tuple[IntArray, list[tuple[int, BoolArray]]]
"""Children that are units, and the others, with the units that may grow below them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Motion:
    """How the units below a vertex grow, and how far that is right.

    rate_u: tasks per time. rise: of the vertex's level over its weight, per time; for the motion of its children
    together, of the children's. span: the time until another motion is right.
    """

    rate_u: FloatArray
    rise: float
    span: float


class Filling:
    """A filling of a forest within rows, from a state on."""

    def __init__(self, forest: Forest, rows: Rows, resources: int, *, promised_only: bool = False) -> None:
        """Prepare. promised_only: end when no child of the root can grow within its guarantee."""
        self.forest, self.rows, self.promised_only = forest, rows, promised_only
        self.below_vu = forest.find_below()
        self.units, self.others = forest.find_children()
        self.resources = resources
        self._sums_nu = self.below_vu[forest.units :].astype(np.float64)
        self._all_shares_uj = forest.shares(np.zeros(resources, dtype=np.bool_))
        self._used_up_r: BoolArray | None = None
        self._shares_uj = self._all_shares_uj
        self._promised_vu: dict[int, BoolArray] = {}
        self._free_u: BoolArray = np.zeros(forest.units, dtype=np.bool_)
        self._component_vj: FloatArray = np.zeros((0, 0))
        self._level_v: FloatArray = np.zeros(0)

    def start(self, tasks_u: FloatArray) -> State:
        """Return the state of a beginning."""
        promises = self.forest.promises
        used_p = promises.need_pu @ tasks_u + promises.base_p >= promises.amount_p * (1 - TIE)
        return State(tasks_u.copy(), np.zeros(self.rows.amount_m.size, dtype=np.bool_), used_p)

    def run(self, state: State, effort: Effort | None = None) -> list[State]:
        """Return states from this one to the end, of each event or of some. Raises SolverError if it does not end."""
        path = [state]
        most = MOST_EVENTS * (self.forest.parent_v.size + self.resources + self.rows.amount_m.size)
        for _ in range(most):
            if effort is not None:
                effort.spend(self._sums_nu.size + self.forest.parent_v.size)
            following = self._advance(path[-1])
            if following is None:
                return path
            path.append(following)
            if len(path) > MOST_STATES:
                del path[1:-1:2]
        raise SolverError(f"the tree is not full after {most} events")

    def _advance(self, state: State) -> State | None:
        self._look(state)
        motion = self._serve(ROOT, self._free_u)
        if motion is None:
            return None
        rate_u, rows, promises, limit_u = motion.rate_u, self.rows, self.forest.promises, self.forest.limit_u
        with np.errstate(divide="ignore", invalid="ignore"):
            use_m = rows.need_mu @ rate_u
            left_m = np.maximum(rows.amount_m - rows.need_mu @ state.tasks_u, 0.0)
            span_m = np.where((use_m > 0) & ~state.full_m, left_m / use_m, np.inf)
            span_u = np.where(rate_u > 0, (limit_u - state.tasks_u) / rate_u, np.inf)
            gain_p = promises.need_pu @ rate_u
            held_p = promises.need_pu @ state.tasks_u + promises.base_p
            span_p = np.where((gain_p > 0) & ~state.used_p, (promises.amount_p - held_p) / gain_p, np.inf)
        span = min(motion.span, span_m.min(initial=np.inf), span_u.min(initial=np.inf), span_p.min(initial=np.inf))
        if not np.isfinite(span):
            raise SolverError("a tenant could grow without end")
        span = max(float(span), 0.0)
        now = span * (1 + SAME_EVENT)
        tasks_u = np.where(span_u <= now, limit_u, state.tasks_u + span * rate_u)
        left_m = rows.amount_m - rows.need_mu @ tasks_u
        is_full_m = (span_m <= now) | ((use_m > 0) & (left_m <= FULL * rows.amount_m))
        return State(tasks_u, state.full_m | is_full_m, state.used_p | (span_p <= now))

    def _look(self, state: State) -> None:
        """Find out what can grow, what counts in levels, and what is guaranteed."""
        forest, rows = self.forest, self.rows
        stopped_u = (rows.need_mu[state.full_m] > 0).any(axis=0)
        self._free_u = ~stopped_u & (state.tasks_u < forest.limit_u)
        used_up_r = np.zeros(self.resources, dtype=np.bool_)
        left_m = rows.amount_m - rows.need_mu @ state.tasks_u
        used_up_r[rows.resource_m[(left_m <= USED_UP * rows.amount_m) & (rows.resource_m >= 0)]] = True
        if self._used_up_r is None or (used_up_r != self._used_up_r).any():
            self._used_up_r = used_up_r
            self._shares_uj = forest.shares(used_up_r)
        self._measure(state.tasks_u)
        counts_pu = forest.promises.need_pu > 0
        self._promised_vu = {
            int(vertex): counts_pu[of].any(axis=0) & ~counts_pu[of & state.used_p].any(axis=0)
            for vertex in np.unique(forest.promises.vertex_p)
            for of in [forest.promises.vertex_p == vertex]
        }

    def _measure(self, tasks_u: FloatArray) -> None:
        """Find the components and the level over its weight of each vertex."""
        forest, sums_nu = self.forest, self._sums_nu
        own_uj = tasks_u[:, None] * self._shares_uj
        component_vj = np.concatenate([own_uj, sums_nu @ own_uj])
        if forest.mixed_v.any():
            all_nj = sums_nu[forest.mixed_v[forest.units :]] @ (tasks_u[:, None] * self._all_shares_uj)
            component_vj[forest.mixed_v] = all_nj
        self._component_vj = component_vj / forest.divisor_vj
        own_u = tasks_u * forest.level_u
        single_n = forest.single_v[forest.units :]
        level_n = np.where(single_n, sums_nu @ own_u, self._component_vj[forest.units :].max(axis=1, initial=0.0))
        self._level_v = np.concatenate([own_u, level_n]) / forest.weight_v

    def _find_candidates(self, vertex: int, allowed_u: BoolArray) -> _Candidates:
        """Return the children whose turn it is but for their levels."""
        units = self.units.get(vertex, _NOTHING)
        units = units[allowed_u[units]]
        others: list[tuple[int, BoolArray]] = []
        for child in self.others.get(vertex, ()):
            below_u = allowed_u & self.below_vu[child]
            if below_u.any():
                others.append((child, below_u))
        promised = self._promised_vu
        if promised or self.promised_only:
            own = [unit for unit in units.tolist() if unit in promised and promised[unit][unit]] if promised else []
            within = [(child, below_u & promised[child]) for child, below_u in others if child in promised]
            within = [(child, below_u) for child, below_u in within if below_u.any()]
            if own or within or (self.promised_only and vertex == ROOT):
                return np.array(own, dtype=np.intp), within
        priority_v = self.forest.priority_v
        highest = max([*priority_v[units].tolist(), *(int(priority_v[child]) for child, _ in others)], default=0)
        return (
            units[priority_v[units] == highest],
            [(child, below_u) for child, below_u in others if priority_v[child] == highest],
        )

    def _serve(self, vertex: int, allowed_u: BoolArray) -> _Motion | None:
        """Return how the children grow together, None if none can. The least levels rise by 1 per time."""
        units, others = self._find_candidates(vertex, allowed_u)
        if not units.size and not others:
            return None
        levels_of_units = self._level_v[units]
        levels = self._level_v[[child for child, _ in others]]
        least = float(min(levels_of_units.min(initial=np.inf), levels.min(initial=np.inf)))
        is_least_unit, is_least = levels_of_units <= least * (1 + TIE), levels <= least * (1 + TIE)
        motions = [(others[place][0], self._move(*others[place])) for place in np.flatnonzero(is_least).tolist()]
        still = [(child, motion) for child, motion in motions if not motion.rise > 0]
        if still:
            return self._serve_still(still)
        later = float(min(levels_of_units[~is_least_unit].min(initial=np.inf), levels[~is_least].min(initial=np.inf)))
        rate_u = np.zeros(self.forest.units)
        growing = units[is_least_unit]
        rate_u[growing] = 1 / (self.forest.level_u[growing] / self.forest.weight_v[growing])
        together = _Motion(rate_u, 1.0, later - least)
        return _combine([together, *(motion for _, motion in motions)], [1.0, *(motion.rise for _, motion in motions)])

    def _serve_still(self, still: list[tuple[int, _Motion]]) -> _Motion:
        """Return how children grow whose levels do not rise: the one whose growing components are least."""
        forest = self.forest
        sizes, rises = [], []
        for child, motion in still:
            rise_j = self._get_rises(child, motion.rate_u)
            grows_j = rise_j > 0
            weight = float(forest.weight_v[child])
            components_j = self._component_vj[child][grows_j]
            size = float(components_j.max(initial=0.0))
            sizes.append(size / weight)
            rises.append(float(rise_j[grows_j][components_j >= size * (1 - TIE)].max(initial=0.0)) / weight)
        least = min(sizes)
        chosen = [place for place, size in enumerate(sizes) if size <= least * (1 + TIE)]
        if not min(rises[place] for place in chosen) > 0:  # all that grows below is used up elsewhere: as it comes
            return _Motion(still[0][1].rate_u, 0.0, still[0][1].span)
        rest = min((size for place, size in enumerate(sizes) if place not in chosen), default=np.inf)
        motion = _combine([still[place][1] for place in chosen], [rises[place] for place in chosen])
        return _Motion(motion.rate_u, 0.0, min(motion.span, rest - least))

    def _get_rises(self, child: int, rate_u: FloatArray) -> FloatArray:
        shares_uj = self._all_shares_uj if self.forest.mixed_v[child] else self._shares_uj
        rise_j: FloatArray = (rate_u @ shares_uj) / self.forest.divisor_vj[child]
        return rise_j

    def _move(self, child: int, below_u: BoolArray) -> _Motion:
        """Return how a child grows that is no unit."""
        forest, weight = self.forest, float(self.forest.weight_v[child])
        motion = self._serve(child, below_u)
        if motion is None:
            raise SolverError("a tenant can grow, and nothing below it")
        if forest.single_v[child]:
            return _Motion(motion.rate_u, float(motion.rate_u @ forest.level_u) / weight, motion.span)
        component_j, rise_j = self._component_vj[child], self._get_rises(child, motion.rate_u)
        level = float(component_j.max(initial=0.0))
        rise = float(rise_j[component_j >= level * (1 - TIE)].max(initial=0.0))
        overtakes_j = (rise_j > rise) & (component_j < level * (1 - TIE))
        spans = (level - component_j[overtakes_j]) / (rise_j[overtakes_j] - rise)
        return _Motion(motion.rate_u, rise / weight, min(motion.span, float(spans.min(initial=np.inf))))


_NOTHING: IntArray = np.zeros(0, dtype=np.intp)


def _combine(motions: list[_Motion], rises: list[float]) -> _Motion:
    """Return the motions together, each at the speed at which its rise is 1."""
    rate_u = motions[0].rate_u / rises[0]
    span = motions[0].span * rises[0]
    for motion, rise in zip(motions[1:], rises[1:], strict=True):
        rate_u += motion.rate_u / rise
        span = min(span, motion.span * rise)
    return _Motion(rate_u, 1.0, span)
