"""Checks that every answer must pass: no negative tasks, no capacity or limit exceeded.

The tolerance is relative: `FEASIBILITY` of the capacity or limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem
from fairbind.fairness.problems.tree import Bounds, Tree
from fairbind.model.errors import InvalidProblemError, SolverError

FEASIBILITY = 1e-9


class CertificateError(SolverError):
    """A condition that an answer does not meet, with the place and the amount as values.

    words: what is wrong, with {tenant} and {server} where their names belong. amount: by how much, relatively; inf for
    a tenant that has nothing. tenant: its place in the problem. server_class: its number in the instance.
    """

    def __init__(
        self,
        mechanism_id: str,
        words: str,
        amount: float,
        *,
        tenant: int | None = None,
        server_class: int | None = None,
    ) -> None:
        """Word it by numbers; `show` words it by names."""
        self.mechanism_id, self.words, self.amount = mechanism_id, words, amount
        self.tenant, self.server_class = tenant, server_class
        super().__init__(f"{mechanism_id}: {self.show(f'tenant {tenant}', f'server class {server_class}')}")

    def show(self, tenant: str, server: str) -> str:
        """Return what is wrong, with these names."""
        return self.words.format(tenant=tenant, server=server)


class RefusedTenantError(InvalidProblemError):
    """A tenant that a mechanism cannot take. tenant: its place in the problem. field: which of its fields is wrong."""

    def __init__(self, tenant: int, field: str, words: str) -> None:
        """Word it by number; `show` adds the name."""
        self.path, self.words, self.tenant = f"tenants[{tenant}].{field}", words, tenant
        super().__init__(f"{self.path}: {words}")

    def show(self, tenant: str) -> str:
        """Return what is wrong, with this name."""
        return f"{self.path} of {tenant}: {self.words}"


_Fail = Callable[[str, float, int | None, int | None], SolverError]
"""Makes the error of: words, amount, row of the tenant, row of the server."""


def check_feasible(instance: Instance, tasks_ik: FloatArray, mechanism_id: str) -> float:
    """Return the largest relative violation, at most FEASIBILITY; raise CertificateError above it.

    On a non-divisible class the parts of its time, tasks / gamma, must not exceed 1 (PS-DSF, equation 17).
    """
    fail = partial(_fail_in_instance, mechanism_id, instance)
    _check_numbers(tasks_ik, instance.usable_ik.shape, mechanism_id, fail)
    violation = _check_amounts(
        tasks_ik, instance.usable_ik, instance.demand_ir, instance.capacity_kr, instance.limit_i, fail
    )
    if instance.tree is not None:
        violation = max(violation, _check_limits(instance.tree, tasks_ik, instance.demand_ir, fail))
    if not instance.divisible_k.all():
        whole = np.flatnonzero(~instance.divisible_k)
        gamma_ik = np.where(instance.usable_ik, instance.gamma_ik, 1.0)[:, whole]
        excess, row = _find_excess((tasks_ik[:, whole] / gamma_ik).sum(axis=0), np.ones(whole.size))
        if excess > FEASIBILITY:
            raise fail(f"tasks take {excess:.3g} more than the time of {{server}}", excess, None, int(whole[row]))
        violation = max(violation, excess)
    return violation


def check_feasible_problem(problem: Problem, tasks_ik: FloatArray, mechanism_id: str) -> float:
    """Return the largest relative violation of the problem itself, as written; raise SolverError above FEASIBILITY."""
    fail = partial(_fail_in_problem, mechanism_id, problem)
    _check_numbers(tasks_ik, problem.eligible_ik.shape, mechanism_id, fail)
    capacity_kr = problem.count_k[:, None] * problem.capacity_kr
    violation = _check_amounts(tasks_ik, problem.eligible_ik, problem.demand_ir, capacity_kr, problem.tasks_i, fail)
    if problem.tree is not None:
        violation = max(violation, _check_limits(problem.tree, tasks_ik, problem.demand_ir, fail))
    return violation


def _fail_in_instance(
    mechanism_id: str, instance: Instance, words: str, amount: float, group: int | None, server_class: int | None
) -> SolverError:
    tenant = None if group is None else int(instance.rank_i[group])
    return CertificateError(mechanism_id, words, amount, tenant=tenant, server_class=server_class)


def _fail_in_problem(
    mechanism_id: str, problem: Problem, words: str, _: float, tenant: int | None, server: int | None
) -> SolverError:
    tenant_name = "" if tenant is None else f"tenant {problem.tenant_names[tenant]}"
    server_name = "" if server is None else f"server {problem.server_names[server]}"
    return SolverError(f"{mechanism_id}: {words.format(tenant=tenant_name, server=server_name)}")


def _check_numbers(tasks_ik: FloatArray, shape: tuple[int, ...], mechanism_id: str, fail: _Fail) -> None:
    if tasks_ik.shape != shape:
        raise SolverError(f"{mechanism_id}: an answer of shape {tasks_ik.shape} to a problem of shape {shape}")
    is_wrong_ik = ~(np.isfinite(tasks_ik) & (tasks_ik >= 0))
    for i, k in np.argwhere(is_wrong_ik)[:1].tolist():
        raise fail(f"{{tenant}} has {tasks_ik[i, k]} tasks on {{server}}, not a finite number from 0 on", np.inf, i, k)


def _check_amounts(
    tasks_ik: FloatArray,
    may_run_ik: BoolArray,
    demand_ir: FloatArray,
    capacity_kr: FloatArray,
    limit_i: FloatArray,
    fail: _Fail,
) -> float:
    """Return the largest relative violation of a capacity or a limit, at most FEASIBILITY."""
    for i, k in np.argwhere((tasks_ik != 0) & ~may_run_ik)[:1].tolist():
        raise fail("{tenant} has tasks on {server}, which cannot run them or is not eligible", np.inf, i, k)
    excess, server = _find_excess(tasks_ik.T @ demand_ir, capacity_kr)
    if excess > FEASIBILITY:
        raise fail(f"use of a resource exceeds the capacity of {{server}} by {excess:.3g} of it", excess, None, server)
    over, tenant = _find_excess(tasks_ik.sum(axis=1), limit_i)
    if over > FEASIBILITY:
        raise fail(f"the tasks of {{tenant}} exceed its number of tasks by {over:.3g} of it", over, tenant, None)
    return max(excess, over)


def _check_limits(tree: Tree, tasks_ik: FloatArray, demand_ir: FloatArray, fail: _Fail) -> float:
    """Return the largest relative violation of a limit of the tree, at most FEASIBILITY."""
    excess, row = _find_excess(compute_held(tree, tree.limits, tasks_ik, demand_ir), tree.limits.amount_b)
    if excess > FEASIBILITY:
        vertex = int(tree.limits.vertex_b[row])
        name = "{tenant}" if vertex < tree.tenants else f"tenant {tree.inner_names[vertex - tree.tenants]}"
        raise fail(f"what {name} holds exceeds its limit by {excess:.3g} of it", excess, vertex, None)
    return excess


def compute_held(tree: Tree, bounds: Bounds, tasks_ik: FloatArray, demand_ir: FloatArray) -> FloatArray:
    """Return what each bound's vertex holds of its resource on its servers, shape (B,)."""
    below_vi = tree.find_below()[bounds.vertex_b]
    on_servers_bi = bounds.on_bk @ tasks_ik.T
    held_b: FloatArray = (below_vi * on_servers_bi * demand_ir[:, bounds.resource_b].T).sum(axis=1)
    return held_b


def _find_excess(used: FloatArray, allowed: FloatArray) -> tuple[float, int]:
    """Return the largest (used - allowed) / allowed, at least 0, and its row; inf for a use where none is allowed."""
    excess = used - allowed
    rows, *columns = np.nonzero(excess > 0)
    if not rows.size:
        return 0.0, 0
    with np.errstate(divide="ignore"):
        relative = excess[(rows, *columns)] / allowed[(rows, *columns)]
    worst = int(relative.argmax())
    return float(relative[worst]), int(rows[worst])
