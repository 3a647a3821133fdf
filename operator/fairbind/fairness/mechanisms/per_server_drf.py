"""DRF on each server by itself, as schedulers do that look at one server at a time.

On every server the weighted dominant shares of that server rise together until each tenant there stops. The papers
compare with this naive extension of DRF to several servers: it is simple, and wasteful because a tenant also gets its
part of a server that suits it badly.

Paper: Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015, section
3.4 ("naive DRF extension"); DRF itself and its weights from Ghodsi et al., NSDI 2011, sections 4.1 and 4.3.

The papers do not define which servers run the tasks of a tenant with few tasks. Here all servers fill in step, as if
each ran DRF at the same time, and the tenant stops on all of them when all its tasks run. This is max-min fair over all
pairs of tenant and server, so it is unique and depends on no order. Each server still runs its own DRF among the tasks
that the other servers leave: a stopped tenant has no more tasks.

Complexity: one event per used-up resource of a server and per tenant that runs out of tasks, each O(I K R) at worst.
Guarantees: the (strong) sharing incentive (section 4.5) and envy-freeness, as DRF on each server; strategy-proofness
where no tenant runs out of tasks; NOT Pareto optimality (section 3.4) and not for groups, but on one server.

>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> problem = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
>>> solve_per_server_drf(reduce_problem(problem)).tasks_ik.sum(axis=1).round(6).tolist()
[6.0, 6.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import OPTIMALITY_GAP, SUMMATION_ERROR
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.problems.verify import CertificateError, check_feasible


def solve_per_server_drf(instance: Instance) -> Solution:
    """Return the DRF of each class; all classes fill in step, and a tenant that runs out of tasks stops on all."""
    speed_ik = compute_speed(instance)
    is_moving_ik = instance.usable_ik.copy()
    tasks_ik = np.zeros(speed_ik.shape)
    while is_moving_ik.any():
        full_level_kr = _find_full_levels(instance, speed_ik, is_moving_ik, tasks_ik)
        done_level_i = _find_done_levels(instance, speed_ik, is_moving_ik, tasks_ik)
        level = min(float(full_level_kr.min()), float(done_level_i.min()))
        needs_full_ik = instance.demand_ir @ (full_level_kr <= level).T > 0
        stops_ik = is_moving_ik & (needs_full_ik | (done_level_i <= level)[:, None])
        tasks_ik[stops_ik] = level * speed_ik[stops_ik]
        is_moving_ik &= ~stops_ik
    return Solution(tasks_ik)


def compute_speed(instance: Instance) -> FloatArray:
    """Return the tasks that raise a tenant's weighted dominant share of a class by 1, shape (I, K); 0 if unusable."""
    smallest_ik = np.full(instance.usable_ik.shape, np.inf)
    for r in range(instance.demand_ir.shape[1]):
        needs_i = instance.demand_ir[:, r] > 0
        per_task_i = instance.demand_ir[needs_i, r] / instance.resource_weight_ir[needs_i, r]
        smallest_ik[needs_i] = np.minimum(smallest_ik[needs_i], instance.capacity_kr[:, r] / per_task_i[:, None])
    speed_ik: FloatArray = np.where(instance.usable_ik, instance.weight_i[:, None] * smallest_ik, 0.0)
    return speed_ik


def _find_full_levels(
    instance: Instance, speed_ik: FloatArray, is_moving_ik: BoolArray, tasks_ik: FloatArray
) -> FloatArray:
    """Return the level at which the pairs that still rise use up each resource, shape (K, R); inf if never.

    Both sums are computed again each time: in a difference of large sums, rounding would hide tenants of small weight.
    """
    rate_kr = np.where(is_moving_ik, speed_ik, 0.0).T @ instance.demand_ir
    left_kr = np.maximum(instance.capacity_kr - tasks_ik.T @ instance.demand_ir, 0.0)
    level_kr = np.full(rate_kr.shape, np.inf)
    np.divide(left_kr, rate_kr, out=level_kr, where=rate_kr > 0)
    return level_kr


