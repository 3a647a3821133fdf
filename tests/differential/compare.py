"""Holds what fairbind says of pods against what kube-scheduler's filters say; knows where they differ on purpose.

A case is one pod in one world. Compared are the nodes that may take it and, where no node does, how many nodes each
plugin refuses for a reason that is not about room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from differential.generate import World
from differential.oracle import Oracle, Refusal, Verdict
from differential.ours import ROOM, Opinion, Ours

Json = dict[str, Any]

READINESS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
HARD: Final = ("NoSchedule", "NoExecute")
TAINTS = "TaintToleration"
BEFORE_TAINTS: Final = ("NodeUnschedulable", TAINTS)

NOT_READY = "a node that is not ready and has no taint that says so"
NOMINATED_PORTS = "host ports of a pod that is nominated to a node are not kept for it"
RESIZED = "containers of a pod that is being resized are counted one by one, which may hold more than their sums"
ON_PURPOSE: Final = (NOT_READY, NOMINATED_PORTS, RESIZED)
"""Where the two differ on purpose. docs/reliability/differential.md gives the reasons."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A world as the API server would list it, and the oracle's verdict on each pod that waits in it."""

    seed: int
    nodes: Sequence[Json]
    namespaces: Sequence[Json]
    pods: Sequence[Json]
    waiting: Sequence[Json]
    verdicts: Sequence[Verdict]


@dataclass(frozen=True, slots=True)
class Difference:
    """One pod of which the two say different things. why: one of ON_PURPOSE, or empty for a fault."""

    seed: int
    pod: str
    why: str
    text: str


def ask_oracle(oracle: Oracle, world: World) -> Asked:
    """Return the world without the pods that the API server would refuse, and the verdicts on those that wait."""
    pods, waiting = oracle.create(world.pods), oracle.create(world.asked)
    verdicts = oracle.judge({"nodes": world.nodes, "pods": pods, "namespaces": world.namespaces}, waiting)
    return Asked(world.seed, world.nodes, world.namespaces, pods, waiting, verdicts)


def compare(asked: Asked, blind: Callable[[Json], Json] = lambda thing: thing) -> Iterator[Difference]:
    """Yield where fairbind differs. blind: what it is shown in place of each node and pod."""
    pods = [blind(pod) for pod in asked.pods]
    ours = Ours([blind(node) for node in asked.nodes], asked.namespaces, pods)
    for pod, verdict in zip(asked.waiting, asked.verdicts, strict=True):
        yield from compare_pod(asked.seed, pod, asked.nodes, asked.pods, verdict, ours.judge(blind(pod)))


def compare_pod(
    seed: int, pod: Json, nodes: Sequence[Json], pods: Sequence[Json], verdict: Verdict, opinion: Opinion
) -> Iterator[Difference]:
    """Yield where the two differ about one pod."""
    name = pod["metadata"]["name"]
    unready = {node["metadata"]["name"] for node in nodes if is_quietly_unready(node, pod)}
    expected = {
        node: Refusal(TAINTS, ()) if node in unready and not is_refused_before(refusal) else refusal
        for node, refusal in verdict.items()
    }
    if expected != verdict:
        yield Difference(seed, name, NOT_READY, ", ".join(sorted(unready)))
    if opinion.not_supported:
        yield Difference(seed, name, "", f"waits as not supported: {opinion.not_supported}")
        return
    feasible = {node for node, refusal in expected.items() if refusal is None}
    for node in sorted(feasible ^ opinion.feasible):
        told = "may take it" if node in opinion.feasible else "refuses it"
        text = f"fairbind says that {node} {told}; kube-scheduler: {expected[node]}"
        yield Difference(seed, name, explain(node, pod, pods, expected[node], opinion), text)
    refused = count_refused(expected)
    if not feasible and not opinion.feasible and refused != opinion.refused and not has_fields(pod):
        yield Difference(seed, name, "", f"refused by {opinion.refused}; kube-scheduler: {refused}")


def is_refused_before(refusal: Refusal | None) -> bool:
    """Whether a filter refuses that comes before readiness in fairbind."""
    return refusal is not None and refusal.plugin in BEFORE_TAINTS


def explain(node: str, pod: Json, pods: Sequence[Json], refusal: Refusal | None, opinion: Opinion) -> str:
    """Return why the two differ on purpose about a node, or an empty text."""
    there = [other for other in pods if other["spec"].get("nodeName") == node]
    promised = [
        other
        for other in pods
        if not other["spec"].get("nodeName") and other["status"].get("nominatedNodeName") == node
    ]
    if refusal is None and node not in opinion.feasible and any(is_resized(other) for other in there):
        return RESIZED
    if refusal is not None and refusal.plugin == "NodePorts" and node in opinion.feasible:
        rank = pod["spec"].get("priority", 0)
        if any(has_host_port(other) and other["spec"].get("priority", 0) >= rank for other in promised):
            return NOMINATED_PORTS
    return ""


def count_refused(verdict: Verdict) -> Mapping[str, int]:
    """Return how many nodes each plugin refuses, or would refuse if there were room; without those about room."""
    counts = Counter[str]()
    for refusal in verdict.values():
        if refusal is not None:
            counts[refusal.besides if refusal.plugin in ROOM else refusal.plugin] += 1
    del counts[""]
    return dict(counts)


def is_quietly_unready(node: Json, pod: Json) -> bool:
    """Whether a node is not ready, no taint says so, and the pod does not tolerate it."""
    is_ready = any(found["type"] == "Ready" and found["status"] == "True" for found in node["status"]["conditions"])
    taints = node["spec"].get("taints", [])
    is_told = any(taint["key"] in READINESS and taint["effect"] in HARD for taint in taints)
    return not is_ready and not is_told and not any(map(tolerates_not_ready, pod["spec"].get("tolerations", [])))


def tolerates_not_ready(toleration: Json) -> bool:
    """Whether a toleration is one for nodes that are not ready."""
    if toleration.get("effect") not in {None, "", "NoSchedule"}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", READINESS[0]}
    return toleration.get("key") == READINESS[0] and not toleration.get("value")


def is_resized(pod: Json) -> bool:
    """Whether a node says what it has allocated to a pod's containers."""
    return any("resources" in status for status in pod["status"].get("containerStatuses", []))


def has_host_port(pod: Json) -> bool:
    """Whether a pod takes a port of its node."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return any(port.get("hostPort") for container in containers for port in container.get("ports", []))


def has_fields(pod: Json) -> bool:
    """Whether a pod names nodes: kube-scheduler then asks only those, and counts all others under that reason."""
    required = (
        pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    return required is not None and any(term.get("matchFields") for term in required["nodeSelectorTerms"])
