"""The exact mechanism of a policy, asked about the cluster of now: what would be each tenant's fair share?

`make_exact_problem` takes what is needed from a snapshot, quickly. `solve_exactly` is the slow half and needs nothing
but that, so it can run elsewhere. What comes out orders tenants (`Targets`) and tells people what would be fair.
Nothing is ever placed to make an exact answer true: the divisible optimum may need tasks moved that are not moved.

Parts of tenants (see `fairbind.scheduling.fair_shares.demand_groups`) share their tenant's weight. The dominant share
of a tenant whose tasks differ is the maximum over the resources of all that it holds, not the sum over its tasks: with
the sum, a tenant of CPU tasks and memory tasks would pay twice for the two halves of one cluster, and lose the sharing
incentive. The filling that is meant raises all parts of a tenant together, in proportion to what they want, until each
is stopped, and what is not stopped makes up for what is. A part's weight must put it on its tenant's level at the time
when it stops:

    weight of part c = weight of the tenant * (dominant share of c) / (dominant share of all parts together)

where each part counts with what it runs when c stops: the same part of what it wants, or less if it stopped earlier.
That is known only afterwards, so the first round lets all stop together, and each round takes the weights from the
answer before, until they converge. (Asset fairness and TSF add up the shares of tasks by definition; so do weights.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import compute_gamma
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.solve import compute_allocation, get_mechanism
from fairbind.fairness.solvers.effort import Effort
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model import PolicySettings, Snapshot, SolverError, Targets
from fairbind.scheduling.fair_shares.demand_groups import (
    DemandGroup,
    ServerGroups,
    find_demand_groups,
    group_servers,
    limit_parts,
    merge_demand_groups,
)
from fairbind.scheduling.fair_shares.flat_weights import compute_flat_weights
from fairbind.scheduling.fair_shares.tenant_bounds import find_tenant_bounds, has_tree
from fairbind.scheduling.fair_shares.tenant_tree import flatten_tree, list_below, plant_tree
from fairbind.scheduling.policies.registry import POLICIES, Policy, get_policy

ROUNDS = 8
"""The answer after so many rounds counts, converged or not: the mechanism gives it with that round's weights."""

CONVERGED = 5e-3
"""Weights of parts that change by less, relatively, have converged."""

TREE_EFFORT = 5e8
"""A tree that needs more is flattened: some 10 s. Of 900 tenants drfh and tsf need a tenth of it, and ps-dsf
has enough for about 200 tenants on 6 classes of servers."""

