"""Dynamic dominant resource fairness: tenants arrive one after another, and no tenant ever gives anything back.

When k of n tenants have arrived, k/n of every resource may be in use. The tenants with the smallest dominant share grow
together until a resource is used up to that part. So later tenants find their equal part free.

Paper: Li, Liu, Zhang, Zhang, "A note on dynamic fair division of multiple resources", 2019: the linear program (1),
Lemmas 1 to 3 and Algorithm 1; the mechanism is that of Kash, Procaccia and Shah, "No Agent Left Behind", 2014.
Complexity: O(R) per step, amortized, so O(T R) for all T steps; with tenants of P kinds (sets of resources that they
need at all) O(T P R). Algorithm 1 of the note finds the first tenant that grows by bisection, in O(k) at step k. Here
tenants with equal levels form one block. Levels fall from the first tenant to the last (Lemma 2), so a step only merges
blocks at the end, and each tenant is merged at most once.

Differences from the note:
* Line 6 of its Algorithm 1 tests the sum of d_ir x_i^(k-1), which always holds. It must be x_1^(k-1): can all tenants
  be raised to the level of the first? Nothing here depends on it.
* Zero demands. Program (1) then stops some tenants that could still grow. Here they grow: a step is the lexicographic
  max-min above what each tenant has. Levels are equal for all tenants of one kind that grow in a step.
* Weights. A tenant is entitled to the part w_i / W of everything instead of 1/n, W over all tenants that will ever
  arrive, and levels are x_i / w_i. The proofs carry over: x^(k-1) and the entitlement of k fit in W_k / W, which gives
  the sharing incentive; Lemmas 1 to 3 are about levels; and a lie of i could only help if, when i last grows, no tenant
  that can hold less than with the truth did so after i arrived, but before that nothing differs. W must be known from
  the beginning, so with different weights all tenants must be listed.

Guarantees (with any weights that are taken): dynamic sharing incentive, dynamic envy-freeness, dynamic Pareto
optimality (some resource that it needs is used up to W_k / W for each tenant); strategy-proofness if all demands are
positive; once all have arrived, sharing incentive and Pareto optimality. NOT envy-freeness: an early tenant may keep
more.

>>> import numpy as np
>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> instance = reduce_problem(make_problem([[9, 18]], [[1, 4], [3, 1]]), merges_tenants=False)
>>> arrivals = compute_arrivals(instance)
>>> [arrivals.compute_tasks(step).round(3).tolist() for step in range(2)]
[[2.25, 0.0], [3.0, 2.0]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add, truediv
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import (
    LEVEL_MISMATCH,
    OPTIMALITY_GAP,
    SUMMATION_ERROR,
    SUMMATION_ERROR_PER_STEP,
)
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, IntArray
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.problems.verify import CertificateError, RefusedTenantError, check_feasible
from fairbind.model.errors import InvalidProblemError

INFINITE = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """The arrivals of the tenants of an instance, one per step; T steps, I groups (of one tenant), P kinds.

    A tenant that can run nothing arrives too, at its step; the others get its entitlement.

    entitled_t: part of every resource that may be in use after step t, increasing, at most 1, shape (T,).
    step_i: the step of the tenant's arrival. kind_i: the set of resources that it needs; needs_pr: that set, shape
    (P, R). speed_i: tasks at level 1, where the dominant share is exactly the tenant's entitlement.
    level_tp: the level to which tenants of a kind below it were raised in step t, shape (T, P); 0 without tenants.
    """

    entitled_t: FloatArray
    step_i: IntArray
    kind_i: IntArray
    needs_pr: BoolArray
    speed_i: FloatArray
    level_tp: FloatArray

    def compute_tasks(self, step: int) -> FloatArray:
        """Return each tenant's tasks after the step, shape (I,); 0 before its arrival. Complexity: O(T P + I).

        No tenant gives anything back, so a tenant has the highest level since its arrival.
        """
        highest_tp = np.maximum.accumulate(self.level_tp[step::-1], axis=0)[::-1]
        is_here_i = self.step_i <= step
        level_i = highest_tp[np.minimum(self.step_i, step), self.kind_i]
        tasks_i: FloatArray = np.where(is_here_i, level_i * self.speed_i, 0.0)
        return tasks_i


def compute_arrivals(instance: Instance) -> Arrivals:
    """Return the allocation after every arrival. Raises InvalidProblemError if entitlements are not known.

    Raises ValueError for an instance with merged tenants: equal tenants arrive one by one, too.
    """
    if (instance.member_i > 1).any():
        raise ValueError("equal tenants were merged, but they come one after another")
    entitled_t, weight_i = _compute_entitlements(instance)
    needs_pr, kind_i = np.unique(instance.demand_ir > 0, axis=0, return_inverse=True)
    kind_i = kind_i.reshape(-1)
    speed_i = weight_i / instance.share_per_task_i
    slope_ir = instance.demand_ir * speed_i[:, None]
    gain_t = np.diff(entitled_t, prepend=0.0)
    newcomer_t = np.full(entitled_t.size, -1, dtype=np.intp)
    newcomer_t[instance.rank_i] = np.arange(instance.rank_i.size)
    if needs_pr.shape[0] == 1:
        level_tp = _raise_one_kind(gain_t.tolist(), newcomer_t.tolist(), slope_ir[:, needs_pr[0]].tolist())[:, None]
    else:
        level_tp = _raise_kinds(gain_t.tolist(), newcomer_t.tolist(), slope_ir.tolist(), kind_i.tolist(), needs_pr)
    return Arrivals(entitled_t, instance.rank_i, kind_i, needs_pr, speed_i, level_tp)


def solve_dynamic_drf(instance: Instance) -> Solution:
    """Return the allocation after the last arrival; evidence: the levels of every step."""
    arrivals = compute_arrivals(instance)
    tasks_i = arrivals.compute_tasks(instance.tenants_total - 1)
    return Solution(tasks_i[:, None], {"level_tp": arrivals.level_tp})


def _compute_entitlements(instance: Instance) -> tuple[FloatArray, FloatArray]:
    """Return (part of every resource that may be in use after each step, entitlement of each group)."""
    steps = instance.tenants_total
    expected = steps if instance.expected_tenants is None else instance.expected_tenants
    if expected < steps:
        raise InvalidProblemError(f"expectedTenants: {expected}: must be at least {steps}, the tenants of the problem")
    if (instance.weight_i == instance.weight_i[0]).all():
        return np.arange(1, steps + 1) / expected, np.full(instance.weight_i.size, 1 / expected)
    if expected > steps:
        raise InvalidProblemError(
            f"expectedTenants: {expected}: where weights differ, dynamic-drf must know those of all who will come: "
            f"list all of them, or leave expectedTenants out"
        )
    powerless = np.flatnonzero(instance.group_of_tenant < 0)
    if powerless.size:
        raise RefusedTenantError(
            int(powerless[0]),
            "demand",
            "no task of it can ever run, and where weights differ, dynamic-drf cannot say what such a tenant leaves to "
            "the others: leave the tenant out",
        )
    return np.cumsum(instance.weight_i), instance.weight_i


def _raise_one_kind(
    gain_t: Sequence[float], newcomer_t: Sequence[int], slope_ir: Sequence[Sequence[float]]
) -> FloatArray:
    """Return the level reached in each step if each tenant needs every resource, shape (T,).

    Blocks of tenants with one level form a stack, the lowest on top. The variable left_r is the capacity that
    may be used and is not. It is updated in place of a difference between two totals, which keeps small entitlements
    exact.
    """
    left_r = [0.0] * len(slope_ir[0])
    levels: list[float] = []
    slopes: list[Sequence[float]] = []
    reached_t = []
    for gain, newcomer in zip(gain_t, newcomer_t, strict=True):
        left_r = [left + gain for left in left_r]
        if newcomer >= 0:
            level, slope = 0.0, slope_ir[newcomer]
        elif levels:
            level, slope = levels.pop(), slopes.pop()
        else:
            reached_t.append(0.0)
            continue
        increment = min(map(truediv, left_r, slope))
        while levels and level + increment >= levels[-1]:
            increment = levels[-1] - level
            left_r = [left - speed * increment for left, speed in zip(left_r, slope, strict=True)]
            level = levels.pop()
            slope = list(map(add, slope, slopes.pop()))
            increment = max(min(map(truediv, left_r, slope)), 0.0)
        left_r = [left - speed * increment for left, speed in zip(left_r, slope, strict=True)]
        level += increment
        levels.append(level)
        slopes.append(slope)
        reached_t.append(level)
    return np.array(reached_t)


class _Fronts:
    """For each kind, its tenants that have arrived: a stack of blocks with one level each, the lowest on top."""

    def __init__(self, kinds: int) -> None:
        self.levels: list[list[float]] = [[] for _ in range(kinds)]
        self.slopes: list[list[Sequence[float]]] = [[] for _ in range(kinds)]

    def find_lowest(self, moving: Sequence[int]) -> tuple[float, list[int]]:
        """Return (the lowest level of these kinds, the kinds that have it)."""
        tops = [self.levels[kind][-1] for kind in moving]
        level = min(tops)
        return level, [kind for kind, top in zip(moving, tops, strict=True) if top == level]

    def find_ceiling(self, moving: Sequence[int], lowest: Sequence[int]) -> float:
        """Return the level at which the lowest blocks meet the next ones."""
        others = [self.levels[kind][-1] for kind in moving if kind not in lowest] if len(lowest) < len(moving) else []
        ceiling = min(others, default=INFINITE)
        for kind in lowest:
            levels = self.levels[kind]
            if len(levels) > 1 and levels[-2] < ceiling:
                ceiling = levels[-2]
        return ceiling

    def add_slopes(self, lowest: Sequence[int]) -> Sequence[float]:
        """Return the lowest blocks' use of each resource per level."""
        if len(lowest) == 1:
            return self.slopes[lowest[0]][-1]
        return [sum(parts) for parts in zip(*[self.slopes[kind][-1] for kind in lowest], strict=True)]

    def lift(self, lowest: Sequence[int], level: float) -> None:
        """Raise the lowest blocks to the level; merge blocks with the same level."""
        for kind in lowest:
            levels, slopes = self.levels[kind], self.slopes[kind]
            levels[-1] = level
            while len(levels) > 1 and levels[-2] <= level:
                del levels[-2]
                slopes.append(list(map(add, slopes.pop(), slopes.pop())))


