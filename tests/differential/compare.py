"""Holds what fairbind says of pods against what kube-scheduler's filters say; knows where they differ on purpose.

A case is one pod in one world. Compared are the nodes that may take it, and how many of the others refuse it for which
reason: the plugin, and for a lack of room each resource that is short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from differential.generate import World
from differential.oracle import Oracle, Refusal, Verdict
from differential.ours import FIT, OTHER_PODS, Opinion, Ours, name_lack
from fairbind.cluster.objects.facts import BASE_RESOURCES

Json = dict[str, Any]

READINESS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
HARD: Final = ("NoSchedule", "NoExecute")
TAINTS = "TaintToleration"
PORTS = "NodePorts"
SHARED_VOLUMES: Final = ("VolumeRestrictions", "NodeVolumeLimits")
TOO_MANY_PODS = "Too many pods"
ABOUT_OTHER_PODS: Final = ("PodTopologySpread", "InterPodAffinity")
BEFORE_TAINTS: Final = ("NodeUnschedulable", TAINTS)
FEATURES = "NodeDeclaredFeatures"
BEFORE_FEATURES: Final = (*BEFORE_TAINTS, "NodeAffinity")
"""Filters that fairbind, too, asks before it asks for features of kubelets."""

NOT_READY = "a node that is not ready and has no taint that says so"
NOMINATED_PORTS = "host ports of a pod that is nominated to a node are not kept for it"
NOMINATED_APART = "a pod that is nominated to a node keeps others away from it, also those that wish nothing themselves"
NOMINATED_EMPTY = "a spread whose selector is empty counts no pod, also none that is nominated"
NOMINATED_VOLUMES = "volumes of a pod that is nominated to a node are not kept for it"
CLAIM_TWICE = "a claim that a pod names twice gets one volume"
RESIZED = "containers of a pod that is being resized are counted one by one, which may hold more than their sums"
DEFERRED = "what a deferred growth of a tenant above its fair share asks for is not reserved"
NODE_GONE = "a claim that waits for a volume on a node that is gone is told by claim and node"
NOT_OFFERED = "a resource that no node offers is the only lack of room that is told"
ZONE_FIRST = "the zone of a volume that a pod has is told before the lack of another volume"
ON_PURPOSE: Final = (
    NOT_READY,
    NOMINATED_PORTS,
    NOMINATED_APART,
    NOMINATED_EMPTY,
    NOMINATED_VOLUMES,
    CLAIM_TWICE,
    RESIZED,
    DEFERRED,
    NODE_GONE,
    NOT_OFFERED,
    ZONE_FIRST,
)
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
    storage: Mapping[str, Sequence[Json]]


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
    cluster = {"nodes": world.nodes, "pods": pods, "namespaces": world.namespaces, **world.storage}
    verdicts = oracle.judge(cluster, waiting)
    return Asked(world.seed, world.nodes, world.namespaces, pods, waiting, verdicts, world.storage)


def ask_listed(oracle: Oracle, listed: Asked, pod: Json) -> Asked:
    """Return a world that an API server has listed with a pod that waits in it, and the verdict on that."""
    cluster = {"nodes": listed.nodes, "pods": listed.pods, "namespaces": listed.namespaces, **listed.storage}
    return replace(listed, waiting=(pod,), verdicts=oracle.judge(cluster, [pod]))


def compare(asked: Asked, blind: Callable[[Json], Json] = lambda thing: thing) -> Iterator[Difference]:
    """Yield where fairbind differs. blind: what it is shown in place of each node and pod."""
    pods = [blind(pod) for pod in asked.pods]
    storage = {kind: [blind(item) for item in items] for kind, items in asked.storage.items()}
    ours = Ours([blind(node) for node in asked.nodes], asked.namespaces, pods, storage)
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
    lacking = {node["metadata"]["name"] for node in nodes if lacks_feature(node, pod)}
    expected = {
        node: Refusal(FEATURES, ()) if node in lacking and is_refused_later(refusal) else refusal
        for node, refusal in expected.items()
    }
    if opinion.claim:
        yield from compare_claim(seed, pod, verdict, opinion.claim)
        return
    if opinion.not_supported:
        yield Difference(seed, name, "", f"waits as not supported: {opinion.not_supported}")
        return
    feasible = {node for node, refusal in expected.items() if refusal is None}
    for node in sorted(feasible ^ opinion.feasible):
        told = "may take it" if node in opinion.feasible else "refuses it"
        text = f"fairbind says that {node} {told}; kube-scheduler: {expected[node]}"
        yield Difference(seed, name, explain(node, pod, pods, expected[node], opinion), text)
    if feasible == opinion.feasible and not names_nodes(pod):
        yield from compare_reasons(seed, pod, nodes, pods, expected, opinion)


def compare_claim(seed: int, pod: Json, verdict: Verdict, told: str) -> Iterator[Difference]:
    """Yield where kube-scheduler would place a pod that waits for a claim, or tells of something else about volumes."""
    name = pod["metadata"]["name"]
    feasible = sorted(node for node, refusal in verdict.items() if refusal is None)
    refusals = [refusal for refusal in verdict.values() if refusal is not None and is_about_claims(refusal)]
    words = {reason for refusal in refusals for reason in refusal.reasons}
    is_told_by_node = told.startswith("node(s)")  # then another reason may come first, even on every node
    if feasible or (words and told not in words and not is_told_by_node):
        why = NODE_GONE if not feasible and told.endswith(", which does not exist") else ""
        yield Difference(seed, name, why, f"waits: {told}; kube-scheduler: {feasible or sorted(words)}")


def is_about_claims(refusal: Refusal) -> bool:
    """Whether a refusal may be about a claim, whatever the node."""
    return refusal.plugin in {"VolumeRestrictions", "VolumeBinding", "VolumeZone"}


def compare_reasons(
    seed: int, pod: Json, nodes: Sequence[Json], pods: Sequence[Json], expected: Verdict, opinion: Opinion
) -> Iterator[Difference]:
    """Yield where the two refuse a pod on the same nodes for other reasons."""
    name, refused = pod["metadata"]["name"], count_refused(expected)
    not_offered = find_not_offered(pod, nodes)
    if not_offered:
        told = count_refused({node: tell_only(refusal, not_offered) for node, refusal in expected.items()})
        if told != refused:
            yield Difference(seed, name, NOT_OFFERED, ", ".join(not_offered))
        refused = told
        if refused != opinion.refused and merge_wishes(refused, not_offered) == merge_wishes(
            opinion.refused, not_offered
        ):
            yield Difference(seed, name, NOT_OFFERED, "before rules about other pods")
            return
    if refused != opinion.refused:
        text = f"refused by {dict(opinion.refused)}; kube-scheduler: {dict(refused)}"
        yield Difference(seed, name, explain_reasons(pod, pods, expected, refused, opinion), text)


def explain_reasons(
    pod: Json, pods: Sequence[Json], verdict: Verdict, refused: Mapping[str, int], opinion: Opinion
) -> str:
    """Return why the two differ on purpose in what they refuse a pod for, or an empty text.

    What is told of a node on which pods are resized may be another lack besides. A node that lacks what is asked for
    beyond ports may be told for that where kube-scheduler tells of the ports of a nominated pod.
    """
    kinds = {*refused, *opinion.refused}
    is_about_limits = any(opinion.refused.get(kind, 0) != refused.get(kind, 0) for kind in SHARED_VOLUMES)
    more = {kind for kind in kinds if opinion.refused.get(kind, 0) > refused.get(kind, 0)}
    fewer = {kind for kind in kinds if opinion.refused.get(kind, 0) < refused.get(kind, 0)}
    is_about_room = all(kind.startswith(FIT) for kind in more)
    has_resized = any(
        refusal is not None and refusal.plugin == FIT and any(map(is_resized, find_placed(node, pods)))
        for node, refusal in verdict.items()
    )
    has_ports = any(keeps_ports(node, pod, pods, refusal) for node, refusal in verdict.items())
    is_less_about_room = not more and all(kind.startswith(FIT) for kind in fewer)
    has_deferred = any(has_deferred_pod(node, pods) for node in verdict)
    causes = (
        (NOMINATED_VOLUMES, is_about_limits and any(keeps_volumes(node, pod, pods) for node in verdict)),
        (ZONE_FIRST, (more, fewer) == ({"VolumeZone"}, {"VolumeBinding"})),
        (CLAIM_TWICE, fewer == {"VolumeBinding"} and names_claim_twice(pod)),
        (NOMINATED_APART, more == {OTHER_PODS} and any(is_kept_away(node, pod, pods) for node in verdict)),
        (NOMINATED_EMPTY, fewer == {OTHER_PODS} and any(is_counted_alone(node, pod, pods) for node in verdict)),
        (RESIZED, is_about_room and not fewer and has_resized),
        (NOMINATED_PORTS, is_about_room and fewer == {PORTS} and has_ports),
        (DEFERRED, is_less_about_room and has_deferred),
    )
    return next((why for why, holds in causes if holds), "")


def is_refused_before(refusal: Refusal | None) -> bool:
    """Whether a filter refuses that comes before readiness in fairbind."""
    return refusal is not None and refusal.plugin in BEFORE_TAINTS


def is_refused_later(refusal: Refusal | None) -> bool:
    """Whether a filter refuses that fairbind asks after it has asked for features of kubelets."""
    if refusal is None:
        return False
    return (refusal.besides or refusal.plugin) not in BEFORE_FEATURES


def lacks_feature(node: Json, pod: Json) -> bool:
    """Whether a pod needs a feature that the node's kubelet does not declare."""
    rules = (rule for container in list_containers(pod) for rule in container.get("restartPolicyRules", ()))
    needs = any(rule["action"] == "RestartAllContainers" for rule in rules)
    return needs and "RestartAllContainersOnContainerExits" not in node["status"].get("declaredFeatures", ())


