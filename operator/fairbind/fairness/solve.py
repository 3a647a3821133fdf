"""Solves a problem by a mechanism and verifies the allocation: the entry point of the library.

Options that a mechanism does not take are refused by name. The answer is checked twice: by the mechanism's certificate
on the reduced instance, and for feasibility on the original problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from fairbind.fairness.mechanisms.mechanism import Mechanism, Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation, Proof, Solution
from fairbind.fairness.problems.instance import Instance, expand_tasks, reduce_problem
from fairbind.fairness.problems.negligible import drop_negligible
from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem
from fairbind.fairness.problems.tree import ROOT
from fairbind.fairness.problems.verify import (
    CertificateError,
    RefusedTenantError,
    check_feasible,
    check_feasible_problem,
)
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model.errors import InvalidProblemError, SolverError
from fairbind.model.policy import LEAST_ALPHA

NOTHING_RUNS = {"method": "no tenant can run anything"}

# How an option is spelled in a refusal.
_MEANINGS = {
    Option.WEIGHT: "weights",
    Option.RESOURCE_WEIGHTS: "resourceWeights",
    Option.TASKS: "finite tasks",
    Option.SERVERS: "several server entries; pool them (--pool, or pool: true)",
    Option.ELIGIBLE: "eligible",
    Option.DIVISIBLE: "servers that are not divisible",
    Option.ALPHA: "alpha",
    Option.UTILITY: "utilityA and utilityB",
    Option.EXPECTED_TENANTS: "expectedTenants",
    Option.TREE: "trees, guarantees and limits",
}


def compute_allocation(
    problem: Problem,
    mechanism_id: str,
    *,
    alpha: float | None = None,
    solver: str | None = None,
    warm: WarmStart | None = None,
    mechanisms: Mapping[str, Mechanism] = MECHANISMS,
) -> Allocation:
    """Return the mechanism's allocation, verified.

    alpha: for servers without their own (default 2); only for mechanisms that take it.
    solver: a published iteration of the mechanism that approaches the answer; None for the exact one. Its certificate
    is what it reports: iterations, merit, residual.
    warm: the state that a similar problem left, and that this problem replaces; it saves time.
    mechanisms: the registry in which the id is looked up.
    Raises InvalidProblemError for an unknown mechanism or an option that it does not take, SolverError if no answer
    can be proved right.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> compute_allocation(make_problem([[9, 18]], [[1, 4], [3, 1]]), "drf").totals_i.round(9).tolist()
    [3.0, 2.0]
    """
    mechanism = get_mechanism(mechanism_id, mechanisms)
    check_options(problem, mechanism, alpha=alpha)
    approach = None if solver is None else _get_solver(mechanism, solver)
    solved = problem.pooled() if problem.is_pooled else problem
    instance = reduce_for(mechanism, solved, alpha=alpha, merges_tenants=mechanism.merges_tenants)
    evidence: Mapping[str, Any] = {}
    certificate: Mapping[str, Any]
    if instance.weight_i.size:
        with naming_errors(mechanism_id, instance, solved):
            if approach is None:
                solution, certificate = _solve(problem, instance, mechanism, warm)
            else:
                solution, certificate = _approach(instance, mechanism_id, solver, approach(instance))
        evidence = solution.evidence
        tasks_ik = expand_tasks(instance, solution.tasks_ik)
    else:
        certificate = NOTHING_RUNS
        tasks_ik = np.zeros(solved.eligible_ik.shape)
    check_feasible_problem(solved, tasks_ik, mechanism_id)
    tasks_ik.setflags(write=False)
    totals_i = tasks_ik.sum(axis=1)
    return Allocation(
        problem=solved,
        mechanism=mechanism_id,
        tasks_ik=tasks_ik,
        totals_i=totals_i,
        dominant_shares_i=compute_dominant_shares(solved, totals_i),
        certificate=certificate,
        status="optimal" if solver is None else "converged",
        proof=Proof(instance, name_resources(mechanism, solved), evidence),
    )


def _get_solver(mechanism: Mechanism, solver: str) -> Callable[[Instance], Solution]:
    """Return the iterative solver of that id; raise InvalidProblemError, with all that there are, if it is none."""
    if solver not in mechanism.solvers:
        known = f"known are {', '.join(mechanism.solvers)}" if mechanism.solvers else "it has only the exact one"
        raise InvalidProblemError(f"solver: {solver!r} is no solver of mechanism {mechanism.id}; {known}")
    return mechanism.solvers[solver]


def _approach(
    instance: Instance, mechanism_id: str, solver: str | None, solution: Solution
) -> tuple[Solution, Mapping[str, Any]]:
    """Return the answer of an iterative solver with its values, and its report, with what was checked, for a proof."""
    excess = check_feasible(instance, solution.tasks_ik, mechanism_id)
    values = {name: value for name, value in solution.evidence.items() if name != "report"}
    report = {"method": solver, "largestExcess": excess, **solution.evidence["report"]}
    return replace(solution, evidence=values), report


def reduce_for(mechanism: Mechanism, problem: Problem, *, alpha: float | None, merges_tenants: bool) -> Instance:
    """Return the instance that the mechanism solves."""
    return reduce_problem(
        problem,
        alpha=alpha,
        merges_tenants=merges_tenants,
        sorts_resources=_sorts_resources(mechanism),
    )


def _sorts_resources(mechanism: Mechanism) -> bool:
    # One pool leaves no choice of a server, and there drbf breaks ties by the problem's own order of resources.
    return Option.SERVERS in mechanism.options


def name_resources(mechanism: Mechanism, problem: Problem) -> tuple[str, ...]:
    """Return the names of the instance's resources: those that a server has, in the instance's order."""
    has_some = problem.total_r > 0
    names = [name for name, is_there in zip(problem.resources, has_some, strict=True) if is_there]
    return tuple(sorted(names) if _sorts_resources(mechanism) else names)


def name_classes(instance: Instance, problem: Problem) -> list[list[str]]:
    """Return the names of the servers in each class."""
    names: list[list[str]] = [[] for _ in range(instance.capacity_kr.shape[0])]
    for name, number in zip(problem.server_names, instance.class_of_server.tolist(), strict=True):
        names[number].append(name)
    return names


def _solve(
    problem: Problem, instance: Instance, mechanism: Mechanism, warm: WarmStart | None
) -> tuple[Solution, Mapping[str, Any]]:
    """Return the mechanism's answer and its certificate; if the warm start fails, solve again without it."""
    if warm is None or mechanism.resolve is None:
        return _prove(instance, mechanism, mechanism.solve(instance))
    warm.begin(mechanism.id, problem, instance)
    if warm.state is not None:
        try:
            return _prove(instance, mechanism, mechanism.resolve(instance, warm))
        except SolverError:
            warm.state = None
    return _prove(instance, mechanism, mechanism.resolve(instance, warm))


