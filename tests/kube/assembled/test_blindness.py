"""A replica that does not see pods or nodes for a while decides nothing, and goes on when it sees again."""

from __future__ import annotations

import asyncio

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import refuse
from kube.assembled.replicas import in_virtual_time, playing


@pytest.mark.parametrize("seed", range(4))
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
