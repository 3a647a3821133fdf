"""One scene in each mode: whole operators, and the other scheduler that places pods where fairbind does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.kube.operator.gates import GateSettings
from kube.assembled.other_scheduler import OtherScheduler
from kube.assembled.replicas import Scene, playing
from kube.assembled.test_extender import SETTINGS, KubeScheduler, make_asking
from kube.assembled.test_gates import OTHER, make_gated

MODES = ("bind", "gate", "extender")
NODES = 4
MOST_SCALE_UPS = 3
ROOM = {"cpu": "1000", "memory": "999Gi", "pods": "5000"}


def make_waiting(mode: str, name: str, namespace: str, **spec: Any) -> Json:
    """A pod that is placed as this mode does it."""
    if mode == "bind":
        spec = {"requests": {"cpu": "1"}, **spec}
        return make_pod(name, namespace=namespace, uid=f"uid-{namespace}-{name}", **spec)
    make = make_gated if mode == "gate" else make_asking
    return make(name, namespace=namespace, **spec)


def _is_silent_about(key: str) -> bool:
    return key.startswith("team/s")


@contextlib.asynccontextmanager
async def living(
    mode: str, nodes: Iterable[Json] | None = None, most_scale_ups: int = MOST_SCALE_UPS
) -> AsyncIterator[Scene]:
    """A scene with a leader, and in gate and extender mode the other scheduler.

    nodes: those of the cluster; without them there are some with room for thousands of pods. The other scheduler says
    nothing about pods of team whose names begin with an s.
    """
    gates = GateSettings(OTHER, most_scale_ups=most_scale_ups) if mode == "gate" else None
    async with playing(solves=False, gates=gates, extender=SETTINGS if mode == "extender" else None) as scene:
        names = (f"n{n}" for n in range(NODES))
        large = (make_node(name, allocatable=ROOM, labels={HOSTNAME: name}) for name in names)
        scene.server.put("nodes", *(large if nodes is None else nodes))
        await scene.pass_until_leading()
        running = None
        if mode != "bind":
            other = (
                OtherScheduler(scene, per_second=100.0, latency_seconds=0.05, ignores=_is_silent_about)
                if gates
                else KubeScheduler(scene, ignores=_is_silent_about)
            )
            running = asyncio.get_running_loop().create_task(other.run())
        try:
            yield scene
        finally:
            if running is not None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
