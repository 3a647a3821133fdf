"""The three parts of an operator's life: listing, running, ending."""

from __future__ import annotations

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.apiserver import COLLECTIONS
from kube.assembled.faults import BINDINGS, EVENTS, POD_STATUSES, delay, refuse
from kube.assembled.replicas import NAMESPACE, in_virtual_time, playing


@pytest.mark.parametrize(("path", "kind"), COLLECTIONS.items(), ids=COLLECTIONS.values())
@in_virtual_time
async def test_before_all_is_listed_nothing_is_decided_and_no_lease_is_asked_for(path: str, kind: str) -> None:
    async with playing(0) as scene:
        scene.cause(delay(5.0, f"{path}$", method="GET"))
        scene.server.put("nodes", make_node("n1"))
        scene.server.put("pods", make_pod("p"))
        replica = scene.start()
        await scene.pass_until(lambda: scene.now > 4.0)
        assert f"{kind}: not listed yet" in str(replica.health.find_unready())
        bound_at = await scene.pass_until_bound("team/p")
        assert bound_at > 5.0
        assert scene.server.find_requests("/leases")[0].at > 5.0
        assert replica.health.find_unready() is None


@in_virtual_time
async def test_what_weights_say_holds_in_the_first_cycle() -> None:
    """Without the list of Tenants, each namespace would get a half."""
    one_core = {"cpu": "1"}
    async with playing(0) as scene:
        scene.cause(delay(2.0, "/tenants$", method="GET"))
        scene.server.put("nodes", make_node("n1", allocatable={"cpu": "4", "pods": "10"}))
        scene.server.put("tenants", {"metadata": {"name": "heavy"}, "spec": {"namespaces": ["other"], "weight": 3}})
        for namespace in ("team", "other"):
            pods = (make_pod(f"p{n}", namespace=namespace, uid=f"{namespace}{n}", requests=one_core) for n in range(4))
            scene.server.put("pods", *pods)
        scene.start()
        await scene.pass_until(lambda: len(scene.server.bound) == 4)
        assert sorted(uid[:-1] for _, _, uid, _ in scene.server.bound) == ["other"] * 3 + ["team"]


@in_virtual_time
async def test_what_runs_beside_the_operator_belongs_to_nobody_and_makes_its_node_smaller() -> None:
    async with playing(0) as scene:
        scene.server.put("nodes", make_node("n1"))
        scene.server.put(
            "pods",
            make_pod("fairbind", namespace=NAMESPACE, scheduler="default", node="n1", requests={"cpu": "1"}),
            make_pod("p", requests={"cpu": "1"}),
        )
        replica = scene.start()
        await scene.pass_until(lambda: replica.observer.overview and "ns/team" in replica.observer.tenants)
        assert set(replica.observer.tenants) == {"ns/team"}
        assert replica.observer.overview is not None
        assert replica.observer.overview.capacity["cpu"] == 3.0


@in_virtual_time
async def test_a_binding_on_its_way_is_waited_for_before_the_lease_is_given_back() -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(delay(2.5, BINDINGS))
        scene.server.put("pods", make_pod("p"))
        await scene.pass_until(lambda: scene.server.find_requests("/p/binding"))
        leader.ask_to_stop()
        await leader.task
        (bound_at,) = (at for at, _, _, _ in scene.server.bound)
        given_back = scene.server.find_requests("/leases/fairbind", "PUT")[-1]
        assert given_back.body["spec"]["holderIdentity"] == ""
        assert bound_at < given_back.at
        assert [result for _, result in leader.observer.results] == ["bound"]
        assert [event["reason"] for event in scene.server.kinds["events"].objects.values()] == ["Scheduled"]


@in_virtual_time
async def test_who_ends_sends_no_binding_any_more() -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(503, BINDINGS))
        scene.server.put("pods", make_pod("p"))
        await scene.pass_until(lambda: scene.server.find_requests("/p/binding"))
        sent = len(scene.server.find_requests("/p/binding"))
        leader.ask_to_stop()
        scene.server.put("pods", make_pod("late"))
        asked_at = scene.now
        await leader.task
        assert len(scene.server.find_requests("/binding")) == sent
        assert scene.now - asked_at < 8.0


@in_virtual_time
async def test_who_ends_tells_of_all_pods_that_it_has_bound() -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.server.put("pods", *(make_pod(f"p{n}") for n in range(30)))
        await scene.pass_until(lambda: len(scene.server.bound) == 30)
        leader.ask_to_stop()
        await leader.task
        assert len(scene.server.kinds["events"].objects) == 30


@in_virtual_time
async def test_the_lease_is_given_back_so_that_another_leads_at_once() -> None:
    async with playing(2) as scene:
        leader = await scene.pass_until_leading()
        leader.ask_to_stop()
        await leader.task
        assert scene.server.holder == ""
        ended_at = scene.now
        await scene.pass_until_leading(other_than=leader)
        assert scene.now - ended_at < 2.0


@in_virtual_time
async def test_the_recorder_waits_for_as_long_as_the_server_asks() -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.cause(*(refuse(429, path, retry_after=20.0, times=1) for path in (POD_STATUSES, EVENTS)))
        scene.server.put("pods", make_pod("p", requests={"cpu": "5"}))
        await scene.pass_until(lambda: scene.server.kinds["events"].objects, patience=90.0)
        first, second, *_ = [request.at for request in scene.server.find_requests("/p/status")]
        assert 20.0 <= second - first < 30.0
        events = [request.at for request in scene.server.find_requests("/events")]
        assert 20.0 <= events[1] - events[0] < 30.0
        assert events[0] > second
