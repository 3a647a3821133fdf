"""Why a class waits: which servers refuse it and for what; who takes what comes free next is in `rivals`.

A server that the class may not use counts once, under its reason; one whose topology domain is closed counts once,
under the first rule that closes it; one whose keys conflict counts once, as a port conflict; any other counts once for
each resource of which it has too little.
(kube-scheduler counts in the same way: a node that fails an earlier filter is not asked for resources.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fairbind.model import (
    DomainRules,
    Pin,
    Placement,
    Rejection,
    RejectionKind,
    Rejections,
    Snapshot,
    TaskClass,
    Wait,
)
from fairbind.model.servers import BoolArray, FloatArray
from fairbind.scheduling.cycle.order.task_queues import ClassQueue
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.cycle.waits.limits import ReachedLimits
from fairbind.scheduling.cycle.waits.reaches import Reaches, find_pinned
from fairbind.scheduling.cycle.waits.rivals import Rivals

PORT_CONFLICT = Rejection(RejectionKind.PORT_CONFLICT)

MANY_ASKS = 32
"""After so many questions about the same servers what they have left is sorted: each later answer is a bisection."""

SHARED_ANSWERS = 256


def explain_waits(
    *, stuck: Sequence[ClassQueue], blocked: Sequence[ClassQueue], refusals: Refusals, rivals: Rivals | None
) -> list[Wait]:
    """Return the waits of classes that fit nowhere and of classes that may not be placed.

    rivals: None for policies that are not about fairness, and where nothing asks for them.
    """
    waits = [
        Wait(queue.task_class, queue.first, queue.waiting, (), blocked=queue.task_class.blocked) for queue in blocked
    ]
    waits.extend(_explain_stuck(queue, refusals, rivals) for queue in stuck)
    return waits


def _explain_stuck(queue: ClassQueue, refusals: Refusals, rivals: Rivals | None) -> Wait:
    """Return the wait of a class that fits nowhere."""
    task_class = queue.task_class
    at_limit, until = refusals.limits.find(task_class)
    reason = rivals.find_reason(queue.progress, task_class) if rivals is not None and at_limit is None else None
    rejections = refusals.compute_rejections(task_class)
    return Wait(
        task_class,
        queue.first,
        queue.waiting,
        rejections,
        fairness=reason,
        is_too_large=refusals.reaches.is_too_large(task_class),
        at_limit=at_limit,
        until=until,
    )


class Refusals:
    """Counts the servers that refuse a class, at the end of a cycle; classes of equal shape share the answer.

    reaches, limits: of the same servers.
    """

    def __init__(self, snapshot: Snapshot, free: FreeCapacity, topology: TopologyState) -> None:
        self.reaches = Reaches(snapshot.servers)
        self.limits = ReachedLimits(self.reaches, topology)
        self._snapshot = snapshot
        self._free = free
        self._topology = topology
        self._insufficient_r = [Rejection(RejectionKind.INSUFFICIENT, resource) for resource in snapshot.resources]
        self._known: dict[tuple[tuple[int, ...], Placement, DomainRules | None], Rejections] = {}
        self._clear: dict[tuple[Placement, DomainRules | None], _Clear] = {}

    def compute_rejections(self, task_class: TaskClass) -> Rejections:
        """Return (rejection, servers) pairs, sorted."""
        if task_class.pin is not None:
            return self._count_pinned(task_class, task_class.pin)
        key = task_class.demand_r, task_class.placement, task_class.rules
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(task_class.demand_r, task_class.placement, task_class.rules)
        return known

    def _count_pinned(self, task_class: TaskClass, pin: Pin) -> Rejections:
        """Return the pin's rejections and why its server has no free capacity; thousands of pins share one answer."""
        placement, server = task_class.placement, find_pinned(pin, self._snapshot.servers)
        if server is None:
            return pin.rejections
        refusal = self._find_closing(task_class.rules, server)
        if refusal is not None:
            return _add_one_each(pin.rejections, (refusal,))
        if not placement.exclusive_keys.conflicting.isdisjoint(self._free.taken_keys.get(server, ())):
            return _add_one_each(pin.rejections, (PORT_CONFLICT,))
        row = self._free.get_row_for(placement, server)
        asked = zip(self._insufficient_r, task_class.demand_r, row, strict=True)
        lacking = tuple(rejection for rejection, demand, free in asked if demand > max(free, 0))
        return _add_one_each(pin.rejections, lacking)

    def _find_closing(self, rules: DomainRules | None, server: int) -> Rejection | None:
        """Return the first rule's refusal of a server, or None."""
        domains = self._topology.get_filter(rules)
        if domains is None or not domains.closed_k[server]:
            return None
        refusals = domains.list_refusals(domains.closed_k)
        return next(rejection for rejection, refused_k in refusals if refused_k[server])

    def _count(self, demand_r: Sequence[int], placement: Placement, rules: DomainRules | None) -> Rejections:
        clear = self._clear.get((placement, rules))
        if clear is None:
            clear = self._clear[placement, rules] = self._split(placement, rules)
        lacking = clear.count_lacking(demand_r)
        known = clear.answers.get(lacking)
        if known is None:
            counts = clear.refused.copy()
            for r, count in lacking:
                rejection = self._insufficient_r[r]
                counts[rejection] = counts.get(rejection, 0) + count
            known = clear.answers[lacking] = tuple(sorted(counts.items()))
        return known

    def _split(self, placement: Placement, rules: DomainRules | None) -> _Clear:
        """Return which servers refuse for other reasons than resources, and what the others have left."""
        clear_k = placement.eligible_k & self._snapshot.servers.accepting_k
        refused = Counter(dict(placement.rejections))
        domains = self._topology.get_filter(rules)
        for rejection, refused_k in () if domains is None else domains.list_refusals(clear_k):
            refused[rejection] += int(np.count_nonzero(refused_k))
            clear_k &= ~refused_k
        conflicting = placement.exclusive_keys.conflicting
        if conflicting:
            without_rules = int(np.count_nonzero(clear_k))
            for server, taken in self._free.taken_keys.items():
                clear_k[server] &= conflicting.isdisjoint(taken)
            refused[PORT_CONFLICT] += without_rules - int(np.count_nonzero(clear_k))
        return _Clear(dict(+refused), self._find_left(placement, clear_k))

    def _find_left(self, placement: Placement, clear_k: BoolArray) -> FloatArray:
        """Return what these servers have left for tasks of a placement, shape (R, n)."""
        left_rn: FloatArray = self._free.left_rk[:, clear_k]
        for server in placement.reserved:
            if clear_k[server]:
                row = self._free.get_row_for(placement, server)
                left_rn[:, np.count_nonzero(clear_k[:server])] = np.maximum(row, 0)
        return left_rn


