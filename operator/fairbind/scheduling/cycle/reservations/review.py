"""Review: one look at all who wait, which ends reservations that are not needed and makes those that are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

import numpy as np

from fairbind.model import RunningTask, Snapshot, TaskClass, Wait
from fairbind.model.reservations import Reservation, ReservationSettings
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.reservations.kept import KeptReservations
from fairbind.scheduling.cycle.reservations.needs import Need, count_lacking, measure_need
from fairbind.scheduling.cycle.reservations.opening import find_indices
from fairbind.scheduling.cycle.reservations.run_times import RunTimes, find_times
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure

MAX_REVIEWED = 4
"""For so many tenants at a time reservations are made."""

MAX_LOOKED_AT = 32
"""Among so many servers the best ones for a tenant are looked for; others the next time."""

MAX_SERVERS_OF_TENANT = 64
"""On so many servers at most something is reserved for one tenant."""


@dataclass(frozen=True, slots=True)
class CycleEnd:
    """The state of a cycle at its end. snapshot: what it decided about."""

    snapshot: Snapshot
    free: FreeCapacity
    topology: TopologyState
    measure: Measure
    progress_of: Mapping[str, Progress]


class Review:
    """One look. number: of the look, so that each looks at other servers."""

    def __init__(
        self,
        kept: KeptReservations,
        run_times: RunTimes,
        end: CycleEnd,
        settings: ReservationSettings,
        *,
        now: float,
        number: int,
    ) -> None:
        self._kept = kept
        self._run_times = run_times
        self._end = end
        self._settings = settings
        self._now = now
        self._number = number
        self._snapshot = end.snapshot
        self._weights = {tenant.name: float(tenant.weight) for tenant in end.snapshot.tenants}
        self._shares: dict[int, dict[str, float]] = {}
        self._highest: dict[int, float] = {}
        self._looked_at: dict[str, None] = {}

    def run(self, blocked: Mapping[str, Wait]) -> None:
        """Review everything. blocked: by tenant the wait of the task that is next and fits nowhere."""
        kept, now = self._kept, self._now
        kept.forget_pauses(now)
        for each in kept.list_all():
            if each.tenant not in blocked or blocked[each.tenant].task_class.demand_r != each.demand_r:
                kept.end(each)
        self._follow()
        having = {each.tenant for each in kept.list_all()}
        needs = [self._find_need(wait, tenant in having) for tenant, wait in blocked.items()]
        ranked = sorted((need.share, need.task_class.tenant, need) for need in needs if need is not None)
        reviewed = {tenant for _, tenant, _ in ranked[:MAX_REVIEWED]}
        for each in kept.list_all():
            if each.tenant not in reviewed:
                kept.end(each)
        for _, _, need in ranked[:MAX_REVIEWED]:
            self._serve(need, len(reviewed))
        servers = [*self._looked_at, *(each.server for each in kept.list_all())]
        self._run_times.observe(self._snapshot.running, dict.fromkeys(servers), now)

    def _follow(self) -> None:
        """Note how reservations go on, and give up those that do not."""
        index = find_indices(self._snapshot, {each.server for each in self._kept.list_all()})
        for each in self._kept.list_all():
            free_r = self._end.free.get_row(index[each.server])  # of which what is reserved is no part
            asked = [(free, demand) for free, demand in zip(free_r, each.demand_r, strict=True) if demand > 0]
            free = min(((free + each.count * demand) / demand for free, demand in asked), default=0.0)
            self._kept.note_free(each, min(max(free, 0.0), each.count), self._now)
            if self._kept.is_stalled(each, self._now, self._settings.max_seconds):
                self._kept.give_up(each, self._now)

    # --- who needs what ---

    def _get_shares(self, pool: int) -> dict[str, float]:
        """Return where each tenant stands on a pool."""
        shares = self._shares.get(pool)
        if shares is None:
            compute, progress_of = self._end.measure.compute_share, self._end.progress_of
            shares = self._shares[pool] = {name: compute(progress, pool) for name, progress in progress_of.items()}
        return shares

    def _find_need(self, wait: Wait, has_some: bool) -> Need | None:  # noqa: FBT001 - one caller, beside it
        """Return what a tenant needs where it is least behind others; None: no tenant is ahead of it."""
        task_class, measure = wait.task_class, self._end.measure
        progress = self._end.progress_of[task_class.tenant]
        allowed = self._find_allowed(task_class)
        if len(allowed) == 0 or not any(task_class.demand_r):
            return None
        pool_k = measure.pools.pool_k
        pool = 0 if pool_k is None else measure.find_least_level(progress, np.unique(pool_k[allowed]))[1]
        need = measure_need(wait, progress, measure, pool)
        is_behind = need.share + need.step <= self._get_highest(pool)
        return need if need.step > 0 and (has_some or is_behind) else None

    def _get_highest(self, pool: int) -> float:
        """Return where the tenant stands on a pool that is furthest ahead there."""
        if pool not in self._highest:
            self._highest[pool] = max(self._get_shares(pool).values())
        return self._highest[pool]

    def _find_allowed(self, task_class: TaskClass) -> IndexArray:
        """Return the servers that a class may use, whatever is free there, ascending."""
        servers, pin = self._snapshot.servers, task_class.pin
        if pin is not None:
            is_open = pin.server is not None and servers.accepting_k[pin.server]
            return np.array([pin.server] if is_open else [], dtype=np.intp)
        allowed_k = task_class.placement.eligible_k & servers.accepting_k
        domains = self._end.topology.get_filter(task_class.rules)
        return np.flatnonzero(allowed_k if domains is None else allowed_k & ~domains.closed_k)

    # --- what it gets ---

    def _serve(self, need: Need, tenants: int) -> None:
        """Let a tenant have as many reservations as it lacks tasks. tenants: how many share what may be reserved."""
        kept, tenant, demand_r = self._kept, need.task_class.tenant, need.task_class.demand_r
        shares = self._get_shares(need.pool)
        place = need.share, tenant
        behind = frozenset(name for name, share in shares.items() if (share, name) < place)
        mine = kept.list_of(tenant)
        for each in mine:
            kept.set_behind(each, behind)
        allowed = self._find_allowed(need.task_class)
        pool_k = self._end.measure.pools.pool_k
        allowed = allowed if pool_k is None else allowed[pool_k[allowed] == need.pool]
        servers = self._choose_servers(allowed, demand_r)
        index = find_indices(self._snapshot, [each.server for each in mine])
        tasks_of = {server: self._list_ahead(server, shares, need) for server in {*servers, *index.values()}}
        holders = {task.tenant for tasks in tasks_of.values() for task in tasks}
        free = sum(map(kept.get_free, mine))
        ahead = [(shares[name], self._weights[name]) for name in holders]
        lacking = count_lacking(need.step, need.share, self._weights[tenant], ahead, free)
        more = min(lacking, need.waiting) - sum(each.count for each in kept.list_of(tenant))
        if more < 0:
            self._end_last(tenant, -more)
        elif more > 0:
            most = min(more, self._count_allowed(need.task_class, allowed, tenants))
            times = merge(*(self._expect(server, tasks_of[server], need) for server in servers))
            for seconds, name in islice(times, max(most, 0)):
                if len(kept.list_of(tenant)) < MAX_SERVERS_OF_TENANT:
                    expected = self._now + seconds
                    kept.add(Reservation(tenant, name, demand_r, 1, self._now, expected, behind))

    def _end_last(self, tenant: str, count: int) -> None:
        """End so many reservations of a tenant, those first that would take longest."""
        for each in sorted(self._kept.list_of(tenant), key=lambda each: (-each.expected, each.server)):
            if count > 0:
                self._kept.end(each, count)
                count -= each.count

    def _choose_servers(self, allowed: IndexArray, demand_r: Sequence[int]) -> list[int]:
        """Return the servers to look at, ascending: those where the largest part of a task would fit, and some others.

        The others are other ones each time: those that are emptiest may hold no task of a tenant ahead.
        """
        if len(allowed) > MAX_LOOKED_AT:
            free_rn = self._end.free.left_rk[:, allowed]
            part_n = np.min([free_rn[r] / demand for r, demand in enumerate(demand_r) if demand > 0], axis=0)
            order_n = (np.arange(len(allowed)) - self._number * MAX_LOOKED_AT) % len(allowed)
            best = np.lexsort((order_n, -part_n))[: MAX_LOOKED_AT // 2]
            allowed = np.union1d(allowed[best], allowed[order_n < MAX_LOOKED_AT // 2])
        names = self._snapshot.servers.names
        self._looked_at.update(dict.fromkeys(names[server] for server in allowed.tolist()))
        chosen: list[int] = allowed.tolist()
        return chosen

    def _list_ahead(self, server: int, shares: Mapping[str, float], need: Need) -> Collection[RunningTask]:
        """Return the tasks on a server that tenants hold that are ahead."""
        tasks = self._snapshot.running.get(self._snapshot.servers.names[server], ())
        return [task for task in tasks if shares.get(task.tenant, 0.0) > need.share]

    def _expect(self, server: int, tasks: Collection[RunningTask], need: Need) -> Iterator[tuple[float, str]]:
        """Yield in how many seconds one task more of the tenant may fit on a server, and one more, with its name."""
        name, task_class = self._snapshot.servers.names[server], need.task_class
        if not self._kept.is_passed_over(task_class.tenant, name, self._now):
            ends = [(self._run_times.compute_remaining(task, self._now), task.demand_r) for task in tasks]
            row = self._end.free.get_row(server)  # of which what is reserved is no part
            yield from ((seconds, name) for seconds in find_times(ends, row, task_class.demand_r))

    def _count_allowed(self, task_class: TaskClass, allowed: IndexArray, tenants: int) -> int:
        """Return for how many tasks more a tenant may have reservations on some servers; for one if it has none.

        tenants: how many have equal parts of what may be reserved, so that no tenant takes that of another.
        """
        most, demand_r = self._settings.most / tenants, task_class.demand_r
        mine = self._kept.list_of(task_class.tenant)
        index = find_indices(self._snapshot, [each.server for each in mine])
        there = [each for each in mine if index.get(each.server) in allowed]
        capacity_r = self._snapshot.servers.capacity_kr[allowed].sum(axis=0).tolist()
        counts = list[int]()
        for r, demand in enumerate(demand_r):
            if demand > 0:
                taken = sum(each.count * each.demand_r[r] for each in there)
                counts.append((capacity_r[r] * most.numerator // most.denominator - taken) // demand)
        return max(min(counts), 0 if there else 1)
