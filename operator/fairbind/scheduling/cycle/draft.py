"""The draft: the working state of one cycle, which follows each decision and can take decisions back.

A draft begins where its snapshot is. `find_choice` says what progressive filling places next; `take` and `place` place
a task, `evict` lets a running one go, `restrict` closes servers to the tasks of a placement and `reopen` opens them
again. All of it is written into a journal. `checkpoint` marks a position of it, and `rollback` goes back there: free
capacity, shares, keys and queues are what they were, exactly. So a caller may try whether a group of tasks fits, or
what an eviction would help, and leave no trace.

After any history, a draft decides as a new one of the same state would. Two kinds of things make up
a draft. *State* is what decides: free capacity, measure, tenants' progress, positions in queues, restrictions. Each
operation has an exact inverse there, as all sums are of integers. *Closings* are what was found out about the state and
saves work: scores, levels, pools and classes in which nothing fits. While tasks are only placed, free capacity only
shrinks and levels only grow, so closings stay. When a server gains free capacity or becomes eligible again,
`FreeCapacity.gains` grows, and what was closed there before that is void; queues and filling begin again, at a cost of
about a microsecond a tenant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

import numpy as np

from fairbind.model import (
    Bind,
    DomainRules,
    InvalidProblemError,
    InvariantError,
    Placement,
    RunningTask,
    Snapshot,
    Task,
    TaskClass,
    Wait,
)
from fairbind.scheduling.cycle.order.filling import Filling
from fairbind.scheduling.cycle.order.kept_back import KeepingRules, KeptBack
from fairbind.scheduling.cycle.order.siblings import Siblings
from fairbind.scheduling.cycle.order.task_queues import (
    Choice,
    ClassQueue,
    SortRule,
    TenantQueue,
    compute_arrival,
    compute_sort_key,
)
from fairbind.scheduling.cycle.order.tree import Tree
from fairbind.scheduling.cycle.order.tree_filling import TreeFilling
from fairbind.scheduling.cycle.servers.arrangements import Arrangement
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.random_choices import RandomChoices
from fairbind.scheduling.cycle.servers.shapes import Shapes
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.cycle.state import CycleState
from fairbind.scheduling.cycle.waits.deferred import NOTHING_DEFERRED
from fairbind.scheduling.cycle.waits.store import Remembered
from fairbind.scheduling.cycle.waits.unschedulable_cache import UnschedulableCache
from fairbind.scheduling.policies.measures import Measure, Undo, get_progress
from fairbind.scheduling.policies.registry import Policy


def expect_undefined_scores() -> np.errstate:
    """Return the context in which drafts are asked: numpy's warnings about divisions by zero are off.

    A score of a server on which the task does not fit may divide by nothing; it is replaced in the next step.
    """
    return np.errstate(divide="ignore", invalid="ignore")


class Mark:
    """A position of one draft's journal. It ends when the draft rolls back to an earlier one."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position: Final = position


