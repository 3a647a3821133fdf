"""What a pod's spec says about where it may go, and what it says that we do not honour yet.

Honoured: nodeSelector, node affinity, tolerations, host ports, pod affinity and anti-affinity, spread constraints, each
of them hard or soft, and what needs a declared feature of the node. What is not honoured is never placed wrongly: a pod
with a disk of a cloud, a device claim or a gang waits, with a reason that names what it is. So does a pod whose
constraints cost too much (`budget`).
Which nodes reach its volumes is not in the spec: the cache adds it (`add_volumes`), and which of its images some node
has (`set_images`).

A host port is a `ExclusiveKeys` key per (protocol, port). A port on all addresses conflicts with the same port on any
address, a port on one address only with the same address or with all; see `_make_exclusive_keys`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.budget import (
    MAX_PLACED_HOST_PORTS,
    Excess,
    take_preferred_terms,
    take_repelling_terms,
)
from fairbind.cluster.objects.declared_features import find_needed_features
from fairbind.cluster.objects.facts import (
    Constraints,
    Interner,
    Namespaces,
    PodTerm,
    PodTerms,
    SpreadTerm,
    Toleration,
    WeightedTerm,
)
from fairbind.cluster.objects.image_facts import NO_IMAGES, ImageUse
from fairbind.cluster.objects.pins import split_pin
from fairbind.cluster.objects.selectors import LabelSelector, NodeTerm, Requirement, make_label_selector, make_term
from fairbind.cluster.objects.volume_facts import ANYWHERE, MAX_CLAIMS, VolumeTopology
from fairbind.model import NO_EXCLUSIVE_KEYS, ExclusiveKeys, Rejection, RejectionKind

_ConstraintsKey = tuple[
    tuple[tuple[str, str], ...],
    tuple[NodeTerm, ...] | None,
    tuple[tuple[int, NodeTerm], ...],
    tuple[Toleration, ...],
    ExclusiveKeys,
    VolumeTopology,
    ImageUse,
    tuple[str, ...],
]
_WrittenTolerations = tuple[tuple[str | None, str | None, str | None, str | None], ...]
"""(key, operator, value, effect) of each."""
_TermKey = tuple[str, tuple[str, ...], LabelSelector | None, LabelSelector, tuple[Namespaces, ...]]
_PodTermsKey = tuple[
    tuple[PodTerm, ...],
    tuple[PodTerm, ...],
    tuple[SpreadTerm, ...],
    tuple[WeightedTerm, ...],
    tuple[SpreadTerm, ...],
    tuple[WeightedTerm, ...],
]

MAX_SHARED_PLAIN = 256
"""So many constraints without terms and host ports are remembered as they are written."""

HARD_AFFINITY_WORTH = 1
"""What a pod is worth to those that its required affinity selects: `hardPodAffinityWeight` of kube-scheduler."""

_NOTHING = LabelSelector((Requirement("", "In"),))
"""Selects no pod, as the selector of a term does that has none."""

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
_get_disks = attrgetter(*(attribute for attribute, _ in _DISKS))
_NO_DISKS = (None,) * len(_DISKS)


_CONSTRAINTS: Interner[_ConstraintsKey, Constraints] = Interner(lambda key: Constraints(*key))
_TERMS: Interner[_TermKey, PodTerm] = Interner(lambda key: PodTerm(*key))
_POD_TERMS: Interner[_PodTermsKey, PodTerms] = Interner(lambda key: PodTerms(*key))


def make_constraints(spec: wire.PodSpec) -> Constraints:
    """Return the shared constraints of this spec, which must be within the budget, but for what `find_pin` names."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    selector = tuple(spec.node_selector.items()) if spec.node_selector else ()
    tolerations = tuple([(each.key, each.operator, each.value, each.effect) for each in spec.tolerations or ()])
    ports, features = _find_host_ports(spec), find_needed_features(spec)
    if affinity is None and not ports:
        return _make_plain(selector, tolerations, features)
    required, _ = split_pin(_make_required(affinity) if affinity is not None else None)
    return share_constraints(
        selector=tuple(sorted(selector)),
        required=required,
        preferred=_make_preferred(affinity) if affinity is not None else (),
        tolerations=_make_tolerations(tolerations),
        exclusive_keys=_make_exclusive_keys(ports),
        features=features,
    )


@lru_cache(maxsize=MAX_SHARED_PLAIN)
def _make_plain(
    selector: tuple[tuple[str, str], ...], tolerations: _WrittenTolerations, features: tuple[str, ...]
) -> Constraints:
    """Return the constraints of a pod without node affinity and host ports, as most are."""
    return share_constraints(
        selector=tuple(sorted(selector)), tolerations=_make_tolerations(tolerations), features=features
    )


