"""The stage on kind: real kubelets and containers, fairbind by helm from its image, a Prometheus that looks on.

Nothing of fairbind runs outside the cluster. The shared nodes are the workers of kind-config.yaml.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo import jobs
from demo.feeding import TROUBLES, Patience
from demo.prometheus import Prometheus, Service, check_up, format_report, start_prometheus
from demo.servers import POLL_SECONDS, DemoError, Server
from demo.stage import NAMESPACE, Steps, bring_first_tenants
from demo.workload import GPU, MODEL_LABEL, Cast, Json
from kindcluster.cluster import TOOLS, Cluster
from kindcluster.commands import KindError
from kindcluster.engine import check_engine
from kindcluster.images import build_images
from localplane.client import ApiClient, ApiError
from localplane.plane import CHART, are_crds_served
from localplane.tools import ensure_tools

RELEASE = "fairbind"
REPLICAS = 2
PROMETHEUS = "prometheus"
PREFIX = "fairbind-demo"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
SHARED = {"demo.fairbind.io/shared": "yes"}
"""The label of the nodes that the tenants share."""
HELM_SECONDS = 540
"""Two operators become ready meanwhile, on a slow machine one after the other."""
CRDS_TIMEOUT_SECONDS = 300.0
GONE_SECONDS = 60.0
"""A kept cluster that has been silent for so long was removed from outside."""
LEADS = re.compile(r"^fairbind_leader 1", re.MULTILINE)


class Replicas:
    """The operators behind the chart's Service, reached through the API server's proxy."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._leader = ""

    def read_metrics(self) -> str:
        """Return the leader's page, or any replica's when none leads; raise ApiError when there is none at all."""
        with contextlib.suppress(ApiError):
            page = self._read(self._leader) if self._leader else ""
            if LEADS.search(page):
                return page
        page = ""
        for path in self._find_pages():
            page = self._read(path)
            if LEADS.search(page):
                self._leader = path
                break
        if not page:
            raise ApiError(503, "NotReady", f"no operator is ready behind the Service {NAMESPACE}/{RELEASE}")
        return page

    def _find_pages(self) -> list[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        slices = self._api.items(path, labelSelector=f"kubernetes.io/service-name={RELEASE}")
        return sorted(
            f"/api/v1/namespaces/{NAMESPACE}/pods/{endpoint['targetRef']['name']}:{port['port']}/proxy/metrics"
            for entry in slices
            for port in entry["ports"]
            for endpoint in entry["endpoints"] or []
            if endpoint["conditions"].get("ready")
        )

    def _read(self, path: str) -> str:
        page: str = self._api.get(path)
        return page


@dataclass(slots=True)
class KindStage:
    """All that runs, see `demo.stage.Stage`. silence: how long that of a kept cluster is borne."""

    cluster: Cluster
    cast: Cast
    stream: jobs.JobStream
    nodes: int
    replicas: Replicas
    prometheus: Server
    service: Service
    silence: Patience

    @property
    def api(self) -> ApiClient:
        """The API server, as the administrator."""
        return self.cluster.client

    @property
    def log(self) -> Path:
        """Where the demo writes when it goes on without a terminal."""
        return self.cluster.folder / "demo.log"

    def read_metrics(self) -> str:
        """Return the leader's page of metrics."""
        return self.replicas.read_metrics()

    def check_operator(self) -> None:
        """Raise DemoError when Prometheus is gone; the operators are Kubernetes' to look after."""
        self.prometheus.check_running()

    def read_operator_log(self) -> str:
        """Return the ends of the operators' logs."""
        words = ["logs", f"--namespace={NAMESPACE}", f"deployment/{RELEASE}", "--all-pods", "--tail=15"]
        try:
            return self.cluster.kubectl(*words)
        except KindError as error:
            return str(error)

    def has_ended(self) -> bool:
        """Tell whether the cluster is gone."""
        try:
            self.silence.attempt(lambda: self.api.get("/livez"))
        except TROUBLES:
            return True
        return False

    def format_report(self) -> str:
        """Return what Prometheus has seen."""
        return format_report(Prometheus(self.prometheus.client), self.service)

    def format_kept(self) -> str:
        """Return how to reach and how to remove what stays."""
        kubectl = self.cluster.tools.path("kubectl")
        return "\n".join(
            [
                "The cluster, the tenants and Prometheus stay, with pods that do not end:",
                f"  export KUBECONFIG={shlex.quote(str(self.cluster.kubeconfig))}",
                f"  export PATH={shlex.quote(str(kubectl.parent))}:$PATH",
                "  kubectl get tenants.fairbind.io",
                f"  kubectl get pods --namespace {self.cast.limited.namespace} --output wide",
                f"  curl '{self.prometheus.client.server}/api/v1/query?query=fairbind_tenant_dominant_share'",
                f"  kill {os.getpid()}    stops everything and removes the cluster {self.cluster.name}",
            ]
        )


def prepare(stack: contextlib.ExitStack, *, policy: str, duration_seconds: float) -> KindStage:
    """Make everything up to the first cycle; the stack takes it down again. Raises NoEngineError without an engine."""
    check_engine()
    steps = Steps()
    with steps.step("kind, helm, kubectl and Prometheus", "built once, about 8 min"):
        tools = ensure_tools((*TOOLS, PROMETHEUS), steps.report)
    with steps.step("images of fairbind and of the tenants' program", "about 20 s"):
        images = build_images(steps.report)
    cluster = Cluster.make(PREFIX, report=_say_nothing)
    with steps.step(f"cluster {cluster.name} of four containers", "about 40 s"):
        stack.enter_context(cluster)
    with steps.step("images into its nodes", "about 15 s"):
        cluster.load_images(images)
    with steps.step("the chart, without its Deployment yet", "about 3 s"):
        workers = prepare_workers(cluster.client)
        install_chart(cluster, policy, replicas=0)
    cast = jobs.compute_cast(workers)
    stream = jobs.JobStream(duration_seconds, jobs.compute_site(workers))
    with steps.step("tenants, their first Jobs and a Deployment", "about 5 s"):
        bring_first_tenants(cluster.client, cast, stream)
    service = Service(NAMESPACE, RELEASE, cluster.kubeconfig)
    with steps.step(f"Prometheus, and {REPLICAS} operators by helm upgrade", "about 15 s"):
        prometheus = start_prometheus(stack, tools.path(PROMETHEUS), cluster.folder / PROMETHEUS, service)
        install_chart(cluster, policy, replicas=REPLICAS)
        check_up(Prometheus(prometheus.client).wait_for_targets(REPLICAS), REPLICAS)
    replicas = Replicas(cluster.client)
    return KindStage(cluster, cast, stream, len(workers), replicas, prometheus, service, Patience(GONE_SECONDS))


def prepare_workers(api: ApiClient) -> list[Json]:
    """Mark the nodes that the tenants share, tell some of them that they have GPUs, and return them."""
    for node in api.items("/api/v1/nodes", labelSelector=f"!{CONTROL_PLANE}"):
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        model, gpus = jobs.GPUS.get(node["metadata"]["labels"].get(jobs.SHAPE, ""), (None, 0))
        api.patch(path, {"metadata": {"labels": SHARED | ({} if model is None else {MODEL_LABEL: model})}})
        if gpus:
            amount = {GPU: str(gpus)}
            api.patch(f"{path}/status", {"status": {"capacity": amount, "allocatable": amount}})
    workers = api.items("/api/v1/nodes", labelSelector=_format_selector())
    if not workers:
        raise DemoError("the cluster has no workers: kind-config.yaml should have three")
    return workers


def install_chart(cluster: Cluster, policy: str, *, replicas: int) -> None:
    """Install the chart by helm, or upgrade it, and wait until its operators are ready. replicas: 0 for none at all."""
    values = {
        "operator": {"enabled": replicas > 0},
        "replicaCount": max(1, replicas),
        "policy": {"name": policy, "nodeSelector": SHARED},
        # Metrics are read through the API server's proxy, which comes from another node than most operators'.
        "metrics": {"tls": {"enabled": False}},
        "networkPolicy": {"enabled": False},
    }
    path = cluster.folder / "values.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    place: Sequence[str] = [f"--namespace={NAMESPACE}", "--create-namespace", "--wait", f"--timeout={HELM_SECONDS}s"]
    cluster.helm("upgrade", "--install", RELEASE, str(CHART), *place, f"--values={path}")
    deadline = time.monotonic() + CRDS_TIMEOUT_SECONDS
    while not are_crds_served(cluster.client):
        if time.monotonic() > deadline:
            raise DemoError("the chart is installed, but the API server does not serve its CRDs")
        time.sleep(POLL_SECONDS)


def _format_selector() -> str:
    return ",".join(f"{key}={value}" for key, value in SHARED.items())


def _say_nothing(_text: str) -> None:
    """The steps say it already."""
