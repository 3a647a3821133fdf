"""A namespace whose bindings fail or hang, as by its admission webhook, costs the others little."""

from __future__ import annotations

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import Fault, delay, refuse
from kube.assembled.replicas import in_virtual_time, playing

HEALTHY, FAILING = 600, 400
MOST_LOST = 0.2
"""Of the rate at which a healthy namespace's pods are bound when it is alone."""
SMALL = {"cpu": "10m"}
BINDINGS_OF_TEAM = "/namespaces/team/pods/[^/]+/binding$"
USUAL = delay(0.1, "/namespaces/other/pods/[^/]+/binding$")


async def measure(*faults: Fault, failing: int = FAILING) -> float:
    """Return how long the pods of one namespace took to be bound, while so many of another one waited."""
    async with playing(solves=False) as scene:
        room = {"cpu": "100", "pods": "2000", "memory": "64Gi"}
        scene.server.put("nodes", make_node("n1", allocatable=room))
        await scene.pass_until_leading()
        scene.cause(USUAL, *faults)
        began = scene.now
        for n in range(max(HEALTHY, failing)):
            if n < failing:
                scene.server.put("pods", make_pod(f"b{n}", namespace="team", uid=f"b{n}", requests=SMALL))
            if n < HEALTHY:
                scene.server.put("pods", make_pod(f"g{n}", namespace="other", uid=f"g{n}", requests=SMALL))
        good = [f"other/g{n}" for n in range(HEALTHY)]
        bound_at = await scene.pass_until(lambda: all(map(scene.server.find_node, good)), 60.0, step=0.02)
        scene.heal()
        bad = [f"team/b{n}" for n in range(failing)]
        await scene.pass_until(lambda: all(map(scene.server.find_node, bad)), 60.0, step=0.5)
        return bound_at - began


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 403, 422, 429])
@in_virtual_time
async def test_a_namespace_whose_bindings_are_refused_costs_another_a_fifth_of_its_rate_at_most(status: int) -> None:
    message = 'admission webhook "x.example.com" denied the request'

    alone = await measure(failing=0)
    beside = await measure(refuse(status, BINDINGS_OF_TEAM, message=message))

    assert alone / beside >= 1 - MOST_LOST


@in_virtual_time
async def test_a_namespace_whose_bindings_hang_does_not_stop_another() -> None:
    """They hold a part of what may be in flight, and never all of it."""
    assert await measure(delay(2.5, BINDINGS_OF_TEAM)) < 6.0
