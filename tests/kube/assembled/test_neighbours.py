"""A namespace whose bindings fail or hang, as by its admission webhook, costs the others little."""

from __future__ import annotations

import functools

import pytest

from cluster.builders import make_node, make_pod
from kube.assembled.faults import Fault, delay, refuse
from kube.assembled.processes import run_processes
from kube.assembled.replicas import playing

HEALTHY, FAILING = 600, 400
USUAL_SECONDS = 0.1
MOST_LOST = 0.2
"""Of the rate at which a healthy namespace's pods are bound when it is alone."""
SMALL = {"cpu": "10m"}
BINDINGS_OF_TEAM = "/namespaces/team/pods/[^/]+/binding$"
BINDINGS_OF_OTHER = "/namespaces/other/pods/[^/]+/binding$"

HEALTHY_BESIDE_HANGING, LONG_SECONDS = 1_000, 0.9
"""With bindings that take just not too long, so many pods take about eight seconds: beside what hangs, too, it is the
rate that counts, and not the first second, in which a hang is not known to be one."""


@functools.cache
def measure_alone(healthy: int = HEALTHY, usual_seconds: float = USUAL_SECONDS) -> float:
    """Return how long the pods of one namespace take to be bound when no other has any."""
    return run_processes(measure(failing=0, healthy=healthy, usual_seconds=usual_seconds))


async def measure(
    *faults: Fault, failing: int = FAILING, healthy: int = HEALTHY, usual_seconds: float = USUAL_SECONDS
) -> float:
    """Return how long the pods of one namespace took to be bound, while so many of another one waited."""
    async with playing(solves=False) as scene:
        free = {"cpu": "100", "pods": "2000", "memory": "64Gi"}
        scene.server.put("nodes", make_node("n1", allocatable=free))
        await scene.pass_until_leading()
        scene.cause(delay(usual_seconds, BINDINGS_OF_OTHER), *faults)
        began = scene.now
        for n in range(max(healthy, failing)):
            if n < failing:
                scene.server.put("pods", make_pod(f"b{n}", namespace="team", uid=f"b{n}", requests=SMALL))
            if n < healthy:
                scene.server.put("pods", make_pod(f"g{n}", namespace="other", uid=f"g{n}", requests=SMALL))
        good = [f"other/g{n}" for n in range(healthy)]
        bound_at = await scene.pass_until(lambda: all(map(scene.server.find_node, good)), 60.0, step=usual_seconds / 5)
        scene.heal()
        bad = [f"team/b{n}" for n in range(failing)]
        await scene.pass_until(lambda: all(map(scene.server.find_node, bad)), 60.0, step=0.5)
        return bound_at - began


@pytest.mark.slow
@pytest.mark.parametrize(
    "status", [500, *(pytest.param(status, marks=pytest.mark.nightly) for status in (403, 422, 429))]
)
def test_a_namespace_whose_bindings_are_refused_costs_another_a_fifth_of_its_rate_at_most(status: int) -> None:
    message = 'admission webhook "x.example.com" denied the request'

    beside = run_processes(measure(refuse(status, BINDINGS_OF_TEAM, message=message)))

    assert measure_alone() / beside >= 1 - MOST_LOST


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [pytest.param(1.2, marks=pytest.mark.nightly), 2.5])
def test_a_namespace_whose_bindings_hang_costs_another_a_fifth_of_its_rate_at_most(seconds: float) -> None:
    healthy, usual_seconds = HEALTHY_BESIDE_HANGING, LONG_SECONDS

    beside = run_processes(measure(delay(seconds, BINDINGS_OF_TEAM), healthy=healthy, usual_seconds=usual_seconds))

    assert measure_alone(healthy, usual_seconds) / beside >= 1 - MOST_LOST


@pytest.mark.slow
def test_a_namespace_whose_bindings_hang_does_not_stop_another_in_the_first_second() -> None:
    """They hold a part of what may be in flight, and never all of it."""
    assert run_processes(measure(delay(2.5, BINDINGS_OF_TEAM))) < 2.0
