from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms import alpha_pf_vds
from fairbind.fairness.mechanisms.alpha_pf_vds import ALPHA_PF_VDS, find_guess
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, expand_tasks, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.market.best_response import BestResponses
from fairbind.fairness.solvers.market.interior_point import Newton, StepBudget, find_equilibrium
from fairbind.fairness.solvers.market.market import Market, compute_costs, make_market
from fairbind.fairness.solvers.market.market_active_set import (
    Guess,
    compute_mismatch,
    find_exact_equilibrium,
    find_interior_guess,
    make_guess,
    solve_active_set,
)
from fairbind.model.errors import InvalidProblemError, SolverError
from fairbind.model.policy import LEAST_ALPHA
from fairness.eisenberg_gale import compute_eisenberg_gale_totals
from fairness.families import FAMILIES, Family, families_for
from fairness.servers_oracle import compute_best_slope
from perf.exact_problems import Case, make_case_problem

FAMILIES_TAKEN = [family for family in families_for(ALPHA_PF_VDS.options) if "thousand" not in family.name]
# Figure 1 of the paper, with the fourth demand of its second example.
FIGURE = make_problem(
    [[12.0, 4.0, 75.0], [8.0, 16.0, 0.0]],
    [[1.0, 1.0, 5.0], [1 / 3, 1 / 3, 5.0], [0.25, 1.0, 0.0], [1.0, 0.5, 0.0]],
)


def make_market_of(problem: Problem, alpha: float) -> Market:
    instance = reduce_problem(problem, alpha=alpha)
    return make_market(instance, instance.alpha_k)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [LEAST_ALPHA, 0.03, 0.5, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("family", FAMILIES_TAKEN, ids=lambda family: family.name)
def test_inequality_16_holds_against_a_linear_program(family: Family, alpha: float) -> None:
    """Also where finite tasks hold the sums of servers together: each server alone has nothing better to do."""
    problem = family.make(np.random.default_rng(41))
    alpha_k = np.where(np.isnan(problem.alpha_k), alpha, problem.alpha_k)
    tasks_ik = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).tasks_ik
    assert compute_best_slope(problem, tasks_ik, alpha_k) < 1e-6


@pytest.mark.parametrize("family", FAMILIES_TAKEN, ids=lambda family: family.name)
def test_alpha_1_is_the_program_of_eisenberg_and_gale(family: Family) -> None:
    problem = family.make(np.random.default_rng(42))
    if np.isnan(problem.alpha_k).all() and np.ptp(np.log(problem.weight_i)) < np.log(1e3):
        totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=1.0).totals_i
        np.testing.assert_allclose(totals_i, compute_eisenberg_gale_totals(problem), rtol=1e-4)


def test_figure_3() -> None:
    """The paper's picture has no numbers; 96/7 and 32/7 are by hand, the others to five digits from the conditions."""
    for alpha, expected in ((1.0, [2, 6, 96 / 7, 32 / 7]), (3.0, [2, 6, 12.36760, 4.90810])):
        totals_i = compute_allocation(FIGURE, "alpha-pf-vds", alpha=alpha).totals_i
        np.testing.assert_allclose(totals_i, expected, rtol=1e-5)


def test_large_exponents_approach_ps_dsf() -> None:
    limit_i = compute_allocation(FIGURE, "ps-dsf").totals_i
    distances = [
        np.abs(compute_allocation(FIGURE, "alpha-pf-vds", alpha=alpha).totals_i / limit_i - 1).max()
        for alpha in (2.0, 10.0, 50.0, 250.0)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.003


def test_servers_that_are_not_divisible_do_not_depend_on_alpha() -> None:
    generator = np.random.default_rng(43)
    capacity_kr, demand_ir = np.exp(generator.uniform(3, 5, (3, 2))), np.exp(generator.uniform(-1, 2, (6, 2)))
    problem = make_problem(capacity_kr, demand_ir, divisible_k=[False] * 3, weight_i=generator.uniform(0.5, 2, 6))
    expected_i = compute_allocation(problem, "ps-dsf").totals_i
    for alpha in (0.5, 1.0, 2.0, 8.0):
        totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).totals_i
        np.testing.assert_allclose(totals_i, expected_i, rtol=1e-9)


