"""From manifests to the pods that they ask for, as they are when the API server has created them.

A manifest says less than the pod that comes of it. Of each pod template one pod is completed: by a dry run on the
cluster where there is one, else by what the snapshot says (`admission`). Its pods get the claims that its controller or
the API would make for them. Other objects of the file that a snapshot may hold come with it: claims, Tenants,
LimitRanges and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fairbind.cluster.objects import manifest_wire, storage_wire, wire
from fairbind.cluster.objects.captured import StorageClass, format_time
from fairbind.cluster.objects.convert import UNREADABLE, convert_pod, parse_time
from fairbind.cluster.objects.dry_run import DryRun
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.fairness.problems.fields import Path
from fairbind.what_if.admission import PodRefusedError, admit, complete
from fairbind.what_if.emitted_groups import find_job_uid, find_marks, make_group_objects, name_unknown_order
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.pod_templates import (
    CLAIM_TEMPLATES,
    DEFAULT_KUBERNETES_NAMESPACE,
    REFUSED_KINDS,
    PodTemplate,
    find_templates,
    split_documents,
)
from fairbind.what_if.reading import complain, convert_value, read_mapping
from fairbind.what_if.snapshot_file import parse_snapshot
from fairbind.what_if.train_jobs import expand_train_jobs

AMOUNTS: Final = ("requests", "limits", "overhead")
CLAIMS: Final = "persistentvolumeclaims"
STORAGE_CLASSES: Final = "storageclasses"
NAMESPACED: Final = frozenset({"PersistentVolumeClaim", "LimitRange"})
COMING_KINDS: Final = NAMESPACED | {
    "Namespace", "Tenant", "SchedulingPolicy", "PersistentVolume", "StorageClass", "RuntimeClass", "PriorityClass",
}  # fmt: skip
"""Kinds of objects that come with a file, besides those with pods."""
NEEDED_FIRST: Final = frozenset({"Namespace", "ServiceAccount", "PriorityClass", "RuntimeClass"})
"""Kinds for lack of which the API server refuses a pod. Where the file brings one, a refusal says nothing."""
ONE_POD: Final = "ResourceQuotas for more than one pod of a template"


@dataclass(frozen=True, slots=True)
class Manifests:
    """What a file asks for. objects: all of it, with their paths. templates: of pods."""

    objects: tuple[tuple[Path, Mapping[str, Any]], ...]
    templates: tuple[PodTemplate, ...]


@dataclass(frozen=True, slots=True)
class Submitted:
    """The pods of a file.

    listed: the cluster with all of the file, but for pods that are refused. namespaces: of the file's pods, each once.
    refused: how many pods the API server would not create. refusal: why, the first one in words; None: it would create
    all. not_applied: what of an API server's completion of pods was left out, in words.
    """

    listed: ListedObjects
    pods: tuple[wire.Pod, ...]
    namespaces: tuple[str, ...]
    refused: int
    refusal: str | None
    not_applied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Completed:
    """A pod of a template as it is created. claims: of its ephemeral volumes, by the volume's name."""

    spec: wire.PodSpec
    labels: dict[str, str]
    claims: Mapping[str, manifest_wire.ClaimTemplate]


def read_manifests(documents: Sequence[object]) -> Manifests:
    """Return what the documents of a file ask for. Raises InvalidProblemError."""
    objects = expand_train_jobs(split_documents(documents))
    return Manifests(tuple(objects), tuple(find_templates(objects)))


def make_trial_pod(template: PodTemplate) -> dict[str, Any]:
    """Return one pod of a template for a dry run: without a node, and without a number that a name must give."""
    spec = {name: part for name, part in template.pod["spec"].items() if name not in {"nodeName", "priority"}}
    if template.claims:
        own = {volume.name: volume for volume in _make_claim_volumes(template, 0)}
        kept = [one for one in spec.get("volumes") or () if not (isinstance(one, Mapping) and one.get("name") in own)]
        spec["volumes"] = [*kept, *(_describe_volume(volume) for volume in own.values())]
    return {"metadata": template.pod["metadata"], "spec": spec}


