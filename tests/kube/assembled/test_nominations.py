"""Nominated nodes that others have written stay, in every mode; those that we have written go (KEP-5278)."""

from __future__ import annotations

import asyncio

import pytest

from cluster.builders import make_pod
from kube.assembled.replicas import in_virtual_time
from kube.assembled.test_claims import claiming, find_nominated, make_claim, providing
from kube.assembled.test_conditions import MODES

LONG = 30.0


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_a_nomination_of_others_is_kept(mode: str) -> None:
    """Of a pod that fits nowhere yet, and of one whose claim is to be bound elsewhere later."""
    async with providing(2, **MODES[mode]) as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim("none"))
        large = claiming("late", "none")
        large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100"}}
        scene.server.put("pods", make_pod("plain", requests={"cpu": "100"}), large)
        for key in ("team/plain", "team/late"):
            scene.server.nominate(key, "node-to-come", "cluster-autoscaler")
        await asyncio.sleep(LONG)
        before = scene.leader
        before.kill()
        await scene.pass_until_leading(other_than=before)
        await asyncio.sleep(LONG)
        assert {find_nominated(scene.server, key) for key in ("team/plain", "team/late")} == {"node-to-come"}
        reads = [
            request
            for request in scene.server.requests
            if (request.method, request.path[-10:]) == ("GET", "/pods/late")
        ]
        assert len(reads) == 2, "each leader asks once"


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_a_nominated_node_is_tried_first(node: str, mode: str) -> None:
    async with providing(**MODES[mode]) as (scene, _):
        pod = make_pod("p", requests={"cpu": "1"})
        pod["status"]["nominatedNodeName"] = node
        scene.server.put("pods", pod)
        await scene.pass_until_bound("team/p")
        assert scene.server.find_node("team/p") == node


@in_virtual_time
async def test_what_we_write_over_others_is_ours_to_clear() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        scene.server.nominate("team/p", "node-to-come", "cluster-autoscaler")
        await scene.pass_until(lambda: find_nominated(scene.server) in {"n1", "n2"})
        scene.server.delete("persistentvolumeclaims", "team/claim")
        await scene.pass_until(lambda: find_nominated(scene.server) is None)
