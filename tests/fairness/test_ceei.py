from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.ceei import CEEI
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import SolverError
from fairness.eisenberg_gale import compute_eisenberg_gale_totals
from fairness.families import Family, families_for

POOLS = [family for family in families_for(CEEI.options) if "thousand" not in family.name]
# Tenants 0 and 2 are held by both resources' prices, tenant 1 has all its tasks; disk is left over.
MIXED = make_problem(
    [[9.0, 18.0, 100.0]], [[1.0, 4.0, 1.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]], tasks_i=[np.inf, 0.5, np.inf]
)


@pytest.mark.parametrize("family", POOLS, ids=lambda family: family.name)
def test_it_is_the_program_of_eisenberg_and_gale(family: Family) -> None:
    for seed in range(2):
        problem = family.make(np.random.default_rng([seed, 21]))
        totals_i = compute_allocation(problem, "ceei").totals_i
        # Where weights span six decades the general solver is the one that loses digits.
        tolerance = 3e-5 if np.ptp(np.log(problem.weight_i)) < np.log(1e3) else 1e-3
        np.testing.assert_allclose(totals_i, compute_eisenberg_gale_totals(problem), rtol=tolerance)


def test_two_tenants_by_hand() -> None:
    totals_i = compute_allocation(make_problem([[9, 18]], [[1.0, 4.0], [3.0, 1.0]]), "ceei").totals_i
    np.testing.assert_allclose(totals_i, [45 / 11, 18 / 11], rtol=1e-12)


@pytest.mark.parametrize(
    ("first", "expected"),
    [([16, 1], [100 / 31, 1500 / 31]), ([16, 8], [25 / 6, 100 / 3])],
    ids=["truth", "lie"],
)
def test_a_lie_about_the_demand_pays(first: list[float], expected: list[float]) -> None:
    totals_i = compute_allocation(make_problem([[100.0, 100.0]], [first, [1.0, 2.0]]), "ceei").totals_i
    np.testing.assert_allclose(totals_i, expected, rtol=1e-12)


def test_weights_are_budgets() -> None:
    totals_i = compute_allocation(make_problem([[10.0]], [[1.0], [2.0]], weight_i=[3, 1]), "ceei").totals_i
    np.testing.assert_allclose(totals_i, [7.5, 1.25], rtol=1e-12)


def test_who_has_all_its_tasks_keeps_the_rest_of_its_budget() -> None:
    allocation = compute_allocation(MIXED, "ceei")
    assert allocation.totals_i[1] == pytest.approx(0.5, rel=1e-12)
    price_r = allocation.certificate["prices"]
    cost_per_task = np.array([3, 1, 1]) / [9, 18, 100] @ price_r
    assert 0.5 * cost_per_task < 1 / 3 - 0.01


@pytest.mark.parametrize("change", [0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-5, -1e-12, -1e-9, -1e-8, -1e-7, -1e-5])
def test_tasks_may_be_just_what_the_budget_buys(change: float) -> None:
    """Whether the limit or the budget is what holds the first tenant is open, or as good as open."""
    limit = 1 + change
    totals_i = compute_allocation(make_problem([[2]], [[1], [1]], tasks_i=[limit, np.inf]), "ceei").totals_i
    expected = min(1.0, limit)
    np.testing.assert_allclose(totals_i, [expected, 2 - expected], rtol=1e-9)


@pytest.mark.parametrize("tenants", [2, 3, 7, 50])
def test_equal_tenants_one_of_which_has_just_its_part(tenants: int) -> None:
    tasks_i = np.where(np.arange(tenants) == 0, 10 / tenants, np.inf)
    totals_i = compute_allocation(make_problem([[10, 10]], [[1, 0.3]] * tenants, tasks_i=tasks_i), "ceei").totals_i
    np.testing.assert_allclose(totals_i, np.full(tenants, 10 / tenants), rtol=1e-12)


def test_a_resource_that_is_left_over_costs_nothing() -> None:
    assert compute_allocation(MIXED, "ceei").certificate["prices"][2] == 0.0


@pytest.mark.slow
def test_a_hundred_thousand_tenants_clear_the_market() -> None:
    generator = np.random.default_rng(3)
    count = 100_000
    demand_ir = generator.uniform(0.1, 1, (count, 3)) * (generator.random((count, 3)) < 0.7) + [0.1, 0, 0]
    weight_i = np.exp(generator.uniform(-7, 7, count))
    tasks_i = np.where(generator.random(count) < 0.5, 0.01 * generator.random(count), np.inf)
    problem = make_problem([[1000, 2000, 50]], demand_ir, weight_i=weight_i, tasks_i=tasks_i)
    certificate = compute_allocation(problem, "ceei").certificate
    assert certificate["largestMisspending"] < 1e-9
    assert certificate["unsold"] < 1e-12


def solve_mixed() -> tuple[Instance, Solution]:
    instance = reduce_problem(MIXED)
    return instance, CEEI.solve(instance)


def change_prices(solution: Solution, change_r: list[float]) -> Solution:
    price_r: FloatArray = solution.evidence["price_r"] + np.array(change_r)
    return replace(solution, evidence={"price_r": price_r})


@pytest.mark.parametrize(
    ("change_r", "message"),
    [
        ([0, 0, 1e-3], "left over at a price|times its budget"),
        ([-10, 0, 0], "negative or no numbers"),
        ([np.nan, 0, 0], "negative or no numbers"),
        ([1e-3, -1e-3, 0], "times its budget"),
        ([1, 1, 0], "times its budget"),
    ],
)
def test_other_prices_prove_nothing(change_r: list[float], message: str) -> None:
    instance, solution = solve_mixed()
    CEEI.certify(instance, solution)
    with pytest.raises(SolverError, match=message):
        CEEI.certify(instance, change_prices(solution, change_r))


def test_nobody_who_has_all_its_tasks_may_pay_more_than_its_budget() -> None:
    """One tenant, whose tasks fit exactly: any price that it can pay is right, no higher one is."""
    instance = reduce_problem(make_problem([[10]], [[1]], tasks_i=[10]))
    tasks_ik = np.array([[10.0]])
    CEEI.certify(instance, Solution(tasks_ik, {"price_r": np.array([0.5])}))
    with pytest.raises(SolverError, match=r"spends 1.5 times"):
        CEEI.certify(instance, Solution(tasks_ik, {"price_r": np.array([1.5])}))


def test_a_price_for_what_is_left_over_is_refused() -> None:
    """Both tenants spend their budgets, but half of the resource is unsold."""
    instance = reduce_problem(make_problem([[10.0]], [[1.0], [1.5]]))
    tasks_ik = np.array([[2.5], [2.5 / 1.5]])
    with pytest.raises(SolverError, match="left over at a price"):
        CEEI.certify(instance, Solution(tasks_ik, {"price_r": np.array([2.0])}))
