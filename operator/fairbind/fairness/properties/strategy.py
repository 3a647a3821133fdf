"""Strategy-proofness: can a tenant run more of its true tasks by a lie? Searched for, so None proves nothing.

Lies: another demand vector (one resource up or down, all at random), eligible servers kept secret, fewer tasks. First
those that need no chance; with a generator also random ones, and from the best of all a walk that keeps whatever is
better (steps grow after a gain and shrink after none). A lie whose problem has no answer that can be proved right is
passed over. Cost: about twenty solves a tenant and two for each try.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties.variants import as_solved, choose, compute_alone, find_distinct_tenants
from fairbind.fairness.properties.witness import (
    SMALLEST_VIOLATION,
    SOLVER_NOISE,
    TRIES,
    Property,
    Witness,
    number,
    percent,
)
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import SolverError

LIARS = 4
FACTORS = (0.5, 0.9, 1.1, 2.0, 5.0)
HIDING = 0.3  # how often a random lie hides a server, or tasks
_SMALLEST, _LARGEST = 1e-15, 1e21  # what a problem may say, and how far the walk may go


@dataclass(frozen=True, slots=True)
class Lie:
    """What a tenant says instead of the truth. hidden: entries that it claims it may not use. tasks: how many it has.

    demand: per task, for each resource.
    """

    tenant: int
    demand: tuple[float, ...]
    tasks: float
    hidden: tuple[int, ...] = ()


def apply_lie(problem: Problem, lie: Lie) -> Problem:
    """Return the problem as the others see it when one tenant lies."""
    demand_ir, tasks_i, eligible_ik = problem.demand_ir.copy(), problem.tasks_i.copy(), problem.eligible_ik.copy()
    demand_ir[lie.tenant], tasks_i[lie.tenant] = lie.demand, lie.tasks
    eligible_ik[lie.tenant, list(lie.hidden)] = False
    return replace(problem, demand_ir=demand_ir, tasks_i=tasks_i, eligible_ik=eligible_ik)


def compute_true_tasks(problem: Problem, mechanism_id: str, lie: Lie, *, alpha: float | None = None) -> float:
    """Return how many of its true tasks the liar runs with what its lie gets it."""
    told = apply_lie(problem, lie)
    tasks_k = compute_allocation(told, mechanism_id, alpha=alpha).tasks_ik[lie.tenant]
    held_kr = tasks_k[:, None] * told.demand_ir[lie.tenant]
    true_r = problem.demand_ir[lie.tenant]
    needed = true_r > 0
    worth_k = (held_kr[:, needed] / true_r[needed]).min(axis=1)
    if not problem.divisible_k.all():
        told_k, true_k = compute_alone(told)[lie.tenant], compute_alone(problem)[lie.tenant]
        time_k = np.divide(tasks_k, told_k, out=np.zeros(tasks_k.shape), where=told_k > 0)
        worth_k = np.where(problem.divisible_k, worth_k, time_k * true_k)
    return min(float(worth_k.sum()), float(problem.tasks_i[lie.tenant]))


def find_manipulation(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the most profitable lie that was found, or None. At most LIARS tenants are tried."""
    solved = as_solved(problem)
    alone_i = compute_alone(solved).sum(axis=1)
    able = find_distinct_tenants(solved)
    able = able[(alone_i[able] > 0) & (solved.tasks_i[able] > 0)]
    best: tuple[float, float, Lie] | None = None
    for tenant in choose(able, LIARS, generator):
        search = _Search(solved, mechanism_id, int(tenant), float(allocation.totals_i[tenant]), alpha)
        for lie in _list_plain_lies(search):
            search.consider(lie)
        if generator is not None:
            for _ in range(tries):
                search.consider(_draw_lie(search, generator))
            search.walk(generator, tries)
        gain = search.best - search.honest
        if gain > max(SMALLEST_VIOLATION * search.honest, SOLVER_NOISE * alone_i[tenant]):
            part = gain / max(search.honest, SOLVER_NOISE * alone_i[tenant])
            if (best is None or part > best[0]) and search.best_lie is not None:
                best = (part, search.best, search.best_lie)
    if best is None:
        return None
    return _describe(solved, allocation, best[0], best[1], best[2])


