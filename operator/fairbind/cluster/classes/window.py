"""Bounds on the placements and classes of one tenant in a snapshot: the rest of its pods wait in order.

Each placement costs memory and time for every node, in every replica, and a tenant may have thousands of pods that
each may go elsewhere. So a snapshot holds `MAX_TENANT_PLACEMENTS` of a tenant at most, and fewer when there would be
more than `MAX_PLACEMENTS` in all. Most of them are those of the pods that come first. A part of them goes round
among all others, so that pods that fit nowhere do not keep those behind them from being looked at. When all have been
looked at once since the last change, the round is over.

Placements are counted as they are on the nodes of now: a thousand pods that differ in what no node has count as one.
Queues of such a tenant that have the demand and the placement in common are one task class, which costs a cycle what
one queue costs. So are its pods that are left out, which are blocked until they are next, and its pods that are not
supported, by reason. Tenants with fewer queues have a class for each of them.

Classes cost time whatever their placement, so there is a limit for them, too: a tenant's pods may all ask for another
amount. It is higher, as a class costs microseconds and no memory for each node. DaemonSets have a class for each node,
which may go nowhere else: it counts little, so that whole DaemonSets are shown.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.classes.window_groups import Group, GroupKey, KeyGroups, get_sort_key
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.facts import Constraints
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.derived import Given, Watch
from fairbind.model import Rejection, RejectionKind, Task, TaskClass
from fairbind.scheduling.cycle.order.task_queues import SortKey, compute_sort_key

MAX_TENANT_PLACEMENTS = 128
"""Half of what a cycle may decide: where all of them fit, the next cycle goes on with the rest."""

ROTATING_PART = 4
"""One in so many of them goes round among the placements beyond."""

MAX_PLACEMENTS = 2_048
"""Placements of all tenants: a user with many namespaces is many tenants."""

MIN_TENANT_PLACEMENTS = 4
"""Each tenant has at least so many placements, and so many classes, however many tenants there are."""

MAX_TENANT_CLASSES = 1_024
"""Four times what a cycle may decide."""

MAX_CLASSES = 16_384
"""Classes of all tenants."""

MANY_MOVED_PART = 4
"""When more than one in so many queues has another placement all at once, all are sorted again."""

LATER = Rejection(RejectionKind.LATER)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a snapshot shows of a tenant. groups: those that may be placed. blocked: other tasks, by why they wait."""

    groups: Sequence[Group]
    blocked: Mapping[Rejection, tuple[Task, ...]]


class _Place(NamedTuple):
    """Where a queue is."""

    sort_key: SortKey
    group: Group
    queue: TaskQueue


@dataclass(slots=True)
class _Moves:
    """Queues with one look whose constraints come with another answer on the nodes of now.

    simple: by `Eligibility.simplify`, of the first of them. is_same: whether it is so of all.
    """

    simple: Constraints
    queues: int = 0
    is_same: bool = True


