"""Judges an allocation computed elsewhere: is it what a mechanism would give, and if not, where does it differ?

The allocation may come from another scheduler or from a paper, and may be rounded to whole tasks. First it must exceed
no capacity, no limit, no tenant's number of tasks and no eligibility. Then the mechanism's certificate is checked: from
the tasks alone where that suffices (drf, asset-fairness, per-server-drf, ps-dsf), otherwise with the prices or levels
of the mechanism's own answer. Those prove every allocation with the same totals, and totals are unique in all of these
mechanisms except alpha-pf-vds: there, a failure means that it is not the equilibrium that fairbind finds. Equal servers
count as one class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Mechanism
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import Instance, expand_tasks
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.verify import CertificateError, compute_held
from fairbind.fairness.solve import (
    check_options,
    compute_dominant_shares,
    get_mechanism,
    name_classes,
    naming_errors,
    reduce_for,
    show_condition,
)
from fairbind.model.errors import InvalidProblemError, SolverError

DEFAULT_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Violation:
    """A condition that an allocation does not meet.

    condition: capacity, tasks, limit, eligibility or fairness. amount: by how much, relative to what is allowed or to
    what the tenant has; inf if that is 0. tenant, servers, resource: names, empty where none applies.
    """

    condition: str
    text: str
    amount: float
    tenant: str = ""
    servers: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The allocation and its violations; fairness is judged only if the allocation is feasible."""

    allocation: Allocation
    violations: tuple[Violation, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether it exceeds nothing."""
        return all(violation.condition == "fairness" for violation in self.violations)


def judge_allocation(
    problem: Problem,
    mechanism_id: str,
    tasks_ik: FloatArray,
    *,
    alpha: float | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> Judgement:
    """Return how an allocation violates the mechanism's conditions.

    tasks_ik: tasks of each tenant on each server entry, in the problem's order, shape (I, K); one column for a pool.
    tolerance: violations up to this count as rounding, such as that of a printed table.
    Raises InvalidProblemError for options that the mechanism does not take and for invalid tasks.

    >>> from fairbind.fairness import make_problem
    >>> problem = make_problem([[9, 18]], [[1, 4], [3, 1]], tenant_names=["ada", "ben"])
    >>> judge_allocation(problem, "drf", np.array([[3.0], [2.0]])).violations
    ()
    >>> judge_allocation(problem, "drf", np.array([[3.0], [1.0]])).violations[0].text
    'tenant ben could get 1 more of its own'
    """
    mechanism = get_mechanism(mechanism_id)
    check_options(problem, mechanism, alpha=alpha)
    solved = problem.pooled() if problem.is_pooled else problem
    if tasks_ik.shape != solved.eligible_ik.shape:
        raise InvalidProblemError(f"tasks_ik has shape {tasks_ik.shape}, not {solved.eligible_ik.shape}")
    if not (np.isfinite(tasks_ik).all() and (tasks_ik >= 0).all()):
        raise InvalidProblemError("tasks_ik: tasks must be finite numbers from 0 on")
    totals_i = tasks_ik.sum(axis=1)
    shares_i = compute_dominant_shares(solved, totals_i)
    allocation = Allocation(solved, mechanism_id, tasks_ik, totals_i, shares_i, {}, status="given")
    violations = tuple(_find_excesses(solved, tasks_ik, tolerance))
    if not violations:
        violations = tuple(_find_unfairness(solved, mechanism, tasks_ik, alpha, tolerance))
    return Judgement(allocation, violations)


def _find_excesses(problem: Problem, tasks_ik: FloatArray, tolerance: float) -> Iterator[Violation]:
    has_kr = problem.count_k[:, None] * problem.capacity_kr
    used_kr = tasks_ik.T @ problem.demand_ir
    for k, r in np.argwhere(used_kr > has_kr * (1 + tolerance)).tolist():
        server, resource = problem.server_names[k], problem.resources[r]
        amount = _compare(used_kr[k, r], has_kr[k, r])
        text = f"tasks use {used_kr[k, r]:.6g} {resource} of server {server}, which has {has_kr[k, r]:.6g}"
        yield Violation("capacity", text, amount, servers=server, resource=resource)
    totals_i = tasks_ik.sum(axis=1)
    for i in np.flatnonzero(totals_i > problem.tasks_i * (1 + tolerance)).tolist():
        name = problem.tenant_names[i]
        text = f"tenant {name} runs {totals_i[i]:.6g} tasks and has {problem.tasks_i[i]:.6g}"
        yield Violation("tasks", text, _compare(totals_i[i], problem.tasks_i[i]), tenant=name)
    for i, k in np.argwhere((tasks_ik > 0) & ~problem.eligible_ik).tolist():
        name, server = problem.tenant_names[i], problem.server_names[k]
        text = f"tenant {name} runs {tasks_ik[i, k]:.6g} tasks on server {server}, which it may not use"
        yield Violation("eligibility", text, np.inf, tenant=name, servers=server)

    if problem.tree is not None:
        tree, limits = problem.tree, problem.tree.limits
        held_b = compute_held(tree, limits, tasks_ik, problem.demand_ir)
        for b in np.flatnonzero(held_b > limits.amount_b * (1 + tolerance)).tolist():
            name = [*problem.tenant_names, *tree.inner_names][limits.vertex_b[b]]
            resource = problem.resources[limits.resource_b[b]]
            text = f"tenant {name} holds {held_b[b]:.6g} {resource}, and its limit is {limits.amount_b[b]:.6g}"
            yield Violation("limit", text, _compare(held_b[b], limits.amount_b[b]), tenant=name, resource=resource)


def _compare(used: float, allowed: float) -> float:
    return float(used / allowed - 1) if allowed > 0 else np.inf


def _find_unfairness(
    problem: Problem, mechanism: Mechanism, tasks_ik: FloatArray, alpha: float | None, tolerance: float
) -> Iterator[Violation]:
    # Tenants stay apart: two equal ones that have different amounts must not pass for a group that has the sum.
    instance = reduce_for(mechanism, problem, alpha=alpha, merges_tenants=False)
    if not instance.weight_i.size:
        return
    given_ik = _reduce_tasks(instance, tasks_ik)
    with naming_errors(mechanism.id, instance, problem):
        own = mechanism.solve(instance)
    try:
        with np.errstate(all="ignore"):  # of tenants that have nothing
            mechanism.certify(instance, replace(own, tasks_ik=given_ik))
    except CertificateError as error:
        if not error.amount <= tolerance:
            tenant = "" if error.tenant is None else problem.tenant_names[error.tenant]
            servers = (
                "" if error.server_class is None else ", ".join(name_classes(instance, problem)[error.server_class])
            )
            yield Violation("fairness", show_condition(error, instance, problem), error.amount, tenant, servers)
    except SolverError as error:
        yield from _compare_totals(problem, given_ik, instance, own.tasks_ik, str(error), tolerance)


def _compare_totals(
    problem: Problem, given_ik: FloatArray, instance: Instance, own_ik: FloatArray, reason: str, tolerance: float
) -> Iterator[Violation]:
    """Yield the tenant whose total is furthest from the mechanism's own answer."""
    given_i = expand_tasks(instance, given_ik).sum(axis=1)
    own_i = expand_tasks(instance, own_ik).sum(axis=1)
    with np.errstate(all="ignore"):
        away_i = np.nan_to_num(np.abs(given_i / own_i - 1), nan=0.0, posinf=np.inf)
    worst = int(away_i.argmax())
    if away_i[worst] > tolerance:
        name = problem.tenant_names[worst]
        text = f"tenant {name} has {given_i[worst]:.6g} tasks, not {own_i[worst]:.6g} ({reason})"
        yield Violation("fairness", text, float(away_i[worst]), name)
    elif instance.capacity_kr.shape[0] > 1:  # the totals are right, where they run is not
        yield Violation("fairness", reason, np.inf)


def _reduce_tasks(instance: Instance, tasks_ik: FloatArray) -> FloatArray:
    """Return the tasks by tenant and class, scaled down by the largest excess within the tolerance."""
    present = np.flatnonzero(instance.group_of_tenant >= 0)
    given_ik = np.zeros((present.size, instance.capacity_kr.shape[0]))
    for k, number in enumerate(instance.class_of_server.tolist()):
        given_ik[:, number] += tasks_ik[present, k]
    given_ik[~instance.usable_ik] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        used_kr = given_ik.T @ instance.demand_ir / instance.capacity_kr
        over = max(float(np.nan_to_num(used_kr).max()), float((given_ik.sum(axis=1) / instance.limit_i).max()), 1.0)
    return given_ik / over
