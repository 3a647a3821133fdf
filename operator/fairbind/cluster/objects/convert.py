"""From Kubernetes' shape to facts. Kubernetes' JSON ends here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from functools import lru_cache
from math import inf
from typing import TypeVar

from fairbind.cluster.objects import group_wire, wire
from fairbind.cluster.objects.budget import MAX_LABELS, Excess, find_excess
from fairbind.cluster.objects.constraints import (
    NO_CONSTRAINTS,
    find_carried_terms,
    find_pin,
    find_pod_terms,
    find_repelling_terms,
    find_unsupported,
    make_constraints,
    make_placed_constraints,
    reject_excess,
)
from fairbind.cluster.objects.declared_features import keep_needed
from fairbind.cluster.objects.device_claims import find_device_claims
from fairbind.cluster.objects.facts import FAIRBIND_GATE, Amounts, NamespaceFacts, NodeFacts, Owner, PodFacts, Taint
from fairbind.cluster.objects.group_facts import PodGroupFacts, convert_member_group, convert_native
from fairbind.cluster.objects.group_marks import GroupFormat, find_foreign_group, find_group_fault, find_mark
from fairbind.cluster.objects.image_facts import NO_IMAGES, convert_images, find_images
from fairbind.cluster.objects.requests import MAX_RESOURCES, DemandReader, compute_demand, keep_first
from fairbind.cluster.objects.volume_facts import find_claims
from fairbind.model import MAX_AMOUNT, Rejection, RejectionKind

DEFAULT_SCHEDULER = "default-scheduler"
UNREADABLE = Rejection(RejectionKind.UNREADABLE)
TOO_MANY_OFFERED = f"status.allocatable: more than {MAX_RESOURCES} resources; the first ones by name count"
TOO_MANY_RESOURCES = Rejection(RejectionKind.NOT_SUPPORTED, f"requests for more than {MAX_RESOURCES} resources")
MAX_SHARED_MESSAGES = 4096
MAX_SHARED_NAMES = 32_768
MAX_SHARED_VALUES = 1_024
"""Labels and amounts of nodes, and lists of them: few kinds, of which thousands of objects are."""

MAX_SHARED_TIMES = 4_096
"""Times have whole seconds, and thousands of pods begin in one."""

DEFAULT_GRACE_SECONDS = 30
"""Time to end for a pod that names none."""

Labels = tuple[tuple[str, str], ...]
Value = TypeVar("Value", bound=Hashable)

SUCCEEDED = "Succeeded"
FINISHED_PHASES = frozenset({SUCCEEDED, "Failed"})
_REJECTIONS = {
    "NodePorts": "ports",
    **dict.fromkeys(("NodeAffinity", "NodeName", "NodeUnschedulable", "TaintToleration"), "node"),
    **dict.fromkeys(("InvalidNodeInfo", "TopologyAffinityError", "UnexpectedAdmissionError"), "other"),
}


def parse_time(text: str | None) -> float:
    """Return seconds since the epoch; 0 for what is no time."""
    return _parse_time(text) if text else 0.0


@lru_cache(maxsize=MAX_SHARED_TIMES)
def _parse_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _sort_labels(labels: wire.Labels | None, name: str = "") -> Labels:
    """Return labels as facts have them. name: of the object, which one of its labels may say again."""
    if not labels:
        return ()
    return tuple(sorted((_share_name(k), name) if v == name else _share_label((k, v)) for k, v in labels.items()))


def _make_sharing() -> Callable[[Value], Value]:
    """Return a function that gives one object for equal values, as long as there are not too many of them."""

    @lru_cache(maxsize=MAX_SHARED_VALUES)
    def share(value: Value) -> Value:
        return value

    return share


_share_label: Callable[[tuple[str, str]], tuple[str, str]] = _make_sharing()
_share_amount: Callable[[tuple[str, int]], tuple[str, int]] = _make_sharing()
_share_amounts: Callable[[Amounts], Amounts] = _make_sharing()


@lru_cache(maxsize=MAX_SHARED_VALUES)
def _share_labels(written: Labels) -> Labels:
    """Return one object for labels of pods that are written in the same order, as the API server does: sorted."""
    return _sort_labels(dict(written))


@lru_cache(maxsize=MAX_SHARED_VALUES)
def _make_taint(key: str, value: str, effect: str) -> Taint:
    return Taint(key, value, effect)


def convert_pod(pod: wire.Pod) -> PodFacts:
    """Return what matters of a pod. One that could not be read in full carries its fault as unsupported."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    demand, nonsense, is_over = compute_demand(pod)
    excess = find_excess(spec, meta.labels)
    unsupported = _find_unsupported(pod) if excess is None else reject_excess(excess)
    if is_over:
        unsupported = TOO_MANY_RESOURCES, TOO_MANY_RESOURCES.subject
    fault = pod.fault or nonsense or find_group_fault(meta.annotations)
    if fault is not None:
        unsupported = (UNREADABLE, f"a field that makes no sense: {fault}")
    node = spec.node_name or None
    if excess is None:
        constraints = make_constraints(spec)
    else:
        constraints = make_placed_constraints(spec) if node else NO_CONSTRAINTS
    pod_terms = find_pod_terms(spec, meta.namespace, meta.labels or {}) if node is None and excess is None else None
    if pod_terms is not None:
        carries = pod_terms.carries
    else:
        carries = find_carried_terms(spec, meta.namespace) if spec.affinity is not None else ()
    created = parse_time(meta.creation_timestamp)
    pin = find_pin(spec) if node is None and excess is None else None
    scheduled_message, scheduled_generation = _find_scheduled(status)
    owner = _find_owner(meta)
    return PodFacts(
        uid=meta.uid,
        namespace=_share_name(meta.namespace),
        name=meta.name,
        version=meta.resource_version,
        created=created,
        priority=spec.priority or 0,
        scheduler=_share_name(spec.scheduler_name or DEFAULT_SCHEDULER),
        node=_share_name(node) if node else None,
        terminating=meta.deletion_timestamp is not None,
        finished=status.phase in FINISHED_PHASES,
        succeeded=status.phase == SUCCEEDED,
        gated=bool(spec.scheduling_gates),
        is_behind_our_gate=[gate.name for gate in spec.scheduling_gates or ()] == [FAIRBIND_GATE],
        demand=demand,
        constraints=constraints,
        pin=pin,
        unsupported=unsupported[0] if unsupported else None,
        unsupported_detail=unsupported[1] if unsupported else None,
        repels=find_repelling_terms(spec, meta.namespace),
        labels=_share_labels(tuple(meta.labels.items())) if meta.labels and _keeps_labels(meta, excess, node) else (),
        scheduled_message=scheduled_message,
        rejection=_find_rejection(status),
        start=parse_time(status.start_time) or created,
        group=find_mark(pod, (owner.name, owner.kind) if owner is not None else (meta.name, "Pod")),
        nominated_node=status.nominated_node_name or None,
        owner=owner if not node or (owner is not None and owner.kind == "Job") else None,
        pod_terms=pod_terms,
        claims=find_claims(meta.name, spec.volumes) if spec.volumes else (),
        carries=carries,
        images=find_images(spec) if node is None and excess is None and pin is None else NO_IMAGES,
        runs=status.phase == "Running",
        generation=meta.generation or 0,
        scheduled_generation=scheduled_generation,
        device_claims=find_device_claims(spec, status) if spec.resource_claims and node is None else (),
        most_seconds=_find_most_seconds(spec),
    )


