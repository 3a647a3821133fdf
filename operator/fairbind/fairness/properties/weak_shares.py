"""Weak sharing incentive: is there an equal partition of the pool that gives no tenant more than it has?

An equal partition gives each tenant its part of every resource, but not of every server: all of a tenant's processors
may lie on one server and its memory on another, where it can use neither. So there are many, and one that is no better
for any tenant is enough. On one server there is one only, and the property is sharing incentive.

A partition is looked for in three ways, the cheap ones first. Each tenant's slice of every server is one. Another keeps
what tenants below their parts have, and divides the rest in proportion to what each lacks: for `drfh` it is always good
(Wang et al., proposition 5, where levels are equal; `guarantees` says why in general). Else a mixed-integer program
looks at all: a tenant runs few tasks on a server if it has little of SOME resource there, so each pair of tenant and
server chooses which. Complexity: exponential in the pairs of tenants below their parts and servers. A witness is
proved, as the program has then been solved to its end; where it is too large, or ends early, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import IntArray, compute_gamma
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.shares import compute_parts, compute_slice
from fairbind.fairness.properties.variants import as_solved, compute_alone
from fairbind.fairness.properties.witness import (
    SMALLEST_VIOLATION,
    TRIES,
    Property,
    Witness,
    counts,
    find_worst,
    number,
    percent,
)
from fairbind.fairness.solvers.highs import make_silent_highs

_LARGEST_CHOICE = 400
"""Choices of the program: more are not tried."""
_NODES = 20_000
"""Nodes of the program's tree after which it ends: seconds, and always the same answer."""


