from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairbind.cli.mechanisms.allocate import compute_text
from fairbind.cli.mechanisms.csv_problem import format_csv, read_csv
from fairbind.cli.mechanisms.quantities import read_quantities
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.fairness.judge import judge_allocation
from fairbind.fairness.mechanisms.guarantees import is_guaranteed
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation, Solution
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.properties import PROPERTIES, properties_for
from fairbind.fairness.solve import compute_allocation, reduce_for
from fairbind.model.errors import InvalidProblemError, SolverError
from fairness.families import Family, families_for, mark_for_quick
from fairness.tree_oracle import TreeOracle
from fairness.trees import (
    FOUR_EQUAL_CHILDREN,
    SCIENCE_AND_ENGINEERING,
    draw,
    draw_document,
    tenant,
    with_flat_tree,
)

BY_LEVELS = ("drfh", "tsf")
ALL = ("drfh", "tsf", "ps-dsf")


def solve(
    mechanism: str, capacity: dict[str, float] | list[dict[str, float]], *tenants: dict[str, Any]
) -> dict[str, float]:
    """Return the totals by name."""
    return name_totals(compute_allocation(make(capacity, *tenants), mechanism))


def make(capacity: dict[str, float] | list[dict[str, float]], *tenants: dict[str, Any]) -> Any:
    kinds = capacity if isinstance(capacity, list) else [capacity]
    servers = [{"name": f"s{k}", "capacity": has} for k, has in enumerate(kinds)]
    resources = sorted({resource for has in kinds for resource in has})
    return parse_problem({"resources": resources, "servers": servers, "tenants": list(tenants)})


def name_totals(allocation: Allocation) -> dict[str, float]:
    return dict(zip(allocation.problem.tenant_names, allocation.totals_i.tolist(), strict=True))


@pytest.mark.parametrize("mechanism", ["drfh", "ps-dsf"])
def test_science_and_engineering_run_five_pods_each(mechanism: str) -> None:
    totals = solve(mechanism, {"cpu": 10, "mem": 10}, *SCIENCE_AND_ENGINEERING)
    assert totals == {"sci": 5, "dev": 5, "prod": 5}


@pytest.mark.parametrize("mechanism", ["drfh", "ps-dsf"])
@pytest.mark.parametrize(
    "servers",
    [
        [{"cpu": 30, "mem": 30}],
        [{"cpu": 10, "mem": 10}] * 3,
        [{"cpu": 10, "mem": 20}, {"cpu": 20, "mem": 10}],
        [{"cpu": 30}, {"mem": 30}],
    ],
)
def test_four_equal_children_starve_nobody(mechanism: str, servers: list[dict[str, float]]) -> None:
    totals = solve(mechanism, servers, *FOUR_EQUAL_CHILDREN)
    assert totals == pytest.approx({"n1": 10, "n2": 10, "n31": 10, "n32": 15, "n4": 15}, rel=1e-12)


def test_task_shares_of_an_inner_tenant_add_up() -> None:
    # By task shares eng's level is the sum of its children's: as many tasks as sci, not as much of each resource.
    totals = solve("tsf", {"cpu": 10, "mem": 10}, *SCIENCE_AND_ENGINEERING)
    assert totals == pytest.approx({"sci": 20 / 3, "dev": 10 / 3, "prod": 10 / 3})


def test_a_resource_that_is_used_up_no_longer_counts_for_an_inner_tenant() -> None:
    # When cpu is full, inner has 3/5 of it and no memory, and peer 2/5. From there on only memory counts for inner,
    # so it is behind. If cpu went on counting, peer would be first until it had 3/5, and mine would end with 2/5.
    has_six = [{"resources": {"cpu": 6}}]
    totals = solve(
        "drfh",
        {"cpu": 10, "mem": 10},
        tenant("lone", cpu=1),
        tenant("inner", guarantee=has_six),
        tenant("fast", "inner", cpu=1, guarantee=has_six),
        tenant("mine", "inner", mem=1),
        tenant("peer", mem=1),
    )
    assert totals == pytest.approx({"lone": 4, "fast": 6, "mine": 5, "peer": 5})


