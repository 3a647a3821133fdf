"""Limits of tenants that are reached at the end of a cycle, and what ends the waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from fairbind.model import (
    FREE_CAPACITY,
    NO_DOMAIN,
    DomainRules,
    Domains,
    LimitRule,
    Pin,
    Placement,
    Rejection,
    RejectionKind,
    TaskClass,
    Until,
    UsageBelow,
)
from fairbind.model.topology import list_tenant_limits
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.cycle.waits.reaches import Reaches, compute_bits

_Answer = tuple[Rejection | None, tuple[Until, ...]]
_NONE: _Answer = None, FREE_CAPACITY


class ReachedLimits:
    """Says which limits keep classes from servers; classes that could use the same servers share the answer."""

    def __init__(self, reaches: Reaches, topology: TopologyState) -> None:
        self._reaches = reaches
        self._topology = topology
        self._known: dict[tuple[DomainRules, Placement, Pin | None, tuple[int, ...]], _Answer] = {}
        self._outside: dict[Domains, int] = {}

    def find(self, task_class: TaskClass) -> _Answer:
        """Return the limit that keeps a class from all servers that could hold it, or None, and what ends its wait.

        A limit of all servers keeps it from those that are still to come, too.
        """
        if task_class.rules is None:
            return _NONE
        key = task_class.rules, task_class.placement, task_class.pin, task_class.demand_r
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(task_class, list(self._list_reached(task_class.rules)))
        return known

    def _find(self, task_class: TaskClass, reached: list[LimitRule]) -> _Answer:
        if not reached:
            return _NONE
        until = tuple(UsageBelow(rule.counter.subject, int(rule.most_d[0]) - rule.amount + 1) for rule in reached)
        reached = [rule for rule in reached if rule.rejection.kind is RejectionKind.AT_LIMIT]
        if not reached:
            return None, (*FREE_CAPACITY, *until)
        whole = next((rule for rule in reached if not self._find_outside(rule)), None)
        could_hold = self._reaches.find_admitting(task_class) & self._reaches.find_holding(task_class.demand_r)
        left = could_hold
        for rule in reached:
            left &= self._find_outside(rule)
        if whole is not None or (could_hold and not left):
            return (whole or reached[0]).rejection, until
        return None, (*FREE_CAPACITY, *until)

    def _find_outside(self, rule: LimitRule) -> int:
        """Return the servers that a limit is not about, as a set of `Reaches`."""
        domains = rule.counter.domains
        if domains not in self._outside:
            self._outside[domains] = compute_bits(domains.domain_k == NO_DOMAIN)
        return self._outside[domains]

    def _list_reached(self, rules: DomainRules) -> Iterator[LimitRule]:
        """Yield the limits of tenants that a task more would exceed, and those on what is kept back."""
        for rule in list_tenant_limits(rules, RejectionKind.AT_LIMIT, RejectionKind.KEPT_BACK):
            held_d = self._topology.get_counter(rule.counter).count_d
            if held_d[0] + rule.amount > rule.most_d[0]:
                yield rule
