"""From bytes to facts: pages of a list and lines of a watch.

The usual way is one pass of msgspec over the whole page. If one object of it cannot be decoded, each object is taken by
itself, and of the one that is at fault the fields that can be read are kept and the fault is noted: one odd object
must never stop the others. A line of a watch is an event with an object, a bookmark or an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

from fairbind.cluster.objects import device_wire, group_wire, storage_wire, wire
from fairbind.cluster.objects.convert import (
    convert_coscheduling_group,
    convert_namespace,
    convert_node,
    convert_pod,
    convert_pod_group,
    convert_volcano_group,
)
from fairbind.cluster.objects.device_facts import (
    DeviceClassFacts,
    ResourceClaimFacts,
    SliceFacts,
    convert_device_class,
    convert_resource_claim,
    convert_slice,
)
from fairbind.cluster.objects.facts import NamespaceFacts, NodeFacts, PodFacts
from fairbind.cluster.objects.group_facts import JobFacts, PodGroupFacts, convert_job
from fairbind.cluster.objects.quota_facts import QuotaFacts, ResourceQuota, convert_quota
from fairbind.cluster.objects.volume_facts import (
    AttachmentFacts,
    ClaimFacts,
    CsiDriverFacts,
    CsiNodeFacts,
    StorageCapacityFacts,
    StorageClassFacts,
    VolumeFacts,
    convert_attachment,
    convert_claim,
    convert_csi_driver,
    convert_csi_node,
    convert_storage_capacity,
    convert_storage_class,
    convert_volume,
)

Item = TypeVar("Item")


class _ListMeta(wire.Wire):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _RawList(wire.Wire):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _RawEvent(wire.Wire):
    type: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class _Status(wire.Wire):
    code: int = 0
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of a list. version: the list's resourceVersion. next_page: the token to go on with, or None."""

    items: tuple[Item, ...]
    version: str
    next_page: str | None


@dataclass(frozen=True, slots=True)
class Changed(Generic[Item]):
    """An object was added or changed, or (deleted) is gone; version is its resourceVersion."""

    item: Item
    version: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened up to this version."""

    version: str


@dataclass(frozen=True, slots=True)
class WatchFault:
    """The server ends the watch. code 410: the history that we asked for is gone."""

    code: int
    reason: str
    message: str


class ResourceType(Generic[Item]):
    """One kind of object: where it is listed, and how its JSON becomes facts.

    name: the resource's plural, as in paths and metric labels. path: of the list over all namespaces. convert: makes
    facts of what was decoded as wire_type. is_optional: a cluster may not have this kind at all; then it has no such
    objects.
    """

    def __init__(
        self, name: str, path: str, wire_type: type[Any], convert: Callable[[Any], Item], *, is_optional: bool = False
    ) -> None:
        self.name = name
        self.path = path
        self.is_optional = is_optional
        self.wire_type = wire_type
        self.convert = convert
        items_type: Any = list[wire_type] | None  # type: ignore[valid-type]
        list_type = msgspec.defstruct(
            f"{wire_type.__name__}List",
            [("metadata", _ListMeta, msgspec.field(default_factory=_ListMeta)), ("items", items_type, None)],
            gc=False,
        )
        event_type = msgspec.defstruct(
            f"{wire_type.__name__}Event",
            [("type", str, ""), ("object", wire_type, msgspec.field(default_factory=wire_type))],
            gc=False,
        )
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list_type)
        self._event: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event_type)
        self._item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wire_type)

    def decode_page(self, body: bytes) -> Page[Item]:
        """Return one page of a list. Raises msgspec.DecodeError when it is not a list at all."""
        try:
            listing = self._list.decode(body)
            objects = listing.items or ()
        except msgspec.ValidationError:
            listing = _RAW_LIST.decode(body)
            objects = [self._decode_leniently(raw) for raw in listing.items or ()]
        items = tuple(self.convert(decoded) for decoded in objects)
        return Page(items, listing.metadata.resource_version, listing.metadata.continue_ or None)

    def decode_event(self, line: bytes) -> Changed[Item] | Bookmark | WatchFault:
        """Return what a line of a watch says. Raises msgspec.DecodeError when it is no event at all."""
        try:
            event = self._event.decode(line)
            kind, decoded = event.type, event.object
        except msgspec.ValidationError:
            raw = _RAW_EVENT.decode(line)
            kind = raw.type
            if kind != "ERROR":
                decoded = self._decode_leniently(raw.object)
        if kind == "ERROR":
            return _decode_fault(line)
        version: str = decoded.metadata.resource_version
        if kind == "BOOKMARK":
            return Bookmark(version)
        return Changed(self.convert(decoded), version, kind == "DELETED")

    def decode_item(self, body: bytes) -> Item:
        """Return the facts of one object."""
        return self.convert(self._decode_leniently(body))

    def _decode_leniently(self, body: bytes | msgspec.Raw) -> Any:
        try:
            return self._item.decode(body)
        except msgspec.ValidationError as error:
            parts = msgspec.json.decode(body, type=dict[str, Any])
            return _convert_readable(self.wire_type, {**parts, "fault": str(error)})


_RAW_LIST = msgspec.json.Decoder(_RawList)
_RAW_EVENT = msgspec.json.Decoder(_RawEvent)


def _decode_fault(line: bytes) -> WatchFault:
    status = _Status()
    with contextlib.suppress(msgspec.ValidationError):  # a fault without a readable status is still a fault
        status = msgspec.json.decode(_RAW_EVENT.decode(line).object, type=_Status)
    return WatchFault(status.code, status.reason or "", status.message or "")


_UNREADABLE: Any = object()


def _convert_readable(wanted: Any, value: Any) -> Any:
    """Return the value as the wanted type, without those parts of it that have another shape, or `_UNREADABLE`."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(value, wanted)
    for choice in get_args(wanted) if get_origin(wanted) is UnionType else (wanted,):
        if isinstance(value, dict) and isinstance(choice, type) and issubclass(choice, msgspec.Struct):
            found = {
                field.name: _convert_readable(field.type, value[field.encode_name])
                for field in msgspec.structs.fields(choice)
                if field.encode_name in value
            }
            return choice(**{name: part for name, part in found.items() if part is not _UNREADABLE})
        if isinstance(value, list) and get_origin(choice) is list:
            parts = [_convert_readable(get_args(choice)[0], part) for part in value]
            return [part for part in parts if part is not _UNREADABLE]
        if isinstance(value, dict) and get_origin(choice) is dict:
            return {key: text for key, text in value.items() if isinstance(text, str)}
    return _UNREADABLE


