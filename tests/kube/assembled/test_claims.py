"""Claims that are bound once their pod has a node: what is written for them, and what stays when something fails.

The server holds it to the rule that no pod is bound whose claims are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cluster.builders import make_node, make_pod
from fairbind.kube.operator.elector import MARGIN_SECONDS
from fairbind.kube.writers.claim_binder import CLAIM_SECONDS
from kube.assembled.apiserver import ApiServer, Request, is_bound
from kube.assembled.faults import LEASES, Fault, delay, ignore, lose_answer, refuse
from kube.assembled.replicas import Scene, in_virtual_time, playing

Json = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
CLAIM = "team/claim"
VOLUME_WRITES, CLAIM_WRITES = "/persistentvolumes/", "/persistentvolumeclaims/"


class Controllers:
    """What controllers and a provisioner do about claims, a moment later.

    fails_on: nodes for which no volume can be made. ignores: namespaces whose claims are left alone. is_away: nothing
    is done.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.fails_on: set[str] = set()
        self.ignores: set[str] = set()
        self.is_away = False
        self.asked: list[str] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            if not self.is_away:
                self.work()

    def work(self) -> None:
        for volume in list(self.server.kinds["persistentvolumes"].objects.values()):
            reference = volume["spec"].get("claimRef")
            if reference is not None and volume["status"]["phase"] != "Bound":
                key = f"{reference['namespace']}/{reference['name']}"
                self.bind(key, volume["metadata"]["name"])
        for key, claim in list(self.server.kinds["persistentvolumeclaims"].objects.items()):
            node = (claim["metadata"].get("annotations") or {}).get(SELECTED)
            if node is not None and not is_bound(claim) and claim["metadata"]["namespace"] not in self.ignores:
                self.asked.append(node)
                if node in self.fails_on:
                    self.server.change("persistentvolumeclaims", key, lambda it: it["metadata"]["annotations"].clear())
                else:
                    name = f"made-for-{key.replace('/', '-')}"
                    self.server.put("persistentvolumes", make_volume(name, node))
                    self.bind(key, name)

    def bind(self, key: str, volume: str) -> None:
        if key not in self.server.kinds["persistentvolumeclaims"].objects:
            return
        self.server.change("persistentvolumes", volume, lambda it: it["status"].update(phase="Bound"))

        def take(claim: Json) -> None:
            claim["spec"]["volumeName"] = volume
            claim["metadata"].setdefault("annotations", {})[BOUND] = "yes"

        self.server.change("persistentvolumeclaims", key, take)


