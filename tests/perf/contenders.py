"""Who is compared: fairbind, kube-scheduler, and bind calls without any decision; those of `modes` beside them.

All are ordinary clients of the API server, none is in system:masters: fairbind has the service account, the roles and
the priority level of its chart, kube-scheduler its own user, and the bare binder fairbind's account, so that the API
server treats them alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.client.errors import ApiError
from localplane import processes
from localplane.plane import ControlPlane
from localplane.ports import find_free_ports
from perf.cluster import TOO_MANY, run_many
from perf.measure import MeasureError
from perf.workload import BenchPod

OURS, THEIRS, LIMIT, GATE_LIMIT = "fairbind", "kube-scheduler", "bare binds", "bare openings"
GROUPS = "groups of 100"
NAMESPACE = "fairbind-system"
READY_TIMEOUT_SECONDS = 120.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05
OK = 200


class Chart:
    """The chart, in the mode that a contender needs: the admission policies of one slow no other one down."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._mode = ""

    async def set_mode(self, mode: str) -> None:
        """Install the chart in this mode, unless it is."""
        if mode != self._mode:
            more = {"extender": {"tlsSecretName": "unused"}} if mode == "extender" else {}
            values = {"operator": {"enabled": False}, "mode": mode, **more}
            await asyncio.to_thread(self._plane.install_chart, values)
            self._mode = mode


class Scheduler(Protocol):
    """A scheduler that can be started and stopped.

    scheduler: the name that its pods carry. namespace_labels: of the namespaces of its pods. group_size: so many pods
    start together; 0: each by itself.
    """

    name: str
    scheduler: str
    namespace_labels: Mapping[str, str]
    group_size: int

    async def prepare(self, api: ApiClient) -> None:
        """Make the cluster ready, before pods are created and before the start."""

    async def start(self) -> float:
        """Start and return after how many seconds it was ready."""

    async def stop(self) -> None:
        """Stop in good order."""

    @property
    def pids(self) -> dict[str, int]:
        """Its processes, by name."""

    async def fetch_counters(self) -> dict[str, float]:
        """Return what it counted itself since its start, for the raw results."""


