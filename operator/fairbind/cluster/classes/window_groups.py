"""Queues of a tenant that has very many, grouped to what is one task class; see `window`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.filters.attach_limits import VolumeLoad
from fairbind.cluster.filters.volume_offers import Wanted
from fairbind.cluster.objects.facts import Constraints, Demand, PodTerm, PodTerms
from fairbind.model import Rejection, Task, TaskClass
from fairbind.scheduling.cycle.order.task_queues import SortKey, compute_sort_key

PINNED_PART = 1 / 16
"""What a class counts whose pods may use one node only."""

get_sort_key = itemgetter(0)

GroupKey = tuple[
    Constraints,
    frozenset[PodTerm],
    PodTerms | None,
    int | None,
    str | None,
    VolumeLoad | None,
    tuple[Wanted, ...],
    str | None,
]
"""All that decides a placement: constraints without what does not matter now, the terms in use that select the pods,
what they require about others, which reserved capacity they may use (`QueueKey.rank`), the volumes that they bring
and want, and the group of pods to which they belong."""


GroupKind = tuple[Demand, str | None, bool, float, str]
"""The rest that makes a class of such a placement: the demand, the only node that the pods may use (a DaemonSet's),
whether they are rationed, for how long they run at most, and what they are in their group of pods."""


class KeyGroups:
    """All groups of a tenant with one key. queues: how many they have together."""

    __slots__ = ("group_key", "groups", "queues")

    def __init__(self, group_key: GroupKey) -> None:
        self.group_key = group_key
        self.groups: dict[GroupKind, Group] = {}
        self.queues = 0


class Group:
    """Queues that are one task class. is_stale: whether any of them has changed since the class was made.

    same_key, kind: what they have in common; None where that is only `reason`, why they wait. part: what it counts as a
    class.
    revision: of which revision of the answers about nodes the class was made.
    template: what `task_class` was made of, for who makes it. False when it has no queues.
    """

    __slots__ = (
        "_ordered",
        "_tasks",
        "_uid",
        "is_stale",
        "kind",
        "part",
        "reason",
        "revision",
        "same_key",
        "task_class",
        "template",
    )

    def __init__(
        self, same_key: KeyGroups | None = None, kind: GroupKind | None = None, reason: Rejection | None = None
    ) -> None:
        self.same_key = same_key
        self.kind = kind
        self.reason = reason
        self.part = 1.0 if kind is None or kind[1] is None else PINNED_PART
        self._ordered: list[tuple[SortKey, TaskQueue]] = []
        self._tasks: tuple[Task, ...] | None = None
        self._uid: str | None = None
        self.is_stale = True
        self.revision = 0
        self.template: TaskClass | None = None
        self.task_class: TaskClass | None = None

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[TaskQueue]:
        return (queue for _, queue in self._ordered)

    @property
    def simple(self) -> Constraints | None:
        """Their constraints by `Eligibility.simplify`; None where only why they wait is the same."""
        return None if self.same_key is None else self.same_key.group_key[0]

    @property
    def first(self) -> TaskQueue:
        """The queue that is first; there must be one."""
        return self._ordered[0][1]

    @property
    def sort_key(self) -> SortKey:
        """Of the first task of all."""
        return self._ordered[0][0]

    @property
    def uid(self) -> str:
        """Of the first task of all."""
        if self._uid is None:
            self._uid = self.first.tasks[0].uid
        return self._uid

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Their tasks, in order."""
        if self._tasks is None:
            tasks = [task for _, queue in self._ordered for task in queue.tasks]
            if len(tasks) > len(self._ordered):  # else each queue has one
                tasks.sort(key=compute_sort_key)
            self._tasks = tuple(tasks)
        return self._tasks

    def note_change(self) -> None:
        """One of the queues has changed."""
        self._tasks = self._uid = None
        self.is_stale = True

    def add(self, sort_key: SortKey, queue: TaskQueue) -> None:
        """Take a queue whose first task has this sort key. One that the task has left may still stand here with it."""
        insort(self._ordered, (sort_key, queue), key=get_sort_key)
        self.note_change()

    def remove(self, sort_key: SortKey) -> None:
        """Let the queue go that came with this sort key."""
        del self._ordered[bisect_left(self._ordered, sort_key, key=get_sort_key)]
        self.note_change()
