"""The stage on this machine alone: a real control plane of plain processes, fake nodes, the operator as a process."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo import workload
from demo.servers import POLL_SECONDS, DemoError, Server, start_server
from demo.stage import NAMESPACE, Steps, add_tenants, bring_first_tenants
from demo.workload import Cast, DemoTenant, PodStream
from localplane import processes
from localplane.client import ApiClient, ApiError
from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, ensure_tools

SERVICE_ACCOUNT = "fairbind"
OPERATOR = "fairbind"
KUBECTL = "kubectl"
KUBE_SCHEDULER = "kube-scheduler"
GATE_SECONDS = 300.0
TOKEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class LocalStage:
    """All that runs, see `demo.stage.Stage`."""

    plane: ControlPlane
    operator: Server
    stream: PodStream
    nodes: int
    cast: Cast = workload.CAST

    @property
    def api(self) -> ApiClient:
        """The API server, as the administrator."""
        return self.plane.client

    @property
    def log(self) -> Path:
        """Where the demo writes when it goes on without a terminal."""
        return self.plane.logs("demo")

    def read_metrics(self) -> str:
        """Return the operator's page of metrics."""
        page: str = self.operator.client.get("/metrics")
        return page

    def check_operator(self) -> None:
        """Raise DemoError with the end of the log when the operator has ended."""
        self.operator.check_running()

    def read_operator_log(self) -> str:
        """Return the end of the operator's log."""
        return processes.read_tail(self.operator.log)

    def has_ended(self) -> bool:
        """Tell whether the operator is gone."""
        return self.operator.process.poll() is not None

    def format_report(self) -> str:
        """No Prometheus looks on here."""
        return ""

    def format_kept(self) -> str:
        """Return how to reach and how to stop a kept cluster."""
        kubectl = self.plane.tools.path(KUBECTL)
        namespace = self.cast.limited.namespace
        return "\n".join(
            [
                "The cluster, the operator and the tenants stay, with pods that do not end:",
                f"  export KUBECONFIG={shlex.quote(str(self.plane.kubeconfig))}",
                f"  export PATH={shlex.quote(str(kubectl.parent))}:$PATH",
                "  kubectl get tenants.fairbind.io",
                f"  kubectl get events --namespace {namespace} --field-selector reason=FailedScheduling",
                f"  curl {self.operator.client.server}/metrics",
                f"  kill {os.getpid()}    stops everything",
            ]
        )


def prepare(
    stack: contextlib.ExitStack,
    *,
    nodes: int,
    policy: str,
    duration_seconds: float,
    is_kept: bool,
    is_gated: bool = False,
) -> LocalStage:
    """Build everything up to the first cycle; the stack takes it down again.

    is_kept: kubectl will be wanted. is_gated: kube-scheduler places the pods, when their gates are opened.
    """
    steps = Steps()
    cast = workload.GATED_CAST if is_gated else workload.CAST
    tool_names = [*DEFAULT, *([KUBECTL] if is_kept else []), *([KUBE_SCHEDULER] if is_gated else [])]
    with steps.step("programs of the control plane", "built once, about 10 min"):
        tools = ensure_tools(tool_names, steps.report)
    with steps.step("etcd, API server, controllers, kwok", "about 5 s"):
        plane = stack.enter_context(ControlPlane(tools, scheduler=is_gated))
    with steps.step("the chart, without its Deployment", "about 3 s"):
        values = {"operator": {"enabled": False}, "policy": {"name": policy}, "mode": "gate" if is_gated else "bind"}
        plane.install_chart(values, namespace=NAMESPACE)
    with steps.step(f"{nodes} nodes of six kinds", "about 5 s"):
        plane.wait_nodes_ready(plane.add_nodes(nodes))
    cast = workload.promise(cast, plane.client.items("/api/v1/nodes"))
    stream = PodStream(duration_seconds, nodes)
    with steps.step("tenants and their first pods", "about 5 s"):
        if is_gated:
            wait_for_gates(plane.client, cast.first[0], stream)
        bring_first_tenants(plane.client, cast, stream)
    with steps.step("operator, with its ServiceAccount's rights", "about 2 s"):
        operator = start_operator(stack, plane, ["--mode", "gate"] if is_gated else [])
    return LocalStage(plane, operator, stream, nodes, cast)


def wait_for_gates(api: ApiClient, tenant: DemoTenant, stream: PodStream) -> None:
    """Let a tenant come, and wait until its pods get the gate: new admission policies act after a moment."""
    add_tenants(api, [tenant])
    pod, deadline = stream.make_probe(tenant), time.monotonic() + GATE_SECONDS
    while True:
        with contextlib.suppress(ApiError):
            made = api.post(f"/api/v1/namespaces/{tenant.namespace}/pods", pod, dryRun="All")
            if made["spec"].get("schedulingGates"):
                return
        if time.monotonic() > deadline:
            raise DemoError("pods get no scheduling gate: see the log of the API server")
        time.sleep(POLL_SECONDS)


def start_operator(stack: contextlib.ExitStack, plane: ControlPlane, arguments: Sequence[str] = ()) -> Server:
    """Start the operator as the chart's ServiceAccount and wait until it is ready; raise DemoError when it is not."""
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, lifetime_seconds=TOKEN_SECONDS)
    words: list[str | Path] = [find_operator(), "operator", "--kubeconfig", kubeconfig, "--namespace", NAMESPACE]
    words.extend(arguments)
    return start_server(
        stack,
        "the operator",
        lambda address: [*words, "--metrics-address", address],
        plane.logs("fairbind-operator"),
        readiness="/readyz",
    )


def find_operator() -> Path:
    """Return the command beside this interpreter; raise DemoError when fairbind is not installed there."""
    program = Path(sys.executable).with_name(OPERATOR)
    if not program.exists():
        raise DemoError(f"{program} is missing: run `make install`")
    return program