def _raise_kinds(
    gain_t: Sequence[float],
    newcomer_t: Sequence[int],
    slope_ir: Sequence[Sequence[float]],
    kind_i: Sequence[int],
    needs_pr: BoolArray,
) -> FloatArray:
    """Return the level that each kind reaches in each step, shape (T, P), if some tenants need only some resources."""
    users_r = [frozenset(np.flatnonzero(needs_p).tolist()) for needs_p in needs_pr.T]
    fronts = _Fronts(needs_pr.shape[0])
    here: list[int] = []
    left_r = [0.0] * needs_pr.shape[1]
    reached_t = []
    for gain, newcomer in zip(gain_t, newcomer_t, strict=True):
        left_r = [left + gain for left in left_r]
        if newcomer >= 0:
            kind = kind_i[newcomer]
            if not fronts.levels[kind]:
                here.append(kind)
            fronts.levels[kind].append(0.0)
            fronts.slopes[kind].append(slope_ir[newcomer])
        reached_p = [0.0] * needs_pr.shape[0]
        moving = here
        while moving:
            level, left_r, full = _raise_lowest(fronts, moving, left_r)
            for kind in users_r[full].intersection(moving):
                reached_p[kind] = level
            moving = [kind for kind in moving if kind not in users_r[full]]
        reached_t.append(reached_p)
    return np.array(reached_t)