def find_unshared_weakly(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return who would gain even by the equal partition that gives the least to those who gain, or None."""
    del mechanism_id, alpha, generator, tries
    solved = as_solved(problem)
    alone_i = compute_alone(solved).sum(axis=1)
    got_i = allocation.totals_i
    if find_worst(got_i, compute_slice(problem), alone_i) is None:
        return None
    kept_i = _count_tasks(solved, _keep_and_fill(solved, allocation.tasks_ik))
    if solved.divisible_k.all() and find_worst(got_i, kept_i, alone_i) is None:
        return None
    best_i = _search(solved, got_i)
    worst = None if best_i is None else find_worst(got_i, best_i, alone_i)
    if best_i is None or worst is None:
        return None
    tenant, part = worst
    name, got, own = solved.tenant_names[tenant], float(got_i[tenant]), float(best_i[tenant])
    return Witness(
        WEAK_SHARING_INCENTIVE.id,
        f"{name} runs {number(got)} tasks; even in the equal partition nearest to what all run it would run "
        f"{number(own)} ({percent(part)} less)",
        part,
        {"tenant": name, "tasks": got, "partition": own},
    )


def _compute_parts(problem: Problem) -> FloatArray:
    """Return each tenant's part of each resource, shape (I, R); of all the same where time is shared."""
    part_ir = compute_parts(problem)
    return part_ir if problem.divisible_k.all() else np.broadcast_to(part_ir.min(axis=1, keepdims=True), part_ir.shape)


def _count_tasks(problem: Problem, held_ikr: FloatArray) -> FloatArray:
    """Return how many of its own tasks each tenant runs with these amounts, shape (I,)."""
    alone_ik = compute_alone(problem)
    runs_ik = np.zeros(alone_ik.shape)
    for i, held_kr in enumerate(held_ikr):
        runs_ik[i] = compute_gamma(held_kr, problem.demand_ir[i : i + 1])[0]
    tasks_i: FloatArray = np.where(alone_ik > 0, runs_ik, 0.0).sum(axis=1)
    return np.minimum(tasks_i, problem.tasks_i)


def _keep_and_fill(problem: Problem, tasks_ik: FloatArray) -> FloatArray:
    """Return the partition in which tenants below their parts keep what they have, in amounts, shape (I, K, R)."""
    total_r = np.where(problem.total_r > 0, problem.total_r, 1.0)
    share_ikr = tasks_ik[:, :, None] * problem.demand_ir[:, None, :] / total_r
    share_kr = problem.count_k[:, None] * problem.capacity_kr / total_r
    part_ir = _compute_parts(problem)
    is_below_i = (share_ikr.sum(axis=1) < part_ir).all(axis=1)
    kept_ikr = np.where(is_below_i[:, None, None], share_ikr, 0.0)
    lacks_ir = part_ir - kept_ikr.sum(axis=1)
    left_kr = np.maximum(share_kr - kept_ikr.sum(axis=0), 0.0)
    left_r = left_kr.sum(axis=0)
    filled_ikr = left_kr * (lacks_ir / np.where(left_r > 0, left_r, 1.0))[:, None, :]
    held_ikr: FloatArray = (kept_ikr + filled_ikr) * total_r
    return held_ikr


@dataclass(slots=True)
class _Rows:
    """A program that grows by variables and rows."""

    upper: list[float] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    rows: list[tuple[float, dict[int, float], float]] = field(default_factory=list)

    def add(self, upper: float) -> int:
        """Add a variable from 0 to `upper`."""
        self.upper.append(upper)
        return len(self.upper) - 1

    def choose(self) -> int:
        """Add a variable that is 0 or 1."""
        self.choices.append(self.add(1.0))
        return self.choices[-1]

    def add_row(self, least: float, entries: dict[int, float], most: float) -> None:
        """Add a row: a sum of variables between two bounds."""
        self.rows.append((least, entries, most))

    def minimise(self, variable: int) -> FloatArray | None:
        """Return the values with the least of one variable; None if the program did not come to its end."""
        import highspy  # noqa: PLC0415  (18 ms, only for those who ask)

        solver = make_silent_highs()
        for name, value in {"mip_max_nodes": _NODES, "mip_rel_gap": 1e-9, "mip_abs_gap": 1e-10}.items():
            solver.setOptionValue(name, value)
        for upper in self.upper:
            solver.addVar(0.0, upper)
        for one in self.choices:
            solver.changeColIntegrality(one, highspy.HighsVarType.kInteger)
        solver.changeColCost(variable, 1.0)
        for least, entries, most in self.rows:
            where = np.array(list(entries), dtype=np.int32)
            solver.addRow(least, most, where.size, where, np.array(list(entries.values())))
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values: FloatArray = np.array(solver.getSolution().col_value)
        return values


def _search(problem: Problem, got_i: FloatArray) -> FloatArray | None:
    """Return the tasks of all in the partition that lets the tenants gain least; None: nothing gained, or unknown.

    Better is counted in the most that any partition could give the tenant. Only tenants that some partition could give
    more take part; the others get what is left, which is their part of every resource.
    """
    part_ir, alone_ik = _compute_parts(problem), compute_alone(problem)
    most_i = compute_gamma(problem.total_r[None, :], problem.demand_ir / part_ir)[:, 0]
    wanted_i = np.minimum(most_i, problem.tasks_i)
    takes_part_i: IntArray = np.flatnonzero(counts(wanted_i - got_i, wanted_i, alone_ik.sum(axis=1)))
    pairs = int((alone_ik[takes_part_i] > 0).sum())
    if not takes_part_i.size or pairs * len(problem.resources) > _LARGEST_CHOICE:
        return None
    program = _Partition(problem, part_ir, alone_ik)
    better = program.rows.add(1.0)
    tasks: dict[int, dict[int, float]] = {}
    for i in takes_part_i.tolist():
        tasks[i] = program.add_tenant(i)
        gains = {variable: factor / most_i[i] for variable, factor in tasks[i].items()}
        program.rows.add_row(-np.inf, {**gains, better: -1.0}, got_i[i] / most_i[i])
    program.limit_capacity()
    values = program.rows.minimise(better)
    if values is None or values[better] <= SMALLEST_VIOLATION:
        return None
    tasks_i = np.array(got_i)
    for i, terms in tasks.items():
        tasks_i[i] = sum(values[variable] * factor for variable, factor in terms.items())
    return np.minimum(tasks_i, problem.tasks_i)


class _Partition:
    """The equal partitions of a problem as variables and rows: which part of each server's resource a tenant has."""

    def __init__(self, problem: Problem, part_ir: FloatArray, alone_ik: FloatArray) -> None:
        self.rows = _Rows()
        self._problem = problem
        self._part_ir = part_ir
        self._alone_ik = alone_ik
        self._amount_kr = problem.count_k[:, None] * problem.capacity_kr
        self._share_kr = self._amount_kr / np.where(problem.total_r > 0, problem.total_r, 1.0)
        self._held: dict[tuple[int, int, int], int] = {}

    def add_tenant(self, i: int) -> dict[int, float]:
        """Add a tenant that has its part of every resource; return the tasks that it runs, as a sum of variables."""
        servers = range(len(self._problem.server_names))
        for k in servers:
            time = None if self._problem.divisible_k[k] else self.rows.add(1.0)  # one part of all resources
            for r in np.flatnonzero(self._share_kr[k] > 0).tolist():
                self._held[i, k, r] = self.rows.add(self._limit(i, k, r)) if time is None else time
        for r in np.flatnonzero(self._problem.total_r > 0).tolist():
            own = {self._held[i, k, r]: float(self._share_kr[k, r]) for k in servers if (i, k, r) in self._held}
            self.rows.add_row(self._part_ir[i, r], own, self._part_ir[i, r])
        return {self._add_runs(i, k): float(self._alone_ik[i, k]) for k in servers if self._alone_ik[i, k] > 0}

    def limit_capacity(self) -> None:
        """Let no more of a server's resource be given than there is."""
        shared: dict[tuple[int, int], dict[int, float]] = {}
        for (_, k, r), variable in self._held.items():
            shared.setdefault((k, r), {})[variable] = 1.0
        for entries in shared.values():
            self.rows.add_row(-np.inf, entries, 1.0)

    def _limit(self, i: int, k: int, r: int) -> float:
        return min(1.0, float(self._part_ir[i, r] / self._share_kr[k, r]))

    def _add_runs(self, i: int, k: int) -> int:
        """Add what the tenant runs on the server, as a part of what it would run there alone.

        It is the least that any resource allows; so the program chooses one, and may not count less than that allows.
        """
        runs = self.rows.add(1.0)
        needed = np.flatnonzero(self._problem.demand_ir[i] > 0).tolist()
        if not self._problem.divisible_k[k]:
            self.rows.add_row(0.0, {runs: 1.0, self._held[i, k, needed[0]]: -1.0}, np.inf)
            return runs
        choices = {r: self.rows.choose() for r in needed}
        for r, choice in choices.items():
            per_part = float(self._amount_kr[k, r] / self._problem.demand_ir[i, r] / self._alone_ik[i, k])
            most = per_part * self._limit(i, k, r)
            self.rows.add_row(-most, {runs: 1.0, self._held[i, k, r]: -per_part, choice: -most}, np.inf)
        self.rows.add_row(1.0, dict.fromkeys(choices.values(), 1.0), 1.0)
        return runs


WEAK_SHARING_INCENTIVE = Property(
    id="weak-sharing-incentive",
    name="Weak sharing incentive",
    definition=(
        "There is a partition that gives every tenant its part (weight / sum of all weights) of the total of every "
        "resource, from whichever servers, and in which no tenant would run more tasks than it does."
    ),
    source="Wang et al., TPDS 2015, Definitions 3 and 4; weights, finite tasks and eligibility: here",
    find=find_unshared_weakly,
    is_searched=True,
)
