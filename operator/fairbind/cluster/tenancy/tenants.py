"""Tenants as the cluster declares them, and whose namespace is whose.

A Tenant claims namespaces by name or by a selector over their labels. When two claim the same, the older object keeps
it (then the name decides, so that the answer never depends on the order in which we hear of them). A namespace that no
Tenant claims belongs to an implicit tenant of weight 1: to one of its own, called `ns/NAME`, or with the setting
`together` to the one of all such namespaces, called `ns/*`. No Tenant can have a name with a slash, and no namespace
can have one with a star.

System namespaces are different: unless a Tenant claims them by name, what runs there belongs to no tenant and reduces
what nodes can give to tenants. A selector never claims them, however wide it is. A pod there that asks for our
scheduler is still a task, of the implicit tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.selectors import LabelSelector, make_label_selector
from fairbind.cluster.tenancy.node_amounts import NodeAmounts, parse_node_amounts
from fairbind.cluster.tenancy.spec_fields import read_quantity, read_whole_number
from fairbind.cluster.tenancy.users import name_user
from fairbind.derived import Rotation
from fairbind.model import InvalidProblemError, Rejection, RejectionKind, Unclaimed

IMPLICIT_PREFIX = "ns/"
TOGETHER_NAME = "ns/*"
"""The tenant of all namespaces that no Tenant claims, where the policy puts them together."""
SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})
WEIGHTS = (Fraction(1, 1000), Fraction(1000))
"""The least and the largest weight."""
PRIORITIES = (-1000, 1000)
RUN_TIMES = (0, 2**31 - 1)
LENDING = {"Always": True, "Never": False}

_UNCLAIMED = Rejection(RejectionKind.UNCLAIMED)


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """A Tenant object. created: seconds since the epoch. selector: None selects nothing.

    limit: what it may hold at most. parent: the Tenant above it; None: the root. priority: among siblings. guarantee:
    what it gets before siblings that are above theirs. lends: whether others may use what it does not use of that.
    users_label: the label of pods that names the user, where users are children. is_deleted: the deletion has begun.
    """

    name: str
    uid: str = ""
    created: float = 0.0
    weight: Fraction = Fraction(1)
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()
    selector: LabelSelector | None = None
    generation: int = 0
    limit: tuple[NodeAmounts, ...] = ()
    parent: str | None = None
    priority: int = 0
    guarantee: tuple[NodeAmounts, ...] = ()
    lends: bool = True
    min_runtime_seconds: int = 0
    users_label: str | None = None
    is_deleted: bool = False


def parse_tenant(tenant_object: Mapping[str, Any]) -> TenantSpec:
    """Return what a Tenant object says; InvalidProblemError names the invalid field.

    The CRD's schema refuses most of what is refused here; objects that are older than the schema come through.
    """
    meta = tenant_object.get("metadata") or {}
    spec = tenant_object.get("spec") or {}
    if not isinstance(spec, Mapping) or not isinstance(meta, Mapping):
        raise InvalidProblemError("metadata and spec must be objects")
    return TenantSpec(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        created=_parse_created(meta.get("creationTimestamp")),
        weight=read_quantity(spec.get("weight", 1), "spec.weight", WEIGHTS),
        resource_weights=_parse_resource_weights(spec.get("resourceWeights")),
        namespaces=_parse_namespaces(spec.get("namespaces")),
        selector=_parse_selector(spec.get("namespaceSelector")),
        generation=int(meta.get("generation", 0)),
        limit=parse_node_amounts(spec.get("limit"), "spec.limit"),
        parent=_parse_parent(spec.get("parent"), meta.get("name")),
        priority=_read_whole_number(spec, "priority", PRIORITIES),
        guarantee=parse_node_amounts(spec.get("guarantee"), "spec.guarantee"),
        lends=_parse_lending(spec.get("lending")),
        min_runtime_seconds=_read_whole_number(spec, "minRuntimeSeconds", RUN_TIMES),
        users_label=_parse_users(spec.get("users")),
        is_deleted=meta.get("deletionTimestamp") is not None,
    )


def _read_whole_number(spec: Mapping[str, Any], name: str, limits: tuple[int, int]) -> int:
    value = spec.get(name)
    return 0 if value is None else read_whole_number(value, f"spec.{name}", limits)


def _parse_parent(value: object, own_name: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value or value == own_name:
        raise InvalidProblemError(f"spec.parent must be the name of another Tenant, not {value!r}")
    return value


def _parse_lending(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or value not in LENDING:
        raise InvalidProblemError(f"spec.lending must be {' or '.join(LENDING)}, not {value!r}")
    return LENDING[value]


def _parse_users(value: object) -> str | None:
    if value is None:
        return None
    label = value.get("label") if isinstance(value, Mapping) and value.keys() <= {"label"} else None
    if not isinstance(label, str) or not label:
        raise InvalidProblemError(f"spec.users must have the field label, the key of a label, not {value!r}")
    return label


def _parse_created(text: object) -> float:
    if not isinstance(text, str):
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _parse_resource_weights(value: object) -> Mapping[str, Fraction]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidProblemError(f"spec.resourceWeights must map resources to weights, not {value!r}")
    return {
        str(resource): read_quantity(weight, f"spec.resourceWeights[{resource}]", WEIGHTS)
        for resource, weight in value.items()
    }


def _parse_namespaces(value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidProblemError(f"spec.namespaces must be a list of names, not {value!r}")
    return frozenset(value)


def _parse_selector(value: object) -> LabelSelector | None:
    if value is None:
        return None
    try:
        selector = msgspec.convert(value, wire.LabelSelector)
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"spec.namespaceSelector cannot be read: {error}") from error
    return make_label_selector(selector)


@dataclass(frozen=True, slots=True)
class TenantState:
    """What only the whole picture shows about a declared tenant, for its conditions.

    conflicts: namespaces that it claims and an older Tenant keeps, with that one's name. missing: claimed by name, but
    not there. claims_nothing: the object says neither names nor a selector, and no other tenant is below it.
    unknown_resources: what its resourceWeights name and does not count for shares. generation: of the spec that this
    was made from. path: from the top of the tree. parent: the Tenant that it names. parent_trouble: reason and message
    where that one does not count. overcommitted: what siblings are promised together and the nodes do not have; None:
    it has no guarantee.
    """

    name: str
    conflicts: Mapping[str, str]
    missing: tuple[str, ...]
    claims_nothing: bool
    unknown_resources: tuple[str, ...]
    generation: int = 0
    path: str = ""
    parent: str | None = None
    parent_trouble: tuple[str, str] | None = None
    overcommitted: tuple[str, ...] | None = None


class _Answer(NamedTuple):
    """Whose a namespace is. owner: the declared tenant, if any. refusal: why no pod there may be placed, or None.

    users_label: the label that names the user of its pods, if the owner has users.
    """

    owner: str | None
    tenant: str
    refusal: Rejection | None
    users_label: str | None = None


class Directory:
    """Whose namespace is whose. Answers are remembered until `resolve` finds that they changed."""

    def __init__(self, system_namespaces: frozenset[str]) -> None:
        self._system = system_namespaces
        self._named: dict[str, list[TenantSpec]] = {}
        self._selecting: list[TenantSpec] = []
        self._specs: dict[str, TenantSpec] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._answers: dict[str, _Answer] = {}
        self._to_resolve = Rotation[str]()
        self._unclaimed = Unclaimed.TENANT
        self._states: tuple[frozenset[str], dict[str, TenantState]] | None = None
        self._claiming: dict[str, list[str]] | None = None
        self._tenants: dict[str, str] | None = None

    @property
    def specs(self) -> Mapping[str, TenantSpec]:
        """Declared tenants by name."""
        return self._specs

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of the namespaces that exist."""
        return self._labels

    def set_tenants(self, specs: Iterable[TenantSpec]) -> None:
        """Replace all declared tenants."""
        self._specs = {spec.name: spec for spec in specs}
        self._named = {}
        for spec in self._specs.values():
            for namespace in spec.namespaces:
                self._named.setdefault(namespace, []).append(spec)
        self._selecting = [spec for spec in self._specs.values() if spec.selector is not None]
        self._to_resolve.add(self._answers)
        self._forget_picture()

    def _forget_picture(self) -> None:
        self._states = self._claiming = self._tenants = None

    def set_unclaimed(self, unclaimed: Unclaimed) -> None:
        """Choose what happens to pods of namespaces that no Tenant claims."""
        if unclaimed != self._unclaimed:
            self._unclaimed = unclaimed
            self._to_resolve.add(self._answers)
            self._forget_picture()

    def set_labels(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Note a namespace's labels; None: it is gone."""
        if labels is None:
            self._labels.pop(namespace, None)
        else:
            self._labels[namespace] = labels
        self._to_resolve.add([namespace])
        self._forget_picture()

    def owner_of(self, namespace: str) -> str | None:
        """Return the declared tenant that has this namespace, or None. As of the last `resolve`, or now if unknown."""
        return self._answer(namespace).owner

    def tenant_of(self, namespace: str) -> str:
        """Return the tenant that has this namespace, declared or implicit; as of the same time."""
        return self._answer(namespace).tenant

    def leaf_of(self, namespace: str, labels: Iterable[tuple[str, str]]) -> str:
        """Return the leaf that holds a pod: the tenant of its namespace, or a user of that; as of the same time."""
        answer = self._answer(namespace)
        return answer.tenant if answer.users_label is None else name_user(answer.tenant, answer.users_label, labels)

    def find_refusal(self, namespace: str) -> Rejection | None:
        """Return why no pod of this namespace may be placed, or None; as of the same time."""
        return self._answer(namespace).refusal

    def _answer(self, namespace: str) -> _Answer:
        answer = self._answers.get(namespace)
        if answer is None:
            answer = self._answers[namespace] = self._find_answer(namespace)
        return answer

    def is_of_cluster(self, namespace: str) -> bool:
        """Tell whether a namespace is the cluster's or the operator's own, also if a Tenant claims it."""
        return namespace in self._system

    def is_system(self, namespace: str) -> bool:
        """Whether what runs there belongs to no tenant."""
        return namespace in self._system and self.owner_of(namespace) is None

    def resolve(self) -> list[str]:
        """Bring all answers up to date and return the namespaces whose pods may belong elsewhere now."""
        known = [namespace for namespace in self._to_resolve.take_all() if namespace in self._answers]
        now = {namespace: self._find_answer(namespace) for namespace in known}
        changed = sorted(namespace for namespace, answer in now.items() if answer != self._answers[namespace])
        self._answers.update(now)
        return changed

    def forget(self, namespace: str) -> None:
        """Drop the remembered answer of a namespace that has no pods any more."""
        if namespace not in self._labels:
            self._answers.pop(namespace, None)

    def compute_states(self, counting: frozenset[str]) -> dict[str, TenantState]:
        """Return every declared tenant's state, by name; the same object as before when nothing changed.

        counting: the resources that count for shares. Asked twice a second.
        """
        if self._states is None or self._states[0] != counting:
            self._states = counting, self._compute_states(counting)
        return self._states[1]

    def _compute_states(self, counting: frozenset[str]) -> dict[str, TenantState]:
        conflicts = self._compute_conflicts()
        return {
            name: TenantState(
                name=name,
                conflicts=conflicts[name],
                missing=tuple(sorted(spec.namespaces - self._labels.keys())),
                claims_nothing=not spec.namespaces and spec.selector is None,
                unknown_resources=tuple(sorted(spec.resource_weights.keys() - counting)),
                generation=spec.generation,
            )
            for name, spec in sorted(self._specs.items())
        }

    def find_tenants(self) -> Mapping[str, str]:
        """Return the tenant of every namespace that exists and belongs to one; the same object while nothing changes.

        A system namespace that no Tenant claims belongs to none.
        """
        if self._tenants is None:
            claiming, unclaimed = self._find_all_claiming(), self._unclaimed
            self._tenants = {}
            for namespace in self._labels:
                if claiming[namespace]:
                    self._tenants[namespace] = claiming[namespace][0]
                elif namespace not in self._system:
                    self._tenants[namespace] = _name_implicit(namespace, unclaimed)
        return self._tenants

    def copy(self) -> Directory:
        """Return a directory with the same tenants and namespaces that remembers no answer."""
        copy = Directory(self._system)
        copy.set_tenants(self._specs.values())
        copy.set_unclaimed(self._unclaimed)
        for namespace, labels in self._labels.items():
            copy.set_labels(namespace, labels)
        return copy

    def _compute_conflicts(self) -> dict[str, dict[str, str]]:
        conflicts: dict[str, dict[str, str]] = {name: {} for name in self._specs}
        for namespace, claiming in self._find_all_claiming().items():
            for younger in claiming[1:]:
                conflicts[younger][namespace] = claiming[0]
        return conflicts

    def _find_all_claiming(self) -> Mapping[str, list[str]]:
        """Return which Tenants claim each namespace that exists or is claimed by name; kept until something changes."""
        if self._claiming is None:
            namespaces = sorted(self._named.keys() | self._labels.keys())
            self._claiming = {namespace: self._find_claiming(namespace) for namespace in namespaces}
        return self._claiming

    def _find_answer(self, namespace: str) -> _Answer:
        owner = next(iter(self._find_claiming(namespace)), None)
        if owner is not None:
            return _Answer(owner, owner, None, self._specs[owner].users_label)
        refusal = _UNCLAIMED if self._unclaimed == Unclaimed.REFUSE else None
        return _Answer(None, _name_implicit(namespace, self._unclaimed), refusal)

    def _find_claiming(self, namespace: str) -> list[str]:
        """Return the names of all Tenants that claim a namespace, the one that has it first."""
        claiming = {spec.name: spec for spec in self._named.get(namespace, ())}
        if self._selecting and namespace not in self._system and namespace in self._labels:
            labels = self._labels[namespace]
            for spec in self._selecting:
                if spec.selector is not None and spec.selector.is_met_by(labels):
                    claiming[spec.name] = spec
        return [spec.name for spec in sorted(claiming.values(), key=lambda spec: (spec.created, spec.name))]


def _name_implicit(namespace: str, unclaimed: Unclaimed) -> str:
    return TOGETHER_NAME if unclaimed == Unclaimed.TOGETHER else IMPLICIT_PREFIX + namespace
