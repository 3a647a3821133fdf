"""Runs one cycle after the other as pacing orders them, each with what it may recall of those before it.

The operator's loop and the simulator both decide by this. What is recalled changes no decision, whether those of the
cycles before are carried out or not.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.cluster.loop.rounds import MAX_EXPLAINED, is_recalling
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import CycleReport, Event, PolicySettings, RunningTask, Snapshot
from fairbind.scheduling import CycleState, Policy, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.reservations.reservations import Reservations


class Decider:
    """Decides for one cluster. baseline: decides in place of the settings' policy; None: nothing does.

    explains: whether anything reads why tasks wait. If so, where few classes wait, all explanations are those of now.
    If not, waits do not say which tenant comes before. find_start: when a running task began, seconds since the epoch.
    find_end: when it ends, likewise; None: that is not known. tries_all: whether cycles try all groups of a tenant,
    whatever that costs.
    """

    def __init__(
        self,
        baseline: Policy | None = None,
        *,
        explains: bool = True,
        find_start: Callable[[RunningTask], float] = attrgetter("start"),
        find_end: Callable[[RunningTask], float | None] = lambda _running: None,
        tries_all: bool = False,
    ) -> None:
        self._baseline = baseline
        self._tries_all = tries_all
        self.explains = explains
        self._unschedulable = UnschedulableCache()
        self._state = CycleState()
        self.reservations = Reservations(find_start, find_end)

    def note_event(self, event: Event) -> None:
        """Have the next cycle look at the classes whose wait this ends."""
        self._unschedulable.note_event(event)

    def decide(
        self,
        snapshot: Snapshot,
        settings: PolicySettings,
        now: float,
        order: RunCycle,
        *,
        may_have: Callable[[str, int], bool] = lambda _tenant, _count: True,
    ) -> CycleReport:
        """Return what the ordered cycle decides.

        now: seconds since the epoch, for the report. may_have: see `run_cycle`.
        """
        recalls = not self.explains or is_recalling(len(snapshot.task_classes))
        unschedulable = self._unschedulable if recalls else None
        if unschedulable is None:
            self._unschedulable.forget()
        elif order.explains:
            self._unschedulable.forget_some(MAX_EXPLAINED)
        return run_cycle(
            snapshot,
            settings,
            now,
            limit=order.limit,
            unschedulable=unschedulable,
            state=self._state,
            baseline=self._baseline,
            explains=order.explains,
            finds_rivals=self.explains,
            may_have=may_have,
            reservations=self.reservations if self._baseline is None else None,  # rules of others have none
            find_owner=None if self._tries_all else find_tenant_of_leaf,
        )