@pytest.mark.parametrize(("mechanism", "mixed", "mine"), [("drfh", [], 5), ("drfh", [0], 0), ("ps-dsf", [0], 0)])
def test_what_is_used_up_counts_for_a_tenant_of_several_kinds(mechanism: str, mixed: list[int], mine: int) -> None:
    # All gpus are its own before peer has any cpu. As a tenant with two kinds of tasks its level is 1 from there on.
    problem = make(
        {"cpu": 10, "gpu": 4},
        tenant("inner", guarantee=[{"resources": {"gpu": 4}}]),
        tenant("large", "inner", gpu=1),
        tenant("mine", "inner", cpu=1),
        tenant("peer", cpu=1),
    )
    tree = replace(problem.tree, mixed=np.array(mixed, dtype=np.intp))
    totals = name_totals(compute_allocation(replace(problem, tree=tree), mechanism))
    assert totals == pytest.approx({"large": 4, "mine": mine, "peer": 10 - mine})


def test_what_a_tenant_without_further_tasks_holds_counts() -> None:
    # done holds 6 of 10 cpu and cpu is not used up, so peer comes first until it is at 0.6, too.
    totals = solve(
        "drfh",
        {"cpu": 10, "mem": 10},
        tenant("inner"),
        tenant("done", "inner", cpu=1, tasks=6),
        tenant("more", "inner", mem=1, weight=0.1),
        tenant("peer", mem=1),
    )
    assert totals == pytest.approx({"done": 6, "more": 4, "peer": 6})


def test_a_limit_binds_everything_below_it_and_leaves_the_rest_to_others() -> None:
    totals = solve(
        "drfh",
        {"cpu": 10},
        tenant("inner", limit=[{"resources": {"cpu": 3}}]),
        tenant("a", "inner", cpu=1),
        tenant("b", "inner", cpu=1, weight=2),
        tenant("c", cpu=1),
    )
    assert totals == pytest.approx({"a": 1, "b": 2, "c": 7})


def test_a_limit_of_some_servers_counts_these_only() -> None:
    totals = solve(
        "drfh",
        [{"cpu": 6}, {"cpu": 6}],
        tenant("a", cpu=1, limit=[{"resources": {"cpu": 1}, "servers": ["s0"]}], weight=9),
        tenant("b", cpu=1, eligible=["s0"]),
    )
    assert totals == pytest.approx({"a": 7, "b": 5})


def test_a_guarantee_comes_before_levels_as_far_as_there_are_tasks() -> None:
    guaranteed = [{"resources": {"cpu": 8}}]
    assert solve(
        "drfh", {"cpu": 10}, tenant("a", cpu=1, guarantee=guaranteed), tenant("b", cpu=1, weight=99)
    ) == pytest.approx({"a": 8, "b": 2})
    assert solve(
        "drfh", {"cpu": 10}, tenant("a", cpu=1, tasks=3, guarantee=guaranteed), tenant("b", cpu=1)
    ) == pytest.approx({"a": 3, "b": 7})
    limit = [{"resources": {"cpu": 5}}]
    assert solve(
        "drfh", {"cpu": 10}, tenant("a", cpu=1, limit=limit, guarantee=guaranteed), tenant("b", cpu=1, weight=99)
    ) == pytest.approx({"a": 5, "b": 5})


def test_guarantees_of_more_than_there_is_are_scaled_by_weight() -> None:
    totals = solve(
        "drfh",
        {"cpu": 10},
        tenant("a", cpu=1, guarantee=[{"resources": {"cpu": 9}}]),
        tenant("b", cpu=1, weight=2, guarantee=[{"resources": {"cpu": 9}}]),
        tenant("c", cpu=1, weight=7, guarantee=[{"resources": {"cpu": 1}}]),
        tenant("d", cpu=1, weight=100),
    )
    assert totals == pytest.approx({"a": 3, "b": 6, "c": 1, "d": 0})


