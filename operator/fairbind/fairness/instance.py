"""A problem made ready for a solver: without units, without those who can run nothing, without copies.

Every mechanism here is indifferent to the unit of a resource, to a common factor of the weights, and to whether equal
servers or equal tenants are written once or many times. So solvers see an `Instance`: totals are 1, weights sum to 1,
equal entries are one class and equal tenants one group. `expand_tasks` turns its answer back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairbind.fairness.problem import BoolArray, FloatArray

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """What a solver gets. K classes of servers, I groups of tenants, R resources; every total is 1. Read-only.

    capacity_kr: all servers of the class together, as a part of the resource's total, shape (K, R).
    demand_ir: one task's need as a part of the totals (those of ALL servers), shape (I, R).
    weight_i: of the whole group; all sum to 1. limit_i: tasks that the group has, inf allowed, > 0.
    usable_ik: eligible, and the class has something of all that a task needs; every row has a True.
    gamma_ik: tasks of i that the class runs when i has it alone: min over r of c_kr / d_ir; 0 where not usable.
    monopoly_i: tasks of i that ALL servers would run, usable or not (the papers' gamma_n of TSF).
    share_per_task_i: max over r of d_ir / resource weight: the (per-resource weighted) dominant share of one task.
    alpha_k, divisible_k: of the class. member_i: tenants in the group. rank_i: place of the group's first in the order
    of arrival, from 0. tenants_total: all tenants of the problem, also those who can run nothing.
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
    member_i: FloatArray
    rank_i: IntArray
    tenants_total: int
    expected_tenants: int | None
    group_of_tenant: IntArray  # shape (tenants of the problem,); -1 for those who can run nothing
    class_of_server: IntArray  # shape (entries of the problem,)
    part_of_class: FloatArray  # shape (entries of the problem,): the entry's part of its class
