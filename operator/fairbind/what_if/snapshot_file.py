"""The file of a snapshot: the objects of a cluster, as JSON.

It has Kubernetes' own names for everything inside an object, so it reads as the objects do. What `kubectl get
nodes,pods,namespaces,tenants,schedulingpolicies -A -o json` prints is read too, also with objects about volumes
(persistentvolumeclaims, persistentvolumes, storageclasses, csinodes, csidrivers, csistoragecapacities,
volumeattachments), devices (resourceclaims, deviceclasses, resourceslices), groups of pods (podgroups, jobs), and what
completes a pod at its creation (limitranges, runtimeclasses, priorityclasses).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import (
    CAPTURED_ADMISSION,
    CAPTURED_NAMESPACES,
    CAPTURED_NODES,
    CAPTURED_PODS,
    CAPTURED_STORAGE,
    POLICY_FIELDS,
    TENANT_FIELDS,
    RunTime,
    capture_custom_object,
    format_time,
)
from fairbind.cluster.objects.convert import parse_time
from fairbind.fairness.problems.fields import Path, show_path
from fairbind.model import InvalidProblemError
from fairbind.what_if.listed_objects import DEFAULT_NAMESPACE, DEFAULT_SCHEDULER_NAME, ListedObjects
from fairbind.what_if.reading import (
    MOST_SECONDS,
    complain,
    read_mapping,
    read_number,
    read_object,
    read_optional_list,
    read_text,
    refuse,
)

KIND: Final = "FairbindSnapshot"
FORMAT_VERSION: Final = 1
STORAGE_FIELDS: Final = {
    "persistentVolumeClaims": "persistentvolumeclaims",
    "persistentVolumes": "persistentvolumes",
    "storageClasses": "storageclasses",
    "csiNodes": "csinodes",
    "csiDrivers": "csidrivers",
    "csiStorageCapacities": "csistoragecapacities",
    "volumeAttachments": "volumeattachments",
    "resourceClaims": "resourceclaims",
    "deviceClasses": "deviceclasses",
    "resourceSlices": "resourceslices",
    "podGroups": "podgroups.scheduling.k8s.io",
    "volcanoPodGroups": "podgroups.scheduling.volcano.sh",
    "coschedulingPodGroups": "podgroups.scheduling.x-k8s.io",
    "jobs": "jobs",
}
"""Fields for objects about volumes, devices and groups, and what Kubernetes calls these. What there is none of is left
out."""
POD_GROUP_FIELDS: Final = {
    "scheduling.k8s.io": "podGroups",
    "scheduling.volcano.sh": "volcanoPodGroups",
    "scheduling.x-k8s.io": "coschedulingPodGroups",
}
"""Fields by the API group of a PodGroup."""
ADMISSION_FIELDS: Final = {
    "limitRanges": "limitranges",
    "runtimeClasses": "runtimeclasses",
    "priorityClasses": "priorityclasses",
}
"""Fields for objects that complete a pod at its creation. One that is left out is not known; one without objects is."""
FIELDS: Final = (
    "kind", "formatVersion", "time", "schedulerName", "otherSchedulerNames", "operatorNamespace", "nodes", "pods",
    "namespaces", "tenants", "schedulingPolicies", "runTimes", *STORAGE_FIELDS, *ADMISSION_FIELDS,
)  # fmt: skip
KINDS: Final = {
    "Node": "nodes",
    "Pod": "pods",
    "Namespace": "namespaces",
    "Tenant": "tenants",
    "SchedulingPolicy": "schedulingPolicies",
    "PersistentVolumeClaim": "persistentVolumeClaims",
    "PersistentVolume": "persistentVolumes",
    "StorageClass": "storageClasses",
    "CSINode": "csiNodes",
    "CSIDriver": "csiDrivers",
    "CSIStorageCapacity": "csiStorageCapacities",
    "VolumeAttachment": "volumeAttachments",
    "ResourceClaim": "resourceClaims",
    "DeviceClass": "deviceClasses",
    "ResourceSlice": "resourceSlices",
    "LimitRange": "limitRanges",
    "RuntimeClass": "runtimeClasses",
    "PriorityClass": "priorityClasses",
    "Job": "jobs",
}
STORAGE: Final = {kind.name: kind for kind in CAPTURED_STORAGE}
ADMISSION: Final = {kind.name: kind for kind in CAPTURED_ADMISSION}

Item = TypeVar("Item")


def describe_snapshot(listed: ListedObjects) -> dict[str, Any]:
    """Return the file's content as plain values."""
    return {
        "kind": KIND,
        "formatVersion": FORMAT_VERSION,
        "time": format_time(listed.time),
        "schedulerName": listed.scheduler_name,
        **({"otherSchedulerNames": list(listed.other_names)} if listed.other_names else {}),
        "operatorNamespace": listed.operator_namespace,
        "nodes": [_describe(node) for node in sorted(listed.nodes, key=lambda node: node.metadata.name)],
        "pods": [_describe(pod) for pod in sorted(listed.pods, key=_identify)],
        "namespaces": [_describe(one) for one in sorted(listed.namespaces, key=lambda one: one.metadata.name)],
        "tenants": sorted(listed.tenants, key=lambda tenant: str(tenant["metadata"].get("name"))),
        "schedulingPolicies": listed.policies,
        "runTimes": [
            {"namespace": one.namespace, "seconds": one.seconds}
            for one in sorted(listed.run_times, key=lambda one: (one.namespace, one.seconds))
        ],
        **{
            field: [_describe(item) for item in sorted(listed.storage[name], key=_identify)]
            for field, name in STORAGE_FIELDS.items()
            if listed.storage.get(name)
        },
        **{
            field: [_describe(item) for item in sorted(listed.admission[name], key=_identify)]
            for field, name in ADMISSION_FIELDS.items()
            if name in listed.admission
        },
    }


