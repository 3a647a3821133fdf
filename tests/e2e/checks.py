"""What must hold after every trouble, judged from the API's state alone.

Nothing of fairbind is imported: sums, quantities and rules of eligibility are written anew here and in placement.py,
simply, for the kinds of pods that these tests make (containers only).
"""

from __future__ import annotations

import datetime as dt
import functools
import time
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import urllib3
from kubernetes.utils.quantity import parse_quantity as parse_slowly

from e2e.api import ApiError
from e2e.audit import check_bound_once, read_bindings
from e2e.objects import SCHEDULER_NAME, TENANTS
from e2e.operators import LEASE
from e2e.placement import find_judged, find_misplaced, find_objections
from e2e.waiting import PATIENCE_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.operators import Metrics, Operator
    from e2e.stalls import Stalls

SYSTEM_NAMESPACES = {"kube-system", "kube-public", "kube-node-lease", "fairbind-system"}
FRESH_SECONDS = 5.0
"""Metrics agree with the API within this time."""
SLOW_SECONDS = 1.0
"""A look that takes so long says nothing about how fresh the metrics are."""
LOOK_PAUSE_SECONDS = 0.25
RELEASE_SECONDS = 2.0
"""An operator that ends tries three times to give the lease back, for so long each."""
SHARE_TOLERANCE = 1e-6

Amounts = dict[str, Decimal]
parse_quantity = functools.lru_cache(4096)(parse_slowly)
"""Thousands of pods say the same again and again."""


def compute_requests(pod: Json) -> Amounts:
    """Return what a pod without init containers requests, one of `pods` included."""
    total: Amounts = {"pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests") or {}
        add(total, {resource: parse_quantity(text) for resource, text in requests.items()})
    return total


def add(total: Amounts, more: Mapping[str, Decimal]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, Decimal(0)) + amount


