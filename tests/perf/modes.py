"""The contenders in which kube-scheduler places the pods and fairbind says whose turn it is: gate and extender mode.

Both processes count together: what a mode costs is fairbind beside kube-scheduler.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from localplane.extender import Extended
from localplane.plane import ControlPlane
from localplane.ports import find_free_ports
from perf.cluster import ask
from perf.contenders import NAMESPACE, POLL_SECONDS, READY_TIMEOUT_SECONDS, Chart, Fairbind, KubeScheduler

ENFORCED = {"fairbind.io/enforce": "true"}
PROBE_NAMESPACE = "bench-gate"
FORBIDDEN = 403


class GateMode:
    """The operator opens the gates, and kube-scheduler as it comes places the pods."""

    name = "gate"
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = ENFORCED

    def __init__(self, plane: ControlPlane, chart: Chart, kubeconfig: Path) -> None:
        self._chart = chart
        self._operator = Fairbind(chart, kubeconfig, plane.logs("fairbind-gate"), ("--mode=gate",))
        self._scheduler = KubeScheduler(chart, plane)
        self._has_namespace = False

    async def prepare(self, api: ApiClient) -> None:
        """Have the gate added to pods that are created from now on."""
        await self._chart.set_mode("gate")
        if not self._has_namespace:
            namespace = {"metadata": {"name": PROBE_NAMESPACE, "labels": ENFORCED}}
            await ask(api, "POST", "/api/v1/namespaces", body=json.dumps(namespace).encode())
            self._has_namespace = True
        async with asyncio.timeout(READY_TIMEOUT_SECONDS):
            while not await _gets_gate(api):  # noqa: ASYNC110  no event
                await asyncio.sleep(POLL_SECONDS)

    async def start(self) -> float:
        """Start both, and return after how many seconds both were ready."""
        return await self._scheduler.start() + await self._operator.start()

    async def stop(self) -> None:
        """Stop both in good order."""
        await self._operator.stop()
        await self._scheduler.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Both processes."""
        return {**self._operator.pids, **self._scheduler.pids}

    async def fetch_counters(self) -> dict[str, float]:
        """Return what the operator counted."""
        return await self._operator.fetch_counters()


class ExtenderMode:
    """kube-scheduler, with the chart's configuration, asks the operator, which binds."""

    name = "extender"
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = {}

    def __init__(self, plane: ControlPlane, chart: Chart, kubeconfig: Path) -> None:
        self._chart = chart
        folder = plane.directory / "extender"
        folder.mkdir(mode=0o700)
        extended = Extended.make(plane, folder)
        (port,) = find_free_ports(1)
        self._operator = Fairbind(chart, kubeconfig, plane.logs("fairbind-extender"), extended.compute_arguments(port))
        self._scheduler = KubeScheduler(chart, plane, lambda: extended.start_scheduler(port, namespace=NAMESPACE))

    async def prepare(self, _api: ApiClient) -> None:
        """Have the chart give the configuration of kube-scheduler, and the operator its rights."""
        await self._chart.set_mode("extender")

    async def start(self) -> float:
        """Start the operator, then kube-scheduler, and return after how many seconds both were ready."""
        return await self._operator.start() + await self._scheduler.start()

    async def stop(self) -> None:
        """Stop both in good order."""
        await self._scheduler.stop()
        await self._operator.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Both processes."""
        return {**self._operator.pids, **self._scheduler.pids}

    async def fetch_counters(self) -> dict[str, float]:
        """Return what the operator counted."""
        return await self._operator.fetch_counters()


async def _gets_gate(api: ApiClient) -> bool:
    """Tell whether a pod that is created now gets the gate."""
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "none.invalid/none"}]}
    body = json.dumps({"metadata": {"name": "probe"}, "spec": spec}).encode()
    path = f"/api/v1/namespaces/{PROBE_NAMESPACE}/pods"
    try:
        answer = json.loads(await api.request("POST", path, query={"dryRun": "All"}, body=body))
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False  # the namespace has no service account yet, or only one of the policies acts
    return bool(answer["spec"].get("schedulingGates"))
