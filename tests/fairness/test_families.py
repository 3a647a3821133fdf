"""The families use what they say, and draw the same from the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.problems.problem import Problem
from fairness.families import FAMILIES, Family


def options_used(problem: Problem) -> set[Option]:
    used = {
        Option.WEIGHT: bool((problem.weight_i != 1).any()),
        Option.RESOURCE_WEIGHTS: bool((problem.resource_weight_ir != 1).any()),
        Option.TASKS: bool(np.isfinite(problem.tasks_i).any()),
        Option.SERVERS: len(problem.server_names) > 1,
        Option.ELIGIBLE: not problem.eligible_ik.all(),
        Option.DIVISIBLE: not problem.divisible_k.all(),
        Option.ALPHA: not np.isnan(problem.alpha_k).all(),
        Option.EXPECTED_TENANTS: problem.expected_tenants is not None,
    }
    return {option for option, is_used in used.items() if is_used}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_family_uses_the_options_that_it_names(family: Family) -> None:
    used: set[Option] = set()
    for seed in range(20):
        problem = family.make(np.random.default_rng(seed))
        assert (problem.demand_ir.max(axis=1) > 0).all()
        assert (problem.tasks_i > 0).all()
        used |= options_used(problem)
    assert used == family.options


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_family_is_a_function_of_its_generator(family: Family) -> None:
    one, other = (family.make(np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one.demand_ir, other.demand_ir)
    assert np.array_equal(one.capacity_kr, other.capacity_kr)