def make_volume(name: str, node: str) -> Json:
    """Return a volume that is on a node."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "storageClassName": "late",
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def make_claim(name: str = "claim") -> Json:
    spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]}
    spec["resources"] = {"requests": {"storage": "1Gi"}}  # type: ignore[assignment]
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": {"phase": "Pending"}}


def claiming(name: str = "p", claim: str = "claim") -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return make_pod(name, requests={"cpu": "1"}, volumes=volumes)


def add_class(server: ApiServer, provisioner: str = "disk.example.com") -> None:
    late = {"metadata": {"name": "late"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    server.put("storageclasses", late)


@asynccontextmanager
async def providing(replicas: int = 1, **mode: Any) -> AsyncIterator[tuple[Scene, Controllers]]:
    """Play with two nodes, a storage class and controllers; a replica leads. mode: as `playing` takes it."""
    async with playing(replicas, solves=False, **mode) as scene:
        names = ("n1", "n2")
        scene.server.put("nodes", *(make_node(name, labels={"kubernetes.io/hostname": name}) for name in names))
        add_class(scene.server)
        controllers = Controllers(scene.server)
        work = asyncio.get_running_loop().create_task(controllers.run())
        try:
            await scene.pass_until_leading()
            yield scene, controllers
        finally:
            work.cancel()


def find_selected(server: ApiServer, key: str = CLAIM) -> str | None:
    annotations: Json = server.get("persistentvolumeclaims", key)["metadata"].get("annotations") or {}
    return annotations.get(SELECTED)


def find_nominated(server: ApiServer, key: str = "team/p") -> str | None:
    node: str | None = server.get("pods", key)["status"].get("nominatedNodeName")
    return node


def is_told(scene: Scene, words: str) -> bool:
    """Whether an event says so."""
    return any(words in event.get("note", "") for event in scene.server.kinds["events"].objects.values())


@in_virtual_time
async def test_a_volume_is_made_on_the_pods_node_before_it_is_bound() -> None:
    async with providing() as (scene, controllers):
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until_bound("team/p")

        assert controllers.asked == [scene.server.find_node("team/p")]
        assert [request.method for request in scene.server.find_requests("/persistentvolumeclaims/claim")] == [
            "GET",
            "PATCH",
        ]


@in_virtual_time
async def test_a_volume_that_is_there_is_given_to_the_claim() -> None:
    async with providing() as (scene, controllers):
        add_class(scene.server, "kubernetes.io/no-provisioner")
        scene.server.put("persistentvolumes", make_volume("local", "n2"))
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until_bound("team/p")

        assert scene.server.find_node("team/p") == "n2"
        volume = scene.server.get("persistentvolumes", "local")
        claim = scene.server.get("persistentvolumeclaims", CLAIM)
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert controllers.asked == []


@in_virtual_time
async def test_room_is_held_while_a_volume_is_made_and_others_go_on() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        node = find_selected(scene.server)
        large = {f"big-{number}": make_pod(f"big-{number}", requests={"cpu": "4"}) for number in range(2)}
        scene.server.put("pods", *large.values(), make_pod("small", requests={"cpu": "100m"}))
        await scene.pass_until_bound("team/small")
        await asyncio.sleep(5.0)

        placed = [scene.server.find_node(f"team/{name}") for name in large]
        assert placed.count(None) == 1
        assert node not in placed
        assert find_nominated(scene.server) == node
        assert len(scene.server.find_requests("/pods/p/status")) == 1
        controllers.is_away = False
        await scene.pass_until_bound("team/p")
        assert scene.server.find_node("team/p") == node
        assert find_nominated(scene.server) is None


@in_virtual_time
async def test_where_no_volume_can_be_made_another_node_is_tried() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        first = find_selected(scene.server)
        assert first is not None
        await scene.pass_until(lambda: find_nominated(scene.server) == first)
        controllers.fails_on = {first}
        controllers.is_away = False
        await scene.pass_until(
            lambda: is_told(scene, "no volume could be made for the persistentvolumeclaim team/claim")
        )
        scene.server.change("nodes", first, lambda it: it["spec"].update(unschedulable=True))
        await scene.pass_until_bound("team/p", patience=60.0)
        assert scene.server.find_node("team/p") not in {None, first}


@in_virtual_time
async def test_a_pod_whose_volume_never_comes_gives_its_room_back() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        node = find_selected(scene.server)
        large = make_pod("large", requests={"cpu": "4"}, nodeSelector={"kubernetes.io/hostname": node})
        scene.server.put("pods", large)
        await asyncio.sleep(CLAIM_SECONDS - 10.0)
        assert scene.server.find_node("team/large") is None
        assert find_nominated(scene.server) == node

        await scene.pass_until_bound("team/large")
        await scene.pass_until(lambda: find_nominated(scene.server) != node)
        await scene.pass_until(lambda: is_told(scene, "its persistentvolumeclaims were not bound within 600 s"))


@in_virtual_time
async def test_what_was_written_for_a_pod_that_is_gone_is_taken_back() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        scene.server.delete("pods", "team/p")
        await scene.pass_until(lambda: find_selected(scene.server) is None)


@in_virtual_time
async def test_a_volume_that_was_given_for_a_pod_that_is_gone_is_free_again() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        add_class(scene.server, "kubernetes.io/no-provisioner")
        scene.server.put("persistentvolumes", make_volume("local", "n2"))
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())

        def find_reference() -> Json | None:
            found: Json | None = scene.server.get("persistentvolumes", "local")["spec"].get("claimRef")
            return found

        await scene.pass_until(lambda: find_reference() is not None)
        scene.server.delete("pods", "team/p")
        await scene.pass_until(lambda: find_reference() is None)
        controllers.is_away = False
        scene.server.put("persistentvolumeclaims", make_claim("other"))
        scene.server.put("pods", claiming("q", "other"))
        await scene.pass_until_bound("team/q")


@in_virtual_time
async def test_the_next_leader_goes_on_where_a_killed_one_was() -> None:
    async with providing(replicas=2) as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        node, before = find_selected(scene.server), scene.leader
        await scene.pass_until(lambda: find_nominated(scene.server) == node)
        before.kill()
        await scene.pass_until_leading(other_than=before)
        await asyncio.sleep(5.0)
        assert find_selected(scene.server) == node
        assert find_nominated(scene.server) == node
        assert len(scene.server.find_requests("/pods/p/status")) == 1  # it says already what the next leader decides
        controllers.is_away = False
        await scene.pass_until_bound("team/p")
        assert scene.server.find_node("team/p") == node


@in_virtual_time
async def test_who_ends_leaves_a_claim_to_the_next_leader() -> None:
    async with providing(replicas=2) as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        before, ends = scene.leader, scene.now
        before.ask_to_stop()
        await scene.pass_until_leading(other_than=before)
        assert scene.now - ends < 10.0
        controllers.is_away = False
        await scene.pass_until_bound("team/p")


@in_virtual_time
async def test_the_next_leader_takes_back_what_no_place_stands_behind() -> None:
    """The claim is gone meanwhile, so its pod has no node any more; what kube-scheduler nominated stays."""
    async with providing(replicas=2) as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        other = make_pod("other", requests={"cpu": "1"}, scheduler="default-scheduler")
        other["status"]["nominatedNodeName"] = "n2"
        scene.server.put("pods", claiming(), other)
        await scene.pass_until(lambda: find_nominated(scene.server) is not None)
        before = scene.leader
        before.kill()
        scene.server.delete("persistentvolumeclaims", CLAIM)
        await scene.pass_until_leading(other_than=before)
        await scene.pass_until(lambda: find_nominated(scene.server) is None)
        assert find_nominated(scene.server, "team/other") == "n2"
        assert scene.server.find_requests("/pods/other/status") == []


@in_virtual_time
async def test_a_nomination_that_was_on_its_way_is_not_sent_without_the_lease() -> None:
    """It is decided before the fence closes, and has a connection after."""

    def find_nominations(requests: list[Request]) -> list[Request]:
        return [it for it in requests if it.method == "PATCH" and "nominatedNodeName" in it.body.get("status", {})]

    async with providing(2) as (scene, controllers):
        controllers.is_away = True
        leader = scene.leader
        scene.cause(ignore(LEASES, who=leader.name))
        await scene.pass_until(lambda: not leader.operator.parts.lead.elector.may_bind(MARGIN_SECONDS + 1.5))
        leader.connection.connect_seconds = 2.0
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until_leading(other_than=leader)
        assert find_nominations(scene.server.find_requests("/p/status", who=leader.name)) == []
        assert len(find_nominations(leader.connection.withheld)) == 1


@in_virtual_time
async def test_pods_are_bound_where_no_node_may_be_nominated() -> None:
    async with providing() as (scene, controllers):
        scene.cause(refuse(403, "/pods/p/status", method="PATCH"))
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await asyncio.sleep(5.0)
        controllers.is_away = False
        await scene.pass_until_bound("team/p")
        assert 0 < len(scene.server.find_requests("/pods/p/status")) < 3


FAULTS: dict[str, Callable[[], Fault]] = {
    "conflict": lambda: refuse(409, CLAIM_WRITES, method="PATCH", times=2),
    "overload": lambda: refuse(429, CLAIM_WRITES, method="PATCH", times=2, retry_after=1.0),
    "error": lambda: refuse(500, CLAIM_WRITES, method="PATCH", times=2),
    "lost answer": lambda: lose_answer(CLAIM_WRITES, method="PATCH", times=1),
    "slow": lambda: delay(2.0, CLAIM_WRITES, times=2),
    "no right for a while": lambda: refuse(403, CLAIM_WRITES, method="PATCH", times=1),
}


@pytest.mark.parametrize("fault", FAULTS)
@in_virtual_time
async def test_a_write_that_fails_is_tried_again(fault: str) -> None:
    async with providing() as (scene, controllers):
        scene.cause(FAULTS[fault]())
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until_bound("team/p", patience=60.0)
        assert set(controllers.asked) == {scene.server.find_node("team/p")}


@in_virtual_time
async def test_a_right_that_is_missing_is_told_to_the_pod() -> None:
    async with providing() as (scene, _):
        scene.cause(refuse(403, CLAIM_WRITES, method="PATCH", message="persistentvolumeclaims is forbidden"))
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: is_told(scene, "persistentvolumeclaims is forbidden"))
        assert scene.server.find_node("team/p") is None


@pytest.mark.slow
@in_virtual_time
async def test_pods_that_wait_for_volumes_do_not_stop_a_namespace_without_any() -> None:
    """A provisioner that never answers, and more pods of many namespaces than there are places for bindings."""
    async with providing() as (scene, controllers):
        controllers.is_away = True
        free = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
        scene.server.put("nodes", make_node("large", allocatable=free, labels={"kubernetes.io/hostname": "large"}))
        teams = [f"team-{number}" for number in range(18)]
        keys = [(team, f"c{number}") for team in teams for number in range(32)]
        for team, name in keys:
            claim, pod = make_claim(name), claiming(f"p-{name}", name)
            claim["metadata"]["namespace"] = team
            pod["metadata"] |= {"namespace": team, "uid": f"{team}-{name}"}
            scene.server.put("persistentvolumeclaims", claim)
            scene.server.put("pods", pod)
        await asyncio.sleep(10.0)
        scene.server.put("pods", make_pod("other", namespace="calm", requests={"cpu": "1"}))
        began = scene.now
        await scene.pass_until_bound("calm/other")
        assert scene.now - began < 2.0
        controllers.is_away = False
        await scene.pass_until_bound(*(f"{team}/p-{name}" for team, name in keys), patience=120.0)
