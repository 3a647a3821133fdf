"""Why a class waits: which servers refuse it and for what, and who takes the next room that it could use.

A server that the class may not use counts once, under its reason; one whose claims conflict counts once, under
`CONFLICTING_CLAIMS`; any other counts once for each resource of which it has too little, as `INSUFFICIENT` says.
(kube-scheduler counts in the same way: a node that fails an earlier filter is not asked for resources.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fairbind.model import FairnessReason, Placement, Snapshot, TaskClass, Wait
from fairbind.model.servers import BoolArray
from fairbind.scheduling.levels import INFINITE_LEVEL, Account
from fairbind.scheduling.lines import Queue
from fairbind.scheduling.measures import Measure
from fairbind.scheduling.room import FloatArray, IndexArray, Room

CONFLICTING_CLAIMS = "conflicting claims"
INSUFFICIENT = "Insufficient {}"

Rejections = tuple[tuple[str, int], ...]


def explain_waits(
    *, stuck: Sequence[Queue], blocked: Sequence[Queue], refusals: Refusals, rivals: Rivals | None
) -> tuple[Wait, ...]:
    """Return the waits of classes that fit nowhere and of classes that may not be placed, sorted by tenant and turn.

    rivals: None for policies that are not about fairness.
    """
    waits = [
        (queue, Wait(queue.task_class, queue.first, queue.waiting, (), blocked=queue.task_class.blocked))
        for queue in blocked
    ]
    for queue in stuck:
        reason = rivals.find_reason(queue) if rivals is not None else None
        rejections = refusals.compute_rejections(queue.task_class)
        waits.append((queue, Wait(queue.task_class, queue.first, queue.waiting, rejections, fairness=reason)))
    waits.sort(key=lambda pair: (pair[0].account.name, pair[0].turn))
    return tuple(wait for _, wait in waits)


class Refusals:
    """Counts the servers that refuse a class, at the end of a cycle; classes of equal shape share the answer."""

    def __init__(self, snapshot: Snapshot, room: Room) -> None:
        self._snapshot = snapshot
        self._room = room
        self._known: dict[tuple[tuple[int, ...], int], Rejections] = {}
        self._clear: dict[int, tuple[int, FloatArray]] = {}

    def compute_rejections(self, task_class: TaskClass) -> Rejections:
        """Return (reason, servers) pairs, sorted by reason."""
        key = task_class.demand_r, id(task_class.placement)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(task_class.demand_r, task_class.placement)
        return known

    def _count(self, demand_r: Sequence[int], placement: Placement) -> Rejections:
        clear = self._clear.get(id(placement))
        if clear is None:
            clear = self._clear[id(placement)] = self._split(placement)
        conflicts, left_rn = clear
        counts: Counter[str] = Counter({CONFLICTING_CLAIMS: conflicts})
        for reason, count in placement.rejections:
            counts[reason] += count
        for r, demand in enumerate(demand_r):
            if demand > 0:
                counts[INSUFFICIENT.format(self._snapshot.resources[r])] += int(np.count_nonzero(left_rn[r] < demand))
        return tuple(sorted((reason, count) for reason, count in counts.items() if count > 0))

    def _split(self, placement: Placement) -> tuple[int, FloatArray]:
        """Return how many eligible servers have conflicting claims, and what the others have left, shape (R, n)."""
        clear_k = placement.eligible_k & self._snapshot.servers.usable_k
        eligible = int(np.count_nonzero(clear_k))
        conflicting = placement.claims.conflicting
        if conflicting:
            for server, taken in self._room.claimed.items():
                clear_k[server] &= conflicting.isdisjoint(taken)
        return eligible - int(np.count_nonzero(clear_k)), self._room.left_rk[:, clear_k]


class Rivals:
    """Finds who comes before a waiting class at the end of a cycle, among those who wait for the same servers.

    Sets of servers are bits of integers, so that asking a thousand tenants for a common server takes microseconds.
    """

    def __init__(self, waiting: Sequence[Queue], measure: Measure, snapshot: Snapshot) -> None:
        self._measure = measure
        self._pools = measure.pools
        self._snapshot = snapshot
        self._bits: dict[int, int] = {}
        self._pools_of: dict[int, IndexArray] = {}
        self._levels: dict[tuple[str, int], tuple[int, int]] = {}
        self._rankings: dict[int, list[tuple[int, str, Account]]] = {}
        self._pool_bits: dict[int, int] = {}
        self._accounts: dict[str, Account] = {}
        self._reach: dict[str, int] = {}
        self._shares: dict[tuple[str, int], float] = {}
        for queue in waiting:
            name = queue.account.name
            self._accounts[name] = queue.account
            self._reach[name] = self._reach.get(name, 0) | self._get_bits(queue.task_class.placement)

    def find_reason(self, queue: Queue) -> FairnessReason | None:
        """Return who is next on the pool where this class is least behind, when that is somebody else further below."""
        placement, account = queue.task_class.placement, queue.account
        pools = self._get_pools(placement)
        if len(pools) == 0:
            return None
        key = account.name, id(placement)
        if key not in self._levels:
            self._levels[key] = self._measure.find_least_level(account, pools)
        level, pool = self._levels[key]
        if level >= INFINITE_LEVEL:
            return None
        common = self._get_bits(placement) & self._get_pool_bits(pool)
        for rival_level, name, rival in self._get_ranking(pool):
            if rival_level >= level:
                break
            if self._reach[name] & common:
                shares = self._get_share(account, pool), self._get_share(rival, pool)
                return FairnessReason(shares[0], name, shares[1], self._measure.label)
        return None

    def _get_share(self, account: Account, pool: int) -> float:
        share = self._shares.get((account.name, pool))
        if share is None:
            share = self._shares[account.name, pool] = self._measure.compute_share(account, pool)
        return share

    def _get_bits(self, placement: Placement) -> int:
        bits = self._bits.get(id(placement))
        if bits is None:
            bits = self._bits[id(placement)] = compute_bits(placement.eligible_k & self._snapshot.servers.usable_k)
        return bits

    def _get_pools(self, placement: Placement) -> IndexArray:
        pools = self._pools_of.get(id(placement))
        if pools is None:
            eligible_k = placement.eligible_k & self._snapshot.servers.usable_k
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

    def _get_ranking(self, pool: int) -> list[tuple[int, str, Account]]:
        ranking = self._rankings.get(pool)
        if ranking is None:
            level_of = self._measure.compute_level
            ranking = [(level_of(account, pool), name, account) for name, account in self._accounts.items()]
            ranking.sort(key=lambda entry: entry[:2])
            self._rankings[pool] = ranking
        return ranking


def compute_bits(member_k: BoolArray) -> int:
    """Return the set as an integer with a bit for each server.

    >>> compute_bits(np.array([True, False, True])) & compute_bits(np.array([False, True, False]))
    0
    """
    return int.from_bytes(np.packbits(member_k).tobytes(), "big")
