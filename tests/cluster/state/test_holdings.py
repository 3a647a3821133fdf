"""What tenants hold is told in as few words as templates say it in, and nothing of it is lost."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.cluster.objects.facts import Constraints, Demand
from fairbind.cluster.state.holdings import (
    MAX_BOUND_PLACEMENTS,
    BoundKind,
    build_holdings,
    choose_bound_placements,
    find_parts,
    find_tenants_part,
)
from fairbind.model import RunningTask, Snapshot
from fairbind.scheduling.fair_shares.audit import make_audit_scene
from fairbind.scheduling.fair_shares.problem import is_same, make_exact_problem

NODES = [f"n{number:02}" for number in range(30)]
ANYWHERE = Constraints()
AXES = ("cpu", "memory", "gpu")


def pin(node: str, *expressions: Json) -> Json:
    """Say what the DaemonSet controller writes into the pod for a node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    if expressions:
        term["matchExpressions"] = list(expressions)
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def hold_everywhere(*, daemons: int, pinned: bool, **others: Any) -> Cluster:
    """Bind a pod of each of some DaemonSets to each node; every other node is larger."""
    cluster = Cluster()
    for n, node in enumerate(NODES):
        cluster.add_nodes(make_node(node, allocatable={"cpu": f"{4 + 4 * (n % 2)}", "memory": "8Gi", "pods": "110"}))
        spec: dict[str, Any] = {"affinity": pin(node), **others} if pinned else others
        for daemon in range(daemons):
            cpu, namespace = {"cpu": f"{100 + daemon}m"}, f"agents-{daemon}"
            name = f"{daemon}-{node}"
            cluster.add_pods(
                make_pod(name, namespace=namespace, scheduler="default-scheduler", node=node, requests=cpu, **spec)
            )
    cluster.add_pods(make_pod("waiting", namespace="team", requests={"cpu": "1"}))
    return cluster


def count_holdings(snapshot: Snapshot) -> int:
    return sum(len(tenant.holdings) for tenant in snapshot.tenants)


def test_a_daemonset_is_one_kind_however_many_nodes_it_is_on() -> None:
    snapshot = hold_everywhere(daemons=3, pinned=True).cache.build_detailed_snapshot()

    assert count_holdings(snapshot) == 3
    assert [tenant.holdings[0].count for tenant in snapshot.tenants if tenant.holdings] == [len(NODES)] * 3


def test_what_its_template_asks_for_still_tells_kinds_apart() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(node, labels={"disk": "ssd"}) for node in NODES[:2]))
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    for node in NODES[:2]:
        cluster.add_pods(
            make_pod(f"plain-{node}", node=node, affinity=pin(node)),
            make_pod(f"ssd-{node}", node=node, affinity=pin(node, ssd)),
            make_pod(f"selected-{node}", node=node, affinity=pin(node), nodeSelector={"disk": "ssd"}),
        )

    assert count_holdings(cluster.cache.build_detailed_snapshot()) == 3


def test_posing_and_audit_ask_the_same_as_for_pods_that_are_not_pinned() -> None:
    pinned, free = (hold_everywhere(daemons=3, pinned=pinned).cache for pinned in (True, False))
    scenes = [make_audit_scene(cache.build_detailed_snapshot()) for cache in (pinned, free)]
    one, other = (make_exact_problem(cache.build_detailed_snapshot(), cache.settings) for cache in (pinned, free))

    assert one is not None
    assert other is not None
    assert is_same(one, other)
    assert np.array_equal(scenes[0].bundle_npr, scenes[1].bundle_npr)
    assert np.array_equal(scenes[0].has_n, scenes[1].has_n)


def test_a_pod_that_was_decided_here_is_of_the_same_kind_as_soon_as_it_is_bound() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"), make_node("b"))
    first, second = (make_pod(f"p-{node}", affinity=pin(node)) for node in "ab")
    cluster.add_pods(first, second)
    cluster.cache.assume("uid-p-a", "a")
    cluster.cache.assume("uid-p-b", "b")
    cluster.change_pod(first, lambda pod: pod["spec"].update(nodeName="a"))
    cluster.change_pod(second, lambda pod: pod["spec"].update(nodeName="b"))

    assert count_holdings(cluster.cache.build_detailed_snapshot()) == 1
    cluster.cache.check_consistent()