TARGET_DIGITS = 9
"""Targets are rounded to so many digits: solvers are not exact beyond, and equal tenants should have equal targets."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactProblem:
    """A problem for the exact library, and what its rows mean.

    problem: its tenants are the parts. mechanism, alpha: for `compute_allocation`. tenants: the names of all tenants of
    the snapshot. tenant_i: index of each part's tenant. wanted_i: how many tasks of each part the tenant wants; if it
    has several, also more than could run. counted_ir: what a task of each counts in shares, as what runs does; the
    problem has what it takes. weight_n: the tenants' weights, as if all were siblings. class_of: the index of the
    problem's server entry by the server's name; empty where the mechanism sees a single pool.
    left_out: names of options (`Option`) that the cluster uses and the mechanism does not take, so that the answer does
    ignore them.
    below: indices of the tenants below each inner one. flattened: why the tree of tenants is not in the problem though
    there is one; None: it is, or there is none.
    """

    problem: Problem
    mechanism: str
    alpha: float | None
    tenants: tuple[str, ...]
    tenant_i: NDArray[np.intp]
    wanted_i: FloatArray
    counted_ir: FloatArray
    weight_n: FloatArray
    class_of: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    below: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    flattened: str | None = None

    def find_divided(self) -> list[NDArray[np.intp]]:
        """Return the rows of each tenant that has several parts."""
        order = np.argsort(self.tenant_i, kind="stable")
        rows = np.split(order, np.flatnonzero(np.diff(self.tenant_i[order])) + 1)
        return [some for some in rows if len(some) > 1]


@dataclass(frozen=True, slots=True, eq=False)
class ExactShares:
    """What the mechanism gives.

    fair_shares: the dominant share of each tenant of the snapshot, by name; 0 for who wants nothing or can run nothing.
    tasks: how many tasks these are, and parts of one, likewise.
    targets: the same for policies that follow it. rounds: how often it was solved. certificate: of the last answer.
    inner_shares: the dominant share of all that is below each inner tenant, by its name, which a leaf may have as well.
    left_out: as in the problem. flattened: likewise, or what the mechanism had against the tree.
    """

    fair_shares: Mapping[str, float]
    tasks: Mapping[str, float]
    targets: Targets
    rounds: int
    certificate: Mapping[str, object]
    inner_shares: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    flattened: str | None = None


def make_exact_problem(
    snapshot: Snapshot,
    settings: PolicySettings,
    *,
    policies: Mapping[str, Policy] = POLICIES,
    mechanisms: Mapping[str, Mechanism] = MECHANISMS,
) -> ExactProblem | None:
    """Return the problem of the policy's exact mechanism; None when it has none, or when there is no demand.

    policies, mechanisms: the registries in which both are looked up. Raises InvalidProblemError for an unknown policy.
    """
    mechanism_id = get_policy(settings.policy, policies).mechanism
    if mechanism_id is None:
        return None
    mechanism = get_mechanism(mechanism_id, mechanisms)
    options = mechanism.options
    axes = [r for r, total in enumerate(snapshot.total_r) if total > 0 and snapshot.counts_r[r]]
    is_pooled = Option.SERVERS not in options
    bounds = find_tenant_bounds(snapshot, axes) if has_tree(snapshot) else None
    groups = group_servers(snapshot, () if bounds is None else bounds.list_dividers())
    total_r = groups.capacity_pr[:, axes].sum(axis=0)
    unlimited = () if bounds is None else [snapshot.resources[r] for r in axes]
    demand_groups = find_demand_groups(snapshot, groups, axes, unlimited=unlimited)
    parts = merge_demand_groups(demand_groups, total_r, is_one=mechanism.is_one_bidder)
    if not mechanism.is_one_bidder:
        limit_parts(parts, groups, axes)
    if is_pooled:
        # In the order in which tenants came: it matters to the mechanism that knows arrivals.
        parts.sort(key=lambda part: (snapshot.tenants[part.tenant].since, snapshot.tenants[part.tenant].name))
    if not parts:
        return None
    names = tuple(tenant.name for tenant in snapshot.tenants)
    tenant_i = np.array([part.tenant for part in parts], dtype=np.intp)
    weight_n = np.array([float(tenant.weight) for tenant in snapshot.tenants])
    flattened = None
    problem = _build_problem(snapshot, groups, parts, axes)
    if bounds is not None:
        owners = [names[n] for n in tenant_i.tolist()]
        weight_n[tenant_i] = list(map(compute_flat_weights(snapshot, owners).__getitem__, owners))
        grows_i = _count_wanted(parts) * _compute_task_levels(problem, mechanism)
        problem = plant_tree(problem, snapshot, groups, bounds, owners=owners, grows_i=grows_i)
        if Option.TREE not in options:
            problem, flattened = flatten_tree(problem, weight_n[tenant_i]), "its mechanism takes no tree"
    problem, left_out = _leave_out(problem, parts, options)
    if is_pooled:
        problem = replace(problem.pooled(), is_pooled=False)
    if Option.EXPECTED_TENANTS in options:
        problem = replace(problem, expected_tenants=max(settings.expected_tenants or 0, len(parts)))
    exact = ExactProblem(
        problem=problem,
        mechanism=mechanism_id,
        alpha=settings.alpha if Option.ALPHA in options else None,
        tenants=names,
        tenant_i=tenant_i,
        wanted_i=_count_wanted(parts),
        counted_ir=np.array([part.counted_r for part in parts]),
        weight_n=weight_n,
        class_of={} if is_pooled else groups.group_of,
        left_out=left_out,
        below=list_below(snapshot.hierarchy, names),
        flattened=flattened,
    )
    return exact if problem.tree is not None else _weigh_parts(exact, mechanism)


def _compute_task_levels(problem: Problem, mechanism: Mechanism) -> FloatArray:
    """Return how much one task of each part adds to its tenant's level on the whole cluster, shape (I,)."""
    if mechanism.share_sum is ShareSum.TASK_SHARE:
        task_shares_i: FloatArray = 1 / _compute_tasks_alone(problem).sum(axis=1)
        return task_shares_i
    shares_i: FloatArray = (problem.demand_ir / problem.resource_weight_ir / problem.total_r).max(axis=1)
    return shares_i


def _weigh_parts(exact: ExactProblem, mechanism: Mechanism) -> ExactProblem:
    """Return the problem with the weights of the first round."""
    weight_i = compute_part_weights(exact, mechanism, _run_alone(exact))
    return replace(exact, problem=replace(exact.problem, weight_i=weight_i))


def _count_wanted(parts: list[DemandGroup]) -> FloatArray:
    """Return `ExactProblem.wanted_i`. How long a backlog is of only one part changes no answer, so it is left out."""
    several = Counter(part.tenant for part in parts)
    return np.array([part.count if several[part.tenant] > 1 else part.limit for part in parts])


