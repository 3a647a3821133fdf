"""The state of tenants: what each holds, how many of its pods run and wait.

A declared tenant has such state as long as it is declared. An implicit one (`ns/NAME`) has one as long as it has pods
that hold something or wait for us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from fairbind.cluster.objects.facts import Amounts, Constraints, PodFacts
from fairbind.cluster.state.holdings import BoundKind, FindPlacement, build_holdings, find_tenants_part
from fairbind.cluster.state.node_state import Axes, add_amounts, compute_vector
from fairbind.cluster.state.positions import Bound, Opened, Position
from fairbind.cluster.state.slots import WantedPods
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.derived import Derived, Given, Setting, Table
from fairbind.model import Placement, Tenant

_ZERO, _ONE = Fraction(0), Fraction(1)
_NEVER = float("inf")
_MANY_SUMS = 16_384
"""So many sums of amounts are remembered: pods of few kinds come and go on thousands of nodes."""


@dataclass(slots=True)
class TenantUsage:
    """One tenant's state. real: requests and devices. share: what counts in shares.

    nodes: how many of its pods are on each node. kinds: how many of its pods are of each kind. share_by_node: what
    counts in shares, node by node; equal ones are the same object as a rule. share_by_class: by the class of targets.
    All these are of pods on nodes that count.
    since: when the tenant came, seconds since the epoch: its Tenant object, or the oldest pod that it has had since it
    has one. running: how many of its pods hold something, wherever. active_weight: its part of `Usage.active_weight`.
    """

    name: str
    weight: Fraction = _ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    is_declared: bool = False
    real: dict[str, int] = field(default_factory=dict)
    share: dict[str, int] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[BoundKind] = field(default_factory=Counter)
    share_by_node: dict[str, Amounts] = field(default_factory=dict)
    share_by_class: dict[int, dict[str, int]] = field(default_factory=dict)
    since: float = _NEVER
    running: int = 0
    waiting: int = 0
    gated: int = 0
    postponed: int = 0
    active_weight: Fraction = _ZERO

    @property
    def is_empty(self) -> bool:
        """Whether no pod counts in it."""
        return self.running == self.waiting == self.gated == self.postponed == 0


@dataclass(slots=True)
class Unplaced:
    """Pods that another scheduler will place, and what they ask for: they count in the share, and do not run."""

    pods: int = 0
    real: dict[str, int] = field(default_factory=dict)


class Usage:
    """What each tenant holds.

    A pod on a node that is not there, or that the operator was told to leave alone, holds nothing of what is shared. So
    it is in no share and no total until its node counts (`set_counting`).

    active_weight: the weights of all tenants that have pods that run or wait.
    _counting: the nodes that count. _unplaced: pods of other schedulers on no node. _form, _detailed_form: what tenants
    were asked for last. _known: which tenants there are.
    """

    def __init__(self, wanted: WantedPods) -> None:
        """wanted: is told of pods that count, too."""
        self._wanted = wanted
        self.by_name: dict[str, TenantUsage] = {}
        self.active_weight = _ZERO
        self._counting: set[str] = set()
        self._unplaced: dict[str, Bound | Opened] = {}
        self._specs: Mapping[str, TenantSpec] = {}
        self._known = Given()
        self._names = Derived(self._sort_names, of=(self._known,))
        self._class_of: Mapping[str, int] = {}
        self._classes = 0
        self._form = Setting[tuple[Axes, bool, Mapping[str, int], int]](((), False, {}, 0))
        self._tenants = Table(self._build_tenant, self.by_name.keys, of=(self._form,))
        self._detailed_form = Setting[tuple[Axes, int, Mapping[Constraints, Placement]]](((), 0, {}))
        self._detailed = Table(self._build_detailed_tenant, self.by_name.keys, of=(self._detailed_form,))

    def hold(self, name: str, node: str | None, kind: BoundKind, sign: int = 1) -> None:
        """Add a pod that holds something on a node, or take it away. node: None when it counts in the share only."""
        tenant_usage = self._get(name)
        tenant_usage.running += sign
        if node is None or node in self._counting:
            self._count(tenant_usage, node, kind, sign)
        self._follow_pods(tenant_usage)

    def note_unplaced(self, facts: PodFacts, position: Position | None, scheduler_name: str) -> None:
        """Follow a pod that was moved in the state. scheduler_name: whose pods run from the decision on."""
        is_held = isinstance(position, Opened) or (isinstance(position, Bound) and position.tenant is not None)
        if is_held and facts.node is None and facts.scheduler != scheduler_name:
            assert isinstance(position, Bound | Opened)
            self._unplaced[facts.uid] = position
        else:
            self._unplaced.pop(facts.uid, None)

    def forget_unplaced(self, uid: str) -> None:
        """Take a pod that is gone."""
        self._unplaced.pop(uid, None)

    def sum_unplaced(self) -> dict[str, Unplaced]:
        """Return by tenant what its state has of pods that are on no node."""
        sums: dict[str, Unplaced] = {}
        for position in self._unplaced.values():
            assert position.tenant is not None
            known = sums.setdefault(position.tenant, Unplaced())
            known.pods += 1
            if isinstance(position, Opened) or position.node in self._counting:
                add_amounts(known.real, position.demand.held)
        return sums

    def set_counting(self, node: str, pods: Iterable[tuple[str, BoundKind]], *, counts: bool) -> None:
        """Take whether what is held on a node counts. pods: the tenants' pods there."""
        if counts == (node in self._counting):
            return
        if counts:
            self._counting.add(node)
        else:
            self._counting.remove(node)
        for name, kind in pods:
            self._count(self.by_name[name], node, kind, 1 if counts else -1)

    def _count(self, tenant_usage: TenantUsage, node: str | None, kind: BoundKind, sign: int) -> None:
        """Count a pod in what its tenant holds, or take it away."""
        demand, _ = kind
        self._wanted.hold(tenant_usage.name, demand, sign)
        add_amounts(tenant_usage.real, demand.held, sign)
        add_amounts(tenant_usage.share, demand.share, sign)
        tenant_usage.kinds[kind] += sign
        if node is not None:
            tenant_usage.nodes[node] += sign
            tenant_usage.share_by_node[node] = _add(tenant_usage.share_by_node.get(node, ()), demand.share, sign)
            if self._classes:
                add_amounts(self._find_class(tenant_usage, node), demand.share, sign)
            if not tenant_usage.nodes[node]:
                del tenant_usage.nodes[node], tenant_usage.share_by_node[node]
        if not tenant_usage.kinds[kind]:
            del tenant_usage.kinds[kind]
        self._note_change(tenant_usage.name)

    def note_pod(self, name: str, created: float) -> None:
        """Take when one of an implicit tenant's pods was made; a declared tenant came with its object."""
        tenant_usage = self.by_name.get(name)
        if tenant_usage is not None and not tenant_usage.is_declared and created < tenant_usage.since:
            tenant_usage.since = created
            self._note_change(name)

    def wait(self, name: str, sign: int = 1) -> None:
        """Add a pod that waits to be decided, or take it away."""
        tenant_usage = self._get(name)
        tenant_usage.waiting += sign
        self._follow_pods(tenant_usage)

    def idle(self, name: str, sign: int = 1, *, gated: bool) -> None:
        """Add a pod that will wait to be decided later, or take it away."""
        tenant_usage = self._get(name)
        if gated:
            tenant_usage.gated += sign
        else:
            tenant_usage.postponed += sign
        self._follow_pods(tenant_usage)

    def declare(self, specs: Mapping[str, TenantSpec]) -> None:
        """Take the declared tenants."""
        if specs is self._specs:
            return
        for spec in specs.values():
            tenant_usage = self._get(spec.name)
            known = tenant_usage.is_declared, tenant_usage.weight, tenant_usage.resource_weights, tenant_usage.since
            declared = True, spec.weight, spec.resource_weights, spec.created
            if known != declared:
                tenant_usage.is_declared, tenant_usage.weight, tenant_usage.resource_weights, tenant_usage.since = (
                    declared
                )
                self._note_change(spec.name)
                self._follow_pods(tenant_usage)
        for tenant_usage in [a for a in self.by_name.values() if a.is_declared and a.name not in specs]:
            tenant_usage.is_declared = False
            self._note_change(tenant_usage.name)
            self._follow_pods(tenant_usage)
        self._specs = specs

    def set_classes(self, class_of: Mapping[str, int], count: int) -> None:
        """Take the classes by which it is told what tenants hold. count: of them; 0: it is not told."""
        if class_of is self._class_of or (count == self._classes and class_of == self._class_of):
            return
        self._class_of, self._classes = class_of, count
        for tenant_usage in self.by_name.values():
            tenant_usage.share_by_class.clear()
            for node, amounts in tenant_usage.share_by_node.items() if count else ():
                add_amounts(self._find_class(tenant_usage, node), amounts)

    def _find_class(self, tenant_usage: TenantUsage, node: str) -> dict[str, int]:
        """Return what a tenant holds on the class of a node, to be changed."""
        return tenant_usage.share_by_class.setdefault(self._class_of.get(node, self._classes), {})

    def build_tenants(self, axes: Axes, *, detailed: bool = False) -> tuple[Tenant, ...]:
        """Return all tenants by name; what did not change is the same object as before.

        detailed: with what they hold, task by task and server by server, for policies that ask for it.
        """
        self._form.set((axes, detailed, self._class_of, self._classes))
        self._tenants.refresh()
        return tuple(map(self._tenants.values.__getitem__, self._names.get()))

    def _sort_names(self) -> list[str]:
        """Return the names of all tenants."""
        return sorted(self.by_name)

    def _build_tenant(self, name: str) -> Tenant | None:
        """Return a tenant of the snapshot."""
        tenant_usage = self.by_name.get(name)
        if tenant_usage is None:
            return None
        axes, detailed, _, classes = self._form.value
        tenant = _make_tenant(tenant_usage, axes, classes)
        return _add_detail(tenant, tenant_usage, axes, lambda _: None, len(tenant_usage.kinds)) if detailed else tenant

    def build_detailed_tenants(self, axes: Axes, placements: Mapping[Constraints, Placement]) -> tuple[Tenant, ...]:
        """Return all tenants by name with what they hold; what did not change is the same object as before.

        placements: where tasks with these constraints could run; of others it is not told.
        """
        part = find_tenants_part(len(tenant_usage.kinds) for tenant_usage in self.by_name.values())
        self._detailed_form.set((axes, part, placements))
        self._detailed.refresh()
        return tuple(map(self._detailed.values.__getitem__, self._names.get()))

    def _build_detailed_tenant(self, name: str) -> Tenant | None:
        """Return a tenant with what it holds, as the exact mechanisms are told of it."""
        tenant_usage = self.by_name.get(name)
        if tenant_usage is None:
            return None
        axes, part, placements = self._detailed_form.value
        return _add_detail(_make_tenant(tenant_usage, axes), tenant_usage, axes, placements.get, part)

    def _get(self, name: str) -> TenantUsage:
        tenant_usage = self.by_name.get(name)
        if tenant_usage is None:
            tenant_usage = self.by_name[name] = TenantUsage(name)
            self._known.note_change()
            self._note_change(name)
        return tenant_usage

    def _note_change(self, name: str) -> None:
        self._tenants.note_change(name)
        self._detailed.note_change(name)

    def _follow_pods(self, tenant_usage: TenantUsage) -> None:
        """Bring the active weight up to date, and drop the state of an implicit tenant without pods."""
        is_active = tenant_usage.running or tenant_usage.waiting or tenant_usage.postponed
        weight = tenant_usage.weight if is_active else _ZERO
        if weight is not tenant_usage.active_weight:
            self.active_weight += weight - tenant_usage.active_weight
            tenant_usage.active_weight = weight
        if tenant_usage.is_empty and not tenant_usage.is_declared:
            del self.by_name[tenant_usage.name]
            self._known.note_change()
            self._note_change(tenant_usage.name)


