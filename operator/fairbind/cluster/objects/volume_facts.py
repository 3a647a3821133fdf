"""What the cache keeps of claims, volumes, storage classes and CSI drivers, and how it is read.

Like the facts about pods and nodes, they are small and comparable, and a change of anything else (a resize, an event's
annotation, a finalizer) makes no difference.

Which nodes reach a volume is a `VolumeTopology`: the volume's node affinity, and the labels for zones and regions that
volumes carried before they had one. As kube-scheduler, we compare the affinity with the labels of a node and leave out
expressions over its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from fairbind.cluster.objects import storage_wire, wire
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.cluster.objects.selectors import (
    LabelSelector,
    NodeTerm,
    make_label_selector,
    make_requirements,
    make_term,
)
from fairbind.model import MAX_AMOUNT

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
TOPOLOGY_LABELS = (OLD_ZONE, OLD_REGION, ZONE, REGION)

MAX_CLAIMS = 128
"""So many claims of a pod are known. A waiting pod with more is not supported; no node attaches that many volumes."""

MAX_SHARED_TOPOLOGIES = 1_024

_ZONE_DELIMITER = "__"
_BOUND = "pv.kubernetes.io/bind-completed"
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLAIM_ANNOTATIONS = frozenset({_BOUND, _OLD_STORAGE_CLASS, SELECTED_NODE})
VOLUME_ANNOTATIONS = frozenset({_OLD_STORAGE_CLASS})
"""Those that are read."""
_STORAGE = "storage"
_FILESYSTEM = "Filesystem"
_MIGRATED = (
    ("aws_elastic_block_store", "awsElasticBlockStore"),
    ("azure_disk", "azureDisk"),
    ("cinder", "cinder"),
    ("gce_persistent_disk", "gcePersistentDisk"),
    ("portworx_volume", "portworxVolume"),
)
"""Kinds of volumes that nodes know by the labels of the driver that replaced them."""


class VolumeId(NamedTuple):
    """A volume as its driver knows it."""

    driver: str
    handle: str


class ClaimUse(NamedTuple):
    """A claim of a pod, in its namespace. is_ephemeral: it is made for the pod, and belongs to it."""

    name: str
    is_ephemeral: bool


@dataclass(frozen=True, slots=True, order=True)
class VolumeTopology:
    """Which nodes reach volumes, all of them.

    affinities: for each volume that asks for it the terms of which a node must meet one. zones: (label, the values of
    which a node must have one).
    """

    affinities: tuple[tuple[NodeTerm, ...], ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def without_zones(self) -> VolumeTopology:
        """Return the same without labels for zones, which are not asked of ephemeral volumes."""
        return VolumeTopology(self.affinities) if self.zones else self


ANYWHERE = VolumeTopology()


class ClaimRequest(NamedTuple):
    """What a claim without a volume asks for.

    size: in bytes. access_modes: sorted. selector: of the labels of volumes; None: any. mode: `Filesystem` or `Block`.
    selected_node: for which node a volume is being made; empty: for none yet.
    """

    storage_class: str
    size: int
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    mode: str = _FILESYSTEM
    attributes_class: str = ""
    selected_node: str = ""


class VolumeOffer(NamedTuple):
    """What a volume offers to claims.

    capacity: in bytes. is_available: whether any claim may have it. claim: `namespace/name` of the claim that it is
    kept for, or empty. claim_uid: the UID of that claim; empty: any with this name. labels: sorted.
    """

    storage_class: str
    capacity: int
    is_available: bool
    access_modes: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    mode: str = _FILESYSTEM
    attributes_class: str = ""
    claim: str = ""
    claim_uid: str = ""


class ClaimFacts(Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim.

    volume: the name of its volume, also before both say that they are bound; empty: it has none. is_bound: both say so.
    storage_class: by name; empty: none. is_exclusive: one pod may use it. owner: the UID of its controller, or empty.
    request: what it asks for while it has no volume.
    """

    namespace: str
    name: str
    version: str
    volume: str
    is_bound: bool
    is_lost: bool
    is_deleted: bool
    is_exclusive: bool
    storage_class: str
    owner: str
    uid: str = ""
    request: ClaimRequest | None = None


class VolumeFacts(Struct, frozen=True, gc=False):
    """A PersistentVolume.

    id: as its driver knows it, or None. migrated: its kind if it is in `_MIGRATED`, or empty. offer: what it offers to
    claims; None: nothing any more.
    """

    name: str
    version: str
    topology: VolumeTopology
    id: VolumeId | None
    migrated: str
    offer: VolumeOffer | None = None


class StorageClassFacts(Struct, frozen=True, gc=False):
    """A StorageClass.

    waits_for_consumer: its claims are bound when a pod has a node. topologies: the terms of which a node must meet one
    for a volume to be made for it; None: any node.
    """

    name: str
    version: str
    provisioner: str
    waits_for_consumer: bool
    topologies: tuple[NodeTerm, ...] | None = None


