from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.judge import judge_allocation
from fairbind.fairness.mechanisms.mechanism import Mechanism, Option
from fairbind.fairness.mechanisms.registry import MECHANISMS, make_registry
from fairbind.fairness.problems.allocation import Allocation, Solution
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.negligible import drop_negligible
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.problems.verify import check_feasible_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.maxmin.level_lp import run
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model.errors import InvalidProblemError, SolverError

PLAIN: dict[str, Any] = {"capacity_kr": [[9, 18]], "demand_ir": [[1, 4], [3, 1]]}
TWO: dict[str, Any] = {"capacity_kr": [[9, 18], [18, 9]], "demand_ir": [[1, 4], [3, 1]]}


@pytest.mark.parametrize(
    ("mechanism", "problem", "path"),
    [
        ("drf", make_problem(**TWO), "servers: mechanism drf does not take several server entries"),
        ("drf", make_problem(**PLAIN, eligible_ik=[[1], [0]]), "tenants[1].eligible of t1: mechanism drf"),
        ("drf", make_problem(**PLAIN, divisible_k=[False]), "servers[0].divisible of s0: mechanism drf"),
        ("drf", make_problem(**PLAIN, alpha_k=[2]), "servers[0].alpha of s0: mechanism drf does not take alpha"),
        ("drf", make_problem(**PLAIN, expected_tenants=4), "expectedTenants: mechanism drf"),
        (
            "tsf",
            make_problem(**PLAIN, resource_weight_ir=[[1, 1], [1, 2]]),
            "tenants[1].resourceWeights of t1: mechanism tsf",
        ),
        ("drfh", make_problem(**TWO, divisible_k=[True, False]), "servers[1].divisible of s1: mechanism drfh"),
        (
            "drfh",
            make_problem(**TWO, is_pooled=True, eligible_ik=[[1, 1], [1, 0]]),
            "tenants[1].eligible of t1: every tenant",
        ),
        (
            "ps-dsf",
            make_problem(**TWO, is_pooled=True, divisible_k=[True, False]),
            "servers[1].divisible of s1: servers of a",
        ),
        (
            "alpha-pf-vds",
            make_problem(**TWO, is_pooled=True, alpha_k=[2, np.nan]),
            "servers[1].alpha of s1: servers of a pool",
        ),
    ],
)
def test_an_option_that_is_not_taken_is_named(mechanism: str, problem: Problem, path: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        compute_allocation(problem, mechanism)
    assert str(caught.value).startswith(path)


def test_what_is_the_same_for_all_is_no_option() -> None:
    problem = make_problem(**PLAIN, weight_i=[7, 7])
    assert compute_allocation(problem, "drf").totals_i.tolist() == pytest.approx([3, 2])


@pytest.mark.parametrize("alpha", [0, -1, float("inf"), float("nan")])
def test_alpha_must_be_a_positive_number(alpha: float) -> None:
    with pytest.raises(InvalidProblemError, match="alpha"):
        compute_allocation(make_problem(**PLAIN), "alpha-pf-vds", alpha=alpha)


def test_alpha_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(InvalidProblemError, match=r"alpha: 2: mechanism drf does not take alpha"):
        compute_allocation(make_problem(**PLAIN), "drf", alpha=2)


def test_an_unknown_mechanism_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidProblemError, match=r"mechanism: 'drfhh' is unknown; did you mean drfh\?"):
        compute_allocation(make_problem(**PLAIN), "drfhh")
    with pytest.raises(InvalidProblemError, match="known are alpha-pf-vds, asset-fairness"):
        compute_allocation(make_problem(**PLAIN), "x")


def test_a_pool_is_the_sum_of_its_servers() -> None:
    pooled = compute_allocation(make_problem(**TWO, is_pooled=True), "drf")
    assert pooled.tasks_ik.shape == (2, 1)
    one = make_problem([[27, 27]], TWO["demand_ir"])
    np.testing.assert_allclose(pooled.totals_i, compute_allocation(one, "drf").totals_i)


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_nobody_can_run_anything(mechanism: str) -> None:
    allocation = compute_allocation(make_problem([[0, 18]], [[1, 4], [3, 1]]), mechanism)
    assert allocation.tasks_ik.tolist() == [[0], [0]]
    assert allocation.dominant_shares_i.tolist() == [0, 0]
    assert allocation.certificate == {"method": "no tenant can run anything"}


