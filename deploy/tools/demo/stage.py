"""What the play needs of a cluster, and what is the same on every cluster: steps that are shown, tenants, their pods.

A `Stage` is a cluster in which fairbind runs already: ``local_stage`` and ``kind_stage`` make one each. Everything
else in the demo knows no more of the cluster than this.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from demo import workload
from demo.feeding import COLLECTIONS, Feeder, Patience, create_object
from demo.servers import POLL_SECONDS, DemoError
from demo.summary import GpuUse
from demo.workload import Cast, DemoTenant, Json
from localplane.client import ApiClient

NAMESPACE = "fairbind-system"
NAMESPACE_TIMEOUT_SECONDS = 300.0
RETRY_SECONDS = 1.0
BOUND_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Selects the pods that hold what they requested."""


class Stream(Protocol):
    """Makes what the tenants ask for. is_lasting: whether what it makes from now on never ends."""

    is_lasting: bool

    def make_first(self, tenant: DemoTenant, fill: int) -> list[Json]:
        """Return the objects that a tenant comes with: so many times its usual backlog."""

    def make_missing(self, tenant: DemoTenant, waiting: Mapping[tuple[str, str], int]) -> list[Json]:
        """Return the objects that bring a tenant's backlog to the usual. waiting: pods now, by namespace and kind."""


class Stage(Protocol):
    """A cluster with fairbind, its first tenants and their first pods."""

    @property
    def api(self) -> ApiClient:
        """The API server, as the administrator."""

    @property
    def cast(self) -> Cast:
        """The tenants."""

    @property
    def stream(self) -> Stream:
        """Where their pods come from."""

    @property
    def nodes(self) -> int:
        """How many nodes the tenants share."""

    @property
    def log(self) -> Path:
        """Where the demo writes when it goes on without a terminal."""

    def read_metrics(self) -> str:
        """Return the page of metrics of the operator that leads."""

    def check_operator(self) -> None:
        """Raise DemoError when it is certain that no operator runs any more."""

    def read_operator_log(self) -> str:
        """Return the end of the operator's log."""

    def has_ended(self) -> bool:
        """Tell whether there is nothing left to be kept."""

    def format_report(self) -> str:
        """Return what a Prometheus that looks on has to say; empty where there is none."""

    def format_kept(self) -> str:
        """Return how to reach and how to end what is kept, in a few lines."""


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


def bring_first_tenants(api: ApiClient, cast: Cast, stream: Stream) -> None:
    """Let the first tenants come, all at once, so that no one is early."""
    feeder, patience = Feeder(api), Patience()

    def welcome_first() -> list[Json]:
        add_tenants(api, cast.first)
        return _take_turns([stream.make_first(tenant, workload.FIRST_FILL) for tenant in cast.first])

    while not patience.attempt(lambda: feeder.feed(welcome_first)):
        time.sleep(RETRY_SECONDS)


def welcome(stage: Stage, tenant: DemoTenant) -> list[Json]:
    """Let a tenant come, its namespace and its Tenant object; return its first objects, which are to be made."""
    add_tenants(stage.api, [tenant])
    return stage.stream.make_first(tenant, workload.LATE_FILL)


def add_tenants(api: ApiClient, tenants: Sequence[DemoTenant]) -> None:
    """Create namespaces and Tenants that are not there yet, and wait until pods can be made there."""
    for tenant in tenants:
        if tenant.has_pods:
            create_object(api, workload.make_namespace(tenant))
        create_object(api, workload.make_tenant(tenant))
    for tenant in (tenant for tenant in tenants if tenant.has_pods):
        deadline = time.monotonic() + NAMESPACE_TIMEOUT_SECONDS
        while not api.exists(f"/api/v1/namespaces/{tenant.namespace}/serviceaccounts/default"):
            if time.monotonic() > deadline:
                raise DemoError(f"namespace {tenant.namespace} got no service account: is the controller manager well?")
            time.sleep(POLL_SECONDS)


def remove_finished(stage: Stage) -> None:
    """Delete the pods that have run to their end."""
    for tenant in (tenant for tenant in stage.cast.tenants if tenant.has_pods):
        path = COLLECTIONS["Pod"].format(tenant.namespace)
        stage.api.delete(path, fieldSelector="status.phase=Succeeded")


def find_gpus(stage: Stage) -> dict[str, GpuUse]:
    """Return by model how many GPUs there are, and how many of them the limited tenant holds now."""
    nodes = stage.api.items("/api/v1/nodes", labelSelector=workload.MODEL_LABEL)
    model_of = {node["metadata"]["name"]: node["metadata"]["labels"][workload.MODEL_LABEL] for node in nodes}
    pods = stage.api.items(COLLECTIONS["Pod"].format(stage.cast.limited.namespace), fieldSelector=BOUND_PODS)
    held: Counter[str] = Counter()
    for pod in pods:
        if pod["spec"]["nodeName"] in model_of:
            held[model_of[pod["spec"]["nodeName"]]] += _count_gpus(pod)
    return {model: GpuUse(held[model], count) for model, count in workload.count_gpus(nodes).items()}


def _count_gpus(pod: Json) -> int:
    return sum(int(each["resources"]["requests"].get(workload.GPU, "0")) for each in pod["spec"]["containers"])


def _take_turns(queues: Sequence[Sequence[Json]]) -> list[Json]:
    """Return all objects, evenly mixed, so that no tenant is early."""
    places = [
        ((number + 0.5) / len(queue), turn, body)
        for turn, queue in enumerate(queues)
        for number, body in enumerate(queue)
    ]
    return [body for _, _, body in sorted(places, key=lambda place: place[:2])]
