"""What fitted nowhere at the end of one cycle, so that the next ones need not look at it until more is free for it.

A tenant may have thousands of different kinds of pods wait. To find for each, in every cycle, that it still fits
nowhere, and to explain it again, costs all decisions ten microseconds a kind. From one cycle to the next only a
few servers gain free capacity: what fitted nowhere can fit there only. A kind that is not looked at keeps its
explanation.

Many kinds may fit where servers have free capacity again, and the first of them takes it. Where these servers are few,
the others are asked about them only, and unless the cycle is to explain, when their tenant comes: what does not fit
any more then keeps its explanation, too.

Free capacity ends most waits. A wait says what else may end it (`Wait.until`). The part that learns of such an event
tells it (`note_event`), and what tenants hold and the time are compared in each cycle. The report says when the first
time comes for which a class waits (`CycleReport.again_in`).

Nothing of this depends on what becomes of the decisions. Free capacity and keys are compared as they were after them. A
kind that only rules about what they placed keep from a server is looked at again, whether they were carried out, taken
back, or have ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from operator import gt
from typing import NamedTuple

import numpy as np

from fairbind.model import DomainRules, Domains, Event, LimitRule, Placement, ServerTable, Snapshot, TaskClass, Wait
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.cycle.order.task_queues import SortRule, compute_sort_key
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.scored_demands import SINGLE_SCORES
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.cycle.waits.deferred import NOTHING_DEFERRED, DeferredClasses
from fairbind.scheduling.cycle.waits.store import Remembered, has_limits_only, is_plain

MANY_CLASSES = 200
"""With fewer classes everything is looked at in every cycle: explanations are those of now."""


class Recalled(NamedTuple):
    """What fits nowhere, and all others.

    remembered: the draft changes it. deferred: of it, what one of a few servers has free capacity for now, if others do
    not take it before. others: the other classes. replaced: of these, those that may go elsewhere than before and fit
    nowhere either. remembered_waits: of the same, what fitted nowhere, with explanations that hold if it still does,
    with older counts. only_servers: of the same, what may fit on these servers only.
    """

    remembered: Remembered
    deferred: DeferredClasses
    replaced: AbstractSet[TaskClass]
    others: Sequence[TaskClass]
    remembered_waits: dict[TaskClass, Wait]
    only_servers: dict[TaskClass, Sequence[int]]


class _Before(NamedTuple):
    """What the next snapshot is compared with. A whole one would hold on to arrays whose memory serves the next."""

    task_classes: tuple[TaskClass, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    accepting_k: BoolArray


class UnschedulableCache:
    """Classes that fitted nowhere, from one cycle to the next; for callers of `run_cycle` that make many of them.

    A wait stays valid for a task class that is the same object in both snapshots. All other classes are looked at.

    _before: of the last cycle, all of whose classes are remembered or among `_others`; None: there was none, or it did
    not come to its end.
    """

    __slots__ = (
        "_before",
        "_events",
        "_left_rk",
        "_next_forgotten",
        "_others",
        "_remembered",
        "_taken_keys",
    )

    def __init__(self) -> None:
        self._before: _Before | None = None
        self._left_rk: FloatArray = np.zeros((0, 0))
        self._taken_keys: dict[int, frozenset[str]] = {}
        self._remembered = Remembered(compute_sort_key)
        self._others: dict[TaskClass, None] = {}
        self._next_forgotten = 0
        self._events: set[Event] = set()

    def note_event(self, event: Event) -> None:
        """Have the next cycle look at the classes whose wait this ends."""
        self._events.add(event)

    def forget(self) -> None:
        """Have the next cycle look at everything."""
        self._events.clear()
        self._remembered.clear()
        self._others, self._before = {}, None

    def forget_some(self, most: int) -> None:
        """Forget so many waits, so that the next cycle looks at these classes.

        Calls rotate: each of n waits is forgotten once in ceil(n / most) calls.
        """
        waits = self._remembered.waits
        count = len(waits)
        if count <= most:
            self.forget()
            return
        first = self._next_forgotten if self._next_forgotten < count else 0
        self._next_forgotten = (first + most) % count
        gone = [waits[n % count].task_class for n in range(first, first + most)]
        self._remembered.change(removed=gone)
        self._others.update(dict.fromkeys(gone))

    def keep(
        self, snapshot: Snapshot, free: FreeCapacity, topology: TopologyState, others: Iterable[TaskClass]
    ) -> None:
        """End a cycle, in which what was recalled was changed to what fits nowhere now.

        free, topology: at its end. others: all classes that are not remembered; those that are may be among
        them.
        """
        passing = self._find_passing(snapshot.servers, free, topology)
        servers = snapshot.servers
        self._before = _Before(snapshot.task_classes, snapshot.resources, servers.names, servers.accepting_k)
        self._left_rk, self._taken_keys = free.left_rk, free.taken_keys
        remembered = self._remembered
        remembered.change(removed=passing)
        self._others = dict.fromkeys(each for each in chain(others, passing) if each not in remembered)

    def _find_passing(self, servers: ServerTable, free: FreeCapacity, topology: TopologyState) -> list[TaskClass]:
        """Return the remembered classes that only rules about what this cycle placed keep from some server."""
        closed, found = topology.find_newly_closed(), list[TaskClass]()
        most: dict[tuple[Placement, DomainRules], Sequence[float] | None] = {}
        for wait in self._remembered.waits if closed else ():
            task_class = wait.task_class
            rules, placement, pin = task_class.rules, task_class.placement, task_class.pin
            if rules is None or rules not in closed:
                continue
            if pin is not None:
                is_kept = pin.server is not None and bool(closed[rules][pin.server])
                most_r = free.left_rk[:, pin.server].tolist() if is_kept else None
            else:
                key = placement, rules
                if key not in most:
                    kept_k = closed[rules] & placement.eligible_k & servers.accepting_k
                    most[key] = free.left_rk[:, kept_k].max(axis=1).tolist() if kept_k.any() else None
                most_r = most[key]
            if most_r is not None and not any(map(gt, task_class.demand_r, most_r)):
                found.append(task_class)
        return found

    def recall(
        self, snapshot: Snapshot, free: FreeCapacity, rule: SortRule, *, defers: bool = False, now: float = 0.0
    ) -> Recalled:
        """Return what still fits nowhere, and all others. free: before any decision. now: ends waits for time.

        Where no `keep` follows, the next cycle looks at everything.
        defers: whether what may fit on few servers is deferred where it can be.
        """
        before, self._before = self._before, None
        events, self._events = self._events, set()
        if before is None or not len(self._remembered) or not self._goes_with(before, snapshot, rule):
            if len(self._remembered) or self._remembered.rule is not rule:
                self._remembered = Remembered(rule)
            return Recalled(self._remembered, NOTHING_DEFERRED, frozenset(), snapshot.task_classes, {}, {})
        remembered, others, changes = self._remembered, self._others, snapshot.compute_changes(before.task_classes)
        removed = [each for each in changes.removed if others.pop(each, each) is each]
        waited_for_capacity = [each for each in removed if each.group is None and remembered[each].is_for_capacity]
        remembered.change(removed=removed)
        others.update(dict.fromkeys(changes.added))
        grown = self._find_grown(before.accepting_k, snapshot.servers, free)
        replaced = set(_find_still_stuck(changes.added, waited_for_capacity, snapshot.servers, grown, free))
        parts = list(remembered.find_fitting(grown, free, np.where(before.accepting_k, self._left_rk, 0)))
        servers = grown.tolist() if len(grown) <= SINGLE_SCORES else []
        defers = defers and bool(servers)
        deferred = (
            DeferredClasses([part for part in parts if part.is_plain], servers, free) if defers else NOTHING_DEFERRED
        )
        ended = remembered.find_ended(events, snapshot.held, now)
        fitting = [each for part in parts if not (part.is_plain and defers) for each in part.classes]
        fitting = [*(each for each in fitting if each not in ended), *ended]
        fitting = list(dict.fromkeys([*fitting, *remembered.find_of_groups([*fitting, *others])]))
        remembered_waits = {each: wait for each in fitting if (wait := remembered[each]).is_for_capacity}
        only_servers = {each: servers for each in fitting if servers and is_plain(remembered[each])}
        remembered.change(removed=fitting)
        others.update(dict.fromkeys(fitting))
        return Recalled(remembered, deferred, replaced, list(others), remembered_waits, only_servers)

    def _goes_with(self, before: _Before, snapshot: Snapshot, rule: SortRule) -> bool:
        """Whether what is remembered goes with these servers and this order."""
        is_same = snapshot.servers.names == before.names and snapshot.resources == before.resources
        return is_same and rule is self._remembered.rule

    def _find_grown(self, accepted_k: BoolArray, servers: ServerTable, free: FreeCapacity) -> IndexArray:
        """Return the servers on which something may fit that did not."""
        grown_k = (free.left_rk > self._left_rk).any(axis=0) | ~accepted_k
        for server, keys in self._taken_keys.items():
            if not keys <= free.taken_keys.get(server, frozenset()):
                grown_k[server] = True
        return np.flatnonzero(grown_k & servers.accepting_k)


def _find_still_stuck(
    added: Iterable[TaskClass],
    removed: Iterable[TaskClass],
    servers: ServerTable,
    grown: IndexArray,
    free: FreeCapacity,
) -> Iterator[TaskClass]:
    """Yield those that were added that fit nowhere: neither did the class in whose place they stand.

    removed: remembered classes. grown: the servers on which something may fit that did not.
    """
    old = {task_class.tasks[0].uid: task_class for task_class in removed}
    for task_class in added if old else ():
        former = old.get(task_class.tasks[0].uid)
        if former is not None and former.tasks is task_class.tasks and _is_elsewhere_only(former, task_class):
            opened_k = ~former.placement.eligible_k | _find_unlimited(task_class)
            opened_k[grown] = True
            opened_k &= task_class.placement.eligible_k & servers.accepting_k
            most_r = free.left_rk[:, opened_k].max(axis=1, initial=-1.0)
            if any(map(gt, task_class.demand_r, most_r.tolist())):
                yield task_class


def _list_limits(task_class: TaskClass) -> list[LimitRule]:
    """Return the limits among the rules of a class."""
    rules = () if task_class.rules is None else task_class.rules.rules
    return [rule for rule in rules if isinstance(rule, LimitRule)]


def _find_unlimited(task_class: TaskClass) -> BoolArray | bool:
    """Return the servers that limits of a class may have closed before, but do not now, shape (K,)."""
    limits = _list_limits(task_class)
    return np.logical_or.reduce([rule.compute_open() for rule in limits]) if limits else False


def _list_limited(task_class: TaskClass) -> list[tuple[Domains, int]]:
    """Return what the limits of a class are about, but for how much there is of it."""
    return [(rule.counter.domains, rule.amount) for rule in _list_limits(task_class)]


def _is_elsewhere_only(before: TaskClass, after: TaskClass) -> bool:
    """Whether a class differs from one with the same tasks in where it may go, and in nothing else that matters here.

    Most rules about domains, pins and reserved capacity close servers in other ways, so classes with them are looked
    at.
    """
    if not (has_limits_only(before) and has_limits_only(after)):
        return False
    is_plain = _list_limited(before) == _list_limited(after) and after.blocked is None and not after.placement.reserved
    was_plain = before.pin is None and not before.placement.reserved
    is_same = after.group == before.group and after.demand_r == before.demand_r
    is_same = is_same and after.placement.exclusive_keys == before.placement.exclusive_keys
    return is_plain and was_plain and is_same
