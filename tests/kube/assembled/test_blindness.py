"""A replica that does not see what decisions depend on decides nothing, and goes on when it sees again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import ignore, refuse
from kube.assembled.replicas import in_virtual_time, playing
from seeds import draw_seeds


@pytest.mark.parametrize("seed", draw_seeds(4))
@in_virtual_time
async def test_what_is_seen_first_after_a_blind_moment_is_decided_however_short_it_was(seed: int) -> None:
    """A node is opened while nodes are out of sight; nothing else happens that could make anybody decide."""
    async with playing(seed=seed) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        for number in range(12):
            scene.server.change("nodes", "n1", lambda node: node["spec"].update(unschedulable=True))
            scene.server.put("pods", make_pod(f"p{number}", requests={"cpu": "100m"}))
            await asyncio.sleep(2.0)
            scene.cause(refuse(503, "/nodes$", until=scene.now + 1.5 + 0.25 * number))
            scene.server.break_watches()
            scene.server.change("nodes", "n1", lambda node: node["spec"].update(unschedulable=False))
            await scene.pass_until_bound(f"team/p{number}", patience=15.0)


@in_virtual_time
async def test_a_watch_that_is_dead_without_a_word_is_noticed_within_30_seconds() -> None:
    async with playing() as scene:
        leader = await scene.pass_until_leading()
        leader.connection.swallow_watches()
        scene.server.put("nodes", make_node("n1"))
        scene.server.put("pods", make_pod("p"))
        await scene.pass_until_bound("team/p", patience=30.0)


@pytest.mark.parametrize("kind", ["namespaces", "tenants", "schedulingpolicies", "persistentvolumes"])
@in_virtual_time
async def test_what_is_older_than_75_seconds_decides_nothing(kind: str) -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.cause(ignore(f"/{kind}$"))
        scene.server.break_watches()
        await asyncio.sleep(50.0)
        scene.server.put("pods", make_pod("early"))
        await scene.pass_until_bound("team/early", patience=5.0)
        await scene.pass_until(lambda: not leader.operator.parts.lead.may_decide(), patience=30.0)
        await scene.pass_until(lambda: kind in str(leader.health.find_unready()), patience=2.0)
        assert leader.observer.watch_ages[kind] > 70.0
        scene.server.put("pods", make_pod("late"))
        await asyncio.sleep(60.0)
        assert scene.server.find_node("team/late") is None
        scene.heal()
        await scene.pass_until_bound("team/late", patience=30.0)


@in_virtual_time
async def test_a_quiet_cluster_is_not_taken_for_a_blind_one() -> None:
    async with playing() as scene:
        leader = await scene.pass_until_leading()
        for _ in range(300):
            await asyncio.sleep(1.0)
            assert leader.operator.parts.lead.may_decide()


@in_virtual_time
async def test_a_cluster_that_was_restored_from_a_backup_is_read_anew_and_nothing_assumed_survives() -> None:
    """After the backup a Tenant was changed and a pod was bound, whose event never came."""
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        scene.server.put("tenants", {"metadata": {"name": "heavy"}, "spec": {"namespaces": ["team"], "weight": 3}})
        leader = await scene.pass_until_leading()
        scene.server.put("pods", make_pod("p"))
        backup = scene.server.back_up()
        await asyncio.sleep(0.02)
        leader.connection.lag_seconds = 1_000.0  # what follows is never seen
        await scene.pass_until_bound("team/p", patience=5.0)
        leader.connection.lag_seconds = 0.0
        scene.server.change("tenants", "heavy", lambda tenant: tenant["spec"].update(weight=5))
        await scene.pass_until(lambda: leader.observer.tenants["heavy"].weight == 5)
        scene.server.restore(backup)
        await scene.pass_until_bound("team/p", patience=30.0)
        await scene.pass_until(lambda: leader.observer.tenants["heavy"].weight == 3)


@in_virtual_time
async def test_a_binding_that_was_undone_is_decided_again() -> None:
    """It was answered, its event never came, and the pod is still there, unbound."""
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        scene.server.put("pods", make_pod("p"))
        await asyncio.sleep(0.02)
        leader.connection.lag_seconds = 1_000.0  # what follows is never seen
        bound_at = await scene.pass_until_bound("team/p", patience=5.0)

        def take_back(pod: dict[str, Any]) -> None:
            pod["spec"].pop("nodeName")
            pod["status"].pop("conditions", None)

        kind = scene.server.kinds["pods"]
        take_back(kind.objects["team/p"])
        kind.history.pop()
        leader.connection.lag_seconds = 0.0
        listed = len(scene.server.find_requests("/pods", method="GET"))
        await scene.pass_until_bound("team/p", patience=15.0)
        lists = scene.server.find_requests("/pods", method="GET")[listed:]
        assert 8.0 < lists[0].at - bound_at <= 10.0
