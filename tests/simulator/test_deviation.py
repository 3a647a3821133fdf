"""Equation (58) of the paper of PS-DSF, on audits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.scheduling.fair_shares.audit import AuditScene
from fairbind.scheduling.fair_shares.demand_groups import DemandGroup
from fairbind.simulator.deviation import compute_deviation
from fairness.test_alpha_pf_vds import FIGURE
from simulator.scenarios import make_entry, make_scenario, run


def make_scene(problem: Problem, tasks_ik: np.ndarray, waits: Sequence[bool] | None = None) -> AuditScene:
    """Make the scene of an allocation."""
    tenants = len(problem.tenant_names)
    alone_ik = np.array(
        [
            [
                min((c / d for c, d in zip(row, demand, strict=True) if d > 0), default=0.0)
                for row in problem.capacity_kr
            ]
            for demand in problem.demand_ir.tolist()
        ]
    )
    groups = [
        DemandGroup(i, problem.demand_ir[i], problem.demand_ir[i], 1e9, problem.eligible_ik[i] & (alone_ik[i] > 0))
        for i in range(tenants)
    ]
    ones_n = np.ones(tenants)
    return AuditScene(
        names=problem.tenant_names,
        demand_groups=groups,
        capacity_pr=problem.capacity_kr,
        free_pr=np.zeros_like(problem.capacity_kr),
        bundle_npr=tasks_ik[:, :, None] * problem.demand_ir[:, None, :],
        weight_n=problem.weight_i,
        weight_nr=np.repeat(problem.weight_i[:, None], len(problem.resources), axis=1),
        share_n=ones_n,
        largest_n=ones_n,
        has_n=ones_n,
        waits_n=np.array([True] * tenants if waits is None else waits),
        ruled_n=np.zeros(tenants, dtype=np.bool_),
    )


def test_two_tenants_on_one_server_by_hand() -> None:
    """Shares 0.6 and 0.3: the first exceeds the least one by all of it."""
    problem = make_two()
    assert compute_deviation(make_scene(problem, np.array([[6.0], [3.0]]))) == pytest.approx((0.5, 1.0))
    assert compute_deviation(make_scene(problem, np.array([[5.0], [5.0]]))) == (0.0, 0.0)
    assert compute_deviation(make_scene(problem, np.array([[6.0], [3.0]]), [True, False])) == (0.0, 0.0)
    assert compute_deviation(make_scene(problem, np.array([[6.0], [0.0]]))) is None
    assert compute_deviation(make_scene(problem, np.array([[6.0], [3.0]]), [False, False])) is None
    assert compute_deviation(make_scene(problem, np.zeros((2, 1)))) is None


def test_weights_divide_shares_and_weigh_the_mean() -> None:
    problem = make_two(weight_i=[1.0, 3.0])
    assert compute_deviation(make_scene(problem, np.array([[2.5], [7.5]]))) == (0.0, 0.0)
    assert compute_deviation(make_scene(problem, np.array([[5.0], [5.0]]))) == pytest.approx((0.5, 2.0))


def make_two(weight_i: Sequence[float] = (1.0, 1.0)) -> Problem:
    return make_problem([[10.0]], [[1.0], [1.0]], weight_i=weight_i)


def test_ps_dsf_does_not_deviate_and_a_smaller_alpha_deviates_more() -> None:
    """As figure 10 of the paper says."""
    deviations = []
    for mechanism, alpha in (("ps-dsf", None), ("alpha-pf-vds", 8.0), ("alpha-pf-vds", 3.0), ("alpha-pf-vds", 1.0)):
        tasks_ik = compute_allocation(FIGURE, mechanism, alpha=alpha).tasks_ik
        found = compute_deviation(make_scene(FIGURE, tasks_ik))
        assert found is not None
        deviations.append(found[0])
    assert deviations[0] == pytest.approx(0.0, abs=1e-6)
    assert deviations == sorted(deviations)
    assert deviations[-1] > 0.1


def test_the_summary_says_the_deviation() -> None:
    """Both tenants hold half and wait; a tenant that waits for nothing does not deviate."""
    entries = [make_entry(tasks=9, duration=10), make_entry("b", tenant="b", tasks=9, duration=10)]
    summary = run(make_scenario(*entries, tenants="ab", measureEvery=1, horizon=9)).summary
    assert summary["deviation"] == {"mean": 0.0, "max": 0.0}
    alone = run(make_scenario(make_entry(tasks=1, duration=10), tenants="ab", measureEvery=1)).summary
    assert alone["deviation"] == {"mean": None, "max": None}