def _find_done_levels(
    instance: Instance, speed_ik: FloatArray, is_moving_ik: BoolArray, tasks_ik: FloatArray
) -> FloatArray:
    """Return the level at which each tenant runs out of tasks, shape (I,); inf if it never does or has stopped.

    tasks_ik: of the pairs that have stopped; 0 while a pair rises.
    """
    rate_i = np.where(is_moving_ik, speed_ik, 0.0).sum(axis=1)
    left_i = np.maximum(instance.limit_i - tasks_ik.sum(axis=1), 0.0)
    level_i = np.full(rate_i.shape, np.inf)
    np.divide(left_i, rate_i, out=level_i, where=rate_i > 0)
    return level_i


def certify_per_server_drf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove that the levels of all pairs are max-min fair: each pair has a bottleneck, or the tenant has all its tasks.

    A bottleneck of (i, k) is a used-up resource of k that i needs and where no tenant has a higher level. For a tenant
    with all its tasks, the pair must have the highest of the tenant's levels.
    """
    excess = check_feasible(instance, solution.tasks_ik, "per-server-drf")
    tasks_ik, usable_ik = solution.tasks_ik, instance.usable_ik
    speed_ik = compute_speed(instance)
    level_ik = np.divide(tasks_ik, speed_ik, out=np.zeros(tasks_ik.shape), where=usable_ik)
    gap_ik = np.stack([_find_gaps(instance, tasks_ik, level_ik, k) for k in range(tasks_ik.shape[1])], axis=1)
    lack_i = np.abs(1 - tasks_ik.sum(axis=1) / instance.limit_i)  # 1 without a limit
    behind_ik = np.full(tasks_ik.shape, np.inf)
    highest_i = level_ik.max(axis=1, keepdims=True)
    np.divide(highest_i - level_ik, level_ik, out=behind_ik, where=level_ik > 0)
    gap_ik = np.where(usable_ik, np.minimum(gap_ik, np.maximum(behind_ik, lack_i[:, None])), 0.0)
    gap = float(gap_ik.max(initial=0.0))
    if not gap <= OPTIMALITY_GAP:
        worst, server = (int(number) for number in np.unravel_index(int(gap_ik.argmax()), gap_ik.shape))
        words = f"{{tenant}} could get {gap:.3g} of its own more on {{server}}"
        tenant = int(instance.rank_i[worst])
        raise CertificateError("per-server-drf", words, gap, tenant=tenant, server_class=server)
    return {"method": "bottlenecks", "largestExcess": excess, "largestGap": gap}


def _find_gaps(instance: Instance, tasks_ik: FloatArray, level_ik: FloatArray, k: int) -> FloatArray:
    """Return how much more each tenant could get on class k without a loss at a lower level, relative, shape (I,)."""
    takes_ir = (instance.demand_ir > 0) & instance.usable_ik[:, k, None]
    used_ir = tasks_ik[:, k, None] * instance.demand_ir
    left_r = np.maximum(instance.capacity_kr[k] * (1 - SUMMATION_ERROR) - used_ir.sum(axis=0), 0.0)
    highest_r = np.where(takes_ir, level_ik[:, k, None], 0.0).max(axis=0)
    gap_ir = np.full(takes_ir.shape, np.inf)
    np.divide(np.broadcast_to(left_r, takes_ir.shape), used_ir, out=gap_ir, where=used_ir > 0)
    behind_ir = np.full(takes_ir.shape, np.inf)
    level_ir = np.broadcast_to(level_ik[:, k, None], takes_ir.shape)
    np.divide(highest_r - level_ir, level_ir, out=behind_ir, where=level_ir > 0)
    gap_i: FloatArray = np.where(takes_ir, np.maximum(gap_ir, behind_ir), np.inf).min(axis=1)
    return gap_i


PER_SERVER_DRF = Mechanism(
    id="per-server-drf",
    name="Dominant resource fairness, server by server",
    paper='Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015',
    section="3.4",
    story=(
        "Every server runs DRF by itself: the weighted dominant shares of that server rise together until a resource "
        "is used up. All servers fill in step, and a tenant whose tasks are all given out stops everywhere."
    ),
    options=frozenset({Option.WEIGHT, Option.RESOURCE_WEIGHTS, Option.TASKS, Option.SERVERS, Option.ELIGIBLE}),
    level_scope=LevelScope.SERVER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_per_server_drf,
    certify=certify_per_server_drf,
)
