from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.problems.instance import DEFAULT_ALPHA, expand_tasks, reduce_problem
from fairbind.fairness.problems.problem import make_problem
from fairbind.fairness.problems.verify import check_feasible, check_feasible_problem
from fairbind.model.errors import SolverError


def test_totals_and_weights_are_one() -> None:
    instance = reduce_problem(make_problem([[4, 8], [12, 2]], [[1, 1], [2, 1]], count_k=[3, 2], weight_i=[1e3, 1e-3]))
    np.testing.assert_allclose(instance.capacity_kr.sum(axis=0), 1)
    assert instance.weight_i.sum() == pytest.approx(1)
    np.testing.assert_allclose(instance.demand_ir, [[1 / 36, 1 / 28], [2 / 36, 1 / 28]])
    assert not instance.demand_ir.flags.writeable


def test_equal_servers_are_one_class_and_equal_tenants_one_group() -> None:
    problem = make_problem(
        [[4, 8], [1, 1], [4, 8]],
        [[1, 1], [2, 1], [1, 1]],
        count_k=[1, 1, 3],
        tasks_i=[5, np.inf, 5],
        server_names=["z", "m", "a"],
        tenant_names=["z", "y", "x"],
    )
    instance = reduce_problem(problem)
    assert instance.class_of_server.tolist() == [0, 1, 0]
    assert instance.part_of_class.tolist() == [0.25, 1, 0.75]
    assert instance.group_of_tenant.tolist() == [0, 1, 0]
    assert instance.limit_i.tolist() == [10, np.inf]
    assert instance.member_i.tolist() == [2, 1]
    np.testing.assert_allclose(instance.weight_i, [2 / 3, 1 / 3])
    tasks_ik = expand_tasks(instance, np.array([[8.0, 0], [0, 3]]))
    assert tasks_ik.tolist() == [[1, 0, 3], [0, 3, 0], [1, 0, 3]]


@pytest.mark.parametrize(
    "change",
    [
        {"weight_i": np.array([1.0, 2])},
        {"tasks_i": np.array([1.0, 2])},
        {"demand_ir": np.array([[1.0, 1], [1, 1.0000001]])},
        {"resource_weight_ir": np.array([[1.0, 1], [1, 2]])},
        {"eligible_ik": np.array([[True, True], [True, False]])},
    ],
)
def test_tenants_that_differ_stay_apart(change: dict[str, np.ndarray]) -> None:
    problem = make_problem([[4, 8], [1, 1]], [[1, 1], [1, 1]])
    assert reduce_problem(problem).weight_i.size == 1
    assert reduce_problem(replace(problem, **change)).weight_i.size == 2  # type: ignore[arg-type]
    assert reduce_problem(problem, merges_tenants=False).weight_i.size == 2


@pytest.mark.parametrize(
    "change",
    [
        {"capacity_kr": np.array([[4.0, 8], [4, 8.0000001]])},
        {"divisible_k": np.array([True, False])},
        {"alpha_k": np.array([2.5, np.nan])},
        {"eligible_ik": np.array([[True, False]])},
    ],
)
def test_servers_that_differ_stay_apart(change: dict[str, np.ndarray]) -> None:
    problem = make_problem([[4, 8], [4, 8]], [[1, 1]])
    assert reduce_problem(problem).capacity_kr.shape[0] == 1
    assert reduce_problem(replace(problem, **change)).capacity_kr.shape[0] == 2  # type: ignore[arg-type]


def test_alpha_is_that_of_the_call_where_a_server_has_none() -> None:
    problem = make_problem([[4], [4], [4]], [[1]], alpha_k=[3, np.nan, 5])
    assert reduce_problem(problem, alpha=5).alpha_k.tolist() == [3, 5]
    assert reduce_problem(problem).alpha_k.tolist() == [3, DEFAULT_ALPHA, 5]