def is_finished(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_held(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod)


def is_ours(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulerName") == SCHEDULER_NAME)


def is_waiting(pod: Json, scheduler_name: str = SCHEDULER_NAME) -> bool:
    meta, spec = pod["metadata"], pod["spec"]
    is_named = spec.get("schedulerName") == scheduler_name
    return is_named and not spec.get("nodeName") and not meta.get("deletionTimestamp") and not is_finished(pod)


def is_waiting_without_gates(pod: Json) -> bool:
    return is_waiting(pod) and not pod["spec"].get("schedulingGates")


def is_usable(node: Json) -> bool:
    conditions = node["status"].get("conditions") or []
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return is_ready and not node["spec"].get("unschedulable")


def is_eligible(pod: Json, node: Json) -> bool:
    """Tell whether the node is usable and nothing keeps the pod away from it, room aside."""
    return is_usable(node) and not find_objections(pod, node)


@dataclass(slots=True)
class View:
    """The API's state at one moment."""

    nodes: dict[str, Json]
    pods: list[Json]
    tenants: dict[str, Json]
    namespaces: dict[str, Json]
    used: dict[str, Amounts] = field(default_factory=dict)

    @classmethod
    def take(cls, api: Api) -> View:
        def by_name(items: Iterable[Json]) -> dict[str, Json]:
            return {item["metadata"]["name"]: item for item in items}

        view = cls(
            by_name(api.items("/api/v1/nodes")),
            list(api.items("/api/v1/pods")),
            by_name(api.items(TENANTS)),
            by_name(api.items("/api/v1/namespaces")),
        )
        view.used = view.sum_by_node()
        return view

    def sum_by_node(self, counts: Callable[[Json], object] = is_held) -> dict[str, Amounts]:
        """Return what those pods that count hold, by node."""
        used: dict[str, Amounts] = defaultdict(dict)
        for pod in filter(counts, self.pods):
            add(used[pod["spec"]["nodeName"]], self.compute_demand(pod))
        return dict(used)

    @staticmethod
    def compute_demand(pod: Json) -> Amounts:
        """Return what a pod counts for."""
        return compute_requests(pod)

    def allocatable(self, node: str) -> Amounts:
        amounts = self.nodes[node]["status"].get("allocatable") or {}
        return {resource: parse_quantity(text) for resource, text in amounts.items()}

    def find_overcommitted(self, *, but: Collection[str] = ()) -> list[str]:
        """Return every node and resource of which more is held than there is; `but`: nodes that a test shrank."""
        found = []
        for node, amounts in self.used.items():
            if node in self.nodes and node not in but:
                capacity = self.allocatable(node)
                found += [
                    f"{node}: {amount} of {capacity.get(resource, 0)} {resource}"
                    for resource, amount in amounts.items()
                    if amount > capacity.get(resource, 0)
                ]
        return found

    def find_misplaced(self, *, but: Collection[str] = ()) -> list[str]:
        """Return every pod that fairbind has put where it may not be; `but`: nodes that a test relabelled."""
        held = filter(is_held, self.pods)
        return find_misplaced(held, self.nodes, scheduler_name=SCHEDULER_NAME, but=but)

    def find_judged(self, *, but: Collection[str] = ()) -> list[Json]:
        """Return the pods that `find_misplaced` judges: those that were bound after their node's last change."""
        return find_judged(filter(is_held, self.pods), self.nodes, scheduler_name=SCHEDULER_NAME, but=but)

    def find_forgotten(
        self,
        objects: Callable[[Json, Json], Collection[str]] = lambda _pod, _node: (),
        waits: Callable[[Json], bool] = is_waiting_without_gates,
    ) -> list[str]:
        """Return waiting pods for which some node has room: none should wait then.

        objects: what else keeps a pod from a node. waits: which pods wait.
        """
        left = {name: self.compute_left(name) for name in self.nodes}
        return [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']} fits on {name}"
            for pod in self.pods
            if waits(pod)
            for demand in [self.compute_demand(pod)]
            for name, node in self.nodes.items()
            if all(amount <= left[name].get(resource, 0) for resource, amount in demand.items())
            and is_eligible(pod, node)
            and not objects(pod, node)
        ]

    def compute_left(self, node: str) -> Amounts:
        """Return what a node has left."""
        used = self.used.get(node, {})
        return {resource: amount - used.get(resource, 0) for resource, amount in self.allocatable(node).items()}

    def find_tenant(self, namespace: str) -> str | None:
        """Return whose namespace it is, for Tenants that claim by name; None: nobody's (a system namespace)."""
        claimers = [
            (tenant["metadata"]["creationTimestamp"], name)
            for name, tenant in self.tenants.items()
            if namespace in (tenant["spec"].get("namespaces") or [])
        ]
        if claimers:
            return min(claimers)[1]
        return None if namespace in SYSTEM_NAMESPACES else f"ns/{namespace}"


def check_cluster(cluster: Cluster, *, but: Collection[str] = ()) -> View:
    """Wait until no pod is forgotten; then check that nothing is overcommitted, misplaced or was bound twice.

    but: nodes whose capacity or labels a test changed after pods were there.
    """

    def is_settled() -> bool:
        forgotten = View.take(cluster.api).find_forgotten()
        assert not forgotten, f"{len(forgotten)} wait in vain: {forgotten[:5]}"
        return True

    wait_for(is_settled, describe="no pod to be forgotten", pause=0.5)
    view = View.take(cluster.api)
    overcommitted = view.find_overcommitted(but=but)
    assert not overcommitted, overcommitted
    misplaced = view.find_misplaced(but=but)
    assert not misplaced, f"{len(misplaced)} are where they may not be: {misplaced[:5]}"
    check_nothing_bound_twice(cluster)
    return view


def check_nothing_bound_twice(cluster: Cluster) -> None:
    """Check by the API server's audit log, where it can be read, that no pod was ever bound more than once."""
    if cluster.plane is not None:
        check_bound_once(read_bindings(cluster.plane.audit_log))


def check_given_back(api: Api, operator: Operator, stalls: Stalls) -> None:
    """Check that an operator that has ended in order holds the lease no more. stalls: of the API server, meanwhile.

    Where the API server stood still, the operator may have had to give up; then the lease must run out, as nobody
    renews it any more.
    """
    holder, log = api.get(LEASE)["spec"].get("holderIdentity"), operator.read_log(10_000)
    is_given_back = not holder or holder not in log  # which names the operator
    is_excused = stalls.seconds > RELEASE_SECONDS and "Gave back the lease" not in log
    assert is_given_back or is_excused, f"{holder} holds the lease, after stalls of {stalls.seconds:.1f} s"
    wait_for(lambda: is_free_from(api, log), describe=f"the lease of {holder} to be free or another's")


def is_free_from(api: Api, log: str) -> bool:
    """Tell whether the lease has run out, or is held by nobody or by somebody whom this log does not name."""
    spec = api.get(LEASE)["spec"]
    holder = spec.get("holderIdentity")
    if not holder or holder not in log:
        return True
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(spec["renewTime"])
    return bool(age.total_seconds() > spec["leaseDurationSeconds"])


def check_metrics(api: Api, operator: Operator, namespaces: Collection[str]) -> None:
    """Check that the metrics agree with the API's state within five seconds. namespaces: the test's own.

    The five seconds begin anew with each slow look: the machine, the API server or the operator stood still.
    """
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    calm_since = looked_at = time.monotonic()
    while True:
        try:
            compare_metrics(View.take(api), operator.metrics(), namespaces)
        except (ApiError, urllib3.exceptions.HTTPError, AssertionError):
            now = time.monotonic()
            if now - looked_at > SLOW_SECONDS + LOOK_PAUSE_SECONDS:
                calm_since = now
            if looked_at - calm_since > FRESH_SECONDS or now > gives_up_at:
                raise
            looked_at = now
            time.sleep(LOOK_PAUSE_SECONDS)
        else:
            return


def compare_metrics(view: View, metrics: Metrics, namespaces: Collection[str]) -> None:
    """Fail where a metric differs from what the API's state says."""
    _compare_capacity(view, metrics)
    expected: dict[str, list[Json]] = defaultdict(list)
    for name in [*view.tenants, *(f"ns/{namespace}" for namespace in namespaces)]:
        expected[name] = []  # an implicit tenant is there only while it has pods
    for pod in view.pods:
        tenant = view.find_tenant(pod["metadata"]["namespace"])
        if tenant is not None and pod["metadata"]["namespace"] in namespaces and not is_finished(pod):
            expected[tenant].append(pod)
    for tenant, pods in expected.items():
        _compare_tenant(tenant, pods, view.nodes, metrics)
    served = {sample.labels["tenant"] for sample in metrics.select("fairbind_tenant_weight")}
    assert not {name for name in served if not name.startswith("ns/")} - view.tenants.keys()


def _compare_capacity(view: View, metrics: Metrics) -> None:
    capacity: Amounts = {}
    system: Amounts = {}
    usable = {name for name, node in view.nodes.items() if is_usable(node)}
    for name in usable:
        add(capacity, view.allocatable(name))
    for pod in view.pods:
        is_system = not is_ours(pod) and view.find_tenant(pod["metadata"]["namespace"]) is None
        node = pod["spec"].get("nodeName")
        if is_finished(pod) or node not in view.nodes:
            continue
        if is_system and node in usable:
            add(system, compute_requests(pod))
        elif not is_system and node not in usable:  # what is held there counts in shares, so it counts in totals, too
            add(capacity, compute_requests(pod))
    for resource, amount in capacity.items():
        seen = metrics.value("fairbind_cluster_capacity", resource=resource)
        expected = float(amount - system.get(resource, 0))
        assert seen == expected, f"capacity of {resource}: {seen}, not {expected}"


def _compare_tenant(tenant: str, pods: list[Json], nodes: Collection[str], metrics: Metrics) -> None:
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    allocated: Amounts = {}
    for pod in bound:
        if pod["spec"]["nodeName"] in nodes:
            add(allocated, compute_requests(pod))
    seen = {
        sample.labels["resource"]: sample.value for sample in metrics.select("fairbind_tenant_allocated", tenant=tenant)
    }
    assert {resource: amount for resource, amount in seen.items() if amount} == {
        resource: float(amount) for resource, amount in allocated.items()
    }, f"allocated of {tenant}"
    running = metrics.value("fairbind_tenant_running_pods", tenant=tenant)
    assert (running or 0.0) == len(bound), f"running pods of {tenant}: {running}, not {len(bound)}"
    assert running is not None or tenant.startswith("ns/"), f"no metrics of {tenant}"
    waiting = sum(1 for pod in pods if is_waiting(pod))
    assert metrics.total("fairbind_tenant_pending_pods", tenant=tenant) == waiting, f"pending pods of {tenant}"
    _compare_shares(tenant, allocated, metrics)


def _compare_shares(tenant: str, allocated: Mapping[str, Decimal], metrics: Metrics) -> None:
    """For tenants whose pods all request cpu and memory, so that no default counts in their shares."""
    shares = {}
    for resource, amount in allocated.items():
        capacity = metrics.value("fairbind_cluster_capacity", resource=resource)
        if capacity and metrics.value("fairbind_fairness_resource", resource=resource):
            shares[resource] = float(amount) / capacity
    dominant = metrics.value("fairbind_tenant_dominant_share", tenant=tenant)
    weight = metrics.value("fairbind_tenant_weight", tenant=tenant)
    if dominant is None:
        assert not allocated, f"no dominant share of {tenant}"
        return
    assert abs(dominant - min(1.0, max(shares.values(), default=0.0))) < SHARE_TOLERANCE, f"dominant share of {tenant}"
    weighted = metrics.value("fairbind_tenant_weighted_dominant_share", tenant=tenant)
    assert weight is not None
    assert weighted is not None
    assert abs(weighted - max(shares.values(), default=0.0) / weight) < SHARE_TOLERANCE, f"weighted share of {tenant}"
