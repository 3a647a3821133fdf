"""Groups that come of submitted objects: what their controllers say on pods, and the PodGroups and Jobs that they make.

Controllers tell groups in ways of their own, which `cluster.objects.group_marks` reads on pods. Here these marks are
made as the controllers make them: JobSet 0.10, LeaderWorkerSet 0.7, KubeRay 1.5, Kubeflow Trainer 2.1 and mpi-operator
0.6. A PodGroup of an object is one of `scheduling.x-k8s.io`, whatever its operator is told to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fairbind.cluster.objects import group_wire, wire
from fairbind.cluster.objects.decode import (
    COSCHEDULING_POD_GROUPS,
    JOBS,
    POD_GROUPS,
    VOLCANO_POD_GROUPS,
    ResourceType,
)
from fairbind.cluster.objects.group_marks import GANG, GROUP_LABEL, LWS_INDEX, LWS_NAME
from fairbind.fairness.problems.fields import Path
from fairbind.what_if.pod_templates import DEFAULT_KUBERNETES_NAMESPACE, MOST_PODS, PodTemplate
from fairbind.what_if.reading import convert_value, read_whole
from fairbind.what_if.train_jobs import POD_GROUP_POLICY, TRAIN_JOB

JOB, CRON_JOB, JOB_SET = "Job", "CronJob", "JobSet"
LWS: Final = "LeaderWorkerSet"
LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
RAY_KINDS: Final = frozenset({"RayCluster", "RayJob"})
RAY_GANG: Final = "ray.io/gang-scheduling-enabled"
RAY_SUBMITTER: Final = "submitterPodTemplate"
MPI_JOB: Final = "MPIJob"
LEADER_READY, WORKERS_FIRST, IN_ORDER = "LeaderReady", "WaitForWorkersReady", "InOrder"
POD_GROUP: Final = "PodGroup"
POD_GROUP_KINDS: Final[Mapping[str, ResourceType[Any]]] = {
    "scheduling.k8s.io": POD_GROUPS,
    "scheduling.x-k8s.io": COSCHEDULING_POD_GROUPS,
    "scheduling.volcano.sh": VOLCANO_POD_GROUPS,
}
BATCH: Final = "batch"


class Marks(NamedTuple):
    """What a controller adds to a pod. owner: kind and name of its controller, where that matters."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner: tuple[str, str] | None = None


NO_MARKS: Final = Marks()


def find_marks(template: PodTemplate, number: int) -> Marks:
    """Return what the controller of an object adds to a pod. number: from 0 in the template."""
    unit, kind = template.find_unit(number), template.kind
    owner = None
    if (name := _name_job(template, unit)) is not None:
        owner = JOB, name
    elif GANG in template.pod["metadata"].get("annotations", {}):
        owner = kind, template.name
    if kind == LWS:
        return _mark_lws(template, number)
    if _is_in_pod_group(template):
        return Marks({GROUP_LABEL: template.name}, owner=owner)
    return NO_MARKS if owner is None else Marks(owner=owner)


def _name_job(template: PodTemplate, unit: int) -> str | None:
    """Return the name of the Job that makes a pod; None: none does."""
    if template.kind in {JOB_SET, TRAIN_JOB}:
        return f"{template.name}-{_find_replicated_job(template).get('name', '')}-{unit}"
    is_job = template.kind in {JOB, CRON_JOB} and _find_api_group(template.manifest) in {"", BATCH}
    return template.name if is_job else None


def _find_replicated_job(template: PodTemplate) -> Mapping[str, Any]:
    value: Any = template.manifest
    for step in template.places[:3]:  # spec.replicatedJobs[i]
        value = value[step]
    return value if isinstance(value, Mapping) else {}


def _find_api_group(manifest: Mapping[str, Any]) -> str:
    group, separator, _ = str(manifest.get("apiVersion") or "").partition("/")
    return group if separator else ""


