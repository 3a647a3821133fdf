"""What a pod's spec says about where it may go, and what it says that we do not honour yet.

Honoured: nodeSelector, node affinity (required and preferred), tolerations, host ports. Soft wishes about other pods
and about spreading are not read: without them a pod is placed, only less well. Hard ones are never placed wrongly: a
pod with required pod affinity or anti-affinity, a spread constraint that forbids scheduling, a claim of any kind (we
watch none, so we cannot tell which nodes can reach it) or a gang waits, with a reason that names what it is. So does a
pod whose constraints cost too much (`budget`).

A host port is a `ExclusiveKeys` key per (protocol, port). A port on all addresses conflicts with the same port on any
address, a port on one address only with the same address or with all; see `_make_exclusive_keys`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.budget import MAX_PLACED_HOST_PORTS, Excess, take_repelling_terms
from fairbind.cluster.objects.facts import AntiAffinityTerm, Constraints, Interner, Toleration
from fairbind.cluster.objects.pins import split_pin
from fairbind.cluster.objects.selectors import LabelSelector, NodeTerm, make_label_selector, make_term
from fairbind.model import NO_EXCLUSIVE_KEYS, ExclusiveKeys, Rejection, RejectionKind

_ConstraintsKey = tuple[
    tuple[tuple[str, str], ...],
    tuple[NodeTerm, ...] | None,
    tuple[tuple[int, NodeTerm], ...],
    tuple[Toleration, ...],
    ExclusiveKeys,
]
_TermKey = tuple[str, tuple[str, ...], LabelSelector | None, LabelSelector]

_ANY_ADDRESS = ("", "0.0.0.0")  # noqa: S104  nothing listens here
"""Addresses that mean all addresses. `::` is one like any other to kube-scheduler and to the kubelet: all of IPv6."""
_DISKS = (
    ("aws_elastic_block_store", "awsElasticBlockStore"),
    ("azure_disk", "azureDisk"),
    ("cinder", "cinder"),
    ("gce_persistent_disk", "gcePersistentDisk"),
    ("iscsi", "iscsi"),
    ("portworx_volume", "portworxVolume"),
    ("rbd", "rbd"),
    ("vsphere_volume", "vsphereVolume"),
)


_CONSTRAINTS: Interner[_ConstraintsKey, Constraints] = Interner(lambda key: Constraints(*key))
_TERMS: Interner[_TermKey, AntiAffinityTerm] = Interner(lambda key: AntiAffinityTerm(*key))


def make_constraints(spec: wire.PodSpec) -> Constraints:
    """Return the shared constraints of this spec, which must be within the budget, but for what `find_pin` names."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required, _ = split_pin(_make_required(affinity) if affinity is not None else None)
    return share_constraints(
        selector=tuple(sorted(spec.node_selector.items())) if spec.node_selector else (),
        required=required,
        preferred=_make_preferred(affinity) if affinity is not None else (),
        tolerations=tuple(sorted({_make_toleration(toleration) for toleration in spec.tolerations or ()})),
        exclusive_keys=_make_exclusive_keys(_find_host_ports(spec)),
    )