def test_a_childs_guarantee_counts_up_to_its_parents() -> None:
    totals = solve(
        "drfh",
        {"cpu": 10},
        tenant("inner", guarantee=[{"resources": {"cpu": 4}}]),
        tenant("a", "inner", cpu=1, guarantee=[{"resources": {"cpu": 9}}]),
        tenant("b", "inner", cpu=1),
        tenant("c", cpu=1, weight=999),
    )
    assert totals == pytest.approx({"a": 4.0, "b": 0, "c": 6}, rel=1e-2, abs=1e-2)


def test_a_guarantee_of_some_servers_is_kept_there() -> None:
    problem = make(
        [{"cpu": 6}, {"cpu": 6}],
        tenant("a", cpu=1, tasks=4, guarantee=[{"resources": {"cpu": 3}, "servers": ["s0"]}]),
        tenant("b", cpu=1, eligible=["s0"], weight=1000),
    )
    allocation = compute_allocation(problem, "drfh")
    assert name_totals(allocation) == pytest.approx({"a": 4, "b": 3})
    assert allocation.tasks_ik[0] == pytest.approx([3, 1])


def test_priority_comes_before_levels_and_after_guarantees() -> None:
    totals = solve(
        "drfh",
        {"cpu": 10},
        tenant("a", cpu=1, tasks=7, priority=1),
        tenant("b", cpu=1, guarantee=[{"resources": {"cpu": 4}}]),
        tenant("c", cpu=1, weight=3),
    )
    assert totals == pytest.approx({"a": 6, "b": 4, "c": 0})


@pytest.mark.parametrize("family", families_for(MECHANISMS["tsf"].options), ids=lambda family: family.name)
def test_a_flat_tree_is_ps_dsf_without_a_tree(family: Family) -> None:
    # Many divisions are PS-DSF, so the judge without a tree decides, and not the totals.
    for seed in range(2):
        problem = family.make(np.random.default_rng(seed))
        allocation = compute_allocation(with_flat_tree(problem), "ps-dsf")
        assert not judge_allocation(problem, "ps-dsf", allocation.tasks_ik).violations


@pytest.mark.parametrize("mechanism", BY_LEVELS)
@pytest.mark.parametrize("family", families_for(MECHANISMS["tsf"].options), ids=lambda family: family.name)
def test_a_flat_tree_is_the_flat_mechanism(mechanism: str, family: Family) -> None:
    for seed in range(2):
        problem = family.make(np.random.default_rng(seed))
        flat = compute_allocation(problem, mechanism).totals_i
        assert compute_allocation(with_flat_tree(problem), mechanism).totals_i == pytest.approx(flat, rel=1e-7)


def _cases(count: int) -> list[Any]:
    return [pytest.param(seed, marks=mark_for_quick(seed)) for seed in range(count)]


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("seed", _cases(24))
def test_random_trees_are_certified_and_keep_what_is_proved(mechanism: str, seed: int) -> None:
    for servers in (1, 3):
        generator = np.random.default_rng([seed, servers])
        problem = draw(generator, servers=servers, levels=2 + seed % 3, priorities=seed % 4 == 1, bounds=seed % 4 > 0)
        allocation = compute_allocation(problem, mechanism)
        for one in properties_for(mechanism, problem):
            if is_guaranteed(mechanism, one.id, problem):
                assert one.find(problem, mechanism, allocation) is None


@pytest.mark.parametrize("seed", _cases(24))
def test_subtrees_have_their_weights_part_on_one_server(seed: int) -> None:
    problem = draw(np.random.default_rng([seed, 5]), levels=4, bounds=False)
    for mechanism in ALL:
        assert is_guaranteed(mechanism, "subtree-sharing-incentive", problem)
        allocation = compute_allocation(problem, mechanism)
        assert PROPERTIES["subtree-sharing-incentive"].find(problem, mechanism, allocation) is None


