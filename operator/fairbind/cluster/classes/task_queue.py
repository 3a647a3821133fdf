"""Waiting pods, grouped in task classes and kept in their order.

A class is one tenant's pods with equal demand, equal constraints and the same thing (if any) that forbids placing them.
Its tasks stay sorted while pods come and go, and what a snapshot needs of it is remade only when it changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple

from fairbind.cluster.classes.pinning import lack
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.state.group_members import NO_GROUP, Standing
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.model import DomainRules, Pin, Placement, Preferences, Rejection, RejectionKind, Task, TaskClass
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key


class ClassRules(NamedTuple):
    """What topology domains, and limits of nodes, say to a class: see `TaskClass`."""

    rules: DomainRules | None = None
    preferences: Preferences | None = None
    counts_as: frozenset[object] = frozenset()
    brings: tuple[tuple[object, int], ...] = ()


NO_RULES = ClassRules()


class TaskQueue:
    """The waiting tasks of one class.

    is_eligible: whether some node may take them, however full it is, as of the last snapshot.
    """

    __slots__ = (
        "_axes",
        "_base",
        "_claimed_only",
        "_missing",
        "_pin",
        "_placement",
        "_rules",
        "_shown",
        "_standing",
        "_task_class",
        "is_eligible",
        "is_plain",
        "key",
        "tasks",
    )

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.is_plain = key.is_plain
        self.tasks: list[Task] = []
        self._missing: tuple[str, ...] = ()
        self.is_eligible = False
        self._axes: Axes = ()
        self._claimed_only: frozenset[str] = frozenset()
        self._base: Placement | None = None
        self._pin: Pin | None = None
        self._placement: Placement | None = None
        self._rules = NO_RULES
        self._standing = NO_GROUP
        self._task_class: TaskClass | None = None
        self._shown: tuple[Task, ...] | None = None

    def add(self, task: Task) -> None:
        """Take a task in its place."""
        insort(self.tasks, task, key=compute_sort_key)
        self._shown = None

    def add_all(self, tasks: Iterable[Task]) -> None:
        """Take many tasks at once."""
        self.tasks.extend(tasks)
        self.tasks.sort(key=compute_sort_key)
        self._shown = None

    def remove_all(self, uids: AbstractSet[str]) -> None:
        """Let the tasks of many pods go at once."""
        self.tasks = [task for task in self.tasks if task.uid not in uids]
        self._shown = None

    def remove(self, task: Task) -> None:
        """Let a task go."""
        index = bisect_left(self.tasks, compute_sort_key(task), key=compute_sort_key)
        if self.tasks[index].uid != task.uid:
            raise KeyError(task.uid)
        del self.tasks[index]
        self._shown = None

    def rename(self, key: QueueKey) -> None:
        """Change the key. The new key may differ only in constraints and in the terms that select the pods."""
        self.key, self.is_plain = key, key.is_plain

    def build_task_class(
        self,
        axes: Axes,
        base: Placement,
        eligibility: Eligibility,
        pin: Pin | None = None,
        rules: ClassRules = NO_RULES,
        claimed_only: frozenset[str] = frozenset(),
        standing: Standing = NO_GROUP,
    ) -> TaskClass:
        """Return the class as it is now; the same object as before when nothing changed.

        Its tasks are the same object as before when these have not changed.
        base: where its constraints let it go, by `Eligibility`, which shares placements. pin: the only server of these,
        for a key that has one. rules: what topology domains say to it. claimed_only: axes that no node has for pods.
        standing: what its group says to it.
        """
        before, is_current = self._task_class, self._shown is not None
        if before is None or axes != self._axes or claimed_only != self._claimed_only:
            self._axes, self._claimed_only = axes, claimed_only
            self._missing = tuple(r for r, _ in self.key.demand.real if r not in axes or r in claimed_only)
            self._base = before = None
        pin = None if pin is None else lack(pin, self._missing)
        if base is not self._base or pin != self._pin:
            self._base, self._pin, is_current = base, pin, False
            is_lacking = self._missing and pin is None
            self._placement = eligibility.share(exclude_all(base, self._missing)) if is_lacking else base
        if rules is not self._rules and rules != self._rules:  # rules and preferences are equal to themselves only
            self._rules, is_current = rules, False
        if standing != self._standing:
            self._standing, is_current = standing, False
        if before is not None and is_current:
            return before
        if self._shown is None:
            self._shown = tuple(self.tasks)
        assert self._placement is not None
        key = self.key
        task_class = self._task_class = TaskClass(
            key.tenant,
            compute_vector(key.demand.real, axes) if before is None else before.demand_r,
            compute_vector(key.demand.share, axes) if before is None else before.share_demand_r,
            self._placement,
            self._shown,
            key.unsupported or standing.blocked,
            self._pin,
            *self._rules,
            is_rationed=key.is_rationed,
            most_seconds=key.most_seconds,
            group=standing.group,
            role="" if standing.group is None else key.role,
        )
        self.is_eligible = task_class.is_eligible
        return task_class

    def follow(self, other: TaskQueue) -> None:
        """Take over where the tasks may go from a queue of equal demand and placement, and of one group."""
        self.is_eligible, self._standing = other.is_eligible, other._standing

    @property
    def oldest(self) -> float:
        """Since when the oldest task waits. It is the first of its priority: priorities are looked at, not tasks."""
        tasks, start, oldest = self.tasks, 0, inf
        while start < len(tasks):
            oldest = min(oldest, tasks[start].queue_time)
            start = bisect_right(tasks, -tasks[start].priority, lo=start, key=lambda task: -task.priority)
        return oldest

    @property
    def is_lacking(self) -> bool:
        """Whether the tasks ask for something that no node offers."""
        return bool(self._missing)

    @property
    def is_placeable(self) -> bool:
        """Whether the tasks could be placed if there were free capacity."""
        return self.key.unsupported is None and self._standing.blocked is None and self.is_eligible


def exclude_all(base: Placement, missing: tuple[str, ...]) -> Placement:
    """Return the placement of tasks that ask for resources that no node offers: every node lacks them."""
    eligible = int(base.eligible_k.sum())
    nowhere_k = base.eligible_k & False
    nowhere_k.flags.writeable = False
    lacking = ((Rejection(RejectionKind.INSUFFICIENT, resource), eligible) for resource in missing if eligible)
    return Placement(nowhere_k, None, tuple(sorted((*base.rejections, *lacking))), base.exclusive_keys)