class _Sorted:
    """All queues of a tenant, sorted as of a version of the nodes' features, and kept so while queues change.

    key_groups: the groups of each. classes: what they count together. unsupported: by reason. _order: the group of each
    supported queue, in order. _later: see `gather_later`, and what it was made without.
    """

    def __init__(self, eligibility: Eligibility, queues: Iterable[TaskQueue]) -> None:
        self._simplified = Watch(eligibility.simplified.changes)
        self._simplified.take()
        self.key_groups: dict[GroupKey, KeyGroups] = {}
        self.classes = 0.0
        self.unsupported: dict[Rejection, Group] = {}
        self._eligibility = eligibility
        self._places: dict[QueueKey, _Place] = {}
        self._order: list[tuple[SortKey, Group, TaskQueue]] = []
        self._listed: list[Group] | None = None
        self._later: tuple[list[Group], tuple[Task, ...]] | None = None
        for queue in sorted(queues, key=lambda queue: compute_sort_key(queue.tasks[0])):
            self._add(queue, compute_sort_key(queue.tasks[0]))

    def follow(self, key: QueueKey, queue: TaskQueue | None) -> None:
        """Take a queue that came or changed; None: it is gone."""
        place = self._places.get(key)
        sort_key = None if queue is None else compute_sort_key(queue.tasks[0])
        if place is not None and place.sort_key == sort_key and place.queue is queue:
            place.group.note_change()
            self._later = None
            return
        if place is not None:
            self._remove(key, place)
        if queue is not None and sort_key is not None:
            self._add(queue, sort_key)

    def follow_features(self, queues: Mapping[QueueKey, TaskQueue]) -> bool:
        """Bring the sets that come with another answer on the nodes of now to where they are one with others.

        False: there are so many of them that it costs less to sort all again, which must be done.
        queues: of now; those that have changed besides are taken by `follow`.
        """
        if not self._simplified.take():
            return True
        moved = self._list_moved()
        if len(moved) * MANY_MOVED_PART > len(self._places):
            return False
        for key in moved:
            self._remove(key, self._places[key])
            queue = queues.get(key)
            if queue is not None:
                self._add(queue, compute_sort_key(queue.tasks[0]))
        return True

    def _list_moved(self) -> list[QueueKey]:
        """Return the queues that are not one with those of their look any more.

        Where all queues of a look go over to the same, what decides their placement is renamed.
        """
        simplify, moves = self._eligibility.simplify, dict[KeyGroups, _Moves]()
        for key, (_, group, _) in self._places.items():
            same_key = group.same_key
            if same_key is None or (simple := simplify(key.constraints)) is same_key.group_key[0]:
                continue
            move = moves.get(same_key)
            if move is None:
                move = moves[same_key] = _Moves(simple)
            move.queues += 1
            move.is_same &= simple is move.simple
        if not moves:
            return []
        for same_key, move in list(moves.items()):
            renamed = (move.simple, *same_key.group_key[1:])
            if move.is_same and move.queues == same_key.queues and renamed not in self.key_groups:
                del self.key_groups[same_key.group_key], moves[same_key]
                same_key.group_key = renamed
                self.key_groups[renamed] = same_key
        return [
            key
            for key, (_, group, _) in self._places.items()
            if group.same_key in moves and simplify(key.constraints) is not group.simple
        ]

    def find_class(self, key: QueueKey) -> TaskClass | None:
        """Return the class that was made last of a queue."""
        place = self._places.get(key)
        return None if place is None else place.group.task_class

    def list_groups(self) -> list[Group]:
        """Return all groups of supported queues, in order; not to be written to."""
        if self._listed is None:
            self._listed = list(dict.fromkeys(group for _, group, _ in self._order))
        return self._listed

    def list_unsupported(self) -> dict[Rejection, tuple[Task, ...]]:
        """Return the tasks of unsupported queues, by why they are."""
        return {reason: group.tasks for reason, group in self.unsupported.items()}

    def gather_later(self, shown: list[Group]) -> tuple[Task, ...]:
        """Return the tasks of all other groups, in order; the same while nothing of a queue changes."""
        if self._later is None or self._later[0] != shown:
            without = set(shown)
            tasks = [task for _, group, queue in self._order if group not in without for task in queue.tasks]
            if len(tasks) > len(self._order) - sum(map(len, shown)):  # else each queue has one
                tasks.sort(key=compute_sort_key)
            self._later = shown, tuple(tasks)
        return self._later[1]

    def _add(self, queue: TaskQueue, sort_key: SortKey) -> None:
        self._listed = self._later = None
        key = queue.key
        if key.unsupported is None:
            simple = self._eligibility.simplify(key.constraints)
            group_key = simple, key.selected_by, key.pod_terms, key.above_priority, key.nominated, key.load, key.unbound
            same_key, kind = self.key_groups.get(group_key), (key.demand, key.pin, key.is_rationed, key.most_seconds)
            if same_key is None:
                same_key = self.key_groups[group_key] = KeyGroups(group_key)
            same_key.queues += 1
            group = same_key.groups.get(kind)
            if group is None:
                group = same_key.groups[kind] = Group(same_key, kind)
                self.classes += group.part
            insort(self._order, (sort_key, group, queue), key=get_sort_key)
        else:
            group = self.unsupported.get(key.unsupported) or self.unsupported.setdefault(key.unsupported, Group())
        self._places[key] = _Place(sort_key, group, queue)
        group.add(sort_key, queue)

    def _remove(self, key: QueueKey, place: _Place) -> None:
        self._listed = self._later = None
        del self._places[key]
        group = place.group
        group.remove(place.sort_key)
        same_key = group.same_key
        if same_key is not None:
            del self._order[bisect_left(self._order, place.sort_key, key=get_sort_key)]
            same_key.queues -= 1
        if group:
            return
        if same_key is not None and group.kind is not None:
            del same_key.groups[group.kind]
            self.classes -= group.part
            if not same_key.groups:
                del self.key_groups[same_key.group_key]
        elif key.unsupported is not None:
            del self.unsupported[key.unsupported]