@pytest.mark.parametrize("mechanism", BY_LEVELS)
@pytest.mark.parametrize("seed", _cases(24))
def test_small_steps_end_at_the_same_division(mechanism: str, seed: int) -> None:
    servers = 2 if seed % 8 == 3 else 1
    generator = np.random.default_rng([seed, 7])
    document = draw_document(
        generator, servers=servers, levels=2 + seed % 3, spread=1, priorities=seed % 3 == 0, resources=2 + seed % 2
    )
    for one in document["tenants"]:
        for entry in one.get("guarantee", []):
            entry.pop("servers", None)
    problem = parse_problem(document)
    totals_i = compute_allocation(problem, mechanism).totals_i
    share_i = (problem.demand_ir / np.where(problem.total_r > 0, problem.total_r, np.inf)).max(axis=1)
    for step in (1 / 100, 1 / 1000) if servers > 1 else (1 / 400, 1 / 4000):
        slow = TreeOracle(document, measure="dominant" if mechanism == "drfh" else "tasks", step=step).run()
        away_i = np.abs(totals_i - [slow[name] for name in problem.tenant_names]) * share_i
        if away_i.max() <= 6 / 400:
            return
    pytest.fail(f"{away_i.max():.3g} of everything apart")


def test_a_wrong_division_is_refused_by_the_certificate_and_the_judge() -> None:
    problem = make({"cpu": 10, "mem": 10}, *SCIENCE_AND_ENGINEERING)
    mechanism = MECHANISMS["drfh"]
    instance = reduce_for(mechanism, problem, alpha=None, merges_tenants=True)
    solution = mechanism.solve(instance)
    shifted = solution.tasks_ik.copy()
    shifted[:, 0] *= [1, 1, 0.9]
    with pytest.raises(SolverError, match=r"0\.9 of what the tree gives it"):
        mechanism.certify(instance, replace(solution, tasks_ik=shifted))
    assert not judge_allocation(problem, "drfh", np.array([[5.0], [5.0], [5.0]])).violations
    (violation,) = judge_allocation(problem, "drfh", np.array([[6.0], [4.0], [4.0]])).violations
    assert violation.condition == "fairness"


def test_a_division_of_classes_that_filling_again_would_change_is_refused() -> None:
    problem = make([{"cpu": 30, "mem": 30}] * 2, *FOUR_EQUAL_CHILDREN)
    allocation = compute_allocation(problem, "ps-dsf")
    assert not judge_allocation(problem, "ps-dsf", allocation.tasks_ik).violations
    wrong = allocation.tasks_ik * np.where(np.arange(5) == 3, 0.9, 1.0)[:, None]
    (violation,) = judge_allocation(problem, "ps-dsf", wrong).violations
    assert (violation.condition, violation.tenant) == ("fairness", "n32")


def test_servers_shared_by_time_are_refused_in_a_tree() -> None:
    document = {
        "resources": ["cpu"],
        "servers": [{"name": "s0", "capacity": {"cpu": 4}, "divisible": False}],
        "tenants": [tenant("top"), tenant("a", "top", cpu=1)],
    }
    with pytest.raises(InvalidProblemError, match=r"servers\[0\]\.divisible of s0: .* along a tree"):
        compute_allocation(parse_problem(document), "ps-dsf")


def test_a_light_leaf_may_have_less_than_its_subtree_alone() -> None:
    team = (tenant("team"), tenant("heavy", "team", cpu=1, weight=100), tenant("light", "team", mem=1))
    alone = solve("drfh", {"cpu": 5, "mem": 5}, *team)
    together = solve("drfh", {"cpu": 10, "mem": 10}, *team, tenant("other", mem=1))
    assert alone == pytest.approx({"heavy": 5, "light": 5})
    assert together == pytest.approx({"heavy": 10 / 1.01 * 1.01, "light": 0.1, "other": 9.9}, rel=0.02)


@pytest.mark.parametrize("mechanism", ["drfh", "ps-dsf"])
def test_a_lie_pays_in_a_tree(mechanism: str) -> None:
    def run(gpu: float) -> dict[str, float]:
        return solve(
            mechanism,
            {"cpu": 12, "mem": 12, "gpu": 12},
            tenant("a", mem=2),
            tenant("b", cpu=2, mem=1, gpu=1),
            tenant("top"),
            tenant("f", "top", cpu=1, mem=2),
            tenant("g", "top", cpu=1, gpu=gpu),
        )

    honest, lying = run(1), run(2)
    assert (honest["g"], lying["g"]) == pytest.approx((60 / 13, 24 / 5))
    assert (honest["f"], lying["f"]) == pytest.approx((24 / 13, 12 / 5))


