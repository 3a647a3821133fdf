"""Which pods behind our gate autoscalers should see next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cluster.builders import make_node, make_pod
from cluster.state.test_gate import OTHER, World, make_gated
from fairbind.cluster.other_schedulers.scale_up import find_scale_ups
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import PolicySettings, TaskGroup
from fairbind.scheduling import run_cycle

if TYPE_CHECKING:
    from cluster.builders import Json


def add(world: World, namespace: str, count: int, cpu: str = "3", **pod: Any) -> None:
    for n in range(count):
        made: Json = make_gated(f"p{n}", namespace=namespace, **pod)
        made["metadata"]["uid"] = f"{namespace}-{n}"
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        world.add_pods(made)


def find(world: World, *, limit: int | None = None) -> list[str]:
    """Return the pods after a cycle, first who comes first."""
    snapshot = world.cache.build_snapshot()
    report = run_cycle(snapshot, world.cache.settings, 0.0, limit=limit)
    return [bind.task.uid for bind in find_scale_ups(snapshot, report, world.cache.queries.is_gated)]


@pytest.fixture
def world() -> World:
    """Two nodes of 4 cores, of which one is taken by tenant a."""
    world = World()
    world.cache.replace_tenants(TenantSpec(name, namespaces=frozenset({name})) for name in "ab")
    world.add_pods(make_pod("running", namespace="a", node="a", scheduler=OTHER, requests={"cpu": "4"}))
    return world


def test_each_tenant_has_one_and_who_has_least_comes_first(world: World) -> None:
    add(world, "a", 3)
    add(world, "b", 3)
    assert find(world) == ["b-1", "a-0"]


def test_in_a_tree_siblings_are_compared(world: World) -> None:
    """Tenant c holds nothing, but its sibling a does; b has no part in that."""
    team = TenantSpec("team")
    a, c = (TenantSpec(name, namespaces=frozenset({name}), parent="team") for name in "ac")
    b = TenantSpec("b", namespaces=frozenset({"b"}))
    world.cache.replace_tenants([team, a, c, b])
    world.add_pods(make_pod("small", namespace="b", node="a", scheduler=OTHER, requests={"cpu": "100m"}))
    for name in "abc":
        add(world, name, 3)
    assert [uid[0] for uid in find(world)] == ["b", "c", "a"]
    world.cache.replace_tenants([replace(team, priority=1), a, c, b])
    assert [uid[0] for uid in find(world)] == ["c", "a", "b"]


def test_where_a_policy_is_not_about_fairness_the_oldest_comes_first(world: World) -> None:
    world.cache.set_policy(PolicySettings(policy="fifo"))
    add(world, "a", 2)
    add(world, "b", 2, created="2026-01-01T00:00:05Z")
    assert find(world) == ["a-1", "b-0"]


@pytest.mark.parametrize(("lacking", "found"), [(1, ["b-1", "a-0"]), (2, ["a-0"])])
def test_of_a_group_that_lacks_more_than_one_pod_no_gate_opens_alone(
    world: World, lacking: int, found: list[str]
) -> None:
    add(world, "a", 3)
    add(world, "b", 3)
    snapshot = world.cache.build_snapshot()
    report = run_cycle(snapshot, world.cache.settings, 0.0)
    group = TaskGroup("b/group", lacking)
    waits = tuple(
        replace(each, task_class=replace(each.task_class, group=group)) if each.task_class.tenant == "b" else each
        for each in report.waits
    )
    binds = find_scale_ups(snapshot, replace(report, waits=waits), world.cache.queries.is_gated)
    assert [bind.task.uid for bind in binds] == found


def test_what_no_node_could_help_is_left_out(world: World) -> None:
    add(world, "a", 1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}])
    world.add_pods(make_pod("ours", namespace="b", requests={"cpu": "9"}))
    pin = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pin}}
    add(world, "c", 1, affinity={"nodeAffinity": required})
    assert find(world) == [], "a volume is missing; it is ours to bind; it names its node"


def test_a_cycle_that_its_limit_ended_says_nothing(world: World) -> None:
    add(world, "a", 3, cpu="1")
    add(world, "b", 1, cpu="9")
    assert find(world) == ["b-0"]
    assert find(world, limit=1) == [], "who comes next is not known"


def test_while_it_is_not_known_of_all_where_they_may_go_no_node_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may fit where they may go since."""
    monkeypatch.setattr("fairbind.cluster.classes.due.MAX_DUE", 1)
    add(world, "a", 1, cpu="9")
    add(world, "b", 1, cpu="8")
    world.add_pods(make_pod("ours", namespace="b", requests={"cpu": "7"}))
    assert find(world) == ["b-0", "a-0"]
    world.add_nodes(make_node("a", unschedulable=True))
    assert find(world) == []
    world.cache.note_waits(())
    assert find(world) == ["b-0", "a-0"]