def share_constraints(
    *,
    selector: tuple[tuple[str, str], ...] = (),
    required: tuple[NodeTerm, ...] | None = None,
    preferred: tuple[tuple[int, NodeTerm], ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    exclusive_keys: ExclusiveKeys = NO_EXCLUSIVE_KEYS,
    volumes: VolumeTopology = ANYWHERE,
    images: ImageUse = NO_IMAGES,
    features: tuple[str, ...] = (),
) -> Constraints:
    """Return the one object of constraints that say this."""
    key = selector, required, preferred, tolerations, exclusive_keys, volumes, images, features
    return _CONSTRAINTS.get(key)


def add_volumes(constraints: Constraints, volumes: VolumeTopology) -> Constraints:
    """Return constraints that hold a pod to the nodes that reach its volumes, too; the same when all of them do."""
    return constraints if volumes == constraints.volumes else _share(replace(constraints, volumes=volumes))


def set_images(constraints: Constraints, images: ImageUse) -> Constraints:
    """Return constraints with these images in the place of theirs; the same when they have them."""
    return constraints if images == constraints.images else _share(replace(constraints, images=images))


def _share(constraints: Constraints) -> Constraints:
    """Return the one object that says the same."""
    return share_constraints(
        selector=constraints.selector,
        required=constraints.required,
        preferred=constraints.preferred,
        tolerations=constraints.tolerations,
        exclusive_keys=constraints.exclusive_keys,
        volumes=constraints.volumes,
        images=constraints.images,
        features=constraints.features,
    )


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
    preferred_terms = affinity.preferred_during_scheduling_ignored_during_execution or ()
    terms = (
        (preferred.weight, make_term(preferred.preference))
        for preferred in preferred_terms
        if preferred.preference and preferred.weight
    )
    return tuple(sorted(term for term in terms if term[1].labels or term[1].fields))


def _make_tolerations(written: _WrittenTolerations) -> tuple[Toleration, ...]:
    made = {
        Toleration(key or "", operator or "Equal", value or "", effect or "")
        for key, operator, value, effect in written
    }
    return tuple(sorted(made))


def _find_host_ports(spec: wire.PodSpec) -> tuple[tuple[str, str, int], ...]:
    """Return (protocol, address, port) of containers and sidecars; other init containers are gone when it matters."""
    lists = [container.ports for container in spec.containers or () if container.ports]
    if spec.init_containers:
        lists.extend(c.ports for c in spec.init_containers if c.restart_policy == "Always" and c.ports)
    found: set[tuple[str, str, int]] = set()
    for port in chain.from_iterable(lists):
        if port.host_port:
            address = "" if (port.host_ip or "") in _ANY_ADDRESS else port.host_ip or ""
            found.add((port.protocol or "TCP", address, port.host_port))
    return tuple(sorted(found)) if found else ()


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


FEATURES = frozenset(
    _reject(feature)
    for feature in (
        "resource claims",
        "gang scheduling",
        f"more than {MAX_CLAIMS} volumes with claims",
        *(f"{kind} volumes" for _, kind in _DISKS),
    )
)
"""What `find_unsupported` finds: not honoured here, and honoured by another scheduler that places the pod."""


def reject_excess(excess: Excess) -> tuple[Rejection, str]:
    """Return why a pod above the budget waits, as (reason, with its own count)."""
    return _reject(excess.kind), excess.detail


def find_unsupported(spec: wire.PodSpec) -> tuple[Rejection, str] | None:
    """Return what the spec carries that is not honoured yet, as (reason, the very thing), or None."""
    if spec.volumes and (unsupported := _find_unsupported_volumes(spec.volumes)) is not None:
        return unsupported
    if spec.resource_claims:
        return _reject("resource claims"), f"resource claim {spec.resource_claims[0].name!r}"
    if spec.workload_ref is not None:
        return _reject("gang scheduling"), "gang scheduling (workloadRef)"
    return None


def _find_unsupported_volumes(volumes: list[wire.Volume]) -> tuple[Rejection, str] | None:
    claims = 0
    for volume in volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            claims += 1
            continue
        disks = _get_disks(volume)
        if disks == _NO_DISKS:
            continue
        for disk, (_, kind) in zip(disks, _DISKS, strict=True):
            if disk is not None:
                return _reject(f"{kind} volumes"), f"{kind} volume {volume.name!r}"
    if claims > MAX_CLAIMS:
        return _reject(f"more than {MAX_CLAIMS} volumes with claims"), f"{claims:,} volumes with claims"
    return None


def find_repelling_terms(spec: wire.PodSpec, namespace: str) -> tuple[PodTerm, ...]:
    """Return the required anti-affinity of a pod, as far as the budget of placed pods goes: it keeps others away."""
    anti = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    if anti is None or not anti.required_during_scheduling_ignored_during_execution:
        return ()
    terms = take_repelling_terms(anti.required_during_scheduling_ignored_during_execution)
    return tuple(_read_term(term, namespace) for term in terms)


def find_pod_terms(spec: wire.PodSpec, namespace: str, labels: Mapping[str, str]) -> PodTerms | None:
    """Return what a pod requires and would like about other pods; None: nothing. What it requires is in the budget."""
    if spec.affinity is None and not spec.topology_spread_constraints:
        return None
    apart, together = find_repelling_terms(spec, namespace), _find_together(spec, namespace)
    preferred = _find_preferred(spec, namespace)
    likes, carries = _merge(preferred), _merge([*_find_worth(spec, namespace), *preferred])
    constraints = spec.topology_spread_constraints or ()
    spread, even = (
        tuple(
            _make_spread_term(constraint, namespace, labels)
            for constraint in constraints
            if (constraint.when_unsatisfiable == "ScheduleAnyway") == is_soft
        )
        for is_soft in (False, True)
    )
    if not any((apart, together, spread, likes, even, carries)):
        return None
    return _POD_TERMS.get((tuple(dict.fromkeys(apart)), together, tuple(dict.fromkeys(spread)), likes, even, carries))


def find_carried_terms(spec: wire.PodSpec, namespace: str) -> tuple[WeightedTerm, ...]:
    """Return what a pod is worth, once it is placed, to pods that its terms select, as far as the budget goes."""
    return _merge([*_find_worth(spec, namespace), *_find_preferred(spec, namespace)])


def _find_worth(spec: wire.PodSpec, namespace: str) -> list[WeightedTerm]:
    """Return what a placed pod is worth to those that its required affinity selects, as far as the budget goes."""
    affinity = spec.affinity.pod_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return [(HARD_AFFINITY_WORTH, _read_term(term, namespace)) for term in take_repelling_terms(required or ())]


def _find_preferred(spec: wire.PodSpec, namespace: str) -> list[WeightedTerm]:
    """Return preferred affinity, and preferred anti-affinity with weights below zero, as far as the budget goes."""
    affinity = spec.affinity
    if affinity is None:
        return []
    weighted = (
        (sign * preferred.weight, preferred.pod_affinity_term)
        for kind, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1))
        if kind is not None
        for preferred in kind.preferred_during_scheduling_ignored_during_execution or ()
    )
    return [(weight, _read_term(term, namespace)) for weight, term in take_preferred_terms(weighted)]