def test_a_lie_about_a_guaranteed_resource_pays() -> None:
    promised = [{"resources": {"cpu": 5}}]
    other = tenant("b", mem=1)
    honest = solve("drfh", {"cpu": 10, "mem": 10}, tenant("a", mem=1, guarantee=promised), other)
    lying = solve("drfh", {"cpu": 10, "mem": 10}, tenant("a", mem=1, cpu=0.1, guarantee=promised), other)
    assert (honest["a"], lying["a"]) == pytest.approx((5, 10))


def test_a_certificate_needs_its_prices() -> None:
    problem = make(
        [{"cpu": 4, "mem": 1}, {"cpu": 1, "mem": 4}],
        tenant("inner"),
        tenant("a", "inner", cpu=1, mem=1),
        tenant("b", "inner", cpu=2, mem=1),
        tenant("c", cpu=1, mem=2),
    )
    mechanism = MECHANISMS["drfh"]
    instance = reduce_for(mechanism, problem, alpha=None, merges_tenants=True)
    solution = mechanism.solve(instance)
    assert mechanism.certify(instance, solution)["inequalities"] >= 1
    with pytest.raises(SolverError):
        mechanism.certify(instance, Solution(solution.tasks_ik, {}))


def test_the_judge_names_who_is_above_a_limit() -> None:
    problem = make({"cpu": 10}, tenant("top", limit=[{"resources": {"cpu": 3}}]), tenant("a", "top", cpu=1))
    (violation,) = judge_allocation(problem, "drfh", np.array([[4.0]])).violations
    assert (violation.condition, violation.text) == ("limit", "tenant top holds 4 cpu, and its limit is 3")