def test_dominant_shares_are_parts_of_everything() -> None:
    problem = make_problem([[9, 18, 0], [18, 9, 0]], [[1, 4, 0], [3, 1, 0]], count_k=[1, 2])
    allocation = compute_allocation(problem, "drfh")
    totals_i = allocation.totals_i
    np.testing.assert_allclose(allocation.dominant_shares_i, [totals_i[0] * 4 / 36, totals_i[1] * 3 / 45])


def allocate_by(mechanism: Mechanism, problem: Problem) -> Allocation:
    return compute_allocation(problem, mechanism.id, mechanisms=make_registry([mechanism]))


def test_an_answer_that_does_not_fit_the_problem_never_comes_out() -> None:
    """Even if the mechanism's own certificate let it pass."""

    def solve_too_much(instance: Instance) -> Solution:
        return Solution(2 * MECHANISMS["drf"].solve(instance).tasks_ik)

    def believe(instance: Instance, solution: Solution) -> Mapping[str, Any]:
        del instance, solution
        return {}

    generous = replace(MECHANISMS["drf"], solve=solve_too_much, certify=believe)
    with pytest.raises(SolverError, match="exceeds"):
        allocate_by(generous, make_problem(**PLAIN))


NAMES: dict[str, Any] = {"tenant_names": ["ada", "ben", "cy"], "server_names": ["left", "right"]}
INDEX = re.compile(r"\b(tenant|server|server class|group|class|queue) \d|\[\d+\](?!.* of )|\bNone\b")
CHANGES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "a tenant gets half": lambda tasks_ik: np.where(np.arange(len(tasks_ik))[:, None] == 1, tasks_ik / 2, tasks_ik),
    "all get half": lambda tasks_ik: tasks_ik / 2,
    "all get twice": lambda tasks_ik: tasks_ik * 2,
    "a tenant gets nothing": lambda tasks_ik: np.where(np.arange(len(tasks_ik))[:, None] == 1, 0.0, tasks_ik),
    "no number": lambda tasks_ik: tasks_ik * np.nan,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_an_answer_that_is_refused_is_told_by_names(mechanism: str, change: str) -> None:
    """Indices of tenants and servers are those of the instance; no user knows them."""
    right = MECHANISMS[mechanism]
    takes_servers = Option.SERVERS in right.options

    def solve_wrongly(instance: Instance) -> Solution:
        solution = right.solve(instance)
        return replace(solution, tasks_ik=CHANGES[change](solution.tasks_ik))

    capacity_kr = [[9, 18], [18, 9]] if takes_servers else [[27, 27]]
    names = NAMES if takes_servers else {**NAMES, "server_names": ["left"]}
    problem = make_problem(capacity_kr, [[1, 4], [3, 1], [1, 1]], **names)
    with pytest.raises(SolverError) as caught:
        allocate_by(replace(right, solve=solve_wrongly, resolve=None), problem)

    message = str(caught.value)
    assert message.startswith(f"{mechanism}: ")
    assert re.search(r"(tenant (ada|ben|cy)|server (left|right))\b", message), message
    assert not INDEX.search(message), message


def test_an_answer_that_exceeds_a_limit_or_time_is_told_by_names() -> None:
    def solve_too_much(instance: Instance) -> Solution:
        tasks_ik = np.full(instance.usable_ik.shape, 0.1)
        return Solution(np.where(instance.usable_ik, tasks_ik, 0.0) if instance.divisible_k.all() else 70 * tasks_ik)

    def refuse(problem: Problem) -> str:
        with pytest.raises(SolverError) as caught:
            allocate_by(replace(MECHANISMS["ps-dsf"], solve=solve_too_much, resolve=None), problem)
        return str(caught.value)

    demand_ir = [[1, 4], [3, 1], [1, 1]]
    few = make_problem([[9, 18], [18, 9]], demand_ir, tasks_i=[9, 0.1, 9], **NAMES)
    slow = make_problem([[99, 99], [99, 99]], [[10, 1], [1, 10], [1, 1]], divisible_k=[True, False], **NAMES)
    narrow = make_problem([[9, 18], [18, 9]], demand_ir, eligible_ik=[[1, 1], [1, 0], [1, 1]], **NAMES)
    free = replace(narrow, eligible_ik=np.ones((3, 2), dtype=np.bool_))

    assert refuse(few) == "ps-dsf: the tasks of tenant ben exceed its number of tasks by 1 of it"
    assert refuse(slow).endswith("more than the time of server right")
    with pytest.raises(SolverError, match="tenant ben has tasks on server right, which cannot run"):
        check_feasible_problem(narrow, compute_allocation(free, "ps-dsf").tasks_ik, "ps-dsf")


