"""The exact problem of a snapshot whose tenants are a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms.mechanism import Mechanism
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model import Holding, PolicySettings, Snapshot, SolverError, Tenant
from fairbind.model.hierarchy import Hierarchy, InnerTenant, Place
from fairbind.model.topology import LimitOf
from fairbind.scheduling.fair_shares import problem as exact_problems
from fairbind.scheduling.fair_shares.problem import ExactShares, make_exact_problem, solve_exactly
from fairness import trees
from fairness.trees import FOUR_EQUAL_CHILDREN, SCIENCE_AND_ENGINEERING, draw_document
from scheduling.test_fair_shares_problem import build_random_mixed
from scheduling.trees import build_tree_snapshot, round_document
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide

OF_TREES = {"best-fit-drfh": "drfh", "tsf": "tsf", "ps-dsf": "ps-dsf"}


def solve(
    snapshot: Snapshot, policy: str = "best-fit-drfh", mechanisms: Mapping[str, Mechanism] = MECHANISMS
) -> ExactShares:
    exact = make_exact_problem(snapshot, PolicySettings(policy))
    assert exact is not None
    return solve_exactly(exact, mechanisms=mechanisms)


def build(capacity: dict[str, int] | list[dict[str, int]], *tenants: dict[str, Any], **options: Any) -> Snapshot:
    kinds = capacity if isinstance(capacity, list) else [capacity]
    servers = [{"name": f"s{k}", "capacity": has} for k, has in enumerate(kinds)]
    resources = sorted({name for has in kinds for name in has})
    return build_tree_snapshot({"resources": resources, "servers": servers, "tenants": tenants}, **options)


def tenant(name: str, parent: str | None = None, tasks: int = 99, **fields: Any) -> dict[str, Any]:
    """Return a tenant that has tasks if it has a demand."""
    made = trees.tenant(name, parent, **fields)
    return {**made, "tasks": tasks} if "demand" in made else made


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_science_and_engineering_have_five_each(policy: str) -> None:
    answer = solve(
        build(
            {"cpu": 10, "mem": 10},
            *SCIENCE_AND_ENGINEERING,
        ),
        policy,
    )
    assert answer.tasks == pytest.approx({"dev": 5, "prod": 5, "sci": 5})
    assert answer.fair_shares == pytest.approx({"dev": 0.5, "prod": 0.5, "sci": 0.5})
    assert answer.inner_shares == pytest.approx({"eng": 0.5})
    assert answer.flattened is None
    assert answer.targets.shares["dev"] == pytest.approx((0.5, 0))


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_none_of_four_equal_children_starves(policy: str) -> None:
    answer = solve(build({"cpu": 30, "mem": 30}, *FOUR_EQUAL_CHILDREN), policy)
    assert answer.tasks == pytest.approx({"n1": 10, "n2": 10, "n31": 10, "n32": 15, "n4": 15})
    assert answer.inner_shares == pytest.approx({"n3": 0.5})


@pytest.mark.parametrize("policy", OF_TREES)
@pytest.mark.parametrize("seed", range(24))
def test_snapshots_with_trees_have_the_answer_of_the_library(policy: str, seed: int) -> None:
    """Weights are a thousandth to a thousand; some want nothing or can run nowhere; bounds are of some servers, too."""
    dice = np.random.default_rng(seed)
    drawn = draw_document(dice, servers=1 + seed % 3, levels=2 + seed % 3, priorities=True)
    document = round_document(drawn)
    try:
        expected = compute_allocation(parse_problem(document), OF_TREES[policy])
    except SolverError:
        assert policy == "ps-dsf"
        return
    snapshot = build_tree_snapshot(document)
    exact = make_exact_problem(snapshot, PolicySettings(policy))
    if exact is None:
        assert not expected.totals_i.any()
        return
    answer = solve_exactly(exact)
    assert answer.flattened is None
    totals = dict(zip(expected.problem.tenant_names, expected.totals_i.tolist(), strict=True))
    assert answer.tasks == pytest.approx(totals, rel=1e-6, abs=1e-9)
    tree, problem = expected.problem.tree, expected.problem
    assert tree is not None
    exists_r = problem.total_r > 0
    share_ir = expected.totals_i[:, None] * problem.demand_ir[:, exists_r] / problem.total_r[exists_r]
    below_ni = tree.find_below()[tree.tenants :]
    shares = dict(zip(tree.inner_names, (below_ni @ share_ir).max(axis=1).tolist(), strict=True))
    assert answer.inner_shares == pytest.approx(shares, rel=1e-6, abs=1e-9)


def test_a_limit_of_an_inner_tenant_binds_all_below_it() -> None:
    limited = tenant("team", limit=[{"resources": {"cpu": 6}}])
    others = tenant("a", "team", cpu=1), tenant("b", "team", cpu=1, weight=2), tenant("c", cpu=1)
    assert solve(build({"cpu": 30, "mem": 30}, limited, *others)).tasks == pytest.approx({"a": 2, "b": 4, "c": 24})
    on_one = tenant("team", limit=[{"resources": {"cpu": 6}, "servers": ["s0"]}])
    kinds = [{"cpu": 15}, {"cpu": 15}]
    assert solve(build(kinds, on_one, *others)).tasks == pytest.approx({"a": 5, "b": 10, "c": 15})


def test_a_limit_below_what_is_held_only_stops_new_tasks() -> None:
    document = tenant("team", limit=[{"resources": {"cpu": 6}}]), tenant("a", "team", cpu=1), tenant("c", cpu=1)
    snapshot = build({"cpu": 30}, *document, held={LimitOf("team", 0, "cpu"): 10})
    assert solve(snapshot).tasks == pytest.approx({"a": 10, "c": 20})


def test_a_limit_of_pods_is_divided_by_weight_before_the_problem() -> None:
    """Pods do not count for shares, so the problem knows none."""
    many = {"cpu": 30, "gpu": 100}
    limited = tenant("team", limit=[{"resources": {"gpu": 6}}])
    children = tenant("a", "team", cpu=1, gpu=1), tenant("b", "team", cpu=1, gpu=1, weight=2)
    snapshot = replace(build(many, limited, *children, tenant("c", cpu=1, gpu=1)), counts_r=(True, False))
    for policy in ("best-fit-drfh", "drf"):
        assert solve(snapshot, policy).tasks == pytest.approx({"a": 2, "b": 4, "c": 24}), policy


def test_a_guarantee_comes_before_siblings() -> None:
    guaranteed = tenant("a", cpu=1, guarantee=[{"resources": {"cpu": 20}}])
    assert solve(build({"cpu": 30}, guaranteed, tenant("b", cpu=1))).tasks == pytest.approx({"a": 20, "b": 10})
    answer = solve(build({"cpu": 30}, guaranteed, tenant("b", cpu=1)), "drf")
    assert answer.tasks == pytest.approx({"a": 15, "b": 15})
    assert answer.flattened == "its mechanism takes no tree"


def test_where_a_tree_cannot_be_had_weights_are_multiplied_along_it() -> None:
    tenants = (
        tenant("team", weight=3, limit=[{"resources": {"cpu": 12}}]),
        tenant("a", "team", cpu=1),
        tenant("b", "team", cpu=1, weight=2),
        tenant("idle", "team", weight=99),
        tenant("c", cpu=1),
        tenant("d", cpu=1, tasks=1),
    )
    snapshot = build({"cpu": 60}, *tenants)
    without = replace(MECHANISMS["drfh"], solve=refuse, resolve=None)
    exact = make_exact_problem(snapshot, PolicySettings())
    assert exact is not None
    failed = solve_exactly(exact, mechanisms={**MECHANISMS, "drfh": without})
    assert failed.flattened == "drfh: no way"
    for answer in (failed, solve(snapshot, "drf")):
        assert answer.tasks == pytest.approx({"a": 4, "b": 8, "c": 47, "d": 1, "idle": 0})
        assert answer.inner_shares == pytest.approx({"team": 0.2})
    unlimited = build({"cpu": 50}, tenant("team", weight=3), *tenants[1:])
    assert solve(unlimited, "drf").tasks == pytest.approx({"a": 12.25, "b": 24.5, "c": 12.25, "d": 1, "idle": 0})


def refuse(instance: Instance) -> Solution:
    """Solve what has no tree only."""
    if instance.tree is not None:
        raise SolverError("no way")
    return MECHANISMS["drfh"].solve(instance)


@pytest.mark.parametrize("policy", OF_TREES)
def test_a_tree_that_takes_too_long_is_flattened(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_problems, "TREE_EFFORT", 10)
    answer = solve(build({"cpu": 30, "mem": 30}, *FOUR_EQUAL_CHILDREN), policy)
    assert answer.flattened == f"{OF_TREES[policy]}: it takes more steps than it is given"
    assert sum(answer.tasks.values()) == pytest.approx(60)


def test_parts_below_their_tenant_are_as_near_to_a_filling_with_tiny_tasks_as_rounds_of_weights() -> None:
    """One way raises the parts of a tenant together, the other one finds weights for them in rounds."""
    for seed in range(8):
        flat = build_random_mixed(np.random.default_rng(seed))
        leaves = {each.name: Place("all") for each in flat.tenants}
        tree = replace(flat, hierarchy=Hierarchy(leaves, {"all": InnerTenant(Tenant("all"), Place())}))
        weights = {each.name: float(each.weight) for each in flat.tenants}
        filled = {name: share * weights[name] for name, share in decide(flat).weighted_shares}
        answer = solve(tree)
        assert answer.rounds == 1
        assert answer.fair_shares == pytest.approx(filled, abs=0.01), seed
        for policy in ("tsf", "ps-dsf"):
            assert solve(tree, policy).fair_shares == pytest.approx(solve(flat, policy).fair_shares, abs=0.03), seed


def test_what_is_used_up_counts_for_a_tenant_whose_tasks_differ() -> None:
    """Tenant a has all GPUs, and more of them than of anything else; b has as much of the CPUs before a has any."""
    team = tenant("team")
    both = {"name": "a", "parent": "team", "demands": [({"gpu": 1}, 50), ({"cpu": 1}, 50)]}
    first = [{"resources": {"gpu": 10}}]
    snapshot = build({"cpu": 10, "gpu": 10}, team, {**both, "guarantee": first}, tenant("b", "team", cpu=1))
    assert solve(snapshot).targets.shares == {"a": pytest.approx((0, 1)), "b": pytest.approx((1, 0))}


def test_a_tenant_with_children_and_tasks_of_its_own_is_two() -> None:
    servers = build_servers({"s": (30, 30)})
    placement = build_placement(servers)
    classes = [build_class(name, (1, 1), placement, 99) for name in ("team", "a", "b")]
    classes.append(build_class("team", (1, 0), placement, 99))
    hierarchy = Hierarchy({"team": Place("team"), "a": Place("team")}, {"team": InnerTenant(Tenant("team"), Place())})
    answer = solve(replace(build_snapshot(servers, classes), hierarchy=hierarchy))
    assert answer.fair_shares == pytest.approx({"a": 0.25, "b": 0.5, "team": 0.25})
    assert answer.inner_shares == pytest.approx({"team": 0.5})


def test_what_rests_on_a_cordoned_server_counts_in_a_tree() -> None:
    servers = build_servers({"x": (10, 10), "z": (10, 10)}, unusable=["z"])
    placement = build_placement(servers)
    held = Tenant("a", allocated_r=(5, 5), holdings=(Holding((5, 5), (5, 5), 1, placement),),
                  allocated_by_server={"z": (5, 5)})  # fmt: skip
    classes = [build_class("a", (1, 1), placement, 99), build_class("b", (1, 1), placement, 99)]
    flat = replace(build_snapshot(servers, classes, tenants=[held]), total_r=(15, 15))
    hierarchy = Hierarchy({"a": Place("team"), "b": Place("team")}, {"team": InnerTenant(Tenant("team"), Place())})
    assert solve(replace(flat, hierarchy=hierarchy)).fair_shares == pytest.approx(solve(flat).fair_shares)
