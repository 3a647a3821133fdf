"""What a snapshot file keeps of Kubernetes objects: the fields that are read for decisions, and nothing else.

The wire types have only fields that are read, so what is decoded into them is free of environments, annotations that
say nothing of groups, and whatever else a manifest holds. Some fields are read for other ends than a decision (messages
for events, owners, versions of a watch): those are taken away. So are images, although a node that has one is
preferred: a snapshot is for others to read, and the names of images say what runs in a cluster, and in which version.
Pods that have ended hold nothing any more; of those that succeeded it is kept how long they ran, for estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from fairbind.cluster.objects import admission_wire, device_wire, group_wire, storage_wire, wire
from fairbind.cluster.objects.convert import FINISHED_PHASES, parse_time
from fairbind.cluster.objects.declared_features import RESTART_ALL_ACTION, keep_needed
from fairbind.cluster.objects.decode import (
    ATTACHMENTS,
    CLAIMS,
    COSCHEDULING_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLCANO_POD_GROUPS,
    VOLUMES,
    ResourceType,
)
from fairbind.cluster.objects.device_facts import find_held_devices
from fairbind.cluster.objects.group_facts import INITIALLY_SCHEDULED, convert_job
from fairbind.cluster.objects.volume_facts import CLAIM_ANNOTATIONS, TOPOLOGY_LABELS, VOLUME_ANNOTATIONS

SUCCEEDED = "Succeeded"
RESIZE_PENDING = "PodResizePending"
READY = "Ready"

LIMIT_RANGES = "limitranges"
RUNTIME_CLASSES = "runtimeclasses"
PRIORITY_CLASSES = "priorityclasses"
DEFAULT_CLASS_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
NODE_OWNERS = ("DaemonSet", "Node")
"""Kinds of owners whose pods belong to their node: a DaemonSet has one for each, a static pod is the node's own."""

TENANT_FIELDS = (
    "weight", "resourceWeights", "namespaces", "namespaceSelector", "limit",
    "parent", "priority", "guarantee", "lending", "minRuntimeSeconds", "users",
)  # fmt: skip
POLICY_FIELDS = (
    "policy", "fairnessResources", "serverClassTolerance", "nodeSelector", "unclaimedNamespaces",
    "guided", "fit", "reservations",
    "alphaPfVds", "dynamicDrf", "twoChoicesDrfh",
)  # fmt: skip


Named = TypeVar(
    "Named",
    storage_wire.CsiNode,
    storage_wire.CsiDriver,
    storage_wire.CsiStorageCapacity,
    storage_wire.VolumeAttachment,
    device_wire.ResourceSlice,
    admission_wire.LimitRange,
    admission_wire.RuntimeClass,
    admission_wire.PriorityClass,
)


class RunTime(msgspec.Struct, frozen=True, gc=False):
    """How long a pod of a namespace ran until it succeeded."""

    namespace: str
    seconds: float


class StorageClass(storage_wire.StorageClass):
    """A storage class, with the annotation that it is the default one."""

    metadata: storage_wire.AnnotatedMeta = msgspec.field(default_factory=storage_wire.AnnotatedMeta)


class _Terminated(wire.Wire):
    finished_at: str | None = None


class _State(wire.Wire):
    terminated: _Terminated | None = None


class _ContainerStatus(wire.ContainerStatus):
    state: _State | None = None


class _PodStatus(wire.PodStatus):
    container_statuses: list[_ContainerStatus] | None = None  # type: ignore[assignment]


class _Pod(wire.Pod):
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


def _capture_pod(pod: _Pod) -> wire.Pod | RunTime | None:
    """Return what is kept of a pod, how long it ran when it has ended well, or nothing when it failed."""
    if pod.status.phase in FINISHED_PHASES:
        return _find_run_time(pod)
    status = pod.status
    conditions = [
        wire.Condition(type=one.type, status=one.status, reason=one.reason)
        for one in status.conditions or ()
        if one.type == RESIZE_PENDING
    ]
    resized = {
        field: _keep_resized(getattr(status, field)) for field in ("container_statuses", "init_container_statuses")
    }
    return wire.Pod(
        metadata=_keep_meta(pod),
        spec=_strip_spec(pod.spec),
        status=wire.PodStatus(
            phase=status.phase,
            start_time=status.start_time,
            nominated_node_name=status.nominated_node_name,
            conditions=conditions or None,
            container_statuses=resized["container_statuses"],
            init_container_statuses=resized["init_container_statuses"],
            resources=status.resources,
            allocated_resources=status.allocated_resources,
            extended_resource_claim_status=status.extended_resource_claim_status,
        ),
        fault=pod.fault,
    )


