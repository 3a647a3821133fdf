"""Room of pods on their way, when the other scheduler places pods elsewhere than was decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cluster.builders import Json, make_node, make_pod, read_node
from cluster.state.test_gate import OTHER, World, make_gated, open_gate
from fairbind.cluster.objects.facts import MOST_HOSTS
from fairbind.model import PolicySettings


@pytest.fixture
def world() -> World:
    """Nodes a and b of 4 cores each."""
    return World()


def decide(world: World, name: str, node: str, cpu: str = "2", *, opens: bool = True) -> Json:
    """Let a pod be decided to a node, and its gate open."""
    pod = make_gated(name)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    world.add_pods(pod)
    assert world.cache.assume(f"uid-{name}", node)
    return world.change_pod(pod, open_gate) if opens else pod


def bind(world: World, pod: Json, node: str) -> Json:
    return world.change_pod(pod, lambda p: p["spec"].update(nodeName=node))


def find_reserved(world: World, *names: str) -> Mapping[str, str | None]:
    """Return where pods hold the room that is reserved for them."""
    world.cache.build_snapshot()
    found = {name: world.cache.find_pod(f"uid-{name}") for name in names}
    return {name: None if pod is None else pod.assumed for name, pod in found.items()}


def test_a_pod_whose_room_is_taken_gets_that_of_the_one_that_took_it(world: World) -> None:
    """Otherwise the room on a would be decided once more, and three pods would have an open gate for two places."""
    first = decide(world, "first", "a", "3")
    decide(world, "second", "b", "3")
    bind(world, first, "b")
    assert find_reserved(world, "second") == {"second": "a"}
    assert world.get_cpus() == (1000, 1000, 6000)


def test_the_youngest_promises_are_taken_back(world: World) -> None:
    for name in ("older", "younger"):
        decide(world, name, "a")
    world.add_pods(make_pod("other", node="a", requests={"cpu": "2"}))
    assert find_reserved(world, "older", "younger") == {"older": "a", "younger": "b"}


def test_what_a_pod_does_not_use_may_be_scarce_where_it_is_promised_room(world: World) -> None:
    decide(world, "p", "a")
    world.add_pods(make_pod("other", node="a", requests={"memory": "9Gi"}))
    assert find_reserved(world, "p") == {"p": "a"}


def test_a_pod_that_fits_nowhere_counts_and_has_the_first_room_that_comes_free(world: World) -> None:
    world.add_pods(make_pod("big", node="b", requests={"cpu": "3"}))
    decide(world, "p", "a")
    other = make_pod("other", node="a", requests={"cpu": "3"})
    world.add_pods(other)
    assert find_reserved(world, "p") == {"p": None}
    assert world.get_cpus() == (1000, 1000, 8000), "others may use what is too little for it"
    world.delete_pod(other)
    world.add_pods(make_gated("waiting"))
    assert find_reserved(world, "p") == {"p": "a"}
    assert world.get_cpus() == (2000, 1000, 5000)


def test_it_goes_only_where_it_may(world: World) -> None:
    pod = make_gated("p", nodeSelector={"kind": "x"})
    world.add_nodes(make_node("a", labels={"kind": "x"}), make_node("b", labels={"kind": "y"}))
    world.add_pods(pod)
    world.cache.assume("uid-p", "a")
    world.change_pod(pod, open_gate)
    world.add_pods(make_pod("other", node="a", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": None}


def test_a_pod_on_a_node_that_is_gone_gets_room_elsewhere(world: World) -> None:
    decide(world, "p", "a")
    world.cache.nodes.delete(read_node(make_node("a")))
    assert find_reserved(world, "p") == {"p": "b"}


def test_a_gate_that_is_being_opened_moves_too_and_stays_when_it_fits_nowhere(world: World) -> None:
    decide(world, "p", "a", opens=False)
    world.add_pods(make_pod("other", node="a", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": "b"}
    assert world.cache.queries.has_capacity("uid-p", "a"), "not what was decided first, but there is room"
    world.add_pods(make_pod("more", node="b", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": "b"}
    assert not world.cache.queries.has_capacity("uid-p", "b")


def test_by_server_class_a_gate_that_is_being_opened_moves_inside_the_class(world: World) -> None:
    """It is being narrowed to the class of the node that was decided: a and b, and not c."""
    world.cache.set_policy(PolicySettings(policy="ps-dsf"))
    world.add_nodes(make_node("c", allocatable={"cpu": "9", "memory": "8Gi", "pods": "110"}))
    world.cache.build_snapshot()
    pod = decide(world, "p", "a", opens=False)
    world.add_pods(make_pod("other", node="a", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": "b"}
    world.add_pods(make_pod("more", node="b", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": "b"}
    world.change_pod(pod, open_gate)
    assert find_reserved(world, "p") == {"p": "c"}, "it was not narrowed after all"


def test_by_server_class_a_gate_that_is_being_opened_stays_when_its_node_is_gone(world: World) -> None:
    world.cache.set_policy(PolicySettings(policy="ps-dsf"))
    decide(world, "p", "a", opens=False)
    world.cache.nodes.delete(read_node(make_node("a")))
    assert find_reserved(world, "p") == {"p": "a"}, "the classes are not known yet"
    world.add_pods(make_pod("other", node="b", requests={"cpu": "1"}))
    assert find_reserved(world, "p") == {"p": "a"}


def test_in_a_class_too_large_to_name_all_its_nodes_a_gate_that_is_being_opened_stays(world: World) -> None:
    world.cache.set_policy(PolicySettings(policy="ps-dsf"))
    world.add_nodes(*(make_node(f"c{n}") for n in range(MOST_HOSTS)))
    world.cache.build_snapshot()
    decide(world, "p", "a", opens=False)
    world.add_pods(make_pod("other", node="a", requests={"cpu": "4"}))
    assert find_reserved(world, "p") == {"p": "a"}


def test_room_that_was_given_back_is_not_looked_for_again(world: World) -> None:
    for name in ("late", "homeless"):
        decide(world, name, "a", "4")
    world.add_pods(make_pod("other", node="b", requests={"cpu": "4"}))
    assert find_reserved(world, "late", "homeless") == {"late": "a", "homeless": None}
    for name in ("late", "homeless"):
        assert world.cache.give_back(f"uid-{name}")
    assert find_reserved(world, "late", "homeless") == {"late": None, "homeless": None}
    assert world.get_cpus()[0] == 4000


def test_a_new_leader_looks_on_for_room_for_what_fits_nowhere(world: World) -> None:
    other = make_pod("other", node="b", requests={"cpu": "4"})
    pods = [make_pod(name, scheduler=OTHER, requests={"cpu": "4"}) for name in ("p0", "p1", "p2")]
    world.add_pods(other, *pods)
    found = world.cache.recover(most=9, but={"uid-p2"})
    assert [(uid, has_capacity) for uid, _, has_capacity in found] == [("uid-p0", True), ("uid-p1", False)]
    assert find_reserved(world, "p0", "p1", "p2") == {"p0": "a", "p1": None, "p2": None}
    world.delete_pod(other)
    assert find_reserved(world, "p0", "p1", "p2") == {"p0": "a", "p1": "b", "p2": None}


def test_pods_that_are_gone_are_forgotten(world: World) -> None:
    pods = [decide(world, name, "a", "4") for name in ("one", "two", "three")]
    world.cache.build_snapshot()
    for pod in pods:
        world.delete_pod(pod)
    assert world.get_cpus() == (4000, 4000, 0)
    forecast = world.cache.state.forecast
    assert not forecast.reserved
    assert not forecast.unplaced
