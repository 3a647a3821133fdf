"""The problem of a cluster, from a snapshot: what is written reads back as the same problem."""

from __future__ import annotations

import numpy as np
import pytest

from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.cli.problem import make_problem_of_cluster
from fairbind.fairness import Problem, compute_allocation, make_problem, parse_problem
from fairbind.model import PolicySettings, Tenant
from fairbind.model.errors import FairbindError
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot

ARRAYS = ("capacity_kr", "count_k", "divisible_k", "alpha_k", "demand_ir", "weight_i", "tasks_i", "eligible_ik")


def test_a_snapshot_becomes_a_problem_with_cores() -> None:
    """The example of the DRF paper on three equal servers."""
    servers = build_servers({"s0": (3000, 6), "s1": (3000, 6), "s2": (3000, 6)})
    placement = build_placement(servers)
    classes = [build_class("ada", (1000, 4), placement, 9), build_class("ben", (3000, 1), placement, 9)]
    problem = make_problem_of_cluster(build_snapshot(servers, classes), PolicySettings("drf"))

    assert problem.count_k.tolist() == [3]
    assert problem.capacity_kr.tolist() == [[3.0, 6.0]]
    assert problem.demand_ir.tolist() == [[1.0, 4.0], [3.0, 1.0]]
    totals = compute_allocation(problem.pooled(), "drf").totals_i
    assert dict(zip(problem.tenant_names, totals.tolist(), strict=True)) == pytest.approx({"ada": 3, "ben": 2})


def test_a_cluster_in_which_nobody_wants_anything_is_no_problem() -> None:
    empty = build_snapshot(build_servers({"s": (9, 18)}), [], tenants=[Tenant("a")])

    with pytest.raises(FairbindError, match="nothing to divide"):
        make_problem_of_cluster(empty, PolicySettings())


def make_full_problem() -> Problem:
    return make_problem(
        [[9.0, 18.0], [1.0, 0.0]],
        [[1.0, 4.0], [3.0, 0.0]],
        count_k=[3, 1],
        divisible_k=[True, False],
        alpha_k=[np.nan, 0.5],
        weight_i=[1, 2.5],
        tasks_i=[np.inf, 7],
        eligible_ik=[[True, True], [False, True]],
        resource_weight_ir=[[1, 1], [2, 1]],
        expected_tenants=4,
        is_pooled=True,
    )


def test_every_field_is_written_and_read_back() -> None:
    problem = make_full_problem()
    again = parse_problem(describe_problem(problem))

    for name in (*ARRAYS, "resource_weight_ir"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    assert (again.resources, again.server_names, again.tenant_names) == (("r0", "r1"), ("s0", "s1"), ("t0", "t1"))
    assert (again.expected_tenants, again.is_pooled) == (4, True)
