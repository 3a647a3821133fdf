"""One cycle: from what is to what shall be done, with nothing in between but arithmetic.

`run_cycle` fills a draft progressively: who is furthest behind gets its next task placed, until nothing that waits
fits. The draft follows each decision at once, so the report is the trace of the filling in its order. What could not go
on is explained at the end.

Cost, at 5,000 servers: a shape that is seen for the first time scores all its servers, once; after that each decision
costs one look for the least score, and new scores for the servers that changed since the shape was last asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from fairbind.model import (
    CycleReport,
    InvalidProblemError,
    Placement,
    PolicySettings,
    Snapshot,
    TaskClass,
    Wait,
    split_binds,
)
from fairbind.model.reservations import Reservation, ReservationSettings
from fairbind.scheduling.cycle.checks import check_snapshot
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.cycle.gangs.placing import Gangs
from fairbind.scheduling.cycle.order.task_queues import Choice, ClassQueue
from fairbind.scheduling.cycle.reservations.reservations import Reservations
from fairbind.scheduling.cycle.reservations.view import CycleView
from fairbind.scheduling.cycle.state import CycleState
from fairbind.scheduling.cycle.waits.explain import Refusals, explain_waits
from fairbind.scheduling.cycle.waits.reaches import identify_reach
from fairbind.scheduling.cycle.waits.rivals import Contender, Rivals
from fairbind.scheduling.cycle.waits.unschedulable_cache import UnschedulableCache
from fairbind.scheduling.policies.registry import Policy, get_policy


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
    finds_rivals: bool = True,
    may_have: Callable[[str, int], bool] = lambda _tenant, _count: True,
    reservations: Reservations | None = None,
    find_owner: Callable[[str], str] | None = None,
) -> CycleReport:
    """Return what to place where, in the order of the decisions, and what waits and why.

    The same input gives the same report, byte for byte, and the order of `snapshot.task_classes` does not matter.

    policy: only its `policy`, `seed` and `reservations` are read; the rest is in the snapshot already. now: goes into
    the report, ends waits for a time, and is what reservations count from.
    limit: end after so many binds; a plan that reaches it is not cut. The report then tells only of waits that are
    certain.
    unschedulable: what the cycle before saw fit nowhere, then what this one sees; it changes no decision. A class that
    needs no new look keeps its wait, whose counts and reason of fairness may be older. None: look at everything.
    state: what has not changed since the cycle before, whose report is the same without it; None: compute everything.
    baseline: decides in place of the policy that the settings name; for simulations. None: nothing does.
    explains: whether classes that were remembered and looked at again in vain are explained again, too.
    finds_rivals: whether waits say which tenant comes before theirs.
    reservations: what is reserved by the cycles before, then what is by this one; None: nothing is.
    may_have: asked before each plan of a rationed class whether its tenant may have it, with how many binds it has;
    after a False the rest of the class is left out of this cycle, and of its waits.
    find_owner: by a tenant's name, with whose groups its own are counted, as only some of them are tried in vain.
    None: all are.
    Raises InvalidProblemError for an unknown policy, a negative limit and a snapshot whose parts do not go together.
    """
    if limit is not None and limit < 0:
        raise InvalidProblemError(f"limit is {limit}; it must be 0 or more, or None")
    chosen = get_policy(policy.policy) if baseline is None else baseline
    if reservations is not None:
        if not (chosen.is_fair and policy.reservations.is_on):
            reservations.end_all()
        snapshot = reservations.apply(snapshot, now)
    if state is None:
        check_snapshot(snapshot)
    else:
        snapshot = state.check(snapshot)
    with expect_undefined_scores():
        draft = Draft(
            snapshot,
            chosen,
            seed=policy.seed,
            unschedulable=unschedulable,
            state=state,
            defers=not explains,
            now=now,
        )
        return _Cycle(
            draft,
            Gangs(draft, now, find_owner),
            unschedulable,
            state,
            explains=explains,
            finds_rivals=finds_rivals,
        ).run(now, limit, may_have, reservations, policy.reservations)


class _Cycle:
    """One filling of a draft, and its explanation."""

    def __init__(
        self,
        draft: Draft,
        gangs: Gangs,
        unschedulable: UnschedulableCache | None,
        state: CycleState | None,
        *,
        explains: bool,
        finds_rivals: bool,
    ) -> None:
        self.draft = draft
        self.snapshot = draft.snapshot
        self.unschedulable = unschedulable
        self.state = state
        self.explains = explains
        self.finds_rivals = finds_rivals
        self.gangs = gangs

    def run(
        self,
        now: float,
        limit: int | None,
        may_have: Callable[[str, int], bool],
        reservations: Reservations | None,
        settings: ReservationSettings,
    ) -> CycleReport:
        """Decide until nothing fits or the limit is reached, then explain."""
        draft, is_rationed, is_refused = self.draft, False, False
        bindings, gangs, spans = draft.bindings, self.gangs, list[int]()
        for name in gangs.list_begun():
            if (limit is None or len(bindings) < limit) and gangs.is_open(name):
                is_rationed |= not self._place_group(name, may_have, spans)
        while (choice := draft.find_choice()) is not None and (limit is None or len(bindings) < limit):
            task_class = choice.queue.task_class
            group = task_class.group
            is_open = group is not None and gangs.is_open(group.name)
            if reservations is not None and not self._may_take(choice, reservations, is_group=is_open):
                is_refused = True
                break
            if group is not None and is_open:
                is_rationed |= not self._place_group(group.name, may_have, spans)
            elif group is not None and not gangs.stands(group.name):
                choice.queue.close()
            elif task_class.is_rationed and not may_have(task_class.tenant, 1):
                choice.queue.close()
                is_rationed = True
            else:
                draft.take(choice)
                spans.append(1)
        complete = choice is None
        draft.end()
        found, shares = self._explain(complete=complete), self._compute_shares()
        waits = self._remember(found)
        times = draft.remembered.find_next_time(found, now), gangs.tries.next_turn
        next_time = min((each for each in times if each is not None), default=None)
        report = CycleReport(
            now,
            draft.policy.id,
            split_binds(bindings, spans),
            waits,
            shares,
            complete,
            is_rationed,
            again_in=None if next_time is None else next_time - now,
        )
        if reservations is None:
            return report
        return self._reserve(report, reservations, settings, is_refused=is_refused)

    def _may_take(self, choice: Choice, reservations: Reservations, *, is_group: bool) -> bool:
        """Return whether a choice, or its whole group, may use what is reserved for others, as shares are now."""
        task_class = choice.queue.task_class
        if not is_group:
            return reservations.may_take(task_class, (choice.server,), self._look)
        classes = self.gangs.list_classes(task_class.group_name)
        return all(reservations.may_take(each, each.placement.reserved, self._look) for each in classes)

    def _look(self, reserved: Sequence[Reservation] = ()) -> CycleView:
        """Return the state as it is now. reserved: when the cycle began."""
        draft = self.draft
        return CycleView(
            self.snapshot,
            draft.free,
            draft.topology,
            draft.measure,
            draft.progress_of,
            draft.build_siblings(),
            draft.kept_back,
            draft.get_used,
            reserved,
        )

    def _place_group(self, name: str, may_have: Callable[[str, int], bool], spans: list[int]) -> bool:
        """Place the minimum of a group, if it fits; False when its tenant may not have so many tasks now.

        spans: of how many binds each plan is.
        """
        task_class = self.gangs.get_class(name)
        count = self.gangs.count_lacking(name)
        mark = self.draft.begin_plan()
        if not self.gangs.place(name):
            return True
        if task_class.is_rationed and not may_have(task_class.tenant, count):
            self.draft.rollback(mark)
            self.gangs.pass_over(name)
            return False
        spans.append(count)
        return True

    def _reserve(
        self,
        report: CycleReport,
        reservations: Reservations,
        settings: ReservationSettings,
        *,
        is_refused: bool,
    ) -> CycleReport:
        """Return the report with what was reserved; a complete cycle may end that, or reserve something else.

        is_refused: whether it ended because a tenant may not use any more what is reserved for others.
        """
        draft, reserved = self.draft, tuple(reservations.list_all())
        is_reviewed = report.complete and draft.policy.is_fair and settings.is_on
        again_in = report.again_in
        if reserved or is_reviewed:
            view = self._look(reserved)
            reservations.note_placed([(each.queue.task_class, each.server) for each in draft.choices], view, report.now)
            if is_refused:
                reservations.end_passed(view)
            pause = reservations.review(view, report.waits, settings, report.now) if is_reviewed else None
            again_in = min((each for each in (again_in, pause) if each is not None), default=None)
        reopens = reservations.count_ended(reserved) > 0
        waits = reservations.tell(report.waits, report.now)
        if not reserved and waits is report.waits and again_in is None:
            return report
        return replace(report, waits=waits, reserved=reserved, reopens=reopens, again_in=again_in)

    def _explain(self, *, complete: bool) -> list[Wait]:
        """Return the waits of classes that are not remembered."""
        draft = self.draft
        waiting = [queue for queue in draft.queues if queue.sort_key is not None and queue.task_class.blocked is None]
        short = dict(self.gangs.list_waiting(complete=complete))
        stuck = [
            queue
            for queue in waiting
            if (complete or queue.fits_nowhere or queue.task_class in draft.replaced) and queue not in short
        ]
        blocked = [queue for queue in draft.queues if queue.task_class.blocked is not None]
        kept: dict[TaskClass, Wait] = {}
        if not self.explains:
            remembered_waits = draft.remembered_waits
            again = [queue.task_class for queue in stuck if queue.never_fitted]
            kept = {each: remembered_waits[each] for each in again if each in remembered_waits}
            stuck = [queue for queue in stuck if queue.task_class not in kept]
            for queue, shortage in short.items():
                wait = remembered_waits.get(queue.task_class)
                if wait is not None and shortage.missing_slots:
                    kept[queue.task_class] = self.gangs.renew(wait, shortage)
            short = {queue: shortage for queue, shortage in short.items() if queue.task_class not in kept}
        if not (stuck or blocked or short):
            return list(kept.values())
        refusals = Refusals(self.snapshot, draft.free, draft.topology)
        is_asked = self.finds_rivals and draft.policy.is_fair and bool(stuck or short)
        rivals = self._build_rivals(list(dict.fromkeys([*waiting, *short])), refusals) if is_asked else None
        return [
            *kept.values(),
            *explain_waits(stuck=stuck, blocked=blocked, refusals=refusals, rivals=rivals),
            *(self.gangs.explain(queue, shortage, refusals, rivals) for queue, shortage in short.items()),
        ]

    def _remember(self, waits: list[Wait]) -> tuple[Wait, ...]:
        """Return these waits and those that are remembered, sorted, and remember what of these lasts."""
        remembered, others = self.draft.remembered, waits
        if self.unschedulable is not None:
            others = [wait for wait in waits if not is_lasting(wait)]
            remembered.change(added=[wait for wait in waits if is_lasting(wait)])
        listed = remembered.list_with(others)
        if self.unschedulable is not None:
            classes = [queue.task_class for queue in self.draft.queues]
            self.unschedulable.keep(self.snapshot, self.draft.free, self.draft.topology, classes + self.draft.unseen)
        return listed

    def _build_rivals(self, waiting: list[ClassQueue], refusals: Refusals) -> Rivals:
        """Return those who wait for free capacity, each once for all servers that are the same to it."""
        parts: list[tuple[TaskClass, Collection[tuple[int, ...]]]]
        classes = (queue.task_class for queue in waiting)
        parts = [(each, [each.demand_r]) for each in classes if refusals.limits.find(each)[0] is None]
        parts.extend(self.draft.remembered.list_reaches())
        kinds: dict[tuple[str, Placement, str | None], Contender] = {}
        for task_class, demands in parts:
            progress = self.draft.progress_of[task_class.tenant]
            key = task_class.tenant, *identify_reach(task_class)
            kinds.setdefault(key, Contender(progress, task_class, set())).demands.update(demands)
        siblings = self.draft.build_siblings()
        return Rivals(kinds.values(), self.draft.measure, self.snapshot, refusals.reaches, siblings)

    def _compute_shares(self) -> tuple[tuple[str, float], ...]:
        """Return every tenant's weighted dominant share after the placements, by name."""
        draft = self.draft
        if self.state is not None:
            return self.state.compute_shares({bind.tenant for bind in draft.bindings})
        total_r = self.snapshot.total_r
        return tuple([(name, progress.compute_share(total_r)) for name, progress in draft.progress_of.items()])


def is_lasting(wait: Wait) -> bool:
    """Tell whether nothing but what a wait says ends it.

    A group may fit although no server has gained enough for a task of it: where an amount must be free on all servers
    together, and where other tasks open topology domains.
    """
    rules, group = wait.task_class.rules, wait.task_class.group
    is_plain = group is None or not (group.least_free_r or (rules is not None and not rules.are_limits))
    is_known = wait.group is None or wait.group.is_tried
    return wait.is_whole and is_plain and is_known
