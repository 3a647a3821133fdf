"""Two operators before one API server: one decides and writes, the other sees, and takes over when it must."""

from __future__ import annotations

from cluster.builders import make_node, make_pod
from kube.assembled.faults import BINDINGS, delay, lose_answer, refuse
from kube.assembled.replicas import in_virtual_time, playing


@in_virtual_time
async def test_only_the_leader_writes_and_the_follower_sees_the_same() -> None:
    async with playing(2) as scene:
        leader = await scene.pass_until_leading()
        scene.server.put("nodes", make_node("n1"), make_node("n2"))
        scene.server.put("tenants", {"metadata": {"name": "a"}, "spec": {"namespaces": ["team"]}})
        scene.server.put("pods", *(make_pod(f"p{n}", requests={"cpu": "3"}) for n in range(5)))
        await scene.pass_until(lambda: scene.now > 20.0)
        kinds = {"/binding": 2, "/events": 2 + 3, "/tenants/a/status": 1}
        for path_end, least in kinds.items():
            writes = scene.server.find_requests(path_end)
            assert len(writes) >= least
            assert {request.who for request in writes} == {leader.name}
        (follower,) = (replica for replica in scene.replicas if replica is not leader)
        for replica in (leader, follower):
            seen = replica.observer.tenants["a"]
            assert (seen.running, sum(seen.pending.values()), seen.dominant_share) == (2, 3, 0.75)
        assert follower.observer.changes == []


@in_virtual_time
async def test_another_takes_over_from_a_leader_that_hangs() -> None:
    """Its last bindings take effect while it hangs; the next leader must know of them."""
    async with playing(2) as scene:
        scene.server.put("nodes", make_node("n1"), make_node("n2"))
        leader = await scene.pass_until_leading()
        scene.cause(delay(1.0, BINDINGS, who=leader.name))
        scene.server.put("pods", *(make_pod(f"p{n}", requests={"cpu": "1"}) for n in range(4)))
        await scene.pass_until(lambda: len(scene.server.find_requests("/binding")) == 4)
        leader.process.freeze()
        hangs_since = scene.now
        scene.server.put("pods", *(make_pod(f"q{n}", requests={"cpu": "1"}) for n in range(6)))
        await scene.pass_until(lambda: len(scene.server.bound) == 8)
        assert 9.0 < scene.now - hangs_since < 15.0
        assert {who for _, who, _, _ in scene.server.bound[:4]} == {leader.name}
        assert leader.name not in {who for _, who, _, _ in scene.server.bound[4:]}
        leader.process.thaw()
        await scene.pass_until(lambda: scene.now > 40.0, patience=40.0)
        assert len(scene.server.bound) == 8
        assert [result for _, result in leader.observer.results] == ["bound"] * 4


@in_virtual_time
async def test_a_new_leader_whose_watch_lags_gives_no_room_away_that_the_one_before_it_gave() -> None:
    """It has seen both pods, but not yet that the one got the room."""
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        other = scene.start()
        scene.cause(refuse(429, BINDINGS, retry_after=2.0, times=1))
        scene.server.put("pods", *(make_pod(f"p{n}", requests={"cpu": "3"}) for n in range(2)))
        await scene.pass_until(
            lambda: scene.server.find_requests("/binding") and other.operator.parts.cache.queries.has_waiting
        )
        other.connection.lag_seconds = 15.0
        await scene.pass_until(lambda: scene.server.bound)
        leader.ask_to_stop()
        await scene.pass_until_leading(other_than=leader)
        await scene.pass_until(lambda: scene.now > 30.0)
        assert len(scene.server.bound) == 1
        assert scene.server.find_requests("/binding", who=other.name) == []


@in_virtual_time
async def test_another_takes_over_from_a_leader_that_was_killed_with_its_answers_lost() -> None:
    async with playing(2) as scene:
        scene.server.put("nodes", make_node("n1"), make_node("n2"))
        leader = await scene.pass_until_leading()
        scene.cause(
            lose_answer(BINDINGS, who=leader.name, times=2), lose_answer(BINDINGS, who=leader.name, happens=False)
        )
        scene.server.put("pods", *(make_pod(f"p{n}", requests={"cpu": "1"}) for n in range(8)))
        await scene.pass_until(lambda: len(scene.server.bound) >= 2)
        leader.kill()
        await scene.pass_until(lambda: len(scene.server.bound) == 8)
        assert {who for _, who, _, _ in scene.server.bound} == {replica.name for replica in scene.replicas}
