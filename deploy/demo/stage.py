"""What the play needs: a control plane with nodes, the chart, tenants, and an operator with the chart's own rights."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from demo import workload
from demo.workload import DemoTenant, Json, PodStream
from localplane import processes
from localplane.client import ApiClient, ApiError, call_many
from localplane.plane import ControlPlane
from localplane.ports import find_free_ports
from localplane.tools import DEFAULT, ensure_tools

NAMESPACE = "fairbind-system"
SERVICE_ACCOUNT = "fairbind"
OPERATOR = "fairbind"
OPERATOR_TIMEOUT_SECONDS = 60.0
OPERATOR_GRACE_SECONDS = 5.0
TOKEN_SECONDS = 7 * 24 * 3600
PORT_ATTEMPTS = 3
PORT_TAKEN = "address already in use"
POLL_SECONDS = 0.05
CREATING_AT_ONCE = 32

Say = Callable[[str], None]


class DemoError(Exception):
    """The demo cannot go on; the message is all that a user needs."""


class Steps:
    """Prints what is being done, how long that usually takes, and how long it took."""

    def __init__(self) -> None:
        self._is_open = False

    @contextlib.contextmanager
    def step(self, text: str, expectation: str) -> Iterator[None]:
        """Print a line that is finished when the block is."""
        print(f"  {text} ({expectation}) ... ", end="", flush=True)
        self._is_open = True
        started = time.monotonic()
        try:
            yield
        except BaseException:
            self._close_line()
            raise
        print(f"{'  ' if not self._is_open else ''}{time.monotonic() - started:.1f} s", flush=True)
        self._is_open = False

    def report(self, text: str) -> None:
        """Print a line about the step that is being done."""
        self._close_line()
        print(f"    {text}", flush=True)

    def _close_line(self) -> None:
        if self._is_open:
            print(flush=True)
        self._is_open = False


@dataclass(frozen=True, slots=True)
class Stage:
    """All that runs. operator_log: where the operator writes. pinned_limit: GPUs that the pinned tenant can hold."""

    plane: ControlPlane
    operator: subprocess.Popen[bytes]
    operator_log: Path
    metrics: ApiClient
    stream: PodStream
    pinned_limit: int

    def check_operator(self) -> None:
        """Raise DemoError with the end of the log when the operator has ended."""
        _check_running(self.operator, self.operator_log)

    def welcome(self, tenant: DemoTenant) -> None:
        """Let a tenant come: its namespace, its Tenant object and its first pods."""
        add_tenants(self.plane.client, [tenant])
        create_pods(self.plane.client, self.stream.make_missing(tenant, {}, workload.LATE_FILL))


def prepare(
    stack: contextlib.ExitStack,
    *,
    nodes: int,
    policy: str,
    duration_seconds: float,
    tool_names: Sequence[str] = DEFAULT,
) -> Stage:
    """Build everything up to the first cycle; the stack takes it down again."""
    steps = Steps()
    with steps.step("programs of the control plane", "built once, about 12 min"):
        tools = ensure_tools(tool_names, steps.report)
    with steps.step("etcd, API server, controllers, kwok", "about 5 s"):
        plane = stack.enter_context(ControlPlane(tools))
    with steps.step("the chart, without its Deployment", "about 3 s"):
        plane.install_chart({"operator": {"enabled": False}, "policy": {"name": policy}}, namespace=NAMESPACE)
    with steps.step(f"{nodes} nodes of six kinds", "about 5 s"):
        plane.wait_nodes_ready(plane.add_nodes(nodes))
    stream = PodStream(duration_seconds, nodes)
    with steps.step("tenants and their first pods", "about 5 s"):
        add_tenants(plane.client, workload.FIRST_TENANTS)
        create_pods(
            plane.client,
            _take_turns([stream.make_missing(tenant, {}, workload.FIRST_FILL) for tenant in workload.FIRST_TENANTS]),
        )
    with steps.step("operator, with its ServiceAccount's rights", "about 2 s"):
        operator, log, metrics = start_operator(stack, plane)
    return Stage(plane, operator, log, metrics, stream, find_pinned_limit(plane.client))


def start_operator(stack: contextlib.ExitStack, plane: ControlPlane) -> tuple[subprocess.Popen[bytes], Path, ApiClient]:
    """Start the operator as the chart's ServiceAccount and wait until it is ready; raise DemoError when it is not."""
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, lifetime_seconds=TOKEN_SECONDS)
    argv: list[str | Path] = [find_operator(), "operator", "--kubeconfig", kubeconfig, "--namespace", NAMESPACE]
    log = plane.logs("fairbind-operator")
    for attempts_left in reversed(range(PORT_ATTEMPTS)):
        address = f"127.0.0.1:{find_free_ports(1)[0]}"
        process = processes.spawn([*argv, "--metrics-address", address], log)
        stack.callback(processes.terminate, process, OPERATOR_GRACE_SECONDS)
        metrics = stack.enter_context(ApiClient(f"http://{address}", timeout_seconds=10.0))
        try:
            _wait_ready(process, metrics, log)
        except DemoError as error:
            if attempts_left and PORT_TAKEN in str(error):  # somebody was faster
                continue
            raise
        break
    return process, log, metrics


