"""Prepares a problem for a solver: no units, no duplicates, no tenants that can run nothing.

No mechanism depends on the unit of a resource, on a common factor of the weights, or on whether equal servers or equal
tenants are listed once or many times. So solvers get an `Instance`: totals are 1, weights sum to 1, equal entries are
one class and equal tenants one group. `expand_tasks` translates the answer back.

Classes and groups are sorted by their first name. So the order in which a problem lists servers and tenants does not
affect a solver, not even by the rounding of a sum. Where the order of arrival is part of the problem, groups have one
tenant each and keep that order. Resources can be sorted by name as well: where an answer does not determine which
server runs what, a solver takes the first option that it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem
from fairbind.fairness.problems.tree import Bounds, Tree

IntArray = npt.NDArray[np.intp]

DEFAULT_ALPHA = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A solver's input. K classes of servers, I groups of tenants, R resources; every total is 1. Read-only.

    capacity_kr: all servers of the class together, as a part of the resource's total, shape (K, R).
    demand_ir: demand of one task as a part of the totals (those of ALL servers), shape (I, R).
    weight_i: of the whole group; all sum to 1. limit_i: tasks that the group has, inf allowed, > 0.
    usable_ik: eligible, and the class has some of each resource that a task needs; every row has a True.
    gamma_ik: tasks of i that the class runs when i has it alone: min over r of c_kr / d_ir; 0 where not usable.
    monopoly_i: tasks of i that ALL servers would run, eligible or not, each by itself (the papers' gamma_n of TSF).
    share_per_task_i: max over r of d_ir / resource weight: the (per-resource weighted) dominant share of one task.
    alpha_k, divisible_k: of the class. log_linear_k: log b of its utility, g'(z) = z ** -alpha + b / z, with z in the
    instance's units; -inf where b is 0. member_i: tenants in the group. rank_i: place of the group's first tenant in
    the order of arrival, from 0. tenants_total: all tenants of the problem, including those that can run nothing.
    tree: in which each group is one tenant; amounts are parts of the totals, servers classes, and the weights of inner
    tenants in the unit of weight_i.

    Resources that no server has are left out, and so are the tenants that need them. The other resources are in the
    problem's order, or sorted by name on request.
    I may be 0: then there is nothing to solve, and `compute_allocation` calls no solver.
    """

    capacity_kr: FloatArray
    demand_ir: FloatArray
    weight_i: FloatArray
    limit_i: FloatArray
    usable_ik: BoolArray
    gamma_ik: FloatArray
    monopoly_i: FloatArray
    share_per_task_i: FloatArray
    resource_weight_ir: FloatArray
    divisible_k: BoolArray
    alpha_k: FloatArray
    log_linear_k: FloatArray
    member_i: FloatArray
    rank_i: IntArray
    tenants_total: int
    expected_tenants: int | None
    group_of_tenant: IntArray  # shape (tenants of the problem,); -1 for those that can run nothing
    class_of_server: IntArray  # shape (entries of the problem,)
    part_of_class: FloatArray  # shape (entries of the problem,): the entry's part of its class
    tree: Tree | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def reduce_problem(
    problem: Problem, *, alpha: float | None = None, merges_tenants: bool = True, sorts_resources: bool = False
) -> Instance:
    """Return the instance of a problem. Complexity: O(tenants * servers * resources), and sorting the names.

    alpha: for servers without their own. merges_tenants: False keeps equal tenants apart, in the problem's order.
    sorts_resources: True sorts resources by name.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> instance = reduce_problem(make_problem([[9, 18]], [[1, 4], [3, 1], [1, 4]]))
    >>> instance.demand_ir.round(3).tolist(), instance.weight_i.round(3).tolist(), instance.group_of_tenant.tolist()
    ([[0.111, 0.222], [0.333, 0.056]], [0.667, 0.333], [0, 1, 0])
    """
    by_name = _sort_names(problem.server_names)
    total_r = problem.count_k[by_name] @ problem.capacity_kr[by_name]
    order_r = _sort_names(problem.resources) if sorts_resources else np.arange(total_r.size)
    axes = order_r[total_r[order_r] > 0]
    can_run_ik = _find_usable(problem)
    present = np.flatnonzero(can_run_ik.any(axis=1) & (problem.tasks_i > 0))
    alpha_k, log_linear_k = _reduce_utilities(problem, DEFAULT_ALPHA if alpha is None else alpha)

    class_of_server, first_server = _merge_rows(
        [problem.capacity_kr, problem.divisible_k[:, None], alpha_k[:, None], log_linear_k[:, None]],
        [np.packbits(problem.eligible_ik[present].T, axis=1), *_pack_bounds(problem)],
        problem.server_names,
    )
    count_k = np.bincount(class_of_server[by_name], problem.count_k[by_name], minlength=first_server.size)
    capacity_kr = (count_k[:, None] * problem.capacity_kr[first_server])[:, axes] / total_r[axes]

    group_of_present = first_present = np.arange(present.size)
    if merges_tenants:
        group_of_present, first_present = _merge_tenants(problem, present, first_server)
    first_tenant = present[first_present]
    group_of_tenant = np.full(len(problem.tenant_names), -1, dtype=np.intp)
    group_of_tenant[present] = group_of_present
    member_i = np.bincount(group_of_present, minlength=first_tenant.size).astype(np.float64)
    rank_i = np.full(first_tenant.size, group_of_tenant.size, dtype=np.intp)
    np.minimum.at(rank_i, group_of_present, present)

    demand_ir = problem.demand_ir[first_tenant][:, axes] / total_r[axes]
    heaviest = problem.weight_i[present].max(initial=0.0)
    weight_i = member_i * (problem.weight_i[first_tenant] / heaviest)
    log_unit_k = np.log(count_k) - np.log(heaviest or 1.0) - np.log(weight_i.sum() or 1.0)
    usable_ik = can_run_ik[np.ix_(first_tenant, first_server)]
    alone_ik = compute_gamma(capacity_kr, demand_ir)
    resource_weight_ir = problem.resource_weight_ir[first_tenant][:, axes]
    return Instance(
        capacity_kr=capacity_kr,
        demand_ir=demand_ir,
        weight_i=weight_i / (weight_i.sum() or 1.0),
        limit_i=member_i * problem.tasks_i[first_tenant],
        usable_ik=usable_ik,
        gamma_ik=np.where(usable_ik, alone_ik, 0.0),
        monopoly_i=alone_ik.sum(axis=1),
        share_per_task_i=(demand_ir / resource_weight_ir).max(axis=1, initial=0.0),
        resource_weight_ir=resource_weight_ir,
        divisible_k=problem.divisible_k[first_server],
        alpha_k=alpha_k[first_server],
        log_linear_k=log_linear_k[first_server] + (alpha_k[first_server] - 1) * log_unit_k,
        member_i=member_i,
        rank_i=rank_i,
        tenants_total=len(problem.tenant_names),
        expected_tenants=problem.expected_tenants,
        group_of_tenant=group_of_tenant,
        class_of_server=class_of_server,
        part_of_class=problem.count_k / count_k[class_of_server],
        tree=_reduce_tree(
            problem, first_tenant, first_server, axes, total_r, 1 / ((heaviest or 1.0) * (weight_i.sum() or 1.0))
        ),
    )


