"""TrainJobs of Kubeflow Trainer: each is a JobSet that comes of it and of the runtime that it names.

The runtime must be in the file. Of the TrainJob that counts which says how many nodes there are and what they ask for:
`trainer.numNodes` and `resourcesPerNode`, labels, annotations and overrides of pod templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairbind.fairness.problems.fields import Path, show_value
from fairbind.what_if.reading import complain, read_mapping, read_optional_list, read_text, read_whole

TRAIN_JOB: Final = "TrainJob"
CLUSTER_RUNTIME: Final = "ClusterTrainingRuntime"
RUNTIME_KINDS: Final = (CLUSTER_RUNTIME, "TrainingRuntime")
STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER, NODE = "trainer", "node"
POD_GROUP_POLICY: Final = "podGroupPolicy"
MOST_NODES: Final = 100_000
OVERRIDDEN: Final = ("affinity", "schedulingGates", "tolerations")

Objects = list[tuple[Path, Mapping[str, Any]]]


def expand_train_jobs(manifests: Objects) -> Objects:
    """Return the objects, with the spec of its JobSet in each TrainJob, and without runtimes.

    Raises InvalidProblemError where a runtime is missing.
    """
    if not any(manifest.get("kind") == TRAIN_JOB for _, manifest in manifests):
        return manifests
    runtimes = {}
    for path, manifest in manifests:
        if manifest.get("kind") in RUNTIME_KINDS:
            name = _read(_read(manifest, "metadata", path), "name", (*path, "metadata"), default="")
            runtimes[manifest["kind"], name] = path, manifest
    return [
        (path, _expand(path, manifest, runtimes) if manifest.get("kind") == TRAIN_JOB else manifest)
        for path, manifest in manifests
        if manifest.get("kind") not in RUNTIME_KINDS
    ]


def _read(owner: Mapping[str, Any], field: str, path: Path, default: Any = None) -> Any:
    """Return a member, or an empty object; with a default text or that one."""
    value = owner.get(field)
    if default is not None:
        return default if value is None else read_text(value, (*path, field))
    return read_mapping({} if value is None else value, (*path, field), "an object")


def _expand(path: Path, train_job: Mapping[str, Any], runtimes: Mapping[Any, Any]) -> dict[str, Any]:
    spec, where = _read(train_job, "spec", path), (*path, "spec")
    reference = _read(spec, "runtimeRef", where)
    kind = _read(reference, "kind", (*where, "runtimeRef"), default=CLUSTER_RUNTIME)
    name = _read(reference, "name", (*where, "runtimeRef"), default="")
    found = runtimes.get((kind, name))
    if found is None:
        complain(
            (*where, "runtimeRef"),
            f"names the {kind} {show_value(name)}, whose pods its own are: it must be in the file",
        )
    at, runtime = found
    of_runtime = _read(runtime, "spec", at)
    policy = _read(of_runtime, "mlPolicy", (*at, "spec"))
    template = _read(of_runtime, "template", (*at, "spec"))
    job_set = _read(template, "spec", (*at, "spec", "template"))
    below: Path = (*at, "spec", "template", "spec")
    jobs = [
        _adapt(read_mapping(job, (*below, "replicatedJobs", place), "an object"), spec, where, policy, (*at, "spec"))
        for place, job in enumerate(read_optional_list(job_set, "replicatedJobs", below))
    ]
    meta = _read(template, "metadata", (*at, "spec", "template"))
    added = {part: {**_read(meta, part, at), **_read(spec, part, where)} for part in ("labels", "annotations")}
    jobs = [_mark(job, added) for job in jobs]
    return {
        **train_job,
        "spec": {**job_set, "replicatedJobs": jobs, POD_GROUP_POLICY: of_runtime.get(POD_GROUP_POLICY)},
    }


def _adapt(
    job: Mapping[str, Any], spec: Mapping[str, Any], where: Path, policy: Mapping[str, Any], at: Path
) -> dict[str, Any]:
    """Return a replicated Job as the TrainJob wants it. where, at: the paths of its spec and of the runtime's."""
    of_trainer = _read(spec, "trainer", where)
    mpi = policy.get("mpi")
    has_launcher = isinstance(mpi, Mapping) and bool(mpi.get("runLauncherAsNode"))
    name = job.get("name")
    of_job = _read(job, "template", at)
    job_spec = _read(of_job, "spec", at)
    pod = _read(job_spec, "template", at)
    pod_spec = _read(pod, "spec", at)
    step = _read(_read(of_job, "metadata", at), "labels", at).get(STEP)
    is_node = step == TRAINER or (has_launcher and name == NODE)
    nodes = of_trainer.get("numNodes")
    count = None
    if isinstance(mpi, Mapping):
        if name == NODE and nodes is not None:
            nodes = read_whole(nodes, (*where, "trainer", "numNodes"), 1, MOST_NODES)
            count = max(nodes - 1, 1) if has_launcher else nodes
        elif step == TRAINER and name != NODE:
            count = 1
    elif step == TRAINER:
        nodes = nodes if nodes is not None else policy.get("numNodes", 1)
        count = read_whole(nodes, (*where, "trainer", "numNodes"), 1, MOST_NODES)
    if is_node and of_trainer.get("resourcesPerNode"):
        containers = [
            {**one, "resources": of_trainer["resourcesPerNode"]} if one.get("name") == NODE else one
            for one in pod_spec.get("containers") or ()
        ]
        pod_spec = {**pod_spec, "containers": containers}
    pod = _override({**pod, "spec": pod_spec}, name, spec, where)
    counts = {} if count is None else {"parallelism": count, "completions": count}
    return {
        **job,
        "replicas": 1,
        "template": {**of_job, "spec": {**job_spec, **counts, "template": pod}},
    }


def _override(pod: dict[str, Any], job: object, spec: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Return a pod template with what the TrainJob's overrides for its Job say about where pods may go."""
    for place, value in enumerate(read_optional_list(spec, "podTemplateOverrides", where)):
        path: Path = (*where, "podTemplateOverrides", place)
        override = read_mapping(value, path, "an object")
        targets = [
            _read(read_mapping(each, path, "an object"), "name", path, default="")
            for each in read_optional_list(override, "targetJobs", path)
        ]
        if job in targets:
            changed, meta = _read(override, "spec", path), _read(override, "metadata", path)
            pod = _add_meta(pod, {part: _read(meta, part, path) for part in ("labels", "annotations")})
            own = pod["spec"]
            selector = {**(own.get("nodeSelector") or {}), **_read(changed, "nodeSelector", path)}
            others = {field: changed[field] for field in OVERRIDDEN if changed.get(field) is not None}
            pod = {**pod, "spec": {**own, **({"nodeSelector": selector} if selector else {}), **others}}
    return pod


def _mark(job: dict[str, Any], added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    spec = job["template"]["spec"]
    return {**job, "template": {**job["template"], "spec": {**spec, "template": _add_meta(spec["template"], added)}}}


def _add_meta(pod: dict[str, Any], added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    meta = pod.get("metadata") or {}
    parts = {part: {**(meta.get(part) or {}), **more} for part, more in added.items() if more}
    return {**pod, "metadata": {**meta, **parts}} if parts else pod
