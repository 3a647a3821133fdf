"""Another scheduler that is slow, and looks at pods in an order of its own: shares are those of a fast one.

So many pods have their turn that it needs longer for them than a turn lasts. It passes no tenant by.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from cluster.builders import Json, make_namespace, make_node
from kube.assembled.modes import make_waiting
from kube.assembled.other_scheduler import OtherScheduler
from kube.assembled.replicas import STEP_SECONDS, Replica, Scene, in_virtual_time, judging
from kube.assembled.test_extender import OTHER, SETTINGS, KubeScheduler, count_bound, put_tenants
from kube.assembled.test_gates import GATES

SLOTS, NODES = 20, 10
WAITING_SECONDS = 20.0
"""Before the first operator leads: for so long kube-scheduler asks in vain, and backs off."""
MOST_BACKOFF_SECONDS = 10.0


class QueuedScheduler(KubeScheduler):
    """Looks at one pod after the other, in the order of its queue, which pods that failed enter late."""

    def __init__(self, scene: Scene, per_second: float) -> None:
        super().__init__(scene)
        self._per_second = per_second
        self._attempts: Counter[str] = Counter()
        self._tried_at: dict[str, float] = {}
        self._known: dict[str, str] = {}
        self._due: dict[str, float] = {}

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            await asyncio.sleep(1 / self._per_second)
            self._note_changes()
            if self._due:
                await self._look_at(self._pop())

    def _pop(self) -> str:
        """Take the pod that is due first; while none is due, what backs off is tried before its time."""
        key = min(self._due, key=lambda key: (self._due[key], key))
        del self._due[key]
        return key

    async def _look_at(self, key: str) -> None:
        pod = self._scene.server.kinds["pods"].objects.get(key)
        if pod is None or pod["spec"].get("nodeName") or key in self._assumed:
            return
        version = pod["metadata"]["resourceVersion"]
        self._attempts[key] += 1
        self._tried_at[key] = self._scene.now
        self._seen.pop(key, None)
        await self._schedule(key, pod, version)
        if key not in self._assumed and self._seen.get(key) != version:
            self._queue(key)  # an error

    async def _bind(self, leader: Replica, key: str, pod: Json, node: str) -> None:
        await super()._bind(leader, key, pod, node)
        if key not in self._assumed:
            self._queue(key)

    def _look_again(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._queue(key)

    def _queue(self, key: str) -> None:
        if key not in self._due:
            attempts = self._attempts[key]
            pause = min(MOST_BACKOFF_SECONDS, 2.0 ** (attempts - 1)) if attempts else 0.0
            self._due[key] = max(self._scene.now, self._tried_at.get(key, 0.0) + pause)

    def _note_changes(self) -> None:
        for key, pod in self._scene.server.kinds["pods"].objects.items():
            version = pod["metadata"]["resourceVersion"]
            if pod["spec"]["schedulerName"] == OTHER and not pod["spec"].get("nodeName"):
                if self._known.get(key) != version != self._seen.get(key) and key not in self._assumed:
                    self._queue(key)
                self._known[key] = version


RATES = {"gate": (1.0, 3.0), "extender": (0.7, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 15.0)}
"""Pods that it looks at in a second."""


@pytest.mark.parametrize(("mode", "per_second"), [(mode, rate) for mode, rates in RATES.items() for rate in rates])
@in_virtual_time
async def test_shares_are_equal_however_long_the_other_scheduler_takes(mode: str, per_second: float) -> None:
    """The nodes have as many slots as there are turns, so an unequal part of the turns becomes one of the nodes."""
    gates, extender = (GATES, None) if mode == "gate" else (None, SETTINGS)
    scene = Scene(0, solves=False, gates=gates, extender=extender)
    async with judging(scene):
        prepare(scene, mode)
        scheduler = (
            OtherScheduler(scene, per_second=per_second, latency_seconds=0.2)
            if mode == "gate"
            else QueuedScheduler(scene, per_second)
        )
        running = asyncio.get_running_loop().create_task(scheduler.run())
        await asyncio.sleep(WAITING_SECONDS)
        scene.start()
        await scene.pass_until(
            lambda: count_bound(scene).total() == SLOTS * NODES, patience=900.0, step=25 * STEP_SECONDS
        )
        running.cancel()
        half = SLOTS * NODES // 2
        assert all(abs(count - half) <= 0.05 * half for count in count_bound(scene).values()), count_bound(scene)


def prepare(scene: Scene, mode: str) -> None:
    """Put two tenants of which each could fill all nodes: one with tiny pods, one with larger ones."""
    scene.server.put("namespaces", *(make_namespace(name) for name in ("tiny", "large")))
    put_tenants(scene, tiny=1, large=1)
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": str(SLOTS)}
    scene.server.put("nodes", *(make_node(f"n{n}", allocatable=allocatable) for n in range(NODES)))
    for name, cpu in (("tiny", "1m"), ("large", "100m")):
        pods = (make_waiting(mode, f"p{n}", name, requests={"cpu": cpu}) for n in range(SLOTS * NODES))
        scene.server.put("pods", *pods)
