"""Properties at every step of a mechanism for tenants that arrive one by one, not only at the end.

Step k is the mechanism on the first k tenants, with the same number of tenants expected in all. The part of the pool
that is open at step k is k / n; with weights, the weights of the tenants that have arrived over those of all expected
tenants. With different weights the first k tenants alone do not determine that part, so the mechanism's own record of
arrivals is used instead. Complexity: one solve per step, at most MOST_STEPS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.mechanisms.dynamic_drf import compute_arrivals
from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import IntArray, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.variants import as_solved, choose, compute_alone, keep_tenants
from fairbind.fairness.properties.witness import (
    SMALLEST_VIOLATION,
    TRIES,
    Property,
    Witness,
    counts,
    find_first_largest,
    is_larger,
    number,
    percent,
)
from fairbind.fairness.solve import compute_allocation

MOST_STEPS = 24


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of the arrivals. totals_of: tasks of the first k tenants after step k, by k from 1."""

    problem: Problem
    steps: IntArray
    totals_of: dict[int, FloatArray]
    alone_i: FloatArray

    def compute_worths(self, step: int, tenant: int) -> FloatArray:
        """Return the tasks that the tenant would run with each of the first tenants' bundles, by weight, (step,)."""
        needed_r = self.problem.demand_ir[tenant] > 0
        held_ir = (self.totals_of[step] / self.problem.weight_i[:step])[:, None] * self.problem.demand_ir[:step]
        per_task_r = self.problem.demand_ir[tenant, needed_r] / self.problem.weight_i[tenant]
        worth_i: FloatArray = (held_ir[:, needed_r] / per_task_r).min(axis=1)
        if self.alone_i[tenant] == 0:
            worth_i = np.zeros(step)
        capped_i: FloatArray = np.minimum(worth_i, self.problem.tasks_i[tenant])
        return capped_i

    def open_part(self, step: int) -> float:
        """Return the part of the pool that may be in use at this step."""
        return float(self.problem.weight_i[:step].sum() / self.total_weight)

    @property
    def total_weight(self) -> float:
        """Return the weight of all tenants that are expected."""
        present = len(self.problem.tenant_names)
        expected = self.problem.expected_tenants or present
        return float(self.problem.weight_i.sum() * expected / present)


def _compute_steps(
    problem: Problem, mechanism_id: str, allocation: Allocation, alpha: float | None, *, also_before: bool
) -> _Steps:
    """Solve the chosen steps; also_before: the step before each too. The last step is the allocation itself."""
    solved = as_solved(problem)
    present = len(solved.tenant_names)
    steps = choose(np.arange(1, present + 1), MOST_STEPS, None)
    wanted = set(steps.tolist()) | ({int(step) - 1 for step in steps if step > 1} if also_before else set())
    totals_of = {present: allocation.totals_i}
    if (solved.weight_i == solved.weight_i[0]).all():
        expected = solved.expected_tenants or present
        for step in sorted(wanted - {present}):
            first = replace(keep_tenants(solved, np.arange(step)), expected_tenants=expected)
            totals_of[step] = compute_allocation(first, mechanism_id, alpha=alpha).totals_i
    else:
        instance = reduce_problem(solved, merges_tenants=False)
        arrivals = compute_arrivals(instance)
        has_group_i = instance.group_of_tenant >= 0
        for step in sorted(wanted - {present}):
            totals_i = np.zeros(present)
            totals_i[has_group_i] = arrivals.compute_tasks(step - 1)
            totals_of[step] = totals_i[:step]
    return _Steps(solved, steps, totals_of, compute_alone(solved).sum(axis=1))


