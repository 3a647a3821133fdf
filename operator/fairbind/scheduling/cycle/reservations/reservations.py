"""Reservations: capacity that comes free is kept for a tenant that is rightfully next, until its task fits.

Without them a tenant whose tasks are larger than those of others starves: each part of a server that comes free is too
little for its task, and enough for one of theirs. So for a tenant that is blocked although others are ahead of it
(`needs`), capacity is reserved: for as many tasks as it lacks, on the servers where the tenants ahead of it are
expected to free enough first (`run_times`), up to a part of all that it may use (`review`).

To a cycle, what is reserved is not free, but for the tasks for which it is reserved, for all tenants that are further
behind, for groups that come before the order of shares, and for tasks that surely end before enough is expected to be
free (`opening`). So cycles decide by their usual rules, and as ever where nothing is reserved. Before a tenant takes
something because it is further behind, a cycle asks whether it is so now (`live`). If not, that cycle ends, and the
next one decides without it. Where something was taken so, the next review makes another reservation.

A reservation ends with the task that is placed by it, when its tenant is not rightfully next any more, with its server,
and after some time in which nothing more has come free. That server is then passed over for a while (`kept`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter

from fairbind.model import FairnessReason, RunningTask, Snapshot, TaskClass, Wait
from fairbind.model.reservations import Reservation, ReservationSettings, Reserved
from fairbind.scheduling.cycle.reservations.keeping import add_keeping
from fairbind.scheduling.cycle.reservations.kept import KeptReservations
from fairbind.scheduling.cycle.reservations.live import FirstClasses, LiveStandings, find_classes
from fairbind.scheduling.cycle.reservations.needs import list_blocked
from fairbind.scheduling.cycle.reservations.opening import (
    ReservedSnapshots,
    find_indices,
    may_class_use,
    may_try,
    may_use,
)
from fairbind.scheduling.cycle.reservations.review import Review
from fairbind.scheduling.cycle.reservations.run_times import RunTimes
from fairbind.scheduling.cycle.reservations.view import CycleView

REVIEW_SECONDS = 1.0
"""So often all tenants are looked at, as a cycle for one task must not cost what they cost."""


class Reservations:
    """The reservations of one cluster, from one cycle to the next. find_start, find_end: see `RunTimes`."""

    def __init__(
        self,
        find_start: Callable[[RunningTask], float] = attrgetter("start"),
        find_end: Callable[[RunningTask], float | None] = lambda _running: None,
    ) -> None:
        self._kept = KeptReservations()
        self._at: dict[int, list[Reservation]] = {}
        self._classes_of: FirstClasses | None = None
        self._known: set[str] = set()
        self._resources: tuple[str, ...] = ()
        self._snapshots = ReservedSnapshots()
        self._run_times = RunTimes(find_start, find_end)
        self._told: dict[Wait, Wait] = {}
        self._reviewed_at = -inf
        self._reviews = 0
        self._now = 0.0

    def list_all(self) -> list[Reservation]:
        """Return the reservations that stand, the oldest first."""
        return self._kept.list_all()

    def end_all(self) -> None:
        """End every reservation; the next review may make others."""
        self._kept.end_all()
        self._reviewed_at = -inf

    def count_ended(self, reservations: Iterable[Reservation]) -> int:
        """Return for how many tasks of these reservations nothing is reserved any more."""
        return sum(each.count - min(each.count, self._kept.count_tasks(each)) for each in reservations)

    def apply(self, snapshot: Snapshot, now: float) -> Snapshot:
        """Return what a cycle should decide about: the snapshot in which what is reserved is not free to all."""
        self._now, self._at, self._classes_of = now, {}, None
        if not len(self._kept):
            return snapshot
        tenants = {tenant.name for tenant in snapshot.tenants}
        self._end_void(snapshot, tenants)
        new = tenants - self._known
        for each in self._kept.list_all() if new else ():
            self._kept.set_behind(each, each.behind | new)  # until a review says where they stand
        self._known |= new
        add_keeping(self._kept, snapshot)
        kept = self._kept.list_all()
        index = find_indices(snapshot, {each.server for each in kept})
        for each in kept:
            self._at.setdefault(index[each.server], []).append(each)
        return self._snapshots.make(snapshot, kept, index, now) if kept else snapshot

    def may_take(self, task_class: TaskClass, servers: Iterable[int], look: Callable[[], CycleView]) -> bool:
        """Tell whether tasks of a class may still take what they may try to take on some servers. look: at the cycle.

        If not, the cycle must end, and then call `end_passed`.
        """
        if not self._at:
            return True
        tried = [
            each
            for server in servers
            for each in self._at.get(server, ())
            if may_try(each, task_class, self._now) and not may_class_use(each, task_class, self._now)
        ]
        if not tried:
            return True
        live, tenant = self._compare(look()), task_class.tenant
        return all(tenant in each.behind and live.is_behind(each, tenant) for each in tried)

    def end_passed(self, view: CycleView) -> None:
        """Let no tenant use what is reserved that is not further behind any more."""
        live = self._compare(view)
        for each in self._kept.list_all():
            self._kept.set_behind(each, frozenset(name for name in each.behind if live.is_behind(each, name)))

    def _compare(self, view: CycleView) -> LiveStandings:
        if self._classes_of is None:
            self._classes_of = find_classes(view.snapshot, self._kept.list_all())
        return LiveStandings(view, self._classes_of)

    def restore(self, reservations: Iterable[Reservation], snapshot: Snapshot) -> None:
        """Keep these reservations and no others, as at the beginning of a cycle that decides about the snapshot."""
        self._kept.end_all()
        for each in reservations:
            self._kept.add(each)
        self._resources, self._known = snapshot.resources, {tenant.name for tenant in snapshot.tenants}

    def _end_void(self, snapshot: Snapshot, tenants: Collection[str]) -> None:
        """End reservations of tenants and on servers that are gone or closed, and all where resources are others."""
        index = find_indices(snapshot, {each.server for each in self._kept.list_all()})
        for each in self._kept.list_all():
            is_open = each.server in index and snapshot.servers.accepting_k[index[each.server]]
            if not is_open or each.tenant not in tenants or snapshot.resources != self._resources:
                self._kept.end(each)

    def sum_by_tenant(self) -> dict[str, Reserved]:
        """Return what is reserved for each tenant."""
        sums: dict[str, Reserved] = {}
        for each in self._kept.list_all():
            pairs = zip(self._resources, each.demand_r, strict=True)
            amounts = Counter({resource: each.count * demand for resource, demand in pairs if demand})
            sums.setdefault(each.tenant, Reserved()).add(Reserved({each.server}, amounts))
        return sums

    def list_closed(self, tenant: str, demand_r: tuple[int, ...], most_seconds: float) -> list[str]:
        """Return the servers on which something is reserved that a task of this tenant and demand may not use."""
        asking = tenant, demand_r, most_seconds, ""
        return list(
            dict.fromkeys(each.server for each in self._kept.list_all() if not may_use(each, *asking, now=self._now))
        )

    def tell(self, waits: tuple[Wait, ...], now: float) -> tuple[Wait, ...]:
        """Return the waits; they say where something is reserved for their tasks, or for who comes before these."""
        kept = self._kept.list_all()
        if not kept:
            self._told.clear()
            return waits
        own, of_tenant = dict[tuple[str, tuple[int, ...], str], list[Reservation]](), Counter[str]()
        for each in kept:
            own.setdefault((each.tenant, each.demand_r, each.group), []).append(each)
            of_tenant[each.tenant] += 1
        told: dict[Wait, Wait] = {}
        for wait in waits:
            mine, fairness = own.get(_identify(wait.task_class), ()), wait.fairness
            if fairness is not None and of_tenant[fairness.next_tenant]:
                fairness = replace(fairness, reserved_on=of_tenant[fairness.next_tenant])
            if mine or fairness is not wait.fairness:
                expected = min((each.expected for each in mine if each.expected > now), default=None)
                news = len(mine), expected, fairness
                known = self._told.get(wait)
                is_same = known is not None and (known.reserved_on, known.expected, known.fairness) == news
                told[wait] = known if known and is_same else _tell(wait, *news)
        self._told = told
        return tuple([told.get(wait, wait) for wait in waits]) if told else waits

    def note_placed(self, placed: Sequence[tuple[TaskClass, int]], view: CycleView, now: float) -> None:
        """Note what a cycle placed: the class of each task and its server, in their order. view: of its end."""
        rows = {server: list(view.free.get_row(server)) for _, server in placed if server in self._at}
        for task_class, server in reversed(placed):
            if server in rows:
                self._note_taken(task_class, server, rows[server])
                rows[server] = [left + demand for left, demand in zip(rows[server], task_class.demand_r, strict=True)]
        for task_class, server in placed:
            if server in rows:
                self._kept.use(task_class, view.snapshot.servers.names[server], now)

    def _note_taken(self, task_class: TaskClass, server: int, left_r: Sequence[int]) -> None:
        """Note for whom others come before: a task took what was reserved, and surely ends in time for some only."""
        taken = [r for r, demand in enumerate(task_class.demand_r) if demand and left_r[r] < 0]
        for each in self._at[server] if taken else ():
            if any(each.demand_r[r] for r in taken) and not may_class_use(each, task_class, self._now):
                self._kept.note_taken(each)

    def review(self, end: CycleView, waits: Sequence[Wait], settings: ReservationSettings, now: float) -> float | None:
        """End what is not needed, and reserve what is lacking. waits: of a complete cycle, sorted.

        Return after how many seconds it must be called again, because it is too early now; None: it need not be.
        """
        if 0 <= now - self._reviewed_at < REVIEW_SECONDS:
            is_needed = len(end.progress_of) > 1 and next(list_blocked(waits), None) is not None
            return self._reviewed_at + REVIEW_SECONDS - now if is_needed or len(self._kept) else None
        self._reviewed_at, self._resources, self._known = now, end.snapshot.resources, set(end.progress_of)
        blocked = {each[0].task_class.tenant: each for each in list_blocked(waits)}
        if blocked or len(self._kept):
            self._reviews += 1
            review = Review(self._kept, self._run_times, end, settings, now=now, number=self._reviews)
            review.run(blocked)
        return None


def _identify(task_class: TaskClass) -> tuple[str, tuple[int, ...], str]:
    """Return for whose tasks a reservation is that such a class may have."""
    return task_class.tenant, task_class.demand_r, task_class.group_name


def _tell(wait: Wait, reserved_on: int, expected: float | None, fairness: FairnessReason | None) -> Wait:
    return replace(wait, reserved_on=reserved_on, expected=expected, fairness=fairness)
