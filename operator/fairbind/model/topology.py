"""Rules about topology domains: where a task may go depends on which tasks the domains hold.

A domain is a set of servers: those of a zone, of a rack, or one alone. A counter says how many tasks of some kind each
domain holds, or how much of what tasks bring, and a rule closes domains by what they hold. Counters change with each
placement, so who decides keeps counts of its own and these values stay as they were at the start.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairbind.model.reasons import Rejection, RejectionKind
from fairbind.model.servers import BoolArray, IndexArray

DomainArray = NDArray[np.int32]
CountArray = NDArray[np.int64]

NO_DOMAIN = -1


class Domains:
    """A partition of servers. domain_k: each server's domain from 0 on, or `NO_DOMAIN`, shape (K,). size: how many."""

    __slots__ = ("_order", "_starts", "domain_k", "size")

    def __init__(self, domain_k: DomainArray, size: int) -> None:
        self.domain_k = domain_k
        self.size = size
        self._order: IndexArray | None = None
        self._starts: IndexArray = np.zeros(0, dtype=np.intp)

    def find_members(self, domain: int) -> IndexArray:
        """Return the servers of a domain, ascending."""
        if self._order is None:
            self._order = np.argsort(self.domain_k, kind="stable")
            self._starts = np.searchsorted(self.domain_k[self._order], np.arange(self.size + 1))
        return self._order[self._starts[domain] : self._starts[domain + 1]]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DomainCounter:
    """How many tasks of one kind are in each domain, or how much of what they bring.

    subject: the kind; a task counts when its class has it in `TaskClass.counts_as`, and by its amount where the class
    has it in `TaskClass.brings`. count_d: shape (D,), never below 0.
    """

    subject: Hashable
    domains: Domains
    count_d: CountArray


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SpreadRule:
    """A domain may hold at most `max_skew` tasks more than the one that holds the fewest.

    min_domains: with fewer domains the fewest is 0. counts_itself: whether the task counts once it is placed.
    reserved: servers with how many tasks that count are to come there from elsewhere, ascending. Such a server must
    also do with them as part of its domain. A server that is in no domain is closed.
    """

    counter: DomainCounter
    max_skew: int
    min_domains: int
    counts_itself: bool
    rejection: Rejection
    reserved: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class AffinityRule:
    """A server must share a domain of each counter with a task that counts.

    may_begin: whether every server that has all domains will do while no task counts anywhere.
    """

    counters: tuple[DomainCounter, ...]
    may_begin: bool
    rejection: Rejection


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SeparationRule:
    """A server may not share a domain with a task that counts."""

    counter: DomainCounter
    rejection: Rejection


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class LimitRule:
    """A domain may hold at most so much of what tasks bring, with what the task itself brings.

    amount: that, above 0. most_d: shape (D,). A server that is in no domain is open.
    """

    counter: DomainCounter
    amount: int
    most_d: CountArray
    rejection: Rejection

    def compute_open(self) -> BoolArray:
        """Return which of the servers in domains have free capacity for the task, shape (K,)."""
        open_d = np.append(self.counter.count_d + self.amount <= self.most_d, False)
        open_k: BoolArray = open_d[self.counter.domains.domain_k]
        return open_k


class LimitOf(NamedTuple):
    """The subject of the counter of a tenant's limit. entry: the number of it in the tenant's list."""

    tenant: str
    entry: int
    resource: str


DomainRule = SpreadRule | AffinityRule | SeparationRule | LimitRule


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DomainRules:
    """All rules of a class.

    rules: a server that several of them close counts under the first of these. subjects: of all their counters.
    are_limits: whether all are about what servers take, so that tasks that are placed open nothing.
    """

    rules: tuple[DomainRule, ...]
    subjects: frozenset[Hashable] = field(init=False)
    are_limits: bool = field(init=False)

    def __post_init__(self) -> None:
        """Gather what each cycle asks for."""
        object.__setattr__(self, "are_limits", all(isinstance(rule, LimitRule) for rule in self.rules))
        counters = (
            counter
            for rule in self.rules
            for counter in (rule.counters if isinstance(rule, AffinityRule) else (rule.counter,))
        )
        object.__setattr__(self, "subjects", frozenset(counter.subject for counter in counters))


def list_tenant_limits(rules: DomainRules | None, *kinds: RejectionKind) -> list[LimitRule]:
    """Return the rules that are limits of tenants: each has a counter of one domain. kinds: those of such reasons."""
    limits, kinds = () if rules is None else rules.rules, kinds or (RejectionKind.AT_LIMIT,)
    return [each for each in limits if isinstance(each, LimitRule) and each.rejection.kind in kinds]
