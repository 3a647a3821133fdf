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

Pods that are placed together are shown together, or not at all: a part of their group is of no use to a cycle.

The users of a tenant divide what the tenant may have, but each has at least `MIN_USER_PLACEMENTS`: a tenant that had
more of both for more users would take them from all others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.classes.waiting_queues import QueuesOfTenant, WaitingQueues
from fairbind.cluster.classes.window_allowance import Allowance
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

MIN_USER_PLACEMENTS = 2
"""Each user of a tenant has at least so many: the one that comes first, and one that goes round."""

MAX_TENANT_CLASSES = 1_024
"""Four times what a cycle may decide."""

MAX_CLASSES = 16_384
"""Classes of all tenants."""

MANY_MOVED_PART = 4
"""When more than one in so many queues has another placement all at once, all are sorted again."""

MAX_TENANT_REASONS = 64
"""Of so many groups of pods of a tenant each is said by itself what is lacking."""

LATER = Rejection(RejectionKind.LATER)
INCOMPLETE = Rejection(RejectionKind.GANG_INCOMPLETE, "its group is not complete, and so are many of its tenant")

FindBlock = Callable[[QueueKey], Rejection | None]


class _Most(NamedTuple):
    """The bounds of a leaf."""

    placements: int
    classes: int


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

    def __init__(self, eligibility: Eligibility, queues: Iterable[TaskQueue], find_block: FindBlock) -> None:
        self._find_block = find_block
        self._simplified = Watch(eligibility.simplified.changes)
        self._simplified.take()
        self.key_groups: dict[GroupKey, KeyGroups] = {}
        self.classes = 0.0
        self.unsupported: dict[Rejection, Group] = {}
        self._together: dict[str, dict[Group, None]] = {}
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
        is_same = place is not None and place.sort_key == sort_key and place.queue is queue
        if place is not None and is_same and place.group.reason == self._find_block(key):
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
        return merge_incomplete({reason: group.tasks for reason, group in self.unsupported.items()})

    def list_together(self, group: Group) -> Collection[Group]:
        """Return all groups whose tasks belong to the group of pods of one that belongs to any."""
        name = group.first.key.group
        return () if name is None else self._together.get(name, ())

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
        reason = self._find_block(key)
        if reason is None:
            simple = self._eligibility.simplify(key.constraints)
            rank = key.above_priority, key.nominated
            group_key = simple, key.selected_by, key.pod_terms, *rank, key.load, key.unbound, key.group
            same_key = self.key_groups.get(group_key)
            kind = key.demand, key.pin, key.is_rationed, key.most_seconds, key.role
            if same_key is None:
                same_key = self.key_groups[group_key] = KeyGroups(group_key)
            same_key.queues += 1
            group = same_key.groups.get(kind)
            if group is None:
                group = same_key.groups[kind] = Group(same_key, kind)
                self.classes += group.part
                if key.group is not None:
                    self._together.setdefault(key.group, {})[group] = None
            insort(self._order, (sort_key, group, queue), key=get_sort_key)
        else:
            group = self.unsupported.get(reason) or self.unsupported.setdefault(reason, Group(reason=reason))
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
        elif group.reason is not None:
            del self.unsupported[group.reason]


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


