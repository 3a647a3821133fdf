"""The tree of tenants in one draft: what the subtrees hold, and how much of their guarantees is used.

What a tenant holds counts for all inner tenants above it. Only those are looked at below which something waits, is
placed or goes, so a cycle with one change costs that tenant's path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from fairbind.model import RunningTask, Snapshot, TaskClass
from fairbind.model.hierarchy import InnerTenant, Place
from fairbind.model.shares import KEY_BITS
from fairbind.model.topology import DomainArray, Domains
from fairbind.scheduling.cycle.order.least_asked import AskedAmounts, LeastAsked
from fairbind.scheduling.cycle.order.task_queues import Asked
from fairbind.scheduling.cycle.order.used_up import UsedUp
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import DomainFilter
from fairbind.scheduling.policies.levels import Progress, compute_progress
from fairbind.scheduling.policies.measures import Measure, Undo


class _Part(NamedTuple):
    """A guarantee of one resource. r: the resource. domain_k: of `servers`: 0 where it is about, shape (K,)."""

    subject: Hashable
    r: int
    amount: int
    domain_k: DomainArray
    servers: Domains


class Guaranteed:
    """The guarantees of one tenant, as far as they are about resources of the snapshot. used: by subject."""

    __slots__ = ("_groups", "_parts", "_used")

    def __init__(self, parts: Sequence[_Part], used: dict[Hashable, int]) -> None:
        self._parts = parts
        self._used = used
        groups: dict[Domains, list[_Part]] = {}
        for part in parts:
            groups.setdefault(part.servers, []).append(part)
        self._groups = list(groups.values())

    def find_used_part(self, server: int, demand_r: Sequence[int]) -> int | None:
        """Return which part is used where a task on a server stays within; None: it does not."""
        parts = [part for part in self._parts if demand_r[part.r] and part.domain_k[server] == 0]
        return self._find_largest(parts, demand_r)

    def find_used_part_of(
        self, find_servers: Callable[[Domains], int], servers: int, demand_r: Sequence[int]
    ) -> int | None:
        """Return the same where the task may go to some servers, for entries that are about one of these at least.

        servers: as a set of `Reaches`. find_servers: gives those that an entry is about.
        """
        parts = [part for part in self._parts if demand_r[part.r] and find_servers(part.servers) & servers]
        return self._find_largest(parts, demand_r)

    def find_least_part(self, asked: Asked) -> int | None:
        """Return a bound: no task that is asked for stays within while less is used. None: none stays within.

        Servers that several entries are about count for each by itself, which is never more than together.
        """
        found = [
            self._find_largest([part for part in parts if kind >> part.r & 1], asked.least_r)
            for parts in self._groups
            for kind in asked.kinds
        ]
        return min((part for part in found if part is not None), default=None)

    def _find_largest(self, parts: Iterable[_Part], demand_r: Sequence[int]) -> int | None:
        """Return the largest part that is used of some guarantees; None: there are none, or one has too little left."""
        most = None
        for subject, r, amount, _, _ in parts:
            used = self._used[subject]
            if used + demand_r[r] > amount:
                return None
            part = (used << KEY_BITS) // amount
            most = part if most is None or part > most else most
        return most

    def count(self, server: int, demand_r: Sequence[int], sign: int) -> None:
        """Count a task on a server more (1) or less (-1)."""
        for subject, r, _, domain_k, _ in self._parts:
            if demand_r[r] and domain_k[server] == 0:
                self._used[subject] += sign * demand_r[r]


class _Path(NamedTuple):
    """What follows the tasks of one tenant: its own guarantees and those above, and inner tenants' progress."""

    guarantees: list[Guaranteed]
    above: list[Progress]


class Follower(Protocol):
    """Follows tasks that come and go, such as `KeptBack`."""

    def follow(self, server: int, demand_r: Sequence[int]) -> list[DomainFilter]:
        """Follow a task that came to a server or went, and return the filters that may have opened."""
        ...


