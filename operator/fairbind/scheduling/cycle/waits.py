"""Why a class waits: which servers refuse it and for what, and who takes the next room that it could use.

A server that the class may not use counts once, under its reason; one whose keys conflict counts once, as a port
conflict; any other counts once for each resource of which it has too little.
(kube-scheduler counts in the same way: a node that fails an earlier filter is not asked for resources.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fairbind.model import (
    FairnessReason,
    Placement,
    Rejection,
    RejectionKind,
    Rejections,
    Snapshot,
    TaskClass,
    Wait,
)
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.cycle.room import Room
from fairbind.scheduling.cycle.task_queues import ClassQueue
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import Measure

PORT_CONFLICT = Rejection(RejectionKind.PORT_CONFLICT)

MANY_ASKS = 32
"""After so many questions about the same servers what they have left is sorted: each later answer is a bisection."""


def explain_waits(
    *, stuck: Sequence[ClassQueue], blocked: Sequence[ClassQueue], refusals: Refusals, rivals: Rivals | None
) -> list[Wait]:
    """Return the waits of classes that fit nowhere and of classes that may not be placed.

    rivals: None for policies that are not about fairness.
    """
    waits = [
        Wait(queue.task_class, queue.first, queue.waiting, (), blocked=queue.task_class.blocked) for queue in blocked
    ]
    for queue in stuck:
        reason = rivals.find_reason(queue) if rivals is not None else None
        rejections = refusals.compute_rejections(queue.task_class)
        waits.append(Wait(queue.task_class, queue.first, queue.waiting, rejections, fairness=reason))
    return waits


class Refusals:
    """Counts the servers that refuse a class, at the end of a cycle; classes of equal shape share the answer."""

    def __init__(self, snapshot: Snapshot, room: Room) -> None:
        self._snapshot = snapshot
        self._room = room
        self._insufficient_r = [Rejection(RejectionKind.INSUFFICIENT, resource) for resource in snapshot.resources]
        self._known: dict[tuple[tuple[int, ...], int], Rejections] = {}
        self._clear: dict[int, _Clear] = {}

    def compute_rejections(self, task_class: TaskClass) -> Rejections:
        """Return (rejection, servers) pairs, sorted."""
        key = task_class.demand_r, id(task_class.placement)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(task_class.demand_r, task_class.placement)
        return known

    def _count(self, demand_r: Sequence[int], placement: Placement) -> Rejections:
        clear = self._clear.get(id(placement))
        if clear is None:
            clear = self._clear[id(placement)] = self._split(placement)
        counts = clear.refused.copy()
        for rejection, lacking in zip(self._insufficient_r, clear.count_lacking(demand_r), strict=True):
            if lacking > 0:
                counts[rejection] = counts.get(rejection, 0) + lacking
        return tuple(sorted(counts.items()))

    def _split(self, placement: Placement) -> _Clear:
        """Return which servers refuse for other reasons than resources, and what the others have left."""
        clear_k = placement.eligible_k & self._snapshot.servers.accepting_k
        eligible = int(np.count_nonzero(clear_k))
        conflicting = placement.exclusive_keys.conflicting
        if conflicting:
            for server, taken in self._room.taken_keys.items():
                clear_k[server] &= conflicting.isdisjoint(taken)
        refused = Counter(dict(placement.rejections))
        refused[PORT_CONFLICT] += eligible - int(np.count_nonzero(clear_k))
        return _Clear(dict(+refused), self._find_left(placement, clear_k))

    def _find_left(self, placement: Placement, clear_k: BoolArray) -> FloatArray:
        """Return what these servers have left for tasks of a placement, shape (R, n)."""
        left_rn: FloatArray = self._room.left_rk[:, clear_k]
        for server in placement.reserved:
            if clear_k[server]:
                row = self._room.get_row_for(placement, server)
                left_rn[:, np.count_nonzero(clear_k[:server])] = np.maximum(row, 0)
        return left_rn


class _Clear:
    """What the servers have left that only a lack of resources can refuse. refused: how many others, by rejection."""

    __slots__ = ("_asks", "_left_rn", "_sorted_r", "refused")

    def __init__(self, refused: dict[Rejection, int], left_rn: FloatArray) -> None:
        self.refused = refused
        self._left_rn = left_rn
        self._sorted_r: list[list[float]] = []
        self._asks = 0

    def count_lacking(self, demand_r: Sequence[int]) -> list[int]:
        """Return for each resource how many servers have too little of it."""
        self._asks += 1
        if self._asks == MANY_ASKS:
            self._sorted_r = np.sort(self._left_rn, axis=1).tolist()
        if self._sorted_r:
            # What is left is never below zero, so nobody lacks what is not asked for.
            return [bisect_left(left, demand) for left, demand in zip(self._sorted_r, demand_r, strict=True)]
        return [int(np.count_nonzero(left < demand)) for left, demand in zip(self._left_rn, demand_r, strict=True)]


class Rivals:
    """Finds who comes before a waiting class at the end of a cycle, among those who wait for the same servers.

    Sets of servers are bits of integers, so that asking a thousand tenants for a common server takes microseconds.
    """

    def __init__(self, waiting: Iterable[tuple[Progress, Placement]], measure: Measure, snapshot: Snapshot) -> None:
        """waiting: who waits for what may go where."""
        self._measure = measure
        self._pools = measure.pools
        self._snapshot = snapshot
        self._bits: dict[int, int] = {}
        self._pools_of: dict[int, IndexArray] = {}
        self._reasons: dict[tuple[str, int], FairnessReason | None] = {}
        self._rankings: dict[int, list[tuple[int, str, Progress]]] = {}
        self._pool_bits: dict[int, int] = {}
        self._progress_of: dict[str, Progress] = {}
        self._reach: dict[str, int] = {}
        self._shares: dict[tuple[str, int], float] = {}
        for progress, placement in waiting:
            self._progress_of[progress.name] = progress
            self._reach[progress.name] = self._reach.get(progress.name, 0) | self._get_bits(placement)

    def find_reason(self, queue: ClassQueue) -> FairnessReason | None:
        """Return who is next on the pool where this class is least behind, when that is somebody else further below."""
        key = queue.progress.name, id(queue.task_class.placement)
        if key not in self._reasons:
            self._reasons[key] = self._find_reason(queue.progress, queue.task_class.placement)
        return self._reasons[key]

    def _find_reason(self, progress: Progress, placement: Placement) -> FairnessReason | None:
        pools = self._get_pools(placement)
        if len(pools) == 0:
            return None
        level, pool = self._measure.find_least_level(progress, pools)
        if level >= INFINITE_LEVEL:
            return None
        common = self._get_bits(placement) & self._get_pool_bits(pool)
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

    def _get_bits(self, placement: Placement) -> int:
        bits = self._bits.get(id(placement))
        if bits is None:
            bits = self._bits[id(placement)] = compute_bits(placement.eligible_k & self._snapshot.servers.accepting_k)
        return bits

    def _get_pools(self, placement: Placement) -> IndexArray:
        pools = self._pools_of.get(id(placement))
        if pools is None:
            eligible_k = placement.eligible_k & self._snapshot.servers.accepting_k
            pool_k = self._pools.pool_k
            pools = np.zeros(int(eligible_k.any()), dtype=np.intp) if pool_k is None else np.unique(pool_k[eligible_k])
            self._pools_of[id(placement)] = pools
        return pools

    def _get_pool_bits(self, pool: int) -> int:
        bits = self._pool_bits.get(pool)
        if bits is None:
            pool_k = self._pools.pool_k
            bits = -1 if pool_k is None else compute_bits(pool_k == pool)
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


def compute_bits(member_k: BoolArray) -> int:
    """Return the set as an integer with a bit for each server.

    >>> compute_bits(np.array([True, False, True])) & compute_bits(np.array([False, True, False]))
    0
    """
    return int.from_bytes(np.packbits(member_k).tobytes(), "big")
