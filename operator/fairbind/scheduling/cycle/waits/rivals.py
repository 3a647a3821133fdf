"""Rivals: which tenant comes before a waiting class at the end of a cycle, of those who wait for the same servers.

A server counts for a class if it could hold a task when it is empty: no other one will ever take it.

In a tree the path from the root to the class's tenant is gone down. Where another child comes before the one on the
path, and something waits below it for the same servers, that is who takes the next capacity: the tenant that is next
below that child. A tenant counts as within its guarantee if one of its waiting tasks stays within all entries that are
about servers which the task could use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fairbind.model import Domains, FairnessReason, Placement, Precedence, Snapshot, TaskClass
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.siblings import Asked, Sibling, Siblings, find_asked
from fairbind.scheduling.cycle.waits.reaches import EVERY, Reaches, compute_bits, find_pinned, identify_reach
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import Measure

_Key = tuple[int, int, int, int]
"""As in `TreeFilling`."""


class Contender(NamedTuple):
    """Classes of a tenant that wait for the same servers. task_class: one of them. demands: what they ask for."""

    progress: Progress
    task_class: TaskClass
    demands: set[tuple[int, ...]]


class _Where(NamedTuple):
    """What a class waits for. pool: where its tenant is least behind. servers: those of it that could hold a task."""

    pool: int
    asked: Asked
    servers: int


class Rivals:
    """See the module.

    _reach: the servers for which something waits below a tenant. _below: the contenders below each that has a
    guarantee.
    """

    __slots__ = (
        "_below",
        "_children",
        "_measure",
        "_pool_bits",
        "_pools",
        "_pools_of",
        "_rankings",
        "_reach",
        "_reaches",
        "_reasons",
        "_servers_of",
        "_siblings",
        "_snapshot",
    )

    def __init__(
        self,
        waiting: Iterable[Contender],
        measure: Measure,
        snapshot: Snapshot,
        reaches: Reaches,
        siblings: Siblings,
    ) -> None:
        """waiting: who waits for what, each tenant and reach once."""
        self._measure = measure
        self._pools = measure.pools
        self._snapshot = snapshot
        self._reaches = reaches
        self._siblings = siblings
        self._pools_of: dict[Placement, IndexArray] = {}
        self._reasons: dict[tuple[str, tuple[int, ...], Placement, str | None], FairnessReason | None] = {}
        self._rankings: dict[tuple[Sibling | None, int, Asked], list[tuple[_Key, str, Sibling]]] = {}
        self._pool_bits: dict[int, int] = {}
        self._servers_of: dict[Domains, int] = {}
        self._reach: dict[Sibling, int] = {}
        self._below: dict[Sibling, list[Contender]] = {}
        names: dict[str, None] = {}
        for contender in waiting:
            names[contender.progress.name] = None
            reach = self._find_reach(contender)
            for sibling in siblings.list_path(contender.progress.name):
                self._reach[sibling] = self._reach.get(sibling, 0) | reach
                if siblings.get_guaranteed(sibling) is not None:
                    self._below.setdefault(sibling, []).append(contender)
        self._children = siblings.group_children(names)

    def _find_reach(self, contender: Contender) -> int:
        """Return the servers that could hold one of the tasks that wait for them."""
        admitting, reach = self._reaches.find_admitting(contender.task_class), 0
        for demand_r in contender.demands:
            reach |= admitting & self._reaches.find_holding(demand_r)
            if reach == admitting:
                break
        return reach

    def find_reason(self, progress: Progress, task_class: TaskClass) -> FairnessReason | None:
        """Return who is next on the pool where this class is least behind, when that is another tenant before it.

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
        where = _Where(pool, find_asked(task_class), common)
        parent: Sibling | None = None
        for sibling in self._siblings.list_path(progress.name):
            own_key = self._compute_key(sibling, where)
            first = next(self._list_before(parent, where, own_key), None)
            if first is not None:
                return self._describe((sibling, own_key), first, where)
            parent = sibling
        return None

    def _list_before(self, parent: Sibling | None, where: _Where, key: _Key | None) -> Iterator[tuple[Sibling, _Key]]:
        """Yield the children of a tenant that wait for some of the servers and come before a key, the first one first.

        key: None: all of them.
        """
        for other_key, _, other in self._get_ranking(parent, where):
            if key is not None and other_key >= key:
                break
            if self._reach[other] & where.servers:
                yield other, other_key

    def _describe(self, own: tuple[Sibling, _Key], first: tuple[Sibling, _Key], where: _Where) -> FairnessReason:
        (sibling, own_key), (other, other_key) = own, first
        leaf = other
        while leaf.is_inner:
            leaf, _ = next(self._list_before(leaf, where, None))
        shares = [self._siblings.compute_share(each, where.pool, where.asked) for each in (sibling, other)]
        by = Precedence.LEVEL
        if own_key[:2] != other_key[:2]:
            by = Precedence.GUARANTEE
        elif own_key[2] != other_key[2]:
            by = Precedence.PRIORITY
        compared = (sibling.name, other.name) if sibling.is_inner or other.is_inner else None
        return FairnessReason(shares[0], leaf.name, shares[1], self._measure.label, by=by, compared=compared)

    def _compute_key(self, sibling: Sibling, where: _Where) -> _Key:
        siblings = self._siblings
        part = self._find_used_part(sibling, where.pool)
        place = (1, 0) if part is None else (0, part)
        level = siblings.compute_level(sibling, where.pool, where.asked)
        return *place, -siblings.get_priority(sibling), level

    def _find_used_part(self, sibling: Sibling, pool: int) -> int | None:
        """Return the least part of its guarantee that is used where a task below stays within; None: none does."""
        guaranteed = self._siblings.get_guaranteed(sibling)
        if guaranteed is None:
            return None
        least, reaches, in_pool = None, self._reaches, self._get_pool_bits(pool)
        for contender in self._below.get(sibling, ()):
            admitting = reaches.find_admitting(contender.task_class) & in_pool
            for demand_r in contender.demands if admitting else ():
                servers = admitting & reaches.find_holding(demand_r)
                part = guaranteed.find_used_part_of(self._find_concerned, servers, demand_r) if servers else None
                if part is not None and (least is None or part < least):
                    least = part
        return least

    def _find_concerned(self, domains: Domains) -> int:
        """Return the servers that a guarantee is about, as a set."""
        if domains not in self._servers_of:
            self._servers_of[domains] = compute_bits(domains.domain_k == 0)
        return self._servers_of[domains]

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

    def _get_ranking(self, parent: Sibling | None, where: _Where) -> list[tuple[_Key, str, Sibling]]:
        """Return the children of a tenant below which something waits, in their order."""
        key = parent, where.pool, where.asked
        ranking = self._rankings.get(key)
        if ranking is None:
            children = self._children.get(parent, ())
            ranking = self._rankings[key] = sorted(
                (self._compute_key(child, where), child.name, child) for child in children
            )
        return ranking
