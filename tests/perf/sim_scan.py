"""The same simulation by a direct scan: for each decision numpy looks at all servers, and nothing is remembered.

It decides as `best-fit-drfh` does: whose weighted dominant share is least comes next, with its oldest task that fits,
on the server whose free capacity is most like the task. It measures nothing and knows no events, so it does less than
the simulator beside which it is measured.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fairbind.cluster.classes.counting import NOT_FITTED
from fairbind.cluster.filters.refusals import find_refusal
from fairbind.simulator.driver import name_node
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.workload import FOREVER, Workload


class Start(NamedTuple):
    """A task that started. time: nanoseconds."""

    number: int
    time: int
    server: str


@dataclass(slots=True)
class _Tenant:
    """What a tenant holds, by resource, and what waits, by entry."""

    weight: float
    held_r: list[int]
    waiting: dict[int, deque[int]] = field(default_factory=dict)


class DirectScan:
    """One run."""

    def __init__(self, scenario: Scenario, workload: Workload) -> None:
        nodes = sorted(
            (
                name_node(shape.node, f"{shape.name}-{n}")
                for shape in scenario.shapes.values()
                for n in range(shape.count)
            ),
            key=lambda node: node.name,
        )
        self.names = [node.name for node in nodes]
        self.resources = sorted({resource for node in nodes for resource, _ in node.allocatable})
        amounts = [dict(node.allocatable) for node in nodes]
        self.free_rk = np.array([[each.get(r, 0) for each in amounts] for r in self.resources], dtype=np.int64)
        self.total_r = self.free_rk.sum(axis=1).tolist()
        demands = [dict(entry.waiting.demand.real) for entry in scenario.workload]
        self.lacks = [not demand.keys() <= set(self.resources) for demand in demands]
        self.demand_er = [[demand.get(r, 0) for r in self.resources] for demand in demands]
        self.eligible_e = [
            np.array([find_refusal(node, entry.waiting.constraints) is None for node in nodes])
            for entry in scenario.workload
        ]
        self.tenant_e = [entry.tenant for entry in scenario.workload]
        self.tenants = {spec.name: _Tenant(float(spec.weight), [0] * len(self.resources)) for spec in scenario.tenants}
        self.counting = [r for r, name in enumerate(self.resources) if name != "pods"]
        self.fitting = [r for r, name in enumerate(self.resources) if name not in NOT_FITTED]
        self.workload = workload
        self.horizon = scenario.horizon
        self.starts: list[Start] = []

    def live(self) -> None:
        """Let time pass until nothing more arrives or ends, or to the horizon."""
        arrival, duration = self.workload.arrival_t.tolist(), self.workload.duration_t.tolist()
        entries = self.workload.entry_t.tolist()
        ends: list[tuple[int, int, int]] = []
        arrived = 0
        while ends or arrived < len(arrival):
            now = min(([ends[0][0]] if ends else []) + ([arrival[arrived]] if arrived < len(arrival) else []))
            if self.horizon is not None and now > self.horizon:
                return
            while ends and ends[0][0] <= now:
                _, number, server = heapq.heappop(ends)
                self._hold(entries[number], server, -1)
            while arrived < len(arrival) and arrival[arrived] <= now:
                waiting = self.tenants[self.tenant_e[entries[arrived]]].waiting
                waiting.setdefault(entries[arrived], deque()).append(arrived)
                arrived += 1
            for number, server in self._decide():
                self.starts.append(Start(number, now, self.names[server]))
                if duration[number] != FOREVER:
                    heapq.heappush(ends, (now + duration[number], number, server))

    def _decide(self) -> list[tuple[int, int]]:
        """Fill progressively; return which tasks start where."""
        closed: set[int] = set()
        heap = [(self._compute_level(tenant), name) for name, tenant in self.tenants.items() if tenant.waiting]
        heapq.heapify(heap)
        found = []
        while heap:
            _, name = heapq.heappop(heap)
            tenant = self.tenants[name]
            while True:
                entry = min(
                    (each for each in tenant.waiting if each not in closed),
                    key=lambda each: tenant.waiting[each][0],
                    default=None,
                )
                if entry is None:
                    break
                server = self._scan(entry)
                if server is None:
                    closed.add(entry)
                    continue
                found.append((tenant.waiting[entry].popleft(), server))
                if not tenant.waiting[entry]:
                    del tenant.waiting[entry]
                self._hold(entry, server, 1)
                heapq.heappush(heap, (self._compute_level(tenant), name))
                break
        return found

    def _scan(self, entry: int) -> int | None:
        """Return the best server of all for a task of an entry."""
        if self.lacks[entry]:
            return None
        demand_r = self.demand_er[entry]
        fits_k = self.eligible_e[entry].copy()
        for r, demand in enumerate(demand_r):
            if demand:
                fits_k &= self.free_rk[r] >= demand
        fitting_n = np.flatnonzero(fits_k)
        if len(fitting_n) == 0:
            return None
        reference = max(self.fitting, key=lambda r: demand_r[r] / self.total_r[r])
        left = self.free_rk[reference, fitting_n]
        distance_n = np.zeros(len(fitting_n))
        for r in self.fitting:
            if r != reference:
                scale = self.total_r[reference] / self.total_r[r]
                ratio = demand_r[r] * self.total_r[reference] / (self.total_r[r] * demand_r[reference])
                distance_n += np.abs(self.free_rk[r, fitting_n] / left * scale - ratio)
        return int(fitting_n[distance_n.argmin()])

    def _hold(self, entry: int, server: int, sign: int) -> None:
        held_r = self.tenants[self.tenant_e[entry]].held_r
        for r, demand in enumerate(self.demand_er[entry]):
            if demand:
                held_r[r] += sign * demand
                self.free_rk[r, server] -= sign * demand

    def _compute_level(self, tenant: _Tenant) -> float:
        share: float = max(tenant.held_r[r] / self.total_r[r] for r in self.counting)
        return share / tenant.weight