def _build_problem(snapshot: Snapshot, groups: ServerGroups, parts: list[DemandGroup], axes: list[int]) -> Problem:
    """Return the problem with everything that the cluster uses; the weights are not those of the parts yet."""
    tenants = [snapshot.tenants[part.tenant] for part in parts]
    seen: dict[int, int] = {}
    names = []
    for part, tenant in zip(parts, tenants, strict=True):
        seen[part.tenant] = seen.get(part.tenant, 0) + 1
        names.append(tenant.name if seen[part.tenant] == 1 else f"{tenant.name}#{seen[part.tenant]}")
    resources = tuple(snapshot.resources[r] for r in axes)
    weights = [[float(tenant.resource_weights.get(name, 1)) for name in resources] for tenant in tenants]
    count = len(groups.names)
    return Problem(
        resources=resources,
        server_names=groups.names,
        capacity_kr=groups.capacity_pr[:, axes] / groups.count_p[:, None],
        count_k=groups.count_p.copy(),
        divisible_k=np.ones(count, dtype=np.bool_),
        alpha_k=np.full(count, np.nan),
        utility_a_k=np.ones(count),
        utility_b_k=np.zeros(count),
        tenant_names=tuple(names),
        demand_ir=np.array([part.demand_r for part in parts]),
        weight_i=np.ones(len(parts)),
        tasks_i=np.array([part.limit for part in parts]),
        eligible_ik=np.array([part.usable_p for part in parts]),
        resource_weight_ir=np.array(weights),
    )


def _leave_out(
    problem: Problem, parts: list[DemandGroup], options: frozenset[Option]
) -> tuple[Problem, tuple[str, ...]]:
    """Return the problem without what the mechanism does not take, and the names of what that was."""
    left_out = []
    if Option.RESOURCE_WEIGHTS not in options and not (problem.resource_weight_ir == 1).all():
        left_out.append(str(Option.RESOURCE_WEIGHTS))
        problem = replace(problem, resource_weight_ir=np.ones_like(problem.resource_weight_ir))
    if Option.ELIGIBLE not in options and not all(part.usable_p.all() for part in parts):
        left_out.append(str(Option.ELIGIBLE))
        problem = replace(problem, eligible_ik=np.ones_like(problem.eligible_ik))
    return problem, tuple(left_out)


def solve_exactly(
    exact: ExactProblem, *, warm: WarmStart | None = None, mechanisms: Mapping[str, Mechanism] = MECHANISMS
) -> ExactShares:
    """Return what the mechanism gives to each tenant. Raises what `compute_allocation` raises.

    warm: the same one for each problem of a cluster, to answer sooner. mechanisms: the registry that has the mechanism.
    """
    mechanism = get_mechanism(exact.mechanism, mechanisms)
    warm = WarmStart() if warm is None else warm
    if exact.problem.tree is not None:
        try:
            allocation = compute_allocation(
                exact.problem, exact.mechanism, warm=WarmStart(effort=Effort(TREE_EFFORT)), mechanisms=mechanisms
            )
            return _share(exact, allocation, 1)
        except SolverError as error:
            exact = flatten(exact, mechanism, str(error))
    problem, rounds = exact.problem, 0
    while True:
        allocation = compute_finite_allocation(problem, exact.mechanism, exact.alpha, warm, mechanisms)
        rounds += 1
        weight_i = compute_part_weights(exact, mechanism, allocation.tasks_ik)
        change_i = np.abs(weight_i - problem.weight_i)
        if rounds == ROUNDS or (change_i <= CONVERGED * problem.weight_i).all():
            return _share(exact, allocation, rounds)
        problem = replace(problem, weight_i=weight_i)


def flatten(exact: ExactProblem, mechanism: Mechanism, why: str) -> ExactProblem:
    """Return the problem without its tree: weights and ends of what is wanted stand for it, see `tenant_tree`."""
    problem = flatten_tree(exact.problem, exact.weight_n[exact.tenant_i])
    return _weigh_parts(replace(exact, problem=problem, flattened=why), mechanism)


def _share(exact: ExactProblem, allocation: Allocation, rounds: int) -> ExactShares:
    return ExactShares(
        fair_shares=compute_fair_shares(exact, allocation),
        tasks=count_tasks(exact, allocation),
        targets=compute_targets(exact, allocation),
        rounds=rounds,
        certificate=allocation.certificate,
        inner_shares=compute_inner_shares(exact, allocation),
        left_out=exact.left_out,
        flattened=exact.flattened,
    )


