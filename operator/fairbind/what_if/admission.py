"""What an API server makes of a pod that is created, as far as a snapshot says it.

Defaults that every API server adds: host ports of pods with the node's network, the pod's labels in terms that name
keys, requests where only limits are. Then what objects of the cluster add: defaults and bounds of LimitRanges,
overhead, selector and tolerations of a RuntimeClass, and the number of a PriorityClass. Webhooks, admission policies
and quotas are not known here; a dry run asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from fairbind.cluster.objects import admission_wire, manifest_wire, wire
from fairbind.cluster.objects.captured import LIMIT_RANGES, PRIORITY_CLASSES, RUNTIME_CLASSES
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.cluster.objects.requests import compute_demand
from fairbind.what_if.listed_objects import ListedObjects

CONTAINER: Final = "Container"
POD: Final = "Pod"
UNASKED: Final = "admission webhooks, admission policies and ResourceQuotas"
UNKNOWN: Final[Mapping[str, str]] = {
    LIMIT_RANGES: "defaults and bounds of LimitRanges",
    RUNTIME_CLASSES: "overhead and node selector of the RuntimeClass",
    PRIORITY_CLASSES: "the number of the PriorityClass",
}
"""What is not applied where the objects of a kind are not known."""


class PodRefusedError(Exception):
    """The API server would not create the pod; says why, in its words."""


def complete(spec: manifest_wire.PodSpec, labels: Mapping[str, str]) -> None:
    """Add to a spec what each API server adds to a pod with these labels."""
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    if spec.host_network:
        for port in [port for container in containers for port in container.ports or ()]:
            port.host_port = port.host_port or port.container_port
    for container in containers:
        _request_limits(container)
    for term in _list_pod_terms(spec.affinity):
        _select_own_labels(term, labels)
    if spec.resources is not None:
        requested = {name for one in containers if one.resources for name in one.resources.requests or ()}
        limits = {name: text for name, text in (spec.resources.limits or {}).items() if name not in requested}
        spec.resources.requests = {**limits, **(spec.resources.requests or {})}


def admit(spec: manifest_wire.PodSpec, namespace: str, listed: ListedObjects) -> list[str]:
    """Add to a completed spec what objects of the cluster add; return what could not be applied.

    Raises PodRefusedError.
    """
    left_out = [UNASKED]
    if LIMIT_RANGES not in listed.admission:
        left_out.append(UNKNOWN[LIMIT_RANGES])
    _apply_limit_ranges(spec, [one for one in _list(listed, LIMIT_RANGES) if one.metadata.namespace == namespace])
    if spec.runtime_class_name:
        if RUNTIME_CLASSES in listed.admission:
            _apply_runtime_class(spec, _find(listed, RUNTIME_CLASSES, spec.runtime_class_name, "RuntimeClass"))
        else:
            left_out.append(f"{UNKNOWN[RUNTIME_CLASSES]} {spec.runtime_class_name}")
    if PRIORITY_CLASSES in listed.admission:
        _apply_priority(spec, listed)
    elif spec.priority_class_name:
        left_out.append(f"{UNKNOWN[PRIORITY_CLASSES]} {spec.priority_class_name}")
    return left_out


def _list(listed: ListedObjects, kind: str) -> list[Any]:
    return sorted(listed.admission.get(kind, ()), key=lambda one: one.metadata.name)


def _find(listed: ListedObjects, kind: str, name: str, what: str) -> Any:
    for one in listed.admission[kind]:
        if one.metadata.name == name:
            return one
    raise PodRefusedError(f'{what} "{name}" not found')


# --- defaults of every API server ---


def _request_limits(container: wire.Container) -> None:
    """Let a container request what it limits where it says no request."""
    if container.resources is not None and container.resources.limits:
        requests = {**container.resources.limits, **(container.resources.requests or {})}
        container.resources = wire.Resources(requests, container.resources.limits)


def _list_pod_terms(affinity: manifest_wire.Affinity | None) -> Iterator[manifest_wire.PodAffinityTerm]:
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if part is not None:
            yield from part.required_during_scheduling_ignored_during_execution or ()
            for preferred in part.preferred_during_scheduling_ignored_during_execution or ():
                yield preferred.pod_affinity_term


def _select_own_labels(term: manifest_wire.PodAffinityTerm, labels: Mapping[str, str]) -> None:
    """Add to a term's selector the values of the pod's own labels that the term names by their keys."""
    pairs = (("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys))
    added = [
        wire.SelectorRequirement(key, operator, [labels[key]])
        for operator, keys in pairs
        for key in keys or ()
        if key in labels
    ]
    if added and term.label_selector is not None:
        expressions = [*(term.label_selector.match_expressions or ()), *added]
        term.label_selector = wire.LabelSelector(term.label_selector.match_labels, expressions)


# --- LimitRanges ---


def _apply_limit_ranges(spec: manifest_wire.PodSpec, ranges: Sequence[admission_wire.LimitRange]) -> None:
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    items = [item for one in ranges for item in one.spec.limits or ()]
    for item in items:
        if item.type == CONTAINER:
            limits = {**(item.max or {}), **(item.default or {})}
            requests = {**(item.min or {}), **limits, **(item.default_request or {})}
            for container in containers:
                written = container.resources or wire.Resources()
                container.resources = wire.Resources(
                    {**requests, **(written.requests or {})}, {**limits, **(written.limits or {})}
                )
    for item in items:
        if item.type == CONTAINER:
            for container in containers:
                resources = container.resources or wire.Resources()
                asked, bound = _read_amounts(resources.requests), _read_amounts(resources.limits)
                _check_requests(asked, bound)
                _check_bounds(item, asked, bound)
        elif item.type == POD:
            limited = [msgspec.structs.replace(one, resources=_take_limits(one)) for one in containers]
            count = len(spec.containers or ())
            limiting = msgspec.structs.replace(spec, containers=limited[:count], init_containers=limited[count:])
            _check_bounds(item, _sum(spec), _sum(limiting))


def _take_limits(container: wire.Container) -> wire.Resources | None:
    return wire.Resources(container.resources.limits) if container.resources is not None else None


def _sum(spec: wire.PodSpec) -> dict[str, int]:
    """Return the requests of a whole pod, in base units, without the overhead of its runtime."""
    return dict(compute_demand(wire.Pod(spec=msgspec.structs.replace(spec, overhead=None))).demand.real)


def _read_amounts(amounts: wire.Amounts | None) -> dict[str, int]:
    """Return amounts in base units; what cannot be read is refused where the pod is read."""
    read = {}
    for resource, text in (amounts or {}).items():
        try:
            read[resource] = to_base_units(resource, text)
        except QuantityError:
            continue
    return read


def _check_requests(requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
    for resource in sorted(requests.keys() & limits.keys()):
        if requests[resource] > limits[resource]:
            raise PodRefusedError(f"request for {resource} must be less than or equal to the limit")


def _check_bounds(item: admission_wire.LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
    for resource, least in _read_amounts(item.min).items():
        told = f"minimum {resource} usage per {item.type} is {(item.min or {})[resource]}"
        if resource not in requests:
            raise PodRefusedError(f"{told}. No request is specified")
        if min(requests[resource], limits.get(resource, least)) < least:
            raise PodRefusedError(f"{told}, which is more than is asked for")
    for resource, most in _read_amounts(item.max).items():
        told = f"maximum {resource} usage per {item.type} is {(item.max or {})[resource]}"
        if resource not in limits:
            raise PodRefusedError(f"{told}. No limit is specified")
        if max(limits[resource], requests.get(resource, 0)) > most:
            raise PodRefusedError(f"{told}, which is less than is asked for")


# --- RuntimeClass and PriorityClass ---


def _apply_runtime_class(spec: manifest_wire.PodSpec, runtime: admission_wire.RuntimeClass) -> None:
    if runtime.overhead is not None:
        fixed = runtime.overhead.pod_fixed or {}
        if spec.overhead and _read_amounts(spec.overhead) != _read_amounts(fixed):
            raise PodRefusedError(f'pod\'s overhead differs from that of RuntimeClass "{runtime.metadata.name}"')
        spec.overhead = dict(fixed)
    if runtime.scheduling is not None:
        selector, own = runtime.scheduling.node_selector or {}, spec.node_selector or {}
        for key in sorted(selector.keys() & own.keys()):
            if selector[key] != own[key]:
                raise PodRefusedError(f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {selector[key]}")
        spec.node_selector = {**own, **selector} or None
        tolerations = spec.tolerations or []
        added = [one for one in runtime.scheduling.tolerations or () if one not in tolerations]
        spec.tolerations = [*tolerations, *added] or None


def _apply_priority(spec: manifest_wire.PodSpec, listed: ListedObjects) -> None:
    """Resolve the name of a priority, or the default one; a number in the manifest stays, to try one."""
    if spec.priority_class_name:
        found = _find(listed, PRIORITY_CLASSES, spec.priority_class_name, "PriorityClass")
    else:
        found = _find_default(_list(listed, PRIORITY_CLASSES))
    if spec.priority is None and found is not None:
        spec.priority = found.value


def _find_default(classes: Iterable[admission_wire.PriorityClass]) -> admission_wire.PriorityClass | None:
    """Return the default class; of several the one with the least value."""
    return min((one for one in classes if one.global_default), key=lambda one: one.value, default=None)