def _make_tenant(tenant_usage: TenantUsage, axes: Axes, classes: int = 0) -> Tenant:
    """classes: of targets; 0: there are none."""
    allocated_r = compute_vector(tuple(tenant_usage.share.items()), axes)
    held_of = tenant_usage.share_by_class
    by_class = [
        compute_vector(tuple(held_of.get(place, {}).items()), axes) for place in range(classes + 1 if classes else 0)
    ]
    return Tenant(
        tenant_usage.name,
        tenant_usage.weight,
        tenant_usage.resource_weights,
        allocated_r,
        allocated_by_class=tuple(by_class),
        since=tenant_usage.since,
    )


def _add_detail(
    tenant: Tenant, tenant_usage: TenantUsage, axes: Axes, get_placement: FindPlacement, part: int
) -> Tenant:
    share_by_node = tenant_usage.share_by_node
    vector_of = {share: compute_vector(share, axes) for share in set(share_by_node.values())}
    return replace(
        tenant,
        holdings=build_holdings(tenant_usage.kinds, axes, get_placement, part),
        allocated_by_server={node: vector_of[share] for node, share in share_by_node.items()},
    )


@lru_cache(_MANY_SUMS)
def _add(total: Amounts, amounts: Amounts, sign: int) -> Amounts:
    """Return a sum or a difference; the nodes on which a tenant has the same share one object."""
    changed = dict(total)
    add_amounts(changed, amounts, sign)
    return tuple(sorted(changed.items()))