def _raise_lowest(fronts: _Fronts, moving: Sequence[int], left_r: list[float]) -> tuple[float, list[float], int]:
    """Raise the lowest of these kinds until a resource is used up; return (level, remaining capacity, resource)."""
    while True:
        level, lowest = fronts.find_lowest(moving)
        ceiling, slope = fronts.find_ceiling(moving, lowest), fronts.add_slopes(lowest)
        increments = [left / speed if speed else INFINITE for left, speed in zip(left_r, slope, strict=True)]
        increment = max(min(increments), 0.0)
        is_full = level + increment < ceiling
        if not is_full:
            increment = ceiling - level
        left_r = [left - speed * increment for left, speed in zip(left_r, slope, strict=True)]
        level = level + increment if is_full else ceiling
        fronts.lift(lowest, level)
        if is_full:
            return level, left_r, increments.index(min(increments))


def certify_dynamic_drf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove, from the levels of every step, that each step is the one lexicographic max-min above the step before.

    In every step no more is in use than may be, and every kind with tenants needs some used-up resource that no kind
    raised to a higher level needs. So no tenant could get more in that step unless a tenant with no more got less. The
    use after a step follows from levels and demands alone: each tenant has the highest level since its arrival.
    """
    excess = check_feasible(instance, solution.tasks_ik, "dynamic-drf")
    entitled_t, weight_i = _compute_entitlements(instance)
    needs_pr, kind_i = np.unique(instance.demand_ir > 0, axis=0, return_inverse=True)
    speed_i = weight_i / instance.share_per_task_i
    level_tp = np.asarray(solution.evidence["level_tp"], dtype=np.float64)
    arrivals = Arrivals(entitled_t, instance.rank_i, kind_i.reshape(-1), needs_pr, speed_i, level_tp)
    tasks_i = arrivals.compute_tasks(entitled_t.size - 1)
    distance_i = np.abs(solution.tasks_ik[:, 0] - tasks_i) / tasks_i
    worst = int(distance_i.argmax())
    distance = float(distance_i[worst])
    if not distance <= LEVEL_MISMATCH:
        given = float(solution.tasks_ik[worst, 0])
        words = f"{{tenant}} has {given:.6g} tasks, but the levels of the steps say {tasks_i[worst]:.6g}"
        raise CertificateError("dynamic-drf", words, distance, tenant=int(instance.rank_i[worst]))
    overuse, gap = _check_steps(arrivals, instance.demand_ir * speed_i[:, None])
    last = level_tp[-1][level_tp[-1] > 0]
    return {
        "method": "levels of every step",
        "steps": entitled_t.size,
        "entitled": float(entitled_t[-1]),
        "lowestLevel": float(last.min()),
        "largestExcess": max(excess, overuse),
        "largestGap": gap,
    }


def _check_steps(arrivals: Arrivals, slope_ir: FloatArray) -> tuple[float, float]:
    """Return, over all steps, the largest overuse and the largest part of its level that a kind could still rise."""
    kinds = range(arrivals.needs_pr.shape[0])
    use_ptr, raised_ptr = zip(*(_compute_use(arrivals, kind, slope_ir) for kind in kinds), strict=True)
    entitled_t1 = arrivals.entitled_t[:, None]
    use_tr = sum(use_ptr)
    overuse_t = (use_tr / entitled_t1 - 1).max(axis=1)
    overuse = float(overuse_t.max())
    if not overuse <= LEVEL_MISMATCH:
        words = f"{overuse:.3g} more is in use after the arrival of {{tenant}} than may be"
        raise CertificateError("dynamic-drf", words, overuse, tenant=int(overuse_t.argmax()))
    raised_tr = sum(raised_ptr)
    rounding = SUMMATION_ERROR + SUMMATION_ERROR_PER_STEP * arrivals.entitled_t.size
    left_tr = np.maximum(entitled_t1 * (1 - rounding) - use_tr, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        growth_tr = np.where(left_tr > 0, left_tr / raised_tr, 0.0)
    gap_t = np.zeros(arrivals.entitled_t.shape)
    for kind in kinds:
        is_here_t = np.maximum.accumulate(_find_steps(arrivals, kind))
        level_t = arrivals.level_tp[:, kind]
        own_t = np.full(level_t.shape, np.inf)
        for r in np.flatnonzero(arrivals.needs_pr[kind]):
            highest_t = arrivals.level_tp[:, arrivals.needs_pr[:, r]].max(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                lag_t = np.where(highest_t > level_t, highest_t / level_t - 1, 0.0)
            own_t = np.minimum(own_t, np.maximum(lag_t, growth_tr[:, r]))
        gap_t = np.maximum(gap_t, np.where(is_here_t, own_t, 0.0))
    gap = float(gap_t.max())
    if not gap <= OPTIMALITY_GAP:
        words = f"a tenant could rise {gap:.3g} of its level more in the step of the arrival of {{tenant}}"
        raise CertificateError("dynamic-drf", words, gap, tenant=int(gap_t.argmax()))
    return max(overuse, 0.0), gap


def _compute_use(arrivals: Arrivals, kind: int, slope_ir: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (the kind's use after each step, the part of it held by tenants just raised), each of shape (T, R).

    Let p be the last step before t with a higher level: tenants that arrived until p keep what they had after p, and
    tenants that arrived later have the level of t.
    """
    steps, resources = arrivals.entitled_t.size, slope_ir.shape[1]
    before = _find_last_higher(arrivals.level_tp[:, kind].tolist())
    own = arrivals.kind_i == kind
    came_tr = np.zeros((steps + 1, resources))
    came_tr[arrivals.step_i[own] + 1] = slope_ir[own]
    came_tr = np.cumsum(came_tr, axis=0)
    raised_tr = arrivals.level_tp[:, kind, None] * (came_tr[1:] - came_tr[np.array(before) + 1])
    use_tr = np.empty((steps, resources))
    for r in range(resources):
        use: list[float] = []
        for raised, last in zip(raised_tr[:, r].tolist(), before, strict=True):
            use.append(raised + use[last] if last >= 0 else raised)
        use_tr[:, r] = use
    return use_tr, raised_tr


