"""One cycle: from what is to what shall be done, with nothing in between but arithmetic.

`run_cycle` fills a draft progressively: who is furthest behind gets its next task placed, until nothing that waits
fits. The draft follows each decision at once, so the report is the trace of the filling in its order. What could not go
on is explained at the end.

Cost, at 5,000 servers: a shape that is seen for the first time scores all its servers, once; after that each decision
costs one look for the least score, and new scores for the servers that changed since the shape was last asked.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from fairbind.model import CycleReport, InvalidProblemError, PolicySettings, Snapshot, Wait
from fairbind.scheduling.cycle.checks import check_snapshot
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.cycle.state import CycleState
from fairbind.scheduling.cycle.task_queues import ClassQueue, Turn, compute_arrival, compute_turn
from fairbind.scheduling.cycle.unschedulable_cache import UnschedulableCache
from fairbind.scheduling.cycle.waits import Refusals, Rivals, explain_stuck, explain_waits, identify_reach
from fairbind.scheduling.policies.registry import Policy, get_policy

FEW_PART = 16
"""Fewer than one in so many are put into their places one by one; more are sorted with all the rest."""


def run_cycle(
    snapshot: Snapshot,
    policy: PolicySettings,
    now: float,
    *,
    limit: int | None = None,
    unschedulable: UnschedulableCache | None = None,
    state: CycleState | None = None,
    baseline: Policy | None = None,
    explains: bool = True,
) -> CycleReport:
    """Return what to place where, in the order of the decisions, and what waits and why.

    The same input gives the same report, byte for byte, and the order of `snapshot.task_classes` does not matter.

    policy: only its `policy` and `seed` are read; the rest is in the snapshot already. now: goes into the report;
    nothing depends on it. limit: end after so many decisions; the report then tells only of waits that are certain.
    unschedulable: what the cycle before saw fit nowhere, then what this one sees; it changes no decision. A class that
    needs no new look keeps its wait, whose counts and reason of fairness may be older. None: look at everything.
    state: what has not changed since the cycle before, whose report is the same without it; None: compute everything.
    baseline: decides in place of the policy that the settings name; for simulations. None: nothing does.
    explains: whether classes that were remembered and looked at again in vain are explained again, too.
    Raises InvalidProblemError for an unknown policy, a negative limit and a snapshot whose parts do not go together.
    """
    if limit is not None and limit < 0:
        raise InvalidProblemError(f"limit is {limit}; it must be 0 or more, or None")
    chosen = get_policy(policy.policy) if baseline is None else baseline
    rule = compute_turn if chosen.is_fair else compute_arrival
    if state is None:
        check_snapshot(snapshot, () if unschedulable is None else unschedulable.get_known(snapshot, rule))
    else:
        check_snapshot(snapshot, state.get_checked_classes(snapshot), state.get_checked(snapshot))
        state.note_checked(snapshot)
    with expect_undefined_scores():
        return _Cycle(
            Draft(snapshot, chosen, seed=policy.seed, unschedulable=unschedulable, state=state, holds=not explains),
            unschedulable,
        ).run(now, limit, explains=explains)


class _Cycle:
    """One filling of a draft, and its explanation."""

    def __init__(self, draft: Draft, unschedulable: UnschedulableCache | None) -> None:
        self.draft = draft
        self.snapshot = draft.snapshot
        self.unschedulable = unschedulable

    def run(self, now: float, limit: int | None, *, explains: bool) -> CycleReport:
        """Decide until nothing fits or the limit is reached, then explain."""
        draft = self.draft
        bindings = draft.bindings
        while (choice := draft.find_choice()) is not None and (limit is None or len(bindings) < limit):
            draft.take(choice)
        complete = choice is None
        if not complete:
            draft.let_go()
        waiting = [queue for queue in draft.queues if queue.turn is not None and queue.task_class.blocked is None]
        stuck = [queue for queue in waiting if complete or queue.fits_nowhere]
        kept = set() if explains else {id(queue.task_class) for queue in stuck if queue.never_fitted}
        kept &= draft.returning.keys()
        stuck = [queue for queue in stuck if id(queue.task_class) not in kept]
        refusals, rule = Refusals(self.snapshot, draft.room, draft.topology), draft.rule
        rivals = self._build_rivals(waiting) if (stuck or draft.moved) and draft.policy.is_fair else None
        waits = explain_waits(
            stuck=stuck,
            blocked=[queue for queue in draft.queues if queue.task_class.blocked is not None],
            refusals=refusals,
            rivals=rivals,
        )
        remembered = draft.remembered.values() if not draft.moved else self._explain_moved(refusals, rivals)
        waits.extend(draft.returning[id_] for id_ in kept)
        waits = merge(remembered, waits, key=lambda wait: (wait.task_class.tenant, rule(wait.first)))
        if self.unschedulable is not None:
            is_changed = stuck or kept or draft.moved or draft.is_changed
            self.unschedulable.keep(self.snapshot, draft.room, waits if is_changed else None, rule)
        return CycleReport(now, draft.policy.id, tuple(bindings), tuple(waits), self._compute_shares(), complete)

    def _explain_moved(self, refusals: Refusals, rivals: Rivals | None) -> list[Wait]:
        """Return what is remembered, with new explanations of what may go elsewhere than before."""
        draft = self.draft
        return [
            explain_stuck(wait, draft.progress_of[wait.task_class.tenant], refusals, rivals)
            if id_ in draft.moved
            else wait
            for id_, wait in draft.remembered.items()
        ]

    def _build_rivals(self, waiting: list[ClassQueue]) -> Rivals:
        """Return those who wait, each once for all servers that are the same to it."""
        classes = [queue.task_class for queue in waiting]
        classes.extend([wait.task_class for wait in self.draft.remembered.values()])
        kinds = {(each.tenant, *identify_reach(each)): each for each in classes}
        pairs = [(self.draft.progress_of[each.tenant], each) for each in kinds.values()]
        return Rivals(pairs, self.draft.measure, self.snapshot)

    def _compute_shares(self) -> tuple[tuple[str, float], ...]:
        """Return every tenant's weighted dominant share after the placements, by name."""
        total_r = self.snapshot.total_r
        return tuple([progress.shown or progress.show(total_r) for progress in self.draft.progress_of.values()])


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