def _find_most_seconds(spec: wire.PodSpec) -> float:
    """Return for how long a pod holds something at most: until its kubelet ends it, and what it is given to end."""
    if not spec.active_deadline_seconds:
        return inf
    grace = spec.termination_grace_period_seconds
    return float(spec.active_deadline_seconds + (DEFAULT_GRACE_SECONDS if grace is None else max(grace, 0)))


def _find_unsupported(pod: wire.Pod) -> tuple[Rejection, str] | None:
    """Return what a pod carries that is not honoured yet; who places the pods that wait to be decided honours it."""
    spec, foreign = pod.spec, find_foreign_group(pod.metadata.annotations)
    if foreign is not None:
        return Rejection(RejectionKind.NOT_SUPPORTED, foreign), foreign
    if spec.scheduling_gates and any(gate.name == FAIRBIND_GATE for gate in spec.scheduling_gates):
        return None
    return find_unsupported(spec)


def _keeps_labels(meta: wire.ObjectMeta, excess: Excess | None, node: str | None) -> bool:
    """Whether other pods may ask for the labels: a pod that is placed counts, unless its labels are too many."""
    return excess is None or (node is not None and len(meta.labels or ()) <= MAX_LABELS)


@lru_cache(maxsize=MAX_SHARED_NAMES)
def _share_name(name: str) -> str:
    """Return one object for equal names of namespaces, nodes, schedulers and resources, which thousands of pods carry.

    The clients that create pods write most of them. So they are not interned either, see `_share`.
    """
    return name