def _read_term(term: wire.PodAffinityTerm, namespace: str) -> PodTerm:
    return _make_pod_term(term, namespace, make_label_selector(term.label_selector) or _NOTHING)


def _merge(weighted: Iterable[WeightedTerm]) -> tuple[WeightedTerm, ...]:
    """Return each term once, with the sum of its weights; what sums up to nothing is left out."""
    sums: dict[PodTerm, int] = {}
    for weight, term in weighted:
        sums[term] = sums.get(term, 0) + weight
    return tuple((weight, term) for term, weight in sums.items() if weight)


def _find_together(spec: wire.PodSpec, namespace: str) -> tuple[PodTerm, ...]:
    """Return the required affinity: a pod counts for each term if all of them select it, so all select the same."""
    affinity = spec.affinity.pod_affinity if spec.affinity is not None else None
    terms = (affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None) or ()
    selectors = [make_label_selector(term.label_selector) or _NOTHING for term in terms]
    common = LabelSelector(tuple(sorted({each for selector in selectors for each in selector.requirements})))
    first, *others = sorted({_find_namespaces(term, namespace) for term in terms}, key=repr) or [((), None)]
    return tuple(dict.fromkeys(_TERMS.get((term.topology_key, *first, common, tuple(others))) for term in terms))


def _make_spread_term(constraint: wire.SpreadConstraint, namespace: str, labels: Mapping[str, str]) -> SpreadTerm:
    selector = make_label_selector(constraint.label_selector) or _NOTHING
    keys = (key for key in constraint.match_label_keys or () if key in labels)
    same = {Requirement(key, "In", (labels[key],)) for key in keys}
    requirements = tuple(sorted({*selector.requirements, *same}))
    # kube-scheduler counts no pod for a selector that is empty, although it selects all.
    selector = LabelSelector(requirements) if requirements else _NOTHING
    return SpreadTerm(
        _TERMS.get((constraint.topology_key, (namespace,), None, selector, ())),
        constraint.max_skew,
        constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def _make_pod_term(term: wire.PodAffinityTerm, namespace: str, labels: LabelSelector) -> PodTerm:
    return _TERMS.get((term.topology_key, *_find_namespaces(term, namespace), labels, ()))


def _find_namespaces(term: wire.PodAffinityTerm, namespace: str) -> Namespaces:
    if not term.namespaces and term.namespace_selector is None:
        return (namespace,), None
    return tuple(sorted(set(term.namespaces or ()))), make_label_selector(term.namespace_selector)