def test_resources_are_in_the_order_of_their_names_if_that_is_asked_for() -> None:
    problem = make_problem(
        [[4, 0, 6]],
        [[2, 0, 1], [1, 0, 3]],
        resource_weight_ir=[[1, 1, 2], [1, 1, 4]],
        resources=["memory", "gpu", "cpu"],
    )
    sorted_so = reduce_problem(problem, sorts_resources=True)
    as_listed = reduce_problem(problem)
    assert sorted_so.resource_weight_ir.tolist() == [[2, 1], [4, 1]]
    assert as_listed.resource_weight_ir.tolist() == [[1, 2], [1, 4]]
    for array in ("capacity_kr", "demand_ir"):
        np.testing.assert_array_equal(getattr(sorted_so, array), getattr(as_listed, array)[:, ::-1])
    np.testing.assert_allclose(sorted_so.demand_ir, [[1 / 6, 1 / 2], [1 / 2, 1 / 4]])


def test_who_can_run_nothing_is_left_out() -> None:
    problem = make_problem(
        [[4, 8, 0], [4, 0, 0]],
        [[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0]],
        tasks_i=[np.inf, np.inf, 0, np.inf, np.inf],
        eligible_ik=[[1, 1], [1, 1], [1, 1], [0, 0], [0, 1]],
    )
    instance = reduce_problem(problem)
    assert instance.group_of_tenant.tolist() == [0, -1, -1, -1, -1]
    assert instance.usable_ik.tolist() == [[True, False]]
    assert instance.demand_ir.shape == (1, 2)  # the third resource does not exist
    assert instance.tenants_total == 5
    assert expand_tasks(instance, np.array([[3.0, 0]])).sum() == 3


def test_gamma_is_what_a_class_runs_alone_and_monopoly_what_all_servers_do() -> None:
    problem = make_problem([[4, 8], [12, 2]], [[1, 1], [0, 1]], count_k=[2, 1], eligible_ik=[[1, 0], [1, 1]])
    instance = reduce_problem(problem)
    np.testing.assert_allclose(instance.gamma_ik, [[8, 0], [16, 2]])
    np.testing.assert_allclose(instance.monopoly_i, [8 + 2, 16 + 2])


def test_the_dominant_share_counts_resource_weights() -> None:
    instance = reduce_problem(make_problem([[10, 10]], [[1, 2], [1, 2]], resource_weight_ir=[[1, 1], [1, 4]]))
    np.testing.assert_allclose(instance.share_per_task_i, [0.2, 0.1])


@pytest.mark.parametrize(
    ("tasks_ik", "message"),
    [
        ([[3.0, 0], [0, -1e-20]], "tenant 1 has -1e-20 tasks on server class 1, not a finite number"),
        ([[np.nan, 0], [0, 1]], "tenant 0 has nan tasks on server class 0"),
        ([[4.00000001, 0], [0, 1]], "exceeds the capacity of server class 0"),
        ([[3.0, 0], [0, 2.00000001]], "the tasks of tenant 1 exceed"),
        ([[3.0, 1e-30], [0, 1]], "cannot run"),
        ([[3.0, 0]], "shape"),
    ],
)
def test_what_does_not_fit_is_refused(tasks_ik: list[list[float]], message: str) -> None:
    problem = make_problem([[4.0], [8.0]], [[1], [1]], tasks_i=[np.inf, 2], eligible_ik=[[1, 0], [1, 1]])
    instance = reduce_problem(problem)
    assert check_feasible(instance, np.array([[4.0 + 1e-9, 0], [0, 2]]), "test") > 0
    with pytest.raises(SolverError, match=message):
        check_feasible(instance, np.array(tasks_ik), "test")


def test_the_time_of_an_indivisible_server_is_limited() -> None:
    instance = reduce_problem(make_problem([[4.0, 8.0]], [[1.0, 1.0], [0.25, 2.0]], divisible_k=[False]))
    check_feasible(instance, np.array([[2.0], [2.0]]), "test")
    with pytest.raises(SolverError, match="more than the time of server class 0"):
        check_feasible(instance, np.array([[2.1], [2.0]]), "test")


def test_the_problem_itself_is_checked_as_written() -> None:
    problem = make_problem(
        [[4.0], [8.0]], [[1], [1]], count_k=[1, 2], eligible_ik=[[1, 0], [1, 1]], tasks_i=[np.inf, 17]
    )
    check_feasible_problem(problem, np.array([[4.0, 0], [0, 16]]), "test")
    for wrong in ([[4.0, 1], [0, 15]], [[4.1, 0], [0, 16]], [[2.0, 0], [2, 16]]):
        with pytest.raises(SolverError):
            check_feasible_problem(problem, np.array(wrong), "test")