def test_a_bottleneck_makes_every_exponent_drf() -> None:
    """Memory is what everybody needs most of (corollary 1 of the paper)."""
    problem = make_problem([[10.0, 10.0]], [[1.0, 2.0], [0.5, 4.0], [1.0, 1.0]], weight_i=[1, 2, 3])
    expected_i = compute_allocation(problem, "drf").totals_i
    for alpha in (0.5, 1.0, 3.0):
        totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).totals_i
        np.testing.assert_allclose(totals_i, expected_i, rtol=1e-9)


def test_an_entry_keeps_its_own_exponent() -> None:
    """Each server is for two tenants of its own, so the two do not touch each other."""
    demand_ir = [[0.25, 1.0], [1.0, 0.5]] * 2
    eligible_ik = [[True, False], [True, False], [False, True], [False, True]]
    capacity_kr = [[8.0, 16.0], [8.0, 16.0]]
    problem = make_problem(capacity_kr, demand_ir, eligible_ik=eligible_ik, alpha_k=[3.0, np.nan])
    totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=1.0).totals_i
    np.testing.assert_allclose(totals_i, [12.36760, 4.90810, 96 / 7, 32 / 7], rtol=1e-5)


def test_two_is_the_exponent_of_who_names_none() -> None:
    left, right = (compute_allocation(FIGURE, "alpha-pf-vds", **given) for given in ({}, {"alpha": 2.0}))  # type: ignore[arg-type]
    np.testing.assert_array_equal(left.tasks_ik, right.tasks_ik)


