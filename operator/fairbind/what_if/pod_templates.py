"""The pod templates of manifests, in any depth, and how many pods are made of each.

Counts on the way from the root of an object to a template multiply: the replicas of a JobSet's replicated job with the
parallelism of its Job, the replicas of a group of Ray workers with the hosts of each. So a kind need not be known here.
What a controller adds to its pods before it creates them is added here too, where a decision may depend on it: labels
by which spread constraints select, and claims of a StatefulSet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fairbind.fairness.problems.fields import Path
from fairbind.what_if.reading import complain, read_mapping, read_optional_list, read_text, read_whole

ROOT: Final[Path] = ("manifest",)
"""How errors name the document itself."""
MOST_PODS: Final = 100_000
DEFAULT_NAME: Final = "submitted"
DEFAULT_KUBERNETES_NAMESPACE: Final = "default"
FACTORS: Final = ("numOfHosts", "instances", "count")
"""Counts besides replicas and parallelism: hosts of a Ray worker, executors of Spark, pods of a Kueue workload."""
TEMPLATE_HASH: Final = "pod-template-hash"
JOB_NAMES: Final = ("job-name", "batch.kubernetes.io/job-name")
REVISION: Final = "submitted"
"""The hash of the pods' template: other than those of all pods that run."""
REFUSED_KINDS: Final[Mapping[object, str]] = {
    "DaemonSet": "its controller chooses the node of each pod itself",
}
CLAIM_TEMPLATES: Final = "volumeClaimTemplates"
_OTHER_PARTS: Final = frozenset({"metadata", "status"})


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Pods that a manifest asks for.

    path: of the template. name, namespace, kind: of the object. count: of the pods. pod: the pod as it is created, with
    metadata and spec. claims: templates of claims of which each pod gets one. first: the number of the first pod, as
    all pods of the object are numbered. units: so many equal parts of the object have as many pods each, as the Jobs of
    a JobSet. manifest: the object. places: the path of the template in it.
    """

    path: Path
    kind: str
    name: str
    namespace: str
    count: int
    pod: Mapping[str, Any]
    claims: tuple[Mapping[str, Any], ...]
    first: int
    units: int
    manifest: Mapping[str, Any]
    places: Path

    def find_unit(self, number: int) -> int:
        """Return the part to which a pod belongs. number: from 0 in the template."""
        return number // max(1, self.count // self.units)


class _Step(NamedTuple):
    """An object on the way from the root, and the name of its member that the way goes on with."""

    path: Path
    owner: Mapping[str, Any]
    member: str


class _Found(NamedTuple):
    """An object that is searched, and the way to it."""

    path: Path
    value: Any
    way: tuple[_Step, ...]


def split_documents(documents: Sequence[object]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the objects of a file with the paths by which errors name them; those of a List by themselves."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    for place, document in enumerate(documents):
        path: Path = ("documents", place) if len(documents) > 1 else ()
        manifest = read_mapping(document, path or ROOT, "a manifest with a pod template")
        if manifest.get("kind") == "List" and "items" in manifest:
            for number, item in enumerate(read_optional_list(manifest, "items", path)):
                where: Path = (*path, "items", number)
                found.append((where, read_mapping(item, where, "an object")))
        else:
            found.append((path, manifest))
    return found


def find_templates(manifests: Sequence[tuple[Path, Mapping[str, Any]]]) -> list[PodTemplate]:
    """Return the pod templates of all objects that make at least one pod. Raises InvalidProblemError."""
    found = [template for path, manifest in manifests for template in _find_in(path, manifest)]
    if not found:
        for path, manifest in manifests:
            if manifest.get("kind") in REFUSED_KINDS:
                kind = manifest["kind"]
                complain((*path, "kind"), f"must not be {kind}: {REFUSED_KINDS[kind]}")
        complain(ROOT, "must have a pod template: spec.containers of a Pod, or a template with them")
    total = sum(template.count for template in found)
    if not 1 <= total <= MOST_PODS:
        complain(ROOT, f"must ask for 1 to {MOST_PODS} pods, not {total}")
    return [template for template in found if template.count]


def _find_in(path: Path, manifest: Mapping[str, Any]) -> Iterator[PodTemplate]:
    kind = manifest.get("kind")
    if kind in REFUSED_KINDS:
        return
    meta = read_mapping(manifest.get("metadata") or {}, (*path, "metadata"), "an object")
    name = _read_name(meta, (*path, "metadata"))
    namespace = _read_text(meta, "namespace", DEFAULT_KUBERNETES_NAMESPACE, (*path, "metadata"))
    labels = _find_added_labels(kind, name)
    first = _read_first(manifest, path)
    for found, pod in _search(_Found(path, manifest, ())):
        pod_meta = _read_meta(pod.get("metadata"), found.path, labels)
        made = {"metadata": pod_meta, "spec": pod["spec"]}
        counts = [_read_count(*step) for step in found.way]
        count = math.prod(counts)
        yield PodTemplate(
            found.path,
            str(kind or ""),
            name,
            namespace,
            count,
            made,
            _read_claims(found.way),
            first,
            max(1, math.prod(counts[:-1])),
            manifest,
            found.path[len(path) :],
        )
        first += count


def _search(root: _Found) -> Iterator[tuple[_Found, Mapping[str, Any]]]:
    """Yield where pods are, and each as a pod with a spec."""
    waiting = [root]
    while waiting:
        found = waiting.pop()
        path, value, way = found
        if isinstance(value, list):
            waiting += reversed([_Found((*path, place), part, way) for place, part in enumerate(value)])
        elif isinstance(value, Mapping):
            if _is_pod(value):
                yield found, value
                continue
            members = [(str(name), part) for name, part in value.items() if name not in _OTHER_PARTS]
            steps = [
                _Found((*path, name), {"spec": part} if name == "podSpec" else part, (*way, _Step(path, value, name)))
                for name, part in members
            ]
            waiting += reversed(steps)


def _is_pod(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and "containers" in spec


def _read_count(path: Path, owner: Mapping[str, Any], member: str) -> int:
    """Return how often a member of an object is there at a time.

    A Job has no more pods than its completions, a group of Ray workers is within its bounds.
    """
    count = 1
    least = _read_if_whole(owner, "minReplicas", path)
    replicas = _read_if_whole(owner, "replicas", path)
    if replicas is not None or least is not None:
        most = _read_if_whole(owner, "maxReplicas", path)
        count = max(replicas or 0, least or 0)
        count = count if most is None else min(count, most)
    if (parallel := _read_if_whole(owner, "parallelism", path)) is not None:
        ends = _read_if_whole(owner, "completions", path)
        count *= parallel if ends is None else min(parallel, ends)
    for field in FACTORS:
        count *= 1 if (factor := _read_if_whole(owner, field, path)) is None else factor
    return count * _read_group_size(owner, path) if member == "workerTemplate" else count


def _read_claims(way: Sequence[_Step]) -> tuple[Mapping[str, Any], ...]:
    """Return the templates of claims that stand nearest to a pod."""
    for path, owner, _ in reversed(way):
        if owner.get(CLAIM_TEMPLATES) is not None:
            parts = enumerate(read_optional_list(owner, CLAIM_TEMPLATES, path))
            return tuple(read_mapping(part, (*path, CLAIM_TEMPLATES, place), "a claim") for place, part in parts)
    return ()


def _read_group_size(owner: Mapping[str, Any], path: Path) -> int:
    """Return how many workers a group of a LeaderWorkerSet has; its size counts the leader too."""
    size = _read_if_whole(owner, "size", path)
    return max(0, (1 if size is None else size) - (1 if owner.get("leaderTemplate") is not None else 0))


def _read_if_whole(owner: Mapping[str, Any], field: str, path: Path) -> int | None:
    return None if owner.get(field) is None else read_whole(owner[field], (*path, field), 0, MOST_PODS)


def _read_first(manifest: Mapping[str, Any], path: Path) -> int:
    """Return the number of the first pod, which a StatefulSet may choose."""
    spec = manifest.get("spec")
    ordinals = spec.get("ordinals") if isinstance(spec, Mapping) else None
    if not isinstance(ordinals, Mapping):
        return 0
    return _read_if_whole(ordinals, "start", (*path, "spec", "ordinals")) or 0


def _read_name(meta: Mapping[str, object], path: Path) -> str:
    if meta.get("generateName") is not None and meta.get("name") is None:
        return read_text(meta["generateName"], (*path, "generateName")).rstrip("-")
    return _read_text(meta, "name", DEFAULT_NAME, path)


def _read_text(meta: Mapping[str, object], field: str, default: str, path: Path) -> str:
    return read_text(meta[field], (*path, field)) if meta.get(field) is not None else default


def _read_meta(value: object, path: Path, added: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a pod: what is there for other ends than its creation is left out."""
    where: Path = (*path, "metadata")
    meta = read_mapping(value if value is not None else {}, where, "an object")
    labels = read_mapping(meta.get("labels") or {}, (*where, "labels"), "an object of texts")
    annotations = meta.get("annotations")
    kept = {"annotations": annotations} if isinstance(annotations, Mapping) else {}
    return {"labels": {**labels, **added}, **kept}


def _find_added_labels(kind: object, name: str) -> dict[str, str]:
    """Return the labels that a controller of Kubernetes adds to all pods of an object."""
    if kind in {"Deployment", "ReplicaSet"}:
        return {TEMPLATE_HASH: REVISION}
    return dict.fromkeys(JOB_NAMES, name) if kind in {"Job", "CronJob"} else {}
