"""What must hold on a cluster with real kubelets, judged from what the API server and the kubelets say alone.

Nothing of fairbind is imported: what a pod counts for (with init containers, sidecars and overhead), who holds what,
and the shares that follow are written anew here, simply.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from e2e.checks import Amounts, View, add, is_finished, is_ours, is_usable, is_waiting, parse_quantity
from e2e.objects import TENANTS
from e2e.waiting import wait_for
from e2e.workloads import list_pods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from e2e.api import Api, Json

SHARES_SECONDS = 300.0
"""A status is written every two seconds, every ten while many bindings are in flight. On a slow machine more adds up:
a new leader first waits up to ten seconds for the lease and lists everything, the watches lag behind, the operators get
little of the CPU, and each look of ours takes seconds."""
STATUS_DIGITS = 0.0006
CALM_SECONDS = 300.0
FAKE_LABEL = "type"
NOT_COUNTED = {"pods"}
REFUSALS = {
    "InvalidNodeInfo",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeUnschedulable",
    "TaintToleration",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
}


def read_requests(container: Json) -> Amounts:
    """Return what a container requests; the API server has put its limits where it says nothing."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return {resource: parse_quantity(text) for resource, text in requests.items()}


def compute_demand(pod: Json) -> Amounts:
    """Return what a pod counts for, one of `pods` included: the larger of while it starts and while it runs."""
    running: Amounts = {}
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in pod["spec"]["containers"]:
        add(running, read_requests(container))
    for container in pod["spec"].get("initContainers") or []:
        requests = read_requests(container)
        if container.get("restartPolicy") == "Always":
            add(running, requests)
            add(sidecars, requests)
            continue
        add(requests, sidecars)
        for resource, amount in requests.items():
            starting[resource] = max(starting.get(resource, Decimal(0)), amount)
    total = {r: max(running.get(r, Decimal(0)), starting.get(r, Decimal(0))) for r in running.keys() | starting.keys()}
    add(total, {resource: parse_quantity(text) for resource, text in (pod["spec"].get("overhead") or {}).items()})
    return {**total, "pods": Decimal(1)}


class Picture(View):
    """The API's state at one moment, with demands as Kubernetes counts them."""

    @classmethod
    def take(cls, api: Api) -> Picture:
        picture = super().take(api)
        assert isinstance(picture, Picture)
        return picture

    @staticmethod
    def compute_demand(pod: Json) -> Amounts:
        return compute_demand(pod)

    def sum_admitted(self) -> dict[str, Amounts]:
        """Return what the pods hold that their kubelets have let in, by node."""
        return self.sum_by_node(is_admitted)

    def find_overfull(self) -> list[str]:
        """Return every node and resource of which kubelets have let in more than there is."""
        found = []
        for node, amounts in self.sum_admitted().items():
            capacity = self.allocatable(node) if node in self.nodes else {}
            for resource, amount in amounts.items() if capacity else ():
                if amount > capacity.get(resource, 0):
                    found.append(f"{node}: {amount} of {capacity.get(resource, 0)} {resource}")
        return found

    def capacity(self, nodes: Collection[str] | None = None) -> Amounts:
        """Return what tenants can hold on the nodes that can be used (of these): without what system pods hold."""
        system: dict[str, Amounts] = defaultdict(dict)
        for pod in self.pods:
            is_system = not is_ours(pod) and self.find_tenant(pod["metadata"]["namespace"]) is None
            if is_system and pod["spec"].get("nodeName") and not is_finished(pod):
                add(system[pod["spec"]["nodeName"]], compute_demand(pod))
        total: Amounts = {}
        for name, node in self.nodes.items():
            if is_usable(node) and (nodes is None or name in nodes):
                held = system[name]
                left = {r: amount - held.get(r, Decimal(0)) for r, amount in self.allocatable(name).items()}
                add(total, {resource: max(amount, Decimal(0)) for resource, amount in left.items()})
        return total

    def expect_status(self, tenant: str, nodes: Collection[str] | None = None) -> Json:
        """Return what a Tenant's status must say: dominantShare, allocated (amounts), running and pending pods.

        nodes: those that the policy shares; all that can be used when None.
        """
        allocated: Amounts = {}
        running = pending = 0
        for pod in self.pods:
            if self.find_tenant(pod["metadata"]["namespace"]) != tenant or is_finished(pod):
                continue
            if pod["spec"].get("nodeName"):
                add(allocated, compute_demand(pod))
                running += 1
            elif is_waiting(pod):
                pending += 1
        return {
            "dominantShare": compute_dominant_share(allocated, self.capacity(nodes)),
            "allocated": {resource: amount for resource, amount in allocated.items() if amount},
            "running": running,
            "pending": pending,
        }


def compute_dominant_share(allocated: Amounts, capacity: Amounts) -> float:
    """Return the largest of the shares of what counts, at most 1."""
    shares = [
        float(amount / capacity[resource])
        for resource, amount in allocated.items()
        if resource not in NOT_COUNTED and capacity.get(resource)
    ]
    return min(1.0, max(shares, default=0.0))