def _describe_volume(volume: manifest_wire.Volume) -> dict[str, Any]:
    assert volume.persistent_volume_claim is not None
    return {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.persistent_volume_claim.claim_name}}


def submit(manifests: Manifests, listed: ListedObjects, dry_runs: Sequence[DryRun] | None = None) -> Submitted:
    """Return the pods of a file, newer than all others, in a cluster. Raises InvalidProblemError.

    dry_runs: what the cluster's API server says of a pod of each template; None: there is no cluster.
    """
    listed = _add_objects(listed, manifests)
    created = format_time(max([listed.time, *(parse_time(pod.metadata.creation_timestamp) for pod in listed.pods)]) + 1)
    pods, claims, not_applied = list[wire.Pod](), list[storage_wire.PersistentVolumeClaim](), dict[str, None]()
    refused = 0
    refusal: str | None = None
    brings_needed = any(manifest.get("kind") in NEEDED_FIRST for _, manifest in manifests.objects)
    for place, template in enumerate(manifests.templates):
        answer = None if dry_runs is None else dry_runs[place]
        if answer is not None and answer.refusal is not None and brings_needed:
            answer = DryRun(trouble=f"{answer.refusal} (the file brings objects that a pod may need)")
        try:
            completed, left_out = _complete(template, listed, answer)
        except PodRefusedError as error:
            refused += template.count
            refusal = refusal or str(error)
            continue
        not_applied.update(dict.fromkeys(left_out))
        for pod in _make_pods(template, completed, listed, created, len(pods)):
            pods.append(pod)
            claims += _make_claims(template, completed, pod, listed)
    not_applied.update(dict.fromkeys([*_name_refused_kinds(manifests), *name_unknown_order(manifests.templates)]))
    listed = _add_pods(listed, pods, claims)
    groups = make_group_objects(manifests.objects, manifests.templates, created)
    listed = msgspec.structs.replace(listed, storage=_merge_all(listed.storage, groups))
    namespaces = tuple(dict.fromkeys(template.namespace for template in manifests.templates))
    return Submitted(listed, tuple(pods), namespaces, refused, refusal, tuple(not_applied))


def _name_refused_kinds(manifests: Manifests) -> Iterator[str]:
    for _, manifest in manifests.objects:
        if manifest.get("kind") in REFUSED_KINDS:
            yield f"the {manifest['kind']} in the file, as {REFUSED_KINDS[manifest['kind']]}"


# --- one pod ---


def _complete(template: PodTemplate, listed: ListedObjects, answer: DryRun | None) -> tuple[_Completed, list[str]]:
    """Return one pod of a template as it is created, and what was left out. Raises PodRefusedError."""
    if answer is not None and answer.refusal is not None:
        raise PodRefusedError(answer.refusal)
    path: Path = (*template.path, "spec")
    written = _read_spec(template.pod["spec"], path)
    if answer is not None and answer.pod is not None:
        spec = _read_spec(answer.pod["spec"], path)
        labels = convert_value(answer.pod["metadata"].get("labels") or {}, dict[str, str], path)
        spec.priority = written.priority if written.priority is not None else spec.priority
        spec.scheduling_gates = [gate for gate in spec.scheduling_gates or () if gate.name != FAIRBIND_GATE] or None
        left_out = [ONE_POD] if template.count > 1 else []
    else:
        labels = convert_value(
            template.pod["metadata"]["labels"], dict[str, str], (*template.path, "metadata", "labels")
        )
        spec = written
        complete(spec, labels)
        left_out = admit(spec, template.namespace, listed)
        if answer is not None:
            left_out.insert(0, f"a dry run on the cluster: {answer.trouble}")
    spec.node_name, spec.scheduler_name = None, listed.scheduler_name
    completed = _Completed(spec, labels, _find_ephemeral(spec))
    facts = convert_pod(wire.Pod(metadata=wire.PodMeta(labels=labels), spec=spec))
    if facts.unsupported == UNREADABLE:
        complain(template.path, facts.unsupported_detail or "makes no sense")
    return completed, left_out


def _read_spec(value: object, path: Path) -> manifest_wire.PodSpec:
    spec: manifest_wire.PodSpec = convert_value(_quote_amounts(value), manifest_wire.PodSpec, path)
    return spec


