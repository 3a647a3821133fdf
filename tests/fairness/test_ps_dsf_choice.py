"""All PS-DSF divisions of a small problem, by linear programs: which promises depend on the one that is chosen?

Definition 4 says that on every server, for every tenant that may use it, some resource that it needs is used up by
those whose weighted virtual dominant share there is at most its own. To suppose whose share is at least whose and
which resource that is leaves linear conditions; all suppositions together leave all divisions, and no others.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog  # type: ignore[import-untyped]

from fairbind.fairness.mechanisms.counterexamples import PS_DSF_DEMAND_LIE, PS_DSF_HIDING
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.properties.strategy import apply_lies, read_lie
from fairbind.fairness.solve import compute_allocation
from fairness.levelling import compute_tasks_alone
from fairness.textbook import Row

# Equations and inequalities (coefficients @ tasks = bound, <= bound); tasks of all pairs are one vector.
Supposition = tuple[list[Row], list[Row]]


def list_suppositions(problem: Problem, entry: int) -> list[Supposition]:
    """What can be supposed of one server. For two tenants who need everything and have no end of tasks."""
    alone_i = compute_tasks_alone(problem)[:, entry]
    users = np.flatnonzero(problem.eligible_ik[:, entry]).tolist()
    shares = [row(problem, i, None, 1 / (problem.weight_i[i] * alone_i[i])) for i in users]
    resources = range(len(problem.resources))

    def use(tenants: list[int], r: int) -> Row:
        capacity = problem.count_k[entry] * problem.capacity_kr[entry, r]
        return sum((row(problem, i, entry, problem.demand_ir[i, r] / capacity) for i in tenants), row(problem)), 1.0

    if len(users) == 1:
        return [([use([users[0]], r)], []) for r in resources]
    found: list[Supposition] = []
    for (low, high), first, second in itertools.product(((0, 1), (1, 0)), resources, resources):
        is_ordered = (shares[low] - shares[high], 0.0)
        # The lower one counts for the higher one, but not the other way round.
        found.append(([use([low], first), use([0, 1], second)], [is_ordered]))
    for first, second in itertools.product(resources, resources):
        found.append(([(shares[0] - shares[1], 0.0), use([0, 1], first), use([0, 1], second)], []))
    return found


def row(problem: Problem, tenant: int = 0, entry: int | None = None, value: float = 0.0) -> FloatArray:
    """Coefficients of all pairs: the value for the tenant's on one server, or on all."""
    value_ik = np.zeros(problem.eligible_ik.shape)
    value_ik[tenant, slice(None) if entry is None else entry] = value
    return value_ik.ravel()


def find_range(problem: Problem, tenant: int) -> tuple[float, float]:
    """Return the least and the most tasks that some division gives to the tenant."""
    entries = range(len(problem.server_names))
    left_r: list[Row] = []
    for k, r in itertools.product(entries, range(len(problem.resources))):
        used = sum((row(problem, i, k, problem.demand_ir[i, r]) for i in (0, 1)), row(problem))
        left_r.append((used / (problem.count_k[k] * problem.capacity_kr[k, r]), 1.0))
    bounds = [(0, None if is_eligible else 0) for is_eligible in problem.eligible_ik.ravel()]
    totals: list[float] = []
    for supposed in itertools.product(*(list_suppositions(problem, k) for k in entries)):
        equations = [equation for equations, _ in supposed for equation in equations]
        at_most = left_r + [inequality for _, inequalities in supposed for inequality in inequalities]
        for sign in (1.0, -1.0):
            answer: Any = linprog(
                sign * row(problem, tenant, None, 1.0),
                A_ub=np.array([coefficients for coefficients, _ in at_most]),
                b_ub=[bound for _, bound in at_most],
                A_eq=np.array([coefficients for coefficients, _ in equations]),
                b_eq=[bound for _, bound in equations],
                bounds=bounds,
                options={"primal_feasibility_tolerance": 1e-10},
            )
            if answer.status == 0:
                totals.append(sign * answer.fun)
            else:
                assert answer.status == 2, answer.message  # impossible to suppose
                break
    return min(totals), max(totals)


TWINS = [[1.0, 0.1], [0.1, 1.0]]


@pytest.mark.parametrize("tenant", [0, 1])
def test_equal_servers_can_be_divided_in_many_ways(tenant: int) -> None:
    """From a server for each to a mixture on both; as one class they have one division, the best of these."""
    twins = make_problem(np.ones((2, 2)), TWINS)
    np.testing.assert_allclose(find_range(twins, tenant), [1, 20 / 11], rtol=1e-8)
    pooled = make_problem(np.ones((1, 2)), TWINS, count_k=[2])
    np.testing.assert_allclose(find_range(pooled, tenant), [20 / 11, 20 / 11], rtol=1e-8)


def test_nearly_equal_servers_leave_no_choice() -> None:
    nearly = make_problem([[1.0, 1.0], [0.999, 1.001]], TWINS)
    np.testing.assert_allclose(find_range(nearly, 0), [1, 1], rtol=1e-8)
    np.testing.assert_allclose(find_range(nearly, 1), [1.001, 1.001], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_ours_is_one_of_them(seed: int) -> None:
    generator = np.random.default_rng([seed, 17])
    problem = make_problem(
        generator.integers(1, 12, (2, 2)), generator.integers(1, 9, (2, 2)), weight_i=generator.integers(1, 4, 2)
    )
    totals_i = compute_allocation(problem, "ps-dsf").totals_i
    for tenant, total in enumerate(totals_i):
        least, most = find_range(problem, tenant)
        assert least * (1 - 1e-7) <= total <= most * (1 + 1e-7)


def test_to_hide_a_server_pays_whichever_division_is_chosen() -> None:
    """By hand: honestly, with a tasks of t1 on s1, x2 = 1.5 x1 there, so 3 a + (1.5 a - 2/3) = 4 and x2 = 14/9.

    When t2 hides s2, t1 has all of it, 1/3 of a task: x2 = 1.5 (a + 1/3), so 3 a + x2 = 4 and x2 = 5/3.
    """
    honest = parse_problem(PS_DSF_HIDING["problem"])
    (told,) = PS_DSF_HIDING["lies"]
    lie = read_lie(honest, told)
    liar = lie.tenant
    for problem, expected in ((honest, 14 / 9), (apply_lies(honest, [lie]), 5 / 3)):
        np.testing.assert_allclose(find_range(problem, liar), [expected, expected], rtol=1e-8)
        assert compute_allocation(problem, "ps-dsf").totals_i[liar] == pytest.approx(expected, rel=1e-9)


def test_a_false_demand_pays_by_the_division_that_is_chosen() -> None:
    """Honestly t2 always has 0.6 tasks. Of those that it tells of it could have 1.2, which are no more; it gets 1.5."""
    honest = parse_problem(PS_DSF_DEMAND_LIE["problem"])
    (told,) = PS_DSF_DEMAND_LIE["lies"]
    lie = read_lie(honest, told)
    lied = apply_lies(honest, [lie])
    for problem, expected in ((honest, 0.6), (lied, 1.2)):
        endless = replace(problem, tasks_i=np.full(2, np.inf))
        assert find_range(endless, lie.tenant) == pytest.approx((expected, expected))
        assert compute_allocation(endless, "ps-dsf").totals_i[lie.tenant] == pytest.approx(expected)
    assert compute_allocation(honest, "ps-dsf").totals_i[lie.tenant] == pytest.approx(0.6)
    assert compute_allocation(lied, "ps-dsf").totals_i[lie.tenant] == pytest.approx(1.5)
