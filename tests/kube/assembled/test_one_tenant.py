"""One tenant takes all that it can of what is shared, and the pods of another wait twice as long at most, in each mode.

They are compared with how long they wait beside as many ordinary pods: where another scheduler places pods, each waits
for those before it in that one's queue. That writes hang or fail is known only after a while, so those are
measured from then on; in bind mode the first second has a test of its own in `test_neighbours.py`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import pytest

from cluster.builders import make_namespace, make_pod
from kube.assembled.faults import delay, refuse
from kube.assembled.modes import MODES, NODES, living, make_waiting
from kube.assembled.processes import run_processes
from kube.assembled.replicas import STEP_SECONDS, Scene
from kube.assembled.test_claims import add_class, make_claim

PODS = 300
ARRIVALS = 20
PAUSE_SECONDS = 0.25
BAD_WRITES = r"/namespaces/team/pods/[^/]+(/binding|/status)?$"

SETTLING_SECONDS = 5.0
"""Twice the time of a write that hangs; where gates are opened the limit of its namespace takes as long to hold."""

RELABEL_SECONDS = 0.02
LARGE = {"cpu": "600"}
"""More than half of a node: the first ones fit, and the others need more nodes."""

Attack = Callable[[Scene, str], None]


def put_ordinary(scene: Scene, mode: str) -> None:
    """Pods that all are alike."""
    for n in range(PODS):
        scene.server.put("pods", make_waiting(mode, f"b{n}", "team"))


def put_crowd(scene: Scene, mode: str) -> None:
    """Pods of which each has placements and a class of its own."""
    for n in range(PODS):
        tolerations = [{"key": f"k{n}", "operator": "Exists"}]
        scene.server.put("pods", make_waiting(mode, f"b{n}", "team", tolerations=tolerations))


def put_terms(scene: Scene, mode: str) -> None:
    """Pods with terms about the pods of all namespaces, which select none."""
    for n in range(PODS):
        selector = {"matchExpressions": [{"key": f"k{n}-{m}", "operator": "Exists"} for m in range(4)]}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, "namespaceSelector": {}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        scene.server.put("pods", make_waiting(mode, f"b{n}", "team", affinity=affinity))


def put_missing_claims(scene: Scene, mode: str) -> None:
    """Pods whose claim is not there, and never will be."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}]
    for n in range(PODS):
        scene.server.put("pods", make_waiting(mode, f"b{n}", "team", volumes=volumes))


def put_silent(scene: Scene, mode: str) -> None:
    """Pods about which the other scheduler says nothing."""
    for n in range(PODS):
        scene.server.put("pods", make_waiting(mode, f"s{n}", "team"))


def put_large(scene: Scene, mode: str) -> None:
    """Pods for which an autoscaler should buy nodes, and buys none."""
    for n in range(PODS):
        scene.server.put("pods", make_waiting(mode, f"b{n}", "team", requests=LARGE))


def put_hanging_claims(scene: Scene, mode: str) -> None:
    """Pods of which each has a claim whose volume never comes; the other scheduler waits for it and says nothing."""
    add_class(scene.server)
    for n in range(PODS):
        scene.server.put("persistentvolumeclaims", make_claim(f"c{n}"))
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{n}"}}]
        scene.server.put("pods", make_waiting(mode, f"s{n}", "team", volumes=volumes))


def relabel_placed(scene: Scene, mode: str) -> None:
    """Placed pods with terms about the pods of all namespaces, whose labels the terms of others select now and then."""
    put_terms(scene, mode)
    affinity = scene.server.get("pods", "team/b0")["spec"]["affinity"]
    for n in range(PODS):
        fields = {"node": f"n{n % NODES}", "phase": "Running", "affinity": affinity}
        scene.server.put("pods", make_pod(f"p{n}", namespace="team", uid=f"p{n}", **fields))

    def relabel(n: int) -> None:
        labels = {f"k{n % PODS}-{n // PODS % 4}": f"{n}"}
        scene.server.change("pods", f"team/p{n % PODS}", lambda pod: pod["metadata"].update(labels=labels))
        asyncio.get_running_loop().call_later(RELABEL_SECONDS, relabel, n + 1)

    relabel(0)


def hang_writes(scene: Scene, mode: str) -> None:
    """A webhook of the namespace that answers shortly before its time-out."""
    scene.cause(delay(2.5, BAD_WRITES))
    put_ordinary(scene, mode)


def refuse_writes(scene: Scene, mode: str) -> None:
    """A webhook of the namespace that refuses."""
    scene.cause(refuse(403, BAD_WRITES, message="denied"))
    put_ordinary(scene, mode)


def fail_bindings(scene: Scene, mode: str) -> None:
    """A webhook of the namespace that takes its time and fails, so that the same binding is sent again."""
    scene.cause(refuse(500, r"/namespaces/team/pods/[^/]+/binding$", message="failed webhook", delay_seconds=0.5))
    put_ordinary(scene, mode)


ATTACKS: dict[Attack, tuple[str, ...]] = {
    put_crowd: MODES,
    put_terms: MODES,
    put_missing_claims: MODES,
    put_hanging_claims: MODES,
    relabel_placed: MODES,
    hang_writes: MODES,
    refuse_writes: MODES,
    fail_bindings: MODES,
    put_silent: ("gate", "extender"),
    put_large: ("gate",),
}
"""In which modes each can be made."""


async def measure(mode: str, attack: Attack, settling: float) -> list[float]:
    """Return how long each pod of a tenant waited that has one at a time, in ascending order."""
    async with living(mode) as scene:
        scene.server.put("namespaces", make_namespace("team"), make_namespace("other"))
        attack(scene, mode)
        await asyncio.sleep(settling)
        waits = []
        for n in range(ARRIVALS):
            began, key = scene.now, f"other/g{n}"
            scene.server.put("pods", make_waiting(mode, f"g{n}", "other"))
            waits.append(await scene.pass_until_bound(key) - began)
            await asyncio.sleep(PAUSE_SECONDS)
        return sorted(waits)


@functools.cache
def measure_usual(mode: str, settling: float) -> list[float]:
    return run_processes(measure(mode, put_ordinary, settling))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "attack"),
    [pytest.param(mode, attack, id=f"{mode}-{attack.__name__}") for attack, modes in ATTACKS.items() for mode in modes],
)
def test_another_tenants_pods_wait_twice_as_long_at_most(mode: str, attack: Attack) -> None:
    settling = SETTLING_SECONDS if attack in {hang_writes, fail_bindings} else 0.0
    usual, beside = measure_usual(mode, settling), run_processes(measure(mode, attack, settling))

    assert beside[-1] <= 2 * usual[-1] + STEP_SECONDS, (usual[-3:], beside[-3:])