def compute_part_weights(exact: ExactProblem, mechanism: Mechanism, tasks_ik: FloatArray) -> FloatArray:
    """Return the weight with which each part is at its tenant's level when it stops, running so many tasks.

    mechanism: says what a level is (`level_scope`, `share_sum`). For one that compares tenants server by server the
    level is that of the server class where the part runs most.
    A part that runs nothing counts as if it had stopped with its tenant's first other part; see the module's story.
    """
    tasks_i = tasks_ik.sum(axis=1)
    home_i = tasks_ik.argmax(axis=1)
    here_ik = np.ones_like(tasks_ik)
    if mechanism.level_scope is LevelScope.SERVER:
        here_ik = np.divide(tasks_ik, tasks_i[:, None], out=here_ik, where=tasks_i[:, None] > 0)
    weight_i = exact.weight_n[exact.tenant_i]
    for rows in exact.find_divided():
        wanted_c = exact.wanted_i[rows]
        ran_c = tasks_i[rows] / wanted_c
        ran_c[ran_c <= 0] = min(ran_c[ran_c > 0], default=1.0)
        # What each part (columns) of the tenant runs when another one (rows) stops, and what that takes of each
        # resource (r) there.
        running_cc = np.minimum(ran_c[None, :], ran_c[:, None]) * wanted_c * here_ik[np.ix_(rows, home_i[rows])].T
        share_ccr = running_cc[:, :, None] * _compute_shares_of_tasks(exact.problem, mechanism, rows, home_i[rows])
        own_c = share_ccr.max(axis=2).diagonal()
        together_c = share_ccr.sum(axis=1).max(axis=1)
        weight_i[rows] *= np.divide(own_c, together_c, out=np.ones_like(own_c), where=together_c > 0)
    return weight_i


def _compute_shares_of_tasks(
    problem: Problem, mechanism: Mechanism, rows: NDArray[np.intp], home_c: NDArray[np.intp]
) -> FloatArray:
    """Return the share of one task of each part (second axis) where the parts (first axis) are at home, by resource.

    What is not there does not count. Where shares of tasks are added up, there is one number in place of the resources.
    """
    is_by_class = mechanism.level_scope is not LevelScope.CLUSTER
    if mechanism.share_sum is ShareSum.TASK_SHARE:
        alone_ck = _compute_tasks_alone(problem)[rows]
        fitting_cc = alone_ck[:, home_c].T if is_by_class else np.tile(alone_ck.sum(axis=1), (len(rows), 1))
        return np.divide(1.0, fitting_cc, out=np.zeros_like(fitting_cc), where=fitting_cc > 0)[:, :, None]
    demand_cr = problem.demand_ir[rows] / problem.resource_weight_ir[rows]
    whole_cr = np.tile(problem.total_r, (len(rows), 1))
    if is_by_class:
        whole_cr = (problem.capacity_kr * problem.count_k[:, None])[home_c]
    zeros_ccr = np.zeros((len(rows), *demand_cr.shape))
    shares_ccr: FloatArray = np.divide(
        demand_cr[None, :, :], whole_cr[:, None, :], out=zeros_ccr, where=whole_cr[:, None, :] > 0
    )
    return shares_ccr.sum(axis=2, keepdims=True) if mechanism.share_sum is ShareSum.SUM_OF_SHARES else shares_ccr


def _run_alone(exact: ExactProblem) -> FloatArray:
    """Return all tasks that are wanted, on the classes as each part would use them if it was alone, shape (I, K)."""
    tasks_ik = _compute_tasks_alone(exact.problem) * exact.problem.eligible_ik
    alone_ik: FloatArray = tasks_ik * (exact.wanted_i / tasks_ik.sum(axis=1))[:, None]
    return alone_ik


def _compute_tasks_alone(problem: Problem) -> FloatArray:
    """Return how many tasks of each part each class would run, if it may or not, shape (I, K)."""
    return compute_gamma(problem.capacity_kr * problem.count_k[:, None], problem.demand_ir)