def test_a_tenant_that_dynamic_drf_cannot_take_is_named() -> None:
    problem = make_problem([[9, 0]], [[1, 0], [3, 1], [1, 0]], weight_i=[1, 2, 2], tenant_names=["ada", "ben", "cy"])

    with pytest.raises(InvalidProblemError, match=r"^tenants\[1\].demand of ben: no task of it can ever run"):
        compute_allocation(problem, "dynamic-drf")
    with pytest.raises(InvalidProblemError, match=r"^tenants\[1\].demand of ben: no task of it can ever run"):
        judge_allocation(problem, "dynamic-drf", np.zeros((3, 1)))


def put_negligible(instance: Instance) -> Solution:
    """The answer of drfh, and nearly nothing where the first tenant runs nothing."""
    solution = MECHANISMS["drfh"].solve(instance)
    tasks_ik = solution.tasks_ik.copy()
    assert tasks_ik[0, 1] == 0
    tasks_ik[0, 1] = 1e-12
    return replace(solution, tasks_ik=tasks_ik)


APART: dict[str, Any] = {"capacity_kr": [[2, 12], [12, 2]], "demand_ir": [[0.2, 1], [1, 0.2]]}


def test_negligible_tasks_are_dropped_before_the_answer_is_proved() -> None:
    proved: list[list[list[float]]] = []

    def certify(instance: Instance, solution: Solution) -> Mapping[str, Any]:
        proved.append(solution.tasks_ik.tolist())
        return MECHANISMS["drfh"].certify(instance, solution)

    untidy = replace(MECHANISMS["drfh"], solve=put_negligible, resolve=None, certify=certify)
    tasks_ik = allocate_by(untidy, make_problem(**APART)).tasks_ik
    assert tasks_ik[0, 1] == 0
    assert proved == [tasks_ik.tolist()]


def test_negligible_tasks_that_an_answer_needs_stay() -> None:
    def certify(_: Instance, solution: Solution) -> Mapping[str, Any]:
        if solution.tasks_ik[0, 1] == 0:
            raise SolverError("not so")
        return {}

    untidy = replace(MECHANISMS["drfh"], solve=put_negligible, resolve=None, certify=certify)
    assert allocate_by(untidy, make_problem(**APART)).tasks_ik[0, 1] == 1e-12


@pytest.mark.parametrize("mechanism", ["drfh", "tsf"])
def test_what_was_negligible_goes_where_the_tenant_runs(mechanism: str) -> None:
    """HiGHS leaves 2e-11 of the first server to a tenant that runs on the second; the total must not lose it."""
    problem = make_problem(
        [[9, 18], [4, 30]], [[1, 4], [3, 1]], count_k=[1, 3], weight_i=[1, 2], eligible_ik=[[1, 1], [1, 0]]
    )
    tasks_ik = compute_allocation(problem, mechanism).tasks_ik
    assert tasks_ik[0, 0] == 0
    np.testing.assert_allclose(tasks_ik, [[0, 12], [3, 0]], rtol=1e-14)


def test_what_is_little_for_the_tenant_alone_or_the_server_alone_is_not_negligible() -> None:
    instance = reduce_problem(make_problem([[1e-12], [1.0]], [[1]]))
    all_of_a_small_server = np.array([[0.999e-12, 1]])
    assert drop_negligible(instance, all_of_a_small_server) is all_of_a_small_server
    all_of_a_small_tenant = np.array([[0, 1e-12]])
    assert drop_negligible(instance, all_of_a_small_tenant) is all_of_a_small_tenant
    assert drop_negligible(instance, np.array([[1e-22, 1]])).tolist() == [[0, 1]]


@pytest.mark.parametrize("mechanism", ["drfh", "tsf"])
def test_an_answer_that_cannot_be_found_names_the_mechanism(mechanism: str) -> None:
    """A server of 1e12 others is too much for a linear program; its solver does not know who called it."""
    problem = make_problem([[4.0, 16.0], [4e12, 16e12]], [[1, 2], [1, 8], [1, 1]], eligible_ik=[[1, 0], [1, 1], [1, 1]])
    with pytest.raises(SolverError, match=f"^{mechanism}: the linear program is "):
        compute_allocation(problem, mechanism)