def explain(node: str, pod: Json, pods: Sequence[Json], refusal: Refusal | None, opinion: Opinion) -> str:
    """Return why the two differ on purpose about a node, or an empty text."""
    if refusal is None and node not in opinion.feasible and any(map(is_resized, find_placed(node, pods))):
        return RESIZED
    causes = {
        "VolumeBinding": (CLAIM_TWICE, names_claim_twice(pod)),
        "PodTopologySpread": (NOMINATED_EMPTY, is_counted_alone(node, pod, pods)),
    }
    if has_deferred_pod(node, pods):
        causes[FIT] = (DEFERRED, True)
    if node in opinion.feasible and refusal is not None and refusal.plugin in causes:
        why, holds = causes[refusal.plugin]
        return why if holds else ""
    if refusal is None and node not in opinion.feasible and is_kept_away(node, pod, pods):
        return NOMINATED_APART
    if node in opinion.feasible and keeps_ports(node, pod, pods, refusal):
        return NOMINATED_PORTS
    if (refusal is None or refusal.plugin in SHARED_VOLUMES) and keeps_volumes(node, pod, pods):
        return NOMINATED_VOLUMES
    return ""


def merge_wishes(refused: Mapping[str, int], not_offered: Sequence[str]) -> Mapping[str, int]:
    """Return counts in which nodes that lack such a resource or are refused because of other pods are one kind.

    A node that lacks several such resources counts once.
    """
    lacks = {name_lack(resource) for resource in not_offered}
    most = max((count for kind, count in refused.items() if kind in lacks), default=0)
    rest = {kind: count for kind, count in refused.items() if kind not in lacks and kind != OTHER_PODS}
    return {**rest, OTHER_PODS: most + refused.get(OTHER_PODS, 0)}


