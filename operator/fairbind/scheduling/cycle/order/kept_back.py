"""Kept back: what tenants that do not lend leave of their guarantees stays free, in sum over the servers.

Beyond what is kept for others, tasks may take what is free: on servers E a task may take an amount of a resource if as
much as others keep there would still be free. A tenant that does not lend keeps what is unused of its guarantee on just
these servers, or what those below it keep, if that is more; other tenants keep what those below them do. A task's
others are the siblings of its tenant, and of all above it.

To a cycle that is a limit of each tenant, on what others keep less what is free. Its counter has no tasks: `KeptBack`
moves it with each placement, and what it is at the start is in `Snapshot.held`. So what limits do is done here too:
servers are closed, waits tell it, and end when more is free or less is kept. A decision costs as much as there are
tenants that keep something on the server that it takes, and nothing where all lend.

Capacity reserved for a task is free to that task alone. So a class with reserved capacity has counters of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fairbind.model import (
    DomainCounter,
    DomainRules,
    Domains,
    LimitRule,
    Placement,
    Rejection,
    RejectionKind,
    Snapshot,
    TaskClass,
)
from fairbind.model.hierarchy import Hierarchy, Place
from fairbind.model.servers import BoolArray, FloatArray, sum_exactly
from fairbind.model.topology import list_tenant_limits
from fairbind.scheduling.cycle.order.siblings import Sibling
from fairbind.scheduling.cycle.order.tree import Tree
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import DomainFilter, TopologyState

MOST_NAMED = 3
"""Of so many tenants that keep something a reason gives the names."""

_LOW_BITS = 32


ReservedAmounts = tuple[tuple[int, int], ...]
"""Servers, and how much is reserved on each."""


class _Keep(NamedTuple):
    """What a tenant keeps of a guarantee that it does not lend. subject, amount: of the guarantee."""

    subject: Hashable
    amount: int


class KeptFrom(NamedTuple):
    """The subject of the counter of what is kept on some servers from the tenants below one, and from itself.

    servers: the number of the set of servers. below: None: from all below the root, but for those that have an own one.
    reserved: what is reserved on some of these servers for the tasks that are concerned.
    """

    servers: int
    resource: str
    below: Sibling | None
    reserved: ReservedAmounts = ()


@dataclass(frozen=True, slots=True)
class KeepingSet:
    """Servers and a resource of which something is kept there.

    number: of the servers, among all sets. keeps: by tenant. parents: of each tenant that keeps something, or has one
    that does below it; parents before children.
    """

    number: int
    r: int
    resource: str
    domains: Domains
    keeps: Mapping[Sibling, tuple[_Keep, ...]]
    parents: Mapping[Sibling, Sibling | None]

    def compute_kept(self, used: Callable[[Hashable], int]) -> dict[Sibling | None, int]:
        """Return what others keep, by whom it is kept from. used: of a guarantee, by subject."""
        keep: dict[Sibling, int] = {}
        below: dict[Sibling | None, int] = dict.fromkeys((None, *self.parents), 0)
        for each, parent in reversed(list(self.parents.items())):
            unused = max((own.amount - used(own.subject) for own in self.keeps.get(each, ())), default=0)
            keep[each] = max(unused, below[each])
            below[parent] += keep[each]
        kept: dict[Sibling | None, int] = {None: below[None]}
        for each, parent in self.parents.items():
            kept[each] = kept[parent] - keep[each] + below[each]
        return kept

    def compute_counts(
        self, used: Callable[[Hashable], int], free_now: int, opened: Iterable[KeptFrom], free: FreeCapacity
    ) -> Iterator[tuple[KeptFrom, int]]:
        """Yield how much each counter holds: what is kept, less what is free to the tasks that are concerned.

        free_now: what is free to all. opened: subjects of classes for which capacity is reserved.
        """
        kept = self.compute_kept(used)
        for below, amount in kept.items():
            yield KeptFrom(self.number, self.resource, below), amount - free_now
        for each in opened:
            if (each.servers, each.resource) == (self.number, self.resource):
                rows = ((free.get_row(server)[self.r], reserved) for server, reserved in each.reserved)
                more = sum(max(left + reserved, 0) - max(left, 0) for left, reserved in rows)
                yield each, kept[each.below] - free_now - more

    def find_reserved(self, placement: Placement) -> ReservedAmounts:
        """Return what is reserved on these servers for tasks of a placement."""
        amounts = ((server, amount_r[self.r]) for server, amount_r in placement.reserved.items())
        return tuple((server, amount) for server, amount in amounts if amount and self.domains.domain_k[server] == 0)

    def list_keepers(self, from_whom: Sibling | None) -> list[str]:
        """Return the names of the tenants whose guarantees count for what is kept from the tenants below one."""
        own = set[Sibling]()
        while from_whom is not None:
            own.add(from_whom)
            from_whom = self.parents[from_whom]
        return sorted(each.name for each in self.keeps if each not in own)


class KeepingRules:
    """Adds rules to the classes of snapshots. A class is the same object as before, if it was made of the same one."""

    __slots__ = (
        "_classes",
        "_counters",
        "_groups",
        "_joined",
        "_rules",
        "_rules_before",
        "_structure",
        "opened",
        "sets",
    )

    def __init__(self) -> None:
        self.sets: list[KeepingSet] = []
        self.opened: list[KeptFrom] = []
        """Subjects of the classes for which capacity is reserved."""
        self._structure: object = None
        self._forget()

    def _forget(self) -> None:
        self._classes: dict[TaskClass, TaskClass] = {}
        self._groups: dict[str, list[tuple[KeepingSet, Sibling | None]]] = {}
        self._counters: dict[KeptFrom, DomainCounter] = {}
        self._rules: dict[tuple[KeptFrom, int], LimitRule] = {}
        self._joined: dict[tuple[DomainRules | None, tuple[LimitRule, ...]], DomainRules] = {}
        self._rules_before: dict[DomainRules, DomainRules | None] = {}

    def apply(self, snapshot: Snapshot, tree: Tree, free: FreeCapacity) -> Snapshot:
        """Return the snapshot with rules about what is kept, and with what is kept less what is free.

        free: at the beginning.
        """
        self._find_sets(snapshot)
        if not self.sets:
            return snapshot
        known, self._classes = self._classes, {}
        for task_class in snapshot.task_classes:
            self._classes[task_class] = known.get(task_class) or self._add_rules(task_class, snapshot.hierarchy)
        self.opened = self._list_opened()
        held = dict(snapshot.held)
        for each in self.sets:
            free_now = sum_free(each, free.left_rk, snapshot)
            held.update(each.compute_counts(tree.get_used, free_now, self.opened, free))
        return replace(
            snapshot,
            task_classes=tuple(self._classes.values()),
            stale=frozenset(self._classes[each] for each in snapshot.stale),
            held=held,
            changes=None,
        )

    def _list_opened(self) -> list[KeptFrom]:
        rules = [each.rules for each in self._classes.values() if each.placement.reserved]
        limits = (rule for each in rules for rule in list_tenant_limits(each, RejectionKind.KEPT_BACK))
        subjects = (rule.counter.subject for rule in limits)
        return list(dict.fromkeys(each for each in subjects if isinstance(each, KeptFrom) and each.reserved))

    def _find_sets(self, snapshot: Snapshot) -> None:
        """Find what is kept on which servers; where that is as before, all that was made stays."""
        hierarchy, axis_of = snapshot.hierarchy, {name: r for r, name in enumerate(snapshot.resources)}
        kept: dict[tuple[int, int], dict[Sibling, list[_Keep]]] = {}
        sets_of: dict[bytes, tuple[int, Domains]] = {}
        for sibling, place in list_keeping(hierarchy):
            for each in place.guarantees:
                if each.resource in axis_of:
                    members = each.servers.domain_k.tobytes()
                    number, _ = sets_of.setdefault(members, (len(sets_of), each.servers))
                    keeps = kept.setdefault((number, axis_of[each.resource]), {})
                    keeps.setdefault(sibling, []).append(_Keep(each.subject, each.amount))
        parents = {key: _list_parents(hierarchy, keeps) for key, keeps in kept.items()}
        paths = {leaf: place.parent for leaf, place in hierarchy.leaves.items()} if kept else {}
        structure = (
            snapshot.resources,
            list(sets_of),
            {key: list(keeps) for key, keeps in kept.items()},
            parents,
            paths,
        )
        if structure != self._structure:
            self._structure = structure
            self._forget()
        domains = [each for _, each in sets_of.values()]
        self.sets = [
            KeepingSet(
                number,
                r,
                snapshot.resources[r],
                domains[number],
                {sibling: tuple(several) for sibling, several in keeps.items()},
                parents[number, r],
            )
            for (number, r), keeps in kept.items()
        ]

    def _add_rules(self, task_class: TaskClass, hierarchy: Hierarchy) -> TaskClass:
        groups = self._groups.get(task_class.tenant)
        if groups is None:
            path = [Sibling(task_class.tenant, is_inner=False)]
            path += [Sibling(each.tenant.name, is_inner=True) for each in hierarchy.list_above(task_class.tenant)]
            groups = self._groups[task_class.tenant] = [
                (each, next((sibling for sibling in path if sibling in each.parents), None)) for each in self.sets
            ]
        rules = tuple(
            self._find_rule(each, below, task_class.demand_r[each.r], each.find_reserved(task_class.placement))
            for each, below in groups
            if task_class.demand_r[each.r]
        )
        if not rules:
            return task_class
        key = task_class.rules, rules
        joined = self._joined.get(key)
        if joined is None:
            before = () if task_class.rules is None else task_class.rules.rules
            joined = self._joined[key] = DomainRules((*before, *rules))
            self._rules_before[joined] = task_class.rules
        return replace(task_class, rules=joined)

    def get_rules_before(self, task_class: TaskClass) -> DomainRules | None:
        """Return the rules that a class has without those about what is kept."""
        rules = task_class.rules
        return None if rules is None else self._rules_before.get(rules, rules)

    def _find_rule(self, kept: KeepingSet, below: Sibling | None, amount: int, reserved: ReservedAmounts) -> LimitRule:
        subject = KeptFrom(kept.number, kept.resource, below, reserved)
        rule = self._rules.get((subject, amount))
        if rule is None:
            counter = self._counters.get(subject)
            if counter is None:
                counter = DomainCounter(subject, kept.domains, np.zeros(1, dtype=np.int64))
                self._counters[subject] = counter
            names = _join(kept.list_keepers(below))
            rejection = Rejection(RejectionKind.KEPT_BACK, f"{kept.resource} that is kept for {names}")
            rule = LimitRule(counter, amount, np.zeros(1, dtype=np.int64), rejection)
            self._rules[subject, amount] = rule
        return rule


def list_keeping(hierarchy: Hierarchy) -> list[tuple[Sibling, Place]]:
    """Return the tenants that do not lend what is guaranteed to them."""
    found = [
        (Sibling(name, is_inner=True), each.place)
        for name, each in hierarchy.inner.items()
        if not each.place.lends and each.place.guarantees
    ]
    found += [
        (Sibling(name, is_inner=False), place)
        for name, place in hierarchy.leaves.items()
        if not place.lends and place.guarantees
    ]
    return sorted(found)


def _list_parents(hierarchy: Hierarchy, keeping: Iterable[Sibling]) -> dict[Sibling, Sibling | None]:
    """Return the parents of tenants that keep something and of all above them; parents before children."""
    found: dict[Sibling, Sibling | None] = {}
    for each in keeping:
        path = [each]
        place = hierarchy.inner[each.name].place if each.is_inner else hierarchy.get_place(each.name)
        while place.parent is not None:
            path.append(Sibling(place.parent, is_inner=True))
            place = hierarchy.inner[place.parent].place
        parent: Sibling | None = None
        for sibling in reversed(path):
            found.setdefault(sibling, parent)
            parent = sibling
    return found


def _join(names: Sequence[str]) -> str:
    """Return some names for people.

    >>> _join(["a"]), _join(["a", "b", "c", "d", "e"])
    ('a', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def sum_free(kept: KeepingSet, left_rk: FloatArray, snapshot: Snapshot) -> int:
    """Return what is free on the servers of a set that accept tasks, exactly: high and low digits apart."""
    is_member_k = (kept.domains.domain_k == 0) & snapshot.servers.accepting_k
    left_k = left_rk[kept.r][is_member_k].astype(np.int64)
    return (int((left_k >> _LOW_BITS).sum()) << _LOW_BITS) + int((left_k & ((1 << _LOW_BITS) - 1)).sum())


@dataclass(slots=True)
class KeptBack:
    """Moves what is kept in one draft. rules: as applied to the snapshot. _free: by set, what is free there."""

    rules: KeepingRules
    snapshot: Snapshot
    tree: Tree
    free: FreeCapacity
    topology: TopologyState
    _free: list[int] = field(init=False)
    _left_rk: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        """Begin where the draft does."""
        self._left_rk = self.free.left_rk.copy()
        self._free = [sum_free(each, self._left_rk, self.snapshot) for each in self.rules.sets]

    def follow(self, server: int, demand_r: Sequence[int]) -> list[DomainFilter]:
        """Follow a task that came to a server or went, and return the filters that may have opened."""
        opened: list[DomainFilter] = []
        for n, each in enumerate(self.rules.sets):
            if not demand_r[each.r] or each.domains.domain_k[server] != 0:
                continue
            if self.snapshot.servers.accepting_k[server]:
                self._free[n] += int(self.free.left_rk[each.r, server] - self._left_rk[each.r, server])
            counts = each.compute_counts(self.tree.get_used, self._free[n], self.rules.opened, self.free)
            for subject, amount in counts:
                opened += self.topology.move(subject, amount)
        self._left_rk[:, server] = self.free.left_rk[:, server]
        return opened

    def find_closed_for_good(self, task_class: TaskClass) -> BoolArray:
        """Return the servers of which so much is kept that a task would not fit if all else of them came free."""
        servers = self.snapshot.servers
        closed_k: BoolArray = np.zeros(len(servers.names), dtype=np.bool_)
        kept_of = {(each.number, each.resource): each for each in self.rules.sets}
        for rule in list_tenant_limits(task_class.rules, RejectionKind.KEPT_BACK):
            subject = rule.counter.subject
            if isinstance(subject, KeptFrom):
                each = kept_of[subject.servers, subject.resource]
                is_member_k = each.domains.domain_k == 0
                (capacity,) = sum_exactly(servers.capacity_kr[is_member_k & servers.accepting_k][:, [each.r]])
                if capacity - each.compute_kept(self.tree.get_used)[subject.below] < rule.amount:
                    closed_k |= is_member_k
        return closed_k
