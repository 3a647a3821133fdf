"""Who does not lead any more sends nothing more, whatever was under way; the server notes who does."""

from __future__ import annotations

import asyncio

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import BINDINGS, EVENTS, LEASES, POD_STATUSES, delay, ignore, refuse
from kube.assembled.replicas import Replica, Scene, in_virtual_time, playing


async def lose_leadership(scene: Scene, leader: Replica) -> Replica:
    """Let no request about the lease of the leader through, until another leads; return that one."""
    scene.cause(ignore(LEASES, who=leader.name))
    return await scene.pass_until_leading(other_than=leader)


@pytest.mark.parametrize("status", [503, 429])
@in_virtual_time
async def test_a_binding_that_was_being_repeated_ends_with_the_lease(status: int) -> None:
    """After 503 it is given back between attempts; after 429 one and the same binding goes on for half a minute."""
    async with playing(2) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(status, BINDINGS, who=leader.name))
        scene.server.put("pods", make_pod("p"))
        await scene.pass_until(lambda: scene.server.find_requests("/p/binding"))
        other = await lose_leadership(scene, leader)
        await scene.pass_until_bound("team/p")
        await scene.pass_until(lambda: leader.observer.results)
        lost_at = next(at for at, leads in reversed(leader.observer.changes) if not leads)
        sent = [request.at for request in scene.server.find_requests("/binding", who=leader.name)]
        assert len(sent) > 2
        assert max(sent) < lost_at
        assert {result for _, result in leader.observer.results} <= {"failed", "fenced"}
        assert [who for _, who, _, _ in scene.server.bound] == [other.name]


@in_virtual_time
async def test_who_was_frozen_binds_nothing_when_it_thaws() -> None:
    async with playing(2) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(refuse(503, BINDINGS, who=leader.name))
        scene.server.put("pods", make_pod("p"))
        await scene.pass_until(lambda: scene.server.find_requests("/p/binding"))
        leader.process.freeze()
        other = await scene.pass_until_leading(other_than=leader)
        scene.cause(refuse(503, BINDINGS, who=other.name, until=scene.now + 5.0))
        sent = len(scene.server.find_requests("/binding", who=leader.name))
        leader.process.thaw()
        await scene.pass_until_bound("team/p")
        await scene.pass_until(lambda: leader.observer.results)
        assert len(scene.server.find_requests("/binding", who=leader.name)) == sent
        assert [who for _, who, _, _ in scene.server.bound] == [other.name]


@in_virtual_time
async def test_what_was_sent_last_has_ended_before_another_decides() -> None:
    """The server takes nearly as long as it may, and pods come all the time."""
    async with playing(2) as scene:
        scene.server.put("nodes", *(make_node(f"n{number}") for number in range(4)))
        leader = await scene.pass_until_leading()
        seconds = 2.9
        scene.cause(ignore(LEASES, who=leader.name), delay(seconds, BINDINGS, who=leader.name))
        number = 0
        while not any(replica.leads for replica in scene.replicas if replica is not leader):
            scene.server.put("pods", make_pod(f"p{number}", requests={"cpu": "100m"}))
            number += 1
            await asyncio.sleep(0.2)
        await scene.pass_until(lambda: len(scene.server.bound) == number)
        (other,) = (replica for replica in scene.replicas if replica is not leader)
        last = scene.server.find_requests("/binding", who=leader.name)[-1].at
        assert last > 5.0
        assert last + seconds < scene.server.find_requests("/binding", who=other.name)[0].at


@in_virtual_time
async def test_conditions_and_events_that_were_still_to_be_written_are_left_to_the_next_leader() -> None:
    async with playing(2) as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(*(refuse(429, path, retry_after=20.0, who=leader.name) for path in (EVENTS, POD_STATUSES)))
        scene.server.put("pods", *(make_pod(f"p{n}", requests={"cpu": "5"}) for n in range(30)))
        await scene.pass_until(lambda: scene.server.find_requests("/status", who=leader.name))
        other = await lose_leadership(scene, leader)
        written = len(scene.server.requests)
        await scene.pass_until(lambda: scene.now > 60.0, patience=60.0)
        writers = {
            request.who
            for request in scene.server.requests[written:]
            if request.method != "GET" and ("/events" in request.path or "/pods/" in request.path)
        }
        assert writers == {other.name}


@in_virtual_time
async def test_a_follower_writes_no_status() -> None:
    """Not even while those of the leader are refused, so that there is always something to write."""
    async with playing(2) as scene:
        leader = await scene.pass_until_leading()
        scene.cause(refuse(503, r"/apis/fairbind.*/status$", who=leader.name, until=12.0))
        scene.server.put("nodes", make_node("n1"))
        scene.server.put("tenants", {"metadata": {"name": "a"}, "spec": {"namespaces": ["team"]}})
        scene.server.put("schedulingpolicies", {"metadata": {"name": "default"}, "spec": {"policy": "drfh"}})
        scene.server.put("pods", make_pod("p", requests={"cpu": "1"}))
        await scene.pass_until(lambda: scene.now > 20.0)
        writers = {
            request.who for request in scene.server.requests if request.method == "PATCH" and "fairbind" in request.path
        }
        assert writers == {leader.name}
        assert scene.server.get("tenants", "a")["status"]["fairShare"] == "0.250"
        assert scene.server.get("schedulingpolicies", "default")["status"]["conditions"][0]["reason"] == "Solved"