def read_status(tenant: Json) -> Json:
    """Return a Tenant's status in the form of ``Picture.expect_status``."""
    status = tenant.get("status") or {}
    pods = status.get("pods") or {}
    return {
        "dominantShare": float(status.get("dominantShare", "nan")),
        "allocated": {name: parse_quantity(text) for name, text in (status.get("allocated") or {}).items()},
        "running": pods.get("running"),
        "pending": pods.get("pending"),
    }


def check_shares(api: Api, *tenants: str, nodes: Collection[str] | None = None) -> dict[str, Json]:
    """Check that the statuses of these Tenants come to say what the API's pods and nodes say; return them.

    nodes: those that the policy shares; all that can be used when None.
    """

    def agree() -> dict[str, Json]:
        picture = Picture.take(api)
        seen = {name: read_status(picture.tenants[name]) for name in tenants}
        for name, status in seen.items():
            expected = picture.expect_status(name, nodes)
            share = expected.pop("dominantShare")
            assert {key: status[key] for key in expected} == expected, name
            assert status["dominantShare"] == pytest.approx(share, abs=STATUS_DIGITS), name
        return seen

    return wait_for(agree, SHARES_SECONDS, f"the shares of {', '.join(tenants)} as the pods are", pause=0.5)


def is_admitted(pod: Json) -> bool:
    """Tell whether a kubelet has let the pod in and it has not ended: it runs, or its containers are on their way.

    Not when the pod is being deleted: its kubelet gives its room to the next one as soon as it has ended, and may
    report of the next one first.
    """
    is_ending = "deletionTimestamp" in pod["metadata"]
    has_started = bool(pod["status"].get("containerStatuses") or pod["status"].get("initContainerStatuses"))
    return not is_ending and has_started and pod["status"].get("phase") in {"Pending", "Running"}


def is_running(pod: Json) -> bool:
    """Tell whether all of a pod's containers run."""
    statuses = pod["status"].get("containerStatuses") or []
    return pod["status"].get("phase") == "Running" and all("running" in status["state"] for status in statuses)


def find_places(api: Api, namespace: str) -> dict[str, str]:
    """Return where the pods are that run and stay, by name."""
    pods = [pod for pod in list_pods(api, namespace) if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if is_running(pod)}


def is_refused(pod: Json) -> bool:
    """Tell whether a kubelet refused the pod after it was bound."""
    return pod["status"].get("phase") == "Failed" and is_refusal(pod["status"].get("reason") or "")


def is_refusal(reason: str) -> bool:
    """Tell whether a kubelet says so of a pod that it does not let in."""
    return reason.startswith("OutOf") or reason in REFUSALS


def find_refusals(api: Api, *namespaces: str) -> list[str]:
    """Return what kubelets refused in these namespaces, as the pods and the events say."""
    found = []
    for namespace in namespaces:
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
        events = api.items(f"/api/v1/namespaces/{namespace}/events")
        found += [f"{pod['metadata']['name']}: {pod['status'].get('message')}" for pod in pods if is_refused(pod)]
        found += [
            f"{event['involvedObject']['name']}: {event['reason']}: {event.get('message')}"
            for event in events
            if is_refusal(event.get("reason") or "")
        ]
    return found


def count_phases(api: Api, *namespaces: str) -> Counter[str]:
    """Return how many pods are in each phase."""
    pods = [pod for space in namespaces for pod in api.items(f"/api/v1/namespaces/{space}/pods")]
    return Counter(pod["status"].get("phase", "Unknown") for pod in pods)


def wait_calm(api: Api) -> None:
    """Wait until kubelets know no pod that the API server has forgotten: only then the room is what the API says.

    Pods that were deleted without grace are gone from the API at once, while their kubelets still end them.
    """

    def is_calm() -> bool:
        left = dict(find_strays(api))
        assert not left, f"kubelets still end {left}"
        return True

    wait_for(is_calm, CALM_SECONDS, "kubelets that know no other pods than the API server", pause=0.5)


def find_strays(api: Api) -> Iterator[tuple[str, list[str]]]:
    """Give each real node whose kubelet knows pods that the API server does not know, with their names."""
    nodes = [node for node in api.items("/api/v1/nodes") if is_usable(node)]
    seen_by = {
        node["metadata"]["name"]: api.items(f"/api/v1/nodes/{node['metadata']['name']}/proxy/pods")
        for node in nodes
        if (node["metadata"].get("labels") or {}).get(FAKE_LABEL) != "kwok"
    }
    known = {pod["metadata"]["uid"] for pod in api.items("/api/v1/pods")}
    for node, pods in seen_by.items():
        left = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["uid"] not in known and pod["metadata"]["namespace"] != "kube-system"
        ]
        if left:
            yield node, left


def read_tenant(api: Api, name: str) -> Json:
    """Return a Tenant's status."""
    status: Json = api.get(f"{TENANTS}/{name}").get("status") or {}
    return status
