"""Guarantees of tenants: how much of each counts where siblings are promised more than the nodes have.

Siblings that name the same nodes share what these nodes have. Where their guarantees of a resource are together more,
each counts up to its weight's part: min(own, weight * t), with t the largest that fits. Entries that are about other
nodes are looked at by themselves, even where some nodes are in both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from fairbind.cluster.objects.quantity import format_quantity
from fairbind.cluster.objects.selectors import LabelSelector
from fairbind.cluster.tenancy.node_amounts import NodeAmounts, sum_up
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.tree import TenantTree


@dataclass(frozen=True, slots=True)
class GuaranteeOf:
    """What an amount is about. entry: the number of it in the tenant's list.

    It is no named tuple, which would be equal to a `LimitOf` of the same values.
    """

    tenant: str
    entry: int
    resource: str


class Overcommitment(NamedTuple):
    """Siblings are promised more than there is. promised: in sum. capacity: what the nodes have.

    selector: of the nodes, as the tenant itself writes it; None: all.
    """

    resource: str
    promised: int
    capacity: int
    selector: LabelSelector | None

    def describe(self) -> str:
        """Return it as a part of a sentence.

        >>> Overcommitment("cpu", 3000, 2500, None).describe()
        'of cpu 3 are guaranteed, and all nodes have 2500m'
        """
        promised, capacity = (format_quantity(self.resource, each) for each in (self.promised, self.capacity))
        nodes = "all nodes" if self.selector is None else "the selected nodes"
        return f"of {self.resource} {promised} are guaranteed, and {nodes} have {capacity}"


@dataclass(frozen=True, slots=True)
class ScaledGuarantees:
    """What counts of each guarantee. overcommitted: by tenant, for those that take part in it."""

    amount_of: Mapping[GuaranteeOf, int] = field(default_factory=dict)
    overcommitted: Mapping[str, tuple[Overcommitment, ...]] = field(default_factory=dict)


class _Promise(NamedTuple):
    """An entry's amount. own: the least that the tenant's entries for these nodes name, as all of them hold."""

    subject: GuaranteeOf
    own: int
    selector: LabelSelector | None


def scale_guarantees(
    specs: Mapping[str, TenantSpec],
    tree: TenantTree,
    find_nodes: Callable[[LabelSelector | None], Hashable],
    find_capacity: Callable[[Hashable, str], int],
) -> ScaledGuarantees:
    """Return how much of each guarantee counts.

    find_nodes: says which nodes a selector selects, equal for equal nodes. find_capacity: says how much of a resource
    these nodes have for tenants, base units.
    """
    groups: dict[tuple[str, Hashable, str], dict[str, list[_Promise]]] = {}
    for name, spec in sorted(specs.items()):
        parent = tree.parent_of.get(name, "")
        for number, entry in enumerate(spec.guarantee):
            nodes = find_nodes(entry.selector)
            for resource, amount in entry.amounts:
                promise = _Promise(GuaranteeOf(name, number, resource), amount, entry.selector)
                groups.setdefault((parent, nodes, resource), {}).setdefault(name, []).append(promise)
    amount_of: dict[GuaranteeOf, int] = {}
    overcommitted: dict[str, list[Overcommitment]] = {}
    for (_, nodes, resource), by_tenant in groups.items():
        own = {name: min(promise.own for promise in promises) for name, promises in by_tenant.items()}
        capacity = find_capacity(nodes, resource)
        counting = share_by_weight(own, {name: specs[name].weight for name in own}, capacity)
        is_more = sum(own.values()) > capacity
        for name, promises in by_tenant.items():
            amount_of.update((promise.subject, min(promise.own, counting[name])) for promise in promises)
            if is_more and own[name]:
                found = Overcommitment(resource, sum(own.values()), capacity, promises[0].selector)
                overcommitted.setdefault(name, []).append(found)
    return ScaledGuarantees(amount_of, {name: tuple(found) for name, found in overcommitted.items()})


def share_by_weight(own: Mapping[str, int], weights: Mapping[str, Fraction], capacity: int) -> dict[str, int]:
    """Return min(own, weight * t) for each, rounded down, with t the largest that fits into the capacity.

    >>> share_by_weight({"a": 8, "b": 8, "c": 1}, dict.fromkeys("abc", Fraction(1)), 11)
    {'a': 5, 'b': 5, 'c': 1}
    >>> share_by_weight({"a": 8, "b": 8}, {"a": Fraction(3), "b": Fraction(1)}, 8)
    {'a': 6, 'b': 2}
    """
    rest, weight_left = max(0, capacity), sum(weights[name] for name in own)
    counting = dict.fromkeys(own, 0)
    for name in sorted(own, key=lambda name: (own[name] / weights[name], name)):
        counting[name] = min(own[name], int(weights[name] * rest / weight_left))
        if counting[name] == own[name]:
            rest -= own[name]
            weight_left -= weights[name]
    return counting


def sum_guaranteed(
    specs: Mapping[str, TenantSpec], tree: TenantTree, scaled: ScaledGuarantees
) -> dict[str, dict[str, int]]:
    """Return what is guaranteed to each tenant that has guarantees, in sum over kinds of nodes.

    At most what is guaranteed to its parent, of each resource that the parent has a guarantee of.
    """
    guaranteed: dict[str, dict[str, int]] = {}

    def sum_for(name: str) -> Mapping[str, int]:
        if name not in guaranteed and specs[name].guarantee:
            parent = tree.parent_of.get(name)
            above = {} if parent is None else sum_for(parent)
            own = sum_up(_count(name, specs[name].guarantee, scaled))
            guaranteed[name] = {resource: min(amount, above.get(resource, amount)) for resource, amount in own.items()}
        return guaranteed.get(name, {})

    for name in specs:
        sum_for(name)
    return guaranteed


def _count(name: str, entries: tuple[NodeAmounts, ...], scaled: ScaledGuarantees) -> list[NodeAmounts]:
    return [
        NodeAmounts(
            entry.selector,
            tuple((r, scaled.amount_of.get(GuaranteeOf(name, number, r), amount)) for r, amount in entry.amounts),
        )
        for number, entry in enumerate(entries)
    ]
