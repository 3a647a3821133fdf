"""DRFH: dominant resource fairness on heterogeneous servers, with one dominant share per tenant over all servers.

A tenant's global dominant share is the largest part that its tasks hold of any resource of the whole cluster, wherever
they run. DRFH makes the weighted shares lexicographically max-min fair: the least is as high as possible, then the next
least, and so on.

Paper: Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015, section
4.1 and equation 6; weights and finite tasks from section 5.1. Equation 6 demands equal shares, which is right only if
all demands are positive, each tenant may use every server and no tenant runs out of tasks; here it is the first round
of the lexicographic procedure (see `lexicographic`).
Complexity: one linear program per round, with a variable per (group, class) that matters; rounds <= distinct levels.
Guarantees: Pareto optimality, envy-freeness and strategy-proofness, of groups too, also with zero demands, placement
constraints, weights and finite tasks (the paper's sections 4.2 to 4.4 are for one level); only the weak sharing
incentive (section 4.5).

>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> problem = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
>>> solve_drfh(reduce_problem(problem)).tasks_ik.round(9).tolist()
[[10.0, 0.0], [0.0, 10.0]]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.trees import certify_tree, solve_tree
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.tree import Tree
from fairbind.fairness.solvers.maxmin.lexicographic import certify_lexicographic, solve_lexicographic
from fairbind.fairness.solvers.trees.levels import Measure
from fairbind.fairness.solvers.warm import WarmStart


def solve_drfh(instance: Instance, warm: WarmStart | None = None) -> Solution:
    """Return the allocation whose weighted global dominant shares are lexicographically max-min."""
    if instance.tree is not None:
        effort = None if warm is None else warm.effort
        return solve_tree(instance, instance.tree, _measure_tree(instance, instance.tree), effort)
    return solve_lexicographic(instance, instance.share_per_task_i / instance.weight_i, warm)


def certify_drfh(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove by prices that the levels are max-min fair; see `lexicographic`."""
    if instance.tree is not None:
        return certify_tree(instance, instance.tree, _measure_tree(instance, instance.tree), solution, "drfh")
    return certify_lexicographic(instance, instance.share_per_task_i / instance.weight_i, solution, "drfh")


def _measure_tree(instance: Instance, tree: Tree) -> Measure:
    """Return the levels: the dominant share, for inner tenants of all that they hold of what is not used up."""
    return Measure(
        level_i=instance.share_per_task_i,
        shares=lambda used_up_r: np.where(used_up_r, 0.0, instance.demand_ir),
        divisor_nj=tree.resource_weight_nr,
    )


DRFH = Mechanism(
    id="drfh",
    name="Dominant resource fairness, heterogeneous servers",
    paper='Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015',
    section="4.1, equation 6; 5.1",
    story=(
        "A tenant's global dominant share is the largest part that it holds of any resource of all servers together. "
        "The least weighted share is made as high as possible, then the next least, and so on; where tasks run is free."
    ),
    options=frozenset(
        {Option.WEIGHT, Option.RESOURCE_WEIGHTS, Option.TASKS, Option.SERVERS, Option.ELIGIBLE, Option.TREE}
    ),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_drfh,
    resolve=solve_drfh,
    certify=certify_drfh,
)