class Window:
    """Chooses the queues of tenants that have many. has_more: whether a round is not over.

    is_limited: if not, all are shown. changes: all after which pods may fit that did not. find_block: returns why the
    pods of a queue may not be placed at all, or None.
    """

    def __init__(
        self, eligibility: Eligibility, changes: Given, find_block: FindBlock, *, is_limited: bool = True
    ) -> None:
        self._eligibility = eligibility
        self._find_block = find_block
        self._changes = changes
        self._is_limited = is_limited
        self._rounds: dict[str, _Round] = {}
        self._sorted: dict[str, _Sorted] = {}
        self._most: dict[str, _Most] = {}
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
        waiting: WaitingQueues,
        changed: Iterable[QueueKey],
    ) -> dict[str, Choice]:
        """Return what is shown of each leaf that has more queues than it may have placements or classes.

        changed: the queues that came, changed or went since the last time.
        """
        if not self._is_limited:
            return {}
        self.has_more = False
        self._most = _find_most(waiting)
        if not self._most:
            self.forget()
            return {}
        windowed = {leaf: waiting.by_leaf[leaf] for leaf in self._most}
        self._rounds = {tenant: each for tenant, each in self._rounds.items() if tenant in windowed}
        self._sorted = {tenant: each for tenant, each in self._sorted.items() if tenant in windowed}
        self._follow(windowed, changed)
        return {tenant: self._choose(tenant, self._sorted[tenant]) for tenant in windowed}

    def _follow(self, windowed: Mapping[str, Mapping[QueueKey, TaskQueue]], changed: Iterable[QueueKey]) -> None:
        """Sort the queues of tenants that are not sorted yet; of the others only take over what changed."""
        for tenant, queues in windowed.items():
            known = self._sorted.get(tenant)
            if known is None or not known.follow_features(queues):
                self._sorted[tenant] = _Sorted(self._eligibility, queues.values(), self._find_block)
        for key in changed if windowed else ():
            if key.tenant in windowed:
                self._sorted[key.tenant].follow(key, windowed[key.tenant].get(key))

    def _choose(self, tenant: str, known: _Sorted) -> Choice:
        most = self._most[tenant]
        if len(known.key_groups) <= most.placements and known.classes <= most.classes:
            self._rounds.pop(tenant, None)
            groups = chain.from_iterable(same_key.groups.values() for same_key in known.key_groups.values())
            return Choice(list(groups), known.list_unsupported())
        shown = self._pick(tenant, known)
        return Choice(shown, {**known.list_unsupported(), LATER: known.gather_later(shown)})

    def _pick(self, tenant: str, known: _Sorted) -> list[Group]:
        """Pick which groups are shown, of more than are allowed."""
        groups = known.list_groups()
        now = self._rounds.setdefault(tenant, _Round(began=self._changes.revision))
        most = self._most[tenant]
        rotating, rotating_classes = (max(1, each // ROTATING_PART) for each in most)
        allowed = Allowance(most.placements - rotating, most.classes - rotating_classes, known.list_together)
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


def merge_incomplete(blocked: dict[Rejection, tuple[Task, ...]]) -> dict[Rejection, tuple[Task, ...]]:
    """Return why tasks wait, with one reason for those of all groups of pods beyond `MAX_TENANT_REASONS`."""
    incomplete = [reason for reason in blocked if reason.kind is RejectionKind.GANG_INCOMPLETE][MAX_TENANT_REASONS:]
    if incomplete:
        tasks = chain.from_iterable(blocked.pop(reason) for reason in incomplete)
        blocked[INCOMPLETE] = tuple(sorted(tasks, key=compute_sort_key))
    return blocked


def _find_most(waiting: WaitingQueues) -> dict[str, _Most]:
    """Return how many each leaf may have that may have more; of the users of a tenant each may have a part."""
    placements, classes = MAX_TENANT_PLACEMENTS, MAX_TENANT_CLASSES
    counts = [each.count for each in waiting.by_tenant.values()]
    if len(waiting.constraints) > MAX_PLACEMENTS:
        placements = compute_limit(counts, MAX_PLACEMENTS, MAX_TENANT_PLACEMENTS)
    if sum(counts) > MAX_CLASSES:
        classes = compute_limit(counts, MAX_CLASSES, MAX_TENANT_CLASSES)
    most = _Most(placements, classes)
    found: dict[str, _Most] = {}
    if max(counts, default=0) > min(most):
        for of_tenant in waiting.by_tenant.values():
            if of_tenant.count > min(most):
                each = _divide(of_tenant, most)
                above = (leaf for leaf, queues in of_tenant.leaves.items() if len(queues) > min(each))
                found.update(dict.fromkeys(above, each))
    return found


def _divide(of_tenant: QueuesOfTenant, most: _Most) -> _Most:
    """Return how many each leaf of a tenant may have so that all together have no more, as far as that can be had."""
    if len(of_tenant.leaves) == 1:
        return most
    counts, (placements, classes) = list(map(len, of_tenant.leaves.values())), most
    if len(of_tenant.constraints) > placements:
        placements = compute_limit(counts, placements, placements, MIN_USER_PLACEMENTS)
    if of_tenant.count > classes:
        classes = compute_limit(counts, classes, classes, MIN_USER_PLACEMENTS)
    return _Most(placements, classes)


def compute_limit(counts: Iterable[int], most: int, most_each: int, least: int = MIN_TENANT_PLACEMENTS) -> int:
    """Return how many placements, or classes, each tenant may have so that all have `most`, as far as that can be had.

    counts: how many each tenant has now, or more. most, most_each: of all and of one tenant. least: of one tenant, even
    if all have more than `most` then.

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
    return max(limit, least)
