"""Why a class waits: which servers refuse it and for what, who takes what comes free next that it could use.

A server that the class may not use counts once, under its reason; one whose topology domain is closed counts once,
under the first rule that closes it; one whose keys conflict counts once, as a port conflict; any other counts once for
each resource of which it has too little.
(kube-scheduler counts in the same way: a node that fails an earlier filter is not asked for resources.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fairbind.model import (
    DomainRules,
    FairnessReason,
    Pin,
    Placement,
    Rejection,
    RejectionKind,
    Rejections,
    Snapshot,
    TaskClass,
    Wait,
)
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.cycle.order.task_queues import ClassQueue
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.cycle.waits.reaches import EVERY, Reaches, compute_bits, find_pinned
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import Measure

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
    reason = rivals.find_reason(queue.progress, task_class) if rivals is not None else None
    rejections = refusals.compute_rejections(task_class)
    is_too_large = refusals.reaches.is_too_large(task_class)
    return Wait(task_class, queue.first, queue.waiting, rejections, fairness=reason, is_too_large=is_too_large)


class Refusals:
    """Counts the servers that refuse a class, at the end of a cycle; classes of equal shape share the answer.

    reaches: of the same servers.
    """

    def __init__(self, snapshot: Snapshot, free: FreeCapacity, topology: TopologyState) -> None:
        self.reaches = Reaches(snapshot.servers)
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


class Contender(NamedTuple):
    """Classes of a tenant that wait for the same servers. task_class: one of them. demands: what they ask for."""

    progress: Progress
    task_class: TaskClass
    demands: set[tuple[int, ...]]


class Rivals:
    """Finds who comes before a waiting class at the end of a cycle, among those who wait for the same servers.

    A server counts for a class if it could hold a task when it is empty: no other one will ever take it.
    """

    def __init__(self, waiting: Iterable[Contender], measure: Measure, snapshot: Snapshot, reaches: Reaches) -> None:
        """waiting: who waits for what, each tenant and reach once."""
        self._measure = measure
        self._pools = measure.pools
        self._snapshot = snapshot
        self._reaches = reaches
        self._pools_of: dict[Placement, IndexArray] = {}
        self._reasons: dict[tuple[str, tuple[int, ...], Placement, str | None], FairnessReason | None] = {}
        self._rankings: dict[int, list[tuple[int, str, Progress]]] = {}
        self._pool_bits: dict[int, int] = {}
        self._progress_of: dict[str, Progress] = {}
        self._reach: dict[str, int] = {}
        self._shares: dict[tuple[str, int], float] = {}
        for contender in waiting:
            name = contender.progress.name
            self._progress_of[name] = contender.progress
            self._reach[name] = self._reach.get(name, 0) | self._find_reach(contender)

    def _find_reach(self, contender: Contender) -> int:
        """Return the servers that could hold one of the tasks that wait for them."""
        admitting, reach = self._reaches.find_admitting(contender.task_class), 0
        for demand_r in contender.demands:
            reach |= admitting & self._reaches.find_holding(demand_r)
            if reach == admitting:
                break
        return reach

    def find_reason(self, progress: Progress, task_class: TaskClass) -> FairnessReason | None:
        """Return who is next on the pool where this class is least behind, when that is another tenant below.

        progress: of the class's tenant.
        """
        key = progress.name, task_class.demand_r, *identify_reach(task_class)
        if key not in self._reasons:
            self._reasons[key] = self._find_reason(progress, task_class)
        return self._reasons[key]

    def _find_reason(self, progress: Progress, task_class: TaskClass) -> FairnessReason | None:
        pools = self._get_pools(task_class)
        if len(pools) == 0:
            return None
        level, pool = self._measure.find_least_level(progress, pools)
        if level >= INFINITE_LEVEL:
            return None
        own = self._reaches.find_admitting(task_class) & self._reaches.find_holding(task_class.demand_r)
        common = own & self._get_pool_bits(pool)
        for rival_level, name, rival in self._get_ranking(pool):
            if rival_level >= level:
                break
            if self._reach[name] & common:
                shares = self._get_share(progress, pool), self._get_share(rival, pool)
                return FairnessReason(shares[0], name, shares[1], self._measure.label)
        return None

    def _get_share(self, progress: Progress, pool: int) -> float:
        share = self._shares.get((progress.name, pool))
        if share is None:
            share = self._shares[progress.name, pool] = self._measure.compute_share(progress, pool)
        return share

    def _get_pools(self, task_class: TaskClass) -> IndexArray:
        placement, pin = task_class.placement, task_class.pin
        if pin is not None:
            server = find_pinned(pin, self._snapshot.servers)
            return np.array([] if server is None else [self._pools.get_pool(server)], dtype=np.intp)
        pools = self._pools_of.get(placement)
        if pools is None:
            eligible_k = placement.eligible_k & self._snapshot.servers.accepting_k
            pool_k = self._pools.pool_k
            pools = np.zeros(int(eligible_k.any()), dtype=np.intp) if pool_k is None else np.unique(pool_k[eligible_k])
            self._pools_of[placement] = pools
        return pools

    def _get_pool_bits(self, pool: int) -> int:
        bits = self._pool_bits.get(pool)
        if bits is None:
            pool_k = self._pools.pool_k
            bits = EVERY if pool_k is None else compute_bits(pool_k == pool)
            self._pool_bits[pool] = bits
        return bits

    def _get_ranking(self, pool: int) -> list[tuple[int, str, Progress]]:
        ranking = self._rankings.get(pool)
        if ranking is None:
            level_of = self._measure.compute_level
            ranking = [(level_of(progress, pool), name, progress) for name, progress in self._progress_of.items()]
            ranking.sort(key=lambda entry: entry[:2])
            self._rankings[pool] = ranking
        return ranking


def identify_reach(task_class: TaskClass) -> tuple[Placement, str | None]:
    """Return what is the same for classes that may use the same servers."""
    return task_class.placement, None if task_class.pin is None else task_class.pin.name