@pytest.mark.parametrize("alpha", [LEAST_ALPHA, 0.1, 0.5, 1.0, 3.0])
def test_who_needs_two_resources_gets_less_by_a_power(alpha: float) -> None:
    """By hand: who needs both pays the multipliers of both, so its share to the power -alpha is twice the others'."""
    problem = make_problem([[10.0, 10.0]], [[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    little = 2.0 ** (-1 / alpha)
    totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).totals_i
    np.testing.assert_allclose(totals_i, np.array([10.0, 5.0, 2.0 * little]) / (1 + little), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("family", [f for f in FAMILIES_TAKEN if not f.is_one_pool], ids=lambda family: family.name)
def test_exponents_far_apart(family: Family) -> None:
    """Below 1 and above, on the servers of one problem."""
    generator = np.random.default_rng(46)
    problem = family.make(generator)
    alpha_k = np.exp(generator.uniform(np.log(0.05), np.log(20), len(problem.capacity_kr)))
    tasks_ik = compute_allocation(replace(problem, alpha_k=alpha_k), "alpha-pf-vds").tasks_ik
    assert compute_best_slope(problem, tasks_ik, alpha_k) < 1e-6


@pytest.mark.parametrize("alpha", [0.0, -1.0, 0.009, np.inf, np.nan])
def test_other_exponents_are_refused(alpha: float) -> None:
    with pytest.raises(InvalidProblemError, match=r"^alpha: .*: must be a number from 0\.01 on$"):
        compute_allocation(FIGURE, "alpha-pf-vds", alpha=alpha)


def test_other_exponents_of_servers_are_refused() -> None:
    expected = r"^servers\[1\]\.alpha of s1: 0\.009: must be a number from 0\.01 on$"
    with pytest.raises(InvalidProblemError, match=expected):
        compute_allocation(replace(FIGURE, alpha_k=np.array([np.nan, 0.009])), "alpha-pf-vds")


def test_many_tenants_are_quickly_exact() -> None:
    generator = np.random.default_rng(44)
    problem = make_problem(np.exp(generator.uniform(3, 5, (10, 3))), np.exp(generator.uniform(-1, 2, (200, 3))))
    certificate = compute_allocation(problem, "alpha-pf-vds").certificate
    assert certificate["largestMismatch"] < 1e-9
    assert certificate["largestGap"] < 1e-9


def make_mixed(seed: int, tenants: int) -> Problem:
    """Weights, finite tasks and eligibility; many servers in ten shapes, of which several have the same proportions.

    There a tenant's tasks can sit on one or the other without any difference, and a class can be a ten-thousandth.
    """
    generator = np.random.default_rng([seed, 45])
    shapes = np.array([[2.0, 2.0], [2.0, 1.0], [2.0, 3.0], [4.0, 4.0], [1.0, 1.0], [4.0, 2.0], [2.0, 0.1], [2.0, 4.0]])
    count_k = np.array([7000.0, 4000.0, 1000.0, 800.0, 100.0, 50.0, 5.0, 1.0])
    capacity_kr = np.column_stack([shapes, generator.uniform(1, 4, 8)])
    average_r = count_k @ capacity_kr / count_k.sum()
    demand_ir = average_r * np.exp(generator.uniform(np.log(1 / 300), np.log(1 / 3), (tenants, 3)))
    equal_part_i = (count_k @ capacity_kr / demand_ir).min(axis=1) / tenants
    eligible_ik = generator.random((tenants, 8)) < 0.8
    eligible_ik[np.arange(tenants), generator.integers(0, 8, tenants)] = True
    return make_problem(
        capacity_kr,
        demand_ir,
        count_k=count_k,
        weight_i=generator.choice([1.0, 2.0, 3.0, 4.0], tenants),
        tasks_i=np.where(generator.random(tenants) < 0.5, np.inf, equal_part_i * generator.uniform(0.2, 3, tenants)),
        eligible_ik=eligible_ik,
    )


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [LEAST_ALPHA, 0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize(("seed", "tenants"), [(0, 60), (1, 200), (2, 500)])
def test_large_mixed_problems_are_exact(seed: int, tenants: int, alpha: float) -> None:
    problem = make_mixed(seed, tenants)
    allocation = compute_allocation(problem, "alpha-pf-vds", alpha=alpha)
    assert allocation.certificate["largestMismatch"] < 1e-9
    assert allocation.certificate["largestGap"] < 1e-9
    has_all_i = allocation.totals_i >= problem.tasks_i * (1 - 1e-9)
    assert has_all_i.sum() > (tenants / 10 if alpha >= 0.1 else 0)
    if tenants < 100:
        assert compute_best_slope(problem, allocation.tasks_ik, np.full(8, alpha)) < 1e-7


def test_a_large_mixed_problem_with_an_exponent_for_each_server() -> None:
    problem = make_mixed(3, 150)
    alpha_k = np.array([0.5, 1.0, 2.0, 5.0, np.nan, 3.0, 1.5, 0.8])
    divisible_k = np.arange(8) != 4
    allocation = compute_allocation(replace(problem, alpha_k=alpha_k, divisible_k=divisible_k), "alpha-pf-vds")
    assert allocation.certificate["largestMismatch"] < 1e-9


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_a_market_with_finite_tasks_is_balanced_to_rounding(alpha: float) -> None:
    """Somebody who has all its tasks can hardly change their sum; what it still can must not drown in rounding."""
    problem = make_case_problem(Case("", "alpha-pf-vds", 200, servers="google", is_mixed=True))
    equilibrium = find_equilibrium(make_market_of(problem, alpha))
    assert equilibrium.gap < 1e-13
    assert equilibrium.steps < 60


HARD = ("plain", 6, 5.0)
"""A problem on which long steps of the interior-point method lose their way."""


def make_hard() -> Market:
    family, seed, alpha = HARD
    return make_market_of(FAMILIES[family].make(np.random.default_rng(seed)), alpha)


def test_short_steps_find_what_long_ones_do_not() -> None:
    market = make_hard()
    assert solve_active_set(market, find_interior_guess(market))[1] > 1e-3
    assert solve_active_set(market, find_interior_guess(market, centring=0.7))[1] < 1e-12


def test_servers_that_answer_in_turn_find_the_same() -> None:
    market = make_hard()
    guess, mismatch = find_guess(market)
    assert mismatch < 1e-12
    responses = BestResponses(market)
    responses.run(60)
    np.testing.assert_allclose(market.get_totals(responses.part_ki), market.get_totals(guess.part_ki), rtol=1e-6)


def test_the_active_set_method_finds_the_exact_amounts_again() -> None:
    market = make_market_of(FAMILIES["combined"].make(np.random.default_rng(4)), 2.0)
    exact, mismatch = find_guess(market)
    assert mismatch < 1e-12
    generator = np.random.default_rng(0)
    rough = Guess(
        exact.part_ki * generator.uniform(0.999, 1, exact.part_ki.shape),
        exact.price_kr * generator.uniform(0.999, 1.001, exact.price_kr.shape),
        exact.relief_i,
    )
    assert compute_mismatch(market, rough) > 1e-5
    solved, mismatch = solve_active_set(market, rough)
    assert mismatch < 1e-12
    np.testing.assert_allclose(market.get_totals(solved.part_ki), market.get_totals(exact.part_ki), rtol=1e-10)


def test_the_active_set_method_lets_in_and_takes_out() -> None:
    """The right prices, but one tenant on a server that is too dear for it: the pairs are found again."""
    market = make_market_of(FAMILIES["plain"].make(np.random.default_rng(2)), 2.0)
    exact, _ = find_guess(market)
    absent = np.argwhere((exact.part_ki == 0) & market.usable_ki)
    share_ki = np.where(exact.part_ki > 0, market.gain_ki * exact.part_ki / market.get_totals(exact.part_ki), np.inf)
    part_ki = exact.part_ki.copy()
    part_ki[tuple(absent[0])] = 1e-3
    part_ki.ravel()[share_ki.argmin()] = 0.0
    solved, mismatch = solve_active_set(market, make_guess(market, part_ki, exact.price_kr))
    assert mismatch < 1e-10
    np.testing.assert_allclose(market.get_totals(solved.part_ki), market.get_totals(exact.part_ki), rtol=1e-8)


def test_the_interior_point_method_begins_near_a_known_answer() -> None:
    market = make_market_of(FAMILIES["weights"].make(np.random.default_rng(1)), 1.0)
    first = find_equilibrium(market)
    shifted = replace(market, weight_i=market.weight_i * np.linspace(0.999, 1.001, market.weight_i.size))
    cold, near = find_equilibrium(shifted), find_equilibrium(shifted, near=(first.part_ki, first.price_kr))
    assert cold.gap < 1e-13
    assert near.gap < 1e-13
    np.testing.assert_allclose(shifted.get_totals(near.part_ki), shifted.get_totals(cold.part_ki), rtol=1e-8)


@pytest.mark.parametrize("power", [0.3, 1.0, 2.5, 40.0])
def test_costs_are_norms_of_prices(power: float) -> None:
    """Of which the root is kept below 1."""
    market = make_market_of(FIGURE, power)
    price_kr = np.where(market.is_slot_kr, [[0.2, 0.5, 0.3]], 0.0)
    expected_ki = (market.load_kri * (price_kr**power)[:, :, None]).sum(axis=1) ** (1 / power)
    root = min(power, 1.0)
    np.testing.assert_allclose(compute_costs(market, price_kr**root), expected_ki**root, rtol=1e-12)


def solve_figure() -> tuple[Instance, Solution]:
    instance = reduce_problem(FIGURE, alpha=2.0)
    return instance, ALPHA_PF_VDS.solve(instance)


def change_price(solution: Solution, factor: float) -> Solution:
    price_kr: FloatArray = solution.evidence["price_kr"].copy()
    k, r = np.unravel_index(int(price_kr.argmax()), price_kr.shape)
    price_kr[k, r] *= factor
    return replace(solution, evidence={"price_kr": price_kr})


@pytest.mark.parametrize(
    ("factor", "message"),
    [(1.01, "pays"), (0.99, "pays"), (-1.0, "negative or no numbers"), (np.nan, "negative or no numbers")],
)
def test_other_prices_prove_nothing(factor: float, message: str) -> None:
    instance, solution = solve_figure()
    ALPHA_PF_VDS.certify(instance, solution)
    with pytest.raises(SolverError, match=message):
        ALPHA_PF_VDS.certify(instance, change_price(solution, factor))


def test_prices_without_need_are_refused() -> None:
    """Everybody pays what a place is worth, but half of the server is free: it could do better."""
    instance = reduce_problem(make_problem([[10.0]], [[1.0], [1.5]]), alpha=2.0)
    tasks_ik = np.array([[0.25], [0.25 / 1.5]]) * 10 * instance.demand_ir[0, 0] / 0.1
    tasks_ik *= 0.25 / (tasks_ik[0, 0] * instance.demand_ir[0, 0])
    with pytest.raises(SolverError, match=r"0\.5 of what costs something is left over"):
        ALPHA_PF_VDS.certify(instance, Solution(tasks_ik, {"price_kr": np.array([[2.0]])}))


@pytest.mark.parametrize("alpha", [LEAST_ALPHA, 0.5, 2.0, 100.0, 1e4, 1e6])
@pytest.mark.parametrize("factor", [0.5, 0.99, 1 - 1e-5])
def test_fewer_tasks_at_higher_prices_are_refused(factor: float, alpha: float) -> None:
    """Everybody still pays what a place is worth; no exponent is large enough for servers to be left half empty."""
    instance = reduce_problem(FIGURE, alpha=alpha)
    solution = ALPHA_PF_VDS.solve(instance)
    ALPHA_PF_VDS.certify(instance, solution)
    price_kr: FloatArray = solution.evidence["price_kr"] / factor ** min(alpha, 1.0)
    less = replace(solution, tasks_ik=solution.tasks_ik * factor, evidence={"price_kr": price_kr})
    with pytest.raises(SolverError, match="of what costs something is left over"):
        ALPHA_PF_VDS.certify(instance, less)


FEW_TASKS = make_problem(
    [[32.0, 16.0], [32.0, 32.0]], [[1.0, 1.0], [4.0, 1.0], [4.0, 1.0]], count_k=[100, 1], tasks_i=[np.inf, np.inf, 1]
)
"""The third tenant has its one task, and so a share of less than a hundredth of the others'."""


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("lack", [0.0, 1e-12, 9e-10])
@pytest.mark.parametrize("alpha", [3.0, 10.0, 30.0])
def test_a_slope_multiplies_no_rounding(alpha: float, lack: float, order: list[int]) -> None:
    """What a tenant with one task lacks of it by rounding would be worth a multiple of everything else."""
    problem = replace(FEW_TASKS, capacity_kr=FEW_TASKS.capacity_kr[order], count_k=FEW_TASKS.count_k[order])
    instance = reduce_problem(problem, alpha=alpha)
    solution = ALPHA_PF_VDS.solve(instance)
    limited_i = np.isfinite(instance.limit_i)
    less = replace(solution, tasks_ik=solution.tasks_ik * np.where(limited_i, 1 - lack, 1.0)[:, None])
    certificate = ALPHA_PF_VDS.certify(instance, less)
    assert certificate["largestGap"] < 1e-8
    assert compute_best_slope(problem, expand_tasks(instance, less.tasks_ik), np.full(2, alpha)) < 1e-7


@pytest.mark.parametrize("lack", [2e-3, 1e-6])
def test_a_tenant_that_lacks_a_part_of_its_few_tasks_is_refused(lack: float) -> None:
    instance = reduce_problem(FEW_TASKS, alpha=10.0)
    solution = ALPHA_PF_VDS.solve(instance)
    limited_i = np.isfinite(instance.limit_i)
    less = replace(solution, tasks_ik=solution.tasks_ik * np.where(limited_i, 1 - lack, 1.0)[:, None])
    with pytest.raises(SolverError):
        ALPHA_PF_VDS.certify(instance, less)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("seed", [pytest.param(48, marks=pytest.mark.nightly), 49])
def test_no_ordinary_problem_with_few_tasks_is_refused(seed: int, alpha: float) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(10):
        problem = FAMILIES["few-tasks"].make(generator)
        tasks_ik = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).tasks_ik
        assert compute_best_slope(problem, tasks_ik, np.full(len(problem.server_names), alpha)) < 1e-6


def draw_changed(generator: np.random.Generator, instance: Instance, solution: Solution) -> FloatArray | None:
    """Draw other tasks: some of one tenant's less, on another server or another tenant's; None if nothing changes.

    Prices, loads and limits may be met all the same.
    """
    tasks_ik: FloatArray = solution.tasks_ik.copy()
    holdings = np.argwhere(tasks_ik > 0)
    i, k = holdings[generator.integers(len(holdings))]
    taken = tasks_ik[i, k] * 10.0 ** generator.uniform(-4, 0)
    tasks_ik[i, k] -= taken
    kind = generator.integers(3)
    if kind > 0:
        rows = [i] if kind == 1 else np.delete(np.arange(len(tasks_ik)), i)
        others = [
            (j, m) for j in rows for m in range(tasks_ik.shape[1]) if instance.usable_ik[j, m] and (j, m) != (i, k)
        ]
        if not others:
            return None
        j, m = others[generator.integers(len(others))]
        tasks_ik[j, m] += taken * float((instance.demand_ir[i] / np.maximum(instance.demand_ir[j], 1e-12)).min())
    return tasks_ik


@pytest.mark.parametrize("alpha", [1.0, 3.0, 10.0])
def test_what_is_certified_after_a_change_is_an_equilibrium_all_the_same(alpha: float) -> None:
    """Most changes are refused. What passes (a move between like servers) is right by the definition, too."""
    generator = np.random.default_rng(48)
    refused = tried = 0
    for _ in range(12):
        problem = FAMILIES["few-tasks"].make(generator)
        instance = reduce_problem(problem, alpha=alpha)
        solution = ALPHA_PF_VDS.solve(instance)
        for _ in range(20):
            tasks_ik = draw_changed(generator, instance, solution)
            if tasks_ik is None:
                continue
            tried += 1
            try:
                ALPHA_PF_VDS.certify(instance, replace(solution, tasks_ik=tasks_ik))
            except SolverError:
                refused += 1
                continue
            alpha_k = np.full(len(problem.server_names), alpha)
            assert compute_best_slope(problem, expand_tasks(instance, tasks_ik), alpha_k) < 1e-6 * alpha
    assert refused > 0.8 * tried > 100


def test_a_step_that_leads_to_no_numbers_is_silent() -> None:
    """Warnings are errors in tests. Someone has 1000 times the weight for a few tasks; one class is next to all."""
    problem = make_problem(
        [[3.0, 0.35882226806801554], [2.0, 3.0], [3.0, 1.0], [1.0, 1.0]],
        [[1.0, 0.0], [0.0, 0.6936477254085475], [2.0, 2.0], [2.0, 1.0]],
        count_k=[1, 1, 1e20, 1e3],
        weight_i=[1, 1000, 1, 0.001],
        tasks_i=[np.inf, 3, np.inf, np.inf],
    )
    market = make_market_of(problem, 2.0)
    _, mismatch = find_exact_equilibrium(market)
    assert not np.isnan(mismatch)


def test_no_numbers_are_the_worst_mismatch() -> None:
    market = make_market_of(FIGURE, 2.0)
    guess, mismatch = find_guess(market)
    assert mismatch < 1e-12
    price_kr = guess.price_kr.copy()
    price_kr[0, 0] = np.nan
    assert compute_mismatch(market, replace(guess, price_kr=price_kr)) == np.inf


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 6.0])
def test_limits_without_room_and_without_need_are_met_to_rounding(alpha: float) -> None:
    """What a tenant may have at most is just what it would buy: relief and room are both 0."""
    for problem in (make_problem([[2.0]], [[1.0], [1.0]], tasks_i=[1.0, np.inf]), FIGURE):
        totals_i = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).totals_i
        limited = replace(problem, tasks_i=np.where(np.arange(totals_i.size) % 2 == 0, totals_i, np.inf))
        allocation = compute_allocation(limited, "alpha-pf-vds", alpha=alpha)
        np.testing.assert_allclose(allocation.totals_i, totals_i, rtol=1e-9)


