"""From a manifest to the pods that it asks for: of anything that has a pod template, in any depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from fairbind.cluster.listed_objects import ListedObjects
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import format_time
from fairbind.cluster.objects.convert import UNREADABLE, convert_pod, parse_time
from fairbind.fairness.problems.fields import Path, show_path
from fairbind.model import InvalidProblemError
from fairbind.simulator.reading import complain, read_mapping, read_text, read_whole

ROOT: Final[Path] = ("manifest",)
"""How errors name the document itself."""
MOST_PODS: Final = 100_000
DEFAULT_NAME: Final = "submitted"
DEFAULT_KUBERNETES_NAMESPACE: Final = "default"
COUNTS: Final = ("replicas", "parallelism")
AMOUNTS: Final = ("requests", "limits")
SPEC_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(wire.PodSpec))


def make_pods(document: object, listed: ListedObjects) -> list[wire.Pod]:
    """Return the pods of a manifest, newer than all others. Raises InvalidProblemError."""
    manifest = read_mapping(document, ROOT, "a manifest with a pod template")
    if manifest.get("kind") == "DaemonSet":
        complain(("kind",), "must not be DaemonSet: its controller chooses the node of each pod itself")
    meta = read_mapping(manifest.get("metadata", {}), ("metadata",), "an object")
    name = _read_text(
        meta,
        "name",
        read_text(meta["generateName"], ("metadata", "generateName")).rstrip("-")
        if "generateName" in meta
        else DEFAULT_NAME,
    )
    namespace = _read_text(meta, "namespace", DEFAULT_KUBERNETES_NAMESPACE)
    created = format_time(max([listed.time, *(parse_time(pod.metadata.creation_timestamp) for pod in listed.pods)]) + 1)
    templates = list(_find_templates(manifest))
    if not templates:
        complain(ROOT, "must have a pod template: spec.containers of a Pod, or a template with them")
    taken = {pod.metadata.uid for pod in listed.pods}
    pods: list[wire.Pod] = []
    for path, template, count in templates:
        spec, labels = _read_template(template, path, listed.scheduler_name)
        for _ in range(count):
            uid = next(
                text
                for number in range(len(pods), len(pods) + len(taken) + 1)
                if (text := f"{namespace}/{name}-{number:06}") not in taken
            )
            own = wire.ObjectMeta(f"{name}-{len(pods)}", namespace, uid, creation_timestamp=created, labels=labels)
            pods.append(wire.Pod(metadata=own, spec=spec, status=wire.PodStatus(phase="Pending")))
    if not 1 <= len(pods) <= MOST_PODS:
        complain(ROOT, f"must ask for 1 to {MOST_PODS} pods, not {len(pods)}")
    _check_readable(pods[0], templates[0][0])
    return pods


def _find_templates(manifest: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any], int]]:
    """Yield the path, the template and the number of pods of each pod template."""
    if _has_containers(manifest):
        yield (), manifest, 1
        return
    waiting: list[tuple[Path, Any]] = [((), manifest)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed([((*path, place), part) for place, part in enumerate(value)])
        elif isinstance(value, Mapping):
            template = value.get("template")
            if isinstance(template, Mapping) and _has_containers(template):
                yield (*path, "template"), template, _count(value, path)
            else:
                waiting += reversed([((*path, str(name)), part) for name, part in value.items()])


def _has_containers(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and "containers" in spec


def _count(owner: Mapping[str, Any], path: Path) -> int:
    """Return how many pods run at a time: a Job has no more than its completions."""
    for field in COUNTS:
        if owner.get(field) is not None:
            count = read_whole(owner[field], (*path, field), 0, MOST_PODS)
            if field == "parallelism" and owner.get("completions") is not None:
                return min(count, read_whole(owner["completions"], (*path, "completions"), 0, MOST_PODS))
            return count
    return 1


def _read_template(
    template: Mapping[str, Any], path: Path, scheduler_name: str
) -> tuple[wire.PodSpec, dict[str, str] | None]:
    parts = {name: part for name, part in template["spec"].items() if name in SPEC_FIELDS}
    spec = _convert(_quote_amounts(parts), wire.PodSpec, (*path, "spec"))
    meta = template.get("metadata") or {}
    labels = meta.get("labels") if isinstance(meta, Mapping) else None
    return (
        msgspec.structs.replace(spec, node_name=None, scheduler_name=scheduler_name),
        None if labels is None else _convert(labels, dict[str, str], (*path, "metadata", "labels")),
    )


def _convert(value: object, wanted: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise InvalidProblemError(
            f"{show_path(path)}{where.removesuffix('`')}: {message[:1].lower()}{message[1:]}"
        ) from error


def _quote_amounts(value: Any, field: str = "") -> Any:
    """Return a spec with quantities as text: the API takes numbers, too, and YAML has them where quotes are missing."""
    if isinstance(value, Mapping):
        if field in AMOUNTS:
            return {name: str(part) if _is_number(part) else part for name, part in value.items()}
        return {name: _quote_amounts(part, name) for name, part in value.items()}
    return [_quote_amounts(part, field) for part in value] if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_text(meta: Mapping[str, object], field: str, default: str) -> str:
    return read_text(meta[field], ("metadata", field)) if meta.get(field) is not None else default


def _check_readable(pod: wire.Pod, path: Path) -> None:
    facts = convert_pod(pod)
    if facts.unsupported == UNREADABLE:
        complain(path, facts.unsupported_detail or "makes no sense")