@dataclass(slots=True)
class _Round:
    """Where the rotation of a tenant is.

    seen: the first tasks of the groups that were looked at in this round, by UID: what groups have in common changes
    with the nodes. rotating: those that are being looked at. began: the revision of changes then.
    """

    seen: set[str] = field(default_factory=set)
    rotating: list[str] = field(default_factory=list)
    began: int = 0

    def forget_gone(self, count: int, groups: Iterable[Group]) -> None:
        """Forget what was seen and is not among these groups any more, so many as there are, when it may be much."""
        if len(self.seen) > 2 * count:
            self.seen.intersection_update(group.uid for group in groups)


class _Allowance:
    """Numbers of placements and classes that may still be shown, one class at a time.

    is_cut: whether some group was not allowed the last time. _shown: the placements that are shown.
    """

    def __init__(self, placements: int, classes: float) -> None:
        self.is_cut = False
        self._placements = placements
        self._classes = classes
        self._shown: dict[KeyGroups | None, None] = {}

    def extend(self, placements: int, classes: int) -> None:
        """Allow so many more."""
        self._placements += placements
        self._classes += classes

    def take(self, groups: Iterable[Group], is_open: Callable[[Group], bool]) -> list[Group]:
        """Return which open ones of the groups are still allowed; those with a placement that is shown need no other.

        groups: in order. As soon as there is no placement left, the groups of those that are shown are asked instead:
        there may be tens of thousands of others.
        """
        taken, self.is_cut = list[Group](), False
        for group in filter(is_open, groups):
            if group.same_key not in self._shown and not self._placements:
                self.is_cut = True
                self._take_shown(taken, group.sort_key, is_open)
                break
            if not self._take(taken, group):
                break
        return taken

    def _take_shown(self, taken: list[Group], after: SortKey, is_open: Callable[[Group], bool]) -> None:
        """Take groups with a placement that is shown. after: those that come later in order than this."""
        key_groups = [same_key for same_key in self._shown if same_key is not None]
        groups = (group for same_key in key_groups for group in same_key.groups.values() if group.sort_key > after)
        for group in sorted(filter(is_open, groups), key=attrgetter("sort_key")):
            if not self._take(taken, group):
                return

    def _take(self, taken: list[Group], group: Group) -> bool:
        """Take a group if one more class is allowed."""
        if self._classes < group.part:
            self.is_cut = True
            return False
        self._classes -= group.part
        if group.same_key not in self._shown:
            self._placements -= 1
            self._shown[group.same_key] = None
        taken.append(group)
        return True


