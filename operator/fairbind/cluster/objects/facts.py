"""What the cache keeps of a pod, a node and a namespace: small, comparable, without the JSON's shape.

Ten thousand pods repeat few demands and few constraints, so these are shared objects: equal ones are the same object
as long as one is held (`Interner`), and may be compared by identity. Two facts about an object are equal when
nothing that a decision depends on differs, whatever else changed in the API (heartbeats, annotations, managed fields).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from fairbind.cluster.objects.device_claims import DeviceClaimUse
from fairbind.cluster.objects.group_marks import GroupMark
from fairbind.cluster.objects.image_facts import NO_IMAGES, ImageUse, NodeImages
from fairbind.cluster.objects.selectors import LabelSelector, NodeTerm
from fairbind.cluster.objects.volume_facts import ANYWHERE, ClaimUse, VolumeTopology
from fairbind.model import NO_EXCLUSIVE_KEYS, ExclusiveKeys, Rejection

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
FAIRBIND_GATE = "fairbind.io/turn"
"""The scheduling gate behind which pods of other schedulers wait to be decided."""
HOSTNAME = "kubernetes.io/hostname"
"""The label that tells nodes apart."""
MOST_HOSTS = 64
"""To so many nodes a pod is narrowed at most, by this label."""
BASE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Interner(Generic[Key, Value]):
    """Keeps one object a key for as long as it is used."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        self._make = make
        self._values: WeakValueDictionary[Key, Value] = WeakValueDictionary()

    def get(self, key: Key) -> Value:
        """Return the one object of this key."""
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make(key)
        return value


Amounts = tuple[tuple[str, int], ...]
"""(resource, base units) sorted by resource, without zeros."""


