"""The operator's cache, pacing and cycle on a virtual clock, in place of its loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.classes.snapshot import Scale
from fairbind.cluster.loop.deciding import Decider
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
    Decided,
    Instruction,
    NothingWaits,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.model import Bind, CycleReport, InvariantError, Plan, RunningTask, Snapshot, Wait
from fairbind.scheduling import Policy
from fairbind.what_if.fair_shares import FairShares
from fairbind.what_if.reading import NANOSECONDS


class VirtualOperator:
    """Decides about one cache as the operator does.

    make_cache: given what the cache must call on changes. policy: whose mechanism the fair shares are of, or None.
    baseline: what decides in place of a policy of the operator. start: called for each decision, in their order.
    follow: called with what each cycle saw and decided, before its decisions start. explains: whether anything reads
    why tasks wait. If not, cycles do not explain again what fitted nowhere; in simulated time nearly every cycle would.
    epoch: when its time begins, seconds since the epoch. find_start: when a running task began, likewise. find_end:
    when it ends; None: that is not known.
    solves_every: for so many nanoseconds the targets of a policy are not made again.
    scale: what shares were measured by at the last cycle. waits: those of the last cycle.
    """

    def __init__(
        self,
        make_cache: Callable[[Callable[[], None]], ClusterCache],
        policy: str | None,
        start: Callable[[Bind], None],
        follow: Callable[[Snapshot, CycleReport], None] = lambda _snapshot, _report: None,
        baseline: Policy | None = None,
        *,
        explains: bool = True,
        epoch: float = 0.0,
        find_start: Callable[[RunningTask], float] = attrgetter("start"),
        find_end: Callable[[RunningTask], float | None] = lambda _running: None,
        solves_every: int = 0,
    ) -> None:
        self._start = start
        self._follow = follow
        self._is_undecided = False
        self._is_told = False  # pacing, that something is undecided since its last cycle
        self._pacing = Pacing()
        self._clock = 0.0
        self._epoch = epoch
        self._flushed_at = 0
        self._wake_at = 0.0
        self._decider = Decider(baseline, explains=explains, find_start=find_start, find_end=find_end, tries_all=True)
        self._noted: Iterable[Wait] = ()
        self.waits: Iterable[Wait] = ()
        self.cache = make_cache(self._note_change)
        self.fair_shares = FairShares(self.cache, policy, every=solves_every)
        self.scale: Scale = self.cache.skip_snapshot()

    def _note_change(self) -> None:
        self._is_undecided = True

    def end_reservations(self) -> None:
        """Reserve nothing, as at the beginning."""
        self._decider.reservations.end_all()

    def flush(self, now: int, should_stop: Callable[[], bool]) -> None:
        """Let pacing decide until nothing is left to decide. Its clock passes the pauses, the simulated time does not.

        Bindings take no time and none fails, so of pacing's rules only batches, limits and explanations play a part.
        """
        self._clock += (now - self._flushed_at) / NANOSECONDS
        self._flushed_at = now
        if not self.cache.queries.has_waiting:
            self._note_idle()
            return
        self.fair_shares.follow(now)
        self._is_undecided = True
        while self._is_undecided and not should_stop():
            if not self._is_told:
                self._is_told = True
                self._obey(self._pacing.handle(Changed(), self._clock))
            self._clock = max(self._clock, self._wake_at)
            self._obey(self._pacing.handle(Tick(), self._clock))

    def _carry_out(self, plan: Plan) -> None:
        """Let all tasks of a plan start, or none: one of them may not wait any more."""
        taken: list[str] = []
        for bind in plan.binds:  # nothing evicts yet
            if plan.evictions or not self.cache.assume(bind.task.uid, bind.server, joins=bool(taken)):
                if plan.is_single:
                    raise InvariantError(f"nothing happens while a cycle decides, but it decided {bind}")
                is_stuck = self.cache.find_pod(bind.task.uid) is not None
                for uid in taken:
                    self.cache.forget(uid)
                for each in plan.binds:
                    self._obey(self._pacing.handle(BindWithdrawn(each.task.uid, is_stuck), self._clock))
                return
            taken.append(bind.task.uid)
        for bind in plan.binds:
            self._start(bind)
            self._obey(self._pacing.handle(BindEnded(bind.task.uid, BindResult.BOUND), self._clock))

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                self._wake_at = instruction.time
            elif isinstance(instruction, RunCycle):
                self._obey(self._run_cycle(instruction))
            elif isinstance(instruction, BackOff):
                self.cache.back_off(instruction.uid)
            elif isinstance(instruction, Resume):
                self.cache.resume(instruction.uid)
            elif not isinstance(instruction, Beat | Announce):
                raise InvariantError(f"no binding fails here, but pacing says {instruction}")

    def _note_idle(self) -> None:
        """Take the state of a cluster in which nothing waits."""
        self._decider.reservations.end_all()
        self.scale = self.cache.skip_snapshot()
        self.waits = self._noted = ()

    def _run_cycle(self, order: RunCycle) -> Iterable[Instruction]:
        self._is_undecided = self._is_told = False
        if not self.cache.queries.has_waiting:
            self._note_idle()
            return self._pacing.handle(NothingWaits(), self._clock)
        snapshot = self.cache.build_snapshot()
        self.scale = Scale(snapshot.resources, snapshot.counts_r, snapshot.total_r)
        order = RunCycle(order.limit, explains=order.explains and self._decider.explains, rotates=order.rotates)
        now = self._epoch + self._flushed_at / NANOSECONDS
        report = self._decider.decide(snapshot, self.cache.settings, now, order)
        self._follow(snapshot, report)
        classes = len(snapshot.task_classes)
        for plan in self._pacing.handle(Decided(report.plans, report.complete, classes), self._clock):
            if not isinstance(plan, Plan):
                raise InvariantError(f"nothing happens while a cycle decides, but pacing says {plan}")
            self._carry_out(plan)
        # Waits are the same objects only where nothing is left that could take turns.
        if report.waits != self._noted or not snapshot.is_current:
            self._is_undecided |= self.cache.note_waits(report.waits)
            self._noted = report.waits
        self.waits = report.waits
        self._is_undecided |= report.reopens or not report.complete
        return self._pacing.handle(CycleEnded(0.0), self._clock)