class Fairbind:
    """The operator as users run it, with the token of the chart's service account. arguments: more of them."""

    name = OURS
    scheduler = "fairbind"
    namespace_labels: Mapping[str, str] = {}
    group_size = 0

    def __init__(self, chart: Chart, kubeconfig: Path, log: Path, arguments: Sequence[str] = ()) -> None:
        self._chart = chart
        self._kubeconfig = kubeconfig
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    async def prepare(self, _api: ApiClient) -> None:
        """Install the chart as it comes."""
        await self._chart.set_mode("bind")

    async def start(self) -> float:
        """Start and return after how many seconds /readyz said 200."""
        (self._port,) = find_free_ports(1)
        argv = [sys.executable, "-m", "fairbind", "operator", f"--kubeconfig={self._kubeconfig}"]
        argv += [f"--namespace={NAMESPACE}", f"--metrics-address=127.0.0.1:{self._port}", "--log-format=json"]
        argv += self._arguments
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("FAIRBIND_", "KUBE"))}
        started = time.monotonic()
        self._process = processes.spawn(argv, self._log, environment=environment)
        await wait_ready(f"http://127.0.0.1:{self._port}/readyz", self._process, self._log)
        return time.monotonic() - started

    async def stop(self) -> None:
        """Send SIGTERM and wait."""
        if self._process is not None:
            await asyncio.to_thread(processes.terminate, self._process, STOP_SECONDS)

    @property
    def pids(self) -> dict[str, int]:
        """The operator's process."""
        if self._process is None:
            raise MeasureError("fairbind has not been started")
        return {OURS: self._process.pid}

    async def fetch_counters(self) -> dict[str, float]:
        """Return how often it bound and decided, and how long deciding took."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            families = list(text_string_to_metric_families(await answer.text()))
        counted: dict[str, float] = {}
        for family in families:
            if family.name in {"fairbind_bindings", "fairbind_scheduling_cycle_duration_seconds"}:
                for sample in family.samples:
                    if not sample.name.endswith(("_bucket", "_created")):
                        labels = "".join(f" {label}" for label in sample.labels.values())
                        counted[sample.name + labels] = round(sample.value, 3)
        return counted


class FairbindWithGroups(Fairbind):
    """The same, with pods that start together."""

    name = GROUPS
    group_size = 100


class KubeScheduler:
    """kube-scheduler with its own user and its default plugins; only the limit on its own requests is taken off."""

    name = THEIRS
    scheduler = "default-scheduler"
    namespace_labels: Mapping[str, str] = {}
    group_size = 0

    def __init__(self, chart: Chart, plane: ControlPlane, run: Callable[[], None] | None = None) -> None:
        """run: starts it, when it needs a configuration."""
        self._chart = chart
        self._plane = plane
        self._run = run or (lambda: plane.start_component(THEIRS))
        self._has_started = False

    async def prepare(self, _api: ApiClient) -> None:
        """Install the chart as it comes."""
        await self._chart.set_mode("bind")

    async def start(self) -> float:
        """Start and return after how many seconds /readyz said 200."""
        started, self._has_started = time.monotonic(), True
        await asyncio.to_thread(self._run)
        url = f"https://127.0.0.1:{self._plane.scheduler_metrics_port}/readyz"
        await wait_ready(url, None, self._plane.logs(THEIRS))
        return time.monotonic() - started

    async def stop(self) -> None:
        """Stop in good order."""
        if self._has_started:
            await asyncio.to_thread(self._plane.stop_component, THEIRS)

    @property
    def pids(self) -> dict[str, int]:
        """Its process."""
        return {THEIRS: self._plane.pid(THEIRS)}

    async def fetch_counters(self) -> dict[str, float]:
        """Return nothing: its metrics ask for another identity."""
        return {}


class BareBinder:
    """Bind calls for decisions that were made before, with fairbind's own client and in-flight bound."""

    name = LIMIT
    scheduler = "none"
    namespace_labels: Mapping[str, str] = {}
    group_size = 0

    def __init__(self, chart: Chart, kubeconfig: Path, in_flight: int) -> None:
        self._chart = chart
        self._kubeconfig = kubeconfig
        self._in_flight = in_flight
        self.refused = 0

    async def prepare(self, _api: ApiClient) -> None:
        """Install the chart as it comes."""
        await self._chart.set_mode("bind")

    async def bind_all(self, pods: Iterable[BenchPod], uids: Mapping[str, str], nodes: Mapping[str, str]) -> None:
        """Bind every pod to its node. uids, nodes: by the pod's name."""
        async with self.binding(uids, nodes) as bind:
            await run_many(pods, bind, self._in_flight)

    @contextlib.asynccontextmanager
    async def binding(
        self, uids: Mapping[str, str], nodes: Mapping[str, str]
    ) -> AsyncIterator[Callable[[BenchPod], Awaitable[None]]]:
        """Give a function that binds one pod to its node. uids, nodes: by the pod's name; they may come to be later."""
        api = ApiClient(load_credentials(self._kubeconfig))

        async def bind(pod: BenchPod) -> None:
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": uids[pod.name]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": nodes[pod.name]},
            }
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
            while not await self._try(api, path, json.dumps(body).encode()):
                self.refused += 1

        try:
            yield bind
        finally:
            await api.close()

    async def _try(self, api: ApiClient, path: str, body: bytes) -> bool:
        try:
            await api.request("POST", path, body=body)
        except ApiError as error:
            if error.status != TOO_MANY:
                raise
            await asyncio.sleep(error.retry_after or 1.0)
            return False
        return True


async def wait_ready(url: str, process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Wait until a server says 200; raise MeasureError when its process ends or it takes too long."""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    # Who answers on loopback is known; what is asked is no secret.
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=tls, family=socket.AF_INET)
    async with aiohttp.ClientSession(connector=connector) as session:
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(url) as answer:
                    if answer.status == OK:
                        return
            if process is not None and process.poll() is not None:
                break
            await asyncio.sleep(POLL_SECONDS)
    raise MeasureError(f"not ready: {url}\n{processes.read_tail(log)}")
