"""What every answer must pass, whoever computed it: no negative tasks, no capacity, limit or rule exceeded.

Amounts are compared relatively, with `FEASIBILITY`: 1e-9 of the capacity or limit that must hold.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.model.errors import SolverError

FEASIBILITY = 1e-9


class CertificateError(SolverError):
    """A condition of fairness that an answer does not meet, with where and by how much as values.

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


def check_feasible(instance: Instance, tasks_ik: FloatArray, mechanism_id: str) -> float:
    """Return the largest relative violation, at most FEASIBILITY; raise SolverError above it.

    On a non-divisible class the parts of its time, tasks / gamma, must not exceed 1 (PS-DSF, equation 17).
    """
    _check_numbers(tasks_ik, instance.usable_ik.shape, mechanism_id)
    if (tasks_ik[~instance.usable_ik] != 0).any():
        raise SolverError(f"{mechanism_id}: tasks on a server that cannot run them")
    used_kr = tasks_ik.T @ instance.demand_ir
    violations = [
        _compute_excess(used_kr, instance.capacity_kr),
        _compute_excess(tasks_ik.sum(axis=1), instance.limit_i),
    ]
    if not instance.divisible_k.all():
        whole = ~instance.divisible_k
        gamma_ik = np.where(instance.usable_ik, instance.gamma_ik, 1.0)[:, whole]
        violations.append(_compute_excess((tasks_ik[:, whole] / gamma_ik).sum(axis=0), np.ones(int(whole.sum()))))
    return _check_violation(max(violations), mechanism_id)


def check_feasible_problem(problem: Problem, tasks_ik: FloatArray, mechanism_id: str) -> float:
    """Return the largest relative violation of the problem itself, as written; raise SolverError above FEASIBILITY."""
    _check_numbers(tasks_ik, problem.eligible_ik.shape, mechanism_id)
    if (tasks_ik[~problem.eligible_ik] != 0).any():
        raise SolverError(f"{mechanism_id}: tasks on a server that is not eligible")
    capacity_kr = problem.count_k[:, None] * problem.capacity_kr
    violation = max(
        _compute_excess(tasks_ik.T @ problem.demand_ir, capacity_kr),
        _compute_excess(tasks_ik.sum(axis=1), problem.tasks_i),
    )
    return _check_violation(violation, mechanism_id)


def _check_numbers(tasks_ik: FloatArray, shape: tuple[int, ...], mechanism_id: str) -> None:
    if tasks_ik.shape != shape:
        raise SolverError(f"{mechanism_id}: an answer of shape {tasks_ik.shape} to a problem of shape {shape}")
    if not np.isfinite(tasks_ik).all() or (tasks_ik < 0).any():
        raise SolverError(f"{mechanism_id}: tasks that are negative or no number")


def _compute_excess(used: FloatArray, allowed: FloatArray) -> float:
    """Return the largest (used - allowed) / allowed, at least 0; any use where nothing is allowed is infinite."""
    excess = used - allowed
    over = excess > 0
    with np.errstate(divide="ignore"):
        return float((excess[over] / allowed[over]).max(initial=0.0))


def _check_violation(violation: float, mechanism_id: str) -> float:
    if violation > FEASIBILITY:
        raise SolverError(f"{mechanism_id}: the answer exceeds what there is by {violation:.3g} of it")
    return violation