def _strip_spec(spec: wire.PodSpec) -> wire.PodSpec:
    """Return a spec without the names of images and claims of devices.

    What needs a feature of the node only says that it does.
    """
    return msgspec.structs.replace(
        spec,
        containers=[*map(_strip_container, spec.containers or ())] or None,
        init_containers=[*map(_strip_container, spec.init_containers or ())] or None,
        volumes=[msgspec.structs.replace(each, image=None) for each in spec.volumes or ()] or None,
        resource_claims=[wire.ResourceClaim(each.name) for each in spec.resource_claims or ()] or None,
    )


def _strip_container(container: wire.Container) -> wire.Container:
    rules = [rule for rule in container.restart_policy_rules or () if rule.action == RESTART_ALL_ACTION]
    has_options = any(mount.bind_mount_options for mount in container.volume_mounts or ())
    return msgspec.structs.replace(
        container,
        image=None,
        restart_policy_rules=rules[:1] or None,
        volume_mounts=[wire.VolumeMount(["..."])] if has_options else None,
    )


def _keep_resized(statuses: list[wire.ContainerStatus] | None) -> list[wire.ContainerStatus] | None:
    """Return the statuses that say what a container holds; only while it is resized that differs from its spec."""
    kept = [
        wire.ContainerStatus(one.name, one.resources, one.allocated_resources)
        for one in statuses or ()
        if one.resources is not None or one.allocated_resources
    ]
    return kept or None


def _find_run_time(pod: _Pod) -> RunTime | None:
    if pod.status.phase != SUCCEEDED:
        return None
    ends = [
        parse_time(status.state.terminated.finished_at)
        for status in pod.status.container_statuses or ()
        if status.state is not None and status.state.terminated is not None
    ]
    start = parse_time(pod.status.start_time)
    if not ends or not 0 < start <= max(ends):
        return None
    return RunTime(pod.metadata.namespace, max(ends) - start)


def belongs_to_node(pod: wire.Pod) -> bool:
    """Whether a pod comes and goes with its node: one of a DaemonSet, or a static pod."""
    return any(owner.controller and owner.kind in NODE_OWNERS for owner in pod.metadata.owner_references or ())


def _keep_meta(pod: wire.Pod) -> wire.PodMeta:
    """Return what is kept of a pod's metadata. Of its owner that is the kind, if the pod belongs to its node.

    Of a Job it is which one: it may say that its pods are a group. So may another owner's pods.
    """
    meta = pod.metadata
    is_gang = meta.annotations is not None and meta.annotations.gang is not None
    owners = [
        wire.OwnerReference(kind=owner.kind, controller=True)
        if owner.kind in NODE_OWNERS
        else wire.OwnerReference(kind=owner.kind, name=owner.name, uid=owner.uid, controller=True)
        for owner in meta.owner_references or ()
        if owner.controller and (owner.kind in {*NODE_OWNERS, "Job"} or is_gang)
    ]
    return wire.PodMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        labels=meta.labels,
        owner_references=owners or None,
        annotations=meta.annotations if meta.annotations != wire.PodAnnotations() else None,
    )


def _capture_node(node: wire.Node) -> wire.Node:
    ready = [wire.Condition(one.type, one.status) for one in node.status.conditions or () if one.type == READY]
    return wire.Node(
        metadata=wire.ObjectMeta(name=node.metadata.name, labels=node.metadata.labels),
        spec=node.spec,
        status=wire.NodeStatus(
            allocatable=node.status.allocatable,
            conditions=ready or None,
            declared_features=[*keep_needed(node.status.declared_features or ())] or None,
        ),
        fault=node.fault,
    )


def _capture_namespace(namespace: wire.Namespace) -> wire.Namespace:
    meta = namespace.metadata
    return wire.Namespace(wire.ObjectMeta(name=meta.name, labels=meta.labels), fault=namespace.fault)


