"""Properties of fair division, and the search for witnesses that an allocation or a mechanism violates them.

Each property has an id, a definition with its source, and `find`, which looks for a witness: which tenant envies which
and by how much, which allocation dominates, which lie pays. None means that the property holds on this problem within
the tolerance of `witness`, or, for properties that are searched, that the search found nothing. For each mechanism in
general, `fairbind.fairness.mechanisms.guarantees` lists what is proved and refuted.

>>> from fairbind.fairness.problems.problem import make_problem
>>> from fairbind.fairness.solve import compute_allocation
>>> problem = make_problem([[30, 30]], [[1, 3], [1, 1]])
>>> allocation = compute_allocation(problem, "asset-fairness")
>>> PROPERTIES["sharing-incentive"].find(problem, "asset-fairness", allocation).text
't1 runs 12 tasks; its slice of every server would run 15 (20 % less)'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties.dynamic import (
    DYNAMIC_ENVY_FREENESS,
    DYNAMIC_PARETO_OPTIMALITY,
    DYNAMIC_SHARING_INCENTIVE,
)
from fairbind.fairness.properties.monotonicity import POPULATION_MONOTONICITY, RESOURCE_MONOTONICITY
from fairbind.fairness.properties.pareto import PARETO_OPTIMALITY
from fairbind.fairness.properties.reductions import (
    BOTTLENECK_FAIRNESS,
    SINGLE_RESOURCE_REDUCTION,
    SINGLE_SERVER_REDUCTION,
)
from fairbind.fairness.properties.shares import ENVY_FREENESS, ENVY_FREENESS_UP_TO_ONE_TASK, SHARING_INCENTIVE
from fairbind.fairness.properties.strategy import (
    ELIGIBILITY_STRATEGY_PROOFNESS,
    GROUP_STRATEGY_PROOFNESS,
    STRATEGY_PROOFNESS,
)
from fairbind.fairness.properties.subtrees import SUBTREE_SHARING_INCENTIVE
from fairbind.fairness.properties.weak_shares import WEAK_SHARING_INCENTIVE
from fairbind.fairness.properties.witness import Property, Witness

__all__ = ["PROPERTIES", "Property", "Witness", "properties_for"]

_ALL = (
    SHARING_INCENTIVE,
    WEAK_SHARING_INCENTIVE,
    ENVY_FREENESS,
    ENVY_FREENESS_UP_TO_ONE_TASK,
    PARETO_OPTIMALITY,
    STRATEGY_PROOFNESS,
    ELIGIBILITY_STRATEGY_PROOFNESS,
    GROUP_STRATEGY_PROOFNESS,
    SINGLE_SERVER_REDUCTION,
    SINGLE_RESOURCE_REDUCTION,
    BOTTLENECK_FAIRNESS,
    POPULATION_MONOTONICITY,
    RESOURCE_MONOTONICITY,
    DYNAMIC_SHARING_INCENTIVE,
    DYNAMIC_ENVY_FREENESS,
    DYNAMIC_PARETO_OPTIMALITY,
    SUBTREE_SHARING_INCENTIVE,
)

PROPERTIES: Mapping[str, Property] = MappingProxyType({one.id: one for one in _ALL})


def properties_for(mechanism_id: str, problem: Problem | None = None) -> tuple[Property, ...]:
    """Return the properties that apply to a mechanism, in the registry's order.

    problem: leave out those that mean nothing for it, because it has a tree.

    >>> "dynamic-envy-freeness" in [one.id for one in properties_for("drf")]
    False
    """
    in_tree = problem is not None and problem.tree is not None
    applying = (one for one in _ALL if one.options <= MECHANISMS[mechanism_id].options)
    return tuple(one for one in applying if one.is_for_trees or not in_tree)
