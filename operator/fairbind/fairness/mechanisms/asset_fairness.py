"""Asset fairness: one per cent of any resource costs the same, and all weighted spending rises at the same speed.

A task costs the sum of the parts that it takes of all resources of the pool. A tenant stops when a resource that its
tasks need is used up, or when all its tasks run; the other tenants go on. So the weighted sums of shares are max-min
fair.

Paper: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, section 5.1;
section 6.1.1 shows its drawbacks against dominant resource fairness. The paper raises all sums until the first resource
is used up. Here tenants that do not need that resource go on, as in the paper's section 4.2 for dominant shares; this
keeps Pareto optimality when some demands are zero.
Complexity: at most one round per resource; a round costs O(I log I + I R) (the water filling of `drf`).
Guarantees, for any weights: envy-freeness, Pareto optimality and strategy-proofness; NOT the sharing incentive and not
bottleneck fairness, and more capacity can leave a tenant with less.

>>> import numpy as np
>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> solve_asset_fairness(reduce_problem(make_problem([[9, 18]], [[1, 4], [3, 1]]))).tasks_ik[:, 0].round(4).tolist()
[2.52, 2.16]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairbind.fairness.mechanisms.drf import check_bottlenecks, fill_pool
from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.problems.verify import check_feasible


def compute_price_per_task(instance: Instance) -> FloatArray:
    """Return the cost of one task of each group: the sum over resources of its part of the pool, shape (I,)."""
    price_i: FloatArray = (instance.demand_ir / instance.capacity_kr.sum(axis=0)).sum(axis=1)
    return price_i


def solve_asset_fairness(instance: Instance) -> Solution:
    """Return the allocation of one pool, by water filling."""
    speed_i = instance.weight_i / compute_price_per_task(instance)
    return Solution(fill_pool(instance.capacity_kr[0], instance.demand_ir, speed_i, instance.limit_i)[:, None])


def certify_asset_fairness(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove that the weighted sums of shares are max-min fair: each tenant has all its tasks, or a bottleneck.

    A bottleneck of i is a used-up resource that i needs and that no tenant with higher weighted spending needs. More
    for i would have to come from a tenant there that spends no more.
    """
    tasks_i = solution.tasks_ik[:, 0]
    excess = check_feasible(instance, solution.tasks_ik, "asset-fairness")
    spending_i = tasks_i * compute_price_per_task(instance) / instance.weight_i
    gap = check_bottlenecks(instance, tasks_i, spending_i, "asset-fairness")
    return {"method": "bottlenecks", "largestExcess": excess, "largestGap": gap}


ASSET_FAIRNESS = Mechanism(
    id="asset-fairness",
    name="Asset fairness",
    paper='Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011',
    section="5.1",
    story=(
        "One per cent of any resource costs the same, and each tenant may spend the same: the weighted sums of a "
        "tenant's shares of all resources rise together. A tenant that needs a used-up resource stops, the others "
        "go on. Simple, but a tenant that needs a bit of everything can get less than an equal part of the pool."
    ),
    options=frozenset({Option.WEIGHT, Option.TASKS}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.SUM_OF_SHARES,
    solve=solve_asset_fairness,
    certify=certify_asset_fairness,
)
