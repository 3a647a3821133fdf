"""The contenders in which kube-scheduler places the pods and another says whose turn it is: gate and extender mode.

Both processes count together: what a mode costs is fairbind beside kube-scheduler. Bare openings are the limit of gate
mode: the gates are opened by a program that decides nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairbind.cluster.other_schedulers.gate_limiter import MOST_UNGATED
from fairbind.cluster.other_schedulers.opening import make_opening
from fairbind.kube.client.api import STRATEGIC, ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.client.errors import ApiError
from localplane.extender import Extended
from localplane.plane import ControlPlane
from localplane.ports import find_free_ports
from perf.cluster import PodMaker, ask, run_many
from perf.contenders import (
    GATE_LIMIT,
    NAMESPACE,
    POLL_SECONDS,
    READY_TIMEOUT_SECONDS,
    Chart,
    Fairbind,
    KubeScheduler,
)
from perf.measure import BindingWatch, MeasureError
from perf.workload import BenchPod

ENFORCED = {"fairbind.io/enforce": "true"}
PROBE_NAMESPACE = "bench-gate"
FORBIDDEN, CONFLICT = 403, 409
STALL_SECONDS = 90.0
"""When no place comes free for so long, kube-scheduler has stopped."""


class GateMode:
    """The operator opens the gates, and kube-scheduler as it comes places the pods."""

    name = "gate"
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = ENFORCED
    group_size = 0

    def __init__(self, plane: ControlPlane, chart: Chart, kubeconfig: Path) -> None:
        self._chart = chart
        self._operator = Fairbind(chart, kubeconfig, plane.logs("fairbind-gate"), ("--mode=gate",))
        self._scheduler = KubeScheduler(chart, plane)

    async def prepare(self, api: ApiClient) -> None:
        """Have the gate added to pods that are created from now on."""
        await _have_gates_added(self._chart, api)

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


class BareOpener:
    """kube-scheduler as it comes places the pods, and the benchmark opens their gates in the order of creation.

    It has fairbind's account, its client, the body of its request, and as many places for pods whose gate is open and
    that have no node. The places are all that it looks at.
    """

    name = GATE_LIMIT
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = ENFORCED
    group_size = 0

    def __init__(self, plane: ControlPlane, chart: Chart, kubeconfig: Path, in_flight: int) -> None:
        self._chart = chart
        self._kubeconfig = kubeconfig
        self._in_flight = in_flight
        self._scheduler = KubeScheduler(chart, plane)

    async def prepare(self, api: ApiClient) -> None:
        """Have the gate added to pods that are created from now on."""
        await _have_gates_added(self._chart, api)

    async def start(self) -> float:
        """Start kube-scheduler, and return after how many seconds it was ready."""
        return await self._scheduler.start()

    async def stop(self) -> None:
        """Stop kube-scheduler."""
        await self._scheduler.stop()

    @property
    def pids(self) -> dict[str, int]:
        """kube-scheduler alone: the opener is part of the benchmark."""
        return self._scheduler.pids

    async def fetch_counters(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    async def open_all(self, pods: Sequence[BenchPod], made: PodMaker, watch: BindingWatch) -> None:
        """Open the gate of every pod: see `open_gates`."""
        api = ApiClient(load_credentials(self._kubeconfig))
        try:
            await open_gates(api, pods, made, watch, self._in_flight)
        finally:
            await api.close()


class ExtenderMode:
    """kube-scheduler, with the chart's configuration, asks the operator, which binds."""

    name = "extender"
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = {}
    group_size = 0

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


async def open_gates(
    api: ApiClient, pods: Iterable[BenchPod], made: PodMaker, watch: BindingWatch, in_flight: int
) -> None:
    """Open the gate of every pod in this order, while fewer than `MOST_UNGATED` have an open gate and no node.

    made: who created them. watch: it says whose place comes free. in_flight: so many requests at the same time.
    """
    places = asyncio.Semaphore(MOST_UNGATED)
    watch.on_bound = lambda _name: places.release()

    async def open_gate(pod: BenchPod) -> None:
        await _take_place(places)
        body = json.dumps(make_opening(made.uids[pod.name], made.versions[pod.name])).encode()
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        await ask(api, "PATCH", path, body=body, content_type=STRATEGIC)

    await run_many(pods, open_gate, in_flight)


async def _have_gates_added(chart: Chart, api: ApiClient) -> None:
    """Install the chart in gate mode, and wait until new pods get the gate."""
    await chart.set_mode("gate")
    namespace = {"metadata": {"name": PROBE_NAMESPACE, "labels": ENFORCED}}
    try:
        await ask(api, "POST", "/api/v1/namespaces", body=json.dumps(namespace).encode())
    except ApiError as error:
        if error.status != CONFLICT:  # it is there already
            raise
    async with asyncio.timeout(READY_TIMEOUT_SECONDS):
        while not await _gets_gate(api):  # noqa: ASYNC110  no event
            await asyncio.sleep(POLL_SECONDS)


async def _take_place(places: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(STALL_SECONDS):
            await places.acquire()
    except TimeoutError:
        raise MeasureError(f"no pod with an open gate was bound for {STALL_SECONDS:.0f} s") from None


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