def _get(manifest: Mapping[str, Any], *names: str) -> Any:
    """Return a member of members, or None."""
    value: Any = manifest
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _mark_lws(template: PodTemplate, number: int) -> Marks:
    """Return what says that a leader and its workers are a group."""
    set_of = _get(template.manifest, "spec", "leaderWorkerTemplate") or {}
    unit, size = template.find_unit(number), set_of.get("size") or 1
    index = number - unit * max(1, template.count // template.units)
    has_leader = set_of.get("leaderTemplate") is not None
    is_worker = has_leader and "workerTemplate" in template.places
    annotations = {LWS_SIZE: str(size)}
    if (exclusive := _get(template.manifest, "metadata", "annotations", LWS_EXCLUSIVE)) is not None:
        annotations[LWS_EXCLUSIVE] = str(exclusive)
    labels = {LWS_NAME: template.name, LWS_INDEX: str(unit), LWS_WORKER: str(index + is_worker)}
    return Marks(labels, annotations)


def _is_in_pod_group(template: PodTemplate) -> bool:
    """Whether an object's operator makes a PodGroup of which the pods of a template are members."""
    if template.kind in RAY_KINDS:
        labels = _get(template.manifest, "metadata", "labels")
        return isinstance(labels, Mapping) and RAY_GANG in labels and RAY_SUBMITTER not in template.places
    if template.kind == TRAIN_JOB:
        return bool(_get(template.manifest, "spec", POD_GROUP_POLICY))
    return template.kind == MPI_JOB


# --- objects ---


def make_group_objects(
    manifests: Iterable[tuple[Path, Mapping[str, Any]]], templates: Iterable[PodTemplate], created: str
) -> dict[str, list[Any]]:
    """Return the PodGroups of a file, and those and the Jobs that controllers make of its objects, by resource.

    created: when they are. Raises InvalidProblemError.
    """
    found: dict[str, list[Any]] = {JOBS.name: [], **{kind.name: [] for kind in POD_GROUP_KINDS.values()}}
    for path, manifest in manifests:
        kind = POD_GROUP_KINDS.get(_find_api_group(manifest)) if manifest.get("kind") == POD_GROUP else None
        if kind is not None:
            meta = _get(manifest, "metadata") or {}
            name, namespace = meta.get("name"), meta.get("namespace", DEFAULT_KUBERNETES_NAMESPACE)
            own = {"uid": f"{namespace}/{name}", "creationTimestamp": created, **meta, "namespace": namespace}
            found[kind.name].append(convert_value({**manifest, "metadata": own}, kind.wire_type, path))
    sizes: dict[tuple[str, str, str], tuple[PodTemplate, int]] = {}
    for template in templates:
        found[JOBS.name] += _make_jobs(template, created)
        if _is_in_pod_group(template):
            key = template.kind, template.namespace, template.name
            sizes[key] = template, sizes.get(key, (template, 0))[1] + template.count
    for template, size in sizes.values():
        meta = wire.ObjectMeta(template.name, template.namespace, uid=_name_uid(template), creation_timestamp=created)
        spec = group_wire.MemberSpec(min_member=_read_minimum(template, size))
        found[COSCHEDULING_POD_GROUPS.name].append(group_wire.MemberPodGroup(meta, spec))
    return {name: objects for name, objects in found.items() if objects}


def name_unknown_order(templates: Iterable[PodTemplate]) -> list[str]:
    """Return, in words, which pods controllers create only after others, as all are taken to be there at once."""
    found: dict[str, None] = {}
    for template in templates:
        spec, name = _get(template.manifest, "spec") or {}, f"{template.kind} {template.name}"
        if template.kind in {JOB_SET, TRAIN_JOB} and (_is_in_order(spec)):
            found[f"the order in which {name} creates its Jobs"] = None
        exclusive = _get(template.manifest, "metadata", "annotations", LWS_EXCLUSIVE)
        if template.kind == LWS and (exclusive or spec.get("startupPolicy") == LEADER_READY):
            found[f"that workers of {name} exist only once their leader does"] = None
        if template.kind == MPI_JOB and spec.get("launcherCreationPolicy") == WORKERS_FIRST:
            found[f"that the launcher of {name} exists only once its workers run"] = None
    return list(found)


def _is_in_order(spec: Mapping[str, Any]) -> bool:
    """Whether a JobSet creates some of its Jobs only after others."""
    jobs = [job for job in spec.get("replicatedJobs") or () if isinstance(job, Mapping)]
    return _get(spec, "startupPolicy", "startupPolicyOrder") == IN_ORDER or any(job.get("dependsOn") for job in jobs)


def _read_minimum(template: PodTemplate, size: int) -> int:
    """Return how many pods an operator says are placed together. size: all that the object asks for."""
    policy = _get(template.manifest, "spec", "runPolicy", "schedulingPolicy")
    least = policy.get("minAvailable") if template.kind == MPI_JOB and isinstance(policy, Mapping) else None
    if least is None:
        return size
    path = (*template.path[: len(template.path) - len(template.places)], "spec", "runPolicy", "schedulingPolicy")
    return read_whole(least, (*path, "minAvailable"), 0, MOST_PODS)


def _name_uid(template: PodTemplate) -> str:
    return f"{template.namespace}/{template.kind}/{template.name}"


def _make_jobs(template: PodTemplate, created: str) -> Iterator[group_wire.Job]:
    """Yield the Jobs of a template that say that their pods are a group, or whose pods say it."""
    if _name_job(template, 0) is None:
        return
    job: Any = template.manifest
    if template.kind == CRON_JOB:
        job = _get(job, "spec", "jobTemplate")
    elif template.kind in {JOB_SET, TRAIN_JOB}:
        job = _find_replicated_job(template).get("template")
    owned = _get(job, "metadata", "annotations"), template.pod["metadata"].get("annotations")
    if not any(isinstance(annotations, Mapping) and GANG in annotations for annotations in owned):
        return
    read: group_wire.Job = convert_value({"metadata": {}, **job}, group_wire.Job, template.path)
    for unit in range(template.units):
        name = str(_name_job(template, unit))
        meta = msgspec.structs.replace(
            read.metadata,
            name=name,
            namespace=template.namespace,
            uid=find_job_uid(template.namespace, name),
            creation_timestamp=created,
        )
        yield msgspec.structs.replace(read, metadata=meta)


def find_job_uid(namespace: str, name: str) -> str:
    """Return the UID of a Job of a file."""
    return f"{namespace}/{JOB}/{name}"
