"""What is counted of a tenant: of a leaf, which has pods, and of an inner tenant, below which leaves are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.state.holdings import BoundKind
from fairbind.cluster.state.node_state import add_amounts

ZERO, ONE = Fraction(0), Fraction(1)
NEVER = float("inf")


class InnerName(NamedTuple):
    """The name of an inner tenant, where a leaf may have the same."""

    name: str


@dataclass(slots=True, kw_only=True, eq=False)
class TenantSums:
    """What pods hold together, and how many they are. real: requests and devices. share: what counts in shares.

    real, share: of pods on nodes that count. running: how many hold something, wherever. active_weight: the weight
    while there are pods that run or wait, else 0. above: the inner tenants above, the nearest first.
    """

    weight: Fraction = ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    since: float = NEVER
    real: dict[str, int] = field(default_factory=dict)
    share: dict[str, int] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    gated: int = 0
    postponed: int = 0
    active_weight: Fraction = ZERO
    above: tuple[InnerUsage, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it has pods that run, or may be decided."""
        return bool(self.running or self.waiting or self.postponed)

    def add(self, other: TenantSums, sign: int) -> None:
        """Add all that is counted of another one, or take it away."""
        add_amounts(self.real, other.real.items(), sign)
        add_amounts(self.share, other.share.items(), sign)
        self.running += sign * other.running
        self.waiting += sign * other.waiting
        self.gated += sign * other.gated
        self.postponed += sign * other.postponed


@dataclass(slots=True, eq=False)
class TenantUsage(TenantSums):
    """One tenant that has pods, or may have: a leaf.

    nodes: how many of its pods are on each node. kinds: how many of its pods are of each kind. real_by_node,
    share_by_node: node by node; equal ones are the same object as a rule. share_by_class: by the class of targets.
    All these are of pods on nodes that count.
    since: when the tenant came, seconds since the epoch: its Tenant object, or the oldest pod that it has had since it
    has one.
    """

    name: str
    is_declared: bool = False
    nodes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[BoundKind] = field(default_factory=Counter)
    share_by_node: dict[str, Amounts] = field(default_factory=dict)
    share_by_class: dict[int, dict[str, int]] = field(default_factory=dict)
    real_by_node: dict[str, Amounts] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no pod counts in it."""
        return self.running == self.waiting == self.gated == self.postponed == 0


@dataclass(slots=True, eq=False)
class InnerUsage(TenantSums):
    """One inner tenant. leaves: all below it. active_below: the active weights of its children together."""

    name: str
    leaves: dict[str, TenantUsage] = field(default_factory=dict)
    active_below: Fraction = ZERO
    key: InnerName = field(init=False)

    def __post_init__(self) -> None:
        """Make the key once."""
        self.key = InnerName(self.name)
