"""Shortages: what a group's minimum lacks, and why servers refuse the tasks that are lacking.

By slots it is found without placing anything. Where slots are enough, a try may show that rules, keys or the sizes of
several kinds of tasks leave too few places; its reasons are those of the moment when no more tasks fitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fairbind.model import (
    FREE_CAPACITY,
    Domains,
    FreeSlots,
    Rejection,
    RejectionKind,
    Rejections,
    TaskClass,
    TaskGroup,
    Until,
)
from fairbind.scheduling.cycle.draft import Draft
from fairbind.scheduling.cycle.gangs.slots import Capacity, Slots
from fairbind.scheduling.cycle.order.task_queues import ClassQueue
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import sum_by_domain
from fairbind.scheduling.cycle.waits.explain import Refusals

Short = tuple[tuple[tuple[int, ...], int], ...]
"""What is asked for in vain: (demand, length R; how many tasks)."""


class Answer(NamedTuple):
    """Why servers refuse a task that is lacking, and what may end the wait. at_limit: see `Wait`."""

    rejections: Rejections
    at_limit: Rejection | None = None
    until: tuple[Until, ...] = FREE_CAPACITY


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a group's minimum lacks.

    fitting: so many of its tasks fit. short: what the others ask for. lacking_r: so much more must be free, length R;
    empty: enough is. answers: by class, as far as a try has shown them. missing_slots: for so many tasks more of the
    only class there must be free capacity; 0: not counted so. is_tried: see `GroupWait`.
    """

    fitting: int
    short: Short = ()
    lacking_r: tuple[int, ...] = ()
    answers: Mapping[TaskClass, Answer] = field(default_factory=dict)
    missing_slots: int = 0
    is_tried: bool = True


NOT_TRIED = Shortage(0, is_tried=False)