def join_amounts(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of both.

    >>> join_amounts((("cpu", 1), ("pods", 1)), (("cpu", 2),))
    (('cpu', 3), ('pods', 1))
    """
    total = dict(one)
    for resource, amount in other:
        total[resource] = total.get(resource, 0) + amount
    return tuple(sorted(total.items()))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Demand:
    """What a pod holds or asks for.

    real: its requests, and one of `pods`; what it takes of its node's allocatable. share: what counts in shares.
    claimed: the devices that it holds through claims, which are in `share` and take nothing of the allocatable.
    growth: what a deferred resize asks for beyond what is allocated. It is in `share`, and in `real` unless the pod's
    tenant is above its fair share (`cache.growths`).
    """

    real: Amounts
    share: Amounts
    claimed: Amounts = ()
    growth: Amounts = ()

    @property
    def held(self) -> Amounts:
        """All that it holds: its requests and its devices."""
        return join_amounts(self.real, self.claimed) if self.claimed else self.real


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """A toleration. Empty key with Exists: all keys. Empty effect: all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint does not matter to the pod. Operators that we do not know tolerate nothing."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in {"", "Equal"} and self.key != "" and self.value == taint.value


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A node's taint. effect: NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Constraints:
    """Which nodes a pod may and would like to use; equal ones are one object.

    selector: label pairs that a node must have. required: terms of which one must hold; None when there is no such
    term (no terms at all match nothing). preferred: (weight, term). exclusive_keys: host ports. volumes: which nodes
    reach its volumes. images: those that it would like to find on its node. features: those that its node must declare.
    """

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    exclusive_keys: ExclusiveKeys = NO_EXCLUSIVE_KEYS
    volumes: VolumeTopology = ANYWHERE
    images: ImageUse = NO_IMAGES
    features: tuple[str, ...] = ()


Namespaces = tuple[tuple[str, ...], LabelSelector | None]
"""Namespaces by name and, in addition, by label; None selects none."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PodTerm:
    """Pods that a term is about, and the label of nodes whose values are the topology domains.

    A pod may ask not to be in a domain with them, to be in one with them, or that domains have equally many of them.
    Equal ones are one object. namespaces: by name. namespace_selector: by label, in addition; None selects none.
    labels: which pods. also: further sets of namespaces, of which the pods' must be in each.
    """

    topology_key: str
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None
    labels: LabelSelector
    also: tuple[Namespaces, ...] = ()


WeightedTerm = tuple[int, PodTerm]
"""A term, and what each pod that it is about is worth in a domain; below zero: it is to be kept away from."""


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """A term that asks to be spread over domains.

    max_skew: a domain may have so many more of the pods than the one with the fewest. min_domains: with fewer domains
    the fewest is 0. honors_affinity, honors_taints: whether nodes count only if the pod's selector and node affinity
    allow them, and only if it tolerates their taints.
    """

    term: PodTerm
    max_skew: int
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PodTerms:
    """What a waiting pod requires and would like about other pods; equal ones are one object.

    apart: no such pod in its domain. together: one in its domain, for each term; all of them select the same pods.
    spread: so even the domains must stay.
    likes: what each such pod in its domain is worth to it, below zero to avoid it. even: where it would like few such
    pods. carries: see `PodFacts`. terms: all of them.
    """

    apart: tuple[PodTerm, ...]
    together: tuple[PodTerm, ...]
    spread: tuple[SpreadTerm, ...]
    likes: tuple[WeightedTerm, ...] = ()
    even: tuple[SpreadTerm, ...] = ()
    carries: tuple[WeightedTerm, ...] = ()
    terms: frozenset[PodTerm] = field(init=False)

    def __post_init__(self) -> None:
        """Gather the terms, which are asked for whenever a placed pod changes."""
        weighted = (term for _, term in (*self.likes, *self.carries))
        spread = (spread_term.term for spread_term in (*self.spread, *self.even))
        object.__setattr__(self, "terms", frozenset((*self.apart, *self.together, *spread, *weighted)))


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod: a Job, a ReplicaSet, a StatefulSet, in the pod's namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


class PodFacts(Struct, frozen=True, gc=False):
    """A pod. Its order of fields is of no importance.

    created: seconds since the epoch. node: where it is bound, or None. terminating: it is being deleted. finished: it
    ended and holds nothing. gated: it has scheduling gates. is_behind_our_gate: ours is the only one. unsupported: why
    it may not be placed at all (what it carries is not honoured yet, or cannot be read), or None; unsupported_detail
    names the very thing. constraints: of a pod above the budget only what is left of them (`budget`). pin: the name of
    the only node of those that they allow, kept only while it waits; None: all of them. repels: its required
    anti-affinity. carries: where pods that its terms select are liked, or not, once it is placed. labels: none when
    they are above the budget. pod_terms: what it requires and would like about other pods, kept only while it waits;
    None: nothing. generation: of its spec; 0: the API server counts none. scheduled_message: what its condition
    PodScheduled=False says, or None. scheduled_generation: of which generation it says so; 0: of none that it names.
    runs: its kubelet runs it. rejection: for what its kubelet refused it (resources, ports, node, other); None when it
    did not. start: when its kubelet took it, seconds since the epoch; `created` before that.
    group: to which group of pods it says that it belongs; None: to none. nominated_node: where free capacity is
    reserved for it until it is bound. owner: its controller, kept while it waits, and when it is a Job.
    claims: those of its volumes. images: those that it uses, kept only while it waits and may choose.
    device_claims: the ResourceClaims that it uses, kept only while it waits.
    most_seconds: for how long it holds something at most once its kubelet took it, by its `activeDeadlineSeconds`.
    succeeded: it has ended well.
    """

    uid: str
    namespace: str
    name: str
    version: str
    created: float
    priority: int
    scheduler: str
    node: str | None
    terminating: bool
    finished: bool
    gated: bool
    demand: Demand
    constraints: Constraints
    unsupported: Rejection | None
    unsupported_detail: str | None
    repels: tuple[PodTerm, ...]
    labels: tuple[tuple[str, str], ...]
    scheduled_message: str | None
    pin: str | None = None
    rejection: str | None = None
    start: float = 0.0
    group: GroupMark | None = None
    nominated_node: str | None = None
    owner: Owner | None = None
    pod_terms: PodTerms | None = None
    claims: tuple[ClaimUse, ...] = ()
    carries: tuple[WeightedTerm, ...] = ()
    is_behind_our_gate: bool = False
    images: ImageUse = NO_IMAGES
    runs: bool = False
    generation: int = 0
    scheduled_generation: int = 0
    device_claims: tuple[DeviceClaimUse, ...] = ()
    most_seconds: float = inf
    succeeded: bool = False

    @property
    def gated_by_others(self) -> bool:
        """Whether it has a scheduling gate that is not ours."""
        return self.gated and not self.is_behind_our_gate


class NodeFacts(Struct, frozen=True, gc=False):
    """A node. allocatable: never negative. fault: what could not be read. images: those that are on it.

    features: those that it declares and pods may need, sorted.
    """

    name: str
    version: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    ready: bool
    unschedulable: bool
    allocatable: Amounts
    fault: str | None = None
    images: NodeImages = ()
    features: tuple[str, ...] = ()


class NamespaceFacts(Struct, frozen=True, gc=False):
    """A namespace."""

    name: str
    version: str
    labels: tuple[tuple[str, str], ...]
