from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.drfh import DRFH
from fairbind.fairness.mechanisms.mechanism import Mechanism
from fairbind.fairness.mechanisms.tsf import TSF
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.maxmin import lexicographic
from fairbind.fairness.solvers.maxmin.level_lp import LevelProgram
from fairbind.fairness.solvers.maxmin.lexicographic import compute_worth, solve_lexicographic
from fairbind.fairness.solvers.maxmin.lp_refinement import refine_tasks
from fairbind.model.errors import SolverError
from fairness.families import Family, families_for
from fairness.levelling import compute_dominant_share_per_task, compute_reference_tasks, compute_tasks_alone

BOTH = pytest.mark.parametrize("mechanism", [DRFH, TSF], ids=lambda mechanism: mechanism.id)
SMALL = [family for family in families_for(DRFH.options) if "thousand" not in family.name]


def compute_level_per_task(problem: Problem, mechanism: Mechanism) -> FloatArray:
    if mechanism is DRFH:
        share_i = compute_dominant_share_per_task(problem)
        return np.asarray(share_i / problem.weight_i)
    # Whoever needs what nobody has runs nothing anyway.
    return np.asarray(1 / np.maximum(compute_tasks_alone(problem).sum(axis=1), 1e-300) / problem.weight_i)


def make_random(seed: int, tenants: int = 6, servers: int = 3, resources: int = 2) -> Problem:
    generator = np.random.default_rng(seed)
    demand_ir = generator.uniform(0.05, 1, (tenants, resources)) * (generator.random((tenants, resources)) < 0.7)
    demand_ir[demand_ir.sum(axis=1) == 0] = 0.3
    eligible_ik = generator.random((tenants, servers)) < 0.6
    tasks_i = np.where(generator.random(tenants) < 0.3, generator.uniform(0.5, 6, tenants), np.inf)
    return make_problem(
        generator.uniform(1, 10, (servers, resources)),
        demand_ir,
        eligible_ik=eligible_ik,
        weight_i=10 ** generator.uniform(-1, 1, tenants),
        tasks_i=tasks_i,
        count_k=generator.integers(1, 4, servers),
    )


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_levels_are_those_of_the_textbook(mechanism: Mechanism, seed: int) -> None:
    problem = make_random(seed)
    expected_i = compute_reference_tasks(problem, compute_level_per_task(problem, mechanism))
    np.testing.assert_allclose(compute_allocation(problem, mechanism.id).totals_i, expected_i, rtol=1e-6)