class Shortages:
    """Finds out what groups lack in the state of a draft."""

    def __init__(self, draft: Draft, slots: Slots) -> None:
        self._draft = draft
        self._slots = slots
        self._known: dict[tuple[object, ...], Answer] = {}
        self._free: dict[tuple[object, ...], tuple[int, ...]] = {}

    def find(self, queues: Sequence[ClassQueue], group: TaskGroup) -> Shortage | None:
        """Return what a group lacks as far as slots tell, or None. queues: its own, as far as they have tasks."""
        counted = self._count(queues, group)
        fitting, short = compare(group, [(queue, each.most) for queue, each in counted])
        if fitting < group.lacking:
            is_counted = len(counted) == 1 and queues[0].task_class.pin is None and not counted[0][1].until
            return Shortage(fitting, short, missing_slots=group.lacking - fitting if is_counted else 0)
        lacking_r = self._find_lacking(counted, group)
        return Shortage(0, (), lacking_r) if any(lacking_r) else None

    def find_in_domains(self, queues: Sequence[ClassQueue], group: TaskGroup, domains: Domains) -> Shortage:
        """Return what a group lacks in the domain that holds most of it."""
        sums = [(queue, sum_by_domain(self._slots.count_servers(queue.task_class), domains)) for queue in queues]
        found = [
            compare(group, [(queue, int(sum_d[domain])) for queue, sum_d in sums]) for domain in range(domains.size)
        ]
        return Shortage(*max(found, key=lambda each: each[0])) if found else Shortage(0, compare(group, [])[1])

    def find_any(self, queues: Sequence[ClassQueue], group: TaskGroup) -> Shortage:
        """Return what a group lacks of which no task fits anywhere, whatever the slots say."""
        _, short = compare(group, [(queue, 0) for queue in queues])
        return Shortage(0, short, (), self._explain_now(queues))

    def explain(self, queues: Sequence[ClassQueue], group: TaskGroup, placed: Mapping[ClassQueue, int]) -> Shortage:
        """Return what a group lacks when no more of its tasks fit. placed: how many of each queue are."""
        fitting, short = compare(group, [(queue, placed[queue]) for queue in queues], placed)
        return Shortage(fitting, short, (), self._explain_now([queue for queue in queues if queue.waiting]))

    def answer(self, queue: ClassQueue, shortage: Shortage, lacking: int) -> Answer:
        """Return why servers refuse a task of a class beyond those that fit. lacking: of its group."""
        task_class = queue.task_class
        known = shortage.answers.get(task_class)
        if known is not None:
            return known
        pin = None if task_class.pin is None else task_class.pin.name
        key = task_class.demand_r, task_class.placement, task_class.rules, pin, lacking
        if key not in self._known:
            self._known[key] = self._explain_full(task_class, self._slots.count(task_class, lacking))
        answer = self._known[key]
        return answer._replace(until=(FreeSlots(shortage.missing_slots),)) if shortage.missing_slots else answer

    def find_scattered(self, task_class: TaskClass, lacking: int) -> tuple[int, ...]:
        """Return what is free on the servers of a class, if it would be enough for so many tasks; else nothing."""
        key = task_class.demand_r, task_class.placement, task_class.pin, lacking
        if key not in self._free:
            free_r = self._slots.sum_free(task_class)
            pairs = list(zip(task_class.demand_r, free_r, strict=True))
            is_enough = all(free >= lacking * demand for demand, free in pairs) and any(task_class.demand_r)
            self._free[key] = tuple(free if demand else 0 for demand, free in pairs) if is_enough else ()
        return self._free[key]

    def _explain_now(self, queues: Sequence[ClassQueue]) -> dict[TaskClass, Answer]:
        draft = self._draft
        refusals = Refusals(draft.snapshot, draft.free, draft.topology)
        return {
            each: Answer(refusals.compute_rejections(each), *refusals.limits.find(each))
            for each in (queue.task_class for queue in queues)
        }

    def _explain_full(self, task_class: TaskClass, capacity: Capacity) -> Answer:
        """Return why servers would refuse one task more if they had all that fit of a class."""
        draft = self._draft
        taken_kr = capacity.slots_k[:, None] * np.array(task_class.demand_r, dtype=np.float64)
        servers = replace(
            draft.snapshot.servers,
            free_kr=(draft.free.left_rk.T - taken_kr).astype(np.int64),
            taken_keys=draft.free.taken_keys,
        )
        rejections = Refusals(draft.snapshot, FreeCapacity(servers), draft.topology).compute_rejections(task_class)
        limit = None if capacity.limit is None else capacity.limit.rejection
        if limit is not None and limit.kind is RejectionKind.AT_LIMIT:
            return Answer(rejections, limit, capacity.until)
        return Answer(rejections, None, (*FREE_CAPACITY, *capacity.until))

    def _count(self, queues: Sequence[ClassQueue], group: TaskGroup) -> list[tuple[ClassQueue, Capacity]]:
        return [(queue, self._slots.count(queue.task_class, group.lacking)) for queue in queues]

    def _find_lacking(self, counted: Sequence[tuple[ClassQueue, Capacity]], group: TaskGroup) -> tuple[int, ...]:
        """Return how much more of each resource must be free on servers that the tasks may use.

        What is reserved there for the tasks is free to them.
        """
        if not group.least_free_r:
            return ()
        free, placements = self._draft.free, dict.fromkeys(queue.task_class.placement for queue, _ in counted)
        allowed_k = np.logical_or.reduce([each.eligible_k for each in placements])
        allowed_k &= self._draft.snapshot.servers.accepting_k
        reserved = {server for each in placements for server in each.reserved if allowed_k[server]}
        allowed_k[list(reserved)] = False
        free_r = free.left_rk[:, allowed_k].sum(axis=1).tolist()
        for server in reserved:
            rows = zip(*(free.get_row_for(each, server) for each in placements), strict=True)
            free_r = [known + max(*row, 0) for known, row in zip(free_r, rows, strict=True)]
        return tuple(max(least - int(free), 0) for least, free in zip(group.least_free_r, free_r, strict=True))


def compare(
    group: TaskGroup, most: Sequence[tuple[ClassQueue, int]], placed: Mapping[ClassQueue, int] | None = None
) -> tuple[int, Short]:
    """Return how many tasks of a group's minimum there are places for, and what is short.

    most: for each queue how many of its tasks fit. placed: those of them that are not in the queues any more.
    """
    have, short = Counter[str](), list[tuple[tuple[int, ...], int]]()
    for queue, count in most:
        have[queue.task_class.role] += min(count, queue.waiting + (0 if placed is None else placed[queue]))
    fitting, needed = 0, 0
    for role, count in group.lacking_of_role:
        part = min(have[role], count)
        fitting, needed = fitting + part, needed + count
        if part < count:
            demands = [queue.task_class.demand_r for queue, _ in most if queue.task_class.role == role]
            short.append((max(demands, default=()), count - part))
    spare, rest = have.total() - fitting, group.lacking - needed
    if spare < rest:
        demands = [queue.task_class.demand_r for queue, _ in most]
        short.append((max(demands, default=()), rest - spare))
    return fitting + min(spare, rest), tuple(short)
