"""PS-MFA and the distributed form of alpha-PF-VDS (Khamse-Ashari et al., section 5)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from fairbind.cli import main
from fairbind.fairness.problems.instance import Instance, expand_tasks, reduce_problem
from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.iterative import distributed
from fairbind.fairness.solvers.iterative.distributed import solve_distributed
from fairbind.fairness.solvers.iterative.game import make_game
from fairbind.fairness.solvers.iterative.ps_mfa import (
    Descent,
    compute_gradients,
    find_direction,
    project,
    solve_ps_mfa,
)
from fairbind.model.errors import InvalidProblemError, SolverError
from fairness.families import FAMILIES
from fairness.test_alpha_pf_vds import FIGURE
from fairness.test_utilities import LINE, with_utility

SMALL = [
    "plain-one-pool",
    "weights-one-pool",
    "counts-one-pool",
    "zero-demands-one-pool",
    "zero-capacities-one-pool",
    "non-divisible-one-pool",
    "utilities-one-pool",
    "magnitudes-one-pool",
    "zero-capacities",
    "nobody-eligible",
    "eligibility",
]
EXTREME = make_problem([[4.0, 0.0], [8.0, 2.0]], [[1.0, 0.0], [2.0, 1.0], [1.0, 2.0]], weight_i=[1e-3, 1.0, 1e3])


def reduce(problem: Problem, alpha: float | None = None) -> Instance:
    return reduce_problem(problem, alpha=alpha, sorts_resources=True)


def compute_error(problem: Problem, alpha: float | None, tasks_ik: np.ndarray) -> float:
    """Return how far totals are from the exact ones, of the largest error."""
    exact_i = compute_allocation(problem, "alpha-pf-vds", alpha=alpha).totals_i
    got_i = tasks_ik.sum(axis=1)
    has_some = exact_i > 0
    assert (got_i[~has_some] == 0).all()
    return float(np.abs(got_i[has_some] / exact_i[has_some] - 1).max())


@pytest.mark.parametrize(("solver", "off"), [("ps-mfa", 1e-4), ("distributed", 2e-3)])
def test_a_line_of_two_resources_by_hand(solver: str, off: float) -> None:
    allocation = compute_allocation(with_utility(LINE, 6.0, 30.0), "alpha-pf-vds", solver=solver)
    np.testing.assert_allclose(allocation.totals_i, [0.4, 0.6, 0.6], rtol=off)
    assert allocation.status == "converged"
    assert allocation.certificate["method"] == solver
    assert 0 < allocation.certificate["iterations"] < 1000
    assert 0 <= allocation.certificate["merit"] < 1e-3


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_ps_mfa_finds_figure_3(alpha: float) -> None:
    """96/7 and 32/7 by hand, the others from the conditions."""
    expected_i = {1.0: [2, 6, 96 / 7, 32 / 7], 3.0: [2, 6, 12.36760, 4.90810]}[alpha]
    solution = solve_ps_mfa(reduce(FIGURE, alpha), residual=1e-3)
    np.testing.assert_allclose(
        expand_tasks(reduce(FIGURE, alpha), solution.tasks_ik).sum(axis=1), expected_i, rtol=5e-3
    )
    report = solution.evidence["report"]
    assert report["merit"] < 1e-5
    assert report["largestGap"] < 1e-2


def test_the_distributed_form_approaches_the_exact_answer_as_epsilon_falls() -> None:
    problem = FAMILIES["plain-one-pool"].make(np.random.default_rng(0))
    instance = reduce(problem, 3.0)
    errors = [
        compute_error(problem, 3.0, expand_tasks(instance, solve_distributed(instance, epsilon=epsilon).tasks_ik))
        for epsilon in (0.2, 0.1, 0.05, 0.025)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.025
    assert errors[-1] < 0.3 * errors[0]


@pytest.mark.parametrize("alpha", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", SMALL)
def test_an_answer_is_near_the_exact_one_or_refused(family: str, seed: int, alpha: float) -> None:
    check_near(FAMILIES[family].make(np.random.default_rng(seed)), alpha)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_weights_of_six_orders_of_magnitude_and_a_server_without_a_resource(alpha: float) -> None:
    check_near(EXTREME, alpha)
    check_near(make_problem([[8.0, 2.0]], EXTREME.demand_ir, weight_i=EXTREME.weight_i), alpha)


def check_near(problem: Problem, alpha: float) -> int:
    """Check that each solver is near the exact answer or says that it is not; return how many are near."""
    instance = reduce(problem, alpha)
    near = 0
    for solve, off in ((partial(solve_ps_mfa, most=500), 2e-3), (partial(solve_distributed, most=3000), 0.1)):
        with contextlib.suppress(SolverError):
            tasks_ik = expand_tasks(instance, solve(instance).tasks_ik)
            assert compute_error(problem, alpha, tasks_ik) < off
            near += 1
    return near


@pytest.mark.slow
def test_most_problems_of_one_pool_are_solved() -> None:
    near = [
        check_near(FAMILIES[family].make(np.random.default_rng(2)), 2.0) for family in SMALL if family.endswith("pool")
    ]
    assert sum(near) >= 1.6 * len(near)


def draw_point(problem: Problem, generator: np.random.Generator) -> tuple[Any, Descent]:
    """Draw a point with one full slot on each server and multipliers of some."""
    game = make_game(reduce(problem, 2.0))
    amount_ki = game.start_ki * generator.uniform(0.5, 2, game.start_ki.shape)
    loads_kr = game.get_loads(amount_ki)
    amount_ki /= loads_kr.max(axis=1)[:, None]
    full_kr = game.get_loads(amount_ki) >= 1 - 1e-12
    highest = 2.0 * float(generator.integers(2))
    multiplier_kr = np.where(full_kr, generator.uniform(0.05 * highest, highest, full_kr.shape), 0.0)
    return game, Descent(amount_ki, multiplier_kr, full_kr, game.compute_merit(amount_ki, multiplier_kr))


@pytest.mark.parametrize("seed", range(5))
def test_gradients_are_those_of_the_merit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    game, point = draw_point(with_utility(FIGURE, 1.0, 0.4), generator)
    gradient_ki, gradient_kr = compute_gradients(game, point.amount_ki, point.multiplier_kr)
    way_ki = np.where(game.usable_ki, generator.normal(size=gradient_ki.shape), 0.0)
    way_kr = generator.normal(size=gradient_kr.shape)
    length = 1e-6
    ahead, behind = (
        game.compute_merit(point.amount_ki + sign * way_ki, point.multiplier_kr + sign * way_kr)
        for sign in (length, -length)
    )
    slope = float((gradient_ki * way_ki).sum() + (gradient_kr * way_kr).sum())
    assert abs((ahead - behind) / (2 * length) - slope) < 1e-4 * max(abs(slope), 1e-2)


@pytest.mark.parametrize("seed", range(8))
def test_directions_descend_and_stay_within_capacities(seed: int) -> None:
    """Lemma 3, (45) and (46)."""
    game, point = draw_point(FIGURE, np.random.default_rng(seed))
    direction = find_direction(game, point)
    gradient_ki, gradient_kr = compute_gradients(game, point.amount_ki, point.multiplier_kr)
    assert float((gradient_ki * direction.amount_ki).sum() + (gradient_kr * direction.multiplier_kr).sum()) < 0
    rise_kr = game.get_loads(direction.amount_ki)
    assert (rise_kr[point.full_kr] < 1e-9).all()
    assert (np.abs(rise_kr[point.multiplier_kr > 0]) < 1e-9).all()
    assert (direction.multiplier_kr[~point.full_kr] == 0).all()


def test_projections_are_the_nearest_points() -> None:
    generator = np.random.default_rng(5)
    for _ in range(50):
        demand_rn, vector_n = generator.uniform(0, 1, (3, 5)), generator.normal(size=5)
        is_kept_r = generator.random(3) < 0.3
        projected_n = project(vector_n, demand_rn, is_kept_r)
        assert (demand_rn @ projected_n < 1e-9).all()
        assert (np.abs(demand_rn @ projected_n)[is_kept_r] < 1e-9).all()
        for _ in range(20):
            other_n = project(projected_n + 0.1 * generator.normal(size=5), demand_rn, is_kept_r)
            assert np.linalg.norm(other_n - vector_n) >= np.linalg.norm(projected_n - vector_n) - 1e-9


def test_a_solver_that_has_not_converged_says_so() -> None:
    with pytest.raises(SolverError, match=r"PS-MFA did 5 iterations with the residual .* it must get to 0\.0001"):
        solve_ps_mfa(reduce(FIGURE), most=5)
    with pytest.raises(SolverError, match=r"the distributed form did 5 iterations with epsilon 0\.05, the residual"):
        solve_distributed(reduce(FIGURE), most=5)


def test_a_limit_that_is_no_equilibrium_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "MOST_BIAS", 0.01)
    with pytest.raises(SolverError, match=r"no equilibrium: a server could do better by .*; take a smaller one"):
        solve_distributed(
            reduce(FAMILIES["eligibility"].make(np.random.default_rng(1)), 3.0), epsilon=0.5, residual=0.9
        )


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 0.6, np.nan, np.inf])
def test_an_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidProblemError, match=r"epsilon: must be from 0\.0001 to 0\.5, not"):
        solve_distributed(reduce(FIGURE), epsilon=epsilon)


def test_finite_tasks_and_unknown_solvers_are_refused() -> None:
    finite = replace(FIGURE, tasks_i=np.array([np.inf, 2.0, np.inf, np.inf]))
    for solver in ("ps-mfa", "distributed"):
        with pytest.raises(
            InvalidProblemError, match=r"tenants\[1\].tasks of t1: the iterative solvers take no finite"
        ):
            compute_allocation(finite, "alpha-pf-vds", solver=solver)
    with pytest.raises(
        InvalidProblemError, match="solver: 'newton' is no solver of mechanism alpha-pf-vds; known are ps"
    ):
        compute_allocation(FIGURE, "alpha-pf-vds", solver="newton")
    with pytest.raises(
        InvalidProblemError, match="solver: 'ps-mfa' is no solver of mechanism tsf; it has only the exact"
    ):
        compute_allocation(FIGURE, "tsf", solver="ps-mfa")


def test_the_command_reports_iterations_and_the_merit(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "allocate",
        "docs/mechanisms/examples/alpha-pf-vds.json",
        "--mechanism",
        "alpha-pf-vds",
        "--output",
        "table",
    ]
    for solver in ("ps-mfa", "distributed"):
        assert main([*words, "--solver", solver]) == 0
        told = capsys.readouterr().out
        assert "; converged\n" in told
        assert f"certificate: {solver}, " in told
        assert "iterations " in told
        assert "merit " in told


def test_multipliers_are_those_of_inequality_16() -> None:
    allocation = compute_allocation(with_utility(LINE, 1.0, 5 / 6), "alpha-pf-vds", solver="ps-mfa")
    assert allocation.proof is not None
    (multiplier_r,) = allocation.proof.values["multiplier_kr"]
    z, linear = 0.4 / (1 / 3), float(np.exp(allocation.proof.instance.log_linear_k[0]))
    assert abs(multiplier_r.sum() / (z**-2 + linear / z) - 1) < 1e-4
