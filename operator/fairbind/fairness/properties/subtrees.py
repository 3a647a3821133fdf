"""Sharing incentive in a tree: does each tenant, inner ones too, have its weight's part of its parent's?"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option, ShareSum
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import compute_gamma
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.tree import ROOT, BoolArray
from fairbind.fairness.properties.variants import as_solved
from fairbind.fairness.properties.witness import SMALLEST_VIOLATION, TRIES, Property, Witness, number, percent


def compute_entitled(problem: Problem) -> FloatArray:
    """Return each vertex's part of everything: the product of its path's weights over those of all siblings, (V,).

    Without a tree all tenants are siblings.
    """
    if problem.tree is None:
        entitled_i: FloatArray = problem.weight_i / problem.weight_i.sum()
        return entitled_i
    parent_v = problem.tree.parent_v
    weight_v = np.concatenate([problem.weight_i, problem.tree.weight_n])
    among_v = np.array([weight_v[parent_v == parent].sum() for parent in parent_v])
    part_v = weight_v / among_v
    entitled_v: FloatArray = part_v.copy()
    above_v = parent_v.copy()
    while (above_v != ROOT).any():
        entitled_v = entitled_v * np.where(above_v != ROOT, part_v[above_v], 1.0)
        above_v = np.where(above_v != ROOT, parent_v[above_v], ROOT)
    return entitled_v


def compute_levels(problem: Problem, totals_i: FloatArray, share_sum: ShareSum) -> FloatArray:
    """Return what each vertex holds by the measure, resources that are used up among it, shape (V,)."""
    below_vi = _find_below(problem)
    exists_r = problem.total_r > 0
    if share_sum is ShareSum.TASK_SHARE:
        alone_i = compute_gamma(problem.count_k[:, None] * problem.capacity_kr, problem.demand_ir).sum(axis=1)
        shares_v: FloatArray = below_vi @ np.divide(totals_i, alone_i, out=np.zeros_like(totals_i), where=alone_i > 0)
        return shares_v
    held_vr = below_vi @ (totals_i[:, None] * problem.demand_ir[:, exists_r])
    levels_v: FloatArray = (held_vr / problem.total_r[exists_r]).max(axis=1, initial=0.0)
    return levels_v


def _find_below(problem: Problem) -> BoolArray:
    return np.eye(problem.weight_i.size, dtype=np.bool_) if problem.tree is None else problem.tree.find_below()


def find_unshared_subtree(
    problem: Problem,
    mechanism_id: str,
    allocation: Allocation,
    *,
    alpha: float | None = None,
    generator: np.random.Generator | None = None,
    tries: int = TRIES,
) -> Witness | None:
    """Return the tenant that falls short most of its part of everything and has tasks left, or None."""
    del alpha, generator, tries
    solved = as_solved(problem)
    entitled_v = compute_entitled(solved)
    level_v = compute_levels(solved, allocation.totals_i, MECHANISMS[mechanism_id].share_sum)
    able_i = (compute_gamma(solved.capacity_kr, solved.demand_ir) > 0) & solved.eligible_ik
    has_left_i = (allocation.totals_i < solved.tasks_i * (1 - SMALLEST_VIOLATION)) & able_i.any(axis=1)
    has_left_v = (_find_below(solved) & has_left_i).any(axis=1)
    short_v = np.where(has_left_v, 1 - level_v / entitled_v, 0.0)
    worst = int(short_v.argmax())
    if short_v[worst] <= SMALLEST_VIOLATION:
        return None
    names = [*solved.tenant_names, *(() if solved.tree is None else solved.tree.inner_names)]
    name, level, part = names[worst], float(level_v[worst]), float(entitled_v[worst])
    return Witness(
        SUBTREE_SHARING_INCENTIVE.id,
        f"{name} has {number(level)} of everything by the mechanism's measure; its weights' part is {number(part)} "
        f"({percent(float(short_v[worst]))} less)",
        float(short_v[worst]),
        {"tenant": name, "level": level, "part": part},
    )


SUBTREE_SHARING_INCENTIVE = Property(
    id="subtree-sharing-incentive",
    name="Sharing incentive of subtrees",
    definition=(
        "Every tenant of a tree holds, by the mechanism's measure, at least its weight's part of its parent's part of "
        "everything, or runs all tasks below it."
    ),
    source="here, in the page on trees; after Bhattacharya et al., SoCC 2013, section 3",
    find=find_unshared_subtree,
    options=frozenset({Option.TREE}),
    is_for_trees=True,
)
