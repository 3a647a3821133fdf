from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.per_server_drf import PER_SERVER_DRF
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import SolverError
from fairness.families import Family, families_for
from fairness.textbook import compute_max_min_levels

SMALL = [family for family in families_for(PER_SERVER_DRF.options) if "thousand" not in family.name]


def compute_by_linear_programs(problem: Problem) -> FloatArray:
    """Max-min fair over all pairs of tenant and server: the textbook's way, one level per pair."""
    capacity_kr = problem.count_k[:, None] * problem.capacity_kr
    pairs = [
        (i, k)
        for i in range(problem.demand_ir.shape[0])
        for k in range(capacity_kr.shape[0])
        if problem.eligible_ik[i, k] and problem.tasks_i[i] > 0 and (capacity_kr[k][problem.demand_ir[i] > 0] > 0).all()
    ]
    tasks_ik = np.zeros(problem.eligible_ik.shape)
    if not pairs:
        return tasks_ik
    weight_i = problem.weight_i / problem.weight_i.sum()
    speeds = []
    for i, k in pairs:
        needs_r = problem.demand_ir[i] > 0
        share_r = problem.demand_ir[i, needs_r] / capacity_kr[k, needs_r] / problem.resource_weight_ir[i, needs_r]
        speeds.append(weight_i[i] / share_r.max())
    rows = [
        [
            problem.demand_ir[i, r] * speed / capacity_kr[k, r] if k == server else 0.0
            for (i, k), speed in zip(pairs, speeds, strict=True)
        ]
        for server in range(capacity_kr.shape[0])
        for r in np.flatnonzero(capacity_kr[server] > 0)
    ]
    rows += [
        [speed / problem.tasks_i[tenant] if i == tenant else 0.0 for (i, _), speed in zip(pairs, speeds, strict=True)]
        for tenant in np.flatnonzero(np.isfinite(problem.tasks_i))
    ]
    levels = compute_max_min_levels(
        np.array(rows), np.ones(len(rows)), np.zeros(len(pairs)), np.full(len(pairs), np.inf)
    )
    for (i, k), speed, level in zip(pairs, speeds, levels, strict=True):
        tasks_ik[i, k] = speed * level
    return tasks_ik


@pytest.mark.slow
@pytest.mark.parametrize("family", SMALL, ids=lambda family: family.name)
def test_filling_in_step_is_max_min_fair_over_pairs(family: Family) -> None:
    problem = family.make(np.random.default_rng(4))
    if np.ptp(np.log(problem.weight_i)) < np.log(1e3):  # scipy loses smaller ones
        tasks_ik = compute_allocation(problem, "per-server-drf").tasks_ik
        np.testing.assert_allclose(tasks_ik, compute_by_linear_programs(problem), rtol=1e-5, atol=1e-9)


def make_cluster() -> Problem:
    return make_problem(
        [[2, 12], [12, 2], [6, 6]],
        [[0.2, 1], [1, 0.2], [0.5, 0.5]],
        eligible_ik=[[1, 1, 1], [1, 1, 0], [0, 1, 1]],
        weight_i=[1, 3, 2],
        tasks_i=[np.inf, np.inf, 7],
    )


def test_each_server_is_a_drf_of_its_own() -> None:
    """Without limits that bind, a server's part is what drf gives those who may use it."""
    problem = replace(make_cluster(), tasks_i=np.full(3, np.inf))
    tasks_ik = compute_allocation(problem, "per-server-drf").tasks_ik
    for k in range(3):
        there = problem.eligible_ik[:, k]
        alone = make_problem(problem.capacity_kr[[k]], problem.demand_ir[there], weight_i=problem.weight_i[there])
        np.testing.assert_allclose(tasks_ik[there, k], compute_allocation(alone, "drf").totals_i, rtol=1e-12)


def test_a_server_is_the_drf_of_the_tasks_that_the_others_leave() -> None:
    """Also with few tasks: given what a tenant runs elsewhere, each server's part is still its own drf."""
    problem = make_cluster()
    tasks_ik = compute_allocation(problem, "per-server-drf").tasks_ik
    assert tasks_ik.sum(axis=1)[2] == pytest.approx(7)
    for k in range(3):
        there = problem.eligible_ik[:, k]
        left_i = problem.tasks_i - (tasks_ik.sum(axis=1) - tasks_ik[:, k])
        alone = make_problem(
            problem.capacity_kr[[k]], problem.demand_ir[there], weight_i=problem.weight_i[there], tasks_i=left_i[there]
        )
        np.testing.assert_allclose(tasks_ik[there, k], compute_allocation(alone, "drf").totals_i, rtol=1e-9)


def test_few_tasks_are_taken_evenly_from_all_servers() -> None:
    """Servers of 10 and 30: three quarters of the tasks run on the larger."""
    problem = make_problem([[10.0], [30.0]], [[1], [1]], tasks_i=[8, np.inf])
    np.testing.assert_allclose(compute_allocation(problem, "per-server-drf").tasks_ik, [[2, 6], [8, 24]], rtol=1e-12)


@pytest.mark.parametrize("wrong", ["weights", "limits", "eligibility", "resource weights"])
def test_an_answer_to_another_question_is_refused(wrong: str) -> None:
    instance = reduce_problem(make_cluster())
    asked = {
        "weights": replace(instance, weight_i=np.full(3, 1 / 3)),
        "limits": replace(instance, limit_i=np.full(3, np.inf)),
        "eligibility": replace(instance, usable_ik=np.ones((3, 3), dtype=bool)),
        "resource weights": replace(instance, resource_weight_ir=np.array([[1.0, 1], [3, 1], [1, 1]])),
    }[wrong]
    PER_SERVER_DRF.certify(instance, PER_SERVER_DRF.solve(instance))
    with pytest.raises(SolverError):
        PER_SERVER_DRF.certify(instance, PER_SERVER_DRF.solve(asked))


def test_few_tasks_on_other_servers_are_refused() -> None:
    """The same totals, but not taken in step."""
    instance = reduce_problem(make_problem([[10.0], [30.0]], [[1], [1]], tasks_i=[8, np.inf]))
    with pytest.raises(SolverError, match="could get"):
        PER_SERVER_DRF.certify(instance, Solution(np.array([[3.0, 5], [7, 25]])))
