"""A kubelet that refuses every pod of a kind: its node rests for them, and for no others.

In gate mode another scheduler chooses the node, so this is about bind and extender mode.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.state.kubelet_refusals import FIRST_REST_SECONDS, MOST_REFUSALS
from kube.assembled.modes import living, make_waiting
from kube.assembled.replicas import Scene, in_virtual_time

GPU = {"cpu": "1", "nvidia.com/gpu": "1"}
HOST = "kubernetes.io/hostname"
ROOM = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "4"}
MODES = ("bind", "extender")


class Kubelets:
    """Refuse pods with devices on node `bad`, and run all others; a controller makes each refused pod again."""

    def __init__(self, scene: Scene, mode: str) -> None:
        self._scene = scene
        self._mode = mode
        self.is_broken = True
        self.refused: list[str] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            for key, pod in list(self._scene.server.kinds["pods"].objects.items()):
                if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    self._take(key)

    def _take(self, key: str) -> None:
        server, pod = self._scene.server, self._scene.server.get("pods", key)
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        if not (self.is_broken and pod["spec"]["nodeName"] == "bad" and "nvidia.com/gpu" in requests):
            server.change("pods", key, lambda it: it["status"].update(phase="Running"))
            return
        failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        server.change("pods", key, lambda it: it["status"].update(failed))
        namespace = key.partition("/")[0]
        self.refused.append(namespace)
        server.put("pods", make_gpu(self._mode, f"again-{len(self.refused)}", namespace))


def make_gpu(mode: str, name: str, namespace: str = "team") -> Json:
    return make_waiting(mode, name, namespace, requests=GPU)


@contextlib.asynccontextmanager
async def refusing(mode: str) -> AsyncIterator[tuple[Scene, Kubelets]]:
    """Play with a node that is broken and, because it is fuller, the best fit; a replica leads."""
    nodes = (make_node(name, allocatable=ROOM, labels={HOST: name}) for name in ("bad", "good", "late"))
    async with living(mode, nodes) as scene:
        scene.server.put("pods", make_pod("filler", node="bad", phase="Running", requests={"cpu": "2"}))
        kubelets = Kubelets(scene, mode)
        work = asyncio.get_running_loop().create_task(kubelets.run())
        try:
            yield scene, kubelets
        finally:
            work.cancel()


def count_running(scene: Scene, namespace: str = "team") -> int:
    pods = scene.server.kinds["pods"].objects.items()
    return sum(
        key.startswith(f"{namespace}/") and pod["status"]["phase"] == "Running" and "filler" not in key
        for key, pod in pods
    )


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_pods_that_a_kubelet_refuses_go_to_other_nodes_after_a_few_refusals(mode: str) -> None:
    async with refusing(mode) as (scene, kubelets):
        scene.server.put("pods", make_gpu(mode, "p0"), make_gpu(mode, "p1"))
        await scene.pass_until(lambda: count_running(scene) == 2)
        assert MOST_REFUSALS <= len(kubelets.refused) <= MOST_REFUSALS + 1
        assert scene.leader.observer.overview is not None
        await scene.pass_until(lambda: scene.leader.observer.overview.refusing_nodes == ("bad",))  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_the_node_takes_all_other_pods_and_those_of_other_tenants(mode: str) -> None:
    async with refusing(mode) as (scene, kubelets):
        scene.server.put("pods", make_gpu(mode, "p0"))
        await scene.pass_until(lambda: count_running(scene) == 1)
        kubelets.is_broken = False
        theirs, mine = make_gpu(mode, "p0", "other"), make_gpu(mode, "p1")
        plain = make_waiting(mode, "plain", "team")
        for pod in (theirs, mine, plain):
            pod["spec"]["nodeSelector"] = {HOST: "bad"}
        scene.server.put("pods", theirs, mine, plain)
        await scene.pass_until_bound("other/p0", "team/plain", patience=FIRST_REST_SECONDS / 2)
        assert scene.server.find_node("team/p1") is None
        await scene.pass_until_bound("team/p1", patience=2 * FIRST_REST_SECONDS)


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_a_node_that_goes_on_refusing_rests_longer_each_time_and_ends_with_the_first_that_runs(mode: str) -> None:
    """No other node has devices, so that pods wait and say why."""
    async with refusing(mode) as (scene, kubelets):
        for name in ("good", "late"):
            scene.server.delete("nodes", name)
        scene.server.put("pods", make_gpu(mode, "p0"))
        await asyncio.sleep(FIRST_REST_SECONDS / 2)
        assert len(kubelets.refused) == MOST_REFUSALS
        (waiting,) = (pod for pod in scene.server.kinds["pods"].objects.values() if pod["status"]["phase"] == "Pending")
        if mode == "bind":  # else kube-scheduler says it
            (condition,) = waiting["status"]["conditions"]
            assert condition["message"] == "0/1 nodes are available: 1 node(s) refused such pods a moment ago."
        await asyncio.sleep(16 * FIRST_REST_SECONDS)
        assert len(kubelets.refused) == MOST_REFUSALS + 4, "after 10, 20, 40 and 80 s more"
        kubelets.is_broken = False
        await scene.pass_until(lambda: count_running(scene) == 1, patience=32 * FIRST_REST_SECONDS)
        kubelets.is_broken = True
        scene.server.put("pods", make_gpu(mode, "p1"))
        await asyncio.sleep(FIRST_REST_SECONDS / 2)
        assert len(kubelets.refused) == 2 * MOST_REFUSALS + 4, "it begins again"
