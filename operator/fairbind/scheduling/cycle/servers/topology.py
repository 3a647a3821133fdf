"""Counts of tasks by topology domain in one draft, and which servers the rules about them close.

Each placement counts in the counters of which its class is a subject, or to which it brings something. A counter tells
its rules which domain changed, and a rule says which domains it closes now: one bit a domain. The filter of a class has
one bit a server. It is made of those of its rules when it is asked first; after that it is kept domain by domain. So a
placement costs as much as the domain has servers, for each class that looks at it, and nothing for the other classes.

Rules open domains, too: a task in zone B lifts the least count, and zone A is allowed again. A filter counts its
openings; who has closed something, because nothing was open there, looks again when there are more of them.

Preferences close nothing, so nothing follows their counters (`preferences`): who asks sees by the version that one
changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fairbind.model import (
    NO_DOMAIN,
    AffinityRule,
    DomainCounter,
    DomainRule,
    DomainRules,
    Domains,
    LimitRule,
    Preferences,
    Rejection,
    SeparationRule,
    SpreadRule,
    TaskClass,
)
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.model.topology import CountArray

NOTHING_HELD: Mapping[Hashable, int] = MappingProxyType({})


class _Change(NamedTuple):
    """What a rule closes differently now. members: the servers; None: any. may_open: whether it closes less there."""

    members: IndexArray | None
    may_open: bool


_NOTHING = _Change(np.zeros(0, dtype=np.intp), may_open=False)


class _Part:
    """What a rule says of one partition. closed_d: whether it closes each domain, and last servers that are in none."""

    __slots__ = ("closed_d", "domains")

    def __init__(self, domains: Domains, closed_d: BoolArray) -> None:
        self.domains = domains
        self.closed_d = closed_d

    def compute_closed(self, members: IndexArray | None = None) -> BoolArray:
        """Return which servers it closes, of all or of some, in their order."""
        domain_k = self.domains.domain_k
        return self.closed_d[domain_k if members is None else domain_k[members]]

    def set_all(self, closed_d: BoolArray, *, without: bool) -> bool:
        """Take what each domain is now. without: of servers in none. Returns whether one is closed no more."""
        before = self.closed_d
        self.closed_d = np.append(closed_d, without)
        return bool((before & ~self.closed_d).any())

    def set_one(self, domain: int, *, is_closed: bool) -> _Change:
        """Take what one domain is now."""
        before = self.closed_d[domain]
        if before == is_closed:
            return _NOTHING
        self.closed_d[domain] = is_closed
        return _Change(self.domains.find_members(domain), may_open=not is_closed)


class WorkingCounter:
    """A counter as it is now, and the rules that look at it. version: grows with every change.

    limits: those of them that limit the only domain, by what it may hold before their task comes. There may be one for
    each amount that pods of a tenant ask for, and few of them change with a task.
    """

    __slots__ = ("count_d", "domains", "limits", "rules", "version")

    def __init__(self, counter: DomainCounter, held: int = 0) -> None:
        """held: what the only domain holds beyond what the counter says."""
        self.domains = counter.domains
        self.count_d: CountArray = counter.count_d + held
        self.version = 0
        self.rules: list[_Rule] = []
        self.limits: list[_Limit] = []

    def add(self, domain: int, amount: int) -> Iterator[DomainFilter]:
        """Count more in a domain, or less, and yield the filters that may have opened."""
        before = int(self.count_d[domain])
        self.count_d[domain] += amount
        least, most = sorted((before, before + amount))
        first = bisect_left(self.limits, least, key=attrgetter("most"))
        last = bisect_left(self.limits, most, lo=first, key=attrgetter("most"))
        for rule in (*self.rules, *self.limits[first:last]):
            change = rule.follow(self, domain)
            if change is not _NOTHING:
                yield from [each for each in rule.filters if each.follow(change)]


class _Rule(ABC):
    """A rule as it is now. parts: a server that one of them closes is closed. filters: those that are made of it."""

    __slots__ = ("filters", "parts", "rejection")

    def __init__(self, rejection: Rejection, counters: Iterable[WorkingCounter]) -> None:
        self.rejection = rejection
        self.filters: list[DomainFilter] = []
        self.parts: list[_Part] = []
        for counter in counters:
            self.enter(counter)
            self.parts.append(_Part(counter.domains, np.ones(counter.domains.size + 1, dtype=np.bool_)))

    def enter(self, counter: WorkingCounter) -> None:
        """Have the rule follow a counter."""
        counter.rules.append(self)

    @abstractmethod
    def follow(self, counter: WorkingCounter, domain: int) -> _Change:
        """Follow a counter, of which one domain has changed."""

    def compute_closed(self) -> BoolArray:
        """Return which servers it closes, shape (K,)."""
        closed_k: BoolArray = np.logical_or.reduce([part.compute_closed() for part in self.parts])
        return closed_k


class _Spread(_Rule):
    """See `SpreadRule`. Servers on which capacity is reserved for tasks are a part of their own, each a domain."""

    __slots__ = ("_counter", "_least", "_most", "_reserved")

    def __init__(self, rule: SpreadRule, counter: WorkingCounter) -> None:
        super().__init__(rule.rejection, [counter])
        self._counter = counter
        self._most = rule.max_skew - rule.counts_itself
        is_floored = counter.domains.size < max(rule.min_domains, 1)
        self._least: int | None = None if is_floored else int(counter.count_d.min())
        self._set_all()
        self._reserved = rule.reserved
        if self._reserved:
            domain_k = np.full_like(counter.domains.domain_k, NO_DOMAIN)
            domain_k[[server for server, _ in self._reserved]] = np.arange(len(self._reserved))
            reserved = Domains(domain_k, len(self._reserved))
            self.parts.append(_Part(reserved, np.zeros(reserved.size + 1, dtype=np.bool_)))
            self.parts[1].set_all(self._compute_reserved(), without=False)

    def _set_all(self) -> bool:
        return self.parts[0].set_all(self._counter.count_d - (self._least or 0) > self._most, without=True)

    def _compute_reserved(self) -> BoolArray:
        """Return which of the servers on which capacity is reserved for tasks would hold too many with them."""
        closed = []
        for server, tasks in self._reserved:
            count_d = self._counter.count_d.copy()
            domain = self._counter.domains.domain_k[server]
            count_d[domain] += tasks
            least = 0 if self._least is None else count_d.min()
            closed.append(count_d[domain] - least > self._most)
        return np.array(closed, dtype=np.bool_)

    def follow(self, counter: WorkingCounter, domain: int) -> _Change:
        change = self._follow_counts(counter, domain)
        if not self._reserved:
            return change
        part = self.parts[1]
        before = part.closed_d
        may_open = part.set_all(self._compute_reserved(), without=False)
        if np.array_equal(before, part.closed_d):
            return change
        return _Change(None, may_open=may_open or change.may_open)

    def _follow_counts(self, counter: WorkingCounter, domain: int) -> _Change:
        if self._least is not None:
            least = int(counter.count_d.min())
            if least != self._least:
                self._least = least
                return _Change(None, self._set_all())
        is_closed = bool(counter.count_d[domain] - (self._least or 0) > self._most)
        return self.parts[0].set_one(domain, is_closed=is_closed)


class _Affinity(_Rule):
    """See `AffinityRule`."""

    __slots__ = ("_counters", "_may_begin")

    def __init__(self, rule: AffinityRule, counters: list[WorkingCounter]) -> None:
        super().__init__(rule.rejection, counters)
        self._counters = counters
        self._may_begin = rule.may_begin
        self._set_all()

    def _set_all(self) -> bool:
        has_begun = any(counter.count_d.any() for counter in self._counters)
        is_open = self._may_begin and not has_begun
        opened = [
            part.set_all((counter.count_d == 0) & (not is_open), without=True)
            for part, counter in zip(self.parts, self._counters, strict=True)
        ]
        return any(opened)

    def follow(self, counter: WorkingCounter, domain: int) -> _Change:
        if self._may_begin and sum(int(each.count_d.sum()) for each in self._counters) <= len(self._counters):
            return _Change(None, self._set_all())  # the first task came, or the last one went
        part = self.parts[self._counters.index(counter)]
        return part.set_one(domain, is_closed=bool(counter.count_d[domain] == 0))


class _Separation(_Rule):
    """See `SeparationRule`."""

    __slots__ = ()

    def __init__(self, rule: SeparationRule, counter: WorkingCounter) -> None:
        super().__init__(rule.rejection, [counter])
        self.parts[0].set_all(counter.count_d > 0, without=False)

    def follow(self, counter: WorkingCounter, domain: int) -> _Change:
        return self.parts[0].set_one(domain, is_closed=bool(counter.count_d[domain] > 0))


class _Limit(_Rule):
    """See `LimitRule`."""

    __slots__ = ("_most_d", "most")

    def __init__(self, rule: LimitRule, counter: WorkingCounter) -> None:
        self._most_d = rule.most_d - rule.amount
        self.most = int(self._most_d[0]) if counter.domains.size == 1 else 0
        super().__init__(rule.rejection, [counter])
        self.parts[0].set_all(counter.count_d > self._most_d, without=False)

    def enter(self, counter: WorkingCounter) -> None:
        if counter.domains.size == 1:
            insort(counter.limits, self, key=attrgetter("most"))
        else:
            super().enter(counter)

    def follow(self, counter: WorkingCounter, domain: int) -> _Change:
        return self.parts[0].set_one(domain, is_closed=bool(counter.count_d[domain] > self._most_d[domain]))


class DomainFilter:
    """Which servers the rules of a class close. openings: grows when one may be open that was closed."""

    __slots__ = ("_closed_k", "_rules", "openings", "rules")

    def __init__(self, rules: DomainRules, states: list[_Rule]) -> None:
        self.rules = rules
        self.openings = 0
        self._rules = states
        self._closed_k: BoolArray | None = None
        for state in states:
            state.filters.append(self)

    @property
    def closed_k(self) -> BoolArray:
        """The servers that are closed now, shape (K,); not to be changed."""
        if self._closed_k is None:
            self._closed_k = np.logical_or.reduce([rule.compute_closed() for rule in self._rules])
        return self._closed_k

    def follow(self, change: _Change) -> bool:
        """Follow a rule that changed; True when a server may be open that was closed."""
        members, opens = change.members, change.may_open
        if self._closed_k is not None:
            if members is None:
                self._closed_k = None
            else:
                parts = [part.compute_closed(members) for rule in self._rules for part in rule.parts]
                now = np.logical_or.reduce(parts)
                opens = opens and bool((self._closed_k[members] & ~now).any())
                self._closed_k[members] = now
        self.openings += opens
        return opens

    def list_refusals(self, clear_k: BoolArray) -> list[tuple[Rejection, BoolArray]]:
        """Return which servers each rule closes, of those that nothing before it refuses."""
        refusals = []
        for rule in self._rules:
            refused_k = clear_k & rule.compute_closed()
            clear_k = clear_k & ~refused_k
            refusals.append((rule.rejection, refused_k))
        return refusals


class TopologyState:
    """All counters, rules and filters of a draft.

    A filter is made when it is asked for, or when a task is counted that one of its counters is about. Thousands of
    classes that are known to fit nowhere cost no more than that.
    """

    def __init__(self, task_classes: Iterable[TaskClass], held: Mapping[Hashable, int] = NOTHING_HELD) -> None:
        """task_classes: those that have rules or preferences. held: as in `Snapshot`."""
        self._held = held
        self._moved: dict[Hashable, int] = {}
        self._counters: dict[DomainCounter, WorkingCounter] = {}
        self._by_subject: dict[Hashable, list[WorkingCounter]] = {}
        self._rules: dict[DomainRule, _Rule] = {}
        self._filters: dict[DomainRules, DomainFilter] = {}
        self._trial: list[WorkingCounter | DomainFilter] | None = None
        """What a trial has counted in or opened, each time; None: there is no trial."""
        self._unmade: dict[Hashable, list[DomainRules | Preferences]] = {}
        """By subject, those of which no task was counted yet; afterwards the list is empty."""
        both = (each for task_class in task_classes for each in (task_class.rules, task_class.preferences))
        for each in dict.fromkeys(both):
            if each is not None:
                for subject in each.subjects:
                    self._unmade.setdefault(subject, []).append(each)

    def get_filter(self, rules: DomainRules | None) -> DomainFilter | None:
        """Return the filter of a class; None when it has no rules."""
        if rules is None:
            return None
        found = self._filters.get(rules)
        if found is None:
            found = DomainFilter(rules, [self._get_rule(rule) for rule in rules.rules])
            self._filters[rules] = found
        return found

    def count(self, task_class: TaskClass, server: int, sign: int) -> list[DomainFilter]:
        """Count a task on a server, or take it back, and return the filters that may have opened."""
        opened: list[DomainFilter] = []
        subjects, unmade = task_class.counts_as, self._unmade
        for subject in subjects if len(subjects) <= len(unmade) else [each for each in unmade if each in subjects]:
            if subject in unmade:
                opened.extend(self._add(subject, server, sign))
        for subject, amount in task_class.brings:
            if subject in unmade:
                opened.extend(self._add(subject, server, sign * amount))
        return opened

    def _add(self, subject: Hashable, server: int, amount: int) -> Iterator[DomainFilter]:
        """Add to all counters of a subject; yield the filters that may have opened."""
        for each in self._unmade[subject]:
            if isinstance(each, DomainRules):
                self.get_filter(each)
            else:
                self.get_counters(each)
        self._unmade[subject].clear()
        for counter in self._by_subject[subject]:
            domain = int(counter.domains.domain_k[server])
            if domain >= 0:
                counter.version += 1
                opened = list(counter.add(domain, amount))
                if self._trial is not None:
                    self._trial += [counter, *opened]
                yield from opened

    def move(self, subject: Hashable, amount: int) -> list[DomainFilter]:
        """Let the only domain of a subject's counters hold so much, and return the filters that may have opened.

        Nothing else counts there.
        """
        self._moved[subject] = amount
        opened: list[DomainFilter] = []
        for counter in self._by_subject.get(subject, ()):
            change = amount - int(counter.count_d[0])
            if change:
                counter.version += 1
                now_open = list(counter.add(0, change))
                if self._trial is not None:
                    self._trial += [counter, *now_open]
                opened += now_open
        return opened

    def begin_trial(self) -> None:
        """Begin to note what is counted and opened."""
        self._trial = []

    def end_trial(self) -> None:
        """Forget that something was counted and opened since `begin_trial`; all of it must have been taken back."""
        for each in self._trial or ():
            if isinstance(each, WorkingCounter):
                each.version -= 1
            else:
                each.openings -= 1
        self._trial = None

    def find_newly_closed(self) -> dict[DomainRules, BoolArray]:
        """Return which servers the placements so far closed to classes with the same rules, shape (K,), where any."""
        counted = [counter for counter in self._counters.values() if counter.version]
        followed = {
            each.rules for counter in counted for rule in (*counter.rules, *counter.limits) for each in rule.filters
        }
        start, closed = TopologyState((), self._held), dict[DomainRules, BoolArray]()
        for rules in followed:
            at_start, now = start.get_filter(rules), self._filters[rules]
            closed_k = now.closed_k & ~at_start.closed_k if at_start is not None else now.closed_k
            if closed_k.any():
                closed[rules] = closed_k
        return closed

    def get_counters(self, preferences: Preferences) -> list[WorkingCounter]:
        """Return the counters of preferences."""
        return [self.get_counter(counter) for counter in preferences.counters]

    def get_counter(self, counter: DomainCounter) -> WorkingCounter:
        """Return a counter as it is now."""
        known = self._counters.get(counter)
        if known is None:
            held = self._moved.get(counter.subject)
            held = self._held.get(counter.subject, 0) if held is None else held
            known = self._counters[counter] = WorkingCounter(counter, held)
            self._by_subject.setdefault(counter.subject, []).append(known)
        return known

    def _get_rule(self, rule: DomainRule) -> _Rule:
        known = self._rules.get(rule)
        if known is None:
            known = self._rules[rule] = self._make_rule(rule)
        return known

    def _make_rule(self, rule: DomainRule) -> _Rule:
        match rule:
            case SpreadRule():
                return _Spread(rule, self.get_counter(rule.counter))
            case AffinityRule():
                return _Affinity(rule, [self.get_counter(counter) for counter in rule.counters])
            case SeparationRule():
                return _Separation(rule, self.get_counter(rule.counter))
            case LimitRule():
                return _Limit(rule, self.get_counter(rule.counter))


def sum_by_domain(slots_k: FloatArray, domains: Domains) -> FloatArray:
    """Return the slots of each domain, shape (D,)."""
    inside_k = domains.domain_k != NO_DOMAIN
    sums_d = np.bincount(domains.domain_k[inside_k], weights=slots_k[inside_k], minlength=domains.size)
    return sums_d.astype(np.float64)