def test_nobody_may_be_left_with_nothing() -> None:
    instance, solution = solve_figure()
    tasks_ik = solution.tasks_ik.copy()
    tasks_ik[0] = 0.0
    with pytest.raises(SolverError, match="gets nothing"):
        ALPHA_PF_VDS.certify(instance, replace(solution, tasks_ik=tasks_ik))


@pytest.mark.parametrize("apart", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("alpha", [2.0, 10.0])
def test_servers_far_apart_or_next_to_equal_are_answered(alpha: float, apart: float) -> None:
    """Servers that differ by next to nothing, or by twelve orders of magnitude."""
    generator = np.random.default_rng(50)
    demand_ir = np.exp(generator.uniform(-1, 2, (3, 2)))
    alike_kr = 50.0 * (1 + apart * generator.uniform(-1, 1, (3, 2)))
    for capacity_kr in (alike_kr, alike_kr * np.array([[1.0], [apart], [1.0]])):
        problem = make_problem(capacity_kr, demand_ir)
        tasks_ik = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).tasks_ik
        assert compute_best_slope(problem, tasks_ik, np.full(3, alpha)) < 1e-6 * alpha


def test_a_guess_stays_what_it_is_when_servers_respond_again() -> None:
    market = make_hard()
    responses = BestResponses(market)
    responses.run(1)
    guess = responses.get_guess()
    mismatch = compute_mismatch(market, guess)
    change = responses.run(1)
    assert change > 1e-3
    assert compute_mismatch(market, guess) == mismatch


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of one number: the Newton steps that are taken from now on."""
    steps = [0]
    start = Newton.__init__

    def count(newton: Newton, *arguments: Any) -> None:
        steps[0] += 1
        start(newton, *arguments)

    monkeypatch.setattr(Newton, "__init__", count)
    return steps


# Nine orders of magnitude between servers: without a bound the servers answer each other for 18,700 steps, some 20 s.
FAR_APART = make_problem(
    [
        [0.5, 0.043, 0.034],
        [2.1e-9, 1.2e-9, 1.5e-9],
        [1.4e-10, 2.3e-10, 1.7e-9],
        [0.35, 2.2, 0.083],
        [0.57, 0.019, 0.065],
    ],
    [[1.3, 0.018, 2.6], [0.1, 0.072, 54.0], [3.0, 0.6, 0.018], [0.31, 29.0, 0.16], [0.2, 2.7, 0.1]],
)


@pytest.mark.parametrize("most", [40, 1000])
def test_the_steps_of_a_search_are_counted_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been found by then is the answer, and the certificate decides whether it is one."""
    monkeypatch.setattr(alpha_pf_vds, "MOST_STEPS", most - 5 * 2)
    monkeypatch.setattr(alpha_pf_vds, "MOST_SERVER_STEPS", 2)
    steps = count_steps(monkeypatch)
    with contextlib.suppress(SolverError):
        compute_allocation(FAR_APART, "alpha-pf-vds", alpha=10.0)
    assert 0 < steps[0] <= most


