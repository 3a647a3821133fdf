from __future__ import annotations

import numpy as np
import pytest

from fairbind.fairness.mechanisms.asset_fairness import ASSET_FAIRNESS, certify_asset_fairness, solve_asset_fairness
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import InvalidProblemError, SolverError
from fairness.families import FAMILIES, Family, families_for
from fairness.textbook import compute_max_min_levels

POOLS = [family for family in families_for(ASSET_FAIRNESS.options) if family.is_one_pool]


def compute_by_linear_programs(problem: Problem) -> FloatArray:
    """The textbook way; a level of 1 is what an equal part of everything would cost."""
    exists_r = problem.total_r > 0
    share_ir = problem.demand_ir[:, exists_r] / problem.total_r[exists_r]
    is_present_i = (problem.demand_ir[:, ~exists_r] == 0).all(axis=1)
    weight_i = problem.weight_i[is_present_i] / problem.weight_i[is_present_i].sum()
    tasks_per_level_i = weight_i / share_ir[is_present_i].sum(axis=1)
    levels_i = compute_max_min_levels(
        (share_ir[is_present_i] * tasks_per_level_i[:, None]).T,
        np.ones(int(exists_r.sum())),
        np.zeros(weight_i.size),
        problem.tasks_i[is_present_i] / tasks_per_level_i,
    )
    tasks_i = np.zeros(is_present_i.size)
    tasks_i[is_present_i] = levels_i * tasks_per_level_i
    return tasks_i


@pytest.mark.parametrize("family", [family for family in POOLS if "thousand" not in family.name], ids=lambda f: f.name)
def test_water_filling_is_the_lexicographic_linear_program(family: Family) -> None:
    for seed in range(2):
        problem = family.make(np.random.default_rng(seed))
        allocation = compute_allocation(problem, "asset-fairness")
        np.testing.assert_allclose(allocation.totals_i, compute_by_linear_programs(problem), rtol=1e-6, atol=0)


def test_example_of_the_paper() -> None:
    allocation = compute_allocation(make_problem([[9, 18]], [[1, 4], [3, 1]]), "asset-fairness")
    np.testing.assert_allclose(allocation.totals_i, [63 / 25, 54 / 25], rtol=1e-12)


def test_those_who_do_not_need_what_is_used_up_go_on() -> None:
    allocation = compute_allocation(make_problem([[10, 10]], [[1, 1], [2, 0], [0, 1]]), "asset-fairness")
    # Both resources are used up at the same moment.
    np.testing.assert_allclose(allocation.totals_i, [10 / 3, 10 / 3, 20 / 3], rtol=1e-12)
    allocation = compute_allocation(make_problem([[10, 20]], [[1, 1], [2, 0], [0, 1]]), "asset-fairness")
    spent_i = allocation.totals_i * [0.15, 0.2, 0.05]
    assert spent_i[0] == pytest.approx(spent_i[1])
    assert spent_i[2] > spent_i[0]
    np.testing.assert_allclose(allocation.totals_i @ [[1, 1], [2, 0], [0, 1]], [10, 20], rtol=1e-12)


def test_weights_divide_what_everybody_spends() -> None:
    problem = make_problem([[9, 18]], [[1, 4], [3, 1]], weight_i=[3, 1])
    spent_i = compute_allocation(problem, "asset-fairness").totals_i * [6 / 18, 7 / 18]
    assert spent_i[0] / spent_i[1] == pytest.approx(3)


def test_a_finished_tenant_leaves_its_room() -> None:
    problem = make_problem([[10, 10]], [[1, 1], [1, 1]], tasks_i=[2, np.inf])
    np.testing.assert_allclose(compute_allocation(problem, "asset-fairness").totals_i, [2, 8], rtol=1e-12)


def test_not_dominant_resource_fairness() -> None:
    problem = make_problem([[30, 30]], [[1, 3], [1, 1]])
    np.testing.assert_allclose(compute_allocation(problem, "asset-fairness").totals_i, [6, 12], rtol=1e-12)


@pytest.mark.parametrize("family", POOLS, ids=lambda family: family.name)
def test_certificate_refuses_one_per_cent(family: Family) -> None:
    instance = reduce_problem(family.make(np.random.default_rng(11)))
    solution = solve_asset_fairness(instance)
    certify_asset_fairness(instance, solution)
    for tasks_ik in _perturb(solution.tasks_ik):
        with pytest.raises(SolverError):
            certify_asset_fairness(instance, Solution(tasks_ik))


def test_certificate_refuses_other_mechanisms() -> None:
    problem = FAMILIES["plain-one-pool"].make(np.random.default_rng(2))
    instance: Instance = reduce_problem(problem)
    with pytest.raises(SolverError):
        certify_asset_fairness(instance, Solution(compute_allocation(problem, "drf").tasks_ik))


def test_refuses_weights_per_resource() -> None:
    problem = make_problem([[9, 18]], [[1, 4], [3, 1]], resource_weight_ir=[[1, 2], [1, 1]])
    with pytest.raises(InvalidProblemError, match=r"tenants\[0\]\.resourceWeights of t0: .*asset-fairness"):
        compute_allocation(problem, "asset-fairness")


def test_a_hundred_thousand_tenants_at_once() -> None:
    generator = np.random.default_rng(3)
    demand_ir = generator.uniform(0.1, 1, (100_000, 3))
    tasks_i = np.where(generator.random(100_000) < 0.5, generator.uniform(1e-7, 1e-4, 100_000), np.inf)
    instance = reduce_problem(make_problem([[1, 1, 1]], demand_ir, tasks_i=tasks_i))
    certify_asset_fairness(instance, solve_asset_fairness(instance))


def _perturb(tasks_ik: FloatArray) -> list[FloatArray]:
    perturbed = []
    for i in range(min(tasks_ik.shape[0], 8)):
        for factor in (0.99, 1.01):
            other = tasks_ik.copy()
            other[i] *= factor
            perturbed.append(other)
    return perturbed
