"""How many different placements of one tenant a snapshot holds: the rest of its pods wait in turn.

Each placement costs memory and time for every node, in every replica, and a tenant may have thousands of pods that
each may go elsewhere. So a snapshot holds `MAX_TENANT_PLACEMENTS` of a tenant at most, and fewer when there would be
more than `MAX_PLACEMENTS` in all. Most of them are those of the pods whose turn comes first. A part of them goes round
among all others, so that pods that fit nowhere do not keep those behind them from being looked at. When all have been
looked at once since the last change, the round is over.

Placements are counted as they are on the nodes of now: a thousand pods that differ in what no node has count as one.
Queues of such a tenant that have the demand and the placement in common are one task class, which costs a cycle what
one queue costs. So are its pods that are left out, which are blocked until their turn comes, and its pods that are not
supported, by reason. Tenants with fewer queues have a class for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairbind.cluster.cache.pending import QueueKey, TaskQueue
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.facts import AntiAffinityTerm, Constraints, Demand
from fairbind.model import Rejection, RejectionKind, Task, TaskClass
from fairbind.scheduling.cycle.task_queues import compute_turn

MAX_TENANT_PLACEMENTS = 128
"""Half of what a cycle may decide: where all of them fit, the next cycle goes on with the rest."""

ROTATING_PART = 4
"""One in so many of them goes round among the placements beyond."""

MAX_PLACEMENTS = 2_048
"""Placements of all tenants: whoever has many namespaces is many tenants."""

MIN_TENANT_PLACEMENTS = 4
"""Each tenant has so many, however many tenants there are."""

LATER = Rejection(RejectionKind.LATER)

_Look = tuple[Constraints, frozenset[AntiAffinityTerm], int | None, str | None]
"""What decides a placement: constraints without what does not matter now, the terms that keep the pods away, and which
reserved room they may use (`QueueKey.overtaken`, `QueueKey.nominee`)."""


_Kind = tuple[Demand, str | None]
"""What a class of such a placement is told by: the demand, and the only node that the pods may use (a DaemonSet's)."""


class Group:
    """Queues that are one task class. queues: in turn. template: what `task_class` was made of, for who makes it."""

    __slots__ = ("_tasks", "queues", "task_class", "template")

    def __init__(self) -> None:
        self.queues: list[TaskQueue] = []
        self.template: TaskClass | None = None
        self.task_class: TaskClass | None = None
        self._tasks: tuple[Task, ...] | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Their tasks, in turn."""
        if self._tasks is None:
            tasks = (task for queue in self.queues for task in queue.tasks)
            self._tasks = tuple(sorted(tasks, key=compute_turn))
        return self._tasks


@dataclass(frozen=True, slots=True)
class Choice:
    """What a snapshot shows of a tenant. groups: those that may be placed. blocked: all others, by why they wait."""

    groups: Sequence[Group]
    blocked: Mapping[Rejection, Group]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """All queues of a tenant, sorted as of a version of the nodes' features. looks: in turn, each by demand."""

    features_version: int
    looks: Mapping[_Look, Mapping[_Kind, Group]]
    unsupported: Mapping[Rejection, Group]


@dataclass(slots=True)
class _Round:
    """Where the rotation of a tenant is. seen: looked at in this round. began: `Window.note_change` calls before it."""

    seen: set[_Look] = field(default_factory=set)
    rotating: list[_Look] = field(default_factory=list)
    began: int = 0


class Window:
    """Chooses the queues of tenants that have many. has_more: whether a round is not over."""

    def __init__(self, eligibility: Eligibility) -> None:
        self._eligibility = eligibility
        self._rounds: dict[str, _Round] = {}
        self._sorted: dict[str, _Sorted] = {}
        self._changes = 0
        self._limit = MAX_TENANT_PLACEMENTS
        self.has_more = False

    def note_change(self) -> None:
        """Something changed, so that pods may fit that did not."""
        self._changes += 1

    def note_cycle(self) -> None:
        """A cycle has looked at what was chosen last."""
        for each in self._rounds.values():
            each.seen.update(each.rotating)

    def choose(
        self, queues_by_tenant: Mapping[str, Mapping[QueueKey, TaskQueue]], different: int, changed: Collection[str]
    ) -> dict[str, Choice]:
        """Return what is shown of each tenant that has more queues than placements are allowed.

        different: how many constraints all queues have. changed: the tenants of whose queues any has changed since the
        last time.
        """
        choices = {}
        self.has_more = False
        self._limit = MAX_TENANT_PLACEMENTS
        if different > MAX_PLACEMENTS:
            self._limit = compute_limit(map(len, queues_by_tenant.values()))
        for tenant, queues in queues_by_tenant.items():
            if len(queues) > self._limit:
                known = self._sorted.get(tenant)
                if known is None or tenant in changed or known.features_version != self._eligibility.features_version:
                    known = self._sorted[tenant] = self._sort(queues.values())
                choices[tenant] = self._choose(tenant, known)
        self._rounds = {tenant: each for tenant, each in self._rounds.items() if tenant in choices}
        self._sorted = {tenant: each for tenant, each in self._sorted.items() if tenant in choices}
        return choices

    def _sort(self, queues: Iterable[TaskQueue]) -> _Sorted:
        looks: dict[_Look, dict[_Kind, Group]] = {}
        unsupported: dict[Rejection, Group] = {}
        for queue in sorted(queues, key=lambda queue: compute_turn(queue.tasks[0])):
            key = queue.key
            if key.unsupported is None:
                look = self._eligibility.simplify(key.constraints), key.repelled, key.overtaken, key.nominee
                by_demand = looks.setdefault(look, {})
                kind = key.demand, key.pin
                group = by_demand.get(kind) or by_demand.setdefault(kind, Group())
            else:
                group = unsupported.get(key.unsupported) or unsupported.setdefault(key.unsupported, Group())
            group.queues.append(queue)
        return _Sorted(self._eligibility.features_version, looks, unsupported)

    def _choose(self, tenant: str, known: _Sorted) -> Choice:
        shown = dict.fromkeys(self._pick(tenant, list(known.looks)))
        later = Group()
        for look, by_demand in known.looks.items():
            if look not in shown:
                later.queues.extend(queue for group in by_demand.values() for queue in group.queues)
        blocked = {**known.unsupported, LATER: later} if later.queues else known.unsupported
        return Choice([group for look in shown for group in known.looks[look].values()], blocked)

    def _pick(self, tenant: str, looks: list[_Look]) -> Iterator[_Look]:
        """Pick which placements are shown. looks: in turn."""
        if len(looks) <= self._limit:
            self._rounds.pop(tenant, None)
            yield from looks
            return
        now = self._rounds.setdefault(tenant, _Round(began=self._changes))
        rotating = max(1, self._limit // ROTATING_PART)
        first, rest = looks[: self._limit - rotating], looks[self._limit - rotating :]
        unseen = [look for look in rest if look not in now.seen]
        if not unseen and now.began != self._changes:
            now.seen.clear()
            now.began = self._changes
            unseen = rest
        now.seen.intersection_update(rest)
        now.rotating = (unseen or rest)[:rotating]
        self.has_more |= len(unseen) > rotating
        yield from first
        yield from now.rotating


def compute_limit(counts: Iterable[int]) -> int:
    """Return how many placements each tenant may have so that all have `MAX_PLACEMENTS`, as far as that can be had.

    counts: how many each tenant has now, or more.

    >>> compute_limit([3, 5_000, 5_000]), compute_limit([9] * 5_000)
    (128, 4)
    """
    left, limit = MAX_PLACEMENTS, MAX_TENANT_PLACEMENTS
    ascending = sorted(counts)
    for index, count in enumerate(ascending):
        part = left // (len(ascending) - index)
        if count > part:
            limit = min(limit, part)
            break
        left -= count
    return max(limit, MIN_TENANT_PLACEMENTS)
