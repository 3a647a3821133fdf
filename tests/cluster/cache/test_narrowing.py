"""To which nodes a pod is narrowed where the administrator wants it whatever the policy decides."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from cluster.builders import make_node, make_pod
from cluster.state.test_gate import World, make_gated
from fairbind.cluster.objects.facts import MOST_HOSTS
from fairbind.model import PolicySettings, Targets

BEST, HALF, ROOMY, FULL, FULLER, OTHER_ZONE = "best", "half", "roomy", "full", "fuller", "other"


def make_world(*, more: int = MOST_HOSTS, narrows_to_nodes: bool = True, **options: Any) -> World:
    """Nodes of 4 cores: with 1, 2 and all of them left, two with less than 1, one in a zone, and so many full ones."""
    world = World(narrows_to_nodes=narrows_to_nodes, **options)
    zones = (
        dict.fromkeys((BEST, HALF, ROOMY, FULL, FULLER), "x")
        | {OTHER_ZONE: "y"}
        | {f"z{n:02}": "x" for n in range(more)}
    )
    world.add_nodes(*(make_node(name, labels={"zone": zone}) for name, zone in zones.items()))
    taken = {BEST: "3", HALF: "2", FULL: "3500m", FULLER: "3800m"}
    taken |= {name: "4" for name in zones if name.startswith("z")}
    world.add_pods(*(make_pod(f"on-{name}", node=name, requests={"cpu": cpu}) for name, cpu in taken.items()))
    world.add_pods(make_gated("p", nodeSelector={"zone": "x"}))
    return world


def find_nodes(world: World, node: str) -> list[str] | None:
    world.cache.build_snapshot()
    turn = world.cache.queries.find_opening("uid-p", node)
    assert turn is not None
    return None if turn.nodes is None else list(turn.nodes)


def test_the_decided_node_comes_first_then_those_on_which_it_fits_then_the_emptiest() -> None:
    nodes = find_nodes(make_world(), ROOMY)
    assert nodes is not None
    assert nodes[:6] == [ROOMY, BEST, HALF, FULL, FULLER, "z00"]
    assert len(nodes) == MOST_HOSTS
    assert OTHER_ZONE not in nodes, "its own selector rules it out"


def test_where_no_more_nodes_would_do_than_can_be_named_it_is_not_narrowed() -> None:
    """It would gain nothing, and lose the nodes that come later."""
    assert find_nodes(make_world(more=MOST_HOSTS - 5), ROOMY) is None
    assert find_nodes(make_world(more=MOST_HOSTS - 4), ROOMY) is not None


def test_unless_it_is_wanted_only_policies_by_class_narrow() -> None:
    world = make_world(narrows_to_nodes=False)
    assert find_nodes(world, ROOMY) is None
    world.cache.set_policy(PolicySettings(policy="ps-dsf"))
    world.add_nodes(make_node("large", labels={"zone": "x"}, allocatable={"cpu": "64", "memory": "8Gi", "pods": "9"}))
    assert find_nodes(world, "large") == ["large"]


def test_by_class_it_stays_the_class_where_nodes_are_wanted_too() -> None:
    world = make_world()
    world.cache.set_policy(PolicySettings(policy="ps-dsf"))
    world.add_nodes(make_node("large", labels={"zone": "x"}, allocatable={"cpu": "64", "memory": "8Gi", "pods": "9"}))
    assert find_nodes(world, "large") == ["large"]


def make_targets(world: World, *apart: str) -> Targets:
    """Return an answer of DRFH to which some nodes are a class of their own, though all are alike."""
    names = world.cache.build_snapshot().servers.names
    return Targets("drfh", ("cpu",), {}, ("others", "apart"), {name: int(name in apart) for name in names}, {})


@pytest.mark.parametrize(("guided", "narrowed"), [(True, [ROOMY, HALF]), (False, None)])
def test_by_an_exact_answer_the_class_is_that_of_the_answer(*, guided: bool, narrowed: list[str] | None) -> None:
    world = make_world(narrows_to_nodes=False)
    world.cache.set_policy(PolicySettings(policy="best-fit-drfh", guided=guided))
    world.cache.set_targets(make_targets(world, ROOMY, HALF, OTHER_ZONE))
    assert find_nodes(world, ROOMY) == narrowed


def test_a_pod_that_may_go_to_no_other_class_is_not_narrowed() -> None:
    """It would lose the nodes that come later, for nothing."""
    world = make_world(narrows_to_nodes=False)
    world.cache.set_targets(make_targets(world, OTHER_ZONE))
    assert find_nodes(world, ROOMY) is None


def test_a_pod_that_is_being_narrowed_keeps_its_promise() -> None:
    world = make_world()
    assert world.cache.assume("uid-p", ROOMY)
    world.add_pods(make_pod("other", node=ROOMY, requests={"cpu": "4"}))
    world.cache.build_snapshot()
    pod = world.cache.find_pod("uid-p")
    assert pod is not None
    assert pod.assumed == ROOMY


@pytest.mark.parametrize("closed", [["a"], ["a", "b"], []])
def test_nodes_where_something_is_reserved_for_others_are_closed_but_the_decided_one(closed: list[str]) -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    def list_closed(tenant: str, demand_r: tuple[int, ...], most_seconds: float) -> list[str]:
        assert most_seconds == inf
        asked.append((tenant, demand_r))
        return closed

    world = World(list_closed=list_closed)
    world.add_pods(make_gated("p"))
    snapshot = world.cache.build_snapshot()
    opening = world.cache.queries.find_opening("uid-p", "b")

    assert opening is not None
    assert (opening.nodes, opening.closed) == (None, [name for name in closed if name != "b"])
    assert asked == [(each.tenant, each.demand_r) for each in snapshot.task_classes]


def test_a_narrowed_pod_is_not_narrowed_to_nodes_where_something_is_reserved_for_others() -> None:
    world = make_world(list_closed=lambda *_: [BEST, ROOMY])
    nodes = find_nodes(world, ROOMY)

    assert nodes is not None
    assert nodes[:3] == [ROOMY, HALF, FULL]
