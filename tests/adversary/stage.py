"""Where attacks happen: a control plane with many nodes and tenants, one operator, and a quiet tenant that is timed."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import urllib3
import yaml

from e2e.api import Api, ApiError, call_many
from e2e.clusters import Cluster
from e2e.modes import BIND, GATE, LABELS, VALUES, OtherScheduler, TurningApi
from e2e.objects import SCHEDULER_NAME, TENANTS, make_name, make_pod, make_tenant
from e2e.operators import Operator, start_operator
from e2e.sampling import Sampling
from e2e.turns import wait_gated
from e2e.waiting import wait_for
from faults.judge import LEASE_SECONDS, Judge, read_token_id
from faults.world import NotingPlane
from localplane.nodes import make_node
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from e2e.api import Json
    from localplane.tools import Tools

POOL = "example.com/pool"
QUIET = "quiet"
ALONE = "alone"
"""A namespace of no tenant."""
ATTACKER = "attacker"
PLACED_SUFFIX = "-placed"
PLACED = ATTACKER + PLACED_SUFFIX
"""The attacker's second namespace, whose pods do not take part: there he may write pods that are placed."""
QUIET_NODES = 4
SERVER = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"}
PROBE = {"cpu": "100m", "memory": "64Mi"}
POLL_SECONDS = 0.003
PROBE_SECONDS = 60.0
"""A probe that takes longer counts as so long: it may never be bound."""
SAMPLE_SECONDS = 0.2
MEBIBYTE = 1 << 20
WITHOUT_OPERATOR = {"operator": {"enabled": False}}


@dataclass(frozen=True, slots=True)
class Size:
    """How big everything is. scale: of what an attacker makes, as a part of what the whole form has."""

    nodes: int
    tenants: int
    probes: int
    rounds: int
    scale: float

    def of(self, count: int) -> int:
        """Return how many of what an attacker makes so many in the whole form."""
        return max(1, round(count * self.scale))


class Memory(Sampling):
    """Samples the resident memory of a process and all that it started while the context lasts. peak: in MiB."""

    def __init__(self, group: int) -> None:
        super().__init__("memory")
        self.peak = 0.0
        self._group = group

    def sample(self) -> None:
        """Keep the largest that is seen."""
        while not self.ended.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, read_group_memory(self._group))


