"""Kubernetes objects as JSON has them, and caches filled with them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.decode import NAMESPACES, NODES, PODS, ResourceType
from fairbind.cluster.objects.facts import NamespaceFacts, NodeFacts, PodFacts
from fairbind.model import TaskClass, Wait

Json = dict[str, Any]
SCHEDULER = "fairbind"
_versions = itertools.count(1)


def next_version() -> str:
    return str(next(_versions))


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "team",
    requests: Mapping[str, str] | None = None,
    node: str | None = None,
    phase: str = "Pending",
    scheduler: str = SCHEDULER,
    created: str = "2026-01-01T00:00:00Z",
    labels: Mapping[str, str] | None = None,
    uid: str | None = None,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Json:
    """A pod with one container; what is left goes into its spec."""
    container = {"name": "main", "resources": {"requests": dict(requests)} if requests else {}}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": next_version(),
            "creationTimestamp": created,
            "labels": dict(labels or {}),
            **({"annotations": dict(annotations)} if annotations else {}),
            **({"ownerReferences": [{"apiVersion": "batch/v1", "controller": True, **owner}]} if owner else {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase, **(status or {})},
    }


def make_node(
    name: str = "node",
    *,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
) -> Json:
    """A node. images: bytes by name."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": next_version(),
            "labels": dict(labels or {}),
        },
        "spec": {"taints": list(taints), **({"unschedulable": True} if unschedulable else {})},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"} if allocatable is None else dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **({"images": [{"names": [name], "sizeBytes": size} for name, size in images.items()]} if images else {}),
        },
    }


def make_pod_group(
    name: str = "g",
    *,
    namespace: str = "team",
    uid: str | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Json:
    """A PodGroup of any format; what is left is its spec."""
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "creationTimestamp": created}
    return {"metadata": {**meta, "resourceVersion": next_version()}, "spec": spec}


def make_gang(minimum: int, name: str = "g", **spec: Any) -> Json:
    """A PodGroup of Kubernetes with a minimum."""
    return make_pod_group(name, schedulingPolicy={"gang": {"minCount": minimum}}, **spec)


def make_job(
    name: str = "job",
    *,
    namespace: str = "team",
    annotations: Mapping[str, str] | None = None,
    of_pods: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A Job; of_pods: the annotations of its pod template."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": dict(annotations or {})}
    template = {"metadata": {"annotations": dict(of_pods or {})}}
    return {"metadata": {**meta, "resourceVersion": next_version()}, "spec": {"template": template, **spec}}


def make_quota(
    name: str,
    *,
    namespace: str = "team",
    hard: Mapping[str, str] | None = None,
    used: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A ResourceQuota; the API server says what it grants and what is used in its status."""
    meta = {"name": name, "namespace": namespace, "resourceVersion": next_version()}
    return {"metadata": meta, "spec": spec, "status": {"hard": dict(hard or {}), "used": dict(used or {})}}


def make_namespace(name: str, labels: Mapping[str, str] | None = None) -> Json:
    return {"metadata": {"name": name, "resourceVersion": next_version(), "labels": dict(labels or {})}}


def read_pod(pod: Json) -> PodFacts:
    return PODS.decode_item(json.dumps(pod).encode())


def read_node(node: Json) -> NodeFacts:
    return NODES.decode_item(json.dumps(node).encode())


def read_namespace(namespace: Json) -> NamespaceFacts:
    return NAMESPACES.decode_item(json.dumps(namespace).encode())


class Cluster:
    """A cache that is told of objects in JSON, and counts how often it woke the loop or asked for another cycle."""

    def __init__(self, **settings: Any) -> None:
        self.changes = 0
        self.cache = ClusterCache(SCHEDULER, self._count, **settings)

    def _count(self) -> None:
        self.changes += 1

    def note_waits(self, waits: Sequence[Wait]) -> None:
        self.changes += self.cache.note_waits(waits)

    def add_pods(self, *pods: Json) -> None:
        for pod in pods:
            self.cache.pods.apply(read_pod(pod))

    def add_nodes(self, *nodes: Json) -> None:
        for node in nodes:
            self.cache.nodes.apply(read_node(node))

    def add_namespaces(self, *namespaces: Json) -> None:
        for namespace in namespaces:
            self.cache.namespaces.apply(read_namespace(namespace))

    def put_objects(self, resource_type: ResourceType[Any], *objects: Json) -> None:
        """Tell of PodGroups or Jobs."""
        feed = dict(self.cache.group_feeds)[resource_type]
        for each in objects:
            feed.apply(resource_type.decode_item(json.dumps(each).encode()))

    def delete_object(self, resource_type: ResourceType[Any], gone: Json) -> None:
        """Tell that a PodGroup or a Job is gone."""
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": next_version()}}
        dict(self.cache.group_feeds)[resource_type].delete(resource_type.decode_item(json.dumps(gone).encode()))

    def change_pod(self, pod: Json, change: Callable[[Json], object] = lambda _: None) -> Json:
        """Tell of a newer version of a pod."""
        changed: Json = json.loads(json.dumps(pod))
        change(changed)
        changed["metadata"]["resourceVersion"] = next_version()
        self.add_pods(changed)
        return changed

    def delete_pod(self, pod: Json) -> None:
        gone = json.loads(json.dumps(pod))
        gone["metadata"]["resourceVersion"] = next_version()
        self.cache.pods.delete(read_pod(gone))

    def find_class(self, uid: str) -> TaskClass | None:
        """The class of the snapshot in which a pod waits."""
        for task_class in self.cache.build_snapshot().task_classes:
            if any(task.uid == uid for task in task_class.tasks):
                return task_class
        return None

    def get_class(self, uid: str) -> TaskClass:
        task_class = self.find_class(uid)
        assert task_class is not None, f"{uid} does not wait"
        return task_class

    def find_eligible(self, uid: str) -> set[str]:
        """The nodes that a waiting pod may use."""
        servers = self.cache.build_snapshot().servers
        task_class = self.get_class(uid)
        if task_class.pin is not None:
            return set() if task_class.pin.server is None else {servers.names[task_class.pin.server]}
        eligible_k = task_class.placement.eligible_k
        return {name for name, eligible in zip(servers.names, eligible_k.tolist(), strict=True) if eligible}

    def get_free(self, node: str) -> dict[str, int]:
        snapshot = self.cache.build_snapshot()
        row = snapshot.servers.free_kr[snapshot.servers.names.index(node)].tolist()
        return dict(zip(snapshot.resources, row, strict=True))

    def get_capacity(self, node: str) -> dict[str, int]:
        snapshot = self.cache.build_snapshot()
        row = snapshot.servers.capacity_kr[snapshot.servers.names.index(node)].tolist()
        return dict(zip(snapshot.resources, row, strict=True))

    def get_allocated(self, tenant: str) -> dict[str, int]:
        """What a tenant holds in shares; empty for one that is not there."""
        snapshot = self.cache.build_snapshot()
        for known in snapshot.tenants:
            if known.name == tenant:
                return {r: a for r, a in zip(snapshot.resources, known.allocated_r, strict=True) if a}
        return {}