def test_servers_respond_no_more_when_no_steps_are_left() -> None:
    budget = StepBudget(10_000)
    responses = BestResponses(make_hard(), budget)
    responses.run(1)
    assert 0 < budget.left < 10_000
    last_ki, budget.left = responses.part_ki.copy(), 0
    responses.run(1)
    np.testing.assert_array_equal(responses.part_ki, last_ki)


@pytest.mark.nightly
def test_amounts_that_are_too_far_apart_end_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count_steps(monkeypatch)
    with contextlib.suppress(SolverError):
        compute_allocation(FAR_APART, "alpha-pf-vds", alpha=10.0)
    assert 0 < steps[0] <= alpha_pf_vds.MOST_STEPS + alpha_pf_vds.MOST_SERVER_STEPS * 5


def test_a_spent_budget_leaves_the_best_answer_so_far() -> None:
    market = make_hard()
    enough, few = StepBudget(300), StepBudget(3)
    found, short = find_equilibrium(market, centring=0.7, budget=enough), find_equilibrium(market, budget=few)
    assert found.gap < 1e-13
    assert enough.left == 300 - found.steps
    assert few.is_spent
    assert short.steps == 3
    assert 1e-6 < short.gap < np.inf


def test_the_interior_point_method_gives_up_where_it_does_not_get_on() -> None:
    """Long steps reach 0.003 on this problem after some 14, and no less after 300."""
    equilibrium = find_equilibrium(make_hard())
    assert equilibrium.gap > 1e-3
    assert equilibrium.steps < 100