class CsiNodeFacts(Struct, frozen=True, gc=False):
    """The drivers of a node, with how many volumes of each it takes; None: any number."""

    name: str
    version: str
    drivers: tuple[tuple[str, int | None], ...]


class CsiDriverFacts(Struct, frozen=True, gc=False):
    """A driver.

    must_be_installed: pods with its volumes may go to nodes only that have it. tells_capacity: it makes volumes only
    where a CSIStorageCapacity says that there is free capacity.
    """

    name: str
    version: str
    must_be_installed: bool
    tells_capacity: bool = False


class StorageCapacityFacts(Struct, frozen=True, gc=False):
    """A CSIStorageCapacity.

    nodes: the labels of nodes for which volumes can be made; None: of none. largest: the size of the largest volume
    that can be made, in bytes; None: not known, so none.
    """

    namespace: str
    name: str
    version: str
    storage_class: str
    nodes: LabelSelector | None
    largest: int | None


class AttachmentFacts(Struct, frozen=True, gc=False):
    """A VolumeAttachment: what a driver has attached to a node. volume: the name of a PersistentVolume, or empty."""

    name: str
    version: str
    node: str
    driver: str
    volume: str


_SLOTS_PREFIX = "volumes."


def name_slots(driver: str) -> str:
    """Return the resource that the volumes which a driver attaches to a node count as."""
    return f"{_SLOTS_PREFIX}{driver}"


def are_attach_slots(resource: str) -> bool:
    """Whether a resource is the attach slots of a driver. What nodes offer by such a name has a slash in it."""
    return resource.startswith(_SLOTS_PREFIX) and "/" not in resource


def name_claim(namespace: str, name: str) -> str:
    """Return what a claim is known by."""
    return f"{namespace}/{name}"


def find_claims(pod: str, volumes: Iterable[wire.Volume] | None) -> tuple[ClaimUse, ...]:
    """Return the claims of a pod with this name, in the order of its volumes, the first `MAX_CLAIMS` of them.

    >>> scratch = wire.Volume("scratch", ephemeral=wire.Present())
    >>> find_claims("web-0", [scratch, wire.Volume("config")])
    (ClaimUse(name='web-0-scratch', is_ephemeral=True),)
    """
    claims: list[ClaimUse] = []
    for volume in volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(volume.persistent_volume_claim.claim_name, is_ephemeral=False))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod}-{volume.name}", is_ephemeral=True))
        if len(claims) == MAX_CLAIMS:
            break
    return tuple(claims)


def convert_claim(claim: storage_wire.PersistentVolumeClaim) -> ClaimFacts:
    """Return what matters of a claim."""
    meta, spec = claim.metadata, claim.spec
    annotations = meta.annotations or {}
    volume = spec.volume_name or ""
    storage_class = annotations.get(_OLD_STORAGE_CLASS, spec.storage_class_name or "")
    return ClaimFacts(
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        volume=volume,
        is_bound=bool(volume) and _BOUND in annotations,
        is_lost=claim.status.phase == "Lost",
        is_deleted=meta.deletion_timestamp is not None,
        is_exclusive="ReadWriteOncePod" in (spec.access_modes or ()),
        storage_class=storage_class,
        owner=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
        uid=meta.uid,
        request=None if volume else _make_request(spec, storage_class, annotations.get(SELECTED_NODE, "")),
    )


def _make_request(spec: storage_wire.ClaimSpec, storage_class: str, selected_node: str) -> ClaimRequest:
    requests = (spec.resources.requests if spec.resources is not None else None) or {}
    return ClaimRequest(
        storage_class=storage_class,
        size=_read_bytes(requests.get(_STORAGE, "0"), MAX_AMOUNT),
        access_modes=tuple(sorted(set(spec.access_modes or ()))),
        selector=make_label_selector(spec.selector),
        mode=spec.volume_mode or _FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        selected_node=selected_node,
    )


def _read_bytes(text: str, unreadable: int) -> int:
    """Return a size in bytes, or what stands for one that cannot be read."""
    try:
        return to_base_units(_STORAGE, text)
    except QuantityError:
        return unreadable


def convert_volume(volume: storage_wire.PersistentVolume) -> VolumeFacts:
    """Return what matters of a volume. One that cannot be read in full is reached from nowhere."""
    meta, spec = volume.metadata, volume.spec
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    affinities = _make_affinities(affinity) if volume.fault is None else ((),)
    return VolumeFacts(
        name=meta.name,
        version=meta.resource_version,
        topology=_share_topology(VolumeTopology(affinities, _find_zones(meta.labels))),
        id=VolumeId(spec.csi.driver, spec.csi.volume_handle) if spec.csi is not None else None,
        migrated=next((kind for attribute, kind in _MIGRATED if getattr(spec, attribute) is not None), ""),
        offer=_make_offer(volume),
    )


