"""What fitted nowhere at the end of one cycle, so that the next ones need not look at it until room has grown for it.

A tenant may have thousands of different kinds of pods wait. To find for each, in every cycle, that it still fits
nowhere, and to explain it again, costs all decisions ten microseconds a kind. From one cycle to the next only a
few servers gain room: what fitted nowhere can fit there only. A kind that is not looked at keeps its explanation.

Many kinds may fit where servers have room again, and the first of them takes it. Where these servers are few, the
others are asked about them only, and unless the cycle is to explain, when their tenant's turn comes: what does not fit
any more then keeps its explanation, too.

A node that is cordoned, or has another label, gives thousands of kinds another placement. Where nothing else about a
kind changes, it can fit on the servers only that its new placement opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import gt
from typing import NamedTuple

import numpy as np

from fairbind.model import DomainRules, Domains, LimitRule, ServerTable, Snapshot, TaskClass, Wait
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.cycle.room import Room
from fairbind.scheduling.cycle.shapes import FEW
from fairbind.scheduling.cycle.task_queues import TurnRule

MANY_CLASSES = 200
"""With fewer classes everything is looked at in every cycle: explanations are those of now."""


class Recalled(NamedTuple):
    """What fits nowhere, by the class's identity and in the order in which it was kept, and all others.

    held: of what fits nowhere, by tenant, what one of a few servers has room for now, if others do not take it before.
    moved: of what fits nowhere, what may go elsewhere than when it was explained. returning: of the others and of what
    is held, what fitted nowhere, with explanations that hold if it still does, with older counts. few: of the same,
    what may fit on these servers only.
    """

    waits: dict[int, Wait]
    held: dict[str, list[Wait]]
    moved: AbstractSet[int]
    others: Sequence[TaskClass]
    returning: Mapping[int, Wait]
    few: Mapping[int, Sequence[int]]


class UnschedulableCache:
    """Classes that fitted nowhere, from one cycle to the next; for callers of `run_cycle` that make many of them.

    A wait stays valid for a task class that is the same object in both snapshots. It also passes to a new class with
    the same tasks object that differs only in its placement, if no server that this placement opens has enough
    capacity. All other classes are looked at.
    """

    __slots__ = (
        "_accepting_k",
        "_left_rk",
        "_names",
        "_next_forgotten",
        "_resources",
        "_rule",
        "_taken_keys",
        "_tenants",
        "_waits",
    )

    def __init__(self) -> None:
        self._resources: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._accepting_k: BoolArray = np.zeros(0, dtype=np.bool_)
        self._left_rk: FloatArray = np.zeros((0, 0))
        self._taken_keys: dict[int, frozenset[str]] = {}
        self._rule: TurnRule | None = None
        self._waits: dict[int, Wait] = {}
        self._tenants: frozenset[str] | None = None
        self._next_forgotten = 0

    def forget(self) -> None:
        """Have the next cycle look at everything."""
        self._set_waits({})

    def forget_some(self, most: int) -> None:
        """Forget so many waits, so that the next cycle looks at these classes.

        Calls rotate: each of n waits is forgotten once in ceil(n / most) calls.
        """
        count = len(self._waits)
        if count <= most:
            self.forget()
            return
        ids = list(self._waits)
        first = self._next_forgotten if self._next_forgotten < count else 0
        self._next_forgotten = (first + most) % count
        gone = {ids[n % count] for n in range(first, first + most)}
        self._set_waits({id_: wait for id_, wait in self._waits.items() if id_ not in gone})

    def keep(self, snapshot: Snapshot, room: Room, waits: Iterable[Wait] | None, rule: TurnRule) -> None:
        """Remember who fitted nowhere.

        room: at the cycle's end. waits: by tenant and turn, which the rule gives; None: those that were recalled, and
        no others.
        """
        self._resources, self._names = snapshot.resources, snapshot.servers.names
        self._accepting_k = snapshot.servers.accepting_k
        self._left_rk, self._taken_keys, self._rule = room.left_rk, room.taken_keys, rule
        if waits is not None:
            self._set_waits(
                {
                    id(task_class): wait
                    for wait in waits
                    if wait.blocked is None and wait.waiting == len((task_class := wait.task_class).tasks)
                }
            )

    def get_known(self, snapshot: Snapshot, rule: TurnRule) -> Mapping[int, Wait]:
        """Return all that is remembered, by the class's identity, if it goes with these servers and this order."""
        if rule is not self._rule or snapshot.servers.names != self._names or snapshot.resources != self._resources:
            return {}
        if self._tenants is None:
            self._tenants = frozenset(wait.task_class.tenant for wait in self._waits.values())
        return self._waits if self._tenants <= {tenant.name for tenant in snapshot.tenants} else {}

    def recall(self, snapshot: Snapshot, room: Room, rule: TurnRule, *, holds: bool = False) -> Recalled:
        """Return what still fits nowhere, and all others; those are forgotten. room: before any decision.

        holds: whether what may fit on few servers is held where it can be.
        """
        known = self.get_known(snapshot, rule)
        if not known:
            self.forget()
            return Recalled({}, {}, frozenset(), snapshot.task_classes, {}, {})
        others = [task_class for task_class in snapshot.task_classes if id(task_class) not in known]
        moved: set[int] = set()
        if len(others) + len(known) > len(snapshot.task_classes):
            gone = known.keys() - set(map(id, snapshot.task_classes))
            heirs = self._find_heirs(others, gone, snapshot.servers, room)
            left = (heirs.get(id_, wait) for id_, wait in known.items() if id_ not in gone or id_ in heirs)
            self._set_waits({id(wait.task_class): wait for wait in left})
            others = [task_class for task_class in others if id(task_class) not in self._waits]
            moved = {id(wait.task_class) for wait in heirs.values()}
        grown = self._find_grown(snapshot.servers, room)
        fitting = {id(wait.task_class): wait for wait in self._find_fitting(grown, room)}
        returning = {id_: wait for id_, wait in fitting.items() if id_ not in moved}
        few: dict[int, Sequence[int]] = {}
        held: dict[str, list[Wait]] = {}
        if len(grown) <= FEW:
            servers = grown.tolist()
            few = {id_: servers for id_, wait in fitting.items() if _is_about_room_only(wait.task_class)}
            for id_ in few.keys() & returning.keys() if holds else ():
                if fitting[id_].task_class.pin is None:
                    wait = fitting.pop(id_)
                    held.setdefault(wait.task_class.tenant, []).append(wait)
        if fitting:
            self._set_waits({id_: wait for id_, wait in self._waits.items() if id_ not in fitting})
        others += [wait.task_class for wait in fitting.values()]
        return Recalled(dict(self._waits), held, moved - fitting.keys(), others, returning, few)

    def _find_heirs(
        self, task_classes: Iterable[TaskClass], gone: AbstractSet[int], servers: ServerTable, room: Room
    ) -> dict[int, Wait]:
        """Return the waits of classes that fit nowhere as those did in whose place they stand, by the old identities.

        gone: of which an heir is looked for.
        """
        old = {id(wait.task_class.tasks): wait for id_, wait in self._waits.items() if id_ in gone}
        most: dict[tuple[int, int, DomainRules | None], Sequence[float] | None] = {}
        heirs: dict[int, Wait] = {}
        for task_class in task_classes:
            wait = old.get(id(task_class.tasks))
            if wait is None or not _is_elsewhere_only(wait.task_class, task_class):
                continue
            before, after = wait.task_class.placement, task_class.placement
            key = id(before), id(after), task_class.rules
            if key not in most:
                opened_k = after.eligible_k & servers.accepting_k & (~before.eligible_k | _find_unlimited(task_class))
                most[key] = room.left_rk[:, opened_k].max(axis=1).tolist() if opened_k.any() else None
            most_r = most[key]
            if most_r is None or any(map(gt, task_class.demand_r, most_r)):
                heirs[id(wait.task_class)] = Wait(
                    task_class, wait.first, wait.waiting, wait.rejections, fairness=wait.fairness
                )
        return heirs

    def _set_waits(self, waits: dict[int, Wait]) -> None:
        self._waits, self._tenants = waits, None

    def _group(self) -> tuple[dict[int, list[Wait]], dict[int, list[Wait]]]:
        """Return what is remembered by placement, and by server what may go to that one only."""
        by_placement: dict[int, list[Wait]] = {}
        by_pin: dict[int, list[Wait]] = {}
        for wait in self._waits.values():
            task_class = wait.task_class
            if task_class.pin is None or task_class.placement.reserved:
                by_placement.setdefault(id(task_class.placement), []).append(wait)
            elif task_class.pin.server is not None:
                by_pin.setdefault(task_class.pin.server, []).append(wait)
        return by_placement, by_pin

    def _find_fitting(self, grown: IndexArray, room: Room) -> Iterator[Wait]:
        """Find of what is remembered all that may fit on one of the servers that have gained room."""
        if not len(grown):
            yield from [wait for wait in self._waits.values() if wait.task_class.placement.reserved]
            return
        by_placement, by_pin = self._group()
        left_rn = room.left_rk[:, grown]
        for waits in by_placement.values():
            placement = waits[0].task_class.placement
            allowed_n = placement.eligible_k[grown]
            if placement.reserved:
                yield from waits  # of what is reserved nothing is remembered
            elif allowed_n.any():
                most_r: list[float] = left_rn[:, allowed_n].max(axis=1).tolist()
                yield from (wait for wait in waits if not any(map(gt, wait.task_class.demand_r, most_r)))
        for server in grown.tolist() if by_pin else ():
            left_r: list[float] = room.left_rk[:, server].tolist()
            waits = by_pin.get(server, [])
            yield from (wait for wait in waits if not any(map(gt, wait.task_class.demand_r, left_r)))

    def _find_grown(self, servers: ServerTable, room: Room) -> IndexArray:
        """Return the servers on which something may fit that did not."""
        grown_k = (room.left_rk > self._left_rk).any(axis=0) | ~self._accepting_k
        for server, keys in self._taken_keys.items():
            if not keys <= room.taken_keys.get(server, frozenset()):
                grown_k[server] = True
        return np.flatnonzero(grown_k & servers.accepting_k)


def _is_about_room_only(task_class: TaskClass) -> bool:
    """Whether nothing but room on a server lets more of a class fit within a cycle."""
    return _has_limits_only(task_class) and not task_class.placement.reserved


def _has_limits_only(task_class: TaskClass) -> bool:
    """Whether a class has no rules, or only such as close servers with what is placed there, and open none."""
    return task_class.rules is None or task_class.rules.are_limits


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

    Most rules about domains, pins and promised room close servers in other ways, so classes with them are looked at.
    """
    if not (_has_limits_only(before) and _has_limits_only(after)):
        return False
    is_plain = _list_limited(before) == _list_limited(after) and after.blocked is None and not after.placement.reserved
    was_plain = before.pin is None and not before.placement.reserved
    is_same = after.demand_r == before.demand_r and after.placement.exclusive_keys == before.placement.exclusive_keys
    return is_plain and was_plain and is_same
