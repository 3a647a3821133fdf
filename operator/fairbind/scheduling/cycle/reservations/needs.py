"""Needs: which tenants are rightfully next and blocked, and how many tasks each of them lacks.

A tenant is rightfully next when, with one more task, it would not be above a tenant that holds capacity which it could
use: progressive filling would have given it that capacity. How many tasks it lacks follows from filling up to one level
what it and the tenants ahead of it hold.

In a tree a tenant is compared with each other one where their paths from the root part, and lacks as many tasks as the
one of them lacks, itself or above it, that lacks the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor

from fairbind.model import TaskClass, Wait
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.siblings import Step

Rank = tuple[int, int]
"""Whether a task would be within no guarantee (1) or within one (0), and the priority below zero."""

Parts = Sequence[tuple[TaskClass, int]]
"""The number of tasks of each class in the minimum of a group."""

MAX_TASKS_ADDED = 1_024
"""The most tasks that a set gets for what a group needs free beside its minimum; for more it gets none."""

SUMMATION_ERROR = 1e-9
"""What sums of shares may lack of a whole task by rounding."""


@dataclass(frozen=True, slots=True)
class Need:
    """A tenant whose next task is blocked. pool: where it is compared. waiting: how many such tasks wait.

    steps: where it and the tenants above it are among their siblings, and by how much one task more raises each share.
    ranks: of the same, what counts before shares: the less, the sooner. allowed: the servers that its task may use.
    group: the name of the task's group; empty: it has none. parts: of its minimum, those first that are placed first.
    """

    task_class: TaskClass
    waiting: int
    pool: int
    steps: Sequence[Step]
    ranks: Sequence[Rank]
    allowed: IndexArray
    group: str = ""
    parts: Parts = ()

    @property
    def place(self) -> list[tuple[Rank, float, str]]:
        """Where its tenant is in the order of all who wait."""
        return [(rank, each.share, each.sibling.name) for rank, each in zip(self.ranks, self.steps, strict=True)]


def list_blocked(waits: Iterable[Wait]) -> Iterator[Sequence[Wait]]:
    """Yield for each tenant the wait of the task that is next, of those that an emptier server could take.

    Of a group these are the waits of all its classes. waits: sorted by tenant and scheduling order.
    """
    found: list[Wait] = []
    for wait in waits:
        if wait.group is not None and not wait.group.is_tried:
            continue
        task_class = wait.task_class
        if found and task_class.tenant == found[0].task_class.tenant:
            if wait.group is not None and found[0].group is not None and wait.group.name == found[0].group.name:
                found.append(wait)
        elif wait.blocked is None and not wait.is_too_large and wait.at_limit is None and task_class.is_eligible:
            if found:
                yield found
            found = [wait]
    if found:
        yield found


def split_minimum(waits: Sequence[Wait]) -> Parts:
    """Return how many tasks of each class make the minimum of a group. waits: of its classes, the preferred first."""
    group = waits[0].task_class.group
    assert group is not None
    counts = [0] * len(waits)
    of_roles = [(role, count) for role, count in group.lacking_of_role]
    rest = group.lacking - sum(count for _, count in of_roles)
    for role, count in (*of_roles, (None, rest)):
        left = count
        for n, wait in enumerate(waits):
            if role is None or wait.task_class.role == role:
                more = min(left, wait.waiting - counts[n])
                counts[n], left = counts[n] + more, left - more
    return [(wait.task_class, count) for wait, count in zip(waits, counts, strict=True) if count]


def add_least_free(parts: Parts) -> Parts:
    """Return the parts with more tasks of the first class, as many as are as large as what the group needs free.

    Of resources for which that class does not ask, nothing more can be reserved.
    """
    (task_class, count), *others = parts
    least_free_r = () if task_class.group is None else task_class.group.least_free_r
    more = 0
    for r, least in enumerate(least_free_r):
        reserved = sum(each.demand_r[r] * tasks for each, tasks in parts)
        if (demand := task_class.demand_r[r]) > 0:
            more = max(more, -((reserved - least) // demand))
    return [(task_class, count + (more if more <= MAX_TASKS_ADDED else 0)), *others]


def count_lacking(
    step: float, share: float, weight: float, ahead: Iterable[tuple[float, float]], free: float = 0.0
) -> int:
    """Return how many tasks a tenant lacks until no tenant is ahead of it.

    step: what one task adds to its share. weight: of the tenant. ahead: (share, weight) of each tenant that holds
    capacity which it could use. free: for how many of its tasks enough is reserved and free: no tenant holds that.

    >>> count_lacking(0.125, 0.0, 1.0, [(1.0, 1.0)])
    4
    >>> count_lacking(0.125, 0.25, 1.0, [(0.5, 1.0), (0.125, 3.0)])
    1
    >>> count_lacking(0.125, 0.25, 1.0, [(0.4375, 1.0)], free=0.5)
    1
    """
    if step <= 0:
        return 0
    level = share + free * step
    held, weights = level * weight, weight
    for other_share, other_weight in sorted(ahead, reverse=True):
        if other_share <= level:
            break
        held, weights = held + other_share * other_weight, weights + other_weight
        level = held / weights
    return floor((level - share) / step + SUMMATION_ERROR)
