"""TSF: task share fairness, lexicographic max-min fairness of task shares.

A tenant's task share is its number of tasks divided by the number that it could run alone on all servers, including
those that it may not use. The weighted task shares are made max-min fair as in `drfh`.

Paper: Wang, Li, Liang, Li, "Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints", SC 2016, as
defined in section 2.2 of Khamse-Ashari et al., "An Efficient and Fair Multi-Resource Allocation Mechanism for
Heterogeneous Servers".
Complexity: as drfh.
Guarantees: Pareto optimality, envy-freeness and strategy-proofness, of groups too. The sharing incentive holds when
every tenant may use every server, and can fail otherwise, although table 1 of the second paper does not say so.

>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> problem = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
>>> solve_tsf(reduce_problem(problem)).tasks_ik.round(9).tolist()
[[10.0, 0.0], [0.0, 10.0]]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.trees import certify_tree, solve_tree
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, compute_gamma
from fairbind.fairness.problems.tree import BoolArray, FloatArray, Tree
from fairbind.fairness.solvers.maxmin.lexicographic import certify_lexicographic, solve_lexicographic
from fairbind.fairness.solvers.trees.levels import Measure
from fairbind.fairness.solvers.warm import WarmStart


def solve_tsf(instance: Instance, warm: WarmStart | None = None) -> Solution:
    """Return the allocation whose weighted task shares are lexicographically max-min."""
    if instance.tree is not None:
        effort = None if warm is None else warm.effort
        return solve_tree(instance, instance.tree, _measure_tree(instance, instance.tree), effort)
    return solve_lexicographic(instance, 1 / (instance.monopoly_i * instance.weight_i), warm)


def certify_tsf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove by prices that the levels are max-min fair; see `lexicographic`."""
    if instance.tree is not None:
        return certify_tree(instance, instance.tree, _measure_tree(instance, instance.tree), solution, "tsf")
    return certify_lexicographic(instance, 1 / (instance.monopoly_i * instance.weight_i), solution, "tsf")


def _measure_tree(instance: Instance, tree: Tree) -> Measure:
    """Return the levels: the sum of the task shares, for inner tenants as if what is used up were without end."""

    def compute_shares(used_up_r: BoolArray) -> FloatArray:
        demand_ir = np.where(used_up_r, 0.0, instance.demand_ir)
        could_i = compute_gamma(instance.capacity_kr, demand_ir).sum(axis=1)
        return np.where(np.isfinite(could_i), 1 / could_i, 0.0)[:, None]

    return Measure(1 / instance.monopoly_i, compute_shares, np.ones((len(tree.inner_names), 1)))


TSF = Mechanism(
    id="tsf",
    name="Task share fairness",
    paper='Wang, Li, Liang, Li, "Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints", SC 2016',
    section="as defined in section 2.2 of the PS-DSF paper",
    story=(
        "A tenant's task share is the part that its tasks are of those that it could run with all servers for itself. "
        "The least weighted share is made as high as possible, then the next least, and so on; where tasks run is free."
    ),
    options=frozenset({Option.WEIGHT, Option.TASKS, Option.SERVERS, Option.ELIGIBLE, Option.TREE}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.TASK_SHARE,
    solve=solve_tsf,
    resolve=solve_tsf,
    certify=certify_tsf,
)
