from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
import pytest

from fairbind.fairness.mechanisms.drfh import DRFH
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.solvers.maxmin.level_lp import LevelProgram
from fairbind.fairness.solvers.maxmin.warm_basis import WarmBasis, carry_over
from fairbind.fairness.solvers.warm import WarmStart

BASIC = highspy.HighsBasisStatus.kBasic


def make_grouped(tenants: int = 9) -> Problem:
    """Three kinds of tenants, each of them three times, so that a change of one makes a group of its own."""
    generator = np.random.default_rng(0)
    kind = np.arange(tenants) % 3
    return make_problem(
        generator.uniform(1, 8, (4, 2)),
        generator.uniform(0.1, 1, (3, 2))[kind],
        tenant_names=[f"t{i:02d}" for i in range(tenants)],
    )


def change_one(problem: Problem) -> Problem:
    """The first of the second kind gets another weight: its group is split."""
    weight_i = problem.weight_i.copy()
    weight_i[1] = 2
    return replace(problem, weight_i=weight_i)


def begin(before: Problem, after: Problem) -> tuple[WarmStart, Instance]:
    warm = WarmStart()
    for problem in (before, after):
        instance = reduce_problem(problem)
        warm.begin("drfh", problem, instance)
        if problem is before:
            DRFH.resolve(instance, warm)  # type: ignore[misc]
    return warm, instance


def test_groups_are_found_again_by_name() -> None:
    warm, instance = begin(make_grouped(), change_one(make_grouped()))
    assert instance.weight_i.size == 4
    assert warm.group_before_i.tolist() == [0, 1, 2, 1]
    assert warm.class_before_k.tolist() == [0, 1, 2, 3]


def test_newcomers_are_new_and_who_left_is_gone() -> None:
    whole = make_grouped()
    fewer = make_problem(whole.capacity_kr, whole.demand_ir[1::3], tenant_names=whole.tenant_names[1::3])
    warm, _ = begin(fewer, whole)
    assert warm.group_before_i.tolist() == [-1, 0, -1]
    warm, _ = begin(whole, fewer)
    assert warm.group_before_i.tolist() == [1]


@pytest.mark.parametrize("what", ["mechanism", "resources"])
def test_another_mechanism_or_other_resources_forget_everything(what: str) -> None:
    problem = make_grouped()
    warm, instance = begin(problem, problem)
    assert warm.state is not None
    if what == "mechanism":
        warm.begin("tsf", problem, instance)
    else:
        warm.begin("drfh", replace(problem, resources=("x", "y")), instance)
    assert warm.state is None


def count_basic(start: WarmBasis) -> list[tuple[int, int]]:
    """Basic parts and rows of each basis; a basis has as many."""
    counted = []
    for basis in start.bases:
        parts = [basis.level, *basis.pairs, *basis.capacities, *basis.groups]
        counted.append((sum(part == BASIC for part in parts), len(basis.capacities) + len(basis.groups)))
    return counted


def test_a_split_group_a_newcomer_and_a_leaver_keep_the_basis_whole() -> None:
    whole = make_grouped()
    fewer = make_problem(whole.capacity_kr, whole.demand_ir[1::3], tenant_names=whole.tenant_names[1::3])
    for before, after in ((whole, change_one(whole)), (change_one(whole), whole), (fewer, whole), (whole, fewer)):
        warm, instance = begin(before, after)
        carried = carry_over(warm.state, warm.group_before_i, warm.class_before_k, instance.usable_ik)
        assert carried is not None
        assert carried.bases
        for basic, rows in count_basic(carried):
            assert basic == rows
        assert set(carried.group_p.tolist()) == set(range(instance.weight_i.size))
        assert instance.usable_ik[carried.group_p, carried.class_p].all()


def test_a_split_group_stands_where_it_stood() -> None:
    """The new group begins on a class of the former one; the slow way would be a class that nobody chose."""
    warm, instance = begin(make_grouped(), change_one(make_grouped()))
    start: WarmBasis = warm.state
    carried = carry_over(start, warm.group_before_i, warm.class_before_k, instance.usable_ik)
    assert carried is not None
    for basis, before in zip(carried.bases, start.bases, strict=True):
        own = [p for p in range(carried.group_p.size) if carried.group_p[p] == 3 and basis.pairs[p] == BASIC]
        former = [p for p in range(start.group_p.size) if start.group_p[p] == 1 and before.pairs[p] == BASIC]
        assert len(own) == 1
        assert carried.class_p[own[0]] in start.class_p[former]


def test_other_classes_start_from_nothing() -> None:
    problem = make_grouped()
    warm, instance = begin(problem, replace(problem, capacity_kr=problem.capacity_kr[:1].repeat(4, axis=0)))
    assert carry_over(warm.state, warm.group_before_i, warm.class_before_k, instance.usable_ik) is None


def test_a_change_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    problem = make_problem(generator.uniform(1, 8, (6, 3)), generator.uniform(0.1, 1, (60, 3)))
    steps = []
    solve_pairs = LevelProgram._solve_pairs

    def count(program: LevelProgram, *arguments: object) -> object:
        answer = solve_pairs(program, *arguments)  # type: ignore[arg-type]
        steps.append(program._highs.getInfo().simplex_iteration_count)
        return answer

    monkeypatch.setattr(LevelProgram, "_solve_pairs", count)
    begin(problem, problem)
    cold = sum(steps)
    warm, instance = begin(problem, change_one(problem))
    steps.clear()
    DRFH.resolve(instance, warm)  # type: ignore[misc]
    assert sum(steps) < cold / 3
