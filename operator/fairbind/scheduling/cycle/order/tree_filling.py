"""Progressive filling of a tree: at each level the least child comes next, down to a tenant with a task that fits.

A tenant's candidate is what the filling without a tree would place next of it; that of an inner tenant is its least
child's. Siblings are ordered by their candidates: first those whose candidate stays within their guarantee, by the
largest part of it that is used; then by priority, high first; then by level; then by name. The level of an inner tenant
is of all that its subtree holds, on the pool of its candidate, without what is used up.

Each branch keeps its children in a heap by lower bounds of their keys, which only grow while tasks are placed. A child
is looked at when its bound comes to the top: first the bound is brought up to date, which takes no search for a server,
and only when it stays at the top is the candidate found. So a decision costs a path of the tree.

Bounds and keys are equal but in two cases, and then a decision may look at several children of a branch. A guarantee
counts or not by the candidate's server, and another tenant may take that: a child that could come to stay within a
guarantee is looked at each time, until the guarantee is used or none of its tasks may fit where it is about. Where
levels are by pool, an inner tenant's level is bounded by the least one of the pools that are open to its subtree, until
its candidate is known and the pool of that is watched over.

All begins again when the filling must `reopen`. Where another resource is used up, the levels of inner tenants fall,
and these are looked at again: at most once for each resource and pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fairbind.model import DomainRules
from fairbind.model.hierarchy import BELOW_THE_ROOT, Place
from fairbind.model.servers import IndexArray
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.cycle.order.inner_levels import InnerLevels, LevelsOfOne
from fairbind.scheduling.cycle.order.pool_watch import PoolWatch
from fairbind.scheduling.cycle.order.task_queues import NEVER, Asked, Choice, TenantQueue
from fairbind.scheduling.cycle.order.tree import Guaranteed, Tree
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure

Key = tuple[int, int]
"""What counts before the level, in one number, and the level.

The number is of the part of a guarantee that is used, within one, or `_WITHIN_NONE`; then of the priority.
"""

_PRIORITY_BITS = 40
_WITHIN_NONE = 1 << KEY_BITS + 1
"""Above every part of a guarantee that is used."""

FIRST_KEY: Key = -1, 0
"""Before every key."""

_Entry = tuple[int, int, int, int, int]
"""A child in a heap: a bound of its key, its number, the version of its progress when that was computed, its epoch.

