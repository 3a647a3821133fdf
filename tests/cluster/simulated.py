"""A history without asyncio: pacing is fed from a heap of events, as a simulator does."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from math import inf

import pytest

from cluster.histories import EPOCH, HistoricWorld, History, Pod, Timeline, set_constants
from fairbind.cluster.loop.pacing import Pacing
from fairbind.cluster.loop.pacing_events import (
    Announce,
    BackOff,
    Beat,
    BindEnded,
    BindResult,
    BindWithdrawn,
    Changed,
    CycleEnded,
    CycleFailed,
    CycleSkipped,
    Decided,
    Forget,
    Instruction,
    NothingWaits,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.cluster.loop.rounds import is_recalling
from fairbind.model import CycleReport, Plan, Snapshot
from fairbind.scheduling import UnschedulableCache

Judge = Callable[[RunCycle, Snapshot, CycleReport], None]


class Simulation:
    """The operator's loop on a virtual clock. judge: sees each cycle."""

    def __init__(self, history: History, judge: Judge) -> None:
        self.timeline = Timeline(lambda: self.now)
        self.now = 0.0
        self._judge = judge
        self._world = HistoricWorld(history, self.timeline, self._spend)
        self._world.on_change = self._change
        self._pacing = Pacing()
        self._wake_at = -inf
        self._beginning: list[tuple[str, Pod]] = []
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._unschedulable = UnschedulableCache()
        self._noted: object = ()
        self._decided = 0
        for at, what, count in history.events:
            self._push(at, partial(self._world.happen, what, count))
        self._push(history.seconds, self._end)

    def run(self) -> Timeline:
        """What is due at once comes before bindings that have yet to begin, and these before all that comes later."""
        while self._events or self._beginning:
            if self._wake_at <= self.now:
                self._obey(self._pacing.handle(Tick(), self.now))
            elif self._beginning:
                beginning, self._beginning = self._beginning, []
                for uid, pod in beginning:
                    self._begin(uid, pod)
            elif self._wake_at <= self._events[0][0]:
                self.now = self._wake_at
            else:
                at, _, happen = heapq.heappop(self._events)
                self.now = max(self.now, at)
                happen()
        self.timeline.note("decided", self._decided)
        return self.timeline

    def _push(self, at: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), happen))

    def _spend(self, seconds: float) -> None:
        self.now += seconds

    def _change(self) -> None:
        self._obey(self._pacing.handle(Changed(), self.now))

    def _end(self) -> None:
        self._world.happen("wake", 0)
        self._world.is_over = True
        self._wake_at = inf

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case WakeAt(at):
                    self._wake_at = inf if self._world.is_over else at
                case Beat():
                    self._world.beat()
                case BackOff(uid):
                    self._world.back_off(uid)
                case Resume(uid):
                    self._world.resume(uid)
                case Forget(uid, postponed):
                    self._world.forget(uid, postponed=postponed)
                case RunCycle():
                    self._obey(self._run_cycle(instruction))
                case Plan():
                    self._begin_plan(instruction)

    def _run_cycle(self, order: RunCycle) -> Iterable[Instruction]:
        world = self._world
        if not world.leads:
            return self._pacing.handle(CycleSkipped(), self.now)
        started = self.now
        classes = None
        try:
            snapshot = world.build_snapshot()
            classes = len(snapshot.task_classes)
            if not classes:
                self._noted = ()
                world.note_waits(())
                world.note_waits((), 1)
                return self._pacing.handle(NothingWaits(), self.now)
            unschedulable = self._unschedulable if is_recalling(classes) else None
            if unschedulable is None or order.explains:
                self._unschedulable.forget()
            report = world.run_cycle(
                snapshot,
                world.settings,
                EPOCH + self.now,
                limit=order.limit,
                unschedulable=unschedulable,
                explains=order.explains,
            )
            self._judge(order, snapshot, report)
            binds = self._pacing.handle(Decided(report.plans, report.complete, classes), self.now)
            classes = None
            self._obey(binds)
            if report.complete:
                world.note_waits(report.waits, 1)
            if report.waits != self._noted:
                world.note_waits(report.waits)
                self._noted = report.waits
        except RuntimeError:
            world.cycle_failed()
            return self._pacing.handle(CycleFailed(classes), self.now)
        world.cycle_finished(self.now - started)
        return self._pacing.handle(CycleEnded(self.now - started), self.now)

    def _begin_plan(self, plan: Plan) -> None:
        """Let all bindings of a plan begin, or none."""
        taken: list[tuple[str, Pod]] = []
        for bind in plan.binds:
            pod = self._world.find_pod(bind.task.uid)
            if pod is None or not self._world.assume(bind.task.uid, bind.server):
                for uid, _ in taken:
                    self._world.forget(uid)
                for each in plan.binds:
                    self._obey(self._pacing.handle(BindWithdrawn(each.task.uid), self.now))
                return
            taken.append((bind.task.uid, pod))
        self._decided += len(taken)
        self._beginning += taken

    def _begin(self, uid: str, pod: Pod) -> None:
        seconds, result = self._world.draw_binding(uid)
        self._push(self.now + seconds, lambda: self._end_bind(uid, pod, result or BindResult.FAILED))

    def _end_bind(self, uid: str, pod: Pod, result: BindResult) -> None:
        for instruction in self._pacing.handle(BindEnded(uid, result), self.now):
            if isinstance(instruction, Announce):
                self._world.pod_scheduled(pod.tenant, EPOCH + self.now - pod.ready_since)
                self._world.scheduled(pod.namespace, pod.name, uid, "only")
            else:
                self._obey([instruction])


def run_simulated(
    history: History, patch: pytest.MonkeyPatch, judge: Judge = lambda _order, _snapshot, _report: None
) -> Timeline:
    """Return what a simulator does."""
    set_constants(history, patch)
    return Simulation(history, judge).run()