@lru_cache(SHARED_ANSWERS)
def _add_one_each(rejections: Rejections, more: tuple[Rejection, ...]) -> Rejections:
    """Return the rejections of one server more for each of these reasons, sorted."""
    counts = dict(rejections)
    for rejection in more:
        counts[rejection] = counts.get(rejection, 0) + 1
    return tuple(sorted(counts.items()))


class _Clear:
    """What the servers have left that only a lack of resources can refuse.

    refused: how many others, by rejection. answers: what was found out, by what is lacking.
    """

    __slots__ = ("_asks", "_left_rn", "_sorted_r", "answers", "refused")

    def __init__(self, refused: dict[Rejection, int], left_rn: FloatArray) -> None:
        self.refused = refused
        self.answers: dict[tuple[tuple[int, int], ...], Rejections] = {}
        self._left_rn = left_rn
        self._sorted_r: list[list[float]] = []
        self._asks = 0

    def count_lacking(self, demand_r: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return (r, how many servers have too little of it) for each resource of which some server has too little.

        Free amounts are never negative, so it can only be one that is asked for.
        """
        self._asks += 1
        if self._asks == MANY_ASKS:
            self._sorted_r = np.sort(self._left_rn, axis=1).tolist()
        asked = [(r, demand) for r, demand in enumerate(demand_r) if demand]
        if self._sorted_r:
            counts = [(r, bisect_left(self._sorted_r[r], demand)) for r, demand in asked]
        else:
            counts = [(r, int(np.count_nonzero(self._left_rn[r] < demand))) for r, demand in asked]
        return tuple([pair for pair in counts if pair[1]])