def _quote_amounts(value: Any, field: str = "") -> Any:
    """Return a spec with quantities as text: the API takes numbers, too, and YAML has them where quotes are missing."""
    if isinstance(value, Mapping):
        if field in AMOUNTS:
            return {name: str(part) if _is_number(part) else part for name, part in value.items()}
        return {name: _quote_amounts(part, name) for name, part in value.items()}
    return [_quote_amounts(part, field) for part in value] if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- its likes ---


def _make_pods(
    template: PodTemplate, completed: _Completed, listed: ListedObjects, created: str, before: int
) -> Iterator[wire.Pod]:
    """Yield the pods of a template. before: how many pods of the file came before."""
    taken = {pod.metadata.uid for pod in listed.pods}
    is_pod = template.kind == "Pod"
    for number in range(template.count):
        name = template.name if is_pod else _name_pod(template, number)
        uid = next(
            text
            for place in range(before + number, before + number + len(taken) + 1)
            if (text := f"{template.namespace}/{template.name}-{place:06}") not in taken
        )
        taken.add(uid)
        labels = completed.labels
        if template.kind == "StatefulSet":
            index = str(template.first + number)
            labels = {**labels, "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": index}
        marks = find_marks(template, number)
        meta = wire.PodMeta(
            name,
            template.namespace,
            uid,
            creation_timestamp=created,
            labels={**labels, **marks.labels},
            owner_references=_make_owner(template, marks.owner),
            annotations=_read_annotations(template, marks.annotations),
        )
        spec = completed.spec
        if template.claims:
            own = {volume.name: volume for volume in _make_claim_volumes(template, number)}
            kept = [volume for volume in spec.volumes or () if volume.name not in own]
            spec = msgspec.structs.replace(spec, volumes=[*kept, *own.values()])
        yield wire.Pod(metadata=meta, spec=spec, status=wire.PodStatus(phase="Pending"))


def _make_owner(template: PodTemplate, owner: tuple[str, str] | None) -> list[wire.OwnerReference] | None:
    if owner is None:
        return None
    kind, name = owner
    return [wire.OwnerReference(uid=find_job_uid(template.namespace, name), kind=kind, name=name, controller=True)]


def _read_annotations(template: PodTemplate, added: Mapping[str, str]) -> wire.PodAnnotations | None:
    """Return what a pod says about its group. added: by its controller."""
    written = {**template.pod["metadata"].get("annotations", {}), **added}
    path: Path = (*template.path, "metadata", "annotations")
    return convert_value(written, wire.PodAnnotations, path) if written else None


def _name_pod(template: PodTemplate, number: int) -> str:
    return f"{template.name}-{template.first + number}"


def _make_claim_volumes(template: PodTemplate, number: int) -> Iterator[manifest_wire.Volume]:
    """Yield the volumes of a pod that come of the templates of claims beside its own."""
    for name, _ in _read_claim_templates(template):
        claim = wire.ClaimVolume(f"{name}-{_name_pod(template, number)}")
        yield manifest_wire.Volume(name, persistent_volume_claim=claim)


def _read_claim_templates(template: PodTemplate) -> Iterator[tuple[str, manifest_wire.ClaimTemplate]]:
    for place, value in enumerate(template.claims):
        path: Path = (*template.path, CLAIM_TEMPLATES, place)
        claim: manifest_wire.ClaimTemplate = convert_value(_quote_amounts(value), manifest_wire.ClaimTemplate, path)
        if not claim.metadata.name:
            complain((*path, "metadata", "name"), "is missing")
        yield claim.metadata.name, claim


def _find_ephemeral(spec: manifest_wire.PodSpec) -> dict[str, manifest_wire.ClaimTemplate]:
    """Return what the claims of ephemeral volumes are made of, by the volume's name."""
    return {
        volume.name: volume.ephemeral.volume_claim_template or manifest_wire.ClaimTemplate()
        for volume in spec.volumes or ()
        if volume.ephemeral is not None
    }


