from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms import dynamic_drf
from fairbind.fairness.mechanisms.dynamic_drf import (
    DYNAMIC_DRF,
    Arrivals,
    certify_dynamic_drf,
    compute_arrivals,
    solve_dynamic_drf,
)
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import InvalidProblemError, SolverError
from fairbind.simulator.reproduction.dynamic_drf_steps import solve_by_bisection
from fairness.families import FAMILIES, Family, families_for
from fairness.textbook import compute_max_min_levels, maximize

POOLS = [family for family in families_for(DYNAMIC_DRF.options) if family.is_one_pool]
EQUAL_AND_POSITIVE = [family for family in POOLS if not family.name.startswith(("zero", "thousand", "weights"))]


def make_instance(problem: Problem) -> Instance:
    return reduce_problem(problem, merges_tenants=False)


def draw_instance(seed: int, *, tenants: int = 12, zeros: float = 0.0, spread: float = 1.0) -> Instance:
    generator = np.random.default_rng(seed)
    demand_ir = np.exp(generator.uniform(-3, 0, (tenants, int(generator.integers(2, 5)))))
    demand_ir[generator.random(demand_ir.shape) < zeros] = 0.0
    demand_ir[(demand_ir == 0).all(axis=1), 0] = 1.0
    weight_i = np.exp(generator.uniform(-np.log(spread), np.log(spread), tenants))
    return make_instance(make_problem([np.ones(demand_ir.shape[1])], demand_ir, weight_i=weight_i))


def compute_shares(arrivals: Arrivals, instance: Instance, step: int) -> FloatArray:
    shares_i: FloatArray = arrivals.compute_tasks(step) * instance.share_per_task_i
    return shares_i


def compute_by_the_program(instance: Instance) -> list[FloatArray]:
    """Linear program (1) of the note, and Lemma 1, after every arrival; demands positive, weights equal."""
    count = instance.weight_i.size
    expected = instance.expected_tenants or count
    demand_ir = instance.demand_ir / instance.share_per_task_i[:, None]
    shares, answers = np.zeros(0), []
    for k in range(1, count + 1):
        least = np.append(shares, [0.0, 0.0])  # x_1 .. x_k, M
        rows = [(np.append(demand_ir[:k, r], 0.0), k / expected) for r in range(demand_ir.shape[1])]
        rows += [(np.append(-np.eye(k)[i], 1.0), 0.0) for i in range(k)]
        reached = maximize(np.append(np.zeros(k), 1.0), rows, least=least * (1 - 1e-11))[-1]
        shares = np.maximum(np.append(shares, 0.0), reached)
        answers.append(np.append(shares, np.zeros(count - k)))
    return answers


def compute_by_algorithm_1(instance: Instance, *, line_6_as_printed: bool = False) -> list[FloatArray]:
    demand_ir = instance.demand_ir / instance.share_per_task_i[:, None]
    return solve_by_bisection(demand_ir, line_6_as_printed=line_6_as_printed)


