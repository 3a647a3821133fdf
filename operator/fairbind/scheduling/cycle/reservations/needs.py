"""Needs: which tenants are rightfully next and blocked, and how many tasks each of them lacks.

A tenant is rightfully next when, with one more task, it would not be above a tenant that holds capacity which it could
use: progressive filling would have given it that capacity. How many tasks it lacks follows from filling up to one level
what it and the tenants ahead of it hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import floor

from fairbind.model import TaskClass, Wait
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure

SUMMATION_ERROR = 1e-9
"""What sums of shares may lack of a whole task by rounding."""


@dataclass(frozen=True, slots=True)
class Need:
    """A tenant whose next task is blocked. pool: where it is compared. share: where it stands there.

    waiting: how many such tasks wait. step: by how much one task more raises the share.
    """

    task_class: TaskClass
    waiting: int
    pool: int
    share: float
    step: float


def list_blocked(waits: Iterable[Wait]) -> Iterator[Wait]:
    """Yield for each tenant the wait of the task that is next, of those that an emptier server could take.

    waits: sorted by tenant and scheduling order.
    """
    tenant = None
    for wait in waits:
        task_class = wait.task_class
        if task_class.tenant != tenant and wait.blocked is None and not wait.is_too_large and task_class.is_eligible:
            tenant = task_class.tenant
            yield wait


def measure_need(wait: Wait, progress: Progress, measure: Measure, pool: int) -> Need:
    """Return where a tenant that waits stands on a pool, and what one task more would change."""
    task_class = wait.task_class
    share = measure.compute_share(progress, pool)
    measure.add(progress, task_class, pool)
    after = measure.compute_share(progress, pool)
    measure.remove(progress, task_class, pool)
    return Need(task_class, wait.waiting, pool, share, after - share)


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