def _make_claims(
    template: PodTemplate, completed: _Completed, pod: wire.Pod, listed: ListedObjects
) -> Iterator[storage_wire.PersistentVolumeClaim]:
    """Yield the claims that are made for a pod: by its controller, where none of the name is there, and for the pod."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    for volume, claim in _read_claim_templates(template):
        yield _make_claim(claim, f"{volume}-{name}", namespace, listed, ())
    owner = wire.OwnerReference(uid=pod.metadata.uid, controller=True)
    for volume, claim in completed.claims.items():
        yield _make_claim(claim, f"{name}-{volume}", namespace, listed, (owner,))


def _make_claim(
    template: manifest_wire.ClaimTemplate,
    name: str,
    namespace: str,
    listed: ListedObjects,
    owners: Sequence[wire.OwnerReference],
) -> storage_wire.PersistentVolumeClaim:
    meta = storage_wire.AnnotatedMeta(
        name=name, namespace=namespace, uid=f"{namespace}/{name}", owner_references=[*owners] or None
    )
    spec = msgspec.structs.replace(template.spec)
    if spec.storage_class_name is None:
        spec.storage_class_name = _find_default_class(listed.storage.get(STORAGE_CLASSES, ()))
    return storage_wire.PersistentVolumeClaim(meta, spec, storage_wire.ClaimStatus("Pending"))


def _find_default_class(classes: Iterable[StorageClass]) -> str | None:
    """Return the name of the default storage class; of several the newest, as the API server takes it."""
    marked = [one for one in classes if any(one.metadata.annotations or ())]
    found = max(marked, key=lambda one: (parse_time(one.metadata.creation_timestamp), one.metadata.name), default=None)
    return None if found is None else found.metadata.name


# --- the cluster with the file ---


def _add_objects(listed: ListedObjects, manifests: Manifests) -> ListedObjects:
    """Return the cluster with those objects of a file that a snapshot may hold; the file's are in place of others."""
    items: list[Mapping[str, Any]] = []
    for path, manifest in manifests.objects:
        kind = manifest.get("kind")
        if kind in COMING_KINDS:
            meta = read_mapping(manifest.get("metadata") or {}, (*path, "metadata"), "an object")
            where = {"namespace": DEFAULT_KUBERNETES_NAMESPACE} if kind in NAMESPACED else {}
            items.append({**manifest, "metadata": {**where, **meta}})
    if not items:
        return listed
    file = parse_snapshot({"kind": "List", "items": items})
    for claim in file.storage.get(CLAIMS, ()):
        if claim.spec.storage_class_name is None:
            claim.spec.storage_class_name = _find_default_class(
                [*listed.storage.get(STORAGE_CLASSES, ()), *file.storage.get(STORAGE_CLASSES, ())]
            )
    return msgspec.structs.replace(
        listed,
        namespaces=_merge(listed.namespaces, file.namespaces),
        tenants=_merge(listed.tenants, file.tenants),
        policies=_merge(listed.policies, file.policies),
        storage=_merge_all(listed.storage, file.storage),
        admission=_merge_all(listed.admission, file.admission),
    )


def _merge_all(old: Mapping[str, list[Any]], new: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {**old, **{name: _merge(old.get(name, []), items) for name, items in new.items()}}


def _merge(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    names = {_identify(one) for one in new}
    return [*(one for one in old if _identify(one) not in names), *new]


def _identify(item: Any) -> tuple[str, str]:
    meta = item["metadata"] if isinstance(item, Mapping) else item.metadata
    return ("", str(meta["name"])) if isinstance(meta, Mapping) else (meta.namespace, meta.name)


def _add_pods(
    listed: ListedObjects, pods: Sequence[wire.Pod], claims: Sequence[storage_wire.PersistentVolumeClaim]
) -> ListedObjects:
    """Return the cluster with pods and their claims. A claim that is there stays: a StatefulSet takes it again."""
    there = listed.storage.get(CLAIMS, [])
    names = {_identify(claim) for claim in there}
    new = {_identify(claim): claim for claim in claims}
    storage = {**listed.storage, CLAIMS: [*there, *(claim for name, claim in new.items() if name not in names)]}
    return msgspec.structs.replace(listed, pods=[*listed.pods, *pods], storage=storage if new else listed.storage)
