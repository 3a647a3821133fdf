"""What counts towards the limits of tenants, on which nodes, and that no pod comes beyond them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod
from cluster.limited import GPU_NODES, World, make_pods, make_tenant
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.model.topology import LimitOf
from seeds import draw_seeds


def test_bound_pods_count_whoever_bound_them_and_those_that_are_on_their_way() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "4"}}))
    world.add_pods(*make_pods("a", 1, "x", node="n0", scheduler="default-scheduler", phase="Running"))
    world.add_pods(*make_pods("a", 6))

    assert len(world.decide().bindings) == 3
    assert world.get_held("a") == 4000
    wait = world.find_wait()
    assert wait.waiting == 3
    assert compute_condition_reason(wait) == "AtLimit"
    assert format_unschedulable(wait, 4) == (
        "0/4 nodes are available: 4 node(s) at the limit for cpu of tenant a. The limit for cpu of tenant a is reached."
    )


def test_a_pod_that_ends_lets_the_next_one_go() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "2"}}))
    running = make_pods("a", 2, "x", node="n0", phase="Running")
    world.add_pods(*running, *make_pods("a", 6))
    assert world.decide().bindings == ()

    world.change_pod(running[0], lambda pod: pod["status"].update(phase="Succeeded"))
    assert len(world.decide().bindings) == 1
    assert world.decide().bindings == ()


def test_pods_at_a_limit_are_told_as_such_and_are_no_backlog() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "1500m"}}))
    world.add_pods(*make_pods("a", 3))
    world.note_waits(world.decide().waits)
    (tenant,) = [each for each in world.cache.queries.build_overview({"a": 0.5}).tenants if each.name == "a"]
    assert tenant.pending == {"at_limit": 2}
    assert tenant.limit == {"cpu": 1.5}
    assert (tenant.backlogged, tenant.oldest_pending) == (False, None)


def test_pods_are_a_resource_like_others() -> None:
    world = World(make_tenant("a", {"resources": {"pods": 3}}))
    world.add_pods(*make_pods("a", 6))
    assert len(world.decide().bindings) == 3
    assert world.find_wait().at_limit is not None


def test_a_limit_is_about_the_nodes_that_it_selects() -> None:
    world = World(make_tenant("a", {"nodes": GPU_NODES, "resources": {"cpu": "3"}}))
    world.add_pods(*make_pods("a", 20))
    report = world.decide()

    servers = [bind.server for bind in report.bindings]
    assert sum(name in {"n1", "n3"} for name in servers) == 3
    assert sum(name in {"n0", "n2"} for name in servers) == 8
    wait = world.find_wait()
    assert compute_condition_reason(wait) == "Unschedulable"  # another a100 node would help
    assert "2 node(s) at the limit for cpu of tenant a" in format_unschedulable(wait, 4)


def test_nodes_that_could_never_hold_a_pod_do_not_matter() -> None:
    """Pods that ask for GPUs may go to all nodes by their constraints, and only some have GPUs."""
    world = World(make_tenant("a", {"nodes": GPU_NODES, "resources": {"nvidia.com/gpu": 3}}), nodes=2)
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "8"}
    world.add_nodes(make_node("n1", labels={"gpu": "h100"}, allocatable=allocatable))
    world.add_pods(*make_pods("a", 5, requests={"nvidia.com/gpu": "1"}))
    assert len(world.decide().bindings) == 3
    assert compute_condition_reason(world.find_wait()) == "AtLimit"


def test_labels_of_nodes_decide_as_they_are_now() -> None:
    world = World(make_tenant("a", {"nodes": GPU_NODES, "resources": {"cpu": "1"}}))
    selected: dict[str, Any] = {"nodeSelector": {"kubernetes.io/arch": "x"}}
    nodes = [make_node(f"n{n}", labels={"gpu": "h100", "kubernetes.io/arch": "x"}) for n in range(4)]
    world.add_nodes(*nodes)
    world.add_pods(*make_pods("a", 6, **selected))
    assert len(world.decide().bindings) == 1
    assert world.find_wait().at_limit is not None

    world.add_nodes(make_node("n2", labels={"gpu": "a100", "kubernetes.io/arch": "x"}))
    assert [bind.server for bind in world.decide().bindings] == ["n2"] * 4
    world.cache.check_consistent()

    world.add_nodes(make_node("n2", labels={"gpu": "h100", "kubernetes.io/arch": "x"}))
    assert world.get_held("a") == 5000
    world.cache.check_consistent()


def test_a_limit_that_rises_falls_and_goes_counts_at_once() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "1"}}))
    world.add_pods(*make_pods("a", 9))
    assert len(world.decide().bindings) == 1
    world.set_tenants(make_tenant("a", {"resources": {"cpu": "3"}}))
    assert len(world.decide().bindings) == 2
    world.set_tenants(make_tenant("a", {"resources": {"cpu": "1"}}))
    assert world.decide().bindings == ()
    world.set_tenants(make_tenant("a"))
    assert len(world.decide().bindings) == 6


def test_a_tenant_that_is_deleted_leaves_no_limit() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "1"}}))
    world.add_pods(*make_pods("a", 3))
    assert len(world.decide().bindings) == 1
    world.cache.delete_tenant("a")
    assert len(world.decide().bindings) == 2


def test_any_number_of_classes_goes_on_when_there_is_free_capacity_below_the_limit() -> None:
    """More classes than are all looked at in each cycle, which all wait for the same limit."""
    world = World(make_tenant("a", {"resources": {"memory": "1Gi"}}), nodes=8)
    running = make_pods("a", 1, "x", node="n0", phase="Running", requests={"memory": "1Gi"})
    pods = [make_pod(f"p{n}", namespace="a", requests={"memory": f"{100 + n}Mi"}) for n in range(400)]
    world.add_pods(*running, *pods)
    assert world.decide().bindings == ()
    assert world.decide().bindings == ()
    world.delete_pod(running[0])
    left, fitting = 1024, 0
    for amount in (100 + n for n in sorted(range(400), key=str)):
        if amount <= left:
            left, fitting = left - amount, fitting + 1
    assert len(world.decide().bindings) == fitting


@pytest.mark.parametrize("seed", draw_seeds(12))
@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf", "fifo"])
def test_no_history_gets_a_tenant_beyond_a_limit(seed: int, policy: str) -> None:
    draw = random.Random(seed)
    top, of_a = {"resources": {"cpu": "7"}}, {"resources": {"cpu": "5", "pods": 9}}
    of_gpus: Json = {"nodes": GPU_NODES, "resources": {"cpu": "2"}}
    place_of: dict[str, Json] = {"a": {}, "b": {}}

    def list_tenants() -> list[Json]:
        return [
            make_tenant("top", top, namespaces=[]),
            make_tenant("a", of_a, of_gpus, **place_of["a"]),
            make_tenant("b", {"nodes": GPU_NODES, "resources": {"memory": "2Gi"}}, **place_of["b"]),
        ]

    world = World(*list_tenants())
    alive: dict[str, Json] = {}
    for step in range(60):
        match draw.choice(["pod", "pod", "pod", "end", "end", "node", "label", "limit", "place"]):
            case "pod":
                requests = {"cpu": draw.choice(["500m", "1", "2"]), "memory": draw.choice(["256Mi", "1Gi"])}
                labels = {"user": draw.choice("uvw")}
                pod = make_pod(f"p{step}", namespace=draw.choice("ab"), requests=requests, labels=labels)
                alive[pod["metadata"]["uid"]] = pod
                world.add_pods(pod)
            case "end" if alive:
                world.delete_pod(alive.pop(draw.choice(sorted(alive))))
            case "node":
                world.add_nodes(make_node(f"m{draw.randrange(3)}", labels={"gpu": draw.choice(["h100", "a100"])}))
            case "label":
                world.add_nodes(make_node(f"n{draw.randrange(4)}", labels={"gpu": draw.choice(["h100", "a100"])}))
            case "limit":
                of_a = {"resources": {"cpu": draw.choice(["2", "5", "9"]), "pods": draw.choice([2, 9])}}
                top = {"resources": {"cpu": draw.choice(["3", "7", "12"])}}
                world.set_tenants(*list_tenants())
            case "place":
                places: list[Json] = [{}, {"parent": "top"}, {"parent": "top", "users": {"label": "user"}}]
                place_of[draw.choice("ab")] = draw.choice(places)
                world.set_tenants(*list_tenants())
        before = dict(world.cache.build_snapshot().held)
        report = world.decide(policy)
        check_limits(world, before)
        assert report.bindings == () or world.decide(policy).bindings == ()
        world.cache.check_consistent()


def check_limits(world: World, before: dict[Any, int]) -> None:
    """What counts towards each limit is at most the limit, or what it was: by a plain loop over pods and nodes."""
    specs, state = world.cache.state.directory.specs, world.cache.state
    labels = {name: dict(each.node.labels) for name, each in state.servers.states.items() if each.node is not None}
    for name, spec in specs.items():
        for n, entry in enumerate(spec.limit):
            for resource, most in entry.amounts:
                held = 0
                for pod in state.pods.entries.values():
                    node, owner = pod.assumed or pod.facts.node, pod.facts.namespace
                    is_there = node in labels and (entry.selector is None or entry.selector.is_met_by(labels[node]))
                    if name in {owner, specs[owner].parent} and is_there:
                        held += dict(pod.facts.demand.real).get(resource, 0)
                assert held <= max(most, before[LimitOf(name, n, resource)])
                assert held == world.cache.build_snapshot().held[LimitOf(name, n, resource)]