def find_unshared_step(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the step at which some tenant has the least of its part (1/n) of the pool, or None."""
    del generator, tries
    course = _compute_steps(problem, mechanism_id, allocation, alpha, also_before=False)
    best: Witness | None = None
    for step in course.steps.tolist():
        part_i = course.problem.weight_i[:step] / course.total_weight
        wanted_i = np.minimum(part_i * course.alone_i[:step], course.problem.tasks_i[:step])
        short_i = np.where(wanted_i > 0, 1 - course.totals_of[step] / np.where(wanted_i > 0, wanted_i, 1.0), 0.0)
        tenant = find_first_largest(short_i)
        size = float(short_i[tenant])
        if size > SMALLEST_VIOLATION and (best is None or is_larger(size, best.size)):
            name, got = course.problem.tenant_names[tenant], float(course.totals_of[step][tenant])
            wanted = float(wanted_i[tenant])
            text = f"after arrival {step} {name} runs {number(got)} tasks; its part of the pool would run "
            best = Witness(
                DYNAMIC_SHARING_INCENTIVE.id,
                f"{text}{number(wanted)} ({percent(size)} less)",
                size,
                {"step": step, "tenant": name, "tasks": got, "part": wanted},
            )
    return best


def find_envy_of_a_step(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return a tenant that envies one that came later, or one that got more since the first came, or None."""
    del generator, tries
    course = _compute_steps(problem, mechanism_id, allocation, alpha, also_before=True)
    for step in course.steps.tolist():
        for envious in (course.steps[course.steps <= step] - 1).tolist():
            worth_i = course.compute_worths(step, envious)
            got = float(course.totals_of[step][envious])
            envied_i = counts(worth_i - got, worth_i, np.full(step, course.alone_i[envious]))
            has_grown_i = np.ones(step, dtype=bool)
            if envious:
                had_i, has_i = course.totals_of[envious], course.totals_of[step][:envious]
                has_grown_i[:envious] = counts(has_i - had_i, has_i, course.alone_i[:envious])
            others = np.flatnonzero(envied_i & has_grown_i)
            if others.size:
                other = int(others[find_first_largest(worth_i[others])])
                return _describe_envy(course, step, envious, other, float(worth_i[other]))
    return None


def _describe_envy(course: _Steps, step: int, envious: int, other: int, worth: float) -> Witness:
    """Return one tenant's unjustified envy of another as a witness."""
    names, got = course.problem.tenant_names, float(course.totals_of[step][envious])
    why = "came later" if other > envious else f"got more after {names[envious]} came"
    return Witness(
        DYNAMIC_ENVY_FREENESS.id,
        f"after arrival {step} {names[envious]} runs {number(got)} tasks and would run {number(worth)} with what "
        f"{names[other]} has, who {why} ({percent(1 - got / worth)} less)",
        1 - got / worth,
        {"step": step, "tenant": names[envious], "envied": names[other], "tasks": got, "tasksInstead": worth},
    )


def find_idle_step(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the step at which some tenant could run more within the part that is open at that step, or None.

    In one pool that is so if and only if some of each resource that the tenant needs is left.
    """
    del generator, tries
    course = _compute_steps(problem, mechanism_id, allocation, alpha, also_before=False)
    solved = course.problem
    exists_r = solved.total_r > 0
    part_ir = solved.demand_ir[:, exists_r] / solved.total_r[exists_r]
    for step in course.steps.tolist():
        open_part = course.open_part(step)
        left_r = open_part - course.totals_of[step] @ part_ir[:step]
        more_i = np.where(part_ir[:step] > 0, left_r / np.where(part_ir[:step] > 0, part_ir[:step], 1.0), np.inf)
        more_tasks_i = np.minimum(more_i.min(axis=1), solved.tasks_i[:step] - course.totals_of[step])
        gain_i = np.where(course.alone_i[:step] > 0, more_tasks_i, 0.0) / np.maximum(course.alone_i[:step], 1e-300)
        tenant = find_first_largest(gain_i)
        if gain_i[tenant] > SMALLEST_VIOLATION * open_part:
            got, could = float(course.totals_of[step][tenant]), float(more_tasks_i[tenant])
            return Witness(
                DYNAMIC_PARETO_OPTIMALITY.id,
                f"after arrival {step} {solved.tenant_names[tenant]} could run {number(got + could)} tasks instead of "
                f"{number(got)} inside the {percent(open_part)} of the pool that is open, and no other less",
                could / (got + could),
                {"step": step, "tenant": solved.tenant_names[tenant], "tasks": got, "tasksInstead": got + could},
            )
    return None


_SOURCE = "Kash, Procaccia and Shah, JAIR 2014; restated in Li, Liu, Zhang and Zhang, 2019, section 2"

DYNAMIC_SHARING_INCENTIVE = Property(
    id="dynamic-sharing-incentive",
    name="Sharing incentive at every arrival",
    definition="After every arrival each tenant that came runs at least what its part (1/n) of the pool would run.",
    source=_SOURCE,
    find=find_unshared_step,
    options=frozenset({Option.EXPECTED_TENANTS}),
)

DYNAMIC_ENVY_FREENESS = Property(
    id="dynamic-envy-freeness",
    name="Dynamic envy-freeness",
    definition=(
        "After every arrival a tenant envies (would run more tasks with what the other has, scaled by their weights) "
        "only who came before it and has got nothing since it came."
    ),
    source=_SOURCE,
    find=find_envy_of_a_step,
    options=frozenset({Option.EXPECTED_TENANTS}),
)

DYNAMIC_PARETO_OPTIMALITY = Property(
    id="dynamic-pareto-optimality",
    name="Dynamic Pareto optimality",
    definition="After k of n arrivals no tenant could run more within k/n of every resource unless another runs less.",
    source=_SOURCE,
    find=find_idle_step,
    options=frozenset({Option.EXPECTED_TENANTS}),
)