@pytest.mark.parametrize("family", EQUAL_AND_POSITIVE, ids=lambda family: family.name)
def test_every_step_is_the_linear_program_of_the_note(family: Family) -> None:
    for seed in range(3):
        instance = make_instance(family.make(np.random.default_rng(seed)))
        arrivals = compute_arrivals(instance)
        for step, expected in enumerate(compute_by_the_program(instance)):
            np.testing.assert_allclose(compute_shares(arrivals, instance, step), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_every_step_is_algorithm_1_of_the_note(seed: int) -> None:
    instance = draw_instance(seed, tenants=60)
    arrivals = compute_arrivals(instance)
    for step, expected in enumerate(compute_by_algorithm_1(instance)):
        np.testing.assert_allclose(compute_shares(arrivals, instance, step), expected, rtol=1e-9, atol=1e-14)


def test_algorithm_1_as_printed_uses_more_than_there_is() -> None:
    """Line 6 tests x_i^(k-1) of everybody, which always fits: then everybody is raised as if nobody had more."""
    excesses = []
    for seed in range(30):
        instance = draw_instance(seed, tenants=6)
        shares = compute_by_algorithm_1(instance, line_6_as_printed=True)[-1]
        excesses.append(float((shares / instance.share_per_task_i @ instance.demand_ir).max()) - 1)
    assert 5 < sum(excess > 0.001 for excess in excesses) < 30


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_every_step_is_the_lexicographic_max_min_above_what_everybody_has(zeros: float, spread: float) -> None:
    for seed in range(4):
        instance = draw_instance(seed, tenants=7, zeros=zeros, spread=spread)
        arrivals = compute_arrivals(instance)
        entitled_i = instance.weight_i
        levels = np.zeros(0)
        for step in range(7):
            use_ri = (instance.demand_ir / instance.share_per_task_i[:, None] * entitled_i[:, None])[: step + 1].T
            left_r = entitled_i[: step + 1].sum()
            least = np.append(levels, 0.0)
            most = np.full(step + 1, 1e9)
            # In parts of what there is: the solver's tolerances are absolute.
            levels = compute_max_min_levels(use_ri / left_r, np.ones(use_ri.shape[0]), least * (1 - 1e-9), most)
            shares_i = compute_shares(arrivals, instance, step)
            np.testing.assert_allclose(shares_i[: step + 1] / entitled_i[: step + 1], levels, rtol=1e-6)


def test_blocks_of_one_kind_and_of_many_agree() -> None:
    instance = draw_instance(5, tenants=300)
    arrivals = compute_arrivals(instance)
    slope_ir = instance.demand_ir * arrivals.speed_i[:, None]
    gain_t = np.diff(arrivals.entitled_t, prepend=0.0)
    by_kinds = dynamic_drf._raise_kinds(
        gain_t.tolist(), list(range(300)), slope_ir.tolist(), [0] * 300, np.ones((1, slope_ir.shape[1]), dtype=bool)
    )
    np.testing.assert_allclose(by_kinds, arrivals.level_tp, rtol=1e-9)


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_what_the_paper_promises_holds_in_every_step(zeros: float, spread: float) -> None:
    for seed in range(3):
        instance = draw_instance(seed, tenants=25, zeros=zeros, spread=spread)
        arrivals = compute_arrivals(instance)
        level_ti = np.array([compute_shares(arrivals, instance, step) / instance.weight_i for step in range(25)])
        assert (np.diff(level_ti, axis=0) >= -1e-9 * level_ti[1:]).all(), "nothing is taken back"
        used_tr = (level_ti * instance.weight_i / instance.share_per_task_i) @ instance.demand_ir
        entitled_t = np.cumsum(instance.weight_i)
        is_full_tr = np.abs(used_tr - entitled_t[:, None]) <= 1e-9 * entitled_t[:, None]
        for step in range(25):
            here = level_ti[step, : step + 1]
            assert (here >= 1 - 1e-9).all(), "sharing incentive"
            assert (instance.demand_ir[: step + 1, is_full_tr[step]] > 0).any(axis=1).all(), "Pareto optimality"
            _check_envy(instance, level_ti, step)


def _check_envy(instance: Instance, level_ti: FloatArray, step: int) -> None:
    """Whoever is envied came before and has received nothing since the envious one came."""
    bundle_ir = (level_ti[step] * instance.weight_i / instance.share_per_task_i)[:, None] * instance.demand_ir
    for i in range(step + 1):
        needs_r = instance.demand_ir[i] > 0
        for j in range(step + 1):
            bundle_r = bundle_ir[j] * instance.weight_i[i] / instance.weight_i[j]
            if (bundle_r[needs_r] > bundle_ir[i, needs_r] * (1 + 1e-9)).all():
                assert j < i
                assert level_ti[step, j] == pytest.approx(level_ti[i - 1, j], rel=1e-9)


@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_no_lie_about_demands_pays(spread: float) -> None:
    generator = np.random.default_rng(8)
    for seed in range(15):
        instance = draw_instance(seed, tenants=6, spread=spread, zeros=0.2)
        truth = [compute_arrivals(instance).compute_tasks(step) for step in range(6)]
        liar = int(generator.integers(6))
        needs_r = instance.demand_ir[liar] > 0
        for _ in range(10):
            demand_ir = instance.demand_ir.copy()
            demand_ir[liar, needs_r] *= np.exp(generator.uniform(-1.5, 1.5, int(needs_r.sum())))
            lie = compute_arrivals(replace(instance, demand_ir=demand_ir, share_per_task_i=demand_ir.max(axis=1)))
            for step in range(liar, 6):
                bundle_r = lie.compute_tasks(step)[liar] * demand_ir[liar]
                tasks = (bundle_r[needs_r] / instance.demand_ir[liar, needs_r]).min()
                assert tasks <= truth[step][liar] * (1 + 1e-9)


def test_more_tenants_expected_leave_room() -> None:
    problem = make_problem([[9, 18]], [[1, 4], [3, 1]], expected_tenants=4)
    allocation = compute_allocation(problem, "dynamic-drf")
    np.testing.assert_allclose(allocation.totals_i, [1.5, 1.0], rtol=1e-12)
    assert allocation.certificate["entitled"] == 0.5


def test_the_order_of_arrival_counts() -> None:
    demand_ir = np.array([[1, 0.1], [1, 0.1], [0.1, 1]])
    problem, reverse = (make_problem([[1, 1]], order, tenant_names="abc") for order in (demand_ir, demand_ir[::-1]))
    totals_i, reverse_i = (compute_allocation(each, "dynamic-drf").totals_i for each in (problem, reverse))
    assert not np.allclose(totals_i, reverse_i[::-1])


def test_a_tenant_that_can_run_nothing_leaves_its_part_when_it_comes() -> None:
    problem = make_problem([[9, 18, 0]], [[1, 4, 0], [1, 1, 1], [3, 1, 0]])
    instance = make_instance(problem)
    arrivals = compute_arrivals(instance)
    tasks_ti = np.array([arrivals.compute_tasks(step) for step in range(3)])
    np.testing.assert_allclose(tasks_ti, [[1.5, 0.0], [3.0, 0.0], [3.0, 2.0]], rtol=1e-12)
    certify_dynamic_drf(instance, solve_dynamic_drf(instance))
    first = make_instance(make_problem([[9, 18, 0]], [[1, 1, 1], [1, 4, 0]]))
    np.testing.assert_allclose(compute_arrivals(first).compute_tasks(1), [4.5], rtol=1e-12)
    np.testing.assert_allclose(compute_arrivals(first).compute_tasks(0), [0.0])


def test_weights_are_what_tenants_are_entitled_to() -> None:
    problem = make_problem([[12, 12]], [[1.0, 0.5], [0.5, 1.0], [1.0, 1.0]], weight_i=[1, 2, 3])
    instance = make_instance(problem)
    arrivals = compute_arrivals(instance)
    np.testing.assert_allclose(arrivals.entitled_t, [1 / 6, 1 / 2, 1])
    np.testing.assert_allclose(arrivals.compute_tasks(0), [2, 0, 0])
    # At level l they have 2 l and 4 l tasks, and half of everything may be in use: the second resource is used up.
    np.testing.assert_allclose(arrivals.compute_tasks(1), [2.4, 4.8, 0])


@pytest.mark.parametrize("family", POOLS, ids=lambda family: family.name)
def test_certificate_refuses_one_per_cent(family: Family) -> None:
    instance = make_instance(family.make(np.random.default_rng(11)))
    solution = solve_dynamic_drf(instance)
    certify_dynamic_drf(instance, solution)
    for i in range(min(instance.weight_i.size, 8)):
        for factor in (0.99, 1.01):
            tasks_ik = solution.tasks_ik.copy()
            tasks_ik[i] *= factor
            with pytest.raises(SolverError, match="dynamic-drf"):
                certify_dynamic_drf(instance, Solution(tasks_ik, solution.evidence))


@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_certificate_refuses_levels_of_which_one_is_wrong(zeros: float, factor: float) -> None:
    instance = draw_instance(3, tenants=20, zeros=zeros)
    arrivals = compute_arrivals(instance)
    for step, kind in np.argwhere(arrivals.level_tp > 0):
        level_tp = arrivals.level_tp.copy()
        level_tp[step, kind] *= factor
        if (_compute_highest(level_tp) == _compute_highest(arrivals.level_tp)).all():
            continue  # nobody of the kind was raised in that step, so its level says nothing
        tasks_i = replace(arrivals, level_tp=level_tp).compute_tasks(19)
        with pytest.raises(SolverError):
            certify_dynamic_drf(instance, Solution(tasks_i[:, None], {"level_tp": level_tp}))


def _compute_highest(level_tp: FloatArray) -> FloatArray:
    """The highest level since each step, in each step: what everybody has, at any time."""
    steps = level_tp.shape[0]
    return np.array([level_tp[first : last + 1].max(axis=0) for last in range(steps) for first in range(last + 1)])


def test_certificate_refuses_dominant_resource_fairness() -> None:
    """Its levels would be right if nobody had been there before."""
    instance = draw_instance(1)
    tasks_i = instance.weight_i / instance.share_per_task_i
    tasks_i /= (tasks_i @ instance.demand_ir).max()
    level = tasks_i[0] * instance.share_per_task_i[0] / instance.weight_i[0]
    with pytest.raises(SolverError):
        certify_dynamic_drf(instance, Solution(tasks_i[:, None], {"level_tp": np.full((12, 1), level)}))


REFUSED: dict[str, tuple[str, Callable[[], Problem]]] = {
    "fewer expected than there are": (
        "expectedTenants: 1: must be at least 2",
        lambda: make_problem([[1]], [[1], [2]], expected_tenants=1),
    ),
    "weights of strangers": (
        "expectedTenants: 3: where weights differ",
        lambda: make_problem([[1]], [[1], [2]], weight_i=[1, 2], expected_tenants=3),
    ),
    "weight of somebody who can run nothing": (
        r"tenants\[1\]\.demand of t1: no task of it can ever run",
        lambda: make_problem([[1, 0]], [[1, 0], [1, 1], [2, 0]], weight_i=[1, 2, 3]),
    ),
    "finite tasks": (
        r"tenants\[1\]\.tasks of t1: mechanism dynamic-drf does not take finite tasks",
        lambda: make_problem([[1]], [[1], [2]], tasks_i=[np.inf, 3]),
    ),
}


@pytest.mark.parametrize(("message", "make"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_it_cannot_know(message: str, make: Callable[[], Problem]) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        compute_allocation(make(), "dynamic-drf")


def test_refuses_an_instance_in_which_equal_tenants_are_one() -> None:
    problem = make_problem([[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="one after another"):
        compute_arrivals(reduce_problem(problem))
    assert compute_allocation(problem, "dynamic-drf").totals_i.tolist() == [0.5, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_many_tenants_with_weights_from_a_thousandth_to_a_thousand(zeros: float) -> None:
    instance = draw_instance(0, tenants=20_000, zeros=zeros, spread=1e3)
    certificate = certify_dynamic_drf(instance, solve_dynamic_drf(instance))
    assert certificate["largestExcess"] < 1e-11


def test_one_step_at_a_time_or_all_at_once() -> None:
    """What somebody has after a step does not depend on who comes later."""
    problem = FAMILIES["plain-one-pool"].make(np.random.default_rng(4))
    count = len(problem.tenant_names)
    arrivals = compute_arrivals(make_instance(problem))
    for step in range(count):
        shorter = make_problem(problem.capacity_kr, problem.demand_ir[: step + 1], expected_tenants=count)
        allocation = compute_allocation(shorter, "dynamic-drf")
        np.testing.assert_allclose(allocation.totals_i, arrivals.compute_tasks(step)[: step + 1], rtol=1e-12)
