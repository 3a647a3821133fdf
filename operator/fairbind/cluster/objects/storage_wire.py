"""What we read of Kubernetes' JSON about volumes; see `wire`."""

from __future__ import annotations

from msgspec import field

from fairbind.cluster.objects.wire import (
    Amounts,
    Labels,
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    Present,
    Resources,
    Wire,
)


class AnnotatedMeta(ObjectMeta):
    """Who a claim or a volume is, with the annotations that say how far a binding is."""

    annotations: Labels | None = None


class ClaimSpec(Wire):
    """What the claim asks for, and which volume it has."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(Wire):
    """What became of the claim."""

    phase: str | None = None


class PersistentVolumeClaim(Wire):
    """A claim for a volume."""

    metadata: AnnotatedMeta = field(default_factory=AnnotatedMeta)
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)
    fault: str | None = None


class VolumeNodeAffinity(Wire):
    """Which nodes reach the volume."""

    required: NodeSelector | None = None


class CsiSource(Wire):
    """The driver of a volume, and its name for the volume."""

    driver: str = ""
    volume_handle: str = ""


class ClaimReference(Wire):
    """The claim that a volume is for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Wire):
    """What the volume is; of the kinds only those are read that were replaced by a driver."""

    capacity: Amounts | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: Present | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    gce_persistent_disk: Present | None = None
    portworx_volume: Present | None = None


class VolumeStatus(Wire):
    """Whether the volume may be claimed."""

    phase: str | None = None


class PersistentVolume(Wire):
    """A volume."""

    metadata: AnnotatedMeta = field(default_factory=AnnotatedMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: VolumeStatus = field(default_factory=VolumeStatus)
    fault: str | None = None


class TopologyRequirement(Wire):
    """A label and the values of which a node must have one."""

    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Wire):
    """All expressions must hold."""

    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(Wire):
    """How volumes of a class are made and bound."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None
    fault: str | None = None


class CsiNodeAllocatable(Wire):
    """How many volumes of a driver a node takes."""

    count: int | None = None


class CsiNodeDriver(Wire):
    """A driver that runs on a node."""

    name: str = ""
    allocatable: CsiNodeAllocatable | None = None


class CsiNodeSpec(Wire):
    """The drivers of a node."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(Wire):
    """What drivers say of a node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CsiNodeSpec = field(default_factory=CsiNodeSpec)
    fault: str | None = None


class CsiDriverSpec(Wire):
    """What a driver asks of schedulers."""

    prevent_pod_scheduling_if_missing: bool | None = None
    storage_capacity: bool | None = None


class CsiDriver(Wire):
    """A driver."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CsiDriverSpec = field(default_factory=CsiDriverSpec)
    fault: str | None = None


class CsiStorageCapacity(Wire):
    """How much a driver can still make for a storage class, for the nodes of a topology."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | None = None
    maximum_volume_size: str | None = None
    fault: str | None = None


class AttachedSource(Wire):
    """Which volume is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire):
    """Which volume is attached to which node by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = field(default_factory=AttachedSource)


class VolumeAttachment(Wire):
    """A volume that is attached to a node, or will be."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
    fault: str | None = None