PODS: ResourceType[PodFacts] = ResourceType("pods", "/api/v1/pods", wire.Pod, convert_pod)
NODES: ResourceType[NodeFacts] = ResourceType("nodes", "/api/v1/nodes", wire.Node, convert_node)
NAMESPACES: ResourceType[NamespaceFacts] = ResourceType(
    "namespaces", "/api/v1/namespaces", wire.Namespace, convert_namespace
)
CLAIMS: ResourceType[ClaimFacts] = ResourceType(
    "persistentvolumeclaims", "/api/v1/persistentvolumeclaims", storage_wire.PersistentVolumeClaim, convert_claim
)
VOLUMES: ResourceType[VolumeFacts] = ResourceType(
    "persistentvolumes", "/api/v1/persistentvolumes", storage_wire.PersistentVolume, convert_volume
)
STORAGE_CLASSES: ResourceType[StorageClassFacts] = ResourceType(
    "storageclasses", "/apis/storage.k8s.io/v1/storageclasses", storage_wire.StorageClass, convert_storage_class
)
CSI_NODES: ResourceType[CsiNodeFacts] = ResourceType(
    "csinodes", "/apis/storage.k8s.io/v1/csinodes", storage_wire.CsiNode, convert_csi_node
)
CSI_DRIVERS: ResourceType[CsiDriverFacts] = ResourceType(
    "csidrivers", "/apis/storage.k8s.io/v1/csidrivers", storage_wire.CsiDriver, convert_csi_driver
)
STORAGE_CAPACITIES: ResourceType[StorageCapacityFacts] = ResourceType(
    "csistoragecapacities",
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    storage_wire.CsiStorageCapacity,
    convert_storage_capacity,
)
ATTACHMENTS: ResourceType[AttachmentFacts] = ResourceType(
    "volumeattachments", "/apis/storage.k8s.io/v1/volumeattachments", storage_wire.VolumeAttachment, convert_attachment
)
RESOURCE_CLAIMS: ResourceType[ResourceClaimFacts] = ResourceType(
    "resourceclaims",
    "/apis/resource.k8s.io/v1/resourceclaims",
    device_wire.ResourceClaim,
    convert_resource_claim,
    is_optional=True,
)
DEVICE_CLASSES: ResourceType[DeviceClassFacts] = ResourceType(
    "deviceclasses",
    "/apis/resource.k8s.io/v1/deviceclasses",
    device_wire.DeviceClass,
    convert_device_class,
    is_optional=True,
)
RESOURCE_SLICES: ResourceType[SliceFacts] = ResourceType(
    "resourceslices",
    "/apis/resource.k8s.io/v1/resourceslices",
    device_wire.ResourceSlice,
    convert_slice,
    is_optional=True,
)

POD_GROUPS: ResourceType[PodGroupFacts] = ResourceType(
    "podgroups.scheduling.k8s.io",
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    group_wire.NativePodGroup,
    convert_pod_group,
    is_optional=True,
)
VOLCANO_POD_GROUPS: ResourceType[PodGroupFacts] = ResourceType(
    "podgroups.scheduling.volcano.sh",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    group_wire.MemberPodGroup,
    convert_volcano_group,
    is_optional=True,
)
COSCHEDULING_POD_GROUPS: ResourceType[PodGroupFacts] = ResourceType(
    "podgroups.scheduling.x-k8s.io",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    group_wire.MemberPodGroup,
    convert_coscheduling_group,
    is_optional=True,
)
QUOTAS: ResourceType[QuotaFacts] = ResourceType(
    "resourcequotas", "/api/v1/resourcequotas", ResourceQuota, convert_quota, is_optional=True
)
JOBS: ResourceType[JobFacts] = ResourceType(
    "jobs", "/apis/batch/v1/jobs", group_wire.Job, convert_job, is_optional=True
)
