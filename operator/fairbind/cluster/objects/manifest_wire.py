"""What we read of a pod that no API server has completed yet: also the fields from which others follow; see `wire`.

In a pod that is stored these fields need no reading: what follows from them stands beside them.
"""

from __future__ import annotations

from msgspec import field

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.storage_wire import AnnotatedMeta, ClaimSpec


class Port(
    wire.Port, rename={"host_port": "hostPort", "host_ip": "hostIP", "container_port": "containerPort"}, gc=False
):
    """A container's port, which is one of the node in a pod with the node's network."""

    container_port: int | None = None


class Container(wire.Container):
    """A container."""

    ports: list[Port] | None = None  # type: ignore[assignment]


class PodAffinityTerm(wire.PodAffinityTerm):
    """A term about other pods, and the pod's own labels that are added to its selector."""

    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPodTerm(wire.PreferredPodTerm):
    """A preferred term about other pods."""

    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(wire.PodAffinity):
    """Terms about other pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None  # type: ignore[assignment]
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None  # type: ignore[assignment]


class Affinity(wire.Affinity):
    """All three kinds of affinity."""

    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ClaimTemplate(wire.Wire):
    """What a claim is made of."""

    metadata: AnnotatedMeta = field(default_factory=AnnotatedMeta)
    spec: ClaimSpec = field(default_factory=ClaimSpec)


class EphemeralVolume(wire.Present):
    """A volume that is made for the pod."""

    volume_claim_template: ClaimTemplate | None = None


class Volume(wire.Volume):
    """A volume."""

    ephemeral: EphemeralVolume | None = None


class PodSpec(wire.PodSpec):
    """What a manifest asks for."""

    containers: list[Container] | None = None  # type: ignore[assignment]
    init_containers: list[Container] | None = None  # type: ignore[assignment]
    affinity: Affinity | None = None
    volumes: list[Volume] | None = None  # type: ignore[assignment]
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
