"""Opening: reserved capacity is not free in a snapshot, and free to the placements of those who may use it.

More may be reserved on a server than is free there now. What is kept there for others, such as nominated pods and lost
members of groups, is no part of that: a reservation is about what comes free beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairbind.model import Placement, ServerTable, Snapshot, TaskClass
from fairbind.model.reservations import Reservation

Amounts = Mapping[int, tuple[int, ...]]
"""An amount of each resource on some servers, by the server's index."""

_Key = tuple[Placement, tuple[tuple[int, tuple[int, ...]], ...]]


class ReservedSnapshots:
    """Makes the snapshots that cycles with reservations decide about.

    A class is the same object as in the snapshot before, as long as it was made of the same ones, so that cycles may
    recall what they saw of it.
    """

    def __init__(self) -> None:
        self._classes: dict[TaskClass, TaskClass] = {}
        self._placements: dict[_Key, Placement] = {}

    def make(
        self, snapshot: Snapshot, reservations: Sequence[Reservation], index: Mapping[str, int], now: float
    ) -> Snapshot:
        """Return the snapshot in which what is reserved is free only to those who may use it.

        index: by name, of all servers of the reservations.
        """
        total = sum_amounts(reservations, index)
        free_kr = snapshot.servers.free_kr.copy()
        for server, amount_r in total.items():
            free_kr[server] -= np.array(amount_r, dtype=np.int64)
        concerned = {each.tenant for each in reservations}.union(*(each.behind for each in reservations))
        latest = max((each.expected for each in reservations), default=now) - now
        classes, placements = dict[TaskClass, TaskClass](), dict[_Key, Placement]()
        amounts: dict[tuple[str, tuple[int, ...], float, str], Amounts] = {}
        for task_class in snapshot.task_classes:
            tenant, demand_r, seconds = task_class.tenant, task_class.demand_r, task_class.most_seconds
            kept = task_class.placement.reserved.keys() & total.keys()
            if not (tenant in concerned or seconds <= latest or kept or is_begun(task_class)):
                continue
            key = tenant, demand_r, seconds, task_class.group_name
            if key not in amounts:
                amounts[key] = sum_amounts((each for each in reservations if may_try(each, task_class, now)), index)
            opened = amounts[key]
            if kept:
                opened = {**opened, **_leave_kept(kept, total, opened, snapshot.servers)}
            if opened and task_class not in snapshot.stale:
                placement = self._open(task_class.placement, opened, placements)
                classes[task_class] = self._place(task_class, placement)
        self._classes, self._placements = classes, placements
        return replace(
            snapshot,
            servers=replace(snapshot.servers, free_kr=free_kr),
            task_classes=tuple([classes.get(each, each) for each in snapshot.task_classes]),
            changes=None,
        )

    def _open(self, placement: Placement, opened: Amounts, made: dict[_Key, Placement]) -> Placement:
        key = placement, tuple(opened.items())
        if key not in made:
            reserved = {**placement.reserved, **opened}
            for server in placement.reserved.keys() & opened.keys():
                reserved[server] = _add(placement.reserved[server], opened[server])
            made[key] = self._placements.get(key) or replace(placement, reserved=reserved)
        return made[key]

    def _place(self, task_class: TaskClass, placement: Placement) -> TaskClass:
        known = self._classes.get(task_class)
        return known if known is not None and known.placement is placement else replace(task_class, placement=placement)


def may_use(
    reservation: Reservation, tenant: str, demand_r: tuple[int, ...], most_seconds: float, group: str, *, now: float
) -> bool:
    """Tell whether a task may use what is reserved, whatever tenants hold. group: of the task; empty: it has none.

    So may those for which it is, and one that ends before enough for the first task is expected to be free, or before
    all is that a group needs. Reservations of a group are open to all its tasks, because they are placed together.
    """
    is_alike = bool(group) or demand_r == reservation.demand_r
    is_own = is_alike and (tenant, group) == (reservation.tenant, reservation.group)
    return is_own or now + most_seconds <= reservation.expected


def may_class_use(reservation: Reservation, task_class: TaskClass, now: float) -> bool:
    """Tell the same of the tasks of a class."""
    asking = task_class.tenant, task_class.demand_r, task_class.most_seconds, task_class.group_name
    return may_use(reservation, *asking, now=now)


def may_try(reservation: Reservation, task_class: TaskClass, now: float) -> bool:
    """Tell whether tasks of a class may use what is reserved, if it is so still when their turn comes (`live`).

    Beside those above, so may tasks of tenants that are further behind, and what a group lacks of which some tasks are
    placed: it comes before the order of shares.
    """
    is_before = task_class.tenant in reservation.behind or is_begun(task_class)
    return is_before or may_class_use(reservation, task_class, now)


def is_begun(task_class: TaskClass) -> bool:
    """Tell whether tasks of a class come before the order of shares."""
    return task_class.group is not None and task_class.group.is_begun


def find_indices(snapshot: Snapshot, names: Iterable[str]) -> dict[str, int]:
    """Return the indices of servers by their names; those that are not there are left out."""
    found = {name: snapshot.servers.find_index(name) for name in names}
    return {name: index for name, index in found.items() if index is not None}


def _leave_kept(servers: Iterable[int], total: Amounts, opened: Amounts, table: ServerTable) -> Amounts:
    """Return what tasks may use of what is reserved on servers where something is kept for them.

    total: all that is reserved. opened: what of it is for them anyway.
    """
    left: dict[int, tuple[int, ...]] = {}
    for server in servers:
        own_r = opened.get(server, (0,) * len(total[server]))
        free_r = np.maximum(table.free_kr[server], 0).tolist()
        others_r = [amount - own for amount, own in zip(total[server], own_r, strict=True)]
        ahead_r = [max(amount - free, 0) for amount, free in zip(others_r, free_r, strict=True)]
        left[server] = _add(own_r, ahead_r)
    return left


def sum_amounts(reservations: Iterable[Reservation], index: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    """Return what is reserved on each server, by its index. index: by name, of all servers of the reservations."""
    total: dict[int, tuple[int, ...]] = {}
    for each in reservations:
        server, amount_r = index[each.server], tuple(each.count * demand for demand in each.demand_r)
        total[server] = _add(total[server], amount_r) if server in total else amount_r
    return dict(sorted(total.items()))


def _add(one_r: Sequence[int], other_r: Sequence[int]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip(one_r, other_r, strict=True))
