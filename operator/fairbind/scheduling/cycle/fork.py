"""A fork of a live draft: tries evictions and placements, and is thrown away without a trace.

    with Fork(draft) as fork:
        fork.evict(running)
        choice = fork.find_choice()  # who would take the capacity

A fork shares the state of its draft (free capacity, measure, tenants' progress, counters of domains) and its journal,
in which it writes behind what is there. At its end it rolls back to where it began, and forgets that servers have
changed and domains have opened meanwhile, so that the draft looks at nothing again. What is found out about the state,
scores and queues and what they closed, each has of its own.

A draft has no queues for thousands of classes that are known to fit nowhere. Nor has a fork: it has some for those that
may fit where it has freed capacity, and these when their tenant comes. So a trial costs what it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import gt
from typing import Self

from fairbind.model import DomainRules, InvariantError, TaskClass
from fairbind.scheduling.cycle.draft import Draft
from fairbind.scheduling.cycle.order.filling import Filling
from fairbind.scheduling.cycle.order.task_queues import Choice, ClassQueue, TenantQueue
from fairbind.scheduling.cycle.order.tree_filling import TreeFilling


class Fork(Draft):
    """See the module. While it is open, its draft must not be used, nor may there be another fork of it.

    bindings: its own. queues, remembered, unseen, deferred: those of the draft. _freed: the servers on which something
    may fit that is known to fit nowhere. _opened: the rules to which a placement has opened a domain. _others_of: by
    tenant, the classes of which that is not known. _queue_of: what was looked at.
    """

    def __init__(self, live: Draft) -> None:
        if isinstance(live, Fork):
            raise InvariantError("a fork has no forks of its own; go back to a checkpoint")
        vars(self).update(vars(live))
        self._shapes = self._shapes.fork()
        self._defers = False
        self.bindings, self._marks = [], []
        self._filling, self._is_reopened = None, False
        self._queue_of: dict[TaskClass, ClassQueue] = {}
        self._live_queues: dict[TaskClass, ClassQueue] | None = None
        self._freed: list[int] = []
        self._others_of: dict[str, list[TaskClass]] = {}
        self._opened: set[DomainRules] = set()
        self._start = self.checkpoint()
        self._free_start = self.free.mark()
        self.topology.begin_trial()

    @property
    def looked_at(self) -> int:
        """Of how many classes it has made a queue."""
        return len(self._queue_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """End the fork: its draft is as it was."""
        self.rollback(self._start)
        self.free.rewind(self._free_start)
        self.topology.end_trial()
        self._marks.clear()
        self._queue_of.clear()
        self._filling = None

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        if self._is_reopened:
            self._filling = None  # what it passed over may fit again
        return super().find_choice()

    def get_queue(self, task_class: TaskClass) -> ClassQueue | None:
        """Return the queue of one of the snapshot's classes; None where no task of it may be decided.

        The tasks of a group are decided together, which no fork tries.
        """
        queue = self._queue_of.get(task_class)
        if queue is None:
            if task_class.group is not None or task_class.blocked is not None or task_class in self.snapshot.stale:
                return None
            live = self._list_live().get(task_class)
            queue = self._build_queue(task_class) if live is None else live.fork(self._shapes)
            self._queue_of[task_class] = queue
        return None if queue.sort_key is None else queue

    def _list_live(self) -> dict[TaskClass, ClassQueue]:
        if self._live_queues is None:
            self._live_queues = {queue.task_class: queue for queue in self.queues}
        return self._live_queues

    def _look_at_all(self) -> None:
        """Look again at what may fit where free capacity has come back, once there is a question."""
        self._filling = None

    def _reopen_classes(self, opened: set[DomainRules]) -> None:
        self._opened |= opened
        self._filling = None

    def _build_filling(self) -> Filling | TreeFilling:
        """Return a filling of tenant queues to which classes come when their tenant comes."""
        self._freed = sorted({*self.deferred.servers, *self.free.list_gains(self._free_start)})
        self._others_of = {}
        for task_class in chain((queue.task_class for queue in self.queues if queue.sort_key is not None), self.unseen):
            self._others_of.setdefault(task_class.tenant, []).append(task_class)
        names = sorted({*self._others_of, *self.remembered.list_tenants()})
        if not self.policy.is_fair:
            queues = [queue for name in names for queue in self.take_deferred(name)]
            return Filling([TenantQueue(queues, None, self.measure)], self.measure)
        return self._build_fair_filling(
            {
                name: TenantQueue([], self.progress_of[name], self.measure, partial(self.take_deferred, name))
                for name in names
            }
        )

    def take_deferred(self, tenant: str) -> list[ClassQueue]:
        """Return queues for the classes of a tenant that may fit."""
        lefts = [(server, self.free.left_rk[:, server].tolist()) for server in self._freed]
        waits = self.remembered.list_of(tenant)
        remembered = [
            wait.task_class
            for wait in waits
            # What is kept back may be less than before for all servers.
            if wait.is_ended_by_capacity and (not wait.is_for_capacity or self._may_fit(wait.task_class, lefts))
        ]
        found = [*self._others_of.pop(tenant, ()), *remembered]
        queues = [self.get_queue(each) for each in dict.fromkeys(found)]
        return [queue for queue in queues if queue is not None]

    def _may_fit(self, task_class: TaskClass, lefts: Sequence[tuple[int, Sequence[float]]]) -> bool:
        """Whether a class that fitted nowhere may fit now. lefts: what is left on the servers that gained some."""
        placement, demand_r = task_class.placement, task_class.demand_r
        if placement.reserved or (self._opened and task_class.rules in self._opened):
            return True
        return any(
            not any(map(gt, demand_r, left_r)) and bool(placement.eligible_k[server]) for server, left_r in lefts
        )
