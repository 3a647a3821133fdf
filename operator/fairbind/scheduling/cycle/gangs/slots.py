"""Slots: how many tasks of a class the servers could still take, if only that class were placed.

Where a class has neither rules nor exclusive keys the number is exact, and of others it is an upper bound. So a group
that has too few slots is passed over without a try, and one whose tasks are all of one such class fits if it has
enough. Slots are counted once a kind of class, and again on servers that have changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairbind.model import NO_DOMAIN, LimitRule, Placement, RejectionKind, TaskClass, UsageBelow
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.model.topology import list_tenant_limits
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.shapes import Shapes
from fairbind.scheduling.cycle.servers.topology import TopologyState

MANY_SLOTS = float(1 << 40)
"""Stands for no bound: of tasks that ask for nothing."""

_Asking = tuple[tuple[int, ...], Placement, str | None]


@dataclass(slots=True)
class _Counted:
    """slots_k: by server, shape (K,). seen: the position in the log of changes up to which they hold."""

    slots_k: FloatArray
    seen: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many tasks of a class fit. slots_k: by server, shape (K,). most: on all together, with limits of tenants.

    limit: the limit of a tenant that lets too few of them in, whatever is free; None: none does.
    until: when one task more may be let in by such limits, also by those of some servers.
    """

    slots_k: FloatArray
    most: int
    limit: LimitRule | None
    until: tuple[UsageBelow, ...]


class Slots:
    """Counts slots in the state of a draft."""

    def __init__(self, shapes: Shapes, free: FreeCapacity, topology: TopologyState) -> None:
        self._shapes = shapes
        self._free = free
        self._topology = topology
        self._known: dict[_Asking, _Counted] = {}

    def count(self, task_class: TaskClass, enough: int) -> Capacity:
        """Return how many tasks of a class could be placed now; more than enough are not told apart."""
        slots_k = np.minimum(self.count_servers(task_class), enough)
        most, found, until = int(slots_k.sum()), None, list[UsageBelow]()
        for rule in list_tenant_limits(task_class.rules, RejectionKind.AT_LIMIT, RejectionKind.KEPT_BACK):
            held = int(self._topology.get_counter(rule.counter).count_d[0])
            allowed = max(int(rule.most_d[0]) - held, 0) // rule.amount
            outside_k = rule.counter.domains.domain_k == NO_DOMAIN
            if allowed < enough:
                until.append(UsageBelow(rule.counter.subject, int(rule.most_d[0]) - rule.amount * (allowed + 1) + 1))
                if not outside_k[self._list_servers(task_class)].any():
                    found = rule
            most = min(most, int(slots_k[outside_k].sum()) + allowed)
        return Capacity(slots_k, most, found, tuple(until))

    def sum_free(self, task_class: TaskClass) -> list[int]:
        """Return what is free on all servers that a class may use, length R."""
        sums_r = self._free.left_rk[:, self._list_servers(task_class)].sum(axis=1)
        return [int(free) for free in sums_r]

    def count_servers(self, task_class: TaskClass) -> FloatArray:
        """Return the slots of each server, whatever limits tenants have, shape (K,); not to be changed."""
        pin = None if task_class.pin is None else task_class.pin.name
        kind = task_class.demand_r, task_class.placement, pin
        known, free = self._known.get(kind), self._free
        if known is None:
            slots_k = np.zeros(free.left_rk.shape[1])
            known = self._known[kind] = _Counted(slots_k, free.log_size)
            servers = self._list_servers(task_class)
            slots_k[servers] = self._compute(task_class, servers)
        elif known.seen < free.log_size:
            changed = np.unique(free.log[known.seen : free.log_size])
            known.seen = free.log_size
            servers = np.intersect1d(changed, self._list_servers(task_class))
            known.slots_k[servers] = self._compute(task_class, servers)
        return known.slots_k

    def _list_servers(self, task_class: TaskClass) -> IndexArray:
        arrangement = self._shapes.get_arrangement(task_class.placement)
        if task_class.pin is None:
            return arrangement.servers
        server = arrangement.find_pinned(task_class.pin)
        return np.array([] if server is None else [server], dtype=np.intp)

    def _compute(self, task_class: TaskClass, servers: IndexArray) -> FloatArray:
        """Return the slots of servers by what is free there; whole numbers in float64 are exact."""
        free, placement = self._free, task_class.placement
        asked = [(r, demand) for r, demand in enumerate(task_class.demand_r) if demand > 0]
        slots_n = np.full(len(servers), MANY_SLOTS)
        for r, demand in asked:
            np.minimum(slots_n, free.left_rk[r, servers] // demand, out=slots_n)
        for server in placement.reserved:
            row = free.get_row_for(placement, server)
            slots_n[servers == server] = min((max(row[r], 0) // demand for r, demand in asked), default=MANY_SLOTS)
        keys = placement.exclusive_keys
        if keys.conflicting:
            taken = [not keys.conflicting.isdisjoint(free.taken_keys.get(server, ())) for server in servers.tolist()]
            slots_n[taken] = 0
        if not keys.conflicting.isdisjoint(keys.taken):
            np.minimum(slots_n, 1, out=slots_n)
        restricted_k = self._shapes.get_arrangement(placement).restricted_k
        if restricted_k is not None:
            slots_n[restricted_k[servers]] = 0
        return slots_n
