"""The state of tenants: what each holds, how many of its pods run and wait.

A declared tenant has such state as long as it is declared. An implicit one (`ns/NAME`), and a user of a tenant, has one
as long as it has pods that hold something or wait for us. Pods are counted in leaves, and in all inner tenants above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from fairbind.cluster.objects.facts import Amounts, Constraints, PodFacts
from fairbind.cluster.state.holdings import BoundKind, FindPlacement, build_holdings, find_parts
from fairbind.cluster.state.inner_tenants import InnerTenants
from fairbind.cluster.state.node_state import Axes, add_amounts, compute_vector
from fairbind.cluster.state.positions import Bound, Opened, Position
from fairbind.cluster.state.slots import WantedPods
from fairbind.cluster.state.tenant_limits import HeldAmounts, TenantLimits
from fairbind.cluster.state.tenant_usage import ONE, InnerName, InnerUsage, TenantUsage
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.derived import Derived, Given, Setting, Table
from fairbind.model import Placement, Tenant
from fairbind.model.hierarchy import BELOW_THE_ROOT, FLAT, Hierarchy, InnerTenant, Place

_MANY_SUMS = 16_384
"""So many sums of amounts are remembered: pods of few kinds come and go on thousands of nodes."""


@dataclass(slots=True)
class Unplaced:
    """Pods that another scheduler will place, and what they ask for: they count in the share, and do not run."""

    pods: int = 0
    real: dict[str, int] = field(default_factory=dict)


class _Leaves(NamedTuple):
    """The names of all leaves, sorted, and where those are that are somewhere special."""

    names: list[str]
    places: Mapping[str, Place]


class _Classes(NamedTuple):
    """The classes by which it is told what tenants hold. of_node: by name. size: how many; 0: it is not told."""

    of_node: Mapping[str, int]
    size: int


class Usage:
    """What each tenant holds.

    A pod on a node that is not there, or that the operator was told to leave alone, holds nothing of what is shared. So
    it is in no share and no total until its node counts (`set_counting`).

    limits: those of tenants. by_name: the leaves. inner: tenants above them.
    _counting: the nodes that count. _unplaced: pods of other schedulers on no node. _form, _detailed_form: what tenants
    were asked for last. _known: which tenants there are, and where.
    """

    def __init__(self, wanted: WantedPods, limits: TenantLimits) -> None:
        """wanted, limits: are told of pods that count, too."""
        self._wanted = wanted
        self.limits = limits
        self.by_name: dict[str, TenantUsage] = {}
        self.inner = InnerTenants()
        self._counting: set[str] = set()
        self._unplaced: dict[str, Bound | Opened] = {}
        self._specs: Mapping[str, TenantSpec] = {}
        self._known = Given()
        self._leaves = Derived(self._list_leaves, of=(self._known,))
        self._classes = _Classes({}, 0)
        self._form = Setting[tuple[Axes, bool, _Classes]](((), False, self._classes))
        self._tenants = Table[str | InnerName, Any](self._build_tenant, self._list_keys, of=(self._form,))
        self._detailed_form = Setting[tuple[Axes, tuple[int, Mapping[str, int]], Mapping[Constraints, Placement]]](
            ((), (0, {}), {})
        )
        self._detailed = Table(self._build_detailed_tenant, self.by_name.keys, of=(self._detailed_form,))

    def hold(self, name: str, node: str | None, kind: BoundKind, sign: int = 1) -> None:
        """Add a pod that holds something on a node, or take it away. node: None when it counts in the share only."""
        tenant_usage = self._get(name)
        for each in (tenant_usage, *tenant_usage.above):
            each.running += sign
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
        self.limits.count(tenant_usage.name, node, demand.held, sign)
        for each in (tenant_usage, *tenant_usage.above):
            add_amounts(each.real, demand.held, sign)
            add_amounts(each.share, demand.share, sign)
        tenant_usage.kinds[kind] += sign
        if node is not None:
            tenant_usage.nodes[node] += sign
            tenant_usage.share_by_node[node] = _add(tenant_usage.share_by_node.get(node, ()), demand.share, sign)
            tenant_usage.real_by_node[node] = _add(tenant_usage.real_by_node.get(node, ()), demand.held, sign)
            if self._classes.size:
                add_amounts(self._find_class(tenant_usage, node), demand.share, sign)
            if not tenant_usage.nodes[node]:
                del tenant_usage.nodes[node], tenant_usage.share_by_node[node], tenant_usage.real_by_node[node]
        if not tenant_usage.kinds[kind]:
            del tenant_usage.kinds[kind]
        self._note_change(tenant_usage.name)
        for inner in tenant_usage.above:
            self._tenants.note_change(inner.key)

    def note_pod(self, name: str, created: float) -> None:
        """Take when one of an implicit tenant's pods was made; a declared tenant came with its object."""
        tenant_usage = self.by_name.get(name)
        if tenant_usage is not None and not tenant_usage.is_declared and created < tenant_usage.since:
            tenant_usage.since = created
            self._note_change(name)

    def wait(self, name: str, sign: int = 1) -> None:
        """Add a pod that waits to be decided, or take it away."""
        tenant_usage = self._get(name)
        for each in (tenant_usage, *tenant_usage.above):
            each.waiting += sign
        self._follow_pods(tenant_usage)

    def idle(self, name: str, sign: int = 1, *, gated: bool) -> None:
        """Add a pod that will wait to be decided later, or take it away."""
        tenant_usage = self._get(name)
        for each in (tenant_usage, *tenant_usage.above):
            if gated:
                each.gated += sign
            else:
                each.postponed += sign
        self._follow_pods(tenant_usage)

    def declare(self, specs: Mapping[str, TenantSpec]) -> None:
        """Take the declared tenants."""
        if specs is self._specs:
            return
        known = dict(self.inner.by_name)
        self.inner.set_tenants(specs, self.by_name.values())
        for spec in specs.values():
            if self._has_leaf(spec):
                self._declare_leaf(spec)
        for tenant_usage in [a for a in self.by_name.values() if a.is_declared]:
            if tenant_usage.name not in specs or not self._has_leaf(specs[tenant_usage.name]):
                tenant_usage.is_declared = False
                self._note_change(tenant_usage.name)
                self._follow_pods(tenant_usage)
        for inner in (known | self.inner.by_name).values():
            self._tenants.note_change(inner.key)
        self._specs = specs

    def _has_leaf(self, spec: TenantSpec) -> bool:
        """Whether a Tenant has a leaf of its name: it has no other below it, or namespaces besides, whole."""
        has_namespaces = bool(spec.namespaces) or spec.selector is not None
        return spec.name not in self.inner.by_name or (has_namespaces and spec.users_label is None)

    def _declare_leaf(self, spec: TenantSpec) -> None:
        """Take a Tenant as a leaf. Below the inner tenant of its name its namespaces are one child of weight 1."""
        tenant_usage = self._get(spec.name)
        known = tenant_usage.is_declared, tenant_usage.weight, tenant_usage.resource_weights, tenant_usage.since
        declared = True, spec.weight, spec.resource_weights, spec.created
        if spec.name in self.inner.by_name:
            declared = True, ONE, {}, spec.created
        if known != declared:
            tenant_usage.is_declared, tenant_usage.weight, tenant_usage.resource_weights, tenant_usage.since = declared
            self._note_change(spec.name)
            self._follow_pods(tenant_usage)

    def note_places(self) -> None:
        """Note that tenants may be elsewhere in the tree, or that other guarantees are theirs."""
        self._known.note_change()
        for inner in self.inner.by_name.values():
            self._tenants.note_change(inner.key)

    def find_held(self, name: str) -> HeldAmounts | None:
        """Return what all below a tenant hold; None: there is none of the name."""
        known = self.inner.by_name.get(name) or self.by_name.get(name)
        if known is None:
            return None
        leaves = known.leaves.values() if isinstance(known, InnerUsage) else [known]
        return HeldAmounts(known.real, [leaf.real_by_node for leaf in leaves])

    def set_classes(self, class_of: Mapping[str, int], count: int) -> None:
        """Take the classes by which it is told what tenants hold. count: of them; 0: it is not told."""
        classes = _Classes(class_of, count)
        if class_of is self._classes.of_node or classes == self._classes:
            return
        self._classes = classes
        for tenant_usage in self.by_name.values():
            tenant_usage.share_by_class.clear()
            for node, amounts in tenant_usage.share_by_node.items() if count else ():
                add_amounts(self._find_class(tenant_usage, node), amounts)

    def _find_class(self, tenant_usage: TenantUsage, node: str) -> dict[str, int]:
        """Return what a tenant holds on the class of a node, to be changed."""
        return tenant_usage.share_by_class.setdefault(self._classes.of_node.get(node, self._classes.size), {})

    def build_tenants(self, axes: Axes, *, detailed: bool = False) -> tuple[Tenant, ...]:
        """Return all tenants by name; what did not change is the same object as before.

        detailed: with what they hold, task by task and server by server, for policies that ask for it.
        """
        self._form.set((axes, detailed, self._classes))
        self._tenants.refresh()
        return tuple(map(self._tenants.values.__getitem__, self._leaves.get().names))

    def build_hierarchy(self) -> Hierarchy:
        """Return the tree of the tenants that were built last."""
        places, inner = self._leaves.get().places, self.inner.by_name
        if not (places or inner):
            return FLAT
        return Hierarchy(places, {name: self._tenants.values[each.key] for name, each in inner.items()})

    def _list_leaves(self) -> _Leaves:
        """Return the names of all leaves, and where in the tree they are."""
        names = sorted(self.by_name)
        found = ((name, self.limits.find_place(name)) for name in names) if self.limits.has_places else ()
        return _Leaves(names, {name: place for name, place in found if place is not BELOW_THE_ROOT})

    def _list_keys(self) -> list[str | InnerName]:
        return [*self.by_name, *(each.key for each in self.inner.by_name.values())]

    def _build_tenant(self, key: str | InnerName) -> Tenant | InnerTenant | None:
        """Return a tenant of the snapshot."""
        axes, detailed, classes = self._form.value
        if isinstance(key, InnerName):
            return self._build_inner_tenant(key.name, axes)
        tenant_usage = self.by_name.get(key)
        if tenant_usage is None:
            return None
        tenant = _make_tenant(tenant_usage, axes, classes.size)
        return _add_detail(tenant, tenant_usage, axes, lambda _: None, len(tenant_usage.kinds)) if detailed else tenant

    def _build_inner_tenant(self, name: str, axes: Axes) -> InnerTenant | None:
        inner = self.inner.by_name.get(name)
        if inner is None:
            return None
        allocated_r = compute_vector(tuple(inner.share.items()), axes)
        tenant = Tenant(name, inner.weight, inner.resource_weights, allocated_r, since=inner.since)
        return InnerTenant(tenant, self.limits.find_place_of_inner(name))

    def build_detailed_tenants(self, axes: Axes, placements: Mapping[Constraints, Placement]) -> tuple[Tenant, ...]:
        """Return all tenants by name with what they hold; what did not change is the same object as before.

        placements: where tasks with these constraints could run; of others it is not told.
        """
        parts = find_parts({name: len(tenant_usage.kinds) for name, tenant_usage in self.by_name.items()})
        self._detailed_form.set((axes, parts, placements))
        self._detailed.refresh()
        return tuple(map(self._detailed.values.__getitem__, self._leaves.get().names))

    def _build_detailed_tenant(self, name: str) -> Tenant | None:
        """Return a tenant with what it holds, as the exact mechanisms are told of it."""
        tenant_usage = self.by_name.get(name)
        if tenant_usage is None:
            return None
        axes, (most, parts), placements = self._detailed_form.value
        part = parts.get(find_tenant_of_leaf(name), most)
        return _add_detail(_make_tenant(tenant_usage, axes), tenant_usage, axes, placements.get, part)

    def _get(self, name: str) -> TenantUsage:
        tenant_usage = self.by_name.get(name)
        if tenant_usage is None:
            tenant_usage = self.by_name[name] = TenantUsage(name)
            self.inner.enter(tenant_usage)
            self._known.note_change()
            self._note_change(name)
        return tenant_usage

    def _note_change(self, name: str) -> None:
        self._tenants.note_change(name)
        self._detailed.note_change(name)

    def _follow_pods(self, tenant_usage: TenantUsage) -> None:
        """Bring the active weights up to date, and drop the state of an implicit tenant without pods."""
        self.inner.follow_weights(tenant_usage)
        if tenant_usage.is_empty and not tenant_usage.is_declared:
            self.inner.leave(tenant_usage)
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