def _merge_tenants(problem: Problem, present: IntArray, first_server: IntArray) -> tuple[IntArray, IntArray]:
    """Return the group of each tenant and the first of each group; see `_merge_rows`.

    In a tree no two are merged: each has a place of its own.
    """
    apart_i = np.zeros(problem.weight_i.size) if problem.tree is None else np.arange(problem.weight_i.size)
    weight_limit_i3 = np.stack([problem.weight_i, problem.tasks_i, apart_i], axis=1)[present]
    return _merge_rows(
        [problem.demand_ir[present], problem.resource_weight_ir[present], weight_limit_i3],
        [np.packbits(problem.eligible_ik[np.ix_(present, first_server)], axis=1)],
        [problem.tenant_names[i] for i in present],
    )


def _pack_bounds(problem: Problem) -> list[npt.NDArray[np.uint8]]:
    """Return which guarantees and limits count each server: equal servers differ when these do."""
    if problem.tree is None:
        return []
    return [np.packbits(bounds.on_bk.T, axis=1) for bounds in (problem.tree.guarantees, problem.tree.limits)]


def _reduce_tree(
    problem: Problem,
    tenants: IntArray,
    first_server: IntArray,
    axes: IntArray,
    total_r: FloatArray,
    weight_unit: float,
) -> Tree | None:
    if problem.tree is None:
        return None
    tree = problem.tree.keep(tenants)
    axis_of_resource = np.full(total_r.size, -1, dtype=np.intp)
    axis_of_resource[axes] = np.arange(axes.size)

    def reduce_bounds(bounds: Bounds) -> Bounds:
        kept = axis_of_resource[bounds.resource_b] >= 0  # no tenant can hold what no server has
        resource_b = bounds.resource_b[kept]
        return Bounds(
            bounds.vertex_b[kept],
            axis_of_resource[resource_b],
            bounds.amount_b[kept] / total_r[resource_b],
            bounds.on_bk[kept][:, first_server],
        )

    return replace(
        tree,
        weight_n=tree.weight_n * weight_unit,
        resource_weight_nr=tree.resource_weight_nr[:, axes],
        guarantees=reduce_bounds(tree.guarantees),
        limits=reduce_bounds(tree.limits),
    )


