"""A tenant whose pods are larger than those of others gets its share, in each mode, and is told what is reserved."""

from __future__ import annotations

import asyncio

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cluster.objects.facts import HOSTNAME
from kube.assembled.modes import MODES, living, make_waiting
from kube.assembled.replicas import Replica, Scene, in_virtual_time

ONE = {"cpu": "1"}
ROOM = {"cpu": "8", "memory": "64Gi", "pods": "110"}
NODES = ("n0", "n1")


def count_reserved(replica: Replica, tenant: str) -> int:
    """Return on how many nodes something is reserved, as metrics and the tenant's status show it."""
    overview = replica.observer.overview
    known = {} if overview is None else {each.name: each for each in overview.tenants}
    return known[tenant].reserved_nodes if tenant in known else 0


def count_held(scene: Scene, namespace: str) -> int:
    pods = scene.server.kinds["pods"].objects
    return sum(key.startswith(namespace) and scene.server.find_node(key) is not None for key in pods)


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_what_comes_free_is_kept_for_the_larger_pods_until_they_have_their_share(mode: str) -> None:
    async with living(
        mode, (make_node(name, allocatable=ROOM, labels={HOSTNAME: name}) for name in NODES), most_scale_ups=0
    ) as scene:
        full = [
            make_pod(f"r{n}", namespace="small", node=NODES[n % 2], phase="Running", requests=ONE) for n in range(16)
        ]
        scene.server.put("pods", *full)
        scene.server.put("pods", *(make_waiting(mode, f"w{n}", "small") for n in range(20)))
        scene.server.put("pods", *(make_waiting(mode, f"w{n}", "large", requests={"cpu": "4"}) for n in range(4)))
        await scene.pass_until(lambda: count_reserved(scene.leader, "ns/large") > 0)
        if mode == "bind":  # else kube-scheduler says why a pod waits
            await scene.pass_until(lambda: "reserved for it" in str(scene.server.get("pods", "large/w0")["status"]))

        for n in range(16):
            scene.server.delete("pods", f"small/r{n}")
            await asyncio.sleep(5.0)

        assert (count_held(scene, "large"), count_held(scene, "small")) == (2, 8)
        await scene.pass_until(lambda: count_reserved(scene.leader, "ns/large") == 0)


@in_virtual_time
async def test_it_is_reserved_soon_although_nothing_changes_after_the_larger_pods_have_come() -> None:
    """They come right after a look at what must be reserved, so the next look has no other cause."""
    async with living("bind", (make_node(name, allocatable=ROOM) for name in NODES)) as scene:
        full = [
            make_pod(f"r{n}", namespace="small", node=NODES[n % 2], phase="Running", requests=ONE) for n in range(16)
        ]
        scene.server.put("pods", *full, make_waiting("bind", "w0", "small"))
        await scene.pass_until(lambda: "Insufficient cpu" in str(scene.server.get("pods", "small/w0")["status"]))
        scene.server.put("pods", make_waiting("bind", "w0", "large", requests={"cpu": "4"}))

        await scene.pass_until(lambda: count_reserved(scene.leader, "ns/large") == 1, patience=5.0)


@in_virtual_time
async def test_a_group_starts_where_a_node_is_reserved_for_a_member_of_another_size() -> None:
    """The smaller one takes the place of one that was lost while the other waited for that node."""

    def put(name: str, cpu: str) -> None:
        marks = {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}
        total = {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}
        scene.server.put("pods", make_waiting("bind", name, "large", requests={"cpu": cpu}, **marks, **total))

    async with living("bind", [make_node("n0", allocatable=ROOM)]) as scene:
        put("first", "5")
        put("second", "5")
        await asyncio.sleep(2.0)
        scene.server.bind_elsewhere("large/first", "n0")
        await scene.pass_until(lambda: count_reserved(scene.leader, "ns/large") == 1)

        scene.server.delete("pods", "large/first")
        put("third", "3")

        await scene.pass_until_bound("large/second", "large/third", patience=5.0)