def _prove(instance: Instance, mechanism: Mechanism, solution: Solution) -> tuple[Solution, Mapping[str, Any]]:
    """Return the answer without negligible tasks and its certificate; with them if it is not right without them."""
    trimmed_ik = drop_negligible(instance, solution.tasks_ik)
    if trimmed_ik is not solution.tasks_ik:
        trimmed = replace(solution, tasks_ik=trimmed_ik)
        try:
            return trimmed, mechanism.certify(instance, trimmed)
        except SolverError:
            pass  # many negligible amounts together are something
    return solution, mechanism.certify(instance, solution)


def show_condition(error: CertificateError, instance: Instance, problem: Problem) -> str:
    """Return the error's message, with the names of the tenant and of the servers of the class."""
    tenant = "" if error.tenant is None else f"tenant {problem.tenant_names[error.tenant]}"
    server = (
        "" if error.server_class is None else f"server {', '.join(name_classes(instance, problem)[error.server_class])}"
    )
    return error.show(tenant, server)


@contextmanager
def naming_errors(mechanism_id: str, instance: Instance, problem: Problem) -> Iterator[None]:
    """Put the names of the mechanism, the tenant and the servers into errors of solvers, which know none of them."""
    try:
        yield
    except SolverError as error:
        raise _name_mechanism(error, mechanism_id, instance, problem) from error
    except RefusedTenantError as error:
        raise InvalidProblemError(error.show(problem.tenant_names[error.tenant])) from error


def _name_mechanism(error: SolverError, mechanism_id: str, instance: Instance, problem: Problem) -> SolverError:
    """Return the error with the mechanism in front and by names."""
    if isinstance(error, CertificateError):
        return SolverError(f"{mechanism_id}: {show_condition(error, instance, problem)}")
    message = str(error)
    return error if message.startswith(f"{mechanism_id}: ") else SolverError(f"{mechanism_id}: {message}")


def compute_dominant_shares(problem: Problem, totals_i: FloatArray) -> FloatArray:
    """Return max over r of total x d_ir / C_r, shape (I,); resources that no server has are left out."""
    exists_r = problem.total_r > 0
    share_per_task_i = (problem.demand_ir[:, exists_r] / problem.total_r[exists_r]).max(axis=1, initial=0.0)
    shares_i: FloatArray = totals_i * share_per_task_i
    return shares_i


def get_mechanism(mechanism_id: str, mechanisms: Mapping[str, Mechanism] = MECHANISMS) -> Mechanism:
    """Return the mechanism of that id; raise InvalidProblemError, with the nearest known one, if there is none."""
    if mechanism_id in mechanisms:
        return mechanisms[mechanism_id]
    near = get_close_matches(mechanism_id, mechanisms, n=1)
    meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(mechanisms))}"
    raise InvalidProblemError(f"mechanism: {mechanism_id!r} is unknown; {meant}")