def _reduce_utilities(problem: Problem, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the exponents and log b of g'(z) = z ** -alpha + b / z, in the problem's units, shapes (K,).

    A common factor of a server's utility does not matter. B / z alone is the utility of alpha 1, and so is
    (A + B) / z.
    """
    alpha_k = np.where(np.isnan(problem.alpha_k), alpha, problem.alpha_k)
    alpha_k[problem.utility_a_k == 0] = 1.0
    is_blend_k = (problem.utility_b_k > 0) & (alpha_k != 1)
    log_linear_k = np.full(alpha_k.shape, -np.inf)
    log_linear_k[is_blend_k] = np.log(problem.utility_b_k[is_blend_k])
    log_linear_k[is_blend_k] -= alpha_k[is_blend_k] * np.log(problem.utility_a_k[is_blend_k])
    return alpha_k, log_linear_k


def compute_gamma(capacity_kr: FloatArray, demand_ir: FloatArray) -> FloatArray:
    """Return how many tasks of each group alone each class runs, shape (I, K): min over needed r of c_kr / d_ir."""
    gamma_ik = np.full((demand_ir.shape[0], capacity_kr.shape[0]), np.inf)
    for r in range(demand_ir.shape[1]):
        needs_i = demand_ir[:, r] > 0
        ratio_ik = capacity_kr[None, :, r] / demand_ir[needs_i, None, r]
        gamma_ik[needs_i] = np.minimum(gamma_ik[needs_i], ratio_ik)
    return gamma_ik


def expand_tasks(instance: Instance, tasks_ik: FloatArray) -> FloatArray:
    """Return tasks per tenant and server entry of the problem, from tasks per group and class.

    A group's tasks are split evenly over its tenants, a class's tasks in proportion to the servers of each entry.
    """
    has_group = instance.group_of_tenant >= 0
    expanded = np.zeros((instance.group_of_tenant.size, instance.class_of_server.size))
    if instance.member_i.size:
        per_member_ik = tasks_ik / instance.member_i[:, None]
        per_entry = per_member_ik[:, instance.class_of_server] * instance.part_of_class
        expanded[has_group] = per_entry[instance.group_of_tenant[has_group]]
    return expanded


def _find_usable(problem: Problem) -> BoolArray:
    """Return whether each tenant may use each server and finds some of each needed resource there, shape (I, K).

    A limit of 0 closes the servers that it counts.
    """
    lacks_kr = (problem.capacity_kr == 0).astype(np.float32)
    needs_ir = (problem.demand_ir > 0).astype(np.float32)
    usable_ik: BoolArray = problem.eligible_ik & (needs_ir @ lacks_kr.T == 0)
    if problem.tree is not None:
        below_vi, limits = problem.tree.find_below(), problem.tree.limits
        for b in np.flatnonzero(limits.amount_b == 0).tolist():
            is_stopped_i = below_vi[limits.vertex_b[b]] & (problem.demand_ir[:, limits.resource_b[b]] > 0)
            usable_ik = usable_ik & ~(is_stopped_i[:, None] & limits.on_bk[b])
    return usable_ik


def _sort_names(names: Sequence[str]) -> IntArray:
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.intp)


def _merge_rows(
    numbers: Sequence[npt.NDArray[np.generic]], packed: Sequence[npt.NDArray[np.uint8]], names: Sequence[str]
) -> tuple[IntArray, IntArray]:
    """Return (number of the class of each row, first row of each class); classes are sorted by their first name.

    Rows are equal if all their numbers are exactly equal (0.0 and -0.0 are) and all packed bits are.
    """
    floats = np.concatenate([np.asarray(part, dtype=np.float64) for part in numbers], axis=1) + 0.0
    numbers_raw = np.frombuffer(floats.tobytes(), dtype=np.uint8).reshape(len(names), floats.shape[1] * floats.itemsize)
    raw = np.concatenate([numbers_raw, *packed], axis=1)
    content = np.ascontiguousarray(raw).tobytes()
    width = raw.shape[1]
    class_of_content: dict[bytes, int] = {}
    class_of_row = np.zeros(len(names), dtype=np.intp)
    first_row: list[int] = []
    for row in _sort_names(names).tolist():
        key = content[row * width : (row + 1) * width]
        number = class_of_content.setdefault(key, len(first_row))
        if number == len(first_row):
            first_row.append(row)
        class_of_row[row] = number
    return class_of_row, np.array(first_row, dtype=np.intp)
