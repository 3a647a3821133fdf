"""A certificate refuses what is not quite right: one group's tasks, a hundredth up or down, on every kind of problem.

Made from the registry and the families. Also where somebody's share is a millionth of the others', because weights span
six decades, a hundredth of its own tasks counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.model.errors import SolverError
from fairness.families import FAMILIES, families_for, mark_for_quick

SEEDS = range(2)
MOST_GROUPS = 4


def list_cases() -> Iterator[Any]:
    for mechanism in MECHANISMS.values():
        for index, family in enumerate(families_for(mechanism.options)):
            name = f"{mechanism.id}-{family.name}"
            yield pytest.param(mechanism.id, family.name, id=name, marks=mark_for_quick(index))


def solve(mechanism_id: str, family: str, seed: int) -> tuple[Instance, Solution]:
    mechanism = MECHANISMS[mechanism_id]
    problem = FAMILIES[family].make(np.random.default_rng([seed, 11]))
    instance = reduce_problem(problem, merges_tenants=mechanism.merges_tenants)
    return instance, mechanism.solve(instance)


@pytest.mark.parametrize(("mechanism", "family"), list(list_cases()))
def test_a_hundredth_more_or_less_is_refused(mechanism: str, family: str) -> None:
    for seed in SEEDS:
        instance, solution = solve(mechanism, family, seed)
        MECHANISMS[mechanism].certify(instance, solution)
        present = np.flatnonzero(solution.tasks_ik.sum(axis=1) > 0)
        for group in present[:: max(1, present.size // MOST_GROUPS)]:
            for factor in (0.99, 1.01):
                tasks_ik = solution.tasks_ik.copy()
                tasks_ik[group] *= factor
                with pytest.raises(SolverError):
                    MECHANISMS[mechanism].certify(instance, replace(solution, tasks_ik=tasks_ik))


@pytest.mark.parametrize(("mechanism", "family"), list(list_cases()))
def test_giving_nothing_is_refused(mechanism: str, family: str) -> None:
    instance, solution = solve(mechanism, family, 0)
    with pytest.raises(SolverError):
        MECHANISMS[mechanism].certify(instance, replace(solution, tasks_ik=np.zeros(solution.tasks_ik.shape)))


PRICED = {"alpha-pf-vds": "price_kr", "ceei": "price_r"}


@pytest.mark.parametrize(("mechanism", "family"), [case.values for case in list_cases() if case.values[0] in PRICED])
def test_a_hundredth_less_at_higher_prices_is_refused(mechanism: str, family: str) -> None:
    """Everybody spends what it spent; only what is left over at a price says that something is wrong."""
    instance, solution = solve(mechanism, family, 0)
    name = PRICED[mechanism]
    less = replace(solution, tasks_ik=solution.tasks_ik * 0.99, evidence={name: solution.evidence[name] / 0.99})
    with pytest.raises(SolverError):
        MECHANISMS[mechanism].certify(instance, less)
