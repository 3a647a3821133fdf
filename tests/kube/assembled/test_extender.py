"""Extender mode, assembled: a kube-scheduler asks whole operators before it places a pod."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.loop.bind_limits import MAX_BACKOFF_SECONDS, PROBES
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.cluster.other_schedulers.extender import OWN_REASONS
from fairbind.kube.operator.extender import ExtenderSettings
from fairbind.kube.writers.nudge import PERMIT_CONDITION
from kube.assembled.faults import LEASES, delay, ignore, lose_answer, refuse
from kube.assembled.replicas import Replica, Scene, in_virtual_time, playing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

OTHER = "default-scheduler"
SETTINGS = ExtenderSettings(frozenset({OTHER}))
STEP_SECONDS = 0.02
PATIENCE_SECONDS = 1.0
"""Of kube-scheduler, with an answer; a binding may take longer."""


def make_asking(name: str, *, namespace: str = "team", requests: dict[str, str] | None = None, **spec: Any) -> Json:
    requests = requests or {"cpu": "1"}
    return make_pod(
        name, namespace=namespace, uid=f"uid-{namespace}-{name}", scheduler=OTHER, requests=requests, **spec
    )


def put_tenants(scene: Scene, **weights: int) -> None:
    for name, weight in weights.items():
        scene.server.put("tenants", {"metadata": {"name": name}, "spec": {"namespaces": [name], "weight": weight}})


def put_backlog(scene: Scene, count: int, *namespaces: str) -> None:
    scene.server.put("pods", *(make_asking(f"p{n}", namespace=name) for n in range(count) for name in namespaces))


async def ask(replica: Replica, verb: str, **args: Any) -> tuple[int, Any]:
    extender = replica.operator.parts.extender
    assert extender is not None
    status, body = await extender.answer(verb, json.dumps(args).encode())
    return status, json.loads(body) if status == 200 else body.decode()


class KubeScheduler:
    """Looks at a pod when it is new and after each change of that pod.

    When a binding has failed it looks again at all pods that extenders refused, and at no other time, as its worst.

    refuses: pods that its own filters refuse. ignores: whether it never asks for the pod with this key. reasons: what
    extenders said last, by pod. failed: bindings that failed. looks: how often it looked at each pod.
    """

    def __init__(self, scene: Scene, *, ignores: Callable[[str], bool] = lambda _key: False) -> None:
        self._scene = scene
        self._ignores = ignores
        self._seen: dict[str, str] = {}
        self._assumed: dict[str, str] = {}
        self._binding: set[asyncio.Task[None]] = set()
        self._refused: set[str] = set()
        self.looks: Counter[str] = Counter()
        self.refuses: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.failed: list[str] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            for key, pod in sorted(self._scene.server.kinds["pods"].objects.items()):
                version = pod["metadata"]["resourceVersion"]
                if pod["spec"].get("nodeName") or pod["spec"]["schedulerName"] != OTHER or key in self._assumed:
                    continue
                if self._seen.get(key) != version and not self._ignores(key):
                    await self._schedule(key, pod, version)

    def _find_nodes(self, pod: Json) -> list[str]:
        server = self._scene.server
        fitting = []
        for node in sorted(server.kinds["nodes"].objects):
            free = server.find_free(node)
            for key, place in self._assumed.items():
                if place == node and key in server.kinds["pods"].objects and not server.find_node(key):
                    for resource, amount in server.find_demand(server.get("pods", key)).items():
                        free[resource] = free.get(resource, amount) - amount
            if all(free.get(resource, 0) >= amount for resource, amount in server.find_demand(pod).items()):
                fitting.append(node)
        return fitting

    async def _schedule(self, key: str, pod: Json, version: str) -> None:
        self.looks[key] += 1
        names = [] if key in self.refuses else self._find_nodes(pod)
        leader = next((replica for replica in self._scene.replicas if replica.leads), None)
        if leader is None:
            return  # its Service has no endpoint
        if names:
            status, found = await ask(leader, "filter", Pod=pod, NodeNames=names)
            if status != 200:
                return  # an error: it tries again
            self.reasons[key] = next(iter(found["FailedNodes"].values()), "")
            if not (names := found["NodeNames"]):
                self._refused.add(key)
        self._seen[key] = version
        if not names:
            return
        _, scores = await ask(leader, "prioritize", Pod=pod, NodeNames=names)
        node = max(scores, key=lambda score: score["Score"])["Host"]
        self._assumed[key] = node
        task = asyncio.get_running_loop().create_task(self._bind(leader, key, pod, node))
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _bind(self, leader: Replica, key: str, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        error = "it does not answer"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                status, answer = await ask(
                    leader, "bind", PodName=meta["name"], PodNamespace=meta["namespace"], PodUID=meta["uid"], Node=node
                )
                error = answer if status != 200 else answer["Error"]
        if error:
            self.failed.append(error)
            del self._assumed[key]
            self._seen.pop(key, None)
            self._look_again(self._refused)
            self._refused = set()

    def _look_again(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._seen.pop(key, None)


@contextlib.asynccontextmanager
async def scheduling(scene: Scene) -> AsyncIterator[KubeScheduler]:
    scheduler = KubeScheduler(scene)
    task = asyncio.get_running_loop().create_task(scheduler.run())
    try:
        yield scheduler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def count_bound(scene: Scene) -> Counter[str]:
    pods = scene.server.kinds["pods"].objects.items()
    return Counter(key.partition("/")[0] for key, pod in pods if pod["spec"].get("nodeName"))


@in_virtual_time
async def test_shares_follow_the_weights_and_no_room_is_idle_for_long() -> None:
    async with playing(extender=SETTINGS) as scene, scheduling(scene) as scheduler:
        put_tenants(scene, team=1, other=2)
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(3)))
        put_backlog(scene, 20, "team", "other")
        await scene.pass_until_leading()
        await scene.pass_until(lambda: count_bound(scene).total() == 12)
        assert count_bound(scene) == {"team": 4, "other": 8}
        assert len(scene.server.bound) == 12, "each binding is ours"
        assert scheduler.failed == []
        await asyncio.sleep(30.0)  # all others sleep
        pods = scene.server.kinds["pods"].objects
        gone = [key for key, pod in pods.items() if key.startswith("other") and pod["spec"].get("nodeName")]
        scene.server.delete("pods", gone[0])
        freed_at = scene.now
        await scene.pass_until(lambda: count_bound(scene).total() == 12)
        assert scene.now - freed_at <= 2.0
        assert count_bound(scene) == {"team": 4, "other": 8}
        conditions = {each["type"] for pod in pods.values() for each in pod["status"].get("conditions", ())}
        assert conditions <= {PERMIT_CONDITION, "PodScheduled"}


@in_virtual_time
async def test_only_the_leader_answers() -> None:
    async with playing(2, extender=SETTINGS) as scene:
        leader = await scene.pass_until_leading()
        (standby,) = (replica for replica in scene.replicas if replica is not leader)
        for verb in ("filter", "prioritize", "bind", "preempt"):
            assert (await ask(standby, verb))[0] == 503
            assert (await ask(leader, verb))[0] == 400, "the request makes no sense"
        pod = make_asking("p")
        assert (await ask(leader, "filter", Pod=pod, Nodes={}))[1]["Error"]
        assert (await ask(leader, "preempt", Pod=pod))[1] == {"NodeNameToMetaVictims": {}}


@in_virtual_time
async def test_a_pod_that_is_not_placed_in_time_loses_its_turn_and_gets_another() -> None:
    async with playing(extender=SETTINGS) as scene, scheduling(scene) as scheduler:
        put_tenants(scene, team=1, other=1)
        scene.server.put("nodes", make_node("n1", allocatable={"cpu": "1", "memory": "8Gi", "pods": "110"}))
        scheduler.refuses.add("team/p0")
        scene.server.put("pods", make_asking("p0", priority=9))
        await scene.pass_until_leading()
        await scene.pass_until(lambda: scene.server.get("pods", "team/p0")["status"].get("conditions"))
        given_at = scene.now
        scene.server.put("pods", make_asking("p0", namespace="other"))
        await scene.pass_until(lambda: "other/p0" in scheduler.reasons)
        await asyncio.sleep(1.0)  # the first time it may ask before we have seen the pod; a change makes it ask again
        scene.server.change("pods", "other/p0", lambda pod: pod["metadata"].update(labels={"changed": "yes"}))
        not_yet = "not its turn: tenant team comes before"
        await scene.pass_until(lambda: scheduler.reasons["other/p0"] == not_yet)
        await scene.pass_until_bound("other/p0")
        assert scene.now - given_at >= SETTINGS.timeout_seconds - 1.0
        events = scene.server.kinds["events"].objects.values()
        await scene.pass_until(lambda: any(event["reason"] == "NotPlacedInTime" for event in events))
        scene.server.delete("pods", "other/p0")
        scheduler.refuses.clear()
        await scene.pass_until_bound("team/p0")


@pytest.mark.parametrize(
    ("reason", "turns"), [*((reason, 6) for reason in OWN_REASONS), ("Insufficient cpu", 1), ("node(s) had taints", 1)]
)
@in_virtual_time
async def test_a_refusal_of_ours_that_kube_scheduler_repeats_leaves_a_tenant_its_part_of_the_turns(
    reason: str, turns: int
) -> None:
    """Of eight turns one tenant has six, and one once kube-scheduler refused a pod of it."""
    async with playing(extender=ExtenderSettings(frozenset({OTHER}), most=8)) as scene:
        scene.server.put("nodes", make_node("n1", allocatable={"cpu": "99", "memory": "99Gi", "pods": "110"}))
        scene.server.put("pods", make_asking("p0"))
        await scene.pass_until_leading()
        await scene.pass_until(lambda: find_nudged(scene))
        message = f"0/2 nodes are available: 2 {reason}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        scene.server.change("pods", "team/p0", lambda pod: pod["status"]["conditions"].append(condition))
        events = scene.server.kinds["events"].objects.values()
        await scene.pass_until(lambda: any(event["reason"] == "NotPlacedInTime" for event in events), patience=40.0)
        scene.server.put("pods", *(make_asking(f"q{n}") for n in range(20)))
        await asyncio.sleep(2.0)
        assert len(find_nudged(scene) - {"team/p0"}) == turns


@in_virtual_time
async def test_a_binding_goes_on_when_kube_scheduler_waits_no_longer() -> None:
    """Answers are lost and late; nothing is bound twice, and what is bound counts."""
    async with playing(extender=SETTINGS) as scene, scheduling(scene) as scheduler:
        put_tenants(scene, team=1, other=1)
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(lose_answer("/binding", times=2), delay(2.5, "/binding", times=4))
        put_backlog(scene, 6, "team", "other")
        await scene.pass_until(lambda: count_bound(scene).total() == 4, patience=120.0)
        await asyncio.sleep(30.0)
        assert count_bound(scene) == {"team": 2, "other": 2}
        assert scheduler.failed


@in_virtual_time
async def test_who_was_frozen_binds_nothing_when_it_thaws_and_turns_are_given_again() -> None:
    async with playing(2, extender=SETTINGS) as scene, scheduling(scene):
        put_tenants(scene, team=1, other=2)
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(3)))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(503, "/binding", who=leader.name))
        put_backlog(scene, 20, "team", "other")
        await scene.pass_until(lambda: scene.server.find_requests("/binding"))
        leader.process.freeze()
        await scene.pass_until_leading(other_than=leader)
        await scene.pass_until(lambda: count_bound(scene).total() == 12)
        leader.process.thaw()
        await asyncio.sleep(20.0)
        assert count_bound(scene) == {"team": 4, "other": 8}


@in_virtual_time
async def test_a_leader_that_loses_the_lease_takes_its_turns_back() -> None:
    async with playing(2, extender=SETTINGS) as scene:
        put_tenants(scene, team=1)
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.server.put("pods", make_asking("p0"))
        await scene.pass_until(lambda: leader.operator.parts.cache.queries.has_waiting is False)
        scene.cause(ignore(LEASES, who=leader.name))
        await scene.pass_until_leading(other_than=leader)
        await scene.pass_until(lambda: not leader.leads)
        assert leader.operator.parts.cache.queries.has_waiting
        leader.operator.parts.cache.check_consistent()
        scene.heal()
        async with scheduling(scene):
            await scene.pass_until_bound("team/p0")


@in_virtual_time
async def test_a_pod_that_passed_before_the_lease_was_lost_is_bound_by_no_replica_without_a_turn() -> None:
    async with playing(2, extender=SETTINGS) as scene:
        put_tenants(scene, team=1)
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.server.put("pods", make_asking("p0"), make_asking("p1", requests={"cpu": "9"}))
        await scene.pass_until(lambda: find_nudged(scene))
        _, found = await ask(leader, "filter", Pod=make_asking("p0"), NodeNames=["n1"])
        assert found["NodeNames"] == ["n1"]
        scene.cause(ignore(LEASES, who=leader.name))
        other = await scene.pass_until_leading(other_than=leader)
        args = {"PodName": "p0", "PodNamespace": "team", "PodUID": "uid-team-p0", "Node": "n1"}
        assert (await ask(leader, "bind", **args))[0] == 503
        args |= {"PodName": "p1", "PodUID": "uid-team-p1"}
        assert (await ask(other, "bind", **args))[1]["Error"]
        assert not scene.server.find_requests("/binding")


@in_virtual_time
async def test_a_pod_that_is_not_known_is_bound_by_its_name_and_by_no_other_path() -> None:
    async with playing(extender=SETTINGS) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        args = {"PodName": "a/../b", "PodNamespace": "kube-system", "PodUID": "uid", "Node": "n1"}
        assert (await ask(leader, "bind", **args))[1]["Error"]
        assert [request.path for request in scene.server.find_requests("binding")] == [
            "/api/v1/namespaces/kube-system/pods/a%2F..%2Fb/binding"
        ]


@in_virtual_time
async def test_a_decision_about_a_pod_that_came_to_a_node_meanwhile_gives_no_turn() -> None:
    async with playing(extender=SETTINGS) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        extender = leader.operator.parts.extender
        assert extender is not None
        scene.server.put("pods", make_asking("p0", node="n1"))
        await scene.pass_until(lambda: leader.operator.parts.cache.find_pod("uid-team-p0"))
        assert await extender.bind("team", "p0", "uid-team-p0", "n1") is BindResult.CONFLICT
        assert not find_nudged(scene)


@in_virtual_time
async def test_a_nudge_that_fails_gives_the_room_back() -> None:
    async with playing(extender=SETTINGS) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(422, "/p0/status", times=1))
        scene.server.put("pods", make_asking("p0"))
        await scene.pass_until(lambda: scene.server.find_requests("/p0/status"))
        await asyncio.sleep(0.3)
        _, found = await ask(leader, "filter", Pod=make_asking("p0"), NodeNames=["n1"])
        assert found["NodeNames"] == [], "its turn is over"
        await scene.pass_until(lambda: leader.operator.parts.loop.decided == 2, patience=SETTINGS.timeout_seconds / 2)
        async with scheduling(scene):
            await scene.pass_until_bound("team/p0")


@in_virtual_time
async def test_a_binding_that_is_refused_gives_the_room_back() -> None:
    async with playing(extender=SETTINGS) as scene, scheduling(scene) as scheduler:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(refuse(422, "/p0/binding", times=1))
        scene.server.put("pods", make_asking("p0", requests={"cpu": "4"}))
        await scene.pass_until(lambda: scheduler.failed)
        scene.server.put("pods", make_asking("p0", namespace="other", requests={"cpu": "4"}))
        await scene.pass_until_bound("other/p0", patience=3.0)
        scene.server.delete("pods", "other/p0")
        await scene.pass_until_bound("team/p0")


@pytest.mark.slow
@in_virtual_time
async def test_where_a_namespaces_bindings_fail_few_of_its_pods_have_a_turn_until_one_succeeds() -> None:
    """Each failed binding makes kube-scheduler look at all pods again that fairbind refused."""
    async with playing(solves=False, extender=SETTINGS) as scene, scheduling(scene) as scheduler:
        scene.server.put("nodes", make_node("n1", allocatable={"cpu": "999", "memory": "999Gi", "pods": "999"}))
        await scene.pass_until_leading()
        scene.cause(refuse(500, "/namespaces/team/pods/[^/]+/binding$", message="failed calling webhook"))
        put_backlog(scene, 100, "team")
        await asyncio.sleep(20.0)
        failed = len(scheduler.failed)
        scheduler.looks.clear()
        await asyncio.sleep(20.0)
        rounds = 20.0 / MAX_BACKOFF_SECONDS
        assert 0 < len(scheduler.failed) - failed <= 2 * PROBES * rounds
        assert scheduler.looks.total() <= 2 * PROBES * rounds * 100
        scene.heal()
        await scene.pass_until(lambda: count_bound(scene) == {"team": 100}, patience=3 * MAX_BACKOFF_SECONDS)


@in_virtual_time
async def test_a_turn_that_was_passed_on_leaves_its_place() -> None:
    settings = ExtenderSettings(frozenset({OTHER}), most=1)
    async with playing(extender=settings) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        pods = {name: make_asking(name) for name in ("p0", "p1")}
        scene.server.put("pods", *pods.values())
        await scene.pass_until(lambda: find_nudged(scene))
        await asyncio.sleep(1.0)
        (first,) = find_nudged(scene)
        (second,) = {"team/p0", "team/p1"} - {first}
        name = second.partition("/")[2]
        _, found = await ask(leader, "filter", Pod=pods[name], NodeNames=["n1"])
        assert found["NodeNames"] == ["n1"]
        path = f"{first.partition('/')[2]}/status"
        nudges = len(scene.server.find_requests(path, "PATCH"))
        args = {"PodName": name, "PodNamespace": "team", "PodUID": f"uid-team-{name}", "Node": "n1"}
        assert await ask(leader, "bind", **args) == (200, {"Error": ""})
        await scene.pass_until(
            lambda: len(scene.server.find_requests(path, "PATCH")) > nudges, patience=settings.timeout_seconds / 2
        )
        await asyncio.sleep(0.5)
        assert await ask(leader, "bind", **args) == (200, {"Error": ""}), "it is bound there"
        assert (await ask(leader, "bind", **{**args, "Node": "n2"}))[1]["Error"]


@in_virtual_time
async def test_a_nudge_that_fails_amid_the_binding_takes_no_room_from_it() -> None:
    """kube-scheduler has asked by itself. Another pod would fit if the room were given away."""
    async with playing(extender=SETTINGS) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(refuse(422, "/p0/status", delay_seconds=0.5), delay(2.5, "/binding"))
        scene.server.put("pods", make_asking("p0", requests={"cpu": "4"}))
        await scene.pass_until(lambda: scene.server.find_requests("/p0/status"))
        async with scheduling(scene):
            await scene.pass_until(lambda: scene.server.find_requests("/p0/binding"))
            scene.server.put("pods", make_pod("own", namespace="other", requests={"cpu": "4"}))
            await scene.pass_until_bound("team/p0")
            await asyncio.sleep(10.0)
            assert scene.server.find_node("other/own") is None


def find_nudged(scene: Scene) -> set[str]:
    return {
        key
        for key, pod in scene.server.kinds["pods"].objects.items()
        if any(each["type"] == PERMIT_CONDITION for each in pod["status"].get("conditions", ()))
    }
