"""Volcano as a contender: its scheduler with the account, the roles and the configuration of its own chart.

Its other programs do not run. What its controllers would write, the benchmark writes: a PodGroup for each group with
the resources that it asks for, and the queues' state. Each tenant has a queue with its weight.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairbind.kube.client.api import ApiClient
from localplane import processes
from localplane.plane import ControlPlane, are_crds_served
from localplane.ports import find_free_ports
from localplane.tools import find_module_folder
from perf.cluster import IN_FLIGHT, ask, run_many
from perf.contenders import POLL_SECONDS, STOP_SECONDS, Chart, wait_ready
from perf.measure import MeasureError
from perf.workload import HIGHEST_WEIGHT, TENANT_COUNT, VOLCANO, BenchPod

Json = dict[str, Any]

PROGRAM, MODULE, PATH = "vc-scheduler", "volcano", "volcano.sh/volcano"
"""The program, our module that pins it, and theirs."""
CHART_FOLDER, CRDS = Path("installer", "helm", "chart", "volcano"), Path("config", "crd", "volcano", "bases")
NAMESPACE, ACCOUNT = "volcano-system", "volcano-scheduler"
GROUP = "/apis/scheduling.volcano.sh/v1beta1"
PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
FLAGS = ("--leader-elect=false", "--kube-api-qps=10000", "--kube-api-burst=10000", "--enable-healthz=true")
"""Everything else has its default, also the part of the nodes that is looked at."""


class Volcano:
    """vc-scheduler, with pods that start together."""

    name = VOLCANO
    scheduler = VOLCANO
    namespace_labels: Mapping[str, str] = {}
    group_size = 100

    def __init__(self, plane: ControlPlane, chart: Chart) -> None:
        self._plane = plane
        self._chart = chart
        self._configuration = plane.directory / "volcano-scheduler.conf"
        self._kubeconfig: Path | None = None
        self._namespaces: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    async def prepare(self, api: ApiClient) -> None:
        """Install what it needs, once, and remove the groups of an earlier run."""
        await self._chart.set_mode("bind")
        if self._kubeconfig is None:
            self._kubeconfig = await asyncio.to_thread(install, self._plane, self._configuration)
        for namespace in sorted(self._namespaces):
            await ask(api, "DELETE", f"{GROUP}/namespaces/{namespace}/podgroups", timeout_seconds=120)

    async def create_groups(self, api: ApiClient, pods: Sequence[BenchPod]) -> None:
        """Create the PodGroups of these pods."""

        async def create(group: Json) -> None:
            path = f"{GROUP}/namespaces/{group['metadata']['namespace']}/podgroups"
            await ask(api, "POST", path, body=json.dumps(group).encode())

        self._namespaces = {pod.namespace for pod in pods}
        await run_many(make_groups(pods), create, IN_FLIGHT)

    async def start(self) -> float:
        """Start and return after how many seconds its health check said 200."""
        (port,) = find_free_ports(1)
        log = self._plane.logs(VOLCANO)
        argv: list[str | Path] = [self._plane.tools.path(PROGRAM), *FLAGS, f"--kubeconfig={self._kubeconfig}"]
        argv += [f"--scheduler-conf={self._configuration}", f"--healthz-address=127.0.0.1:{port}"]
        started = time.monotonic()
        self._process = processes.spawn(argv, log, directory=self._plane.directory)
        await wait_ready(f"http://127.0.0.1:{port}/healthz", self._process, log)
        return time.monotonic() - started

    async def stop(self) -> None:
        """Send SIGTERM and wait."""
        if self._process is not None:
            await asyncio.to_thread(processes.terminate, self._process, STOP_SECONDS)

    @property
    def pids(self) -> dict[str, int]:
        """Its process."""
        if self._process is None:
            raise MeasureError("Volcano has not been started")
        return {VOLCANO: self._process.pid}

    async def fetch_counters(self) -> dict[str, float]:
        """Return nothing."""
        return {}


def install(plane: ControlPlane, configuration: Path) -> Path:
    """Install its CRDs, its account and the queues; write its configuration and return its account's kubeconfig."""
    sources, client = find_module_folder(MODULE, PATH), plane.client
    for file in sorted((sources / CRDS).glob("*.yaml")):
        crd = yaml.safe_load(file.read_text(encoding="utf-8"))
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    while not are_crds_served(client):
        time.sleep(POLL_SECONDS)
    client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    chart = ["template", "volcano", str(sources / CHART_FOLDER), f"--namespace={NAMESPACE}"]
    for document in yaml.safe_load_all(plane.run_helm([*chart, "--show-only=templates/scheduler.yaml"])):
        if document["kind"] in PATHS:
            client.post(PATHS[document["kind"]], document)
        elif document["kind"] == "ConfigMap":
            configuration.write_text(document["data"]["volcano-scheduler.conf"], encoding="utf-8")
    client.post("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", make_flow_schema())
    for queue in make_queues():
        made = client.post(f"{GROUP}/queues", queue)
        client.put(f"{GROUP}/queues/{queue['metadata']['name']}/status", {**made, "status": {"state": "Open"}})
    return plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)


def make_queues() -> list[Json]:
    """Return a queue of each tenant, with its weight."""
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": f"bench-{tenant:02d}"},
            "spec": {"weight": 1 + tenant % HIGHEST_WEIGHT},
        }
        for tenant in range(TENANT_COUNT)
    ]


def make_groups(pods: Sequence[BenchPod]) -> list[Json]:
    """Return the PodGroups of pods, each of which starts as a whole, in its tenant's queue."""
    members: dict[tuple[str, str], list[BenchPod]] = defaultdict(list)
    for pod in pods:
        members[pod.namespace, pod.group].append(pod)
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": group, "namespace": namespace},
            "spec": {
                "minMember": found[0].group_size,
                "minResources": sum_requests(found),
                "queue": f"bench-{namespace[-2:]}",
            },
        }
        for (namespace, group), found in members.items()
    ]


def sum_requests(pods: Sequence[BenchPod]) -> dict[str, str]:
    """Return what pods request together."""
    shapes = [pod.shape for pod in pods]
    requests = {
        "cpu": f"{sum(shape.cpu_milli for shape in shapes)}m",
        "memory": f"{sum(shape.memory_mib for shape in shapes)}Mi",
    }
    gpus = sum(shape.gpus for shape in shapes)
    return requests | ({"nvidia.com/gpu": str(gpus)} if gpus else {})


def make_flow_schema() -> Json:
    """Return what gives its requests the priority level of kube-scheduler; its chart has nothing of the kind."""
    every = ["*"]
    return {
        "metadata": {"name": ACCOUNT},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-high"},
            "matchingPrecedence": 800,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [
                        {"kind": "ServiceAccount", "serviceAccount": {"name": ACCOUNT, "namespace": NAMESPACE}}
                    ],
                    "resourceRules": [
                        {
                            "verbs": every,
                            "apiGroups": every,
                            "resources": every,
                            "clusterScope": True,
                            "namespaces": every,
                        }
                    ],
                    "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
                }
            ],
        },
    }