@BOTH
@pytest.mark.parametrize("family", SMALL, ids=lambda family: family.name)
def test_levels_of_the_hard_families_are_those_of_the_textbook(mechanism: Mechanism, family: Family) -> None:
    if family.options <= mechanism.options:
        problem = family.make(np.random.default_rng(5))
        if np.ptp(np.log(problem.weight_i)) < np.log(1e3):  # scipy loses smaller ones
            expected_i = compute_reference_tasks(problem, compute_level_per_task(problem, mechanism))
            np.testing.assert_allclose(compute_allocation(problem, mechanism.id).totals_i, expected_i, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_nobody_below_it_can_be_raised(seed: int) -> None:
    """Sorted levels: no other feasible division of 200 random ones is lexicographically larger."""
    problem = make_random(seed)
    level_per_task_i = compute_level_per_task(problem, DRFH)
    ours = np.sort(compute_allocation(problem, "drfh").totals_i * level_per_task_i)
    generator = np.random.default_rng(seed)
    for _ in range(200):
        tasks_ik = problem.eligible_ik * generator.exponential(1, problem.eligible_ik.shape)
        used_kr = tasks_ik.T @ problem.demand_ir / (problem.count_k[:, None] * problem.capacity_kr)
        tasks_ik /= np.maximum(used_kr.max(axis=1), 1e-9)
        totals_i = np.minimum(tasks_ik.sum(axis=1), problem.tasks_i)
        other = np.sort(totals_i * level_per_task_i)
        first = int(np.argmax(np.abs(other - ours) > 1e-9 * ours))
        assert other[first] <= ours[first] * (1 + 1e-9)


def test_the_most_constrained_does_not_hold_back_the_others() -> None:
    """One tenant may use a small server only; at equal levels the others would have to stop with it."""
    problem = make_problem([[1, 1], [100, 100]], [[1, 1], [1, 1], [1, 1]], eligible_ik=[[1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(compute_allocation(problem, "drfh").totals_i, [1, 50, 50], rtol=1e-9)


def test_a_satisfied_tenant_leaves_its_part_to_the_others() -> None:
    problem = make_problem([[10], [10]], [[1], [1], [1]], tasks_i=[2, np.inf, 5])
    np.testing.assert_allclose(compute_allocation(problem, "tsf").totals_i, [2, 13, 5], rtol=1e-9)


def test_a_placement_is_not_kept_from_round_to_round() -> None:
    """The first is content on either server, but must leave the one that the second needs, found a round later."""
    problem = make_problem(
        [[4.0], [4.0]], [[1], [1], [1]], eligible_ik=[[1, 1], [0, 1], [1, 0]], tasks_i=[3, np.inf, 1]
    )
    np.testing.assert_allclose(compute_allocation(problem, "drfh").totals_i, [3, 4, 1], rtol=1e-9)


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_weights_over_six_decades_are_exact(mechanism: Mechanism, seed: int) -> None:
    generator = np.random.default_rng(seed)
    problem = replace(make_random(seed, 20, 5, 3), weight_i=10 ** generator.uniform(-3, 3, 20))
    allocation = compute_allocation(problem, mechanism.id)
    assert allocation.certificate["largestGap"] <= 1e-7


@BOTH
def test_order_of_tenants_and_servers_does_not_matter(mechanism: Mechanism) -> None:
    problem = make_random(3)
    generator = np.random.default_rng(0)
    tenants, servers = generator.permutation(6), generator.permutation(3)
    shuffled = replace(
        problem,
        tenant_names=tuple(problem.tenant_names[i] for i in tenants),
        server_names=tuple(problem.server_names[k] for k in servers),
        capacity_kr=problem.capacity_kr[servers],
        count_k=problem.count_k[servers],
        demand_ir=problem.demand_ir[tenants],
        weight_i=problem.weight_i[tenants],
        tasks_i=problem.tasks_i[tenants],
        eligible_ik=problem.eligible_ik[np.ix_(tenants, servers)],
    )
    expected_ik = compute_allocation(problem, mechanism.id).tasks_ik[np.ix_(tenants, servers)]
    np.testing.assert_allclose(compute_allocation(shuffled, mechanism.id).tasks_ik, expected_ik, rtol=1e-9, atol=1e-12)


def test_resource_weights_change_the_share() -> None:
    """Memory counts half for the first: it may hold twice the share of it."""
    problem = make_problem([[12, 12]], [[0.1, 1], [0.1, 1]], resource_weight_ir=[[1, 2], [1, 1]])
    np.testing.assert_allclose(compute_allocation(problem, "drfh").totals_i, [8, 4], rtol=1e-9)


def test_task_shares_count_servers_that_a_tenant_may_not_use() -> None:
    """The counterexample to the sharing incentive: 1.1 and 11 tasks alone, but only the second server is allowed."""
    problem = make_problem([[0.1, 100.0], [1.0, 1.0]], [[1.0, 0.01], [0.01, 1.0]], eligible_ik=[[0, 1], [0, 1]])
    totals_i = compute_allocation(problem, "tsf").totals_i
    alone_i = compute_tasks_alone(problem).sum(axis=1)
    np.testing.assert_allclose(totals_i[0] / alone_i[0], totals_i[1] / alone_i[1], rtol=1e-9)
    assert totals_i[0] < 0.11


def solve_large(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> tuple[Instance, Solution]:
    """Solve as if the problem were large: few pairs at first, those of which a class runs the most tasks."""
    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.PAIRS_AT_ONCE", 0)
    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.FIRST_PAIRS", 1)
    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.MORE_PAIRS", 1)
    instance = reduce_problem(problem)
    return instance, DRFH.solve(instance)


@pytest.mark.parametrize("seed", range(8))
def test_few_pairs_are_enough(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_random(seed, 12, 6, 3)
    expected_ik = DRFH.solve(reduce_problem(problem)).tasks_ik
    instance, solution = solve_large(problem, monkeypatch)
    DRFH.certify(instance, solution)
    np.testing.assert_allclose(solution.tasks_ik.sum(axis=1), expected_ik.sum(axis=1), rtol=1e-8)


def test_pairs_that_would_help_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pricing, the first pairs alone would not be enough: the certificate says so."""
    monkeypatch.setattr(LevelProgram, "_add_pairs", only_once(LevelProgram._add_pairs))
    refused = 0
    for seed in range(8):
        try:
            DRFH.certify(*solve_large(make_random(seed, 12, 6, 3), monkeypatch))
        except SolverError:
            refused += 1
    assert refused > 0


def only_once(add_pairs: Callable[..., None]) -> Callable[..., None]:
    """Add as many as are wanted at first, and after that all that help without any use: they are marked as in."""

    def add(program: LevelProgram, candidate_ik: np.ndarray, most: int) -> None:
        if program.warm_basis.group_p.size == 0:
            add_pairs(program, candidate_ik, most)
        else:
            program.has_pair_ik |= candidate_ik

    return add


def test_stopping_everybody_at_the_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant `all at level t`: who is not stuck would stop as well."""
    monkeypatch.setattr(lexicographic, "POSITIVE_DUAL", -1.0)
    instance = reduce_problem(
        make_problem([[1, 1], [100, 100]], [[1, 1], [1, 1], [1, 1]], eligible_ik=[[1, 0], [0, 1], [0, 1]])
    )
    with pytest.raises(SolverError, match="could get"):
        DRFH.certify(instance, DRFH.solve(instance))


@pytest.mark.parametrize("wrong", ["weights", "eligibility", "share"])
def test_an_answer_to_another_question_is_refused(wrong: str) -> None:
    instance = reduce_problem(make_random(1))
    asked = instance
    if wrong == "weights":
        asked = replace(instance, weight_i=np.full(instance.weight_i.shape, 1 / instance.weight_i.size))
    elif wrong == "eligibility":
        asked = replace(instance, usable_ik=np.ones(instance.usable_ik.shape, dtype=bool))
    per_task_i = asked.share_per_task_i if wrong != "share" else asked.share_per_task_i * (1 + 0.1 * asked.rank_i)
    solution = solve_lexicographic(asked, per_task_i / asked.weight_i)
    with pytest.raises(SolverError):
        DRFH.certify(instance, solution)


def test_prices_of_another_problem_prove_nothing() -> None:
    instance = reduce_problem(make_random(2))
    solution = DRFH.solve(instance)
    prices_nkr = solution.evidence["prices_nkr"]
    for wrong in (prices_nkr * 0, np.roll(prices_nkr, 1, axis=1), prices_nkr[:0], prices_nkr + 0.01):
        with pytest.raises(SolverError):
            DRFH.certify(instance, replace(solution, evidence={"prices_nkr": wrong}))
    with pytest.raises(SolverError, match="negative"):
        DRFH.certify(instance, replace(solution, evidence={"prices_nkr": prices_nkr - 1}))


def test_worth_is_the_cost_on_the_cheapest_usable_class() -> None:
    instance = reduce_problem(make_problem([[4, 4], [4, 4]], [[1, 1], [2, 1]], eligible_ik=[[1, 1], [0, 1]]))
    worth_i = compute_worth(instance, np.array([[1.0, 0.0], [3.0, 0.0]]))
    # A class's resource costs as much as it says as a whole, and is half of the total.
    np.testing.assert_allclose(worth_i, [0.125 * 2 * 1, 0.25 * 2 * 3])


def test_refinement_fills_what_is_priced_and_keeps_the_totals() -> None:
    instance = reduce_problem(make_problem([[4.0, 4.0], [2.0, 8.0]], [[1, 1], [1, 2], [2, 1]]))
    solution = DRFH.solve(instance)
    rough_ik = solution.tasks_ik * (1 + 1e-8 * np.array([[1, -2], [-1, 1], [3, -1]]))
    is_priced_kr = np.asarray((solution.evidence["prices_nkr"] > 0).any(axis=0))
    refined_ik = refine_tasks(instance, rough_ik, solution.tasks_ik.sum(axis=1), is_priced_kr)
    used_kr = refined_ik.T @ instance.demand_ir / instance.capacity_kr
    np.testing.assert_allclose(used_kr[is_priced_kr], 1, rtol=1e-14)
    np.testing.assert_allclose(refined_ik.sum(axis=1), solution.tasks_ik.sum(axis=1), rtol=1e-14)
    assert (used_kr <= 1 + 1e-12).all()


def test_refinement_does_not_fill_what_only_rounding_prices() -> None:
    """A price of 1e-14 on what is half used must not make it full."""
    instance = reduce_problem(make_problem([[4.0, 8]], [[1, 1]]))
    tasks_ik = np.array([[4.0]])
    refined_ik = refine_tasks(instance, tasks_ik, np.array([4.0]), np.array([[True, True]]))
    np.testing.assert_array_equal(refined_ik, tasks_ik)


def test_totals_of_nothing_are_left_as_they_are() -> None:
    """A level that came out as 0 is not divided by: the certificate decides about what there is."""
    instance = reduce_problem(make_problem([[10.0, 10.0]], [[1.0, 2.0]]))
    tasks_ik = np.array([[4.0]])
    refined_ik = refine_tasks(instance, tasks_ik, np.array([0.0]), np.array([[True, True]]))
    np.testing.assert_array_equal(refined_ik, tasks_ik)


def test_a_large_problem_begins_with_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each group and one of each class: where a task takes the least, and whose tasks take the least."""
    problem = make_problem([[8.0, 8.0], [8.0, 80.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 8.0], [2.0, 1.0]])
    instance = reduce_problem(problem)
    level_per_task_i = instance.share_per_task_i / instance.weight_i
    assert LevelProgram(instance, level_per_task_i, None).has_pair_ik.all()
    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.PAIRS_AT_ONCE", 8)
    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.FIRST_PAIRS", 1)
    has_pair_ik = LevelProgram(instance, level_per_task_i, None).has_pair_ik
    best_i, best_k = instance.gamma_ik.argmax(axis=1), instance.gamma_ik.argmax(axis=0)
    assert has_pair_ik[np.arange(3), best_i].all()
    assert has_pair_ik[best_k, np.arange(3)].all()
    assert has_pair_ik.sum() < 6


@pytest.mark.parametrize("seed", range(4))
def test_few_pairs_are_enough_where_tasks_bind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tasks that bind for many, all that fit included, the large way ends where the small one does."""
    problem = make_random(seed, 12, 6, 3)
    plenty = compute_allocation(replace(problem, tasks_i=np.full(12, np.inf)), "drfh").totals_i
    for factor in (0.2, 0.9, 1.5):
        limited = replace(problem, tasks_i=np.maximum(plenty, 1e-3) * factor)
        expected_ik = DRFH.solve(reduce_problem(limited)).tasks_ik
        with monkeypatch.context() as patch:
            instance, solution = solve_large(limited, patch)
        DRFH.certify(instance, solution)
        np.testing.assert_allclose(solution.tasks_ik.sum(axis=1), expected_ik.sum(axis=1), rtol=1e-8)
