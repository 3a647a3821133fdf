"""Whether a pod may be where it is, judged from the API's objects alone; written simply, from Kubernetes' rules.

A pod that is bound stays when its node changes later, so what a node says now judges only the pods that were bound
after its last change: by the times that the API server itself notes beside the fields of an object.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from localplane.client import Json

ANY_ADDRESS = "0.0.0.0"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
DECISIVE_FIELDS = ("f:taints", "f:unschedulable")


def find_objections(pod: Json, node: Json) -> list[str]:
    """Return why the node as it is now is not for this pod, whatever it holds; nothing when it is."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    found = [
        f"nodeSelector wants {key}={value}, not {labels.get(key)}"
        for key, value in (spec.get("nodeSelector") or {}).items()
        if labels.get(key) != value
    ]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(_is_met(term, node) for term in required["nodeSelectorTerms"]):
        found.append("no term of its node affinity is met")
    taints = list(node["spec"].get("taints") or [])
    if node["spec"].get("unschedulable"):
        taints.append(UNSCHEDULABLE)
    tolerations = spec.get("tolerations") or []
    found += [
        f"taint {taint['key']}={taint.get('value', '')}:{taint['effect']} is not tolerated"
        for taint in taints
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(one, taint) for one in tolerations)
    ]
    return found


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return bool(toleration.get("operator") == "Exists")
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _is_met(term: Json, node: Json) -> bool:
    """All expressions of a term must hold; a term without any matches nothing."""
    metadata = node["metadata"]
    conditions = [(one, metadata.get("labels") or {}) for one in term.get("matchExpressions") or []]
    conditions += [(one, {"metadata.name": metadata["name"]}) for one in term.get("matchFields") or []]
    return bool(conditions) and all(_holds(one, texts) for one, texts in conditions)


def _holds(expression: Json, texts: Mapping[str, str]) -> bool:
    text, values = texts.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return text in values
        case "NotIn":
            return text not in values
        case "Exists":
            return text is not None
        case "DoesNotExist":
            return text is None
        case "Gt":
            return text is not None and int(text) > int(values[0])
        case "Lt":
            return text is not None and int(text) < int(values[0])
        case operator:
            raise AssertionError(f"no such operator: {operator}")


def find_judged(
    pods: Iterable[Json], nodes: Mapping[str, Json], *, scheduler_name: str, but: Collection[str] = ()
) -> list[Json]:
    """Return the pods of which it is known whether this scheduler should have put them where they are.

    pods: all that are on some node and not finished. but: nodes that do not count.
    """
    changed_at = {name: find_change(node) for name, node in nodes.items() if name not in but}
    found = []
    for pod in pods:
        bound_at, since = find_binding(pod), changed_at.get(pod["spec"]["nodeName"])
        is_ours = pod["spec"].get("schedulerName") == scheduler_name
        if is_ours and bound_at is not None and since is not None and bound_at > since:
            found.append(pod)
    return found


def find_misplaced(
    pods: Iterable[Json], nodes: Mapping[str, Json], *, scheduler_name: str, but: Collection[str] = ()
) -> list[str]:
    """Return a line for each pod that this scheduler should not have put where it is. pods, but: of `find_judged`."""
    pods = list(pods)
    judged = find_judged(pods, nodes, scheduler_name=scheduler_name, but=but)
    found = [
        f"{_name(pod)} on {node}: {why}"
        for pod in judged
        for node in [pod["spec"]["nodeName"]]
        for why in find_objections(pod, nodes[node])
    ]
    by_node: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        by_node[pod["spec"]["nodeName"]].append(pod)
    for name, there in by_node.items():
        if name in nodes and name not in but:
            found += [f"{line} on {name}" for line in _find_port_conflicts(there, scheduler_name)]
    return found


def find_change(node: Json) -> dt.datetime:
    """Return when taints, labels, the cordon or readiness of a node were last changed, to the second."""
    times = [_parse_time(node["metadata"].get("creationTimestamp"))]
    for entry in node["metadata"].get("managedFields") or []:
        fields = entry.get("fieldsV1") or {}
        is_decisive = not set(DECISIVE_FIELDS).isdisjoint(fields.get("f:spec") or {})
        if is_decisive or "f:labels" in (fields.get("f:metadata") or {}):
            times.append(_parse_time(entry.get("time")))
    times += [
        _parse_time(condition.get("lastTransitionTime"))
        for condition in (node.get("status") or {}).get("conditions") or []
        if condition["type"] == "Ready"
    ]
    return max(times)


def find_binding(pod: Json) -> dt.datetime | None:
    """Return when a pod was bound, to the second; None when nothing says so."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            return _parse_time(condition.get("lastTransitionTime"))
    return None


def _parse_time(text: str | None) -> dt.datetime:
    return dt.datetime.fromisoformat(text or "1970-01-01T00:00:00Z")


def _find_port_conflicts(pods: list[Json], scheduler_name: str) -> Iterator[str]:
    """Whoever was bound last should not have come; two of the same second are both asked."""
    beginning = _parse_time(None)
    for one, other in combinations([(pod, set(_list_ports(pod))) for pod in pods], 2):
        shared = [(a, b) for a in one[1] for b in other[1] if _clash(a, b)]
        if shared:
            times = [find_binding(pod) or beginning for pod, _ in (one, other)]
            late = [pod for (pod, _), time in zip((one, other), times, strict=True) if time == max(times)]
            if any(pod["spec"].get("schedulerName") == scheduler_name for pod in late):
                yield f"{_name(one[0])} and {_name(other[0])} share the host port {shared[0][0]}"


def _list_ports(pod: Json) -> Iterator[tuple[str, str, int]]:
    """Yield protocol, address and port of each port that a pod takes of its node."""
    spec: Any = pod["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    for container in containers:
        for port in container.get("ports") or []:
            number = port.get("hostPort") or (port["containerPort"] if spec.get("hostNetwork") else 0)
            if number:
                yield port.get("protocol") or "TCP", port.get("hostIP") or ANY_ADDRESS, number


def _clash(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return (one[0], one[2]) == (other[0], other[2]) and (one[1] == other[1] or ANY_ADDRESS in {one[1], other[1]})


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
