"""PodGroups of three formats, and Jobs, as far as they say what pods are placed together; see `group_marks`."""

from __future__ import annotations

from msgspec import Struct

from fairbind.cluster.objects import group_wire, wire
from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.group_marks import (
    ONCE,
    GroupFormat,
    GroupMark,
    TopologyKey,
    find_topology,
    make_mark,
    name_group,
    read_size,
)
from fairbind.cluster.objects.requests import DemandReader

MAX_ROLES = 64
"""So many roles of a PodGroup have a minimum, the first by name."""
WAITING_PHASES = ("", "Pending")
"""As long as its PodGroup is in such a phase, Volcano's controller makes no pods of a Job."""
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition of a native PodGroup: its minimum was placed once."""


class PodGroupFacts(Struct, frozen=True, gc=False):
    """A PodGroup.

    minimum: so many pods are placed together; 0: each by itself. roles: of these, at least so many of each; sorted.
    resources: so much must be free before any is placed. is_scheduled: whether its minimum was placed once.
    said: status, reason and message of the condition that says so, or None. generation: of its spec.
    is_awaited: whether a Job of Volcano makes no pods until its phase is another one.
    """

    format: GroupFormat
    namespace: str
    name: str
    version: str
    uid: str
    created: float
    minimum: int
    roles: tuple[tuple[str, int], ...] = ()
    resources: Amounts = ()
    topology: TopologyKey | None = None
    is_scheduled: bool = False
    said: tuple[str, str, str] | None = None
    generation: int = 0
    is_awaited: bool = False


class JobFacts(Struct, frozen=True, gc=False):
    """A Job whose pods are a group, by what it says itself or by what they say; others have no mark.

    parallelism: how many pods it runs at a time.
    """

    namespace: str
    name: str
    version: str
    uid: str
    mark: GroupMark | None
    parallelism: int


def convert_native(group: group_wire.NativePodGroup, created: float) -> PodGroupFacts:
    """Return what matters of a PodGroup of Kubernetes. created: seconds since the epoch."""
    meta, spec = group.metadata, group.spec
    gang, constraints = spec.scheduling_policy.gang, spec.scheduling_constraints
    keys = [each.key for each in (constraints.topology if constraints is not None else None) or () if each.key]
    said = next((each for each in group.status.conditions or () if each.type == INITIALLY_SCHEDULED), None)
    return PodGroupFacts(
        GroupFormat.NATIVE,
        *(meta.namespace, meta.name, meta.resource_version, meta.uid, created),
        0 if gang is None else max(gang.min_count, 0),
        topology=TopologyKey(keys[0], is_required=True) if keys else None,
        is_scheduled=said is not None and said.status == "True",
        said=None if said is None else (said.status, said.reason or "", said.message or ""),
        generation=meta.generation or 0,
    )


def convert_member_group(group: group_wire.MemberPodGroup, kind: GroupFormat, created: float) -> PodGroupFacts:
    """Return what matters of a PodGroup of another format. created: seconds since the epoch."""
    meta, spec = group.metadata, group.spec
    roles = sorted((role, least) for role, least in (spec.min_task_member or {}).items() if least > 0)[:MAX_ROLES]
    minimum = max(spec.min_member or 0, 0)
    if minimum < sum(least for _, least in roles):
        roles = []  # Volcano asks for no roles then
    amounts = DemandReader().read({r: str(amount) for r, amount in (spec.min_resources or {}).items()}, "minResources")
    return PodGroupFacts(
        kind,
        *(meta.namespace, meta.name, meta.resource_version, meta.uid, created),
        max(minimum, 1) if amounts else minimum,
        tuple(roles),
        tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount)),
        is_awaited=group.status.phase in WAITING_PHASES and any(map(_is_volcano_job, meta.owner_references or ())),
    )


def _is_volcano_job(owner: wire.OwnerReference) -> bool:
    return bool(owner.controller) and owner.kind == "Job" and owner.api_version.startswith("batch.volcano.sh/")


def convert_job(job: group_wire.Job) -> JobFacts:
    """Return what matters of a Job. Its own annotation counts before that of its pod template."""
    meta, spec = job.metadata, job.spec
    own, template = meta.annotations, spec.template.metadata.annotations
    size = read_size(own.gang if own is not None else None)
    annotations: wire.PodAnnotations | group_wire.JobAnnotations | None = own if size is not None else template
    size = size if size is not None else read_size(template.gang if template is not None else None)
    mark = None
    if size is not None and annotations is not None:
        once = annotations.gang_after_start == ONCE
        topology = find_topology(annotations) or (None if template is None else find_topology(template))
        name = name_group(meta.name, GroupFormat.JOB)
        mark = make_mark(GroupFormat.JOB, name, "", size, once, topology)
    parallelism = spec.parallelism if spec.parallelism is not None else 1
    if spec.completions is not None:
        parallelism = min(parallelism, spec.completions)
    return JobFacts(meta.namespace, meta.name, meta.resource_version, meta.uid, mark, max(parallelism, 0))
