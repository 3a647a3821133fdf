"""Gate mode, assembled: another scheduler places the pods, and whole operators open their gates in a fair order."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.cluster.other_schedulers.gate_limiter import TIMEOUT_SECONDS
from fairbind.kube.operator.gates import GateSettings
from kube.assembled.faults import EVENTS, LEASES, delay, ignore, lose_answer, refuse
from kube.assembled.replicas import Scene, in_virtual_time, playing

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER = "default-scheduler"
GATES = GateSettings(OTHER)
PODS = "/pods/p0"


def make_gated(name: str, *, namespace: str = "team", requests: dict[str, str] | None = None, **spec: Any) -> Json:
    return make_pod(
        name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}",
        scheduler=OTHER,
        requests=requests or {"cpu": "1"},
        schedulingGates=[{"name": FAIRBIND_GATE}],
        **spec,
    )


def put_backlog(scene: Scene, **counts: int) -> None:
    """Put so many gated pods of each namespace."""
    scene.server.put(
        "pods", *(make_gated(f"p{n}", namespace=name) for name, count in counts.items() for n in range(count))
    )


def is_open(scene: Scene, key: str) -> bool:
    return "schedulingGates" not in scene.server.get("pods", key)["spec"]


def find_on_their_way(scene: Scene) -> list[str]:
    return [
        key
        for key, pod in scene.server.kinds["pods"].objects.items()
        if pod["spec"]["schedulerName"] == OTHER and not {"schedulingGates", "nodeName"} & pod["spec"].keys()
    ]


def place(scene: Scene, *, but: Callable[[str], bool] = lambda _: False) -> None:
    """Place the pods with open gates as kube-scheduler does: the first node with room, in the order of creation."""
    for key in sorted(find_on_their_way(scene)):
        demand = scene.server.find_demand(scene.server.get("pods", key))
        for node in sorted(scene.server.kinds["nodes"].objects):
            free = scene.server.find_free(node)
            if not but(key) and all(free.get(resource, 0) >= amount for resource, amount in demand.items()):
                scene.server.bind_elsewhere(key, node)
                break


def count_by_namespace(scene: Scene, *, opened: bool = False) -> Counter[str]:
    """Return how many pods of each namespace have a node, or have an open gate."""
    return Counter(
        key.partition("/")[0]
        for key, pod in scene.server.kinds["pods"].objects.items()
        if pod["spec"].get("nodeName") or (opened and not pod["spec"].get("schedulingGates"))
    )


def find_condition(scene: Scene, tenant: str) -> Json:
    status = scene.server.get("tenants", tenant).get("status") or {}
    return next((c for c in status.get("conditions", ()) if c["type"] == "PodsPlaced"), {})


def find_events(scene: Scene, reason: str) -> list[Json]:
    return [event for event in scene.server.kinds["events"].objects.values() if event["reason"] == reason]


def put_tenants(scene: Scene, **weights: int) -> None:
    for name, weight in weights.items():
        scene.server.put("tenants", {"metadata": {"name": name}, "spec": {"namespaces": [name], "weight": weight}})


@in_virtual_time
async def test_gates_open_by_weights_while_another_scheduler_places_the_pods() -> None:
    async with playing(gates=GateSettings(OTHER, most=4)) as scene:
        put_tenants(scene, team=1, other=2)
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(3)))
        put_backlog(scene, team=20, other=20)
        await scene.pass_until_leading()
        while sum(count_by_namespace(scene).values()) < 12:
            await scene.pass_until(lambda: find_on_their_way(scene))
            assert len(find_on_their_way(scene)) <= 4
            place(scene)
        await scene.pass_until(lambda: scene.now > 60.0, patience=60.0)
        assert count_by_namespace(scene) == {"team": 4, "other": 8}
        assert count_by_namespace(scene, opened=True) == {"team": 4, "other": 8}, "what fits nowhere keeps its gate"
        assert scene.server.bound == []
        assert not scene.server.find_requests("/status", who=scene.leader.name) or all(
            "/pods/" not in request.path for request in scene.server.find_requests("/status")
        ), "the condition of a gated pod is the API server's"
        assert find_events(scene, "FailedScheduling")
        assert not find_events(scene, "Scheduled"), "the other scheduler says so"


@pytest.mark.parametrize("has_users", [False, True])
@in_virtual_time
async def test_a_pod_that_is_not_placed_in_time_gives_its_room_back_and_not_its_share(has_users: bool) -> None:  # noqa: FBT001
    async with playing(gates=GATES) as scene:
        put_tenants(scene, team=1, other=1)
        if has_users:
            scene.server.change("tenants", "team", lambda tenant: tenant["spec"].update(users={"label": "user"}))
        scene.server.put("nodes", make_node("n1", allocatable={"cpu": "2", "memory": "8Gi", "pods": "110"}))
        put_backlog(scene, team=2, other=2)
        await scene.pass_until_leading()
        await scene.pass_until(lambda: len(find_on_their_way(scene)) == 2)
        (stuck,) = (key for key in find_on_their_way(scene) if key.startswith("team"))
        words = "0/1 nodes are available: 1 node(s) had a plugin."
        scene.server.change(
            "pods",
            stuck,
            lambda pod: pod["status"].update(
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}]
            ),
        )
        place(scene, but=lambda key: key == stuck)
        opened_at = max(at for at, _, _ in scene.server.opened)
        await scene.pass_until(lambda: len(scene.server.opened) == 3, patience=2 * TIMEOUT_SECONDS)
        assert scene.now >= opened_at + TIMEOUT_SECONDS - 0.1
        if not has_users:
            assert count_by_namespace(scene, opened=True) == {"team": 1, "other": 2}, (
                "the share of the stuck pod counts"
            )
        await scene.pass_until(lambda: find_condition(scene, "team").get("status") == "False")
        assert words in find_condition(scene, "team")["message"]
        assert find_condition(scene, "other")["status"] == "True"
        (event,) = find_events(scene, "NotPlacedInTime")
        assert event["regarding"]["name"] == stuck.partition("/")[2]
        assert words in event["note"]
        scene.server.delete("pods", stuck)
        await scene.pass_until(lambda: find_condition(scene, "team")["status"] == "True")


@in_virtual_time
async def test_pods_that_wait_on_a_nominated_node_leave_their_places_when_their_time_is_over() -> None:
    """As while volumes are made for them. They keep their room there, so giving it back changes nothing."""
    async with playing(gates=GateSettings(OTHER, most=2)) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        put_backlog(scene, team=4)
        await scene.pass_until(lambda: len(scene.server.opened) == 2)
        for key in find_on_their_way(scene):
            scene.server.change("pods", key, lambda pod: pod["status"].update(nominatedNodeName="n1"))
        await scene.pass_until(lambda: len(scene.server.opened) == 4, patience=2 * TIMEOUT_SECONDS)


@in_virtual_time
async def test_a_scheduler_so_slow_that_all_pods_are_late_changes_no_shares() -> None:
    """It takes the gates in the order of their opening, one in five seconds, so most pods wait for longer than 30 s."""
    async with playing(solves=False, gates=GateSettings(OTHER, most=12)) as scene:
        put_tenants(scene, team=1, other=2, third=3)
        scene.server.put("namespaces", make_namespace("third"))
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(6)))
        put_backlog(scene, team=30, other=30, third=30)
        await scene.pass_until_leading()
        await scene.pass_until(lambda: len(scene.server.opened) >= 9)
        placed = 0
        while sum(count_by_namespace(scene).values()) < 24:
            uid = scene.server.opened[placed][2]
            placed += 1
            key = next(k for k, pod in scene.server.kinds["pods"].objects.items() if pod["metadata"]["uid"] == uid)
            place(scene, but=lambda other, key=key: other != key)  # type: ignore[misc]  # a default
            await asyncio.sleep(5.0)
        assert find_events(scene, "NotPlacedInTime")
        for counts in (count_by_namespace(scene), count_by_namespace(scene, opened=True)):
            for name, weight in (("team", 1), ("other", 2), ("third", 3)):
                assert abs(counts[name] - counts.total() * weight / 6) <= 1, counts


@in_virtual_time
async def test_who_was_frozen_opens_no_gate_when_it_thaws() -> None:
    async with playing(2, gates=GATES) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(503, PODS, who=leader.name))
        put_backlog(scene, team=1)
        await scene.pass_until(lambda: scene.server.find_requests(PODS, "PATCH"))
        leader.process.freeze()
        other = await scene.pass_until_leading(other_than=leader)
        scene.cause(refuse(503, PODS, who=other.name, until=scene.now + 5.0))
        sent = len(scene.server.find_requests(PODS, "PATCH", who=leader.name))
        leader.process.thaw()
        await scene.pass_until(lambda: is_open(scene, "team/p0"))
        await scene.pass_until(lambda: leader.observer.results)
        assert len(scene.server.find_requests(PODS, "PATCH", who=leader.name)) == sent
        assert [who for _, who, _ in scene.server.opened] == [other.name]


@in_virtual_time
async def test_a_leader_that_loses_the_lease_opens_nothing_more() -> None:
    """The server takes nearly as long as it may; what was sent last has ended before another decides."""
    async with playing(2, gates=GATES) as scene:
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(4)))
        leader = await scene.pass_until_leading()
        scene.cause(ignore(LEASES, who=leader.name), delay(2.9, "/pods/", who=leader.name))
        number = 0
        while not any(replica.leads for replica in scene.replicas if replica is not leader):
            scene.server.put("pods", make_gated(f"p{number}", requests={"cpu": "100m"}))
            number += 1
            await asyncio.sleep(0.2)
        await scene.pass_until(lambda: len(scene.server.opened) == number)
        (other,) = (replica for replica in scene.replicas if replica is not leader)
        last = max(r.at for r in scene.server.requests if r.method == "PATCH" and r.who == leader.name)
        assert last + 2.9 < min(r.at for r in scene.server.requests if r.method == "PATCH" and r.who == other.name)


@in_virtual_time
async def test_a_new_leader_gives_no_room_away_that_open_gates_are_about_to_take() -> None:
    async with playing(2, gates=GATES) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        put_backlog(scene, team=10)
        await scene.pass_until(lambda: len(find_on_their_way(scene)) == 4)
        leader.kill()
        await scene.pass_until_leading(other_than=leader)
        await asyncio.sleep(10.0)
        assert len(scene.server.opened) == 4
        place(scene)
        assert count_by_namespace(scene, opened=True) == {"team": 4}


@in_virtual_time
async def test_a_pod_that_changed_meanwhile_is_opened_as_it_is_now() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(delay(1.0, PODS, times=1))
        put_backlog(scene, team=1)
        await scene.pass_until(lambda: scene.server.find_requests(PODS, "PATCH"))
        scene.server.change("pods", "team/p0", lambda pod: pod["metadata"]["labels"].update(a="b"))
        await scene.pass_until(lambda: is_open(scene, "team/p0"), patience=5.0)
        await scene.pass_until(lambda: scene.leader.observer.results)
        assert [result for _, result in scene.leader.observer.results] == ["bound"]
        assert len(scene.server.find_requests(PODS, "PATCH")) == 2


@in_virtual_time
async def test_a_lost_answer_opens_nothing_twice() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(lose_answer(PODS, times=1))
        put_backlog(scene, team=1)
        await scene.pass_until(lambda: scene.leader.observer.results)
        assert [result for _, result in scene.leader.observer.results] == ["bound"]
        assert len(scene.server.opened) == 1


@in_virtual_time
async def test_gates_of_pods_that_belong_to_no_tenant_are_opened_without_a_turn() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("pods", make_gated("p0", namespace="kube-system"), make_gated("p0", requests={"cpu": "9"}))
        await scene.pass_until(lambda: is_open(scene, "kube-system/p0"))
        assert not is_open(scene, "team/p0")


@in_virtual_time
async def test_pods_of_both_schedulers_share_one_cluster_and_one_set_of_books() -> None:
    async with playing(gates=GATES) as scene:
        put_tenants(scene, team=1, other=1)
        scene.server.put("nodes", *(make_node(f"n{n}") for n in range(2)))
        await scene.pass_until_leading()
        put_backlog(scene, team=8)
        bound = [make_pod(f"b{n}", namespace="other", uid=f"uid-b{n}", requests={"cpu": "1"}) for n in range(8)]
        scene.server.put("pods", *bound)
        await scene.pass_until(lambda: len(scene.server.opened) + len(scene.server.bound) == 8)
        place(scene)
        assert count_by_namespace(scene) == {"team": 4, "other": 4}


@in_virtual_time
async def test_by_server_class_a_pod_is_narrowed_to_the_nodes_of_its_class() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("schedulingpolicies", {"metadata": {"name": "default"}, "spec": {"policy": "ps-dsf"}})
        nodes = [(f"big{n}", "8") for n in range(2)] + [(f"small{n}", "1") for n in range(2)]
        scene.server.put(
            "nodes",
            *(
                make_node(
                    name,
                    allocatable={"cpu": cpu, "memory": "8Gi", "pods": "110"},
                    labels={"kubernetes.io/hostname": f"host-{name}", "zone": name[-1]},
                )
                for name, cpu in nodes
            ),
        )
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["0", "1"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]}}
        await scene.pass_until_leading()
        scene.server.put(
            "pods",
            make_gated("p0", requests={"cpu": "4"}),
            make_gated("p1", requests={"cpu": "4"}, affinity={"nodeAffinity": required}),
        )
        await scene.pass_until(lambda: len(scene.server.opened) == 2)
        for name, before in (("p0", []), ("p1", zone["matchExpressions"])):
            affinity = scene.server.get("pods", f"team/{name}")["spec"]["affinity"]["nodeAffinity"]
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            *others, hosts = term["matchExpressions"]
            assert others == before
            assert sorted(hosts["values"]) == ["host-big0", "host-big1"], "all nodes of the class, not the decided one"


@in_virtual_time
async def test_where_labels_do_not_tell_nodes_apart_the_pod_is_not_narrowed_and_is_told_so() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("schedulingpolicies", {"metadata": {"name": "default"}, "spec": {"policy": "ps-dsf"}})
        scene.server.put("nodes", make_node("n1"), make_node("n2", allocatable={"cpu": "9", "pods": "9"}))
        await scene.pass_until_leading()
        put_backlog(scene, team=1)
        await scene.pass_until(lambda: find_events(scene, "NotNarrowed"))
        assert not scene.server.get("pods", "team/p0")["spec"].get("affinity")


@in_virtual_time
async def test_a_namespace_whose_events_fail_gets_its_gates_opened_all_the_same() -> None:
    async with playing(gates=GATES) as scene:
        scene.server.put("namespaces", make_namespace("third"))
        scene.server.put("nodes", make_node("n1"))
        scene.cause(refuse(403, EVENTS))
        await scene.pass_until_leading()
        put_backlog(scene, third=2)
        await scene.pass_until(lambda: len(scene.server.opened) == 2)


@in_virtual_time
async def test_a_leader_that_regains_the_lease_gives_no_room_to_pods_that_have_had_their_time() -> None:
    async with playing(gates=GATES) as scene:
        put_tenants(scene, team=1, other=1)
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.server.put("pods", make_gated("p0", requests={"cpu": "4"}))
        await scene.pass_until(lambda: find_events(scene, "NotPlacedInTime"), patience=2 * TIMEOUT_SECONDS)
        scene.cause(ignore(LEASES, until=scene.now + 14.0))
        await scene.pass_until(lambda: not any(replica.leads for replica in scene.replicas))
        await scene.pass_until_leading()
        scene.server.put("pods", make_gated("p0", namespace="other", requests={"cpu": "4"}))
        await scene.pass_until(lambda: is_open(scene, "other/p0"))