The version is `NEVER` where no bound was computed. With another epoch than the child's the entry is void.
"""


class _Found(NamedTuple):
    """The candidate of a child, and its key. number: of the child."""

    key: Key
    number: int
    choice: Choice


class _Node(ABC):
    """A child of a branch. number: its place among siblings, which are in the order of their names.

    is_exact: whether its bound is its key, as long as a task below fits somewhere. _last: what ends the number in a
    key: of the priority. _without: that number where the candidate is within no guarantee.
    _wasted: how often it was looked at, since it was found what its tasks ask for, because of its bound alone.
    """

    __slots__ = (
        "_guaranteed",
        "_last",
        "_levels",
        "_wasted",
        "_without",
        "epoch",
        "is_exact",
        "number",
        "parent",
        "progress",
    )

    def __init__(
        self,
        parent: Branch | None,
        place: Place,
        progress: Progress,
        guaranteed: Guaranteed | None,
        levels: InnerLevels,
    ) -> None:
        self.parent = parent
        self.is_exact = guaranteed is None and not levels.is_by_pool
        self._levels = levels
        self.number = 0
        self.epoch = 0
        self.progress = progress
        self._last = (1 << _PRIORITY_BITS - 1) - place.priority
        self._guaranteed = guaranteed
        self._without = (_WITHIN_NONE << _PRIORITY_BITS) + self._last
        self._wasted = 0

    @abstractmethod
    def compute_bound(self) -> Key | None:
        """Return a bound of the key; None: no task below fits anywhere."""

    @abstractmethod
    def find_choice(self) -> Choice | None:
        """Return the candidate; None: no task below fits anywhere."""

    @abstractmethod
    def compute_level(self, pool: int) -> int:
        """Return the level where the candidate is in a pool."""

    def find(self) -> _Found | None:
        """Return the candidate with its key; None: no task below fits anywhere."""
        choice = self.find_choice()
        return (
            None
            if choice is None
            else _Found(self._make_key(choice, self.compute_level(choice.pool)), self.number, choice)
        )

    @abstractmethod
    def find_asked(self) -> Asked | None:
        """Return what the tasks below ask for that may fit somewhere; None: there are none."""

    @abstractmethod
    def forget_asked(self) -> None:
        """Look up again what the tasks below ask for."""

    @abstractmethod
    def count_classes(self) -> int:
        """Return how many classes there are below."""

    @abstractmethod
    def find_open_pools(self) -> IndexArray:
        """Return the pools in which a task below may fit, ascending."""

    def make_bound(self, found: _Found) -> Key:
        """Return a bound of the key, where that is known now."""
        if self._levels.watch is None or not self._levels.watch.watch(found.choice):
            return self.compute_bound() or found.key
        return self._make_bound(found.key[1])

    def note_waste(self) -> None:
        """Note that the candidate is within no guarantee although the bound said that it may be.

        After so many times as there are classes it is looked up what may still fit: that costs no more than these.
        """
        self._wasted += 1
        if self._wasted >= self.count_classes():
            self._wasted = 0
            self.forget_asked()

    def _make_key(self, choice: Choice, level: int) -> Key:
        """Return the key, exactly. choice: the candidate. level: on its pool."""
        if self._guaranteed is not None:
            part = self._guaranteed.find_used_part(choice.server, choice.queue.task_class.demand_r)
            if part is not None:
                return (part << _PRIORITY_BITS) + self._last, level
        return self._without, level

    def _make_bound(self, level: int) -> Key:
        """Return a bound of the key. level: a bound of the level."""
        if self._guaranteed is not None:
            asked = self.find_asked()
            part = None if asked is None else self._guaranteed.find_least_part(asked)
            if part is not None:
                return (part << _PRIORITY_BITS) + self._last, level
        return self._without, level


class _Leaf(_Node):
    """A tenant with tasks. _level: in the pool of the last candidate."""

    __slots__ = ("_asked", "_level", "queue")

    def __init__(
        self,
        parent: Branch,
        place: Place,
        queue: TenantQueue,
        guaranteed: Guaranteed | None,
        levels: InnerLevels,
    ) -> None:
        assert queue.progress is not None
        super().__init__(parent, place, queue.progress, guaranteed, levels)
        self.queue = queue
        self._asked: Asked | None = None
        self._level = 0

    def compute_bound(self) -> Key | None:
        level = self.queue.find_bound()
        return None if level is None else self._make_bound(level)

    def find_choice(self) -> Choice | None:
        queue = self.queue
        while (least := queue.find_pool()) is not None:
            self._level, pool = least
            choice = queue.find_choice(self._level, pool)
            if choice is not None:
                return choice
            queue.close_pools(pool)
            self._forget_pools()
        return None

    def compute_level(self, pool: int) -> int:  # noqa: ARG002 (it was found with the candidate)
        return self._level

    def _forget_pools(self) -> None:
        branch = self.parent
        while branch is not None:
            branch.open_pools = None
            branch = branch.parent

    def find_asked(self) -> Asked | None:
        if self._asked is None:
            self._asked = self.queue.find_asked()
        return self._asked

    def forget_asked(self) -> None:
        self._asked = None

    def count_classes(self) -> int:
        return len(self.queue)

    def find_open_pools(self) -> IndexArray:
        return self.queue.open_pools

    def put_back(self) -> None:
        """Have it, and what is above it, looked at again: something of it may fit again."""
        self._asked = None
        self._forget_pools()
        node: _Node = self
        while node.parent is not None:
            node.parent.put_back(node)
            node = node.parent


class Branch(_Node):
    """An inner tenant, or the root: a heap of its children. open_pools: see `find_open_pools`; None: not known."""

    __slots__ = ("_asked", "_heap", "_own_levels", "children", "open_pools")

    def __init__(
        self,
        parent: Branch | None,
        place: Place,
        progress: Progress,
        guaranteed: Guaranteed | None,
        levels: InnerLevels,
    ) -> None:
        super().__init__(parent, place, progress, guaranteed, levels)
        self._own_levels = LevelsOfOne(levels, progress)
        self.children: list[_Node] = []
        self.open_pools: IndexArray | None = None
        self._heap: list[_Entry] = []
        self._asked: Asked | None = None

    def begin(self) -> None:
        """Have every child looked at."""
        self._heap = [(*FIRST_KEY, child.number, NEVER, child.epoch) for child in self.children]
        self.open_pools = self._asked = None
        self._own_levels.forget()

    def begin_inner(self) -> None:
        """Have every inner child looked at: its level may have fallen, and its own."""
        self._own_levels.forget()
        if any(isinstance(child, Branch) for child in self.children):
            self._heap = [
                (*FIRST_KEY, number, NEVER, epoch)
                if isinstance(self.children[number], Branch)
                else (before, level, number, version, epoch)
                for before, level, number, version, epoch in self._heap
            ]
            heapify(self._heap)

    def put_back(self, child: _Node) -> None:
        """Have a child looked at again."""
        self._asked = None
        child.epoch += 1
        heappush(self._heap, (*FIRST_KEY, child.number, NEVER, child.epoch))

    def compute_bound(self) -> Key | None:
        """Return a bound of the key."""
        if self.is_exact:  # on the way of each decision
            return self._without, self._levels.compute_everywhere(self.progress)
        if not self._levels.is_by_pool:
            return self._make_bound(self._levels.compute_everywhere(self.progress))
        return self._make_bound(self._own_levels.find_least(self.find_open_pools()))

    def compute_level(self, pool: int) -> int:
        """Return the level where the candidate is in a pool."""
        return self._own_levels.compute(pool)

    def find_choice(self) -> Choice | None:
        """Return the candidate of the least child; None: no task below fits anywhere."""
        heap, children = self._heap, self.children
        while heap:
            _, _, number, version, epoch = heap[0]
            child = children[number]
            if version != child.progress.version or epoch != child.epoch:
                self._refresh(child, epoch)
            elif not child.is_exact:
                return self._compare()
            elif (choice := child.find_choice()) is not None:
                return choice
            else:
                heappop(heap)
        return None

    def _refresh(self, child: _Node, epoch: int) -> None:
        """Bring the bound of the first child up to date, or remove it. epoch: of its entry."""
        heap = self._heap
        bound = None if epoch != child.epoch else child.compute_bound()
        if bound is None:
            heappop(heap)
        else:
            heapreplace(heap, (*bound, child.number, child.progress.version, epoch))

    def _compare(self) -> Choice | None:
        """Return the same where several children may have to be looked at: their keys may be above the bounds."""
        heap, children = self._heap, self.children
        aside: list[tuple[_Entry, Key]] = []
        best: _Found | None = None
        while heap:
            entry = heap[0]
            before, level, number, version, epoch = entry
            if best is not None and best[:2] < ((before, level), number):
                break  # and all that come after it
            child = children[number]
            if version != child.progress.version or epoch != child.epoch:
                self._refresh(child, epoch)
                continue
            found = child.find()
            if found is None:
                heappop(heap)
                continue
            if best is None or found[:2] < best[:2]:
                best = found
            if found.key == entry[:2]:
                break  # all others are behind it
            if found.key[0] > before:
                child.note_waste()
            aside.append((heappop(heap), child.make_bound(found)))
        for (_, _, number, version, epoch), bound in aside:
            heappush(heap, (*bound, number, version, epoch))
        return None if best is None else best.choice

    def find_asked(self) -> Asked | None:
        """Return what the tasks below ask for that may fit somewhere."""
        if self._asked is None:
            several = [asked for child in self.children if (asked := child.find_asked()) is not None]
            self._asked = Asked.join(several) if several else None
        return self._asked

    def forget_asked(self) -> None:
        """Look up again what the tasks below ask for."""
        self._asked = None
        for child in self.children:
            child.forget_asked()

    def count_classes(self) -> int:
        """Return how many classes there are below."""
        return sum(child.count_classes() for child in self.children)

    def find_open_pools(self) -> IndexArray:
        """Return the pools in which a task below may fit."""
        if self.open_pools is None:
            self.open_pools = np.unique(np.concatenate([child.find_open_pools() for child in self.children]))
        return self.open_pools


class TreeFilling:
    """Which queue, which pool, which task and which server come next, as `Filling` says it without a tree."""

    __slots__ = ("_branches", "_leaves", "_levels", "_root", "_ruled")

    def __init__(self, queues: Mapping[str, TenantQueue], tree: Tree, measure: Measure, free: FreeCapacity) -> None:
        """Take the queues of tenants, by name."""
        self._levels = InnerLevels(measure, tree.build_used_up(measure, free), PoolWatch())
        self._root = Branch(None, BELOW_THE_ROOT, Progress("", [], ()), None, self._levels)
        self._branches: dict[str, Branch] = {}
        self._leaves: dict[str, _Leaf] = {}
        named: list[tuple[str, _Node]] = []
        for name, queue in queues.items() if len(measure.pools.amount_pr) > 0 else ():
            place = tree.hierarchy.get_place(name)
            parent = self._get_branch(place.parent, tree, named)
            leaf = _Leaf(parent, place, queue, tree.get_guaranteed(place), self._levels)
            self._leaves[name] = leaf
            named.append((name, leaf))
        for _, node in sorted(named, key=itemgetter(0)):
            assert node.parent is not None
            node.number = len(node.parent.children)
            node.parent.children.append(node)
        self._ruled: dict[DomainRules, list[tuple[_Leaf, int]]] | None = None
        self._begin()

    def _get_branch(self, name: str | None, tree: Tree, named: list[tuple[str, _Node]]) -> Branch:
        """Return the branch of an inner tenant, and make it and those above it first. None: the root."""
        if name is None:
            return self._root
        branch = self._branches.get(name)
        if branch is None:
            inner = tree.hierarchy.inner[name]
            parent = self._get_branch(inner.place.parent, tree, named)
            guaranteed = tree.get_guaranteed(inner.place)
            branch = Branch(parent, inner.place, tree.get_progress(inner), guaranteed, self._levels)
            self._branches[name] = branch
            named.append((name, branch))
        return branch

    def _list_branches(self) -> Iterator[Branch]:
        yield self._root
        yield from self._branches.values()

    def _begin(self) -> None:
        for branch in self._list_branches():
            branch.begin()

    def reopen(self) -> None:
        """Forget all levels and all that fitted nowhere: free capacity has come back, or tasks went."""
        self._levels.forget()
        for leaf in self._leaves.values():
            leaf.queue.reopen()
            leaf.forget_asked()
        self._begin()

    def note_placed(self, server: int) -> None:
        """Note that something was placed on a server, or that it is closed to some tasks."""
        self._levels.note_placed(server)

    def reopen_classes(self, opened: Iterable[DomainRules]) -> None:
        """Look again at classes with these rules that were seen not to fit somewhere: a domain is open again."""
        if self._ruled is None:
            self._ruled = {}
            for leaf in self._leaves.values():
                for rules, number in leaf.queue.list_ruled():
                    self._ruled.setdefault(rules, []).append((leaf, number))
        for rules in opened:
            for leaf, number in self._ruled.get(rules, ()):
                if leaf.queue.is_narrowed(number):
                    leaf.queue.reopen_class(number)
                    leaf.put_back()

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        if self._levels.follow():
            for branch in self._list_branches():
                branch.begin_inner()
        if self._levels.watch is not None:
            for name in self._levels.watch.follow():
                self._leaves[name].put_back()
        return self._root.find_choice()
