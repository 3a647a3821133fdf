"""Somebody else's allocation: right ones pass, and wrong ones are told where and by how much."""

from __future__ import annotations

import numpy as np
import pytest

from fairbind.fairness import Problem, compute_allocation, make_problem
from fairbind.fairness.judge import judge_allocation
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.model.errors import InvalidProblemError


def make_cluster(mechanism_id: str) -> Problem:
    """Return three tenants, two of them equal, on servers that differ; on one server where one pool is taken."""
    capacity = [[2.0, 12.0], [12.0, 2.0], [12.0, 2.0]]
    many = "servers" in MECHANISMS[mechanism_id].options
    return make_problem(
        capacity if many else [np.sum(capacity, axis=0)],
        [[0.2, 1.0], [1.0, 0.2], [1.0, 0.2], [1.0, 1.0]],
        tenant_names=["ada", "ben", "bob", "cy"],
        server_names=["a", "b", "c"] if many else ["all"],
        resources=["cpu", "memory"],
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_mechanisms_own_answer_is_right(mechanism: str) -> None:
    problem = make_cluster(mechanism)
    answer = compute_allocation(problem, mechanism)

    assert judge_allocation(problem, mechanism, answer.tasks_ik).violations == ()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_has_a_tenth_too_little_is_named(mechanism: str) -> None:
    problem = make_cluster(mechanism)
    tasks_ik = compute_allocation(problem, mechanism).tasks_ik.copy()
    tasks_ik[0] *= 0.9
    (violation,) = judge_allocation(problem, mechanism, tasks_ik).violations

    assert violation.condition == "fairness"
    assert violation.amount > 0.01
    assert mechanism == "alpha-pf-vds" or violation.tenant == "ada"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_equal_tenants_with_different_amounts_are_no_group(mechanism: str) -> None:
    """The sum of the two is right."""
    problem = make_cluster(mechanism)
    tasks_ik = compute_allocation(problem, mechanism).tasks_ik.copy()
    tasks_ik[1], tasks_ik[2] = tasks_ik[1] * 0.8, tasks_ik[2] * 1.2

    assert judge_allocation(problem, mechanism, tasks_ik).violations


def test_rounded_tables_of_a_paper_pass_within_a_tolerance() -> None:
    problem = make_cluster("drfh")
    printed = compute_allocation(problem, "drfh").tasks_ik.round(3)

    assert judge_allocation(problem, "drfh", printed).violations
    assert judge_allocation(problem, "drfh", printed, tolerance=0.02).violations == ()


def test_all_that_is_exceeded_is_named() -> None:
    problem = make_problem(
        [[4.0], [4.0]],
        [[1.0], [1.0]],
        tasks_i=[3, np.inf],
        eligible_ik=[[True, True], [False, True]],
        tenant_names=["ada", "ben"],
        server_names=["a", "b"],
        resources=["cpu"],
    )
    judgement = judge_allocation(problem, "drfh", np.array([[6.0, 0.0], [0.5, 4.0]]))

    assert not judgement.is_feasible
    found = [(one.condition, one.tenant, one.servers, one.resource) for one in judgement.violations]
    assert found == [("capacity", "", "a", "cpu"), ("tasks", "ada", "", ""), ("eligibility", "ben", "a", "")]
    assert [one.amount for one in judgement.violations] == pytest.approx([0.625, 1.0, np.inf])


def test_who_has_nothing_falls_short_without_bound() -> None:
    (violation,) = judge_allocation(make_problem([[2.0]], [[1.0], [1.0]]), "drf", np.array([[2.0], [0.0]])).violations

    assert violation.tenant == "t1"
    assert violation.amount == np.inf


@pytest.mark.parametrize("tasks", [[[1.0, 1.0]], [[-1.0], [0.0]], [[np.nan], [0.0]]])
def test_what_is_no_allocation_is_refused(tasks: list[list[float]]) -> None:
    with pytest.raises(InvalidProblemError, match="tasks_ik"):
        judge_allocation(make_problem([[2.0]], [[1.0], [1.0]]), "drf", np.array(tasks))