def check_options(problem: Problem, mechanism: Mechanism, *, alpha: float | None = None) -> None:
    """Raise InvalidProblemError for the first option that the problem uses and the mechanism does not take.

    Options that a pool cannot keep come first: no mechanism takes them.
    """
    if problem.is_pooled:
        _check_pool(problem)
    for option, find_field in _FIELDS.items():
        field = find_field(problem)
        if field is not None and option not in mechanism.options:
            raise InvalidProblemError(f"{field}: mechanism {mechanism.id} does not take {_MEANINGS[option]}")
    whole = _find_row(problem, "servers", "divisible", ~problem.divisible_k)
    if problem.tree is not None and whole is not None:
        raise InvalidProblemError(f"{whole}: servers that are not divisible cannot be divided along a tree")
    if alpha is not None:
        if Option.ALPHA not in mechanism.options:
            raise InvalidProblemError(f"alpha: {alpha!r}: mechanism {mechanism.id} does not take alpha")
        if not LEAST_ALPHA <= alpha < np.inf:
            raise InvalidProblemError(f"alpha: {alpha!r}: must be a number from {LEAST_ALPHA:g} on")
    for k in np.flatnonzero(problem.alpha_k < LEAST_ALPHA)[:1]:
        given = float(problem.alpha_k[k])
        where = f"servers[{k}].alpha of {problem.server_names[k]}"
        raise InvalidProblemError(f"{where}: {given!r}: must be a number from {LEAST_ALPHA:g} on")


def _check_pool(problem: Problem) -> None:
    """Raise InvalidProblemError for an option that one pool cannot keep."""
    for field, what in (
        (_find_row(problem, "tenants", "eligible", ~problem.eligible_ik.all(axis=1)), "every tenant may use a pool"),
        (_find_row(problem, "servers", "alpha", _differs(problem.alpha_k)), "servers of a pool must agree on it"),
        (_find_utility(problem, _differs), "servers of a pool must agree on it"),
        (
            _find_row(problem, "servers", "divisible", _differs(problem.divisible_k)),
            "servers of a pool must agree on it",
        ),
    ):
        if field is not None:
            raise InvalidProblemError(f"{field}: {what}")


def _differs(values: FloatArray | BoolArray) -> BoolArray:
    """Return which values differ from the first (NaN equals NaN)."""
    differs: BoolArray = (values != values[:1]) & ~(np.isnan(values) & np.isnan(values[:1]))
    return differs


def _find_many_servers(problem: Problem) -> str | None:
    return "servers" if len(problem.server_names) > 1 and not problem.is_pooled else None


def _find_utility(problem: Problem, find_marked: Callable[[FloatArray], BoolArray]) -> str | None:
    """Return the path of the first utility that is marked. find_marked: which values are, less their defaults."""
    a = _find_row(problem, "servers", "utilityA", find_marked(problem.utility_a_k - 1))
    return a or _find_row(problem, "servers", "utilityB", find_marked(problem.utility_b_k))


def _find_expected(problem: Problem) -> str | None:
    return None if problem.expected_tenants is None else "expectedTenants"


def _find_tree(problem: Problem) -> str | None:
    """Return the path of the first tenant with a field of a tree."""
    tree = problem.tree
    if tree is None:
        return None
    vertices = [
        *((int(v), "parent") for v in np.flatnonzero(tree.parent_v != ROOT)),
        *((int(v), "guarantee") for v in tree.guarantees.vertex_b),
        *((int(v), "limit") for v in tree.limits.vertex_b),
    ]
    if not vertices:
        return "tenants"
    vertex, field = min(vertices, key=lambda found: (int(tree.place_v[found[0]]), found[1]))
    names = [*problem.tenant_names, *tree.inner_names]
    return f"tenants[{tree.place_v[vertex]}].{field} of {names[vertex]}"


def _find_row(problem: Problem, collection: str, field: str, marked: npt.ArrayLike) -> str | None:
    """Return the path and the name of the first server or tenant that is marked."""
    rows = np.flatnonzero(marked)
    if not rows.size:
        return None
    names = problem.server_names if collection == "servers" else problem.tenant_names
    row = rows[0] if collection == "servers" or problem.tree is None else problem.tree.place_v[rows[0]]
    return f"{collection}[{row}].{field} of {names[rows[0]]}"


# Where a problem uses an option, by its field's path; None where it does not. An option that is the same for each
# tenant (all weights equal) counts as not used.
_FIELDS: Mapping[Option, Callable[[Problem], str | None]] = {
    Option.SERVERS: _find_many_servers,
    Option.ELIGIBLE: lambda problem: _find_row(problem, "tenants", "eligible", ~problem.eligible_ik.all(axis=1)),
    Option.WEIGHT: lambda problem: _find_row(problem, "tenants", "weight", _differs(problem.weight_i)),
    Option.RESOURCE_WEIGHTS: lambda problem: _find_row(
        problem, "tenants", "resourceWeights", ~(problem.resource_weight_ir == 1).all(axis=1)
    ),
    Option.TASKS: lambda problem: _find_row(problem, "tenants", "tasks", np.isfinite(problem.tasks_i)),
    Option.DIVISIBLE: lambda problem: _find_row(problem, "servers", "divisible", ~problem.divisible_k),
    Option.ALPHA: lambda problem: _find_row(problem, "servers", "alpha", ~np.isnan(problem.alpha_k)),
    Option.UTILITY: lambda problem: _find_utility(problem, lambda values: values != 0),
    Option.EXPECTED_TENANTS: _find_expected,
    Option.TREE: _find_tree,
}