def _make_offer(volume: storage_wire.PersistentVolume) -> VolumeOffer | None:
    meta, spec, claim = volume.metadata, volume.spec, volume.spec.claim_ref
    if volume.fault is not None or meta.deletion_timestamp is not None:
        return None
    is_available = claim is None and volume.status.phase == "Available"
    if claim is None and not is_available:
        return None
    return VolumeOffer(
        storage_class=(meta.annotations or {}).get(_OLD_STORAGE_CLASS, spec.storage_class_name or ""),
        capacity=_read_bytes((spec.capacity or {}).get(_STORAGE, "0"), -1),
        is_available=is_available,
        access_modes=frozenset(spec.access_modes or ()),
        labels=tuple(sorted((meta.labels or {}).items())) if is_available else (),
        mode=spec.volume_mode or _FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        claim="" if claim is None else name_claim(claim.namespace, claim.name),
        claim_uid="" if claim is None else claim.uid,
    )


@lru_cache(maxsize=MAX_SHARED_TOPOLOGIES)
def _share_topology(topology: VolumeTopology) -> VolumeTopology:
    """Return one object for equal topologies: those of thousands of volumes name a few zones."""
    return topology


def _make_affinities(selector: wire.NodeSelector | None) -> tuple[tuple[NodeTerm, ...], ...]:
    if selector is None:
        return ()
    terms: set[NodeTerm] = set()
    for term in map(make_term, selector.node_selector_terms or ()):
        if term.fields and not term.labels:
            return ()  # every node meets it
        terms.add(NodeTerm(term.labels))
    return (tuple(sorted(terms)),)


def _find_zones(labels: wire.Labels | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the labels for zones and regions. A value may list several; one with an empty part counts for nothing."""
    zones = []
    for key in TOPOLOGY_LABELS if labels else ():
        value = (labels or {}).get(key)
        values = [] if value is None else [part.strip() for part in value.split(_ZONE_DELIMITER)]
        if values and all(values):
            zones.append((key, tuple(sorted(set(values)))))
    return tuple(zones)


def convert_storage_class(storage_class: storage_wire.StorageClass) -> StorageClassFacts:
    """Return what matters of a storage class."""
    meta = storage_class.metadata
    waits = storage_class.volume_binding_mode == "WaitForFirstConsumer"
    topologies = _make_topologies(storage_class.allowed_topologies) if waits else None
    if waits and storage_class.fault is not None:
        topologies = ()
    return StorageClassFacts(meta.name, meta.resource_version, storage_class.provisioner, waits, topologies)


def _make_topologies(terms: Iterable[storage_wire.TopologyTerm] | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of which a node must meet one; None: it need not."""
    made: set[NodeTerm] = set()
    for term in terms or ():
        expressions = [wire.SelectorRequirement(e.key, "In", e.values) for e in term.match_label_expressions or ()]
        made.add(NodeTerm(make_requirements(expressions)))
    return tuple(sorted(made)) or None


def convert_csi_node(node: storage_wire.CsiNode) -> CsiNodeFacts:
    """Return what matters of the drivers of a node."""
    drivers = (
        (driver.name, driver.allocatable.count if driver.allocatable is not None else None)
        for driver in node.spec.drivers or ()
    )
    return CsiNodeFacts(node.metadata.name, node.metadata.resource_version, tuple(sorted(drivers, key=lambda d: d[0])))


def convert_csi_driver(driver: storage_wire.CsiDriver) -> CsiDriverFacts:
    """Return what matters of a driver."""
    must_be_installed = bool(driver.spec.prevent_pod_scheduling_if_missing)
    tells_capacity = bool(driver.spec.storage_capacity)
    return CsiDriverFacts(driver.metadata.name, driver.metadata.resource_version, must_be_installed, tells_capacity)


def convert_storage_capacity(capacity: storage_wire.CsiStorageCapacity) -> StorageCapacityFacts:
    """Return what matters of a driver's capacity. One that cannot be read in full is for no node."""
    meta, size = capacity.metadata, capacity.maximum_volume_size or capacity.capacity
    return StorageCapacityFacts(
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        storage_class=capacity.storage_class_name,
        nodes=make_label_selector(capacity.node_topology) if capacity.fault is None else None,
        largest=None if size is None else _read_bytes(size, -1),
    )


def convert_attachment(attachment: storage_wire.VolumeAttachment) -> AttachmentFacts:
    """Return what matters of an attachment."""
    meta, spec = attachment.metadata, attachment.spec
    return AttachmentFacts(
        meta.name, meta.resource_version, spec.node_name, spec.attacher, spec.source.persistent_volume_name or ""
    )


def join_topologies(topologies: Iterable[VolumeTopology]) -> VolumeTopology:
    """Return which nodes reach all volumes of these topologies; equal sets give equal results."""
    affinities: set[tuple[NodeTerm, ...]] = set()
    zones: set[tuple[str, tuple[str, ...]]] = set()
    for topology in topologies:
        affinities.update(topology.affinities)
        zones.update(topology.zones)
    if not affinities and not zones:
        return ANYWHERE
    return VolumeTopology(tuple(sorted(affinities)), tuple(sorted(zones)))
