"""A namespace whose bindings fail or hang, as by its admission webhook, costs the others little."""

from __future__ import annotations

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import Fault, delay, refuse
from kube.assembled.replicas import in_virtual_time, playing

HEALTHY, FAILING = 600, 400
SMALL = {"cpu": "10m"}
BINDINGS_OF_TEAM = "/namespaces/team/pods/[^/]+/binding$"


async def measure(*faults: Fault) -> float:
    """Return how long the pods of one namespace took to be bound, while as many of another one waited."""
    async with playing(solves=False) as scene:
        room = {"cpu": "100", "pods": "2000", "memory": "64Gi"}
        scene.server.put("nodes", make_node("n1", allocatable=room))
        await scene.pass_until_leading()
        scene.cause(*faults)
        began = scene.now
        for n in range(max(HEALTHY, FAILING)):
            if n < FAILING:
                scene.server.put("pods", make_pod(f"b{n}", namespace="team", uid=f"b{n}", requests=SMALL))
            if n < HEALTHY:
                scene.server.put("pods", make_pod(f"g{n}", namespace="other", uid=f"g{n}", requests=SMALL))
        good = [f"other/g{n}" for n in range(HEALTHY)]
        bound_at = await scene.pass_until(lambda: all(map(scene.server.find_node, good)), 60.0, step=0.1)
        scene.heal()
        bad = [f"team/b{n}" for n in range(FAILING)]
        await scene.pass_until(lambda: all(map(scene.server.find_node, bad)), 60.0, step=0.5)
        return bound_at - began


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 403, 422, 429])
@in_virtual_time
async def test_a_namespace_whose_bindings_are_refused_does_not_stop_another(status: int) -> None:
    message = 'admission webhook "x.example.com" denied the request'
    assert await measure(refuse(status, BINDINGS_OF_TEAM, message=message)) < 4.0


@in_virtual_time
async def test_a_namespace_whose_bindings_hang_does_not_stop_another() -> None:
    assert await measure(delay(2.5, BINDINGS_OF_TEAM)) < 6.0