def compute_finite_allocation(
    problem: Problem,
    mechanism_id: str,
    alpha: float | None,
    warm: WarmStart | None = None,
    mechanisms: Mapping[str, Mechanism] = MECHANISMS,
) -> Allocation:
    """Return the allocation, also of a one-pool mechanism whose tenants never have enough.

    There, tenants that would get more than they want get what they want, and what is left of the pool is divided among
    the others, until no tenant gets too much. The certificate is that of the last division.
    """
    if Option.TASKS in get_mechanism(mechanism_id, mechanisms).options:
        return compute_allocation(problem, mechanism_id, alpha=alpha, warm=warm, mechanisms=mechanisms)
    wanted_i = problem.tasks_i
    totals_i = np.zeros_like(wanted_i)
    rows = np.arange(len(wanted_i))
    while True:
        rest = _take_rest(problem, rows, totals_i)
        allocation = compute_allocation(rest, mechanism_id, alpha=alpha, mechanisms=mechanisms)
        is_sated = allocation.totals_i >= wanted_i[rows]
        if is_sated.all() or not is_sated.any():
            break
        totals_i[rows[is_sated]] = wanted_i[rows[is_sated]]
        rows = rows[~is_sated]
    totals_i[rows] = np.minimum(allocation.totals_i, wanted_i[rows])
    return replace(
        allocation,
        problem=problem,
        tasks_ik=totals_i[:, None],
        totals_i=totals_i,
        dominant_shares_i=totals_i * (problem.demand_ir / problem.total_r).max(axis=1),
    )


def _take_rest(problem: Problem, rows: NDArray[np.intp], totals_i: FloatArray) -> Problem:
    """Return the problem of these rows alone, on what the others' tasks leave, without ends of what they want."""
    left_kr = np.maximum(problem.capacity_kr - totals_i @ problem.demand_ir / problem.count_k[:, None], 0.0)
    expected = problem.expected_tenants
    return replace(
        problem,
        capacity_kr=left_kr,
        tenant_names=tuple(problem.tenant_names[i] for i in rows.tolist()),
        demand_ir=problem.demand_ir[rows],
        weight_i=problem.weight_i[rows],
        tasks_i=np.full(len(rows), np.inf),
        eligible_ik=problem.eligible_ik[rows],
        resource_weight_ir=problem.resource_weight_ir[rows],
        expected_tenants=None if expected is None else expected - (len(problem.tenant_names) - len(rows)),
    )


def compute_fair_shares(exact: ExactProblem, allocation: Allocation) -> dict[str, float]:
    """Return each tenant's dominant share in the allocation, by name; 0 for who wants nothing."""
    share_n = _compute_tenant_shares(exact, allocation.totals_i).max(axis=1, initial=0.0)
    return dict(zip(exact.tenants, share_n.tolist(), strict=True))


def compute_inner_shares(exact: ExactProblem, allocation: Allocation) -> dict[str, float]:
    """Return the dominant share of all that is below each inner tenant, by its name."""
    share_nr = _compute_tenant_shares(exact, allocation.totals_i)
    return {
        name: float(share_nr[list(below)].sum(axis=0).max(initial=0.0)) if below else 0.0
        for name, below in exact.below.items()
    }


def count_tasks(exact: ExactProblem, allocation: Allocation) -> dict[str, float]:
    """Return how many tasks each tenant has in the allocation, by name."""
    tasks_n = np.bincount(exact.tenant_i, weights=allocation.totals_i, minlength=len(exact.tenants))
    return dict(zip(exact.tenants, tasks_n.tolist(), strict=True))


def compute_targets(exact: ExactProblem, allocation: Allocation) -> Targets:
    """Return the allocation as targets for policies that follow it; who wants nothing has none."""
    problem = exact.problem
    known = np.unique(exact.tenant_i).tolist()
    share_nr = _compute_tenant_shares(exact, allocation.totals_i)
    shares = {exact.tenants[n]: _round(share_nr[n]) for n in known}
    if not exact.class_of:
        return Targets(exact.mechanism, problem.resources, shares)
    share_nk = np.array([_compute_tenant_shares(exact, tasks_i).max(axis=1) for tasks_i in allocation.tasks_ik.T]).T
    by_class = {exact.tenants[n]: _round(share_nk[n]) for n in known}
    return Targets(exact.mechanism, problem.resources, shares, problem.server_names, exact.class_of, by_class)


def _compute_tenant_shares(exact: ExactProblem, tasks_i: FloatArray) -> FloatArray:
    """Return the part of each resource's total that so many tasks of each part take, by tenant, shape (N, R)."""
    problem = exact.problem
    held_nr = np.zeros((len(exact.tenants), len(problem.resources)))
    np.add.at(held_nr, exact.tenant_i, tasks_i[:, None] * exact.counted_ir / problem.total_r)
    return held_nr


def _round(shares: FloatArray) -> tuple[float, ...]:
    return tuple(float(f"{share:.{TARGET_DIGITS}g}") for share in shares.tolist())


def is_same(one: ExactProblem, other: ExactProblem) -> bool:
    """Whether two problems have the same answer, because all their fields are equal."""
    return _is_equal(one, other)


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if is_dataclass(one):
        return type(one) is type(other) and all(
            _is_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    return bool(one == other)
