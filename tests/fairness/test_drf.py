from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.drf import DRF, fill_pool
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import SolverError
from fairness.families import Family, families_for
from fairness.levelling import compute_dominant_share_per_task
from fairness.textbook import compute_max_min_levels

POOLS = [family for family in families_for(DRF.options) if family.is_one_pool and "thousand" not in family.name]


def compute_by_linear_programs(problem: Problem) -> FloatArray:
    exists_r = problem.total_r > 0
    runs_i = (problem.demand_ir[:, ~exists_r] == 0).all(axis=1) & (problem.tasks_i > 0)
    tasks_per_level_i = (problem.weight_i / problem.weight_i[runs_i].sum() / compute_dominant_share_per_task(problem))[
        runs_i
    ]
    share_ir = (problem.demand_ir[:, exists_r] / problem.total_r[exists_r])[runs_i]
    levels_i = compute_max_min_levels(
        (share_ir * tasks_per_level_i[:, None]).T,
        np.ones(int(exists_r.sum())),
        np.zeros(tasks_per_level_i.size),
        problem.tasks_i[runs_i] / tasks_per_level_i,
    )
    tasks_i = np.zeros(runs_i.size)
    tasks_i[runs_i] = levels_i * tasks_per_level_i
    return tasks_i


@pytest.mark.parametrize("family", POOLS, ids=lambda family: family.name)
def test_water_filling_is_the_lexicographic_linear_program(family: Family) -> None:
    problem = family.make(np.random.default_rng(1))
    if np.ptp(np.log(problem.weight_i)) < np.log(1e4):  # scipy loses smaller ones
        totals_i = compute_allocation(problem, "drf").totals_i
        np.testing.assert_allclose(totals_i, compute_by_linear_programs(problem), rtol=1e-6)


@pytest.mark.parametrize("family", POOLS, ids=lambda family: family.name)
def test_drfh_on_one_server_is_drf(family: Family) -> None:
    problem = family.make(np.random.default_rng(2))
    drf_i = compute_allocation(problem, "drf").totals_i
    np.testing.assert_allclose(compute_allocation(problem, "drfh").totals_i, drf_i, rtol=1e-7)
    np.testing.assert_allclose(compute_allocation(problem, "per-server-drf").totals_i, drf_i, rtol=1e-9)


def make_rounds() -> Problem:
    """Four rounds: cpu fills; one without cpu has all its tasks; memory fills; the last grows until disk does."""
    return make_problem(
        [[10, 100, 1000]],
        [[1, 1, 1], [0, 10, 1], [0, 1, 10], [0, 0, 5]],
        tasks_i=[np.inf, np.inf, 9, np.inf],
        weight_i=[2, 1, 1, 1],
    )


def test_who_is_stopped_leaves_the_rest_to_the_others() -> None:
    problem = make_rounds()
    totals_i = compute_allocation(problem, "drf").totals_i
    np.testing.assert_allclose(totals_i, [10, (100 - 10 - 9) / 10, 9, (1000 - 10 - 8.1 - 90) / 5], rtol=1e-12)


def test_resource_weights_divide_the_share() -> None:
    """The first counts cpu a quarter: at equal levels it holds four times as much of it."""
    problem = make_problem([[10, 1e6]], [[1, 1], [1, 1]], resource_weight_ir=[[4, 1], [1, 1]])
    np.testing.assert_allclose(compute_allocation(problem, "drf").totals_i, [8, 2], rtol=1e-12)


def test_a_hundred_thousand_tenants_keep_to_the_capacity() -> None:
    generator = np.random.default_rng(0)
    count = 100_000
    problem = make_problem(
        [[4000.0, 16e12]],
        generator.uniform(0.1, 1, (count, 2)) * [1, 4e9],
        weight_i=10 ** generator.uniform(-3, 3, count),
        tasks_i=generator.exponential(0.1, count),
    )
    allocation = compute_allocation(problem, "drf")
    used_r = allocation.totals_i @ problem.demand_ir / problem.total_r
    assert used_r.max() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    "tasks",
    [
        [9.9, 8.1, 9, 178.38],  # less for one
        [10, 8.1, 9, 170],  # room left
        [10, 8.1, 8.9, 178.38],  # not all of its tasks, and room for them
        [10, 7.1, 9, 178.38],
        [5, 8.1, 9, 178.38],
    ],
)
def test_the_certificate_refuses_less_than_the_most(tasks: list[float]) -> None:
    instance = reduce_problem(make_rounds())
    assert DRF.certify(instance, DRF.solve(instance))["method"] == "bottlenecks"
    with pytest.raises(SolverError, match="could get"):
        DRF.certify(instance, Solution(np.array(tasks)[:, None]))


def test_the_certificate_refuses_unequal_shares() -> None:
    """All of cpu is used, but not evenly."""
    instance = reduce_problem(make_problem([[10.0]], [[1.0], [1.5]]))
    with pytest.raises(SolverError, match="could get"):
        DRF.certify(instance, Solution(np.array([[5.1], [4.9 / 1.5]])))


def test_the_certificate_knows_weights_and_limits() -> None:
    instance = reduce_problem(make_rounds())
    for other in (
        replace(instance, weight_i=np.full(4, 0.25)),
        replace(instance, limit_i=np.full(4, np.inf)),
    ):
        with pytest.raises(SolverError):
            DRF.certify(instance, DRF.solve(other))


def test_filling_needs_no_unit() -> None:
    """Amounts that span what float64 holds: 1e-15 of a resource and 1e21 of another."""
    tasks_i = fill_pool(
        np.array([1e-15, 1e21]), np.array([[1e-16, 1e15], [5e-16, 1e20]]), np.array([1.0, 1.0]), np.full(2, np.inf)
    )
    np.testing.assert_allclose(tasks_i, [10 / 6, 10 / 6], rtol=1e-12)