@pytest.mark.parametrize(
    ("mismatches", "runs"),
    [
        ([1e-4, 9e-5, 8e-5, 7e-5, 6e-5], [8, 16, 32, 64, 128]),  # nowhere near: to the end
        ([5e-8, 4e-8, 1e-12], [8, 16]),  # near enough for a certificate, and hardly better than before
        ([5e-8, 2e-8, 9e-9, 1e-12], [8, 16, 32, 64]),  # near enough, and twice as good each time
        ([2e-7, 1.5e-7, 9e-8, 1e-12], [8, 16, 32]),  # stalls, but only the third is near enough
        ([1e-12], [8]),  # found
    ],
)
def test_servers_stop_answering_when_that_hardly_helps(
    mismatches: list[float], runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each number of answers leads to is given; the rule decides after which of them to stop."""
    market = make_market_of(FIGURE, 2.0)
    exact, _ = find_exact_equilibrium(market)
    asked: list[int] = []
    outcomes = iter(mismatches)

    def respond(_: BestResponses, times: int) -> float:
        asked.append(times)
        return 1.0

    monkeypatch.setattr(BestResponses, "run", respond)
    monkeypatch.setattr(BestResponses, "get_guess", lambda _: exact)
    monkeypatch.setattr(alpha_pf_vds, "find_exact_equilibrium", lambda *_: (exact, 1.0))
    monkeypatch.setattr(alpha_pf_vds, "solve_active_set", lambda *_: (exact, next(outcomes)))
    _, mismatch = find_guess(market)
    assert asked == runs
    assert mismatch == min(mismatches[: len(runs)])
