"""Limits and guarantees of tenants: what counts towards them, the rules that follow, and where tenants are in the tree.

Pods count that are bound or on their way, by any scheduler, in the tenant or below it. A pod that
another scheduler is to place, and has not yet, counts towards each limit and guarantee above it: it may get any node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.selectors import LabelSelector
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.tenancy.guarantees import GuaranteeOf, ScaledGuarantees, scale_guarantees
from fairbind.cluster.tenancy.node_amounts import NodeAmounts, sum_up
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.tree import NO_TREE, TenantTree
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.derived import Watch
from fairbind.model import NO_DOMAIN, DomainCounter, Domains, LimitRule, Rejection, RejectionKind
from fairbind.model.hierarchy import BELOW_THE_ROOT, Guarantee, Place
from fairbind.model.servers import sum_exactly
from fairbind.model.topology import LimitOf

MANY_RULES = 1_024
"""So many rules of one limit are shared, one for each amount that pods ask for; with more they are made again."""


class HeldAmounts(NamedTuple):
    """What a tenant holds: in all, and node by node of each of its leaves; the rest is on no node yet."""

    real: Mapping[str, int]
    by_node: Sequence[Mapping[str, Amounts]]


class TenantRules(NamedTuple):
    """What limits and guarantees say to a class: its rules, and what it brings to which counter."""

    limits: tuple[LimitRule, ...] = ()
    brings: tuple[tuple[Hashable, int], ...] = ()


class LimitChanges(NamedTuple):
    """What is other than before. tenants: those of whose pods the rules are other ones. has_moved: see `find_place`."""

    tenants: frozenset[str]
    has_moved: bool

    def list_leaves(self, leaves: Iterable[str]) -> list[str]:
        """Return those of some leaves of whose pods the rules are other ones."""
        return [leaf for leaf in leaves if find_tenant_of_leaf(leaf) in self.tenants] if self.tenants else []


NO_TENANT_RULES = TenantRules()
NO_CHANGES = LimitChanges(frozenset(), has_moved=False)


class _Nodes(NamedTuple):
    """The nodes that an entry is about. members: their names; None: all. domains: they are one, the others none."""

    domains: Domains
    members: frozenset[str] | None


_Known = dict[LabelSelector | None, _Nodes]


@dataclass(slots=True, eq=False)
class _Entry:
    """One entry of a tenant's list. subject_of: by resource. held: what counts, by each of these, base units."""

    amounts: NodeAmounts
    nodes: _Nodes
    subject_of: Mapping[str, Hashable]
    held: dict[str, int] = field(default_factory=dict)

    def sum_up(self, held: HeldAmounts | None) -> None:
        """Take all that the tenant holds; what it holds on other nodes does not count."""
        self.held = dict.fromkeys(self.subject_of, 0)
        if held is None:
            return
        self.count(held.real.items(), 1)
        for by_node in held.by_node if self.nodes.members is not None else ():
            for node, amounts in by_node.items():
                if not self.is_about(node):
                    self.count(amounts, -1)

    def is_about(self, node: str | None) -> bool:
        """Whether what is held on a node counts. node: None: on none yet."""
        return node is None or self.nodes.members is None or node in self.nodes.members

    def count(self, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Count amounts, or take them away."""
        for resource, amount in amounts:
            if resource in self.held:
                self.held[resource] += sign * amount


EntryT = TypeVar("EntryT", bound=_Entry)


@dataclass(slots=True, eq=False)
class _Limit(_Entry):
    """Counters are by resource, rules by resource and what a pod asks for."""

    tenant: str = ""
    counters: dict[str, DomainCounter] = field(default_factory=dict)
    rules: dict[tuple[str, int], LimitRule] = field(default_factory=dict)

    def find_rule(self, resource: str, most: int, amount: int) -> LimitRule:
        """Return the rule for pods that ask for so much; the same object while it says the same."""
        rule = self.rules.get((resource, amount))
        if rule is None:
            counter = self.counters.get(resource)
            if counter is None:
                counter = DomainCounter(self.subject_of[resource], self.nodes.domains, np.zeros(1, np.int64))
                self.counters[resource] = counter
            if len(self.rules) >= MANY_RULES:
                self.rules.clear()
            rejection = Rejection(RejectionKind.AT_LIMIT, f"{resource} of tenant {self.tenant}")
            rule = self.rules[resource, amount] = LimitRule(counter, amount, np.array([most], np.int64), rejection)
        return rule


@dataclass(slots=True, eq=False)
class _Promise(_Entry):
    """An entry of what is guaranteed. given: what counts of it, by resource."""

    given: dict[str, Guarantee] = field(default_factory=dict)

    def give(self, amount_of: Mapping[GuaranteeOf, int]) -> tuple[Guarantee, ...]:
        """Take how much of it counts, and return that; nothing is left out."""
        before, self.given = self.given, {}
        for resource, subject in self.subject_of.items():
            assert isinstance(subject, GuaranteeOf)
            amount, known = amount_of.get(subject, 0), before.get(resource)
            if known is not None and known.amount == amount:
                self.given[resource] = known
            elif amount:
                self.given[resource] = Guarantee(subject, resource, amount, self.nodes.domains)
        return tuple(self.given.values())


class _Own(NamedTuple):
    """What a Tenant says itself."""

    limits: tuple[_Limit, ...]
    promises: tuple[_Promise, ...]


_NOTHING = _Own((), ())


class TenantLimits:
    """See the module.

    scaled: what counts of the guarantees. _own: by tenant that has any. _path: of each tenant below which, or in which,
    something is limited or guaranteed, the entries of all above, its own first. _places: of declared tenants.
    _below: of leaves that are below an inner tenant and are no declared tenant. _watched: whether nodes changed,
    and whether their capacity did.
    """

    def __init__(self, eligibility: Eligibility, servers: Servers) -> None:
        self._eligibility = eligibility
        self._servers = servers
        self._watched = Watch(eligibility.nodes), Watch(servers.arrays.capacity)
        self._specs: Mapping[str, TenantSpec] = {}
        self._tree = NO_TREE
        self._own: dict[str, _Own] = {}
        self._path: dict[str, tuple[_Entry, ...]] = {}
        self._held: Mapping[Hashable, int] | None = {}
        self.scaled = ScaledGuarantees()
        self._places: dict[str, Place] = {}
        self._below: dict[str, Place] = {}

    def __contains__(self, leaf: str) -> bool:
        return bool(self._path) and find_tenant_of_leaf(leaf) in self._path

    @property
    def has_places(self) -> bool:
        """Whether any tenant is somewhere special in the tree, or has something special there."""
        return bool(self._places or self._below)

    def find_place(self, leaf: str) -> Place:
        """Return where a leaf is; the same object while it says the same."""
        tenant = find_tenant_of_leaf(leaf)
        return self._below.get(tenant) or self._places.get(tenant, BELOW_THE_ROOT)

    def find_place_of_inner(self, name: str) -> Place:
        """Return where an inner tenant is."""
        return self._places.get(name, BELOW_THE_ROOT)

    def count(self, leaf: str, node: str | None, amounts: Amounts, sign: int) -> None:
        """Count what a pod holds on a node, or take it away. node: None: on none yet."""
        for entry in self._find_entries(leaf):
            if entry.is_about(node):
                entry.count(amounts, sign)
                self._held = None

    def _find_entries(self, leaf: str) -> tuple[_Entry, ...]:
        return self._path.get(find_tenant_of_leaf(leaf), ()) if self._path else ()

    def get_held(self) -> Mapping[Hashable, int]:
        """Return what counts towards each limit and guarantee; another object after each change."""
        if self._held is None:
            self._held = {
                entry.subject_of[resource]: amount
                for own in self._own.values()
                for entry in (*own.limits, *own.promises)
                for resource, amount in entry.held.items()
            }
        return self._held

    def sum_kept_back(self, tenant: str) -> dict[str, int]:
        """Return how much a tenant keeps free of what is guaranteed to it, where it lends nothing, by resource."""
        if tenant not in self._places or self._places[tenant].lends:
            return {}
        entries = [
            NodeAmounts(
                promise.amounts.selector,
                tuple((r, max(given.amount - promise.held[r], 0)) for r, given in promise.given.items()),
            )
            for promise in self._own[tenant].promises
        ]
        return sum_up(entries)

    def find_rules(self, leaf: str, amounts: Amounts) -> TenantRules:
        """Return what holds for a pod that asks for so much; the same rules while they say the same."""
        entries = self._find_entries(leaf)
        if not entries:
            return NO_TENANT_RULES
        asked = dict(amounts)
        limits = tuple(
            entry.find_rule(resource, most, asked[resource])
            for entry in entries
            if isinstance(entry, _Limit)
            for resource, most in entry.amounts.amounts
            if asked.get(resource)
        )
        brings = tuple(
            (subject, asked[resource])
            for entry in entries
            for resource, subject in entry.subject_of.items()
            if asked.get(resource)
        )
        return TenantRules(limits, brings)

    def follow(
        self, specs: Mapping[str, TenantSpec], tree: TenantTree, find_held: Callable[[str], HeldAmounts | None]
    ) -> LimitChanges:
        """Take the Tenants and the nodes of now.

        find_held: says what all below a tenant hold; None: nothing.
        """
        known: _Known = {}
        are_other_specs, is_other_tree = specs is not self._specs, tree is not self._tree
        nodes, capacity = self._watched
        are_other_nodes, is_other_capacity = nodes.take(), capacity.take()
        self._specs, self._tree = specs, tree
        if not (self._own or are_other_specs):
            return NO_CHANGES
        if are_other_specs or are_other_nodes:
            for name in specs.keys() | self._own.keys() if are_other_specs else list(self._own):
                self._renew(name, known, find_held)
        if is_other_tree:
            for name, own in self._own.items():
                for entry in (*own.limits, *own.promises):
                    entry.sum_up(find_held(name))
        changed = self._follow_paths() if are_other_specs or are_other_nodes else frozenset[str]()
        if changed or is_other_tree:
            self._held = None
        has_promises = any(own.promises for own in self._own.values())
        if are_other_specs or (has_promises and (are_other_nodes or is_other_capacity)):
            self.scaled = self._scale(known) if has_promises else ScaledGuarantees()
            return LimitChanges(changed, has_moved=self._follow_places())
        return LimitChanges(changed, has_moved=False)

    def _renew(self, name: str, known: _Known, find_held: Callable[[str], HeldAmounts | None]) -> None:
        """Bring what a Tenant says itself to now; an entry that says the same of the same nodes is kept."""
        spec, before = self._specs.get(name), self._own.get(name, _NOTHING)
        if spec is None or not (spec.limit or spec.guarantee):
            self._own.pop(name, None)
            return
        limits = [
            self._keep(before.limits, n, each, known)
            or _Limit(each, self._find_nodes(each.selector, known), _name_subjects(LimitOf, name, n, each), tenant=name)
            for n, each in enumerate(spec.limit)
        ]
        promises = [
            self._keep(before.promises, n, each, known)
            or _Promise(each, self._find_nodes(each.selector, known), _name_subjects(GuaranteeOf, name, n, each))
            for n, each in enumerate(spec.guarantee)
        ]
        self._own[name] = _Own(tuple(limits), tuple(promises))
        for entry in (*limits, *promises):
            if not entry.held:
                entry.sum_up(find_held(name))

    def _keep(self, before: Sequence[EntryT], number: int, amounts: NodeAmounts, known: _Known) -> EntryT | None:
        """Return the entry of before, if it is about the same amounts on the same nodes."""
        if number >= len(before) or before[number].amounts != amounts:
            return None
        nodes, known_nodes = self._find_nodes(amounts.selector, known), before[number].nodes
        is_same = np.array_equal(nodes.domains.domain_k, known_nodes.domains.domain_k)
        return before[number] if is_same and nodes.members == known_nodes.members else None

    def _follow_paths(self) -> frozenset[str]:
        """Gather the entries above each tenant, and return the tenants of which these are others."""
        before, self._path = self._path, {}
        for name in self._specs:
            path: list[_Entry] = []
            for each in (name, *self._tree.list_above(name)):
                own = self._own.get(each, _NOTHING)
                path += (*own.limits, *own.promises)
            if path:
                self._path[name] = tuple(path)
        names = before.keys() | self._path.keys()
        return frozenset(name for name in names if before.get(name) != self._path.get(name))

    def _scale(self, known: _Known) -> ScaledGuarantees:
        """Return how much of each guarantee counts on the nodes of now."""
        nodes_of: dict[Hashable, _Nodes] = {}

        def find_nodes(selector: LabelSelector | None) -> Hashable:
            nodes = self._find_nodes(selector, known)
            key = nodes.domains.domain_k.tobytes()
            nodes_of[key] = nodes
            return key

        def find_capacity(key: Hashable, resource: str) -> int:
            return self._sum_capacity(nodes_of[key], resource)

        return scale_guarantees(self._specs, self._tree, find_nodes, find_capacity)

    def _follow_places(self) -> bool:
        """Bring where tenants are to now, and return whether any is elsewhere, or is guaranteed something else."""
        before = self._places, self._below
        places = ((name, self._find_place_of(spec)) for name, spec in self._specs.items())
        self._places = {name: place for name, place in places if place is not BELOW_THE_ROOT}
        self._below = {name: self._below.get(name) or Place(name) for name in sorted(self._tree.inner)}
        return before != (self._places, self._below)

    def _find_place_of(self, spec: TenantSpec) -> Place:
        promises = self._own.get(spec.name, _NOTHING).promises
        guarantees = tuple(each for promise in promises for each in promise.give(self.scaled.amount_of))
        lends = spec.lends or not guarantees
        says = self._tree.parent_of.get(spec.name), spec.priority, guarantees, lends
        for known in (BELOW_THE_ROOT, self._places.get(spec.name, BELOW_THE_ROOT)):
            if says == (known.parent, known.priority, known.guarantees, known.lends):
                return known
        return Place(*says)

    def _sum_capacity(self, nodes: _Nodes, resource: str) -> int:
        """Return how much of a resource usable nodes have for tenants."""
        servers = self._servers
        if resource not in servers.axes:
            return 0
        counting_k = servers.arrays.usable_k & (nodes.domains.domain_k != NO_DOMAIN)
        amount_k = np.maximum(servers.arrays.capacity_kr[counting_k, servers.axes.index(resource)], 0)
        return sum_exactly(amount_k[:, None])[0]

    def _find_nodes(self, selector: LabelSelector | None, known: _Known) -> _Nodes:
        """Return the nodes that a selector selects. known: what was found out already."""
        if selector not in known:
            index, members = self._eligibility.index, None
            domain_k = np.zeros(len(index), dtype=np.int32)
            if selector is not None:
                match_k = self._eligibility.get_columns().match_all(selector.requirements)
                domain_k[~match_k] = NO_DOMAIN
                members = frozenset(name for name, n in index.items() if match_k[n])
            known[selector] = _Nodes(Domains(domain_k, 1), members)
        return known[selector]


def _name_subjects(
    kind: type[LimitOf | GuaranteeOf], tenant: str, number: int, entry: NodeAmounts
) -> Mapping[str, Hashable]:
    """Return by what the counters of an entry are known, by resource."""
    return {resource: kind(tenant, number, resource) for resource, _ in entry.amounts}
