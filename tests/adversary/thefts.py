"""The thefts: what a tenant takes that is another's, judged by who has how many pods in the API's state.

Each has a few servers of its own, tenants that want all of them, and an operator that starts when everybody waits, so
that nobody was there first. A theft returns what is wrong, nothing when it brought nothing, and the figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adversary.storage import limit_slots, make_bound, make_claiming_pod, make_classes, remove_storage
from e2e.checks import is_held
from e2e.modes import BIND, COMPONENT
from e2e.objects import POLICIES, TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adversary.stage import Stage
    from localplane.client import Json

TOLERANCE = 0.05
MOST_MESSAGE, MOST_STATUS = 4096, 16384
"""Characters of a condition, and of a Tenant's status: names that somebody makes up must not fill them."""
QUIET_SECONDS = 5.0
SETTLE_SECONDS = 120.0
Found = tuple[list[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Theft:
    """What is tried. in_small: whether the small form has it, too."""

    name: str
    attempt: Callable[[Stage], Found]
    in_small: bool = True


THEFTS: list[Theft] = []


def theft(name: str, *, in_small: bool = True) -> Callable[[Callable[[Stage], Found]], Callable[[Stage], Found]]:
    """Register a function as a theft."""

    def register(attempt: Callable[[Stage], Found]) -> Callable[[Stage], Found]:
        THEFTS.append(Theft(name, attempt, in_small))
        return attempt

    return register


def make_servers(stage: Stage, count: int, allocatable: Mapping[str, str]) -> list[str]:
    """Make servers and wait until they are ready."""
    names = [make_name("server") for _ in range(count)]
    stage.plane.add_nodes([make_node(name, allocatable=allocatable, taints=[]) for name in names])
    stage.plane.wait_nodes_ready(names)
    return names


def count_held(stage: Stage, namespaces: Sequence[str]) -> dict[str, int]:
    """Return how many pods of each namespace are on some node."""
    pods = stage.api.items("/api/v1/pods")
    return {name: sum(is_held(pod) and pod["metadata"]["namespace"] == name for pod in pods) for name in namespaces}


def wait_calm(stage: Stage, namespaces: Sequence[str]) -> dict[str, int]:
    """Return how many pods of each are held once some are, and that has not changed for a while."""
    deadline = time.monotonic() + SETTLE_SECONDS
    seen, since = count_held(stage, namespaces), time.monotonic()
    while (not any(seen.values()) or time.monotonic() - since < QUIET_SECONDS) and time.monotonic() < deadline:
        time.sleep(0.5)
        now = count_held(stage, namespaces)
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def find_unequal(parts: Mapping[str, int], expected: float) -> list[str]:
    """Return who has less or more than expected, but for five in a hundred and one pod."""
    most = max(1.0, TOLERANCE * expected)
    return [f"{name} has {held} of {expected:.0f}" for name, held in parts.items() if abs(held - expected) > most]


@theft("slots by pods that ask for next to nothing")
def steal_slots(stage: Stage) -> Found:
    """Pods of 1m against pods of 100m, on servers whose slots are scarce and whose CPUs are not."""
    slots = max(20, stage.size.of(110))
    servers = make_servers(stage, 10, {"cpu": "64", "memory": "256Gi", "pods": str(slots)})
    free = slots * len(servers)
    thief, honest = stage.make_namespace(make_name("thief")), stage.make_namespace(make_name("honest"))
    stage.make_pods(thief, [make_pod({"cpu": "1m", "memory": "1Mi"}) for _ in range(free)])
    stage.make_pods(honest, [make_pod({"cpu": "100m", "memory": "128Mi"}) for _ in range(free)])
    stage.start_operator()
    held = wait_calm(stage, [thief, honest])
    return find_unequal(held, free / 2), {"slots": free, "thief": held[thief], "honest": held[honest]}


@theft("slots by pods that ask for 1m instead of nothing", in_small=False)
def steal_slots_from_silent(stage: Stage) -> Found:
    """Pods of 1m against pods that say nothing, which count as 100m."""
    servers = make_servers(stage, 4, {"cpu": "64", "memory": "256Gi", "pods": "30"})
    free = 30 * len(servers)
    thief, silent = stage.make_namespace(make_name("thief")), stage.make_namespace(make_name("honest"))
    stage.make_pods(thief, [make_pod({"cpu": "1m", "memory": "1Mi"}) for _ in range(free)])
    stage.make_pods(silent, [make_pod() for _ in range(free)])
    stage.start_operator()
    held = wait_calm(stage, [thief, silent])
    return find_unequal(held, free / 2), {"slots": free, "thief": held[thief], "honest": held[silent]}


@theft("ephemeral storage by pods that ask for little else")
def steal_storage(stage: Stage) -> Found:
    """Pods of next to no CPU against pods of two, on servers whose storage is scarce."""
    servers = make_servers(stage, 4, {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": "110"})
    storage, free = {"ephemeral-storage": "10Gi"}, 10 * len(servers)
    thief, honest = stage.make_namespace(make_name("thief")), stage.make_namespace(make_name("honest"))
    stage.make_pods(thief, [make_pod({"cpu": "10m", "memory": "16Mi", **storage}) for _ in range(free)])
    stage.make_pods(honest, [make_pod({"cpu": "2", "memory": "4Gi", **storage}) for _ in range(free)])
    stage.start_operator()
    held = wait_calm(stage, [thief, honest])
    return find_unequal(held, free / 2), {"room": free, "thief": held[thief], "honest": held[honest]}


@theft("attach slots for volumes, by tiny pods with two volumes each")
def steal_attach_slots(stage: Stage) -> Found:
    """Pods of 1m with two volumes against pods of 100m with one, on servers that attach few volumes."""
    servers = make_servers(stage, 4, {"cpu": "64", "memory": "256Gi", "pods": "110"})
    slots, free = 20, 20 * len(servers)
    make_classes(stage)
    limit_slots(stage, servers, slots)
    thief, honest = stage.make_namespace(make_name("thief")), stage.make_namespace(make_name("honest"))
    claims = make_bound(stage, thief, free)
    tiny = [
        make_claiming_pod({"cpu": "1m", "memory": "1Mi"}, two) for two in zip(claims[::2], claims[1::2], strict=True)
    ]
    stage.make_pods(thief, tiny)
    plain = [make_claiming_pod({"cpu": "100m", "memory": "128Mi"}, [name]) for name in make_bound(stage, honest, free)]
    stage.make_pods(honest, plain)
    stage.start_operator()
    held = wait_calm(stage, [thief, honest])
    parts = {"thief": 2 * held[thief], "honest": held[honest]}
    return find_unequal(parts, free / 2), {"attach slots": free, **parts}


@theft("a server that is cordoned, which only pods that tolerate it may use")
def use_cordoned(stage: Stage) -> Found:
    """No theft but a row of the list: pods that tolerate a cordon were refused, as a DaemonSet's are in a drain."""
    server, *_ = make_servers(stage, 1, {"cpu": "8", "memory": "32Gi", "pods": "20"})
    stage.api.patch(f"/api/v1/nodes/{server}", {"spec": {"unschedulable": True}})
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    thief, tolerant = stage.make_namespace(make_name("thief")), stage.make_namespace(make_name("honest"))
    stage.make_pods(thief, [make_pod({"cpu": "1"}) for _ in range(4)])
    stage.make_pods(tolerant, [make_pod({"cpu": "1"}, tolerations=[toleration]) for _ in range(4)])
    stage.start_operator()
    held = wait_calm(stage, [thief, tolerant])
    found = [f"{held[thief]} pods that do not tolerate it are on it"] if held[thief] else []
    found += [f"only {held[tolerant]} of 4 pods that tolerate it are on it"] if held[tolerant] < 4 else []
    return found, {"tolerant": held[tolerant], "others": held[thief]}


@theft("labels, status and conditions filled with names that no node offers")
def fill_names(stage: Stage) -> Found:
    """Twenty new names a pod; one pod with thousands."""
    make_servers(stage, 2, {"cpu": "8", "memory": "32Gi", "pods": "20"})
    thief = stage.make_namespace(make_name("thief"))
    names = (f"example.com/made-up-{number}" for number in range(10_000))
    pods = [make_pod({next(names): "1" for _ in range(20)}) for _ in range(stage.size.of(200))]
    pods.append(make_pod({next(names): "1" for _ in range(stage.size.of(4_000))}))
    stage.make_pods(thief, pods)
    operator = stage.start_operator()
    wait_calm(stage, [thief])
    seen = stage.api.items(f"/api/v1/namespaces/{thief}/pods")
    messages = [len(one.get("message") or "") for pod in seen for one in find_own_conditions(pod)]
    status = len(json.dumps(stage.api.get(f"{TENANTS}/{thief}").get("status") or {}))
    page = sum("made-up" in line for line in operator.metrics().text.splitlines())
    longest = max(messages, default=0)
    found = [f"a condition of {longest} characters"] if longest > MOST_MESSAGE else []
    found += [f"a Tenant's status of {status} characters"] if status > MOST_STATUS else []
    found += [f"{page} lines of the metrics name what nobody offers"] if page else []
    return found, {"condition": longest, "status": status, "metric lines": page}


def find_own_conditions(pod: Json) -> list[Json]:
    """Return the conditions of a pod but for those that kube-scheduler wrote, which name what it likes."""
    others = [
        name
        for entry in pod["metadata"].get("managedFields") or []
        if entry["manager"] == COMPONENT
        for name in entry["fieldsV1"].get("f:status", {}).get("f:conditions", {})
    ]
    return [one for one in pod["status"].get("conditions") or [] if f'k:{{"type":"{one["type"]}"}}' not in others]


@theft("the whole cluster, by Deferred resizes")
def resize_deferred(stage: Stage) -> Found:
    """A tiny pod on each server asks for all of it, which its kubelet puts off; then both tenants want more.

    kube-scheduler gives no capacity away that a deferred resize asks for. Where it places the pods, and so leaves the
    servers empty on its own, it is no theft as long as the thief has no more of them than others.
    """
    servers = make_servers(stage, 8, {"cpu": "16", "memory": "64Gi", "pods": "110"})
    (thief, placed), honest = stage.make_namespaces(make_name("thief")), stage.make_namespace(make_name("honest"))
    for server in servers:
        pod = make_pod({"cpu": "1m", "memory": "1Mi"}, nodeName=server)
        stage.make_pods(placed, [pod])
        defer_resize(stage, placed, pod, {"cpu": "16", "memory": "1Mi"})
    has_capacity = stage.mode == BIND or sees_room(stage, placed)
    for name in (thief, honest):
        stage.make_pods(name, [make_pod({"cpu": "2", "memory": "1Gi"}) for _ in range(64)])
    stage.start_operator()
    held = wait_calm(stage, [thief, honest])
    cores = {name: 2 * count for name, count in held.items()}
    fair = 8 * 16 // 2 if has_capacity else cores[thief]
    found = []
    if cores[honest] < fair * (1 - TOLERANCE):
        found = [f"of {fair} cores that are its fair share the honest tenant has {cores[honest]}"]
    figures = {"thief's cores": cores[thief], "honest cores": cores[honest]}
    return found, figures if has_capacity else {**figures, "kube-scheduler reserves": 8 * 16}


def sees_room(stage: Stage, namespace: str) -> bool:
    """Tell whether kube-scheduler finds room for two cores, before it asks any extender."""
    pod = make_pod({"cpu": "2", "memory": "1Gi"})
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    stage.make_pods(namespace, [pod])

    def find_message() -> list[str]:
        conditions = stage.api.get(path)["status"].get("conditions") or []
        return [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]

    wait_for(find_message, describe=f"kube-scheduler to look at {path}")
    (message,) = find_message()
    stage.api.delete(path, {"gracePeriodSeconds": 0})
    return "Insufficient cpu" not in message


def defer_resize(stage: Stage, namespace: str, pod: Json, requests: dict[str, str]) -> None:
    """Ask for an in-place resize, and say in the kubelet's place that it must wait."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    wait_for(lambda: stage.api.get(path)["status"].get("phase") == "Running", describe=f"{path} to run")
    allocated = pod["spec"]["containers"][0]["resources"]["requests"]
    can_resize = {"name": "main", "resources": {"requests": allocated}, "allocatedResources": allocated}
    stage.api.patch(f"{path}/status", {"status": {"containerStatuses": [can_resize]}}, kind="strategic")
    container = {"name": "main", "resources": {"requests": requests}}
    stage.api.patch(f"{path}/resize", {"spec": {"containers": [container]}}, kind="strategic")
    condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    stage.api.patch(f"{path}/status", {"status": {"conditions": [condition]}}, kind="strategic")


@theft("a share for each namespace that no tenant claims")
def many_namespaces(stage: Stage) -> Found:
    """One person's namespaces against one tenant's, with unclaimedNamespaces: together."""
    servers = make_servers(stage, 4, {"cpu": "16", "memory": "64Gi", "pods": "110"})
    free = 16 * len(servers)
    honest = stage.make_namespace(make_name("honest"))
    own = [stage.make_namespace(make_name("own"), claimed=False) for _ in range(stage.size.of(99))]
    stage.api.patch(f"{POLICIES}/default", {"spec": {"unclaimedNamespaces": "together"}})
    try:
        for name in own:
            stage.make_pods(name, [make_pod({"cpu": "1", "memory": "1Gi"}) for _ in range(-(-free // len(own)) + 1)])
        stage.make_pods(honest, [make_pod({"cpu": "1", "memory": "1Gi"}) for _ in range(free)])
        stage.start_operator()
        held = wait_calm(stage, [honest, *own])
    finally:
        stage.api.patch(f"{POLICIES}/default", {"spec": {"unclaimedNamespaces": None}})
    parts = {"honest": held[honest], "all others": sum(held[name] for name in own)}
    return find_unequal(parts, free / 2), {"room": free, **parts}


@theft("the room that a preemptor of kube-scheduler is nominated to")
def take_nominated(stage: Stage) -> Found:
    """A critical pod is to have a server that was emptied for it; our pods want it too."""
    server, other = make_servers(stage, 2, {"cpu": "4", "memory": "8Gi", "pods": "20"})
    name = stage.make_namespace(make_name("critical"))
    thief = stage.make_namespace(make_name("thief"))
    whole = {"cpu": "4", "memory": "6Gi"}
    critical = make_pod(whole, scheduler_name="default-scheduler", priorityClassName="system-cluster-critical")
    stage.make_pods(name, [critical])
    path = f"/api/v1/namespaces/{name}/pods/{critical['metadata']['name']}"
    stage.api.patch(f"{path}/status", {"status": {"nominatedNodeName": server}})
    stage.make_pods(thief, [make_pod({"cpu": "1", "memory": "1Gi"}) for _ in range(8)])
    stage.start_operator()
    wait_calm(stage, [thief])
    placed = [pod["spec"].get("nodeName") for pod in stage.api.items(f"/api/v1/namespaces/{thief}/pods")]
    taken, rest = placed.count(server), placed.count(other)
    found = [f"{taken} pods are on the server that another was nominated to"] if taken else []
    found += [f"only {rest} of 4 pods are on the other server"] if rest < 4 else []
    return found, {"on the nominated server": taken, "on the other": rest}


def clean_up(stage: Stage) -> None:
    """Take away what a theft has made: its pods, tenants and servers."""
    stage.end_operator()
    spaces = [space["metadata"] for space in stage.api.items("/api/v1/namespaces")]
    for name in [space["name"] for space in spaces if "deletionTimestamp" not in space]:  # those are going already
        if name.partition("-")[0] in {"thief", "honest", "own", "critical"}:
            stage.remove_pods(name)
            stage.api.delete(f"/api/v1/namespaces/{name}")
    remove_storage(stage, [])  # claims go with their namespaces
    for tenant in stage.api.items(TENANTS):
        stage.api.delete(f"{TENANTS}/{tenant['metadata']['name']}")
    for node in stage.api.items("/api/v1/nodes"):
        stage.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
