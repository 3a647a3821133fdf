"""The waits of classes that fit nowhere: in their order, and by where their tasks may fit.

From one cycle to the next a few of thousands come and go. One that does costs a search in what is sorted, and a row of
an array, however many there are. Where a server has room again, one comparison of arrays tells which may fit there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import gt, itemgetter
from typing import NamedTuple

import numpy as np

from fairbind.model import Placement, TaskClass, Wait
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.scheduling.cycle.room import Room
from fairbind.scheduling.cycle.task_queues import Turn, TurnRule

FEW_PART = 16
"""Fewer than one in so many are put into their places one by one; more are sorted with all the rest."""

FEW_CLASSES = 16
"""So many are compared one by one sooner than by arrays (measured)."""

_Key = tuple[str, Turn]


class Remembered:
    """Waits by tenant and turn, one for a class, which is told by its identity. rule: gives the turn."""

    __slots__ = ("_index", "_keys", "_listed", "_ordered", "_wait_of", "rule")

    def __init__(self, rule: TurnRule) -> None:
        self.rule = rule
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._wait_of: dict[int, Wait] = {}
        self._keys: list[_Key] = []
        self._ordered: list[Wait] = []
        self._listed: tuple[Wait, ...] | None = ()
        self._index = _Index()

    def __len__(self) -> int:
        return len(self._ordered)

    def __contains__(self, task_class: TaskClass) -> bool:
        return id(task_class) in self._wait_of

    def __iter__(self) -> Iterator[Wait]:
        return iter(self._ordered)

    def __getitem__(self, task_class: TaskClass) -> Wait:
        return self._wait_of[id(task_class)]

    def list(self) -> tuple[Wait, ...]:
        """Return all in their order; the same object while nothing changes."""
        if self._listed is None:
            self._listed = tuple(self._ordered)
        return self._listed

    def compute_key(self, wait: Wait) -> _Key:
        """Return what orders waits."""
        return wait.task_class.tenant, self.rule(wait.first)

    def change(self, gone: Collection[TaskClass] = (), came: Collection[Wait] = ()) -> None:
        """Forget the waits of some classes, which must be here, and take others, also in place of those of a class."""
        if gone or came:
            self._listed = None
        if (len(gone) + len(came)) * FEW_PART < len(self._ordered):
            for task_class in gone:
                self._remove(task_class)
            for wait in came:
                self._put(wait)
        else:
            self._change_many(gone, came)

    def find_fitting(self, grown: IndexArray, room: Room) -> Iterable[Fitting]:
        """Return the classes of which a task may fit on one of the servers that have gained room."""
        return self._index.find_fitting(grown, room)

    def _remove(self, task_class: TaskClass) -> None:
        wait = self._wait_of.pop(id(task_class))
        n = self._find(wait)
        del self._keys[n], self._ordered[n]
        self._index.discard(task_class)

    def _put(self, wait: Wait) -> None:
        task_class = wait.task_class
        before = self._wait_of.get(id(task_class))
        self._wait_of[id(task_class)] = wait
        if before is not None:
            self._ordered[self._find(before)] = wait
            return
        key = self.compute_key(wait)
        n = bisect_left(self._keys, key)
        self._keys.insert(n, key)
        self._ordered.insert(n, wait)
        self._index.add(task_class)

    def _find(self, wait: Wait) -> int:
        n = bisect_left(self._keys, self.compute_key(wait))
        while self._ordered[n] is not wait:
            n += 1
        return n

    def _change_many(self, gone: Collection[TaskClass], came: Collection[Wait]) -> None:
        wait_of, index = self._wait_of, self._index
        index.forget_arrays()
        for task_class in gone:
            del wait_of[id(task_class)]
            index.discard(task_class)
        for wait in came:
            if wait.task_class not in self:
                index.add(wait.task_class)
            wait_of[id(wait.task_class)] = wait
        pairs = zip(self._keys, self._ordered, strict=True)
        entries = [(key, wait) for key, wait in pairs if wait_of.get(id(wait.task_class)) is wait]
        entries.extend((self.compute_key(wait), wait) for wait in came)
        entries.sort(key=itemgetter(0))
        self._keys, self._ordered = [key for key, _ in entries], [wait for _, wait in entries]


class Fitting(NamedTuple):
    """Classes of which a task may fit somewhere.

    demand_rn: what each asks for, shape (R, n); None: they are few. is_plain: whether all are such as may use more than
    one server and for which nothing but room there can make more of them fit within a cycle.
    """

    classes: list[TaskClass]
    demand_rn: FloatArray | None
    is_plain: bool


class _Demands:
    """What classes with one placement ask for. is_plain: see `Fitting`, of all of them or of none.

    _demand_rn: a column for each, and for more to come, shape (R, n); None: not made yet. float64 is exact, as in
    `Room`.
    """

    __slots__ = ("_classes", "_demand_rn", "_place_of", "is_plain", "placement")

    def __init__(self, placement: Placement, *, is_plain: bool) -> None:
        self.placement = placement
        self.is_plain = is_plain
        self._classes: list[TaskClass] = []
        self._place_of: dict[int, int] = {}
        self._demand_rn: FloatArray | None = None

    def __len__(self) -> int:
        return len(self._classes)

    def __iter__(self) -> Iterator[TaskClass]:
        return iter(self._classes)

    def add(self, task_class: TaskClass) -> None:
        place = self._place_of[id(task_class)] = len(self._classes)
        self._classes.append(task_class)
        if self._demand_rn is not None:
            if place == self._demand_rn.shape[1]:
                self._demand_rn = np.concatenate((self._demand_rn, np.empty_like(self._demand_rn)), axis=1)
            self._demand_rn[:, place] = task_class.demand_r

    def discard(self, task_class: TaskClass) -> None:
        """Take a class out; the last one takes its place."""
        place, last = self._place_of.pop(id(task_class)), self._classes.pop()
        if last is not task_class:
            self._classes[place] = last
            self._place_of[id(last)] = place
            if self._demand_rn is not None:
                self._demand_rn[:, place] = self._demand_rn[:, len(self._classes)]

    def forget_array(self) -> None:
        self._demand_rn = None

    def find_fitting(self, most_r: FloatArray) -> Fitting:
        """Return the classes that ask for no more than this of anything."""
        classes = self._classes
        if len(classes) < FEW_CLASSES:
            return Fitting(choose_fitting(classes, most_r.tolist()), None, self.is_plain)
        if self._demand_rn is None:
            self._demand_rn = np.array([each.demand_r for each in classes], dtype=np.float64).T.copy()
        fitting = np.flatnonzero((self._demand_rn[:, : len(classes)] <= most_r[:, None]).all(axis=0))
        return Fitting([classes[n] for n in fitting.tolist()], self._demand_rn[:, fitting], self.is_plain)


class _Index:
    """Classes by where their tasks may go: by placement, and by server those that may go to that one only."""

    __slots__ = ("_by_pin", "_by_placement")

    def __init__(self) -> None:
        self._by_placement: dict[tuple[int, bool], _Demands] = {}
        self._by_pin: dict[int, dict[int, TaskClass]] = {}

    def add(self, task_class: TaskClass) -> None:
        placement, pin = task_class.placement, task_class.pin
        if pin is None or placement.reserved:
            is_plain = is_about_room_only(task_class)
            demands = self._by_placement.get((id(placement), is_plain))
            if demands is None:
                demands = self._by_placement[id(placement), is_plain] = _Demands(placement, is_plain=is_plain)
            demands.add(task_class)
        elif pin.server is not None:
            self._by_pin.setdefault(pin.server, {})[id(task_class)] = task_class

    def discard(self, task_class: TaskClass) -> None:
        placement, pin = task_class.placement, task_class.pin
        if pin is None or placement.reserved:
            key = id(placement), is_about_room_only(task_class)
            demands = self._by_placement[key]
            demands.discard(task_class)
            if not demands:
                del self._by_placement[key]
        elif pin.server is not None:
            pinned = self._by_pin[pin.server]
            del pinned[id(task_class)]
            if not pinned:
                del self._by_pin[pin.server]

    def forget_arrays(self) -> None:
        """Many classes are about to come or go: what is known of each placement is cheaper made again."""
        for demands in self._by_placement.values():
            demands.forget_array()

    def find_fitting(self, grown: IndexArray, room: Room) -> Iterator[Fitting]:
        left_rn = room.left_rk[:, grown]
        for demands in self._by_placement.values():
            placement = demands.placement
            if placement.reserved:  # what is reserved is not part of what servers have left
                yield Fitting(list(demands), None, demands.is_plain)
            elif (allowed_n := placement.eligible_k[grown]).any():
                yield demands.find_fitting(left_rn[:, allowed_n].max(axis=1))
        for server in grown.tolist() if self._by_pin else ():
            pinned = self._by_pin.get(server)
            if pinned:
                yield Fitting(choose_fitting(pinned.values(), room.left_rk[:, server].tolist()), None, is_plain=False)


def choose_fitting(classes: Iterable[TaskClass], most_r: Sequence[float]) -> list[TaskClass]:
    """Return the classes that ask for no more than this of anything."""
    return [each for each in classes if not any(map(gt, each.demand_r, most_r))]


def merge(ordered: Iterable[Wait], others: Iterable[Wait], *, key: Callable[[Wait], _Key]) -> list[Wait]:
    """Return all in the order of their keys; most of them are in it already, or few are many."""
    waits, others = list(ordered), list(others)
    if len(others) * FEW_PART < len(waits):
        for wait in others:
            insort(waits, wait, key=key)
    else:
        waits.extend(others)
        waits.sort(key=key)
    return waits


def is_about_room_only(task_class: TaskClass) -> bool:
    """Whether nothing but room on a server lets more of a class fit within a cycle."""
    return has_limits_only(task_class) and not task_class.placement.reserved


def has_limits_only(task_class: TaskClass) -> bool:
    """Whether a class has no rules, or only such as close servers with what is placed there, and open none."""
    return task_class.rules is None or task_class.rules.are_limits