def share_constraints(
    *,
    selector: tuple[tuple[str, str], ...] = (),
    required: tuple[NodeTerm, ...] | None = None,
    preferred: tuple[tuple[int, NodeTerm], ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    exclusive_keys: ExclusiveKeys = NO_EXCLUSIVE_KEYS,
) -> Constraints:
    """Return the one object of constraints that say this."""
    return _CONSTRAINTS.get((selector, required, preferred, tolerations, exclusive_keys))


NO_CONSTRAINTS = share_constraints()


def make_placed_constraints(spec: wire.PodSpec) -> Constraints:
    """Return what is kept of the constraints of a placed pod that is above the budget: its host ports."""
    ports = _find_host_ports(spec)[:MAX_PLACED_HOST_PORTS]
    return share_constraints(exclusive_keys=_make_exclusive_keys(ports))


def find_pin(spec: wire.PodSpec) -> str | None:
    """Return the name of the one node that required affinity asks for in each of its terms, or None."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return split_pin(_make_required(affinity))[1] if affinity is not None else None


def _make_required(affinity: wire.NodeAffinity) -> tuple[NodeTerm, ...] | None:
    selector = affinity.required_during_scheduling_ignored_during_execution
    if selector is None:
        return None
    return tuple(sorted({make_term(term) for term in selector.node_selector_terms or ()}))


def _make_preferred(affinity: wire.NodeAffinity) -> tuple[tuple[int, NodeTerm], ...]:
    wishes = affinity.preferred_during_scheduling_ignored_during_execution or ()
    terms = ((wish.weight, make_term(wish.preference)) for wish in wishes if wish.preference and wish.weight)
    return tuple(sorted(term for term in terms if term[1].labels or term[1].fields))


def _make_toleration(toleration: wire.Toleration) -> Toleration:
    return Toleration(
        toleration.key or "", toleration.operator or "Equal", toleration.value or "", toleration.effect or ""
    )


def _find_host_ports(spec: wire.PodSpec) -> tuple[tuple[str, str, int], ...]:
    """Return (protocol, address, port) of containers and sidecars; other init containers are gone when it matters."""
    found: set[tuple[str, str, int]] = set()
    containers: Iterable[wire.Container] = spec.containers or ()
    if spec.init_containers:
        containers = (*containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    for container in containers:
        for port in container.ports or ():
            if port.host_port:
                address = "" if (port.host_ip or "") in _ANY_ADDRESS else port.host_ip or ""
                found.add((port.protocol or "TCP", address, port.host_port))
    return tuple(sorted(found))


def _make_exclusive_keys(ports: tuple[tuple[str, str, int], ...]) -> ExclusiveKeys:
    """Return the exclusive keys of host ports.

    Each pod takes "P/any". Who wants all addresses also takes "P/*" and conflicts with "P/any"; who wants one takes
    "P/ADDRESS" and conflicts with that and with "P/*".
    """
    if not ports:
        return NO_EXCLUSIVE_KEYS
    taken: set[str] = set()
    conflicting: set[str] = set()
    for protocol, address, port in ports:
        prefix = f"{protocol}:{port}"
        taken |= {f"{prefix}/any", f"{prefix}/{address or '*'}"}
        conflicting |= {f"{prefix}/{address}", f"{prefix}/*"} if address else {f"{prefix}/any"}
    return ExclusiveKeys(frozenset(taken), frozenset(conflicting))


@cache  # thousands of pods share one object; there are as many as texts below and limits in the budget
def _reject(feature: str) -> Rejection:
    return Rejection(RejectionKind.NOT_SUPPORTED, feature)


def reject_excess(excess: Excess) -> tuple[Rejection, str]:
    """Return why a pod above the budget waits, as (reason, with its own count)."""
    return _reject(excess.kind), excess.detail


def find_unsupported(spec: wire.PodSpec) -> tuple[Rejection, str] | None:
    """Return what the spec carries that is not honoured yet, as (reason, the very thing), or None."""
    affinity = spec.affinity
    if affinity is not None:
        for wishes, kind in (
            (affinity.pod_affinity, "pod affinity"),
            (affinity.pod_anti_affinity, "pod anti-affinity"),
        ):
            if wishes is not None and wishes.required_during_scheduling_ignored_during_execution:
                term = wishes.required_during_scheduling_ignored_during_execution[0]
                return _reject(f"required {kind}"), f"required {kind} over {term.topology_key!r}"
    for constraint in spec.topology_spread_constraints or ():
        if constraint.when_unsatisfiable != "ScheduleAnyway":
            kind = "topology spread with DoNotSchedule"
            return _reject(kind), f"{kind} over {constraint.topology_key!r}"
    for volume in spec.volumes or ():
        unsupported = _find_unsupported_volume(volume)
        if unsupported is not None:
            return unsupported
    if spec.resource_claims:
        return _reject("resource claims"), f"resource claim {spec.resource_claims[0].name!r}"
    if spec.scheduling_group is not None or spec.workload_ref is not None:
        return _reject("gang scheduling"), "gang scheduling (schedulingGroup or workloadRef)"
    return None


def _find_unsupported_volume(volume: wire.Volume) -> tuple[Rejection, str] | None:
    if volume.persistent_volume_claim is not None:
        claim = volume.persistent_volume_claim.claim_name
        return _reject("persistentVolumeClaim volumes"), f"volume {volume.name!r} with persistentVolumeClaim {claim!r}"
    if volume.ephemeral is not None:
        return _reject("ephemeral volumes"), f"ephemeral volume {volume.name!r}, which needs a persistentVolumeClaim"
    for attribute, kind in _DISKS:
        if getattr(volume, attribute) is not None:
            return _reject(f"{kind} volumes"), f"{kind} volume {volume.name!r}"
    return None


def find_repelling_terms(spec: wire.PodSpec, namespace: str) -> tuple[AntiAffinityTerm, ...]:
    """Return the required anti-affinity of a placed pod, as far as the budget goes: it keeps others away."""
    anti = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    if anti is None or not anti.required_during_scheduling_ignored_during_execution:
        return ()
    return tuple(
        _TERMS.get(
            (
                term.topology_key,
                _find_namespaces(term, namespace),
                make_label_selector(term.namespace_selector),
                _make_pod_selector(term.label_selector),
            )
        )
        for term in take_repelling_terms(anti.required_during_scheduling_ignored_during_execution)
    )


def _find_namespaces(term: wire.PodAffinityTerm, namespace: str) -> tuple[str, ...]:
    if not term.namespaces and term.namespace_selector is None:
        return (namespace,)
    return tuple(sorted(set(term.namespaces or ())))


def _make_pod_selector(selector: wire.LabelSelector | None) -> LabelSelector:
    return make_label_selector(selector) or LabelSelector()
