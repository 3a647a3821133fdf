"""Review: one look at all who wait, which ends reservations that are not needed and makes those that are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from math import inf
from operator import attrgetter

import numpy as np

from fairbind.model import NO_DOMAIN, Domains, RunningTask, TaskClass, Wait
from fairbind.model.reservations import Reservation, ReservationSettings
from fairbind.model.servers import BoolArray, FloatArray, IndexArray, IntArray
from fairbind.scheduling.cycle.order.siblings import Sibling
from fairbind.scheduling.cycle.order.sizes import compute_size, find_largest
from fairbind.scheduling.cycle.reservations.kept import KeptReservations
from fairbind.scheduling.cycle.reservations.needs import Need, Parts, add_least_free, count_lacking, split_minimum
from fairbind.scheduling.cycle.reservations.opening import Amounts, find_indices, sum_amounts
from fairbind.scheduling.cycle.reservations.run_times import RunTimes, find_times
from fairbind.scheduling.cycle.reservations.standings import Standing, Standings
from fairbind.scheduling.cycle.reservations.view import CycleView
from fairbind.scheduling.cycle.servers.topology import sum_by_domain

MAX_REVIEWED = 4
"""For so many tenants at a time reservations are made."""

MAX_LOOKED_AT = 32
"""Among so many servers the best ones for a tenant are looked for; others the next time."""

MAX_SERVERS_OF_TENANT = 64
"""On so many servers at most something is reserved for single tasks of one tenant."""

MAX_SERVERS_OF_GROUP = 512
"""Among so many servers the set for a group is looked for. A minimum that needs more of them has no reservation."""


class Review:
    """One look. number: of the look, so that each looks at other servers."""

    def __init__(
        self,
        kept: KeptReservations,
        run_times: RunTimes,
        end: CycleView,
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
        self._standings = Standings(end.siblings, end.progress_of)
        self._reserved = self._sum_by_server(end.reserved)
        self._largest_r = find_largest(end.snapshot.servers)
        self._looked_at: dict[str, None] = {}

    def run(self, blocked: Mapping[str, Sequence[Wait]]) -> None:
        """Review everything. blocked: by tenant the wait of the task that is next and fits nowhere; see there."""
        kept, now = self._kept, self._now
        kept.forget_pauses(now)
        for each in kept.list_all():
            if not any(is_for(each, wait.task_class) for wait in blocked.get(each.tenant, ())):
                kept.end(each)
        self._follow()
        having = {each.tenant for each in kept.list_all()}
        kept.end_taken()
        needs = [self._find_need(waits, tenant in having) for tenant, waits in blocked.items()]
        ranked = sorted((need for need in needs if need is not None), key=attrgetter("place"))[:MAX_REVIEWED]
        reviewed = {need.task_class.tenant for need in ranked}
        for each in kept.list_all():
            if each.tenant not in reviewed:
                kept.end(each)
        for need in ranked:
            if need.group:
                self._serve_group(need, len(reviewed))
            else:
                self._serve(need, len(reviewed))
        servers = [*self._looked_at, *(each.server for each in kept.list_all())]
        self._run_times.observe(self._snapshot.running, dict.fromkeys(servers), now)

    def _follow(self) -> None:
        """Note how reservations go on, and give up those that do not, or that a server could not hold when empty."""
        self._end_excess()
        index = find_indices(self._snapshot, {each.server for each in self._kept.list_all()})
        for each in self._kept.list_all():
            free_r = self._end.free.get_row(index[each.server])  # of which what is reserved is no part
            asked = [(free, demand) for free, demand in zip(free_r, each.demand_r, strict=True) if demand > 0]
            free = min(((free + each.count * demand) / demand for free, demand in asked), default=0.0)
            self._kept.note_free(each, min(max(free, 0.0), each.count), self._now)
            if self._kept.is_stalled(each, self._now, self._settings.max_seconds):
                self._kept.give_up(each, self._now)

    def _end_excess(self) -> None:
        """End what does not go on a server beside what was reserved there before: it may have become smaller."""
        index = find_indices(self._snapshot, {each.server for each in self._kept.list_all()})
        left = {name: self._snapshot.servers.capacity_kr[server].copy() for name, server in index.items()}
        for each in self._kept.list_all():
            fitting = int(count_slots(left[each.server][np.newaxis], each.demand_r, each.count)[0])
            left[each.server] -= fitting * np.array(each.demand_r)
            if fitting < each.count:
                self._kept.end(each, each.count - fitting)

    # --- who needs what ---

    def _find_need(self, waits: Sequence[Wait], has_some: bool) -> Need | None:  # noqa: FBT001 - one caller, beside it
        """Return what a tenant needs where it is least behind others; None: no tenant is ahead of it.

        A group also needs what other tasks of its own tenant would take, if no other tenant comes before that.
        """
        wait = waits[0]
        task_class = wait.task_class
        allowed = self._end.find_allowed(task_class)
        if len(allowed) == 0 or not any(task_class.demand_r):
            return None
        need = self._standings.measure_need(wait, self._end.find_pool(task_class.tenant, allowed), allowed)
        if wait.group is not None:
            need = replace(need, group=wait.group.name, parts=self._choose_parts(waits))
            if not need.parts:
                return None
            has_some = has_some or wait.fairness is None
        return need if need.steps[-1].step > 0 and (has_some or self._standings.is_behind(need)) else None

    def _choose_parts(self, waits: Sequence[Wait]) -> Parts:
        """Return how many tasks of each class a minimum is, larger ones first; nothing if empty servers hold none.

        It is of the largest tasks, which are placed first, or if these can never all fit, of the smallest.
        """
        ordered = sorted(waits, key=lambda wait: compute_size(wait.task_class, self._largest_r), reverse=True)
        largest, smallest = split_minimum(ordered), split_minimum(ordered[::-1])[::-1]
        choices = map(add_least_free, (largest, smallest))
        return next((parts for parts in choices if self._may_ever_fit(parts)), ())

    def _may_ever_fit(self, parts: Parts) -> bool:
        """Whether the minimum of a group could be placed on empty servers, each class by itself."""
        domains, capacity_kr = find_required_domains(parts[0][0]), self._snapshot.servers.capacity_kr
        for task_class, count in parts:
            slots_k = self._count_all_slots(capacity_kr, task_class, count)
            slots = slots_k.sum() if domains is None else sum_by_domain(slots_k, domains).max(initial=0)
            if slots < count:
                return False
        return True

    # --- what it gets ---

    def _serve(self, need: Need, tenants: int) -> None:
        """Let a tenant have as many reservations as it lacks tasks. tenants: how many share what may be reserved."""
        kept, tenant, demand_r = self._kept, need.task_class.tenant, need.task_class.demand_r
        standings, behind = self._compare_others(need)
        mine = kept.list_of(tenant)
        for each in mine:
            kept.set_behind(each, behind)
        allowed = self._end.find_allowed(need.task_class)
        pool_k = self._end.measure.pools.pool_k
        if pool_k is not None and self._end.measure.is_by_pool:  # else capacity anywhere brings it to its share
            allowed = allowed[pool_k[allowed] == need.pool]
        servers = self._choose_servers(allowed, demand_r)
        index = find_indices(self._snapshot, [each.server for each in mine])
        tasks_of = {server: self._list_ahead(server, standings) for server in {*servers, *index.values()}}
        holders = {task.tenant for tasks in tasks_of.values() for task in tasks}
        free = sum(map(kept.get_free, mine))
        lacking = self._count_lacking(need, [standings[name] for name in holders], free)
        more = min(lacking, need.waiting) - sum(each.count for each in kept.list_of(tenant))
        if more < 0:
            self._end_last(kept.list_of(tenant), -more)
        elif more > 0:
            most = min(more, self._count_allowed(need.task_class, allowed, tenants))
            promised = self._sum_by_server(kept.list_all())
            times = merge(*(self._expect(server, tasks_of[server], need.task_class, promised) for server in servers))
            for seconds, name in islice(times, max(most, 0)):
                if len(kept.list_of(tenant)) < MAX_SERVERS_OF_TENANT:
                    expected = self._now + seconds
                    kept.add(Reservation(tenant, name, demand_r, 1, self._now, expected, behind))

    def _compare_others(self, need: Need) -> tuple[dict[str, Standing], frozenset[str]]:
        """Return where each other tenant is beside the one of a need, and which of them are behind it."""
        tenant = need.task_class.tenant
        standings = {name: self._standings.compare(need, name) for name in self._end.progress_of if name != tenant}
        return standings, frozenset(name for name, other in standings.items() if other.is_behind)

    def _serve_group(self, need: Need, tenants: int) -> None:
        """Let a group have the servers that free enough for its minimum first, all of it or nothing.

        It may be more than the part of one tenant, as long as no other group has such reservations.
        """
        kept, tenant = self._kept, need.task_class.tenant
        standings, behind = self._compare_others(need)
        for each in self._plan_set(need, standings, behind, tenants):
            kept.add(each)
        for each in kept.list_of(tenant):
            kept.set_behind(each, behind)
        mine = kept.list_of(tenant)
        expected = max((each.expected for each in mine), default=self._now)
        for each in mine:
            kept.expect(each, expected)

    def _plan_set(
        self, need: Need, standings: Mapping[str, Standing], behind: frozenset[str], tenants: int
    ) -> Sequence[Reservation]:
        """Return what must be reserved beside what is for the minimum of a group; nothing if there is not all of it.

        Where the group must be in one domain, so is the set: that of what is reserved already, or the one that is
        expected first.
        """
        domains, tenant = find_required_domains(need.task_class), need.task_class.tenant
        if domains is None:
            return self._plan_within(need, standings, behind, tenants, None) or ()
        index = find_indices(self._snapshot, [each.server for each in self._kept.list_of(tenant)])
        held = {int(domains.domain_k[server]) for server in index.values()}
        found = list[Sequence[Reservation]]()
        if len(held) <= 1 and NO_DOMAIN not in held:  # labels of servers may have changed
            for domain in held or self._choose_domains(need, domains):
                plan = self._plan_within(need, standings, behind, tenants, domains.domain_k == domain)
                found += [] if plan is None else [plan]
        for each in self._kept.list_of(tenant) if not found else ():
            self._kept.end(each)  # the next review looks at other domains
        return min(found, key=lambda plan: max((each.expected for each in plan), default=self._now), default=())

    def _plan_within(
        self,
        need: Need,
        standings: Mapping[str, Standing],
        behind: frozenset[str],
        tenants: int,
        member_k: BoolArray | None,
    ) -> Sequence[Reservation] | None:
        """Return the same on some servers; None: there is not all of it. member_k: shape (K,); None: on all."""
        kept, tenant = self._kept, need.task_class.tenant
        planned: list[Reservation] = []
        for task_class, count in need.parts:
            mine = [each for each in kept.list_of(tenant) if is_for(each, task_class)]
            more = count - sum(each.count for each in mine)
            if more < 0:
                self._end_last(mine, -more)
            elif more > 0:
                allowed = self._end.find_allowed(task_class)
                allowed = allowed if member_k is None else allowed[member_k[allowed]]
                is_alone = not any(each.group and each.tenant != tenant for each in kept.list_all())
                if not is_alone and more > self._count_allowed(task_class, allowed, tenants):
                    return None
                servers = self._choose_servers(allowed, task_class.demand_r, min(2 * count, MAX_SERVERS_OF_GROUP))
                promised = self._sum_by_server([*kept.list_all(), *planned])
                times = merge(
                    *(
                        self._expect(server, self._list_ending(server, standings, tenant), task_class, promised)
                        for server in servers
                    )
                )
                first = list(islice(times, more))
                if len(first) < more:
                    return None
                for seconds, name in first:
                    expected = self._now + seconds
                    made = Reservation(tenant, name, task_class.demand_r, 1, self._now, expected, behind, need.group)
                    planned.append(made)
        return planned

    def _choose_domains(self, need: Need, domains: Domains) -> Collection[int]:
        """Return the domains to look at: of those that hold the minimum when empty, the freest, and some others.

        The more servers a set has, the fewer domains.
        """
        free_d, holds_d = np.zeros(domains.size), np.ones(domains.size, dtype=np.bool_)
        for task_class, count in need.parts:
            empty_k, free_k = (
                self._count_all_slots(amount_kr, task_class, count)
                for amount_kr in (self._snapshot.servers.capacity_kr, self._end.free.left_rk.T)
            )
            holds_d &= sum_by_domain(empty_k, domains) >= count
            free_d += sum_by_domain(free_k, domains)
        holding = np.flatnonzero(holds_d)
        servers = min(2 * sum(count for _, count in need.parts), MAX_SERVERS_OF_GROUP)
        most = max(2 * MAX_SERVERS_OF_GROUP // max(servers, MAX_LOOKED_AT), 2)
        if len(holding) > most:
            holding = holding[choose_in_turn(free_d[holding], most, self._number)]
        chosen: list[int] = holding.tolist()
        return chosen

    def _count_all_slots(self, amount_kr: IntArray | FloatArray, task_class: TaskClass, most: int) -> FloatArray:
        """Return how many tasks each server that a class may use could take, and at most so many, shape (K,).

        amount_kr: what there is for them, base units, shape (K, R).
        """
        allowed = self._end.find_allowed(task_class)
        slots_k = np.zeros(len(amount_kr))
        slots_k[allowed] = count_slots(amount_kr[allowed].astype(np.int64), task_class.demand_r, most)
        return slots_k

    def _list_ending(self, server: int, standings: Mapping[str, Standing], tenant: str) -> Collection[RunningTask]:
        """Return the tasks on a server that leave it to a group of a tenant: its own, and those of tenants ahead."""
        own = self._snapshot.running.get(self._snapshot.servers.names[server], ())
        return [*self._list_ahead(server, standings), *(task for task in own if task.tenant == tenant)]

    def _count_lacking(self, need: Need, ahead: Collection[Standing], free: float) -> int:
        """Return how many tasks a tenant lacks, itself or above it. ahead: those who hold what it could use."""
        if any(other.share == inf for other in ahead):
            return need.waiting  # they come after it, whatever it holds
        counts = [0]
        for level, (sibling, share, step) in enumerate(need.steps):
            others = {other.sibling: other.share for other in ahead if other.level == level}
            weighted = [(other_share, self._get_weight(other)) for other, other_share in others.items()]
            counts.append(count_lacking(step, share, self._get_weight(sibling), weighted, free))
        return max(counts)

    def _get_weight(self, sibling: Sibling) -> float:
        weight = self._end.siblings.find_inner_weight(sibling)
        return self._weights[sibling.name] if weight is None else weight

    def _end_last(self, reservations: Iterable[Reservation], count: int) -> None:
        """End reservations of a tenant for so many tasks, those first that would take longest."""
        for each in sorted(reservations, key=lambda each: (-each.expected, each.server)):
            if count > 0:
                self._kept.end(each, count)
                count -= each.count

    def _choose_servers(self, allowed: IndexArray, demand_r: Sequence[int], most: int = MAX_LOOKED_AT) -> list[int]:
        """Return the servers to look at, ascending: those where the largest part of a task would fit, and some others.

        The others are other ones each time: those that are emptiest may hold no task of a tenant ahead.
        """
        most = max(most, MAX_LOOKED_AT)
        if len(allowed) > most:
            free_rn = self._end.free.left_rk[:, allowed]
            part_n = np.min([free_rn[r] / demand for r, demand in enumerate(demand_r) if demand > 0], axis=0)
            allowed = allowed[choose_in_turn(part_n, most, self._number)]
        names = self._snapshot.servers.names
        self._looked_at.update(dict.fromkeys(names[server] for server in allowed.tolist()))
        chosen: list[int] = allowed.tolist()
        return chosen

    def _list_ahead(self, server: int, standings: Mapping[str, Standing]) -> Collection[RunningTask]:
        """Return the tasks on a server that tenants hold that are ahead."""
        tasks = self._snapshot.running.get(self._snapshot.servers.names[server], ())
        return [task for task in tasks if (other := standings.get(task.tenant)) is not None and other.is_ahead]

    def _expect(
        self, server: int, tasks: Collection[RunningTask], task_class: TaskClass, promised: Amounts
    ) -> Iterator[tuple[float, str]]:
        """Yield in how many seconds one task more of the tenant may fit on a server, and one more, with its name.

        promised: what is reserved now, beside which it must fit.
        """
        name = self._snapshot.servers.names[server]
        if not self._kept.is_passed_over(task_class.tenant, name, self._now):
            ends = [(self._run_times.compute_remaining(task, self._now), task.demand_r) for task in tasks]
            free_r = self._end.free.get_row(server)  # of which what was reserved is no part
            nothing_r = (0,) * len(free_r)
            changes = self._reserved.get(server, nothing_r), promised.get(server, nothing_r)
            row = [free + before - now for free, before, now in zip(free_r, *changes, strict=True)]
            yield from ((seconds, name) for seconds in find_times(ends, row, task_class.demand_r))

    def _sum_by_server(self, reservations: Sequence[Reservation]) -> Amounts:
        """Return what is reserved on each server."""
        return sum_amounts(reservations, find_indices(self._snapshot, {each.server for each in reservations}))

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


def is_for(reservation: Reservation, task_class: TaskClass) -> bool:
    """Tell whether something is reserved for tasks of a class of its tenant."""
    return (reservation.demand_r, reservation.group) == (task_class.demand_r, task_class.group_name)


def find_required_domains(task_class: TaskClass) -> Domains | None:
    """Return the domains of which the group of a class must be in one; None: there are no such."""
    topology = None if task_class.group is None else task_class.group.topology
    return topology.domains if topology is not None and topology.is_required else None


def choose_in_turn(worth_n: IntArray | FloatArray, most: int, number: int) -> IndexArray:
    """Return the positions of so many of a longer list, ascending: half are of the highest worth, half have their turn.

    number: of the look, so that others have their turn the next time.
    """
    order_n = (np.arange(len(worth_n)) - number * most) % len(worth_n)
    best = np.lexsort((order_n, -worth_n))[: most // 2]
    return np.union1d(best, np.flatnonzero(order_n < most // 2))


def count_slots(free_nr: IntArray, demand_r: Sequence[int], most: int) -> IntArray:
    """Return how many tasks each server could take, and at most so many, shape (n,). free_nr: shape (n, R)."""
    slots_n = np.full(len(free_nr), most, dtype=np.int64)
    for r, demand in enumerate(demand_r):
        if demand > 0:
            np.minimum(slots_n, free_nr[:, r] // demand, out=slots_n)
    return slots_n