def _capture_claim(claim: storage_wire.PersistentVolumeClaim) -> storage_wire.PersistentVolumeClaim:
    meta = claim.metadata
    annotations = {key: value for key, value in (meta.annotations or {}).items() if key in CLAIM_ANNOTATIONS}
    owners = [
        wire.OwnerReference(uid=owner.uid, controller=True) for owner in meta.owner_references or () if owner.controller
    ]
    return storage_wire.PersistentVolumeClaim(
        metadata=storage_wire.AnnotatedMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=owners or None,
            annotations=annotations or None,
        ),
        spec=_keep_bound_spec(claim.spec) if claim.spec.volume_name else claim.spec,
        status=claim.status,
        fault=claim.fault,
    )


def _keep_bound_spec(spec: storage_wire.ClaimSpec) -> storage_wire.ClaimSpec:
    """Return what is read of a claim that has a volume."""
    return storage_wire.ClaimSpec(spec.volume_name, spec.storage_class_name, spec.access_modes)


def _capture_volume(volume: storage_wire.PersistentVolume) -> storage_wire.PersistentVolume:
    spec, is_free = volume.spec, volume.status.phase == "Available" and volume.spec.claim_ref is None
    if not is_free and (spec.claim_ref is None or volume.status.phase == "Bound"):  # it offers nothing any more
        spec = msgspec.structs.replace(
            spec, capacity=None, access_modes=None, claim_ref=None, storage_class_name=None, volume_mode=None,
            volume_attributes_class_name=None,
        )  # fmt: skip
    labels, annotations = volume.metadata.labels or {}, volume.metadata.annotations or {}
    meta = storage_wire.AnnotatedMeta(
        name=volume.metadata.name,
        deletion_timestamp=volume.metadata.deletion_timestamp,
        labels={key: value for key, value in labels.items() if is_free or key in TOPOLOGY_LABELS} or None,
        annotations={key: value for key, value in annotations.items() if key in VOLUME_ANNOTATIONS} or None,
    )
    return storage_wire.PersistentVolume(meta, spec, volume.status, volume.fault)


def _capture_storage_class(item: StorageClass) -> StorageClass:
    annotations = item.metadata.annotations or {}
    kept = {key: "true" for key in DEFAULT_CLASS_ANNOTATIONS if annotations.get(key) == "true"}
    created = item.metadata.creation_timestamp if kept else None  # of several default classes the newest counts
    meta = storage_wire.AnnotatedMeta(name=item.metadata.name, creation_timestamp=created, annotations=kept or None)
    return msgspec.structs.replace(item, metadata=meta)


def _capture_named(item: Named) -> Named:
    """Return an object of which only the name and what follows the metadata are read."""
    meta = wire.ObjectMeta(name=item.metadata.name, namespace=item.metadata.namespace)
    return msgspec.structs.replace(item, metadata=meta)


def _capture_resource_claim(claim: device_wire.ResourceClaim) -> device_wire.ResourceClaim:
    """Return what a claim was given; a request is named by its class, as its own name says nothing that decides."""
    meta = wire.ObjectMeta(name=claim.metadata.name, namespace=claim.metadata.namespace)
    given = claim.status.allocation.devices.results if claim.status.allocation is not None else None
    held = [*find_held_devices(claim.spec.devices.requests or (), given or ())]
    if not held:
        return device_wire.ResourceClaim(meta, fault=claim.fault)
    requests = [
        device_wire.DeviceRequest(name, device_wire.ExactDeviceRequest(name))
        for name in sorted({name for name, _ in held})
    ]
    results = [msgspec.structs.replace(device, request=name) for name, device in held]
    return device_wire.ResourceClaim(
        meta,
        device_wire.ResourceClaimSpec(device_wire.DeviceRequests(requests)),
        msgspec.structs.replace(claim.status, allocation=device_wire.Allocation(device_wire.AllocatedDevices(results))),
        claim.fault,
    )


def _capture_device_class(device_class: device_wire.DeviceClass) -> device_wire.DeviceClass:
    meta = device_class.metadata
    kept = wire.ObjectMeta(name=meta.name, creation_timestamp=meta.creation_timestamp)
    return msgspec.structs.replace(device_class, metadata=kept)


