"""What we read of Kubernetes' JSON about groups of pods: PodGroups of three formats, and Jobs; see `wire`."""

from __future__ import annotations

from msgspec import Struct, field

from fairbind.cluster.objects.wire import Condition, ObjectMeta, PodAnnotations, Present, Wire

Quantities = dict[str, str | int | float]
"""Amounts as custom resources keep them: as they were written."""


class GangPolicy(Wire):
    """The whole minimum of a group, or none of it."""

    min_count: int = 0


class SchedulingPolicy(Wire):
    """One of both."""

    basic: Present | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Wire):
    """A label of nodes whose values are the domains."""

    key: str = ""


class SchedulingConstraints(Wire):
    """Where the pods of a group must be."""

    topology: list[TopologyConstraint] | None = None


class NativeSpec(Wire):
    """What the group asks for."""

    scheduling_policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None


class NativeStatus(Wire):
    """What became of the group."""

    conditions: list[Condition] | None = None


class NativePodGroup(Wire):
    """A PodGroup of `scheduling.k8s.io`."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NativeSpec = field(default_factory=NativeSpec)
    status: NativeStatus = field(default_factory=NativeStatus)
    fault: str | None = None


class MemberSpec(Wire):
    """What the group asks for. min_task_member: by role, in Volcano's format only."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    min_resources: Quantities | None = None


class MemberStatus(Wire):
    """What became of the group."""

    phase: str = ""


class MemberPodGroup(Wire):
    """A PodGroup of `scheduling.x-k8s.io` or of Volcano."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MemberSpec = field(default_factory=MemberSpec)
    fault: str | None = None
    status: MemberStatus = field(default_factory=MemberStatus)


class JobAnnotations(Struct, gc=False):
    """What a Job says about its pods as a group."""

    gang: str | None = field(default=None, name="fairbind.io/gang")
    gang_after_start: str | None = field(default=None, name="fairbind.io/gang-after-start")
    required_topology: str | None = field(default=None, name="fairbind.io/gang-required-topology")
    preferred_topology: str | None = field(default=None, name="fairbind.io/gang-preferred-topology")


class JobMeta(ObjectMeta):
    """Which Job it is."""

    annotations: JobAnnotations | None = None


class TemplateMeta(Wire):
    """What all pods of a Job say about themselves."""

    annotations: PodAnnotations | None = None


class PodTemplate(Wire):
    """What pods are made of; only what says that they are a group."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)


class JobSpec(Wire):
    """How many pods a Job has at a time, and in all."""

    parallelism: int | None = None
    completions: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class Job(Wire):
    """A Job."""

    metadata: JobMeta = field(default_factory=JobMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    fault: str | None = None