class Draft:
    """See the module. To be used within `expect_undefined_scores`.

    free, measure, topology, progress_of, queues: the state; for others to read. progress_of: by tenant.
    queues: by tenant and sort key, those of what was deferred behind them; each holds its tasks.
    remembered: the waits of classes that have no queue, because they were known to fit nowhere when the draft began.
    deferred: those of these classes for which one of a few servers has free capacity then: they get a queue when their
    tenant's is next, unless others have taken the capacity by then. unseen: those that got none although there was free
    capacity, and of those that are stale in the snapshot, other than `remembered`.
    replaced: see `Recalled`.
    remembered_waits: the waits that were remembered of classes that have a queue, because they may fit where free
    capacity has grown. bindings: the placements that were not taken back, in their order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        seed: int = 0,
        unschedulable: UnschedulableCache | None = None,
        state: CycleState | None = None,
        defers: bool = False,
        now: float = 0.0,
    ) -> None:
        """Begin where the snapshot is, which `check_snapshot` must have passed. seed: of the policy's draws.

        unschedulable: what the cycle before saw fit nowhere. state: what has not changed since; no other draft may use
        it at the same time. defers: whether classes are deferred; then all but to decide and take raises
        InvariantError. now: ends waits for a time.
        """
        self.policy = policy
        self.free = FreeCapacity(snapshot.servers)
        self.tree: Tree | None = None
        keeping = KeepingRules() if state is None else state.keeping
        if not snapshot.hierarchy.is_flat:
            self.tree = Tree(snapshot, None if state is None else state.get_asked(snapshot))
            snapshot = keeping.apply(snapshot, self.tree, self.free)
        self.snapshot = snapshot
        self.deferred = NOTHING_DEFERRED
        self.unseen: list[TaskClass] = []
        self.replaced: AbstractSet[TaskClass] = frozenset()
        self.remembered_waits: dict[TaskClass, Wait] = {}
        looked_at: Sequence[TaskClass] = snapshot.task_classes
        self._only_servers: dict[TaskClass, Sequence[int]] = {}
        self._unschedulable = unschedulable
        self._defers = defers
        if unschedulable is None:
            self.remembered = Remembered(self.rule)
        else:
            defers = defers and policy.is_fair and not snapshot.stale
            recalled = unschedulable.recall(snapshot, self.free, self.rule, defers=defers, now=now)
            self.remembered, self.deferred, self.replaced, looked_at, self.remembered_waits, self._only_servers = (
                recalled
            )
        if snapshot.stale:
            self.unseen = [each for each in looked_at if each in snapshot.stale]
            looked_at = [each for each in looked_at if each not in snapshot.stale]
        self.measure: Measure = policy.build_measure(snapshot)
        choices = RandomChoices(seed) if policy.has_random_choices else None
        servers, pools = snapshot.servers, self.measure.pools
        self.topology = TopologyState(
            [each for each in snapshot.task_classes if each.has_rules_or_preferences]
            if state is None or keeping.sets
            else state.get_ruled(),
            snapshot.held,
        )
        fit = policy.build_fit(snapshot)
        self._shapes = Shapes(servers, pools, self.free, fit, choices, self.topology, self._only_servers)
        self.progress_of = get_progress(snapshot) if state is None else state.get_progress(snapshot)
        if self.tree is not None and keeping.sets:
            self.tree.kept_back = KeptBack(keeping, snapshot, self.tree, self.free, self.topology)
        self.queues = self._build_queues(looked_at)
        self.bindings: list[Bind] = []
        self._journal: list[Choice | Undo] = []
        self._marks: list[Mark] = []
        self._evicted: set[str] = set()
        self._filling: Filling | TreeFilling | None = None
        self._is_reopened = False

    @property
    def rule(self) -> SortRule:
        """What gives the order of tasks: of a tenant's, or where the policy compares none, of all."""
        return compute_sort_key if self.policy.is_fair else compute_arrival

    @property
    def shapes(self) -> Shapes:
        """What tasks of equal demand and constraints share: where they fit."""
        return self._shapes

    @property
    def kept_back(self) -> KeptBack | None:
        """What follows what is kept; None: nothing is."""
        follower = None if self.tree is None else self.tree.kept_back
        return follower if isinstance(follower, KeptBack) else None

    def get_used(self, subject: Hashable) -> int:
        """Return how much of a guarantee is used."""
        return self.snapshot.held.get(subject, 0) if self.tree is None else self.tree.get_used(subject)

    # --- deciding ---

    def find_choice(self) -> Choice | None:
        """Return the next placement of the filling, or None when no waiting task fits anywhere."""
        if self._filling is None:
            self._filling = self._build_filling()
        elif self._is_reopened:
            self._filling.reopen()
        self._is_reopened = False
        return self._filling.find_choice()

    def take(self, choice: Choice) -> Bind:
        """Make a choice that `find_choice` has found, with nothing done since."""
        queue, server, pool = choice
        task_class = queue.task_class
        self.free.take(server, task_class.demand_r, task_class.placement.exclusive_keys)
        self.measure.add(queue.progress, task_class, pool)
        self._journal.append(choice)
        bind = Bind(queue.pop(), task_class.tenant, self.snapshot.servers.names[server])
        self.bindings.append(bind)
        opened = self.topology.count(task_class, server, 1)
        if self.tree is not None:
            opened += self.tree.take(task_class, server, is_last=queue.waiting == 0)
            self._note_placed(server)
        if opened:
            self._reopen_classes({each.rules for each in opened})
        return bind

    def _note_placed(self, server: int) -> None:
        if self._filling is not None:
            self._filling.note_placed(server)

    def _reopen_classes(self, opened: set[DomainRules]) -> None:
        """Have the classes with these rules looked at again: a domain that was closed to them is open."""
        if any(wait.task_class.rules in opened for wait in self.remembered.waits):
            self._look_at_all()
        elif self._filling is not None:
            self._filling.reopen_classes(opened)

    def place(self, queue: ClassQueue, server: int) -> Bind:
        """Place the first task of a queue on a server, out of order too.

        queue: one of `queues`, with tasks. server: its index. Raises InvalidProblemError when the task does not fit.
        """
        self._check_free()
        if queue.sort_key is None or not self.fits(queue.task_class, server):
            name = self.snapshot.servers.names[server]
            raise InvalidProblemError(f"no task of this class of {queue.task_class.tenant!r} fits on {name!r}")
        return self.take(Choice(queue, server, self.measure.pools.get_pool(server)))

    def fits(self, task_class: TaskClass, server: int) -> bool:
        """Whether a task of a class may go to a server and fits there, as things stand."""
        placement = task_class.placement
        restricted_k = self._shapes.get_arrangement(placement).restricted_k
        is_out = bool(task_class.blocked) or task_class in self.snapshot.stale
        if is_out or not (placement.eligible_k[server] and self.snapshot.servers.accepting_k[server]):
            return False
        if restricted_k is not None and restricted_k[server]:
            return False
        domains = self.topology.get_filter(task_class.rules)
        if domains is not None and domains.closed_k[server]:
            return False
        if task_class.pin is not None and task_class.pin.server != server:
            return False
        if not placement.exclusive_keys.conflicting.isdisjoint(self.free.taken_keys.get(server, ())):
            return False
        free_r = self.free.get_row_for(placement, server)
        return all(demand == 0 or demand <= free for demand, free in zip(task_class.demand_r, free_r, strict=True))

    @property
    def choices(self) -> list[Choice]:
        """The placements that were not taken back, in their order."""
        return [entry for entry in self._journal if isinstance(entry, Choice)]

    # --- changing what decisions are made of ---

    def evict(self, running: RunningTask) -> None:
        """Let a running task go: its server gets the capacity back, and the tenant holds so much less.

        Counters of topology domains keep it: the snapshot does not say in which of them it counts.

        Raises InvalidProblemError when it is none of the snapshot's running tasks, or went already.
        """
        self._check_free()
        if running not in self.snapshot.running.get(running.server, ()) or running.uid in self._evicted:
            raise InvalidProblemError(f"task {running.uid!r} does not run on {running.server!r}")
        progress = self.progress_of.get(running.tenant)
        if progress is None:
            raise InvalidProblemError(f"running: {running.tenant!r} is not one of the tenants")
        self._look_at_all()
        server, pool, gained_r = self.snapshot.servers.find_index(running.server), None, [0] * len(running.demand_r)
        if server is not None:
            pool = self.measure.pools.get_pool(server)
            left_r = self.free.release(server, running.demand_r, self._find_freed_keys(server, running))
            gained_r = left_r if self.snapshot.servers.accepting_k[server] else gained_r
        undo_measure = self.measure.evict(progress, running, pool, gained_r)
        undo_tree, opened = (None, []) if self.tree is None else self.tree.evict(running, server)
        self._evicted.add(running.uid)
        self._is_reopened = True

        def undo() -> None:
            self._evicted.discard(running.uid)
            undo_measure()
            if server is not None:
                self.free.undo_release(server, running.demand_r)
            if undo_tree is not None:
                undo_tree()

        self._journal.append(undo)
        if opened:
            self._reopen_classes({each.rules for each in opened})

    def restrict(self, placement: Placement, servers: Iterable[int]) -> None:
        """Close servers to the tasks of a placement, whatever is free, until `reopen`. servers: their indices."""
        self._check_free()
        arrangement = self._shapes.get_arrangement(placement)
        changed = self._restrict(arrangement, servers)
        self._journal.append(partial(self._lift, arrangement, changed))

    def reopen(self, servers: Sequence[int]) -> None:
        """Ask servers again, by all tasks: those that `restrict` closed to some are eligible again."""
        self._check_free()
        lifted = self._shapes.lift(servers)
        for server in servers:
            self.free.note_gain(server)
        self._is_reopened = True

        def undo() -> None:
            for arrangement, changed in lifted:
                self._restrict(arrangement, changed)

        self._journal.append(undo)

    def _check_free(self) -> None:
        if self._defers:
            raise InvariantError("a draft that defers classes does nothing but decide")

    # --- going back ---

    def checkpoint(self) -> Mark:
        """Return a mark to which the draft can be rolled back, more than once."""
        self._check_free()
        return self.begin_plan()

    def begin_plan(self) -> Mark:
        """Return a mark to which `rollback` goes back if the tasks of a plan do not fit together.

        Nothing but placements may come between, so that what is deferred stays what it is.
        """
        mark = Mark(len(self._journal))
        self._marks.append(mark)
        return mark

    def rollback(self, mark: Mark) -> None:
        """Take back all that was done since a mark, the last first.

        Raises InvariantError for a mark that is not this draft's or has ended.
        """
        if not any(known is mark for known in reversed(self._marks)):
            raise InvariantError("the mark is not this draft's, or ended when the draft went back to an earlier one")
        while self._marks[-1] is not mark:
            self._marks.pop()
        while len(self._journal) > mark.position:
            entry = self._journal.pop()
            if isinstance(entry, Choice):
                self._undo_take(entry)
            else:
                entry()
            self._is_reopened = True

    def _undo_take(self, choice: Choice) -> None:
        queue, server, pool = choice
        task_class = queue.task_class
        was_last = queue.waiting == 0
        queue.push_back()
        self.bindings.pop()
        self.measure.remove(queue.progress, task_class, pool)
        self.free.undo_take(server, task_class.demand_r, task_class.placement.exclusive_keys)
        self.topology.count(task_class, server, -1)
        if self.tree is not None:
            self.tree.undo_take(task_class, server, was_last=was_last)

    def _restrict(self, arrangement: Arrangement, servers: Iterable[int]) -> list[int]:
        changed = arrangement.restrict(servers)
        for server in changed:
            self.free.note_change(server)
            self._note_placed(server)
        return changed

    def _lift(self, arrangement: Arrangement, servers: Iterable[int]) -> None:
        for server in arrangement.lift(servers):
            self.free.note_gain(server)

    # --- queues ---

    def _look_at_all(self) -> None:
        """Have queues also for what was remembered to fit nowhere: it was true of what was free at the start."""
        if len(self.remembered) and self._unschedulable is not None:
            known, stale = [wait.task_class for wait in self.remembered.waits], self.snapshot.stale
            more = self._build_queues([each for each in known if each not in stale])
            self.unseen += [each for each in known if each in stale]
            self.queues = sorted([*self.queues, *more], key=lambda queue: queue.progress.name)
            self.deferred = NOTHING_DEFERRED
            self._unschedulable.forget()
            self._filling = None

    def _build_queues(self, task_classes: Iterable[TaskClass]) -> list[ClassQueue]:
        """Return a queue for each class, in an order that does not depend on the order of the classes."""
        queues = [self._build_queue(task_class) for task_class in task_classes]
        queues.sort(key=lambda queue: (queue.progress.name, queue.sort_key, queue.task_class.demand_r))
        return queues

    def _build_queue(self, task_class: TaskClass) -> ClassQueue:
        return ClassQueue(
            task_class,
            self._sort_tasks(task_class.tasks),
            progress=self.progress_of[task_class.tenant],
            rule=self.rule,
            shapes=self._shapes,
        )

    def _sort_tasks(self, tasks: Sequence[Task]) -> Sequence[Task]:
        # A class keeps its tasks in the order of a tenant's tasks already.
        return tasks if self.policy.is_fair else sorted(tasks, key=compute_arrival)

    def _build_filling(self) -> Filling | TreeFilling:
        """Return a filling of the tenant queues by their names: one for each tenant with tasks, or one for all."""
        open_queues = [queue for queue in self.queues if queue.task_class.blocked is None]
        if not self.policy.is_fair:
            return Filling([TenantQueue(open_queues, None, self.measure)], self.measure)
        by_tenant: dict[str, list[ClassQueue]] = {}
        for queue in open_queues:
            by_tenant.setdefault(queue.progress.name, []).append(queue)
        names, deferred = list(by_tenant), self.deferred.list_tenants()
        if deferred:
            names = sorted({*names, *deferred})
        queues = {name: self._build_tenant_queue(name, by_tenant.get(name, [])) for name in names}
        return self._build_fair_filling(queues)

    def _build_fair_filling(self, queues: Mapping[str, TenantQueue]) -> Filling | TreeFilling:
        """Return a filling of these queues, in the order of the tenants' names."""
        tree = self.tree
        if tree is None or tree.is_flat(queues):
            return Filling(list(queues.values()), self.measure)
        return TreeFilling(queues, tree, self.measure, self.free)

    def _build_tenant_queue(self, tenant: str, queues: Sequence[ClassQueue]) -> TenantQueue:
        """Return a tenant's queue, to which its classes that are deferred come when it is next."""
        take_deferred = partial(self.take_deferred, tenant) if tenant in self.deferred else None
        return TenantQueue(queues, self.progress_of[tenant], self.measure, take_deferred)

    def take_deferred(self, tenant: str) -> list[ClassQueue]:
        """Return queues for the classes that were held of a tenant, as far as there is still free capacity for them."""
        task_classes = self.deferred.let_go(tenant)
        if not task_classes:
            return []
        self.remembered_waits.update((each, self.remembered[each]) for each in task_classes)
        self._only_servers.update(dict.fromkeys(task_classes, self.deferred.servers))
        self.remembered.change(removed=task_classes)
        queues = self._build_queues(task_classes)
        self.queues.extend(queues)
        return queues

    def build_siblings(self) -> Siblings:
        """Return how tenants are compared as things stand."""
        return Siblings(self.tree, self.measure, self.free, self.progress_of)

    def end(self) -> None:
        """Nothing more is decided. What is held and still has free capacity is not known to fit nowhere."""
        self._filling = None  # it refers to the draft, which would live until the garbage is collected
        deferred = [each for tenant in self.deferred.list_tenants() for each in self.deferred.let_go(tenant)]
        self.remembered.change(removed=deferred)
        self.unseen += deferred

    # --- running tasks ---

    def _find_freed_keys(self, server: int, running: RunningTask) -> frozenset[str]:
        """Return the keys that no other task takes on the server once a running task is gone."""
        kept = self.snapshot.servers.fixed_keys.get(server, frozenset())
        return running.keys - kept.union(*self._find_other_keys(server, running)) if running.keys else running.keys

    def _find_other_keys(self, server: int, running: RunningTask) -> Iterator[frozenset[str]]:
        for other in self.snapshot.running.get(running.server, ()):
            if other.uid != running.uid and other.uid not in self._evicted:
                yield other.keys
        for entry in self._journal:
            if isinstance(entry, Choice) and entry.server == server:
                yield entry.queue.task_class.placement.exclusive_keys.taken