def format_snapshot(listed: ListedObjects) -> str:
    """Return the file's text: an object a line, so that two snapshots can be compared line by line."""
    parts = []
    for name, value in describe_snapshot(listed).items():
        if isinstance(value, list) and value:
            lines = ",\n".join(f"  {json.dumps(item, separators=(',', ':'))}" for item in value)
            parts.append(f'"{name}": [\n{lines}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _identify(item: Any) -> tuple[str, str, str]:
    return item.metadata.namespace, item.metadata.name, item.metadata.uid


def _describe(item: wire.Wire) -> dict[str, Any]:
    described: dict[str, Any] = _prune(msgspec.to_builtins(item))
    meta = {name: part for name, part in described["metadata"].items() if part != ""}
    if "ownerReferences" in meta:
        owners = meta["ownerReferences"]
        meta["ownerReferences"] = [{name: part for name, part in one.items() if part != ""} for one in owners]
    described["metadata"] = meta
    return described


def _prune(value: Any) -> Any:
    """Return a value without what is absent. What is empty stays: an empty selector is another than none."""
    if isinstance(value, dict):
        return {name: _prune(part) for name, part in value.items() if part is not None}
    return [_prune(part) for part in value] if isinstance(value, list) else value


def parse_snapshot(document: object) -> ListedObjects:
    """Return the objects of a snapshot. Raises InvalidProblemError at the first field that is wrong."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        return _parse_list(document)
    if not isinstance(document, Mapping):
        refuse(document, ("snapshot",), "an object with nodes and pods")
    members = read_object(document, (), FIELDS, required=("nodes", "pods"))
    if members.get("kind", KIND) != KIND:
        refuse(members["kind"], ("kind",), KIND)
    if members.get("formatVersion", FORMAT_VERSION) != FORMAT_VERSION:
        refuse(members["formatVersion"], ("formatVersion",), f"{FORMAT_VERSION}, the format that this version reads")
    listed = ListedObjects(
        time=0.0,
        scheduler_name=_read_name(members, "schedulerName", DEFAULT_SCHEDULER_NAME),
        other_names=tuple(
            read_text(name, ("otherSchedulerNames", place))
            for place, name in enumerate(read_optional_list(members, "otherSchedulerNames", ()))
        ),
        operator_namespace=_read_name(members, "operatorNamespace", DEFAULT_NAMESPACE),
        nodes=_read_all(members, "nodes", wire.Node),
        pods=_read_all(members, "pods", wire.Pod),
        namespaces=_read_all(members, "namespaces", wire.Namespace),
        tenants=_read_objects(members, "tenants", TENANT_FIELDS),
        policies=_read_objects(members, "schedulingPolicies", POLICY_FIELDS),
        run_times=[_read_run_time(*pair) for pair in enumerate(read_optional_list(members, "runTimes", ()))],
        storage={
            name: _read_all(members, field, STORAGE[name].wire_type)
            for field, name in STORAGE_FIELDS.items()
            if field in members
        },
        admission={
            name: _read_all(members, field, ADMISSION[name].wire_type)
            for field, name in ADMISSION_FIELDS.items()
            if field in members
        },
    )
    return _complete(listed, members.get("time"))


def _parse_list(document: Mapping[str, object]) -> ListedObjects:
    """Return the objects of a list that kubectl prints."""
    found: dict[str, list[object]] = {name: [] for name in (*KINDS.values(), *POD_GROUP_FIELDS.values())}
    for place, item in enumerate(read_optional_list(document, "items", ())):
        found[_find_field(read_mapping(item, ("items", place), "an object"), ("items", place))].append(item)
    pods = [CAPTURED_PODS.decode_item(msgspec.json.encode(pod)) for pod in found["pods"]]
    listed = ListedObjects(
        time=0.0,
        nodes=[CAPTURED_NODES.decode_item(msgspec.json.encode(node)) for node in found["nodes"]],
        pods=[pod for pod in pods if isinstance(pod, wire.Pod)],
        namespaces=[CAPTURED_NAMESPACES.decode_item(msgspec.json.encode(one)) for one in found["namespaces"]],
        tenants=_read_objects(found, "tenants", TENANT_FIELDS),
        policies=_read_objects(found, "schedulingPolicies", POLICY_FIELDS),
        run_times=[pod for pod in pods if isinstance(pod, RunTime)],
        storage={
            name: [kept for item in found[field] if (kept := STORAGE[name].decode_item(msgspec.json.encode(item)))]
            for field, name in STORAGE_FIELDS.items()
            if found[field]
        },
        admission={
            name: [ADMISSION[name].decode_item(msgspec.json.encode(item)) for item in found[field]]
            for field, name in ADMISSION_FIELDS.items()
            if found[field]
        },
    )
    return _complete(listed, None)


def _find_field(item: Mapping[str, object], path: Path) -> str:
    """Return the field to which an object of a list belongs."""
    kind = item.get("kind")
    if kind == "PodGroup":
        group = str(item.get("apiVersion")).partition("/")[0]
        if group not in POD_GROUP_FIELDS:
            refuse(item.get("apiVersion"), (*path, "apiVersion"), f"of one of {', '.join(POD_GROUP_FIELDS)}")
        return POD_GROUP_FIELDS[group]
    if kind not in KINDS:
        refuse(kind, (*path, "kind"), f"one of {', '.join((*KINDS, 'PodGroup'))}")
    return KINDS[str(kind)]


def _complete(listed: ListedObjects, time: object) -> ListedObjects:
    """Return the objects with what follows from others where it is left out, each pod and node once."""
    for pod in listed.pods:
        pod.metadata.uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
    _check_unique("nodes", [node.metadata.name for node in listed.nodes], ("metadata", "name"))
    _check_unique("namespaces", [one.metadata.name for one in listed.namespaces], ("metadata", "name"))
    _check_unique("pods", [pod.metadata.uid for pod in listed.pods], ("metadata", "uid"))
    others = {**listed.storage, **listed.admission}
    for field, name in {**STORAGE_FIELDS, **ADMISSION_FIELDS}.items():
        names = ["/".join(_identify(item)[:2]).lstrip("/") for item in others.get(name, ())]
        _check_unique(field, names, ("metadata", "name"))
    _check_unique("tenants", [str(one["metadata"]["name"]) for one in listed.tenants], ("metadata", "name"))
    if time is None:
        times = (parse_time(pod.metadata.creation_timestamp) for pod in listed.pods)
        listed.time = max(times, default=0.0)
    else:
        listed.time = parse_time(read_text(time, ("time",)))
        if listed.time <= 0:
            refuse(time, ("time",), "a time as in 2026-01-01T00:00:00Z")
    return listed


def _check_unique(field: str, names: Sequence[str], where: Path) -> None:
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        path = (field, place, *where)
        if not name:
            complain(path, "is missing")
        if name in seen:
            complain(path, f"must differ from all others, but {name!r} is {show_path((field, seen[name], *where))}")
        seen[name] = place


def _read_name(members: Mapping[str, object], field: str, default: str) -> str:
    return read_text(members[field], (field,)) if field in members else default


def _read_all(members: Mapping[str, object], field: str, wanted: Callable[..., Item]) -> list[Item]:
    items = []
    for place, value in enumerate(read_optional_list(members, field, ())):
        read_mapping(value, (field, place), "an object")
        try:
            items.append(msgspec.convert(value, wanted))
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            shown = f"{show_path((field, place))}{where.removesuffix('`')}"
            raise InvalidProblemError(f"{shown}: {message[:1].lower()}{message[1:]}") from error
    return items


def _read_objects(members: Mapping[str, Any], field: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    objects = []
    for place, value in enumerate(read_optional_list(members, field, ())):
        item = read_mapping(value, (field, place), "an object")
        for part in ("metadata", "spec"):
            read_mapping(item.get(part, {}), (field, place, part), "an object")
        captured = capture_custom_object(item, fields)
        read_text(captured["metadata"].get("name"), (field, place, "metadata", "name"))
        objects.append(captured)
    return objects


def _read_run_time(place: int, value: object) -> RunTime:
    path: Path = ("runTimes", place)
    members = read_object(value, path, ("namespace", "seconds"), required=("namespace", "seconds"))
    seconds = read_number(members["seconds"], (*path, "seconds"), 0.0, MOST_SECONDS)
    return RunTime(read_text(members["namespace"], (*path, "namespace")), seconds)