def test_a_mechanism_is_named_once() -> None:
    def refuse(instance: Instance) -> Solution:
        raise SolverError(f"drf: nothing for {instance.weight_i.size}")

    with pytest.raises(SolverError, match=r"^drf: nothing for 2$"):
        allocate_by(replace(MECHANISMS["drf"], solve=refuse), make_problem(**PLAIN))


def make_varied(seed: int) -> Problem:
    generator = np.random.default_rng(seed)
    demand_ir = generator.uniform(0.1, 1, (30, 3)) * (generator.random((30, 3)) < 0.7)
    demand_ir[demand_ir.sum(axis=1) == 0] = 0.5
    return make_problem(
        generator.uniform(1, 8, (6, 3)),
        demand_ir,
        count_k=generator.integers(1, 9, 6),
        weight_i=generator.uniform(0.5, 2, 30),
        eligible_ik=generator.random((30, 6)) < 0.7,
    )


def change_weight(problem: Problem) -> Problem:
    weight_i = problem.weight_i.copy()
    weight_i[3] *= 2
    return replace(problem, weight_i=weight_i)


def change_demand(problem: Problem) -> Problem:
    demand_ir = problem.demand_ir.copy()
    demand_ir[5] *= [0.5, 2, 1]
    return replace(problem, demand_ir=demand_ir)


def change_count(problem: Problem) -> Problem:
    count_k = problem.count_k.copy()
    count_k[2] += 1
    return replace(problem, count_k=count_k)


def drop_tenant(problem: Problem) -> Problem:
    return make_problem(
        problem.capacity_kr,
        problem.demand_ir[1:],
        count_k=problem.count_k,
        weight_i=problem.weight_i[1:],
        eligible_ik=problem.eligible_ik[1:],
        tenant_names=problem.tenant_names[1:],
    )


def change_units(problem: Problem) -> Problem:
    return replace(problem, resources=("x", "y", "z"))


@pytest.mark.parametrize("mechanism", ["drfh", "tsf", "drf"])
@pytest.mark.parametrize("change", [change_weight, change_demand, change_count, drop_tenant, change_units])
def test_a_warm_start_changes_no_answer(mechanism: str, change: Any) -> None:
    problem = make_varied(1)
    if mechanism == "drf":
        problem = make_problem(problem.capacity_kr[:1], problem.demand_ir, weight_i=problem.weight_i)
    if change is change_count and mechanism == "drf":
        return
    warm = WarmStart()
    compute_allocation(problem, mechanism, warm=warm)
    changed = change(problem) if mechanism != "drf" or change is not drop_tenant else problem
    expected = compute_allocation(changed, mechanism)
    for _ in range(2):
        allocation = compute_allocation(changed, mechanism, warm=warm)
        np.testing.assert_allclose(allocation.totals_i, expected.totals_i, rtol=1e-7)
        assert allocation.certificate["method"] == expected.certificate["method"]


def test_a_warm_start_that_leads_nowhere_is_forgotten() -> None:
    problem = make_varied(2)
    warm = WarmStart()
    compute_allocation(problem, "drfh", warm=warm)
    # Statuses that are no basis.
    warm.state.bases = [
        replace(basis, pairs=basis.pairs[::-1], capacities=basis.capacities[::-1]) for basis in warm.state.bases
    ]
    allocation = compute_allocation(change_weight(problem), "drfh", warm=warm)
    np.testing.assert_allclose(
        allocation.totals_i, compute_allocation(change_weight(problem), "drfh").totals_i, rtol=1e-7
    )


def test_a_warm_start_takes_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def run_and_count(highs: Any) -> None:
        run(highs)
        steps.append(highs.getInfo().simplex_iteration_count)

    monkeypatch.setattr("fairbind.fairness.solvers.maxmin.level_lp.run", run_and_count)
    problem = make_varied(3)
    warm = WarmStart()
    compute_allocation(problem, "drfh", warm=warm)
    cold, steps[:] = sum(steps), []
    compute_allocation(change_weight(problem), "drfh", warm=warm)
    assert sum(steps) < cold / 3
