"""The utilities g'(z) = (A / z) ** alpha + B / z of alpha-pf-vds (Khamse-Ashari et al., equation 22)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairbind.cli import main
from fairbind.cli.mechanisms.csv_problem import format_csv, read_csv
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.fairness.mechanisms.alpha_pf_vds import ALPHA_PF_VDS
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import expand_tasks, reduce_problem
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.market.best_response import BestResponses
from fairbind.fairness.solvers.market.market import make_market
from fairbind.fairness.solvers.market.utility import make_utility
from fairbind.model.errors import InvalidProblemError, SolverError
from fairness.families import FAMILIES, families_for
from fairness.servers_oracle import compute_best_slope
from fairness.test_alpha_pf_vds import FIGURE

LINE = make_problem([[1.0, 1.0]], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], alpha_k=[2.0])
"""One tenant needs both resources, the others one each: g'(x) = 2 g'(1 - x) for the first."""
FAMILIES_TAKEN = [family for family in families_for(ALPHA_PF_VDS.options) if "thousand" not in family.name]


def with_utility(problem: Problem, a: Any, b: Any, alpha: Any = None) -> Problem:
    servers = len(problem.server_names)
    alpha_k = problem.alpha_k if alpha is None else np.full(servers, alpha, dtype=np.float64)
    return replace(
        problem,
        alpha_k=alpha_k,
        utility_a_k=np.full(servers, a, dtype=np.float64),
        utility_b_k=np.full(servers, b, dtype=np.float64),
    )


def solve(problem: Problem) -> np.ndarray:
    return compute_allocation(problem, "alpha-pf-vds").totals_i


def test_a_line_of_two_resources_by_hand() -> None:
    """With x = 2/5: 25/4 A^2 + 5/2 B = 2 (25/9 A^2 + 5/3 B), so B = 5/6 A^2; a factor of both does not matter."""
    for a, b in ((1.0, 5 / 6), (6.0, 30.0)):
        np.testing.assert_allclose(solve(with_utility(LINE, a, b)), [0.4, 0.6, 0.6], rtol=1e-12)


def test_shares_are_counted_against_one_server_and_weights_as_they_are() -> None:
    twice = replace(with_utility(LINE, 1.0, 5 / 6), count_k=np.array([2.0]))
    np.testing.assert_allclose(solve(replace(twice, weight_i=np.full(3, 2.0))), [0.8, 1.2, 1.2], rtol=1e-12)
    np.testing.assert_allclose(solve(with_utility(twice, 1.0, 5 / 12)), [0.8, 1.2, 1.2], rtol=1e-12)
    pooled = replace(with_utility(twice, 2.0, 10 / 3), is_pooled=True)
    np.testing.assert_allclose(solve(pooled), [0.8, 1.2, 1.2], rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 3.0, 20.0])
def test_the_ends_of_the_family_are_alpha_and_1(alpha: float) -> None:
    only_a, only_b = solve(with_utility(FIGURE, 1, 0, alpha)), solve(with_utility(FIGURE, 1, 0, 1))
    np.testing.assert_array_equal(solve(with_utility(FIGURE, 5, 0, alpha)), only_a)
    np.testing.assert_array_equal(solve(with_utility(FIGURE, 0, 7, alpha)), only_b)
    np.testing.assert_array_equal(solve(with_utility(FIGURE, 3, 7, 1)), only_b)
    distances = [np.abs(solve(with_utility(FIGURE, 1, b, alpha)) - only_a).max() for b in (1e-2, 1e-4, 1e-6)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-5
    np.testing.assert_allclose(solve(with_utility(FIGURE, 1, 1e9, alpha)), only_b, rtol=1e-4)


def test_large_exponents_approach_ps_dsf_where_no_share_exceeds_a() -> None:
    """Corollary 3. Where shares exceed A, the first term dies out and leaves alpha = 1."""
    limit_i = compute_allocation(FIGURE, "ps-dsf").totals_i
    distances = [
        np.abs(solve(with_utility(FIGURE, 10.0, 1.0, alpha)) / limit_i - 1).max() for alpha in (10.0, 50.0, 250.0)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.003
    np.testing.assert_allclose(
        solve(with_utility(FIGURE, 0.01, 1.0, 50.0)), solve(with_utility(FIGURE, 0, 1)), rtol=1e-9
    )


def draw_utilities(problem: Problem, generator: np.random.Generator) -> Problem:
    size = len(problem.server_names)
    return replace(
        problem,
        alpha_k=np.exp(generator.uniform(np.log(0.1), np.log(12), size)),
        utility_a_k=np.exp(generator.uniform(-5, 5, size)),
        utility_b_k=np.exp(generator.uniform(-7, 7, size)) * (generator.random(size) < 0.8),
        weight_i=problem.weight_i * 10.0 ** generator.uniform(-3, 3, problem.weight_i.size),
    )


@pytest.mark.parametrize("family", FAMILIES_TAKEN, ids=lambda family: family.name)
def test_inequality_16_holds_against_a_linear_program(family: Any) -> None:
    """Zero demands and capacities, no eligible server, finite tasks, weights over six orders of magnitude."""
    generator = np.random.default_rng(70)
    problem = draw_utilities(family.make(generator), generator)
    tasks_ik = compute_allocation(problem, "alpha-pf-vds").tasks_ik
    assert compute_best_slope(problem, tasks_ik, problem.alpha_k) < 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_totals_do_not_depend_on_how_they_are_found(seed: int) -> None:
    """Theorem 7: with B > 0 on every server the totals are unique. Here servers answer each other from nothing."""
    generator = np.random.default_rng(seed)
    problem = with_utility(FAMILIES["eligibility"].make(generator), 1.0, 0.5, 3.0)
    instance = reduce_problem(problem)
    responses = BestResponses(make_market(instance, instance.alpha_k, instance.log_linear_k))
    responses.run(400)
    tasks_ik = responses.market.get_tasks(responses.get_guess().part_ki)
    totals_i = expand_tasks(instance, tasks_ik).sum(axis=1)
    np.testing.assert_allclose(totals_i, solve(problem), rtol=1e-6)


def test_other_prices_prove_nothing() -> None:
    instance = reduce_problem(with_utility(FIGURE, 1.0, 0.3, 3.0))
    solution = ALPHA_PF_VDS.solve(instance)
    assert ALPHA_PF_VDS.certify(instance, solution)["largestGap"] < 1e-9
    with pytest.raises(SolverError, match="pays"):
        ALPHA_PF_VDS.certify(instance, Solution(solution.tasks_ik, {"price_kr": solution.evidence["price_kr"] * 1.01}))
    plain = reduce_problem(with_utility(FIGURE, 1.0, 0.0, 3.0))
    with pytest.raises(SolverError, match="pays"):
        ALPHA_PF_VDS.certify(plain, solution)


def test_prices_and_multipliers_are_each_others_inverse() -> None:
    """Also where one of the terms is next to nothing, and where roots of prices are kept."""
    generator = np.random.default_rng(71)
    norm_k, steepness_k = np.array([1.0, 3.0, 40.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0, 90.0, 1.0])
    log_linear_k = np.array([2.0, -30.0, 30.0, 0.0, -np.inf])
    unit_k = np.exp(generator.uniform(-20, 20, 5))
    utility = make_utility(norm_k, steepness_k, log_linear_k, unit_k)
    price_kn = np.exp(generator.uniform(-3, 1, (5, 50)))
    np.testing.assert_allclose(utility.find_prices(utility.find_multipliers(price_kn)), price_kn, rtol=1e-13)
    apart = 1e-6
    slopes_kn = utility.find_multipliers(price_kn * (1 + apart)) - utility.find_multipliers(price_kn * (1 - apart))
    np.testing.assert_allclose(slopes_kn / (2 * apart * price_kn), utility.find_slopes(price_kn), rtol=1e-5)


DOCUMENT: dict[str, Any] = {
    "resources": ["cpu", "gpu"],
    "servers": [{"name": "a", "capacity": {"cpu": 1, "gpu": 1}, "alpha": 2, "utilityA": 6, "utilityB": 30}],
    "tenants": [
        {"name": "both", "demand": {"cpu": 1, "gpu": 1}},
        {"name": "cpu", "demand": {"cpu": 1}},
        {"name": "gpu", "demand": {"gpu": 1}},
    ],
}


def test_documents_and_tables_keep_utilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = parse_problem(DOCUMENT)
    assert (problem.utility_a_k.tolist(), problem.utility_b_k.tolist()) == ([6.0], [30.0])
    assert describe_problem(problem)["servers"] == DOCUMENT["servers"]
    table = read_csv(format_csv(describe_problem(problem)), "p.csv").document
    assert parse_problem(table).utility_b_k.tolist() == [30.0]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(DOCUMENT))
    main(["allocate", str(path), "--mechanism", "alpha-pf-vds", "--certificate"])
    answer = json.loads(capsys.readouterr().out)
    assert round(answer["totals"]["both"], 12) == 0.4
    (server,) = answer["certificate"]["classes"]
    multipliers = [
        price ** server["alpha"] + server["linear"] * price
        for price in answer["certificate"]["values"]["price_kr"][0].values()
    ]
    z_of_both = 0.4 / (1 / 3)
    assert round(sum(multipliers) / (z_of_both**-2 + server["linear"] / z_of_both), 9) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"utilityA": -1}, "servers[0].utilityA of a: must be 0 or a number from 1e-15 to 1e+21, not -1"),
        ({"utilityB": "x"}, 'servers[0].utilityB of a: must be 0 or a number from 1e-15 to 1e+21, not "x"'),
        ({"utilityA": 0}, "servers[0].utilityB of a: must be above 0 where utilityA is 0, not 0.0"),
        ({"utilityC": 1}, "servers[0].utilityC of a: is no field here; did you mean utilityB?"),
    ],
)
def test_utilities_that_are_none_are_refused(fields: dict[str, Any], message: str) -> None:
    server = {"name": "a", "capacity": {"cpu": 1, "gpu": 1}, **fields}
    with pytest.raises(InvalidProblemError) as caught:
        parse_problem({**DOCUMENT, "servers": [server]})
    assert str(caught.value) == message


def test_arrays_that_are_no_utilities_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"servers\[0\].utilityB of s0: must be a finite number from 0 on"):
        with_utility(FIGURE, 1, np.nan)
    with pytest.raises(InvalidProblemError, match=r"servers\[0\].utilityB of s0: must be above 0 where utilityA is 0"):
        with_utility(FIGURE, 0, 0)


def test_others_take_no_utilities_and_pools_must_agree() -> None:
    with pytest.raises(InvalidProblemError, match=r"servers\[0\].utilityB of s0: mechanism ps-dsf does not take util"):
        compute_allocation(with_utility(FIGURE, 1, 2), "ps-dsf")
    mixed = replace(FIGURE, utility_a_k=np.array([1.0, 2.0]), is_pooled=True)
    with pytest.raises(InvalidProblemError, match=r"servers\[1\].utilityA of s1: servers of a pool must agree on it"):
        compute_allocation(mixed, "alpha-pf-vds")
