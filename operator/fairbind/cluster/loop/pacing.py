"""When a cycle runs, how much it may decide, and what follows from the end of a binding: a state machine.

Events go in with their time, instructions come out as values. A driver obeys the instructions: the operator by asyncio
(`fairbind.kube.operator.loop`), a simulator from a heap of events. `Pacing` reads no clock. What is measured, as the
length of a cycle, enters as an event, so the same events give the same instructions.

The rules:

* **Batches.** The first change starts a pause of `COALESCE_SECONDS`, and what changes during the pause belongs to the
  same cycle. So the order is decided over the batch and not by who arrived first within it. The pause is at least as
  long as the last cycle, so that cycles take at most about half of the time.
* **Plans.** A plan begins whole or not at all, and takes as many places as it has binds. It begins where one place is
  free: limits are exceeded by less than one plan, and a large plan waits for no more than a small one.
* **Limit.** No more than `MAX_OUTSTANDING` decisions wait to be carried out: as many as keep the binder busy while the
  next cycle runs. Decisions stay fresh, and the order stays right when something changes amid a long backlog. A cycle
  that the limit ended goes on, without a pause, when `LOW_WATER` or fewer are left. So does a change that came when
  the limit was reached.
* **Rotation.** Where a tenant has more placements or classes than a cycle looks at, a later cycle looks at others of
  them. What that costs takes at most about a fifth of the time: cycles in between look at the same ones once more.
* **Explanations.** Where many classes wait, cycles recall what fitted nowhere. All classes are looked at and explained
  again within `EXPLAIN_SECONDS`, or later when they are very many, and once more after the last change: in parts of
  `MAX_EXPLAINED`, one cycle after the other, so that none of these takes long.
* **Times.** A cycle says after how long another one may decide or reserve more, though nothing changes: when the first
  time comes that ends a wait, for example (`Decided.again_in`). Another one runs then; the last cycle's word counts.
* **Failed bindings.** A binding that was not sent gives its capacity back, and its pod waits on as before. After any
  other failure the pod is postponed for 1 to 10 seconds, twice as long each time until it is bound.
* **Claims.** A binding that waits for the claims of its pod leaves its place to others until they are bound.
* **Limits of a namespace.** A binding that failed once or takes long leaves its place to others. A namespace whose
  bindings fail has few under way, and the rest of its pods is backed off for a while; see `bind_limits`. A binding
  that another scheduler asks for counts as any other; that this one was told of its pod says nothing about it.
* **Gates.** Of rationed pods, a decision opens the gate, and another scheduler places the pod. Until then it is
  on its way; how many may be, and for how long a pod keeps its capacity, is decided in `gate_limiter`. Places that come
  free are given away together (`place_waits`). Amid that, a cycle decides pods that take none, and one pod of each
  tenant with nothing on its way (`RunCycle.opens`). After a cycle one gate is opened without capacity where an
  autoscaler could help, but for `MAX_HELD_SECONDS` not beside gates with capacity; the next cycle sees the shares with
  it.
* **Failed cycles.** The next cycle is tried after `FAILED_CYCLE_SECONDS`, followed by the pause for batches.
* **Sweeps.** When nothing changes, the driver reports a beat every `BEAT_SECONDS`, and a cycle runs at the first beat
  that comes `SWEEP_SECONDS` after the sweep before it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from fairbind.cluster.loop.bind_limits import BindLimits
from fairbind.cluster.loop.openings import Openings
from fairbind.cluster.loop.pacing_events import (
    NOT_SENT,
    Announce,
    BackOff,
    Beat,
    BindAnswered,
    BindAsked,
    BindAwaits,
    BindEnded,
    BindResult,
    BindStalled,
    BindWithdrawn,
    Changed,
    CycleEnded,
    CycleFailed,
    CycleSkipped,
    Decided,
    Event,
    Forget,
    GiveBack,
    Instruction,
    NothingWaits,
    PodArrived,
    PodOnItsWay,
    PodRefused,
    PodReserved,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.cluster.loop.postponements import Postponements
from fairbind.cluster.loop.rounds import Rounds
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.cluster.other_schedulers.gate_limiter import STUCK_SECONDS, GateLimiter, ScaleUp
from fairbind.cluster.other_schedulers.place_waits import PlaceWaits
from fairbind.model import Bind, Plan

COALESCE_SECONDS = 0.05
BEAT_SECONDS = 5.0
SWEEP_SECONDS = 300.0
MAX_OUTSTANDING = 256
"""Decisions that are not carried out yet, at most: twice what the binder has in flight."""
LOW_WATER = 160
"""A cycle that was ended by the limit goes on when no more than this are left: what is in flight, and as much as ends
while the next cycle decides."""
PAUSE_PER_ROTATION = 4.0
"""A cycle looks at others when so many times the time has passed that the last such cycle took."""
FAILED_CYCLE_SECONDS = 1.0

_FAILURES = frozenset({BindResult.FAILED, BindResult.INVALID})

_ABOUT_GATES = PodArrived, PodOnItsWay, PodReserved, PodRefused

_NOTHING: Sequence[Instruction] = ()


@dataclass(frozen=True, slots=True)
class PacingState:
    """What the limit of the next cycle comes from.

    outstanding: decisions that are not carried out yet. has_more: whether something is known to be left to decide.
    last_cycle_seconds: what the next pause is not shorter than. postponed: how many pods wait for their `Resume`.
    """

    outstanding: int
    has_more: bool
    last_cycle_seconds: float
    postponed: int


class _Phase(enum.Enum):
    """What the rules wait for: the first tick, a change, the rest of a batch, a cycle, the time after a failed one."""

    NEW = enum.auto()
    WAITING = enum.auto()
    PAUSING = enum.auto()
    DECIDING = enum.auto()
    RECOVERING = enum.auto()


class Pacing:
    """The rules of the module, from the first tick on.

    Times are in seconds, of one clock, and do not go back. A `WakeAt` comes first in its list: what the driver causes
    by obeying the other instructions may bring another one, which counts.

    >>> pacing = Pacing()
    >>> pacing.handle(Tick(), 0.0)
    [WakeAt(time=5.0), Beat()]
    >>> pacing.handle(Changed(), 2.0)
    [WakeAt(time=2.0)]
    >>> pacing.handle(Tick(), 2.0)
    [WakeAt(time=2.05)]
    >>> pacing.handle(Tick(), 2.05)
    [RunCycle(limit=256, explains=True, rotates=True, opens=True)]
    >>> pacing.handle(NothingWaits(), 2.5)
    [WakeAt(time=7.5), Beat()]
    """

    def __init__(self, gate_limiter: GateLimiter | None = None) -> None:
        """gate_limiter: of gate mode; None when no pods are rationed."""
        self._gate_limiter = GateLimiter(most=MAX_OUTSTANDING) if gate_limiter is None else gate_limiter
        self._openings = Openings()
        self._place_waits = PlaceWaits(self._gate_limiter)
        self._phase = _Phase.NEW
        self._phase_ends = inf
        self._is_woken = False
        self._announced = inf
        self._swept_at = 0.0
        self._outstanding = 0
        self._has_more = False
        self._is_complete = True
        self._last_cycle_seconds = 0.0
        self._rounds = Rounds()
        self._postponements = Postponements()
        self._limits = BindLimits()

    def get_state(self) -> PacingState:
        """Return what the limit of the next cycle comes from."""
        return PacingState(self._outstanding, self._has_more, self._last_cycle_seconds, len(self._postponements))

    def may_send(self, uid: str) -> bool:
        """Tell whether a binding that has begun may still be sent for the first time; if not, it ends as deferred."""
        return self._limits.may_send(uid)

    def find_refused(self) -> set[str]:
        """Return the tenants whose bindings fail or hang now."""
        return self._limits.find_refused()

    def handle(self, event: Event, now: float) -> Sequence[Instruction]:
        """Return what is to be done after the event, in this order. now: the time of the event."""
        if isinstance(event, BindEnded):
            return self._end_bind(event.uid, event.result, now)
        if isinstance(event, BindStalled | BindAwaits):
            return self._stall_bind(event, now)
        if isinstance(event, BindAsked | BindAnswered):
            return self._follow_asked(event, now)
        if isinstance(event, Changed):
            self._rounds.has_changed = True
            if self._is_woken:
                return _NOTHING
            self._is_woken = True
            instructions: list[Instruction] = []
        elif isinstance(event, Tick):
            instructions = self._step(now)
        elif isinstance(event, Decided):
            return self._begin_bindings(event, now)
        elif isinstance(event, _ABOUT_GATES):
            self._follow(event, now)
            instructions = []
        else:
            instructions = self._take_answer(event, now)
        self._plan(now, instructions)
        return instructions

    def _follow(self, event: PodArrived | PodOnItsWay | PodReserved | PodRefused, now: float) -> None:
        """Note what became of a rationed pod."""
        match event:
            case PodArrived(uid, is_bound):
                self._gate_limiter.end(uid, now, bound=is_bound)
                self._place_waits.free(1, now)
            case PodOnItsWay(uid, tenant, has_capacity):
                self._gate_limiter.recover(uid, tenant, now, has_capacity=has_capacity)
            case PodReserved(uid, has_capacity):
                self._gate_limiter.note_capacity(uid, now, has_capacity=has_capacity)
            case PodRefused(uid):
                self._gate_limiter.note_refused(uid)

    # --- time ---

    def _step(self, now: float) -> list[Instruction]:
        if now >= self._announced:
            self._announced = inf
        if self._phase is _Phase.DECIDING:
            return []
        if resumes := self._pop_resumes(now):
            return resumes  # what follows from them belongs to the turn that is due
        self._is_woken |= self._rounds.take_due(now)
        self._is_woken |= self._place_waits.is_due(now)
        if self._phase is _Phase.NEW:
            self._swept_at = now
            return self._wait(now)
        if self._phase is _Phase.WAITING and self._is_woken:
            return self._begin_batch(now)
        if now < self._phase_ends:
            return []
        return self._end_phase(now)

    def _end_phase(self, now: float) -> list[Instruction]:
        if self._phase is _Phase.PAUSING:
            return self._ask_for_cycle(now)
        if self._phase is _Phase.RECOVERING:
            self._is_woken = True
            return self._wait(now)
        if now - self._swept_at < SWEEP_SECONDS:
            return self._wait(now)
        self._swept_at = now
        return self._begin_batch(now)

    def _pop_resumes(self, now: float) -> list[Instruction]:
        resumes: list[Instruction] = [Resume(uid) for uid in self._postponements.pop_due(now)]
        resumes += [Resume(uid) for uid in self._limits.release(now)]
        expired = self._gate_limiter.expire(now)
        if (
            expired
        ):  # their places are free, also where one keeps its capacity because it is nominated, and nothing changes
            self._place_waits.free(len(expired), now)
        resumes += [GiveBack(uid) for uid in expired]
        return resumes

    def _plan(self, now: float, instructions: list[Instruction]) -> None:
        """Put the time of the next tick first, if it is not what the driver knows already."""
        if self._phase is _Phase.DECIDING or self._phase is _Phase.NEW:
            return  # the answer goes on from here, or the first tick
        if self._phase is _Phase.WAITING and self._is_woken:
            wake_at = min(now, self._announced)
        else:
            wake_at = min(
                self._phase_ends, self._rounds.wake_at, self._place_waits.wake_at, self._postponements.wake_at
            )
            wake_at = min(wake_at, self._limits.find_next_release(), self._gate_limiter.find_next_timeout())
        if wake_at != self._announced:
            self._announced = wake_at
            instructions.insert(0, WakeAt(wake_at))

    # --- cycles ---

    def _wait(self, now: float) -> list[Instruction]:
        self._phase, self._phase_ends = _Phase.WAITING, now + BEAT_SECONDS
        return [Beat()]

    def _begin_batch(self, now: float) -> list[Instruction]:
        if self._has_more:
            return self._ask_for_cycle(now)
        self._phase, self._phase_ends = _Phase.PAUSING, now + max(COALESCE_SECONDS, self._last_cycle_seconds)
        return []

    def _ask_for_cycle(self, now: float) -> list[Instruction]:
        self._is_woken = False
        limit = MAX_OUTSTANDING - self._outstanding
        self._has_more |= limit <= 0  # what woke us is not decided yet
        if self._has_more and self._outstanding > LOW_WATER:
            return self._wait(now)  # woken again when enough of them have ended
        opens = self._place_waits.begin_cycle()
        self._phase, self._phase_ends = _Phase.DECIDING, inf
        explains, looks_at_others = self._rounds.begin_cycle(now)
        return [RunCycle(limit, explains, looks_at_others, opens)]

    def _begin_bindings(self, event: Decided, now: float) -> Sequence[Instruction]:
        self._is_complete = event.complete
        self._rounds.note_classes(event.classes)
        self._rounds.decide_again_at(inf if event.again_in is None else now + event.again_in)
        self._place_waits.note_rationed(is_rationed=event.is_rationed)
        instructions: list[Instruction] = []
        for plan in event.plans:
            instructions += self._begin_plan(plan, event.opens, now)
        return [*instructions, *self._scale_up(event.scale_ups, now)]

    def _begin_plan(self, plan: Plan, opens: AbstractSet[str], now: float) -> Sequence[Instruction]:
        """Let all binds of a plan begin, or none; then those that cannot begin now wait for their `Resume`."""
        gated = [(bind.task.uid, bind.tenant) for bind in plan.binds if bind.task.uid in opens]
        # One that is under way is so for so long that its time is over; a second request would not help.
        stuck = [bind.task.uid for bind in plan.binds if bind.task.uid in self._openings]
        if not stuck and gated and not self._gate_limiter.open_all(gated, now):
            stuck = [bind.task.uid for bind in plan.binds]
        if stuck:
            for uid in stuck:
                self._postponements.resume_at(now + STUCK_SECONDS, uid)
            self._is_woken |= len(stuck) < len(plan.binds)
            return [BackOff(uid) for uid in stuck]
        if not self._limits.begin_all([_name_member(bind) for bind in plan.binds], now):
            for bind in plan.binds:
                self._gate_limiter.end(bind.task.uid, now)
            return [BackOff(bind.task.uid) for bind in plan.binds]
        self._outstanding += len(plan.binds)
        for uid, _ in gated:
            self._openings.begin(uid, has_capacity=True)
        return [plan]

    def _scale_up(self, candidates: Sequence[Bind], now: float) -> Sequence[Instruction]:
        """Open the gate of one pod for which a node could be bought; shares are others then, so look again.

        Only after those that hold capacity, but for stalled ones; see `Openings.must_wait`.
        Those whose namespace may not begin now leave the order, so that no later cycle backs them off once more.
        """
        if self._openings.must_wait(now, has_candidates=bool(candidates)):
            return _NOTHING
        backed_off: list[Instruction] = []
        for bind in sorted(candidates, key=lambda each: self._gate_limiter.is_passed_over(each.tenant, now)):
            uid, (namespace, _) = bind.task.uid, split_task_name(bind.task)
            verdict = self._gate_limiter.scale_up(uid, bind.tenant, now)
            if verdict is ScaleUp.WAIT:
                break
            if verdict is ScaleUp.PASS:
                continue
            if self._limits.begin(uid, bind.tenant, namespace, now):
                self._outstanding += 1
                self._openings.begin(uid, has_capacity=False)
                self._is_woken = True
                return [*backed_off, Plan((bind,))]
            self._gate_limiter.end(uid, now)
            backed_off.append(BackOff(uid))
        return backed_off

    def _take_answer(
        self,
        event: CycleSkipped | NothingWaits | BindWithdrawn | CycleEnded | CycleFailed,
        now: float,
    ) -> list[Instruction]:
        match event:
            case BindWithdrawn(uid, is_stuck):
                self._outstanding -= self._limits.end(uid, now)
                self._end_opening(uid, now)
                if not is_stuck:
                    return []
                self._postponements.resume_at(now + STUCK_SECONDS, uid)
                return [BackOff(uid)]
            case CycleFailed(classes):
                if classes is not None:
                    self._rounds.note_classes(classes)
                    self._has_more &= classes > 0
                self._phase, self._phase_ends = _Phase.RECOVERING, now + FAILED_CYCLE_SECONDS
                return []
            case CycleEnded(seconds, is_next_different):
                self._has_more = not self._is_complete
                self._last_cycle_seconds = seconds
                if is_next_different:
                    self._wake_for_rotation(now)
            case NothingWaits():
                self._has_more = False
                self._place_waits.note_rationed(is_rationed=False)
            case CycleSkipped():
                return self._wait(now)
        beat = self._wait(now)
        self._wake_at_low_water()
        return beat

    def _wake_for_rotation(self, now: float) -> None:
        """Let a cycle look at others, after a pause of which the one for batches is a part."""
        pause = PAUSE_PER_ROTATION * self._last_cycle_seconds - max(COALESCE_SECONDS, self._last_cycle_seconds)
        if pause > 0.0:
            self._rounds.look_at_others(now + pause)
        else:
            self._is_woken = True

    # --- bindings ---

    def _stall_bind(self, event: BindStalled | BindAwaits, now: float) -> list[Instruction]:
        if isinstance(event, BindAwaits):
            self._outstanding += self._limits.follow_claims(event.uid, awaits=event.awaits)
        else:
            self._outstanding -= self._limits.stall(event.uid, failed=event.failed)
        self._is_woken |= self._openings.end_waiting(event.uid)
        self._wake_at_low_water()
        instructions: list[Instruction] = []
        if self._is_woken:
            self._plan(now, instructions)
        return instructions

    def _end_bind(self, uid: str, result: BindResult, now: float) -> list[Instruction]:
        is_bound = result is BindResult.BOUND
        self._outstanding -= self._limits.end(uid, now, bound=is_bound, failed=result in _FAILURES)
        self._wake_at_low_water()
        if result.is_done:
            self._postponements.forgive(uid)
            is_open = uid in self._openings
            self._is_woken |= self._openings.end(uid)
            self._gate_limiter.note_open(uid, now)
            # Of a pod whose gate is open now, the other scheduler says when it is bound.
            instructions: list[Instruction] = [] if is_open else [Announce(uid)]
        elif result in NOT_SENT:
            self._end_opening(uid, now)
            instructions = [Forget(uid, postponed=False)]
        else:
            self._end_opening(uid, now)
            self._postponements.postpone(uid, now)
            instructions = [Forget(uid, postponed=True)]
            self._plan(now, instructions)
        if self._is_woken or self._limits.find_next_release() <= now:
            self._plan(now, instructions)
        return instructions

    def _follow_asked(self, event: BindAsked | BindAnswered, now: float) -> Sequence[Instruction]:
        """Count a binding that another scheduler asked for; it began without a decision, so no limit holds it back."""
        if isinstance(event, BindAsked):
            self._limits.enter(event.binding, event.tenant, event.namespace)
            self._outstanding += 1
            return _NOTHING
        is_bound, is_failed = event.result is BindResult.BOUND, event.result in _FAILURES
        self._outstanding -= self._limits.end(event.binding, now, bound=is_bound, failed=is_failed)
        self._wake_at_low_water()
        instructions: list[Instruction] = []
        self._plan(now, instructions)
        return instructions

    def _end_opening(self, uid: str, now: float) -> None:
        """Note that a gate did not open after all, if it was one."""
        self._is_woken |= self._openings.end(uid)
        if uid in self._gate_limiter:
            self._gate_limiter.end(uid, now)
            self._place_waits.free(1, now)

    def _wake_at_low_water(self) -> None:
        """Wake for what is left to decide; while a cycle runs it is not known yet, and the cycle's end looks again."""
        if self._has_more and self._outstanding <= LOW_WATER and self._phase is not _Phase.DECIDING:
            self._is_woken = True


def _name_member(bind: Bind) -> tuple[str, str, str]:
    """Return the UID of a pod, its tenant and its namespace."""
    return bind.task.uid, bind.tenant, split_task_name(bind.task)[0]