@pytest.mark.parametrize("mechanism", sorted(set(MECHANISMS) - {"drfh", "tsf", "ps-dsf"}))
def test_other_mechanisms_refuse_trees_by_field_and_name(mechanism: str) -> None:
    problem = make({"cpu": 10}, tenant("top"), tenant("a", "top", cpu=1), tenant("b", cpu=1))
    with pytest.raises(InvalidProblemError, match=r"tenants\[1\]\.parent of a: mechanism .* does not take trees"):
        compute_allocation(problem, mechanism)


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        (
            [tenant("eng", cpu=1), tenant("dev", "eng", cpu=1)],
            "tenants[0].demand of eng: must be left out: only its children have tasks (dev)",
        ),
        (
            [tenant("eng", tasks=3), tenant("dev", "eng", cpu=1)],
            "tenants[0].tasks of eng: must be left out: only its children have tasks (dev)",
        ),
        (
            [tenant("eng", cpu=1), tenant("dev", "en", cpu=1)],
            'tenants[1].parent of dev: "en" is no tenant of this problem; did you mean eng?',
        ),
        (
            [tenant("a", "b"), tenant("b", "a")],
            "tenants[0].parent of a: must not lead back to the tenant itself: a > b > a",
        ),
        ([tenant("a", "a")], "tenants[0].parent of a: must not lead back to the tenant itself: a > a"),
        (
            [tenant("a"), *(tenant(n, p) for p, n in zip("abcde", "bcdef", strict=True)), tenant("g", "f", cpu=1)],
            "tenants[6].parent of g: must be at most 6 levels deep, not 7: a > b > c > d > e > f > g",
        ),
        ([tenant("a", cpu=1, mixed=True)], "tenants[0].mixed of a: must be left out: no tenant is below it"),
        (
            [tenant("a", mixed=True), tenant("b", "a"), tenant("c", "b", cpu=1)],
            "tenants[0].mixed of a: must be left out: b is no kind of its tasks, but has tenants below it",
        ),
        (
            [tenant("a", cpu=1, limit=[{"resources": {"cpus": 1}}])],
            "tenants[0].limit[0].resources.cpus of a: is no resource of this problem; did you mean cpu?",
        ),
        (
            [tenant("a", cpu=1, limit=[{"resources": {"cpu": -1}}])],
            "tenants[0].limit[0].resources.cpu of a: must be 0 or a number from 1e-15 to 1e+21, not -1",
        ),
        (
            [tenant("a", cpu=1, guarantee=[{"resources": {"cpu": 1}, "servers": ["b"]}])],
            'tenants[0].guarantee[0].servers[0] of a: "b" is no server of this problem; known are s0',
        ),
        (
            [tenant("a", cpu=1, guarantee=[{"resources": {"cpu": 1}, "servers": []}])],
            "tenants[0].guarantee[0].servers of a: must have at least one entry, not []",
        ),
        (
            [tenant("a", cpu=1, guarantee=[{"servers": ["s0"]}])],
            "tenants[0].guarantee[0].resources of a: is missing; resources must be there",
        ),
        (
            [tenant("a", cpu=1, guarantee=[{"resources": {}}])],
            "tenants[0].guarantee[0].resources of a: must name at least one resource, not {}",
        ),
        (
            [tenant("a", cpu=1, priority=1001)],
            "tenants[0].priority of a: must be a whole number from -1000 to 1000, not 1001",
        ),
        ([{**tenant("a", cpu=1), "parent": 5}], "tenants[0].parent of a: must be a tenant's name (text), not 5"),
    ],
)
def test_a_bad_tree_is_refused_with_what_would_be_right(tenants: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        make({"cpu": 10}, *tenants)
    assert str(caught.value) == message


def test_a_tree_is_written_as_it_was_read() -> None:
    for seed in range(8):
        problem = draw(np.random.default_rng([seed, 11]), servers=2, priorities=True)
        again = parse_problem(describe_problem(problem))
        assert name_totals(compute_allocation(again, "drfh")) == name_totals(compute_allocation(problem, "drfh"))


def test_a_table_has_parents_and_priorities_but_no_guarantees() -> None:
    table = "kind,name,weight,tasks,parent,priority,cpu,mem\nserver,s0,,,,,10,10\ntenant,sci,50,10,,,1,1\n"
    table += "tenant,eng,50,,,,,\ntenant,dev,,10,eng,0,1,\ntenant,prod,,10,eng,0,,1\n"
    problem = parse_problem(read_csv(table, "t.csv").document)
    assert name_totals(compute_allocation(problem, "drfh")) == {"sci": 5, "dev": 5, "prod": 5}
    assert read_csv(format_csv(describe_problem(problem)), "t.csv").document["tenants"][1] == {
        "name": "eng",
        "weight": 50,
    }
    limited = make({"cpu": 1}, tenant("a", cpu=1, limit=[{"resources": {"cpu": 1}}]))
    with pytest.raises(InvalidProblemError, match=r"tenants\[0\]\.limit of a: cannot be said in CSV"):
        format_csv(describe_problem(limited))


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mechanisms" / "trees.md").read_text(encoding="utf-8")
    block = page.partition("--output table\n")[2].partition("```")[0]
    example = Path(__file__).parents[2] / "docs" / "mechanisms" / "examples" / "trees-four-children.json"
    assert block.rstrip("\n") == compute_text(str(example), "drfh", alpha=None, pools=False, output="table")


def test_amounts_of_bounds_may_be_quantities() -> None:
    document = {
        "resources": ["cpu"],
        "servers": [{"name": "s0", "capacity": {"cpu": "4"}}],
        "tenants": [tenant("a", cpu="500m", limit=[{"resources": {"cpu": "1500m"}}])],
    }
    assert name_totals(compute_allocation(parse_problem(read_quantities(document)), "drfh")) == {"a": 3}


def test_classes_that_go_round_in_circles_are_filled_by_halves() -> None:
    generator = np.random.default_rng([644, 99])
    servers, levels = int(generator.integers(2, 6)), int(generator.integers(2, 5))
    spread = float(generator.choice([0, 1, 3]))
    kinds = int(generator.integers(2, 4))
    problem = draw(generator, servers=servers, levels=levels, spread=spread, bounds=False, resources=kinds)
    assert compute_allocation(problem, "ps-dsf").certificate["largestGap"] < 1e-9