class _Search:
    """The lies of one tenant that were tried so far. Mutable: the best so far."""

    def __init__(self, problem: Problem, mechanism_id: str, tenant: int, honest: float, alpha: float | None) -> None:
        self.problem, self.mechanism_id, self.tenant, self.honest, self.alpha = (
            problem,
            mechanism_id,
            tenant,
            honest,
            alpha,
        )
        options = MECHANISMS[mechanism_id].options
        usable = np.flatnonzero(compute_alone(problem)[tenant] > 0)
        self.hideable = usable if Option.ELIGIBLE in options and usable.size > 1 else usable[:0]
        self.may_cap = Option.TASKS in options
        self.truth = Lie(tenant, tuple(problem.demand_ir[tenant].tolist()), float(problem.tasks_i[tenant]))
        self.best = -np.inf
        self.best_lie: Lie | None = None

    def consider(self, lie: Lie) -> bool:
        """Try a lie; return whether it is the best so far."""
        try:
            tasks = compute_true_tasks(self.problem, self.mechanism_id, lie, alpha=self.alpha)
        except SolverError:
            return False
        if tasks > self.best:
            self.best, self.best_lie = tasks, lie
            return True
        return False

    def walk(self, generator: np.random.Generator, steps: int) -> None:
        """Go from the best lie to better ones near it."""
        length = 0.3
        for _ in range(steps):
            start = self.best_lie or self.truth
            lie = replace(start, demand=_multiply(start.demand, length, generator))
            length = min(length * 1.5, 2.0) if self.consider(lie) else max(length * 0.8, 1e-3)


def _list_plain_lies(search: _Search) -> Iterator[Lie]:
    """Yield one resource more or less, also one that is not needed; one server hidden, all but one hidden; a cap."""
    truth, total_r = search.truth, search.problem.total_r
    demand_r = np.array(truth.demand)
    share = float((demand_r[total_r > 0] / total_r[total_r > 0]).max())
    for r in np.flatnonzero(total_r > 0):
        for factor in FACTORS:
            told_r = demand_r.copy()
            told_r[r] = factor * (demand_r[r] if demand_r[r] > 0 else 0.2 * share * total_r[r])
            yield replace(truth, demand=tuple(told_r.tolist()))
    for server in search.hideable:
        yield replace(truth, hidden=(int(server),))
        if search.hideable.size > 2:  # noqa: PLR2004  (with two servers, hiding one is keeping one)
            yield replace(truth, hidden=tuple(int(k) for k in search.hideable if k != server))
    if search.may_cap and search.honest > 0:
        for factor in (0.5, 0.9):
            yield replace(truth, tasks=factor * search.honest)


def _draw_lie(search: _Search, generator: np.random.Generator) -> Lie:
    """Return a random lie: all demands changed, now and then servers hidden or tasks kept secret too."""
    demand = _multiply(search.truth.demand, float(generator.choice([0.1, 0.5, 1.5])), generator)
    hides = search.hideable[generator.random(search.hideable.size) < HIDING]
    hidden = tuple(int(k) for k in hides) if hides.size < search.hideable.size else ()
    tasks = search.truth.tasks
    if search.may_cap and search.honest > 0 and generator.random() < HIDING:
        tasks = min(tasks, search.honest * float(generator.uniform(0.3, 1.0)))
    return Lie(search.truth.tenant, demand, tasks, hidden)


def _multiply(demand: tuple[float, ...], spread: float, generator: np.random.Generator) -> tuple[float, ...]:
    """Return the demands times random factors, inside what a problem may say; zeros stay."""
    demand_r = np.array(demand)
    changed_r = np.clip(demand_r * np.exp(spread * generator.standard_normal(demand_r.size)), _SMALLEST, _LARGEST)
    return tuple(np.where(demand_r > 0, changed_r, 0.0).tolist())


def _describe(problem: Problem, allocation: Allocation, part: float, tasks: float, lie: Lie) -> Witness:
    """Return the lie as a witness."""
    name, got = problem.tenant_names[lie.tenant], float(allocation.totals_i[lie.tenant])
    told = ", ".join(f"{r} {number(d)}" for r, d in zip(problem.resources, lie.demand, strict=True))
    hidden = [problem.server_names[k] for k in lie.hidden]
    claims = f"a demand of {told}"
    if hidden:
        claims += f", that it cannot use {', '.join(hidden)}"
    if lie.tasks != problem.tasks_i[lie.tenant]:
        claims += f", that it has {number(lie.tasks)} tasks"
    return Witness(
        STRATEGY_PROOFNESS.id,
        f"{name} runs {number(tasks)} of its true tasks instead of {number(got)} ({percent(part)} more) by claiming "
        + claims,
        part,
        {
            "tenant": name,
            "tasks": got,
            "tasksByLying": tasks,
            "claims": {
                "demand": dict(zip(problem.resources, lie.demand, strict=True)),
                "hidden": hidden,
                "tasks": lie.tasks if np.isfinite(lie.tasks) else None,
            },
        },
    )


STRATEGY_PROOFNESS = Property(
    id="strategy-proofness",
    name="Strategy-proofness",
    definition=(
        "No tenant can run more of its true tasks by lying about its demand, its number of tasks or the servers that "
        "it may use."
    ),
    source="Ghodsi et al., NSDI 2011, section 3; Wang et al., TPDS 2015, section 3.3 (groups of one)",
    find=find_manipulation,
    is_searched=True,
)
