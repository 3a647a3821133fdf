"""One cycle: from what is to what shall be done, with nothing in between but arithmetic.

`run_cycle` fills progressively: who is furthest behind gets its next task placed, until nothing that waits fits. Room
and accounts follow each decision at once, so the report is the trace of the filling in its order. What could not go on
is explained at the end.

Cost, at 5,000 servers: a shape that is seen for the first time scores all its servers, once; after that each decision
costs one look for the least score, and new scores for the servers that changed since the shape was last asked.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fairbind.model import Bind, CycleReport, InvalidProblemError, PolicySettings, Snapshot, TaskClass, Wait
from fairbind.scheduling.checks import check_snapshot
from fairbind.scheduling.filling import Filling
from fairbind.scheduling.lines import Line, Queue, Turn, TurnRule, compute_arrival, compute_turn
from fairbind.scheduling.measures import Measure, get_accounts
from fairbind.scheduling.memory import Memory
from fairbind.scheduling.policies import Policy, get_policy
from fairbind.scheduling.probes import Draws
from fairbind.scheduling.room import Room
from fairbind.scheduling.shapes import Shapes
from fairbind.scheduling.waits import Refusals, Rivals, explain_waits

FEW_PART = 16
"""Fewer than one in so many are put into their places one by one; more are sorted with all the rest."""


def run_cycle(
    snapshot: Snapshot,
    policy: PolicySettings,
    now: float,
    *,
    limit: int | None = None,
    memory: Memory | None = None,
) -> CycleReport:
    """Return what to place where, in the order of the decisions, and what waits and why.

    The same input gives the same report, byte for byte, and the order of `snapshot.task_classes` does not matter.

    policy: only its `policy` and `seed` are read; the rest is in the snapshot already. now: goes into the report;
    nothing depends on it. limit: end after so many decisions; the report then tells only of waits that are certain.
    memory: what the cycle before saw fit nowhere, then what this one sees; it changes no decision. A class that needs
    no new look keeps its wait, whose counts and reason of fairness may be older. None: look at everything.
    Raises InvalidProblemError for an unknown policy, a negative limit and a snapshot whose parts do not go together.
    """
    if limit is not None and limit < 0:
        raise InvalidProblemError(f"limit is {limit}; it must be 0 or more, or None")
    chosen = get_policy(policy.policy)
    rule = compute_turn if chosen.is_fair else compute_arrival
    check_snapshot(snapshot, () if memory is None else memory.get_known(snapshot, rule))
    # A score of a server on which the task does not fit may divide by nothing; it is replaced in the next step.
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Cycle(snapshot, chosen, policy.seed, rule, memory).run(now, limit)


class _Cycle:
    """The working state of one cycle."""

    def __init__(self, snapshot: Snapshot, policy: Policy, seed: int, rule: TurnRule, memory: Memory | None) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.room = Room(snapshot.servers)
        self.rule = rule
        self.memory = memory
        self.remembered: Mapping[int, Wait] = {}
        self.looked_at: Sequence[TaskClass] = snapshot.task_classes
        if memory is not None:
            self.remembered, self.looked_at = memory.recall(snapshot, self.room, rule)
        self.measure: Measure = policy.build_measure(snapshot)
        draws = Draws(seed) if policy.has_probes else None
        self.shapes = Shapes(snapshot.servers, self.measure.pools, self.room, policy.build_fit(snapshot), draws)
        self.accounts = get_accounts(snapshot)
        self.queues = self._build_queues()

    def run(self, now: float, limit: int | None) -> CycleReport:
        """Decide until nothing fits or the limit is reached, then explain."""
        filling = Filling(self._build_lines(), self.measure)
        bindings: list[Bind] = []
        while (choice := filling.find_choice()) is not None and (limit is None or len(bindings) < limit):
            bindings.append(self._place(choice.queue, choice.server, choice.pool))
        complete = choice is None
        waiting = [queue for queue in self.queues if queue.turn is not None and queue.task_class.blocked is None]
        stuck = [queue for queue in waiting if complete or queue.fits_nowhere]
        waits = explain_waits(
            stuck=stuck,
            blocked=[queue for queue in self.queues if queue.task_class.blocked is not None],
            refusals=Refusals(self.snapshot, self.room),
            rivals=self._build_rivals(waiting) if stuck and self.policy.is_fair else None,
        )
        waits = merge(self.remembered.values(), waits, key=lambda wait: (wait.task_class.tenant, self.rule(wait.first)))
        if self.memory is not None:
            self.memory.keep(self.snapshot, self.room, waits if stuck else None, self.rule)
        return CycleReport(now, self.policy.id, tuple(bindings), tuple(waits), self._compute_shares(), complete)

    def _build_rivals(self, waiting: list[Queue]) -> Rivals:
        """Return those who wait, each once for all servers that are the same to it."""
        classes = [queue.task_class for queue in waiting]
        classes.extend(wait.task_class for wait in self.remembered.values())
        kinds = {(each.tenant, id(each.placement)): each.placement for each in classes}
        pairs = [(self.accounts[tenant], placement) for (tenant, _), placement in kinds.items()]
        return Rivals(pairs, self.measure, self.snapshot)

    def _build_queues(self) -> list[Queue]:
        """Return a queue for each class to look at, in an order that does not depend on the order of the classes."""
        is_fair = self.policy.is_fair
        queues = [
            Queue(
                task_class,
                # A class keeps its tasks in the turn of a tenant's tasks already.
                task_class.tasks if is_fair else sorted(task_class.tasks, key=compute_arrival),
                account=self.accounts[task_class.tenant],
                rule=self.rule,
                shapes=self.shapes,
            )
            for task_class in self.looked_at
        ]
        queues.sort(key=lambda queue: (queue.account.name, queue.turn, queue.task_class.demand_r))
        return queues

    def _build_lines(self) -> list[Line]:
        """Return the lines in the order of their names: one for each tenant with tasks, or one for all."""
        open_queues = [queue for queue in self.queues if queue.task_class.blocked is None]
        if not self.policy.is_fair:
            return [Line(open_queues, None, self.measure)]
        by_tenant: dict[str, list[Queue]] = {}
        for queue in open_queues:
            by_tenant.setdefault(queue.account.name, []).append(queue)
        return [Line(queues, self.accounts[name], self.measure) for name, queues in by_tenant.items()]

    def _place(self, queue: Queue, server: int, pool: int) -> Bind:
        """Take the queue's first task, and let room and measure follow."""
        task_class = queue.task_class
        self.room.take(server, task_class.demand_r, task_class.placement.claims)
        self.measure.add(queue.account, task_class, pool)
        return Bind(queue.pop(), task_class.tenant, self.snapshot.servers.names[server])

    def _compute_shares(self) -> tuple[tuple[str, float], ...]:
        """Return every tenant's weighted dominant share after the placements, by name."""
        return tuple((account.name, account.compute_share(self.snapshot.total_r)) for account in self.accounts.values())


def merge(ordered: Iterable[Wait], others: Iterable[Wait], *, key: Callable[[Wait], tuple[str, Turn]]) -> list[Wait]:
    """Return all in the order of their keys; most of them are in it already, or few are many."""
    waits, others = list(ordered), list(others)
    if len(others) * FEW_PART < len(waits):
        for wait in others:
            insort(waits, wait, key=key)
    else:
        waits.extend(others)
        waits.sort(key=key)
    return waits
