"""Strategy-proofness: can tenants run more of their true tasks by lies? A search, so None proves nothing.

There are three kinds of lies, each a property of its own. A tenant misstates its demand or claims fewer tasks; it hides
servers that it may use; two tenants lie together, about anything, and both gain. The search first tries the
deterministic lies. With a generator it also tries random ones, and for demands it walks from the best of all to better
ones (steps grow after a gain and shrink otherwise). A lie whose problem has no certified answer is skipped. Cost: about
twenty solves per tenant and two per try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.problems.problem import FloatArray, Problem
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
PLAIN_HIDINGS = 4  # of each tenant of two
FACTORS = (0.5, 0.9, 1.1, 2.0, 5.0)
HIDING = 0.3  # how often a random lie hides a server, or tasks
_SMALLEST, _LARGEST = 1e-15, 1e21  # what a problem may say, and how far the walk may go


@dataclass(frozen=True, slots=True)
class Lie:
    """A tenant's false report. hidden: entries that it claims not to be eligible for. tasks: its reported number.

    demand: per task, for each resource.
    """

    tenant: int
    demand: tuple[float, ...]
    tasks: float
    hidden: tuple[int, ...] = ()


def read_lie(problem: Problem, told: Mapping[str, Any]) -> Lie:
    """Return the lie of a counterexample: the tenant's entry in the problem with its report instead."""
    tenant = problem.tenant_names.index(told["tenant"])
    demand_r = problem.demand_ir[tenant].tolist()
    if "demand" in told:
        demand_r = [float(told["demand"].get(resource, 0.0)) for resource in problem.resources]
    hidden = tuple(k for k, server in enumerate(problem.server_names) if server not in told.get("eligible", [server]))
    return Lie(tenant, tuple(demand_r), float(problem.tasks_i[tenant]), hidden)


def apply_lies(problem: Problem, lies: Sequence[Lie]) -> Problem:
    """Return the problem that the lies of these tenants report."""
    demand_ir, tasks_i, eligible_ik = problem.demand_ir.copy(), problem.tasks_i.copy(), problem.eligible_ik.copy()
    for lie in lies:
        demand_ir[lie.tenant], tasks_i[lie.tenant] = lie.demand, lie.tasks
        eligible_ik[lie.tenant, list(lie.hidden)] = False
    return replace(problem, demand_ir=demand_ir, tasks_i=tasks_i, eligible_ik=eligible_ik)


def compute_true_tasks(
    problem: Problem, mechanism_id: str, lies: Sequence[Lie], *, alpha: float | None = None
) -> list[float]:
    """Return how many of its true tasks each liar runs with the bundle that its lie gets."""
    told = apply_lies(problem, lies)
    tasks_ik = compute_allocation(told, mechanism_id, alpha=alpha).tasks_ik
    return [_count_true_tasks(problem, told, lie.tenant, tasks_ik[lie.tenant]) for lie in lies]


def _count_true_tasks(problem: Problem, told: Problem, tenant: int, tasks_k: FloatArray) -> float:
    """Return how many true tasks run with the bundle of this many reported tasks."""
    held_kr = tasks_k[:, None] * told.demand_ir[tenant]
    true_r = problem.demand_ir[tenant]
    needed = true_r > 0
    worth_k = (held_kr[:, needed] / true_r[needed]).min(axis=1)
    if not problem.divisible_k.all():
        told_k, true_k = compute_alone(told)[tenant], compute_alone(problem)[tenant]
        time_k = np.divide(tasks_k, told_k, out=np.zeros(tasks_k.shape), where=told_k > 0)
        worth_k = np.where(problem.divisible_k, worth_k, time_k * true_k)
    return min(float(worth_k.sum()), float(problem.tasks_i[tenant]))