def _find_last_higher(values: Sequence[float]) -> list[int]:
    """Return, for each place, the last place before it with a higher value; -1 without one.

    >>> _find_last_higher([3.0, 1.0, 2.0, 2.0, 5.0])
    [-1, 0, 0, 0, -1]
    """
    places: list[int] = []
    for place, value in enumerate(values):
        last = place - 1
        while last >= 0 and values[last] <= value:
            last = places[last]
        places.append(last)
    return places


def _find_steps(arrivals: Arrivals, kind: int) -> BoolArray:
    """Return the steps in which a tenant of the kind arrived, shape (T,)."""
    comes_t = np.zeros(arrivals.entitled_t.size, dtype=np.bool_)
    comes_t[arrivals.step_i[arrivals.kind_i == kind]] = True
    return comes_t


DYNAMIC_DRF = Mechanism(
    id="dynamic-drf",
    name="Dynamic dominant resource fairness",
    paper='Li, Liu, Zhang, Zhang, "A note on dynamic fair division of multiple resources", 2019',
    section="2 (linear program 1), 3 (Algorithm 1)",
    story=(
        "Tenants come one after another and nothing is ever taken back. When k of the n that are expected have come, "
        "k/n of every resource may be in use: tenants with the smallest dominant share grow until something is used "
        "up to that part. Each finds at least an equal part untouched, but the rest stays idle until all came."
    ),
    options=frozenset({Option.WEIGHT, Option.EXPECTED_TENANTS}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_dynamic_drf,
    certify=certify_dynamic_drf,
    is_one_bidder=True,
    merges_tenants=False,
)