class Tree:
    """The tree of one snapshot, as it is after what was placed. hierarchy: of the snapshot.

    least: what waiting tasks ask for at least. kept_back: follows what is kept; None: nothing is. _used: of each
    guarantee that was looked at, by subject.
    """

    __slots__ = (
        "_axis_of",
        "_guarantees",
        "_paths",
        "_progress_of",
        "_snapshot",
        "_used",
        "hierarchy",
        "kept_back",
        "least",
    )

    def __init__(self, snapshot: Snapshot, asked: AskedAmounts | None = None) -> None:
        """Begin with what the snapshot says. asked: what its classes ask for, where that is known."""
        self.hierarchy = snapshot.hierarchy
        self._snapshot = snapshot
        self._axis_of = {resource: r for r, resource in enumerate(snapshot.resources)}
        self._used: dict[Hashable, int] = {}
        self._guarantees: dict[Place, Guaranteed | None] = {}
        self._paths: dict[str, _Path] = {}
        self._progress_of: dict[str, Progress] = {}
        self.kept_back: Follower | None = None
        self.least = LeastAsked(asked or AskedAmounts(len(snapshot.resources), snapshot.task_classes))

    def is_flat(self, tenants: Iterable[str]) -> bool:
        """Whether these are compared as if there was no tree: all are siblings, and nothing distinguishes them."""
        leaves = self.hierarchy.leaves
        return not any(
            place.parent is not None or place.priority or self.get_guaranteed(place)
            for place in (leaves[name] for name in tenants if name in leaves)
        )

    def get_guaranteed(self, place: Place) -> Guaranteed | None:
        """Return what is guaranteed to the tenant of a place; None: nothing."""
        if not place.guarantees:
            return None
        if place not in self._guarantees:
            parts = [
                _Part(each.subject, self._axis_of[each.resource], each.amount, each.servers.domain_k, each.servers)
                for each in place.guarantees
                if each.resource in self._axis_of
            ]
            for part in parts:
                self._used.setdefault(part.subject, self._snapshot.held.get(part.subject, 0))
            self._guarantees[place] = Guaranteed(parts, self._used) if parts else None
        return self._guarantees[place]

    def get_used(self, subject: Hashable) -> int:
        """Return how much of a guarantee is used."""
        used = self._used.get(subject)
        return self._snapshot.held.get(subject, 0) if used is None else used

    def get_progress(self, inner: InnerTenant) -> Progress:
        """Return what an inner tenant's subtree holds."""
        progress = self._progress_of.get(inner.tenant.name)
        if progress is None:
            progress = self._progress_of[inner.tenant.name] = compute_progress(inner.tenant, self._snapshot)
        return progress

    def take(self, task_class: TaskClass, server: int, *, is_last: bool) -> list[DomainFilter]:
        """Count a task that was placed, and return the filters that may have opened.

        is_last: whether none of its class waits any more.
        """
        guarantees, above = self._paths.get(task_class.tenant) or self._get_path(task_class.tenant)
        for progress in above:
            progress.add(task_class.share_demand_r)
        for guaranteed in guarantees:
            guaranteed.count(server, task_class.demand_r, 1)
        if is_last:
            self.least.note_end(task_class.demand_r)
        return [] if self.kept_back is None else self.kept_back.follow(server, task_class.demand_r)

    def undo_take(self, task_class: TaskClass, server: int, *, was_last: bool) -> None:
        """Take back what `take` counted."""
        path = self._get_path(task_class.tenant)
        for progress in path.above:
            progress.remove(task_class.share_demand_r)
        for guaranteed in path.guarantees:
            guaranteed.count(server, task_class.demand_r, -1)
        if was_last:
            self.least.take_back(task_class.demand_r)
        if self.kept_back is not None:
            self.kept_back.follow(server, task_class.demand_r)

    def evict(self, running: RunningTask, server: int | None) -> tuple[Undo, list[DomainFilter]]:
        """Count a running task less; return what takes that back, and the filters that may have opened.

        server: None where it is not in the table.
        """
        path = self._get_path(running.tenant)

        def count(sign: int) -> list[DomainFilter]:
            for progress in path.above:
                (progress.add if sign > 0 else progress.remove)(running.share_demand_r)
            if server is None:
                return []
            for guaranteed in path.guarantees:
                guaranteed.count(server, running.demand_r, sign)
            return [] if self.kept_back is None else self.kept_back.follow(server, running.demand_r)

        opened = count(-1)

        def undo() -> None:
            count(1)

        return undo, opened

    def build_used_up(self, measure: Measure, free: FreeCapacity) -> UsedUp:
        """Return which resources are used up, on the pools on which the measure compares."""
        snapshot = self._snapshot
        axes = [r for r, counts in enumerate(snapshot.counts_r) if counts and snapshot.total_r[r] > 0]
        return UsedUp(snapshot.servers, free, measure.pools if measure.is_by_pool else None, axes, self.least)

    def _get_path(self, leaf: str) -> _Path:
        path = self._paths.get(leaf)
        if path is None:
            inner = list(self.hierarchy.list_above(leaf))
            places = (self.hierarchy.get_place(leaf), *(each.place for each in inner))
            guarantees = [each for each in map(self.get_guaranteed, places) if each is not None]
            path = self._paths[leaf] = _Path(guarantees, list(map(self.get_progress, inner)))
        return path
