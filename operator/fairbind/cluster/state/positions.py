"""Positions: where a pod stands in the state of a cluster. It holds something, waits, was let go, or is foreseen."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from fairbind.cluster.filters.nominated_rules import Nomination
from fairbind.cluster.filters.term_index import Labels
from fairbind.cluster.objects.facts import Constraints, Demand, PodTerm, PodTerms, WeightedTerm
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Task


class Bound(Struct, frozen=True, gc=False):
    """It holds its demand on a node.

    tenant: None when it belongs to no tenant. repels, labels, is_leaving: what other pods' pod terms may ask about it.
    carries: what it would like of others.
    """

    tenant: str | None
    node: str
    demand: Demand
    constraints: Constraints
    repels: tuple[PodTerm, ...]
    labels: Labels = ()
    is_leaving: bool = False
    carries: tuple[WeightedTerm, ...] = ()

    @property
    def owner(self) -> str | None:
        """The Tenant in whose bounds its terms count: all users together, as a user is a label."""
        return None if self.tenant is None else find_tenant_of_leaf(self.tenant)

    def says_the_same_of_others(self, other: Bound) -> bool:
        """Whether it keeps away and draws other pods to the same node as in another position."""
        mine, theirs = (self.tenant, self.node, self.repels, self.carries), (other.tenant, other.node)
        return mine == (*theirs, other.repels, other.carries)


class Waiting(Struct, frozen=True, gc=False):
    """It waits to be decided.

    labels: by which the terms of other pods may select it. nomination: the capacity that is kept for it meanwhile, or
    None. pod_terms: what it requires about other pods, also while that is not looked at.
    """

    key: QueueKey
    task: Task
    labels: Labels
    nomination: Nomination | None = None
    pod_terms: PodTerms | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """It will wait to be decided later. gated: it has scheduling gates; otherwise its last binding failed."""

    tenant: str
    gated: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """Its gate is open, and another scheduler has not placed it: it counts in the share, and holds capacity nowhere."""

    tenant: str
    demand: Demand
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class Reserved:
    """Another scheduler will bind it, and capacity is kept for it meanwhile."""

    nomination: Nomination


Position = Bound | Waiting | Idle | Opened | Reserved