def _wait_ready(process: subprocess.Popen[bytes], metrics: ApiClient, log: Path) -> None:
    deadline = time.monotonic() + OPERATOR_TIMEOUT_SECONDS
    while not _is_ready(metrics):
        _check_running(process, log)
        if time.monotonic() > deadline:
            seconds = f"{OPERATOR_TIMEOUT_SECONDS:.0f} s"
            raise DemoError(
                f"the operator is not ready after {seconds}; the end of its log:\n{processes.read_tail(log)}"
            )
        time.sleep(POLL_SECONDS)


def find_operator() -> Path:
    """Return the command beside this interpreter; raise DemoError when fairbind is not installed there."""
    program = Path(sys.executable).with_name(OPERATOR)
    if not program.exists():
        raise DemoError(f"{program} is missing: run `make install`")
    return program


def add_tenants(api: ApiClient, tenants: Sequence[DemoTenant]) -> None:
    """Create namespaces and Tenants, and wait until pods can be made there."""
    for tenant in tenants:
        api.post("/api/v1/namespaces", workload.make_namespace(tenant))
        api.post("/apis/fairbind.io/v1alpha1/tenants", workload.make_tenant(tenant))
    for tenant in tenants:
        deadline = time.monotonic() + OPERATOR_TIMEOUT_SECONDS
        while not api.exists(f"/api/v1/namespaces/{tenant.namespace}/serviceaccounts/default"):
            if time.monotonic() > deadline:
                raise DemoError(f"namespace {tenant.namespace} got no service account: is the controller manager well?")
            time.sleep(POLL_SECONDS)


def create_pods(api: ApiClient, pods: Sequence[Json]) -> None:
    """Create pods on a few connections."""
    call_many(
        pods,
        lambda pod: api.post(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod),
        parallel=CREATING_AT_ONCE,
    )


def remove_finished(api: ApiClient) -> None:
    """Delete the pods that have run to their end."""
    for tenant in workload.TENANTS:
        api.delete(f"/api/v1/namespaces/{tenant.namespace}/pods", fieldSelector="status.phase=Succeeded")


def find_pinned_limit(api: ApiClient) -> int:
    """Return how many GPUs the nodes have that the pinned tenant can use."""
    selector = ",".join(f"{key}={value}" for key, value in workload.PINNED.selector.items())
    nodes = api.items("/api/v1/nodes", labelSelector=selector)
    return sum(int(node["status"]["allocatable"].get(workload.GPU, "0")) for node in nodes)


def _take_turns(queues: Sequence[Sequence[Json]]) -> list[Json]:
    """Return all pods, evenly mixed, so that no tenant is early."""
    places = [
        ((number + 0.5) / len(queue), turn, pod)
        for turn, queue in enumerate(queues)
        for number, pod in enumerate(queue)
    ]
    return [pod for _, _, pod in sorted(places, key=lambda place: place[:2])]


def _is_ready(metrics: ApiClient) -> bool:
    try:
        metrics.get("/readyz")
    except (ApiError, urllib3.exceptions.HTTPError):
        return False
    return True


def _check_running(operator: subprocess.Popen[bytes], log: Path) -> None:
    code = operator.poll()
    if code is not None:
        raise DemoError(f"the operator ended with code {code}; the end of its log:\n{processes.read_tail(log)}")