def read_group_memory(group: int) -> float:
    """Return the resident memory, in MiB, of all processes of a group."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * 4096 / MEBIBYTE
    return total


def compute_p99(seconds: Sequence[float]) -> float:
    """Return the least time that 99 % do not exceed."""
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]


@dataclass(slots=True)
class Stage:
    """A context manager. api: the administrator's view. mode: of the operator; see `modes`.

    waiting: how many pods of the attacker were made that wait for a scheduler.
    """

    tools: Tools
    size: Size
    folder: Path
    mode: str = BIND
    operator: Operator | None = None
    starts: int = 0
    waiting: int = 0
    plane: NotingPlane = field(init=False)
    cluster: Cluster = field(init=False)
    judge: Judge = field(init=False)
    api: Api = field(init=False)
    _arguments: tuple[str, ...] = ()
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.plane = stack.enter_context(NotingPlane(self.tools))
            self.cluster = stack.enter_context(Cluster.connect(self.plane.kubeconfig, self.tools, self.plane))
            self.api = self.cluster.api
            self.install_chart()
            if self.mode != BIND:
                self.api = TurningApi.connect(self.plane.kubeconfig)
                stack.callback(self.api.close)
                self._start_scheduler()
            self.judge = Judge(self.plane.audit_log)
            stack.callback(self.end_operator)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def install_chart(self, values: Json | None = None) -> None:
        """Install the chart in the stage's mode, without an operator. values: besides those of the mode."""
        self.cluster.install_chart({**WITHOUT_OPERATOR, **VALUES[self.mode], **(values or {})})

    def _start_scheduler(self) -> None:
        """Start kube-scheduler, which places the pods in the other modes."""
        (port,) = find_free_ports(1)
        scheduler = OtherScheduler.make(self.plane, self.mode, self.folder / "extender", port)
        self._arguments = tuple(scheduler.compute_arguments(port))
        if self.mode == GATE:
            wait_gated(self.cluster.api, self.make_namespace(make_name("first"), claimed=False))
        scheduler.start()

    def start_operator(self, *arguments: str) -> Operator:
        """End the operator that runs, start another one, with HTTPS as the chart does, and wait until it leads."""
        self.end_operator()
        self.starts += 1
        kubeconfig = self.cluster.operator_kubeconfig()
        token = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
        self.judge.owners[read_token_id(token)] = f"operator {self.starts}"
        log = self.folder / f"operator-{self.starts}.log"
        self.operator = start_operator(kubeconfig, log, ("--metrics-tls=self-signed", *self._arguments, *arguments))
        self.operator.trust_certificate()
        self.operator.wait_ready()
        wait_for(self.has_led, describe="it to lead")
        return self.operator

    def has_led(self) -> bool:
        """Tell whether the present operator has written the lease."""
        self.judge.read_on()
        return any(write.owner == f"operator {self.starts}" and write.holder for write in self.judge.leases)

    def end_operator(self) -> None:
        """End the operator in order, so that the next one need not wait for the lease."""
        if self.operator is not None:
            self.operator.stop()
            self.operator.close()
            self.operator = None

    def fill(self) -> None:
        """Make the nodes and tenants of the whole form."""
        size = self.size
        servers = [make_node(f"n{number:05d}", allocatable=SERVER) for number in range(size.nodes)]
        quiet = [{"key": POOL, "value": QUIET, "effect": "NoSchedule"}]
        servers += [
            make_node(f"quiet{number}", labels={POOL: QUIET}, allocatable=SERVER, taints=quiet)
            for number in range(QUIET_NODES)
        ]
        self.plane.add_nodes(servers)
        crowd = [f"crowd-{number:04d}" for number in range(size.tenants)]
        self.make_namespace(QUIET)
        self.make_namespace(ALONE, claimed=False, takes_part=False)
        self.make_namespaces(ATTACKER)
        call_many(crowd, self.make_namespace)
        self.plane.wait_nodes_ready(timeout_seconds=900.0)
        call_many(crowd, lambda name: self.make_pods(name, [make_pod(PROBE)]))

    def settle(self) -> None:
        """Wait until no pod waits, so that none of the other tenants' stands before the first that is timed."""
        self.start_operator()
        waiting = functools.partial(self.api.items, "/api/v1/pods", fieldSelector="spec.nodeName=", limit=1)
        wait_for(lambda: not waiting(), 900.0, lambda: f"all pods to be bound: {waiting()}"[:300], pause=1.0)

    def make_namespaces(self, tenant: str) -> tuple[str, str]:
        """Make a Tenant with two namespaces: whose pods wait their turn, and where the chart lets pods name a node."""
        waiting, placed = tenant, tenant + PLACED_SUFFIX
        self.make_namespace(waiting, claimed=False)
        self.make_namespace(placed, claimed=False, takes_part=False)
        self.api.post(TENANTS, make_tenant(tenant, namespaces=[waiting, placed]))
        return waiting, placed

    def make_namespace(self, name: str, *, claimed: bool = True, takes_part: bool = True) -> str:
        """Make a namespace in which pods can be made, and a Tenant of the same name that claims it."""
        labels = LABELS.get(self.mode, {}) if takes_part else {}
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        if claimed:
            self.api.post(TENANTS, make_tenant(name, namespaces=[name]))
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for(lambda: self.api.exists(account), describe=account)
        return name

    def make_pods(self, namespace: str, pods: Sequence[Json]) -> None:
        """Create pods on a few connections."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        if namespace == ATTACKER:
            self.waiting += sum(pod["spec"]["schedulerName"] == SCHEDULER_NAME for pod in pods)
        call_many(pods, functools.partial(self.api.post, path))

    def remove_pods(self, namespace: str) -> None:
        """Delete all pods of a namespace and wait until they are gone."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        wait_for(functools.partial(self._try_to_empty, path), 900.0, f"{namespace} to be empty", pause=1.0)

    def _try_to_empty(self, path: str) -> bool:
        with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
            self.api.delete(path, {"gracePeriodSeconds": 0})
        return not self.api.items(path, limit=1)

    def time_probe(self, namespace: str = QUIET) -> float:
        """Return how many seconds a pod takes until it is bound. namespace: as a rule the quiet tenant's.

        In `ALONE` kube-scheduler places it, and fairbind has no say.
        """
        path = f"/api/v1/namespaces/{namespace}/pods"
        toleration = {"key": POOL, "operator": "Exists"}
        name = make_name("probe")
        began_at = time.perf_counter()
        self.api.post(path, make_pod(PROBE, name=name, nodeSelector={POOL: QUIET}, tolerations=[toleration]))
        passed = 0.0
        while passed < PROBE_SECONDS:
            is_bound = self.api.get(f"{path}/{name}")["spec"].get("nodeName")
            passed = time.perf_counter() - began_at
            if is_bound:
                break
            time.sleep(POLL_SECONDS)
        self.api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
        return passed

    def measure(self, namespace: str = QUIET) -> float:
        """Return the least p99 of the rounds: whatever else runs on the machine only adds."""
        return min(self._measure_round(namespace) for _ in range(self.size.rounds))

    def _measure_round(self, namespace: str) -> float:
        times: list[float] = []
        for _ in range(self.size.probes):
            times.append(self.time_probe(namespace))
            if times[-1] >= PROBE_SECONDS:
                break  # it will not become better, and nobody has that much time
        return compute_p99(times)

    def find_longest_pause(self, since: int) -> float:
        """Return the longest time, in seconds, between two renewals of the lease since so many writes of it.

        It waits for a renewal after this moment, which what has just ended may hold up. Infinite if none comes.
        """
        asked_at = dt.datetime.now(dt.UTC)
        patience = time.monotonic() + 3 * LEASE_SECONDS
        while not (self.judge.leases and self.judge.leases[-1].moment > asked_at):
            if time.monotonic() > patience:
                return math.inf
            time.sleep(SAMPLE_SECONDS)
            self.judge.read_on()
        moments = [write.moment for write in self.judge.leases[max(0, since - 1) :]]
        return max((later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments))
