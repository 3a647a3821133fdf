"""PS-DSF for tenants in a tree: on each class of servers the tree is filled, given what its tenants have elsewhere.

The levels are those of the class: a tenant's virtual dominant share there, and for inner tenants the largest part of
what the class has of a resource that all below it hold, wherever it runs; what is used up on the class does not count.
A division is PS-DSF in the tree if filling any class again, with the other classes as they are, changes nothing. It is
looked for as without a tree: the classes are filled in turn, in the order of their names, from zero. Unlike there, this
may go round in circles. Then each filling goes only half of the way, a quarter, and so on. No proof says that this
ends, or that such a division exists; where it does not end, there is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.tolerances import CONVERGED_MOVE, DIVISION_OPTIMALITY_GAP
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.tree import BoolArray, Bounds, FloatArray, Tree
from fairbind.fairness.problems.verify import CertificateError, check_feasible
from fairbind.fairness.solvers.effort import Effort
from fairbind.fairness.solvers.trees.filling import Filling, Rows
from fairbind.fairness.solvers.trees.forest import Forest, Promises
from fairbind.model.errors import SolverError

MOST_SWEEPS = 2400
PATIENCE = 300  # sweeps before the next ones go only half as far, if what they move has not become half as much
LEAST_PACE = 0.02


def solve_ps_dsf_tree(instance: Instance, tree: Tree, effort: Effort | None = None) -> Solution:
    """Return a division that filling any class again does not change. Raises SolverError if the sweeps do not end."""
    tasks_ik = np.zeros(instance.usable_ik.shape)
    classes = [_Class(instance, tree, k) for k in range(instance.capacity_kr.shape[0])]
    pace, before = 1.0, np.inf
    for sweep in range(1, MOST_SWEEPS + 1):
        moved = 0.0
        for k, one in enumerate(classes):
            way_i = one.fill(tasks_ik, effort) - tasks_ik[:, k]
            moved = max(moved, one.measure(way_i))
            tasks_ik[:, k] += pace * way_i
        if moved <= CONVERGED_MOVE:
            return Solution(np.maximum(tasks_ik, 0.0))
        if sweep % PATIENCE == 0:
            pace, before = pace if moved < before / 2 else max(pace / 2, LEAST_PACE), moved
    raise SolverError(
        f"the classes of servers still change by {moved:.2g} after {MOST_SWEEPS} sweeps; in a tree no proof says that "
        "there is a division"
    )


def certify_ps_dsf_tree(instance: Instance, tree: Tree, solution: Solution) -> Mapping[str, Any]:
    """Prove from the tasks alone that filling any class again changes nothing."""
    excess = check_feasible(instance, solution.tasks_ik, "ps-dsf")
    largest = 0.0
    for k in range(instance.capacity_kr.shape[0]):
        one = _Class(instance, tree, k)
        filled_i = one.fill(solution.tasks_ik)
        gap = one.measure(filled_i - solution.tasks_ik[:, k])
        if not gap <= DIVISION_OPTIMALITY_GAP:
            worst = int(np.abs((filled_i - solution.tasks_ik[:, k]) * one.part_i).argmax())
            words = f"filling {{server}} again changes {{tenant}} by {gap:.3g} of it"
            raise CertificateError("ps-dsf", words, gap, tenant=int(instance.rank_i[worst]), server_class=k)
        largest = max(largest, gap)
    return {"method": "filling of the tree, class by class", "largestExcess": excess, "largestGap": largest}


class _Class:
    """The filling of one class. Its units are the tenants that can use it; the others only count in levels."""

    def __init__(self, instance: Instance, tree: Tree, k: int) -> None:
        self.instance, self.tree, self.k = instance, tree, k
        capacity_r = instance.capacity_kr[k]
        self.share_ir = np.divide(
            instance.demand_ir, capacity_r, out=np.zeros_like(instance.demand_ir), where=capacity_r > 0
        )
        usable_i = instance.usable_ik[:, k]
        self.part_i = np.where(usable_i, self.share_ir.max(axis=1), 0.0)  # of the class, for a task
        below_vi = tree.find_below()
        self.counting_l = np.flatnonzero(tree.limits.on_bk[:, k])
        self.need_li = _count(instance, below_vi, tree.limits)
        self.need_pi = _count(instance, below_vi, tree.guarantees)

    def measure(self, way_i: FloatArray) -> float:
        """Return the largest part of the class that a change is."""
        return float(np.abs(way_i * self.part_i).max(initial=0.0))

    def fill(self, tasks_ik: FloatArray, effort: Effort | None = None) -> FloatArray:
        """Return the tasks on this class, given those on the others."""
        instance, tree, k = self.instance, self.tree, self.k
        elsewhere_ik = tasks_ik.copy()
        elsewhere_ik[:, k] = 0.0
        elsewhere_i = elsewhere_ik.sum(axis=1)
        usable_i = instance.usable_ik[:, k]
        left_i = np.where(usable_i, np.maximum(instance.limit_i - elsewhere_i, 0.0), 0.0)
        limits, guarantees = tree.limits, tree.guarantees
        used_l = (self.need_li * (limits.on_bk @ elsewhere_ik.T)).sum(axis=1)[self.counting_l]
        base_p = (self.need_pi * (guarantees.on_bk @ elsewhere_ik.T)).sum(axis=1)
        need_mi = np.concatenate([(instance.demand_ir * usable_i[:, None]).T, self.need_li[self.counting_l] * usable_i])
        resources = instance.demand_ir.shape[1]
        # A unit's tasks are all that the tenant has, so rows begin with what is elsewhere.
        amount_m = (
            np.concatenate([instance.capacity_kr[k], np.maximum(limits.amount_b[self.counting_l] - used_l, 0.0)])
            + need_mi @ elsewhere_i
        )
        rows = Rows(need_mi, amount_m, np.append(np.arange(resources), np.full(self.counting_l.size, -1)))
        tenants, inner = usable_i.size, len(tree.inner_names)
        on_this_p = guarantees.on_bk[:, k]
        need_pu = self.need_pi * on_this_p[:, None] * usable_i
        forest = Forest(
            parent_v=tree.parent_v,
            weight_v=np.concatenate([instance.weight_i, tree.weight_n]),
            priority_v=tree.priority_v,
            level_u=np.where(usable_i, self.share_ir.max(axis=1), 0.0),
            single_v=np.zeros(tenants + inner, dtype=np.bool_),
            mixed_v=tree.find_mixed(),
            divisor_vj=np.ones((tenants + inner, resources)),
            limit_u=elsewhere_i + left_i,
            shares=lambda used_up_r: np.where(used_up_r, 0.0, self.share_ir),
            promises=Promises(guarantees.vertex_b.copy(), guarantees.amount_b, need_pu, base_p - need_pu @ elsewhere_i),
        )
        filling = Filling(forest, rows, resources)
        end = filling.run(filling.start(elsewhere_i), effort)[-1]
        filled_i: FloatArray = np.where(usable_i, np.maximum(end.tasks_u - elsewhere_i, 0.0), 0.0)
        return filled_i


def _count(instance: Instance, below_vi: BoolArray, bounds: Bounds) -> FloatArray:
    """Return what a task adds to what each bound counts, (B, I)."""
    need_bi: FloatArray = below_vi[bounds.vertex_b] * instance.demand_ir[:, bounds.resource_b].T
    return need_bi
