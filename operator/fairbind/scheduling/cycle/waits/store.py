"""The waits of classes that fit nowhere: in their order, and by where their tasks may fit.

From one cycle to the next a few of thousands come and go. One that does costs a search in what is sorted, and a row of
an array, however many there are. Where a server has free capacity again, one comparison of arrays tells which may fit
there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import gt, itemgetter
from typing import NamedTuple

import numpy as np

from fairbind.model import Placement, TaskClass, TimeReached, Until, Wait
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.scheduling.cycle.order.task_queues import SortKey, SortRule
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.waits.ends import Ends, Usage
from fairbind.scheduling.cycle.waits.reaches import identify_reach

SINGLES_PART = 16
"""Fewer than one in so many are put into their places one by one; more are sorted with all the rest."""

SINGLE_CLASSES = 16
"""So many are compared one by one sooner than by arrays (measured)."""

MANY_SERVERS = 8
"""Of more servers arrays are asked sooner than each (measured)."""

MANY_GROWN = 128
"""Where more servers have grown, what they have come to hold is not counted: all are looked at."""

_Key = tuple[str, SortKey]

_TenantReach = tuple[str, Placement, str | None]
"""A tenant, and what is the same for classes that may use the same servers."""


class Remembered:
    """Waits by tenant and sort key, one for a class. rule: gives the sort key.

    _index: None: to be made of all when it is asked. _reserved: the classes that may use reserved capacity.
    _reaches: for each tenant and reach, what classes ask for that are at no limit, and one that has it. _ends: waits by
    what else ends them. _of_group: the classes of each group, by its name.
    _slotted: those that wait for several tasks at once, by placement.
    """

    __slots__ = (
        "_ends",
        "_index",
        "_keys",
        "_of_group",
        "_ordered",
        "_reaches",
        "_reserved",
        "_slotted",
        "_wait_of",
        "_waits",
        "rule",
    )

    def __init__(self, rule: SortRule) -> None:
        self.rule = rule
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._wait_of: dict[TaskClass, Wait] = {}
        self._keys: list[_Key] = []
        self._ordered: list[Wait] = []
        self._waits: tuple[Wait, ...] | None = ()
        self._index: _Index | None = None
        self._ends = Ends()
        self._reserved: dict[TaskClass, None] = {}
        self._reaches: dict[_TenantReach, _Count] = {}
        self._of_group: dict[str, dict[TaskClass, None]] = {}
        self._slotted: dict[Placement, _SlottedDemands] = {}

    def __len__(self) -> int:
        return len(self._ordered)

    def __contains__(self, task_class: TaskClass) -> bool:
        return task_class in self._wait_of

    def __getitem__(self, task_class: TaskClass) -> Wait:
        return self._wait_of[task_class]

    @property
    def waits(self) -> tuple[Wait, ...]:
        """All in their order; the same object while nothing changes."""
        if self._waits is None:
            self._waits = tuple(self._ordered)
        return self._waits

    def list_with(self, others: Collection[Wait]) -> tuple[Wait, ...]:
        """Return all and others in their order."""
        if not others:
            return self.waits
        entries = sorted([(self.compute_key(wait), wait) for wait in others], key=itemgetter(0), reverse=True)
        if len(entries) * SINGLES_PART < len(self._ordered):
            waits = self._ordered.copy()
            for key, wait in entries:  # the last first, so that the places of those before stay what they are
                waits.insert(bisect_left(self._keys, key), wait)
            return tuple(waits)
        entries.extend(zip(self._keys, self._ordered, strict=True))
        entries.sort(key=itemgetter(0))
        return tuple([wait for _, wait in entries])

    def list_tenants(self) -> set[str]:
        """Return whose classes wait."""
        return {tenant for tenant, _, _ in self._reaches}

    def list_of(self, tenant: str) -> list[Wait]:
        """Return the waits of a tenant, by sort key."""
        start = bisect_left(self._keys, tenant, key=itemgetter(0))
        return self._ordered[start : bisect_right(self._keys, tenant, lo=start, key=itemgetter(0))]

    def list_reaches(self) -> list[tuple[TaskClass, Collection[tuple[int, ...]]]]:
        """Return a class for each tenant and reach that there is (`identify_reach`), and what those like it ask for."""
        return [(count.example, count.demands.keys()) for count in self._reaches.values()]

    def compute_key(self, wait: Wait) -> _Key:
        """Return what orders waits."""
        return wait.task_class.tenant, self.rule(wait.first)

    def change(self, added: Collection[Wait] = (), removed: Collection[TaskClass] = ()) -> None:
        """Take the waits of some classes that are not here, and forget those of others that are."""
        if not (added or removed):
            return
        self._waits = None
        if (len(added) + len(removed)) * SINGLES_PART < len(self._ordered):
            for task_class in removed:
                self._remove(task_class)
            for wait in added:
                self._add(wait)
        else:
            self._change_many(added, removed)

    def find_fitting(self, grown: IndexArray, free: FreeCapacity, before_rk: FloatArray) -> Iterable[Fitting]:
        """Return the classes of which a task may fit on one of the servers that have gained free capacity.

        Of classes that wait for more than one task those of which so many more fit on these servers together.
        before_rk: what was left at the last look, shape (R, K).
        """
        if self._reserved:  # whatever is left, which what is reserved is not part of
            yield Fitting(list(self._reserved), is_plain=False)
        if not len(grown):
            return
        if self._index is None:
            self._index = _Index()
            for wait in self._ordered:
                if not wait.task_class.placement.reserved:
                    self._index.add(wait)
        yield from self._index.find_fitting(grown, free)
        for slotted in self._slotted.values():
            yield Fitting(slotted.find_fitting(grown, free, before_rk), is_plain=False)

    def find_of_groups(self, others: Iterable[TaskClass]) -> list[TaskClass]:
        """Return the classes whose groups are those of others: a group is looked at as a whole."""
        if not self._of_group:
            return []
        names = dict.fromkeys(each.group.name for each in others if each.group is not None)
        return [each for name in names for each in self._of_group.get(name, ())]

    def find_next_time(self, others: Iterable[Wait], now: float) -> float | None:
        """Return the first time after now that ends one of these waits or of others; None: none does."""
        untils: Iterable[Until] = chain(self._ends.times, *(wait.until for wait in others))
        times = (until.time for until in untils if isinstance(until, TimeReached))
        return min((time for time in times if time > now), default=None)

    def find_ended(self, events: Iterable[Until], usage: Usage, now: float) -> Collection[TaskClass]:
        """Return the classes whose wait may have ended otherwise than by free capacity. See `Ends`."""
        return self._ends.find_ended(events, usage, now)

    def _remove(self, task_class: TaskClass) -> None:
        wait = self._wait_of.pop(task_class)
        n = self._find(wait)
        del self._keys[n], self._ordered[n]
        self._note_gone(wait)

    def _add(self, wait: Wait) -> None:
        key = self.compute_key(wait)
        n = bisect_left(self._keys, key)
        self._keys.insert(n, key)
        self._ordered.insert(n, wait)
        self._wait_of[wait.task_class] = wait
        self._note(wait)

    def _find(self, wait: Wait) -> int:
        n = bisect_left(self._keys, self.compute_key(wait))
        while self._ordered[n] is not wait:
            n += 1
        return n

    def _change_many(self, added: Collection[Wait], removed: Collection[TaskClass]) -> None:
        self._index = None
        wait_of = self._wait_of
        for task_class in removed:
            self._note_gone(wait_of.pop(task_class))
        entries = list(zip(self._keys, self._ordered, strict=True))
        if removed:
            entries = [entry for entry in entries if entry[1].task_class in wait_of]
        for wait in added:
            wait_of[wait.task_class] = wait
            self._note(wait)
        entries.extend((self.compute_key(wait), wait) for wait in added)
        entries.sort(key=itemgetter(0))
        self._keys, self._ordered = [key for key, _ in entries], [wait for _, wait in entries]

    def _note(self, wait: Wait) -> None:
        """Take a class that was added where classes are found by something."""
        task_class = wait.task_class
        if task_class.group is not None:
            self._of_group.setdefault(task_class.group.name, {})[task_class] = None
        if not wait.is_for_capacity:
            self._ends.add(wait)
        if wait.at_limit is None:
            self._count_reach(task_class)
        if task_class.placement.reserved:
            self._reserved[task_class] = None
        elif (missing := wait.missing_slots) is not None:
            placement = task_class.placement
            self._slotted.setdefault(placement, _SlottedDemands(placement)).add(task_class, missing)
        elif self._index is not None:
            self._index.add(wait)

    def _note_gone(self, wait: Wait) -> None:
        task_class = wait.task_class
        if task_class.group is not None:
            siblings = self._of_group[task_class.group.name]
            del siblings[task_class]
            if not siblings:
                del self._of_group[task_class.group.name]
        if not wait.is_for_capacity:
            self._ends.discard(wait)
        if wait.at_limit is None:
            self._discount_reach(task_class)
        if task_class.placement.reserved:
            del self._reserved[task_class]
        elif wait.missing_slots is not None:
            slotted = self._slotted[task_class.placement]
            slotted.discard(task_class)
            if not slotted:
                del self._slotted[task_class.placement]
        elif self._index is not None:
            self._index.discard(wait)

    def _count_reach(self, task_class: TaskClass) -> None:
        reach = task_class.tenant, *identify_reach(task_class)
        count = self._reaches.get(reach)
        if count is None:
            count = self._reaches[reach] = _Count(task_class)
        count.demands[task_class.demand_r] = count.demands.get(task_class.demand_r, 0) + 1

    def _discount_reach(self, task_class: TaskClass) -> None:
        reach = task_class.tenant, *identify_reach(task_class)
        count = self._reaches[reach]
        count.demands[task_class.demand_r] -= 1
        if not count.demands[task_class.demand_r]:
            del count.demands[task_class.demand_r]
        if not count.demands:
            del self._reaches[reach]


@dataclass(slots=True)
class _Count:
    """How many classes there are, by demand. example: one of them, or one of those that have gone."""

    example: TaskClass
    demands: dict[tuple[int, ...], int] = field(default_factory=dict)


class Fitting(NamedTuple):
    """Classes of which a task may fit somewhere.

    is_plain: whether all are such as may use more than one server and for which nothing but free capacity there can
    make more of them fit within a cycle. demand_rn: what each asks for, shape (R, n), if it is known.
    """

    classes: list[TaskClass]
    is_plain: bool
    demand_rn: FloatArray | None = None

    def compute_demands(self, axes: int) -> FloatArray:
        """Return what each asks for, shape (R, n), also of no classes. axes: R."""
        return compute_demands(self.classes, axes) if self.demand_rn is None else self.demand_rn


class _Demands:
    """What classes with one placement ask for. is_plain: see `Fitting`; of all of them, or of none.

    _demand_rn: a column for each, and for more to come, shape (R, n); None: not made yet. float64 is exact, as in
    `FreeCapacity`.
    """

    __slots__ = ("_classes", "_demand_rn", "_place_of", "is_plain", "placement")

    def __init__(self, placement: Placement, *, is_plain: bool) -> None:
        self.placement = placement
        self.is_plain = is_plain
        self._classes: list[TaskClass] = []
        self._place_of: dict[TaskClass, int] = {}
        self._demand_rn: FloatArray | None = None

    def __len__(self) -> int:
        return len(self._classes)

    def add(self, task_class: TaskClass) -> None:
        place = self._place_of[task_class] = len(self._classes)
        self._classes.append(task_class)
        if self._demand_rn is not None:
            if place == self._demand_rn.shape[1]:
                self._demand_rn = np.concatenate((self._demand_rn, np.empty_like(self._demand_rn)), axis=1)
            self._demand_rn[:, place] = task_class.demand_r

    def discard(self, task_class: TaskClass) -> None:
        """Take a class out; the last one takes its place."""
        place, last = self._place_of.pop(task_class), self._classes.pop()
        if last is not task_class:
            self._classes[place] = last
            self._place_of[last] = place
            if self._demand_rn is not None:
                self._demand_rn[:, place] = self._demand_rn[:, len(self._classes)]

    def find_fitting(self, most_r: Sequence[float]) -> Fitting:
        """Return the classes that ask for no more than this of anything."""
        classes = self._classes
        if len(classes) < SINGLE_CLASSES:
            return Fitting(choose_fitting(classes, most_r), self.is_plain)
        if self._demand_rn is None:
            self._demand_rn = compute_demands(classes, len(most_r))
        places = np.flatnonzero((self._demand_rn[:, : len(classes)] <= np.array(most_r)[:, None]).all(axis=0))
        return Fitting([classes[n] for n in places.tolist()], self.is_plain, self._demand_rn[:, places])


class _SlottedDemands:
    """Classes with one placement that wait for several tasks at once.

    _missing: for how many more of each; what comes free is taken off it, and what is taken meanwhile is not added: so a
    class is found too early, and never too late.
    """

    __slots__ = ("_demands", "_missing", "placement")

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._missing: dict[TaskClass, float] = {}
        self._demands: FloatArray | None = None

    def __len__(self) -> int:
        return len(self._missing)

    def add(self, task_class: TaskClass, missing: int) -> None:
        self._missing[task_class] = missing
        self._demands = None

    def discard(self, task_class: TaskClass) -> None:
        del self._missing[task_class]
        self._demands = None

    def find_fitting(self, grown: IndexArray, free: FreeCapacity, before_rk: FloatArray) -> list[TaskClass]:
        """Return the classes of which enough have come to fit on servers that have grown, shape (n,)."""
        servers = grown[self.placement.eligible_k[grown]]
        if len(servers) > MANY_GROWN:
            return list(self._missing)
        if self._demands is None:
            self._demands = compute_demands(list(self._missing), len(free.left_rk))
            self._demands[self._demands == 0] = np.nan  # what is not asked for bounds nothing
        gained_n = np.zeros(len(self._missing))
        for server in servers.tolist():
            now_n = np.fmin.reduce(free.left_rk[:, server, None] // self._demands, axis=0)
            gained_n += np.maximum(now_n - np.fmin.reduce(before_rk[:, server, None] // self._demands, axis=0), 0)
        missing_n = np.fromiter(self._missing.values(), dtype=np.float64) - np.nan_to_num(gained_n, nan=np.inf)
        self._missing = dict(zip(self._missing, missing_n.tolist(), strict=True))
        return [each for each, missing in self._missing.items() if missing <= 0]


class _Index:
    """Classes by where their tasks may go: by placement, and by server those that may go to that one only."""

    __slots__ = ("_by_pin", "_by_placement")

    def __init__(self) -> None:
        self._by_placement: dict[tuple[Placement, bool], _Demands] = {}
        self._by_pin: dict[int, dict[TaskClass, None]] = {}

    def add(self, wait: Wait) -> None:
        """Take a class, if free capacity for one task may end its wait."""
        if not wait.is_ended_by_capacity or wait.missing_slots is not None:
            return
        task_class = wait.task_class
        placement, pin = task_class.placement, task_class.pin
        if pin is None:
            key = placement, is_plain(wait)
            demands = self._by_placement.get(key)
            if demands is None:
                demands = self._by_placement[key] = _Demands(placement, is_plain=key[1])
            demands.add(task_class)
        elif pin.server is not None:
            self._by_pin.setdefault(pin.server, {})[task_class] = None

    def discard(self, wait: Wait) -> None:
        """Forget a class that was added or offered to `add`."""
        if not wait.is_ended_by_capacity or wait.missing_slots is not None:
            return
        task_class, pin = wait.task_class, wait.task_class.pin
        if pin is None:
            key = task_class.placement, is_plain(wait)
            demands = self._by_placement[key]
            demands.discard(task_class)
            if not demands:
                del self._by_placement[key]
        elif pin.server is not None:
            pinned = self._by_pin[pin.server]
            del pinned[task_class]
            if not pinned:
                del self._by_pin[pin.server]

    def find_fitting(self, grown: IndexArray, free: FreeCapacity) -> Iterator[Fitting]:
        servers, left_nr = grown.tolist(), free.left_rk[:, grown].T.tolist()
        for demands in self._by_placement.values():
            eligible_k = demands.placement.eligible_k
            if len(servers) > MANY_SERVERS:
                allowed_n = eligible_k[grown]
                most_r = free.left_rk[:, grown[allowed_n]].max(axis=1).tolist() if allowed_n.any() else None
            else:
                allowed = [left_r for server, left_r in zip(servers, left_nr, strict=True) if eligible_k[server]]
                most_r = list(map(max, *allowed)) if len(allowed) > 1 else next(iter(allowed), None)
            if most_r is not None:
                yield demands.find_fitting(most_r)
        for server, left_r in zip(servers, left_nr, strict=True) if self._by_pin else ():
            pinned = self._by_pin.get(server)
            if pinned:
                yield Fitting(choose_fitting(pinned, left_r), is_plain=False)


def compute_demands(classes: Sequence[TaskClass], axes: int) -> FloatArray:
    """Return what each class asks for, shape (R, n), also of no classes. axes: R."""
    return np.array([each.demand_r for each in classes], dtype=np.float64).reshape(len(classes), axes).T.copy()


def choose_fitting(classes: Iterable[TaskClass], most_r: Sequence[float]) -> list[TaskClass]:
    """Return the classes that ask for no more than this of anything."""
    return [each for each in classes if not any(map(gt, each.demand_r, most_r))]


def is_plain(wait: Wait) -> bool:
    """Whether nothing but free capacity on a server ends a wait or lets more of its class fit within a cycle."""
    return wait.is_for_capacity and is_about_capacity_only(wait.task_class)


def is_about_capacity_only(task_class: TaskClass) -> bool:
    """Whether nothing but free capacity on a server lets more of a class fit within a cycle."""
    return task_class.group is None and has_limits_only(task_class) and not task_class.placement.reserved


def has_limits_only(task_class: TaskClass) -> bool:
    """Whether a class has no rules, or only such as close servers with what is placed there, and open none."""
    return task_class.rules is None or task_class.rules.are_limits