def _capture_pod_group(group: group_wire.NativePodGroup) -> group_wire.NativePodGroup:
    """Return what decides of a PodGroup of Kubernetes."""
    said = [
        wire.Condition(type=one.type, status=one.status)
        for one in group.status.conditions or ()
        if one.type == INITIALLY_SCHEDULED
    ]
    status = group_wire.NativeStatus(said or None)
    return group_wire.NativePodGroup(_keep_group_meta(group.metadata), group.spec, status, group.fault)


def _capture_member_group(group: group_wire.MemberPodGroup) -> group_wire.MemberPodGroup:
    """Return what decides of a PodGroup of another format."""
    return group_wire.MemberPodGroup(_keep_group_meta(group.metadata), group.spec, group.fault)


def _keep_group_meta(meta: wire.ObjectMeta) -> wire.ObjectMeta:
    return wire.ObjectMeta(
        name=meta.name, namespace=meta.namespace, uid=meta.uid, creation_timestamp=meta.creation_timestamp
    )


def _capture_job(job: group_wire.Job) -> group_wire.Job | None:
    """Return what decides of a Job whose pods are a group; of others nothing."""
    if convert_job(job).mark is None:
        return None
    meta = job.metadata
    kept = group_wire.JobMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=meta.annotations)
    return group_wire.Job(kept, job.spec, job.fault)


def capture_custom_object(item: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return what is kept of a Tenant or a SchedulingPolicy. fields: of its spec."""
    meta, spec = item.get("metadata") or {}, item.get("spec") or {}
    kept = {name: meta[name] for name in ("name", "uid", "creationTimestamp", "deletionTimestamp") if name in meta}
    return {"metadata": kept, "spec": {name: spec[name] for name in fields if name in spec}}


CAPTURED_PODS: ResourceType[wire.Pod | RunTime | None] = ResourceType(PODS.name, PODS.path, _Pod, _capture_pod)
CAPTURED_NODES: ResourceType[wire.Node] = ResourceType(NODES.name, NODES.path, wire.Node, _capture_node)
CAPTURED_NAMESPACES: ResourceType[wire.Namespace] = ResourceType(
    NAMESPACES.name, NAMESPACES.path, wire.Namespace, _capture_namespace
)
CAPTURED_STORAGE: tuple[ResourceType[Any], ...] = tuple(
    ResourceType(
        resource_type.name,
        resource_type.path,
        StorageClass if resource_type is STORAGE_CLASSES else resource_type.wire_type,
        capture,
        is_optional=resource_type.is_optional,
    )
    for resource_type, capture in (
        (CLAIMS, _capture_claim),
        (VOLUMES, _capture_volume),
        (STORAGE_CLASSES, _capture_storage_class),
        (CSI_NODES, _capture_named),
        (CSI_DRIVERS, _capture_named),
        (STORAGE_CAPACITIES, _capture_named),
        (ATTACHMENTS, _capture_named),
        (RESOURCE_CLAIMS, _capture_resource_claim),
        (DEVICE_CLASSES, _capture_device_class),
        (RESOURCE_SLICES, _capture_named),
        (POD_GROUPS, _capture_pod_group),
        (VOLCANO_POD_GROUPS, _capture_member_group),
        (COSCHEDULING_POD_GROUPS, _capture_member_group),
        (JOBS, _capture_job),
    )
)
"""All kinds of objects about volumes, devices and groups of pods. Of a Job that is no group nothing is kept: None."""

CAPTURED_ADMISSION: tuple[ResourceType[Any], ...] = (
    ResourceType(LIMIT_RANGES, "/api/v1/limitranges", admission_wire.LimitRange, _capture_named),
    ResourceType(
        RUNTIME_CLASSES, "/apis/node.k8s.io/v1/runtimeclasses", admission_wire.RuntimeClass, _capture_named,
        is_optional=True,
    ),
    ResourceType(
        PRIORITY_CLASSES, "/apis/scheduling.k8s.io/v1/priorityclasses", admission_wire.PriorityClass, _capture_named
    ),
)  # fmt: skip
"""Objects by which the API server completes a pod that is created. Who may not list them does without."""


def format_time(seconds: float) -> str:
    """Return seconds since the epoch as Kubernetes writes a time, with fractions where there are any.

    >>> format_time(1767225600.0)
    '2026-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