@lru_cache(maxsize=MAX_SHARED_MESSAGES)
def _share(message: str) -> str:
    """Return one object for equal messages, which thousands of pods carry.

    They are not interned: numbers in them change for ever, and newer Pythons never let go of what is interned.
    """
    return message


@lru_cache(maxsize=MAX_SHARED_MESSAGES)
def _make_owner(api_version: str, kind: str, name: str, uid: str) -> Owner:
    """Return one object for equal owners: a Job's thousand pods have the same."""
    return Owner(api_version, kind, name, uid)


def _find_owner(meta: wire.ObjectMeta) -> Owner | None:
    for reference in meta.owner_references or ():
        if reference.controller:
            return _make_owner(reference.api_version, reference.kind, reference.name, reference.uid)
    return None


def _find_scheduled(status: wire.PodStatus) -> tuple[str | None, int]:
    """Return what the condition PodScheduled=False says and of which generation; (None, 0): there is none."""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            if condition.status != "False":
                break
            return _share(condition.message or ""), condition.observed_generation or 0
    return None, 0


def _find_rejection(status: wire.PodStatus) -> str | None:
    if status.phase != "Failed" or status.reason is None:
        return None
    return "resources" if status.reason.startswith("OutOf") else _REJECTIONS.get(status.reason)


def convert_node(node: wire.Node) -> NodeFacts:
    """Return what matters of a node. Amounts that are absent, negative or nonsense count as none.

    Device plugins name resources as they like. Beyond `MAX_RESOURCES` those count that every node has, then the first
    by name, so that all replicas choose the same.
    """
    reader = DemandReader()
    allocatable = reader.read(node.status.allocatable, "status.allocatable")
    too_many = TOO_MANY_OFFERED if len(allocatable) > MAX_RESOURCES else None
    if too_many is not None:
        allocatable = keep_first(dict(sorted(allocatable.items())), MAX_RESOURCES)
    amounts = (_share_amount((resource, min(amount, MAX_AMOUNT))) for resource, amount in allocatable.items())
    return NodeFacts(
        name=node.metadata.name,
        version=node.metadata.resource_version,
        labels=_sort_labels(node.metadata.labels, node.metadata.name),
        taints=tuple(_make_taint(taint.key, taint.value or "", taint.effect) for taint in node.spec.taints or ()),
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ()),
        unschedulable=bool(node.spec.unschedulable),
        allocatable=_share_amounts(tuple(sorted(amounts))),
        fault=node.fault or reader.fault or too_many,
        images=convert_images(node.status.images or ()),
        features=keep_needed(node.status.declared_features or ()),
    )


def convert_namespace(namespace: wire.Namespace) -> NamespaceFacts:
    """Return what matters of a namespace."""
    meta = namespace.metadata
    return NamespaceFacts(meta.name, meta.resource_version, _sort_labels(meta.labels))


def convert_pod_group(group: group_wire.NativePodGroup) -> PodGroupFacts:
    """Return what matters of a PodGroup of Kubernetes."""
    return convert_native(group, parse_time(group.metadata.creation_timestamp))


def convert_coscheduling_group(group: group_wire.MemberPodGroup) -> PodGroupFacts:
    """Return what matters of a PodGroup of `scheduling.x-k8s.io`."""
    return convert_member_group(group, GroupFormat.COSCHEDULING, parse_time(group.metadata.creation_timestamp))


def convert_volcano_group(group: group_wire.MemberPodGroup) -> PodGroupFacts:
    """Return what matters of a PodGroup of Volcano."""
    return convert_member_group(group, GroupFormat.VOLCANO, parse_time(group.metadata.creation_timestamp))
