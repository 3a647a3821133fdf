"""Gate mode, assembled with an autoscaler: it sees the pods that come next, and buys no node in vain."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cluster.builders import make_namespace, make_node, read_node, read_pod
from fairbind.cluster.other_schedulers.gate_limiter import TIMEOUT_SECONDS
from fairbind.cluster.other_schedulers.node_waits import SCALE_UP_SECONDS
from fairbind.kube.operator.gates import GateSettings
from fairbind.simulator.autoscaler import Autoscaler, Marked
from kube.assembled.faults import refuse
from kube.assembled.other_scheduler import OtherScheduler, find_unschedulable
from kube.assembled.replicas import Scene, in_virtual_time, judging, playing
from kube.assembled.test_gates import (
    OTHER,
    count_by_namespace,
    find_condition,
    find_events,
    find_on_their_way,
    is_open,
    make_gated,
    put_tenants,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST = 3
ORDER_SECONDS = 7.0
DELAY_SECONDS = 60.0
"""A node is there for some seconds before the autoscaler looks again."""
TOLERANCE = 2
ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "110"}


class Shop:
    """The model autoscaler in a cluster: it looks at pods that are marked, and its nodes come a minute later."""

    def __init__(self, scene: Scene, most: int) -> None:
        self._scene = scene
        self._autoscaler = Autoscaler(read_node(make_node("shape", allocatable=ALLOCATABLE)), most, delay=0)

    @property
    def bought(self) -> list[str]:
        return list(self._autoscaler.bought)

    async def run(self) -> None:
        """Look and buy until cancelled."""
        while True:
            await asyncio.sleep(ORDER_SECONDS)
            pods = self._scene.server.kinds["pods"].objects.values()
            marked = [Marked(read_pod(pod), 1) for pod in pods if find_unschedulable(pod)]
            for _ in range(self._autoscaler.order(marked)):
                asyncio.get_running_loop().call_later(DELAY_SECONDS, self._deliver)

    def _deliver(self) -> None:
        name = f"bought{len(self._autoscaler.bought)}"
        self._autoscaler.ordered -= 1
        self._autoscaler.bought[name] = None
        self._scene.server.put("nodes", make_node(name, allocatable=ALLOCATABLE))


@contextlib.asynccontextmanager
async def scaling(*, most_nodes: int = 99, most: int = MOST, **backlog: int) -> AsyncIterator[tuple[Scene, Shop]]:
    """One node of 4 cores, an autoscaler, and so many pods of each tenant, whose weights are 1, 2 and so on."""
    scene = Scene(0, solves=False, gates=GateSettings(OTHER, most_scale_ups=most))
    async with judging(scene):
        scene.server.put("namespaces", *(make_namespace(name) for name in backlog))
        put_tenants(scene, **{name: n + 1 for n, name in enumerate(backlog)})
        scene.server.put("nodes", make_node("n0", allocatable=ALLOCATABLE))
        scene.server.put(
            "pods", *(make_gated(f"p{n}", namespace=t) for t, count in backlog.items() for n in range(count))
        )
        scene.start()
        await scene.pass_until_leading()
        shop = Shop(scene, most_nodes)
        tasks = [
            asyncio.get_running_loop().create_task(work)
            for work in (shop.run(), OtherScheduler(scene, per_second=50.0, latency_seconds=0.1).run())
        ]
        try:
            yield scene, shop
        finally:
            for task in tasks:
                task.cancel()


def count_on(scene: Scene, node: str) -> int:
    return sum(pod["spec"].get("nodeName") == node for pod in scene.server.kinds["pods"].objects.values())


def find_marked(scene: Scene) -> Counter[str]:
    pods = scene.server.kinds["pods"].objects.values()
    return Counter(pod["metadata"]["namespace"] for pod in pods if find_unschedulable(pod))


@pytest.mark.slow
@in_virtual_time
async def test_every_pod_gets_a_node_and_no_node_is_bought_that_no_pod_uses() -> None:
    async with scaling(one=10, two=14) as (scene, shop):
        await scene.pass_until(lambda: count_by_namespace(scene).total() == 24, patience=1200.0, step=1.0)
        await asyncio.sleep(3 * DELAY_SECONDS)
        assert {node: count_on(scene, node) for node in shop.bought} == dict.fromkeys(shop.bought, 4)
        assert len(shop.bought) == 5
        assert not find_events(scene, "NotPlacedInTime")


@in_virtual_time
async def test_new_nodes_are_for_those_who_come_next_and_so_are_those_that_exist() -> None:
    """The bound stops all tenants, and not only the one that has reached it; otherwise they would share equally."""
    async with scaling(most_nodes=5, one=40, two=40, three=40) as (scene, shop):
        await scene.pass_until(lambda: count_by_namespace(scene).total() == 24, patience=1200.0, step=1.0)
        for name, fair in (("one", 4), ("two", 8), ("three", 12)):
            assert abs(count_by_namespace(scene)[name] - fair) <= TOLERANCE
        assert len(shop.bought) == 5
        assert max(find_marked(scene).values()) <= MOST


@in_virtual_time
async def test_what_waits_for_a_node_holds_no_room_takes_no_place_and_is_not_late() -> None:
    async with scaling(most_nodes=0, one=9, two=9) as (scene, _):
        await scene.pass_until(lambda: find_marked(scene).total() == 4, patience=10.0)
        await asyncio.sleep(2 * TIMEOUT_SECONDS)
        assert find_marked(scene) == {"one": 1, "two": 3}, (
            "after these the next one would be of two, which has its most"
        )
        assert not find_events(scene, "NotPlacedInTime")
        assert len(find_events(scene, "ScalingUp")) == 4
        assert find_condition(scene, "one").get("status") != "False"
        marked = {key for key in find_on_their_way(scene) if find_unschedulable(scene.server.get("pods", key))}
        scene.server.put("nodes", make_node("n1", allocatable=ALLOCATABLE))
        await scene.pass_until(lambda: count_on(scene, "n1") == 4)
        assert {key for key in marked if scene.server.find_node(key) == "n1"} == marked, "they come first"
        await scene.pass_until(lambda: find_marked(scene).total() >= MOST)


@pytest.mark.slow
@in_virtual_time
async def test_a_tenant_whose_pods_the_autoscaler_cannot_help_does_not_stop_the_others_for_ever() -> None:
    async with scaling(one=8, two=0) as (scene, shop):
        scene.server.put("pods", *(make_gated(f"p{n}", namespace="two", nodeSelector={"kind": "x"}) for n in range(9)))
        await scene.pass_until(lambda: find_marked(scene)["two"] == MOST)
        await asyncio.sleep(SCALE_UP_SECONDS - DELAY_SECONDS)
        assert count_by_namespace(scene) == {"one": 4}
        await scene.pass_until(lambda: count_by_namespace(scene)["one"] == 8, patience=SCALE_UP_SECONDS, step=1.0)
        assert count_by_namespace(scene, opened=True)["two"] == MOST
        assert len(shop.bought) == 1


@pytest.mark.slow
@in_virtual_time
async def test_without_a_bound_no_gate_is_opened_for_autoscalers() -> None:
    async with scaling(most=0, one=9) as (scene, shop):
        await scene.pass_until(lambda: count_by_namespace(scene).total() == 4)
        await asyncio.sleep(4 * DELAY_SECONDS)
        assert not shop.bought
        assert not find_on_their_way(scene)


@in_virtual_time
async def test_a_pod_whose_gate_could_not_be_opened_without_room_is_not_said_to_scale_up_when_it_has_room() -> None:
    async with playing(gates=GateSettings(OTHER, most_scale_ups=1)) as scene:
        scene.server.put("nodes", make_node("n0", allocatable={"cpu": "1", "memory": "8Gi", "pods": "110"}))
        await scene.pass_until_leading()
        scene.cause(refuse(422, "/p0", times=1))
        scene.server.put("pods", make_gated("p0", requests={"cpu": "4"}))
        await scene.pass_until(lambda: scene.server.find_requests("/p0", "PATCH"))
        scene.server.put("nodes", make_node("n1", allocatable=ALLOCATABLE))
        await scene.pass_until(lambda: is_open(scene, "team/p0"))
        await asyncio.sleep(2.0)
        assert not find_events(scene, "ScalingUp")


@in_virtual_time
async def test_the_next_leader_takes_them_for_what_they_are() -> None:
    async with scaling(most_nodes=0, one=12) as (scene, _):
        await scene.pass_until(lambda: find_marked(scene).total() == MOST)
        scene.leader.kill()
        scene.start()
        await scene.pass_until_leading()
        await asyncio.sleep(2 * TIMEOUT_SECONDS)
        assert not find_events(scene, "NotPlacedInTime")
        assert find_marked(scene).total() == MOST
        scene.server.put("nodes", make_node("n1", allocatable=ALLOCATABLE))
        await scene.pass_until(lambda: count_on(scene, "n1") == 4)
        await scene.pass_until(lambda: find_marked(scene).total() == MOST)