def find_placed(node: str, pods: Sequence[Json]) -> list[Json]:
    """Return the pods that are on a node."""
    return [pod for pod in pods if pod["spec"].get("nodeName") == node]


def keeps_ports(node: str, pod: Json, pods: Sequence[Json], refusal: Refusal | None) -> bool:
    """Whether kube-scheduler may keep ports of a node for a pod that is nominated to it."""
    return (refusal is not None and refusal.plugin == PORTS) and any(
        map(has_host_port, find_nominated(node, pod, pods))
    )


def keeps_volumes(node: str, pod: Json, pods: Sequence[Json]) -> bool:
    """Whether kube-scheduler may count volumes on a node of a pod that is nominated to it."""
    return any(other["spec"].get("volumes") for other in find_nominated(node, pod, pods))


def names_claim_twice(pod: Json) -> bool:
    """Whether two volumes of a pod are of one claim, for which kube-scheduler then looks for two volumes."""
    volumes = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes", ()))
    claims = [claim["claimName"] for claim in volumes if claim is not None]
    return len(set(claims)) < len(claims)


def is_kept_away(node: str, pod: Json, pods: Sequence[Json]) -> bool:
    """Whether kube-scheduler may not ask the terms of pods that are nominated to a node: the pod has none itself."""
    has_terms = any(pod["spec"].get("affinity", {}).get(kind) for kind in ("podAffinity", "podAntiAffinity"))
    nominated = find_nominated(node, pod, pods)
    return not has_terms and any(other["spec"].get("affinity", {}).get("podAntiAffinity") for other in nominated)