amounts = st.dictionaries(st.sampled_from(AXES), st.integers(1, 100), min_size=1).map(
    lambda amounts: tuple(sorted(amounts.items()))
)
kinds_of_a_tenant = st.lists(st.tuples(amounts, st.integers(1, 5)), max_size=12).map(
    lambda pairs: {(Demand(asked, asked), ANYWHERE): count for asked, count in pairs}
)


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(6, 60))
@settings(max_examples=200)
def test_no_more_kinds_are_told_apart_than_allowed_and_of_each_tenant_as_many(sizes: list[int], most: int) -> None:
    part = find_tenants_part(sizes, most)
    told = sum(min(size, part) for size in sizes)

    assert told <= most
    assert told == sum(sizes) or told > most - len(sizes), "what one does not need is the others'"


@pytest.mark.parametrize("users", [1, 8])
def test_a_tenant_with_many_frequent_placements_leaves_one_to_each_of_the_others(users: int) -> None:
    demand = Demand((("cpu", 1),), (("cpu", 1),))
    many = {(demand, Constraints(selector=(("rank", f"{n}"),))): 1_000 - n for n in range(2 * MAX_BOUND_PLACEMENTS)}
    few = [{(demand, Constraints(selector=(("pool", f"{n}"),))): 1} for n in range(8)]
    by_user = {f"u{n}@many": dict(list(many.items())[n::users]) for n in range(users)}
    chosen = choose_bound_placements({**by_user, **{f"few{n}": kinds for n, kinds in enumerate(few)}})

    assert len(chosen) == MAX_BOUND_PLACEMENTS
    assert {constraints for kinds in few for _, constraints in kinds} <= set(chosen)
    first = [constraints for _, constraints in many][: MAX_BOUND_PLACEMENTS - len(few)]
    assert [constraints for constraints in chosen if constraints in first] == first


def test_a_placement_that_several_tenants_have_is_counted_once() -> None:
    demand = Demand((("cpu", 1),), (("cpu", 1),))
    shared = {(demand, ANYWHERE): 2}
    assert choose_bound_placements({"a": shared, "b": shared}) == [ANYWHERE]


def test_a_tenant_with_thousands_of_kinds_takes_none_from_another() -> None:
    assert find_tenants_part([100_000, 100], most=4_000) >= 100
    part, users = find_parts({**{f"u{n}@many": 10 for n in range(1_000)}, "few": 100}, most=4_000)
    assert part >= 100
    assert 1_000 * users["many"] <= 4_000


@given(kinds_of_a_tenant, st.integers(1, 12))
@settings(max_examples=200)
def test_averages_tell_of_all_pods_and_of_no_less_than_they_hold(kinds: Mapping[BoundKind, int], part: int) -> None:
    holdings = build_holdings(kinds, AXES, lambda _: None, part)
    counts = sorted(kinds.values(), reverse=True)
    least = counts[part] + 1 if len(counts) > part else 1

    assert sum(count >= least for count in kinds.values()) <= part
    assert sum(holding.count for holding in holdings) == sum(kinds.values())
    for r, resource in enumerate(AXES):
        told = sum(holding.count * holding.share_demand_r[r] for holding in holdings)
        held = sum(count * dict(demand.share).get(resource, 0) for (demand, _), count in kinds.items())
        rounding = sum(holding.count for holding in holdings if holding.share_demand_r[r])
        assert held <= told <= held + rounding
    asked = {tuple(r for r, _ in demand.share) for (demand, _), count in kinds.items() if count < least}
    assert len(holdings) == sum(count >= least for count in kinds.values()) + len(asked)


def test_no_running_task_is_made_before_somebody_asks() -> None:
    cluster = hold_everywhere(daemons=1, pinned=True, priority=424_242)

    def count_tasks() -> int:
        return sum(isinstance(each, RunningTask) and each.priority == 424_242 for each in gc.get_objects())

    running = cluster.cache.build_snapshot().running
    assert (len(running), count_tasks()) == (len(NODES), 0)
    assert (len(running[NODES[0]]), count_tasks()) == (1, 1)