def find_manipulation(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the most profitable lie about a demand or tasks that was found, or None; at most LIARS tenants lie."""
    best = _find_best(_Search(problem, mechanism_id, allocation, alpha), _tell_demands, generator, tries)
    return None if best is None else best.describe(STRATEGY_PROOFNESS)


def find_hiding(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the most profitable servers to keep secret that were found, or None; at most LIARS tenants lie."""
    best = _find_best(_Search(problem, mechanism_id, allocation, alpha), _hide_servers, generator, tries)
    return None if best is None else best.describe(ELIGIBILITY_STRATEGY_PROOFNESS)


def find_collusion(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the lies by which a tenant, or two together, all gain most, or None."""
    search = _Search(problem, mechanism_id, allocation, alpha)
    found = [_find_best(search, tell, generator, tries) for tell in (_tell_demands, _hide_servers, _tell_together)]
    best = max((one for one in found if one is not None), key=lambda one: one.part, default=None)
    return None if best is None else best.describe(GROUP_STRATEGY_PROOFNESS)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What lies got their tellers. part: of what the one that gains least has with the truth."""

    search: _Search
    lies: tuple[Lie, ...]
    tasks: tuple[float, ...]
    part: float

    def describe(self, broken: Property) -> Witness:
        """Return the lies as a witness against the property."""
        documents = [self.search.describe(lie, tasks) for lie, tasks in zip(self.lies, self.tasks, strict=True)]
        told = " and ".join(text for text, _ in documents)
        if broken is GROUP_STRATEGY_PROOFNESS:
            evidence: dict[str, object] = {"liars": [document for _, document in documents]}
        else:
            evidence = documents[0][1]
        return Witness(broken.id, told, self.part, evidence)


class _Search:
    """A problem, the tasks of honest tenants, and the fields about which each may lie."""

    def __init__(self, problem: Problem, mechanism_id: str, allocation: Allocation, alpha: float | None) -> None:
        self.problem, self.mechanism_id, self.alpha = as_solved(problem), mechanism_id, alpha
        self.honest_i = allocation.totals_i
        self.alone_ik = compute_alone(self.problem)
        self.alone_i = self.alone_ik.sum(axis=1)
        self.options = MECHANISMS[mechanism_id].options

    def list_able(self) -> IntArray:
        """Return one tenant of each kind that could gain anything."""
        distinct = find_distinct_tenants(self.problem)
        able: IntArray = distinct[(self.alone_i[distinct] > 0) & (self.problem.tasks_i[distinct] > 0)]
        return able

    def get_truth(self, tenant: int) -> Lie:
        """Return the report of an honest tenant."""
        problem = self.problem
        return Lie(tenant, tuple(problem.demand_ir[tenant].tolist()), float(problem.tasks_i[tenant]))

    def list_hideable(self, tenant: int) -> list[int]:
        """Return the servers that it could hide: those that it can use, if it has more than one."""
        usable: list[int] = np.flatnonzero(self.alone_ik[tenant] > 0).tolist()
        return usable if Option.ELIGIBLE in self.options and len(usable) > 1 else []

    def may_cap(self, tenant: int) -> bool:
        """Whether it could claim fewer tasks than it runs."""
        return Option.TASKS in self.options and self.honest_i[tenant] > 0

    def judge(self, lies: tuple[Lie, ...]) -> _Outcome | None:
        """Return the outcome of the lies; None if there is no certified answer."""
        try:
            tasks = compute_true_tasks(self.problem, self.mechanism_id, lies, alpha=self.alpha)
        except SolverError:
            return None
        parts = []
        for lie, got in zip(lies, tasks, strict=True):
            honest, noise = float(self.honest_i[lie.tenant]), SOLVER_NOISE * float(self.alone_i[lie.tenant])
            parts.append((got - honest) / max(honest, noise))
        return _Outcome(self, lies, tuple(tasks), min(parts))

    def counts(self, outcome: _Outcome) -> bool:
        """Whether each liar gains more than the rounding of solvers."""
        for lie, got in zip(outcome.lies, outcome.tasks, strict=True):
            honest, alone = float(self.honest_i[lie.tenant]), float(self.alone_i[lie.tenant])
            if got - honest <= max(SMALLEST_VIOLATION * honest, SOLVER_NOISE * alone):
                return False
        return True

    def describe(self, lie: Lie, tasks: float) -> tuple[str, dict[str, object]]:
        """Return a liar's report and gain, in words and as plain JSON values."""
        problem = self.problem
        name, got = problem.tenant_names[lie.tenant], float(self.honest_i[lie.tenant])
        told = ", ".join(f"{r} {number(d)}" for r, d in zip(problem.resources, lie.demand, strict=True))
        hidden = [problem.server_names[k] for k in lie.hidden]
        claims = [f"a demand of {told}"]
        claims += [f"that it cannot use {', '.join(hidden)}"] if hidden else []
        claims += [f"that it has {number(lie.tasks)} tasks"] if lie.tasks != problem.tasks_i[lie.tenant] else []
        more = percent((tasks - got) / max(got, SOLVER_NOISE * float(self.alone_i[lie.tenant])))
        text = (
            f"{name} runs {number(tasks)} of its true tasks instead of {number(got)} ({more} more) by claiming "
            + ", ".join(claims)
        )
        return text, {
            "tenant": name,
            "tasks": got,
            "tasksByLying": tasks,
            "claims": {
                "demand": dict(zip(problem.resources, lie.demand, strict=True)),
                "hidden": hidden,
                "tasks": lie.tasks if np.isfinite(lie.tasks) else None,
            },
        }


_Tell = Callable[[_Search, "np.random.Generator | None", int], Iterator[_Outcome | None]]


def _find_best(search: _Search, tell: _Tell, generator: np.random.Generator | None, tries: int) -> _Outcome | None:
    """Return the outcome in which its liars gain most, if that counts."""
    best: _Outcome | None = None
    for outcome in tell(search, generator, tries):
        if outcome is not None and (best is None or outcome.part > best.part) and search.counts(outcome):
            best = outcome
    return best


def _tell_demands(search: _Search, generator: np.random.Generator | None, tries: int) -> Iterator[_Outcome | None]:
    """Yield the outcomes of one tenant's lies about its demand and its tasks."""
    for tenant in choose(search.list_able(), LIARS, generator).tolist():
        best: _Outcome | None = None
        for lie in _list_plain_lies(search, tenant):
            best = _get_better(best, search.judge((lie,)))
        if generator is not None:
            for _ in range(tries):
                best = _get_better(best, search.judge((_draw_lie(search, tenant, generator),)))
            best = _walk(search, best or search.judge((search.get_truth(tenant),)), generator, tries)
        yield best


def _get_better(best: _Outcome | None, other: _Outcome | None) -> _Outcome | None:
    return other if best is None or (other is not None and other.part > best.part) else best


def _walk(search: _Search, best: _Outcome | None, generator: np.random.Generator, steps: int) -> _Outcome | None:
    """Walk from the best lie to better ones near it."""
    length = 0.3
    for _ in range(steps if best is not None else 0):
        assert best is not None
        lie = replace(best.lies[0], demand=_multiply(best.lies[0].demand, length, generator))
        better = _get_better(best, search.judge((lie,)))
        length = min(length * 1.5, 2.0) if better is not best else max(length * 0.8, 1e-3)
        best = better
    return best


def _hide_servers(search: _Search, generator: np.random.Generator | None, tries: int) -> Iterator[_Outcome | None]:
    """Yield the outcomes when one tenant hides one server, all but one, or some of them."""
    for tenant in choose(search.list_able(), LIARS, generator).tolist():
        truth, hideable = search.get_truth(tenant), search.list_hideable(tenant)
        yield from (search.judge((lie,)) for lie in _list_hidings(truth, hideable))
        if generator is not None and len(hideable) > 2:  # noqa: PLR2004  (with two servers, there is no other choice)
            for _ in range(tries):
                yield search.judge((replace(truth, hidden=_draw_hidden(hideable, generator)),))


def _tell_together(search: _Search, generator: np.random.Generator | None, tries: int) -> Iterator[_Outcome | None]:
    """Yield the outcomes of lies by one and by two tenants: each hides a server, or changes anything."""
    able = choose(search.list_able(), LIARS, generator).tolist()
    if generator is not None:
        for one in able:
            yield from (search.judge((_draw_lie(search, one, generator, is_hiding=True),)) for _ in range(tries))
    for pair in combinations(able, 2):
        hidings = [
            list(_list_hidings(search.get_truth(one), search.list_hideable(one)))[:PLAIN_HIDINGS] for one in pair
        ]
        yield from (search.judge(lies) for lies in product(*hidings))
        if generator is not None:
            for _ in range(tries):
                yield search.judge(tuple(_draw_lie(search, one, generator, is_hiding=True) for one in pair))


def _list_hidings(truth: Lie, hideable: list[int]) -> Iterator[Lie]:
    """Yield one server hidden, and all but one hidden."""
    for server in hideable:
        yield replace(truth, hidden=(server,))
        if len(hideable) > 2:  # noqa: PLR2004  (with two servers, hiding one is keeping one)
            yield replace(truth, hidden=tuple(k for k in hideable if k != server))


def _list_plain_lies(search: _Search, tenant: int) -> Iterator[Lie]:
    """Yield lies: one resource more or less, even one not needed; fewer tasks."""
    truth, total_r = search.get_truth(tenant), search.problem.total_r
    demand_r = np.array(truth.demand)
    share = float((demand_r[total_r > 0] / total_r[total_r > 0]).max())
    for r in np.flatnonzero(total_r > 0):
        for factor in FACTORS:
            told_r = demand_r.copy()
            told_r[r] = factor * (demand_r[r] if demand_r[r] > 0 else 0.2 * share * total_r[r])
            yield replace(truth, demand=tuple(told_r.tolist()))
    if search.may_cap(tenant):
        for factor in (0.5, 0.9):
            yield replace(truth, tasks=factor * float(search.honest_i[tenant]))


def _draw_lie(search: _Search, tenant: int, generator: np.random.Generator, *, is_hiding: bool = False) -> Lie:
    """Return a random lie: all demands changed, sometimes tasks hidden too, and servers if it may hide some."""
    truth = search.get_truth(tenant)
    demand = _multiply(truth.demand, float(generator.choice([0.1, 0.5, 1.5])), generator)
    hidden = _draw_hidden(search.list_hideable(tenant), generator) if is_hiding else ()
    tasks = truth.tasks
    if search.may_cap(tenant) and generator.random() < HIDING:
        tasks = min(tasks, float(search.honest_i[tenant]) * float(generator.uniform(0.3, 1.0)))
    return Lie(tenant, demand, tasks, hidden)


def _draw_hidden(hideable: list[int], generator: np.random.Generator) -> tuple[int, ...]:
    """Return some of the servers, or none."""
    hidden = tuple(k for k in hideable if generator.random() < HIDING)
    return hidden if len(hidden) < len(hideable) else ()


def _multiply(demand: tuple[float, ...], spread: float, generator: np.random.Generator) -> tuple[float, ...]:
    """Return the demands times random factors, within the valid range; zeros stay."""
    demand_r = np.array(demand)
    changed_r = np.clip(demand_r * np.exp(spread * generator.standard_normal(demand_r.size)), _SMALLEST, _LARGEST)
    return tuple(np.where(demand_r > 0, changed_r, 0.0).tolist())


STRATEGY_PROOFNESS = Property(
    id="strategy-proofness",
    name="Strategy-proofness, of demands",
    definition="No tenant can run more of its true tasks by lying about its demand or its number of tasks.",
    source="Ghodsi et al., NSDI 2011, section 3; Wang et al., TPDS 2015, section 3.3 (groups of one)",
    find=find_manipulation,
    is_searched=True,
    is_for_trees=True,
)

ELIGIBILITY_STRATEGY_PROOFNESS = Property(
    id="eligibility-strategy-proofness",
    name="Strategy-proofness, of eligibility",
    definition="No tenant can run more of its tasks by keeping servers secret that it may use.",
    source="here: as strategy-proofness, for constraints instead of demands",
    find=find_hiding,
    options=frozenset({Option.ELIGIBLE}),
    is_searched=True,
    is_for_trees=True,
)

GROUP_STRATEGY_PROOFNESS = Property(
    id="group-strategy-proofness",
    name="Group strategy-proofness",
    definition=(
        "No tenants can each run more of their true tasks by lying together about demands, numbers of tasks and the "
        "servers that they may use."
    ),
    source="Wang et al., TPDS 2015, section 3.3 and proposition 3 (a member that does not gain)",
    find=find_collusion,
    is_searched=True,
    is_for_trees=True,
)