def is_counted_alone(node: str, pod: Json, pods: Sequence[Json]) -> bool:
    """Whether kube-scheduler counts pods that are nominated to a node for a spread whose selector is empty."""
    has_empty = any(wish.get("labelSelector") == {} for wish in pod["spec"].get("topologySpreadConstraints", ()))
    return has_empty and bool(find_nominated(node, pod, pods))


def find_nominated(node: str, pod: Json, pods: Sequence[Json]) -> list[Json]:
    """Return the pods that are nominated to a node and come before another pod."""
    rank = pod["spec"].get("priority", 0)
    return [
        other
        for other in pods
        if not other["spec"].get("nodeName")
        and other["status"].get("nominatedNodeName") == node
        and other["spec"].get("priority", 0) >= rank
    ]


def find_not_offered(pod: Json, nodes: Sequence[Json]) -> list[str]:
    """Return the resources that a pod asks for and no node has, not even none of it; sorted."""
    offered = {resource for node in nodes for resource in node["status"]["allocatable"]} | set(BASE_RESOURCES)
    requests = [container.get("resources", {}).get("requests", {}) for container in list_containers(pod)]
    return sorted({resource for each in requests for resource in each if each[resource] != "0"} - offered)


def tell_only(refusal: Refusal | None, resources: Sequence[str]) -> Refusal | None:
    """Return what a refusal for lack of room is when a lack of these resources is told, and no other."""
    if refusal is None or refusal.besides or refusal.plugin not in {PORTS, FIT}:
        return refusal
    return Refusal(FIT, tuple(f"Insufficient {resource}" for resource in resources))


def count_refused(verdict: Verdict) -> Mapping[str, int]:
    """Return how many nodes refuse for what, in the order of fairbind's filters: other pods come before room."""
    counts = Counter[str]()
    for refusal in verdict.values():
        if refusal is not None:
            counts.update(name_refusal(refusal))
    return dict(counts)


def name_refusal(refusal: Refusal) -> list[str]:
    """Return what one refusal counts for.

    >>> name_refusal(Refusal("NodeResourcesFit", ("Too many pods", "Insufficient cpu")))
    ['NodeResourcesFit: pods', 'NodeResourcesFit: cpu']
    """
    if refusal.besides or refusal.plugin != FIT:
        plugin = refusal.besides or refusal.plugin
        return [OTHER_PODS if plugin in ABOUT_OTHER_PODS else plugin]
    lacks = (reason.removeprefix("Insufficient ") for reason in refusal.reasons)
    return [name_lack("pods" if lack == TOO_MANY_PODS else lack) for lack in lacks]


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
    """Whether a node says what it has allocated to one of several containers; with a single one the two agree."""
    return len(list_containers(pod)) > 1 and any(
        "resources" in status for status in pod["status"].get("containerStatuses", [])
    )


def is_deferred(pod: Json) -> bool:
    """Whether a pod asks its node for more than the node has now."""
    return any(
        condition["type"] == "PodResizePending" and condition.get("reason") == "Deferred"
        for condition in pod["status"].get("conditions", [])
    )


def has_deferred_pod(node: str, pods: Sequence[Json]) -> bool:
    """Whether a node has a pod that asks for more than the node has now."""
    return any(map(is_deferred, find_placed(node, pods)))


def has_host_port(pod: Json) -> bool:
    """Whether a pod takes a port of its node."""
    return any(port.get("hostPort") for container in list_containers(pod) for port in container.get("ports", []))


def list_containers(pod: Json) -> list[Json]:
    """Return all containers of a pod."""
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def names_nodes(pod: Json) -> bool:
    """Whether a pod names its nodes: kube-scheduler then asks only those, and counts all others under that reason."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is not None and all(
        any(field["operator"] == "In" for field in term.get("matchFields", ()))
        for term in required["nodeSelectorTerms"]
    )