class Window:
    """Chooses the queues of tenants that have many. has_more: whether a round is not over.

    is_limited: if not, all are shown. changes: all after which pods may fit that did not.
    """

    def __init__(self, eligibility: Eligibility, changes: Given, *, is_limited: bool = True) -> None:
        self._eligibility = eligibility
        self._changes = changes
        self._is_limited = is_limited
        self._rounds: dict[str, _Round] = {}
        self._sorted: dict[str, _Sorted] = {}
        self._limit = MAX_TENANT_PLACEMENTS
        self._most_classes = MAX_TENANT_CLASSES
        self.has_more = False

    def forget(self) -> None:
        """Nothing waits: begin again with whatever comes next, as after a choice of none."""
        self._rounds, self._sorted, self.has_more = {}, {}, False

    def find_class(self, key: QueueKey) -> TaskClass | None:
        """Return the class that was made last of a queue of a tenant that has many."""
        known = self._sorted.get(key.tenant)
        return None if known is None else known.find_class(key)

    def note_cycle(self) -> None:
        """A cycle has looked at what was chosen last."""
        for each in self._rounds.values():
            each.seen.update(each.rotating)

    def choose(
        self,
        queues_by_tenant: Mapping[str, Mapping[QueueKey, TaskQueue]],
        different: int,
        changed: Iterable[QueueKey],
    ) -> dict[str, Choice]:
        """Return what is shown of each tenant that has more queues than it may have placements or classes.

        different: how many constraints all queues have. changed: the queues that came, changed or went since the last
        time.
        """
        if not self._is_limited:
            return {}
        self.has_more = False
        self._limit, self._most_classes = MAX_TENANT_PLACEMENTS, MAX_TENANT_CLASSES
        counts = list(map(len, queues_by_tenant.values()))
        if different > MAX_PLACEMENTS:
            self._limit = compute_limit(counts, MAX_PLACEMENTS, MAX_TENANT_PLACEMENTS)
        if sum(counts) > MAX_CLASSES:
            self._most_classes = compute_limit(counts, MAX_CLASSES, MAX_TENANT_CLASSES)
        most = min(self._limit, self._most_classes)
        if max(counts, default=0) <= most:
            self.forget()
            return {}
        windowed = {tenant: queues for tenant, queues in queues_by_tenant.items() if len(queues) > most}
        self._rounds = {tenant: each for tenant, each in self._rounds.items() if tenant in windowed}
        self._sorted = {tenant: each for tenant, each in self._sorted.items() if tenant in windowed}
        self._follow(windowed, changed)
        return {tenant: self._choose(tenant, self._sorted[tenant]) for tenant in windowed}

    def _follow(self, windowed: Mapping[str, Mapping[QueueKey, TaskQueue]], changed: Iterable[QueueKey]) -> None:
        """Sort the queues of tenants that are not sorted yet; of the others only take over what changed."""
        for tenant, queues in windowed.items():
            known = self._sorted.get(tenant)
            if known is None or not known.follow_features(queues):
                self._sorted[tenant] = _Sorted(self._eligibility, queues.values())
        for key in changed if windowed else ():
            if key.tenant in windowed:
                self._sorted[key.tenant].follow(key, windowed[key.tenant].get(key))

    def _choose(self, tenant: str, known: _Sorted) -> Choice:
        if len(known.key_groups) <= self._limit and known.classes <= self._most_classes:
            self._rounds.pop(tenant, None)
            groups = chain.from_iterable(same_key.groups.values() for same_key in known.key_groups.values())
            return Choice(list(groups), known.list_unsupported())
        shown = self._pick(tenant, known.list_groups())
        return Choice(shown, {**known.list_unsupported(), LATER: known.gather_later(shown)})

    def _pick(self, tenant: str, groups: list[Group]) -> list[Group]:
        """Pick which groups are shown. groups: in order, more than are allowed."""
        now = self._rounds.setdefault(tenant, _Round(began=self._changes.revision))
        rotating, rotating_classes = (max(1, most // ROTATING_PART) for most in (self._limit, self._most_classes))
        allowed = _Allowance(self._limit - rotating, self._most_classes - rotating_classes)
        first = dict.fromkeys(allowed.take(groups, lambda _: True))
        allowed.extend(rotating, rotating_classes)

        def is_unseen(group: Group) -> bool:
            return group.uid not in now.seen and group not in first

        others = allowed.take(groups, is_unseen)
        if not others and now.began != self._changes.revision:
            now.seen.clear()
            now.began = self._changes.revision
            others = allowed.take(groups, is_unseen)
        self.has_more |= allowed.is_cut or now.began != self._changes.revision
        now.forget_gone(len(groups) - len(first), (group for group in groups if group not in first))
        others = others or allowed.take(groups, lambda group: group not in first)
        now.rotating = [group.uid for group in others]
        return [*first, *others]


def compute_limit(counts: Iterable[int], most: int, most_each: int) -> int:
    """Return how many placements, or classes, each tenant may have so that all have `most`, as far as that can be had.

    counts: how many each tenant has now, or more. most, most_each: of all and of one tenant.

    >>> compute_limit([3, 5_000, 5_000], 2_048, 128), compute_limit([9] * 5_000, 2_048, 128)
    (128, 4)
    """
    left, limit = most, most_each
    ascending = sorted(counts)
    for index, count in enumerate(ascending):
        part = left // (len(ascending) - index)
        if count > part:
            limit = min(limit, part)
            break
        left -= count
    return max(limit, MIN_TENANT_PLACEMENTS)
