"""The last look before a binding is sent: it was decided a while ago, and the world has changed since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.apiserver import ApiServer
from kube.assembled.faults import BINDINGS, refuse
from kube.assembled.replicas import Scene, in_virtual_time, playing

NODES = ("n1", "n2")
NOT_FOR_US = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
CHANGES: dict[str, Callable[[ApiServer, str], object]] = {
    "cordoned": lambda server, node: server.change("nodes", node, lambda it: it["spec"].update(unschedulable=True)),
    "tainted": lambda server, node: server.change("nodes", node, lambda it: it["spec"].update(taints=[NOT_FOR_US])),
    "deleted": lambda server, node: server.delete("nodes", node),
}


async def hold_up_a_binding(scene: Scene) -> str:
    """Have a pod decided for one of two nodes while the server wants no bindings; return which."""
    scene.server.put("nodes", *(make_node(name) for name in NODES))
    await scene.pass_until_leading()
    scene.cause(refuse(429, BINDINGS, retry_after=2.0, times=1))
    scene.server.put("pods", make_pod("p", requests={"cpu": "3"}))
    await scene.pass_until(lambda: scene.server.find_requests("/p/binding"))
    node: str = scene.server.find_requests("/p/binding")[0].body["target"]["name"]
    return node


@in_virtual_time
async def test_room_that_another_scheduler_took_is_not_given_away_a_second_time() -> None:
    async with playing() as scene:
        first = await hold_up_a_binding(scene)
        scene.server.put("pods", make_pod("foreign", scheduler="another", requests={"cpu": "3"}, node=first))
        await scene.pass_until_bound("team/p")
        assert {first, scene.server.find_node("team/p")} == set(NODES)


@in_virtual_time
async def test_a_pod_whose_room_was_taken_is_decided_again_at_once() -> None:
    async with playing() as scene:
        first = await hold_up_a_binding(scene)
        scene.server.put("pods", make_pod("foreign", scheduler="another", requests={"cpu": "3"}, node=first))
        bound_at = await scene.pass_until_bound("team/p")
        await scene.pass_until(lambda: len(scene.replicas[0].observer.results) == 2)  # the answer is on its way
        ((crowded_at, result), (_, last)) = scene.replicas[0].observer.results
        assert (result, last) == ("crowded", "bound")
        assert bound_at - crowded_at < 0.5


@pytest.mark.parametrize("change", CHANGES)
@in_virtual_time
async def test_a_node_that_is_closed_meanwhile_gets_nothing_more(change: str) -> None:
    async with playing() as scene:
        first = await hold_up_a_binding(scene)
        CHANGES[change](scene.server, first)
        bound_at = await scene.pass_until_bound("team/p")
        assert {first, scene.server.find_node("team/p")} == set(NODES)
        assert scene.replicas[0].observer.results[0][1] == "stale"
        assert bound_at - scene.replicas[0].observer.results[0][0] < 0.5
