"""The loop that decides: it feeds the rules of pacing with what happens, and has their instructions carried out.

The rules are in `fairbind.cluster.loop.pacing`: when a cycle runs, how much it may decide, what follows from the end
of a binding. Here is what needs asyncio, a clock and a log. `wake` and the ends of bindings are events; `run` waits for
the time that the rules name and feeds the ticks, so a cycle runs in no other task.

Decisions are assumed in the cache at once, so the next cycle counts them although the API server has not heard of them
yet. A cycle that raises an error executes nothing, is counted, and is tried again later; the loop goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from msgspec import UNSET

from fairbind.cluster.loop import pacing
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.journal import CycleRecord, compute_fingerprint, list_plans
from fairbind.cluster.loop.pacing import Pacing, PacingState
from fairbind.cluster.loop.pacing_events import (
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
from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter
from fairbind.cluster.other_schedulers.scale_up import find_scale_ups
from fairbind.kube.bind_carrier import BindCarrier
from fairbind.kube.observer import Observer
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.plan_carrier import NothingToPrepare, PlanCarrier, Readiness
from fairbind.kube.part_failures import PartFailures
from fairbind.model import Bind, CycleReport, Plan, PolicySettings, Snapshot, TaskClass, Wait

_CHANGED = Changed()
_TICK = Tick()
_log = logging.getLogger(__name__)


class PodToBind(Protocol):
    """What the loop must know of a pod. ready_since: since when it could be placed, seconds since the epoch."""

    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def ready_since(self) -> float: ...  # noqa: D102
    @property
    def tenant(self) -> str: ...  # noqa: D102


class World(Protocol):
    """The cache, as the loop sees it."""

    @property
    def settings(self) -> PolicySettings: ...  # noqa: D102
    def build_snapshot(self) -> Snapshot: ...  # noqa: D102
    def assume(self, uid: str, node: str, *, joins: bool = False) -> bool: ...  # noqa: D102
    def forget(self, uid: str, *, postponed: bool = False) -> None: ...  # noqa: D102
    def back_off(self, uid: str) -> None: ...  # noqa: D102
    def resume(self, uid: str) -> None: ...  # noqa: D102
    def find_pod(self, uid: str) -> PodToBind | None: ...  # noqa: D102
    def note_waits(self, waits: Sequence[Wait], *, rotates: bool = True) -> bool: ...  # noqa: D102


class Announcer(Protocol):
    """The recorder, as the loop sees it."""

    def scheduled(self, namespace: str, name: str, uid: str, node: str) -> None: ...  # noqa: D102
    def note_waits(self, waits: Sequence[Wait], node_count: int) -> object: ...  # noqa: D102


class Journal(Protocol):
    """Who records cycles, as the loop sees it."""

    def record(self, record: CycleRecord) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class GateRules:
    """What the loop needs to open gates.

    is_gated: whether a decision about the pod with this UID opens its gate. give_back: take the capacity of a pod whose
    time is over, and return whether its scheduler has refused it. scale_up: let a pod count without capacity; False
    when it waits no more.
    """

    gate_limiter: GateLimiter
    is_gated: Callable[[str], bool]
    give_back: Callable[[str], bool]
    scale_up: Callable[[str], bool] = lambda _uid: False


class SchedulingLoop:
    """Decides while `may_decide` says so, and has the decisions carried out."""

    def __init__(
        self,
        world: World,
        binder: BindCarrier,
        announcer: Announcer,
        *,
        observer: Observer,
        health: Health,
        may_decide: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        journal: Journal | None = None,
        failures: PartFailures | None = None,
        on_bound: Callable[[str], None] = lambda _uid: None,
        gates: GateRules | None = None,
        readiness: Readiness | None = None,
        decider: Decider | None = None,
    ) -> None:
        """wall_clock: seconds since the epoch, as pods' creation times are. clock: monotonic.

        on_bound: called with the UID of each pod whose binding the API server has accepted.
        gates: of gate mode. readiness: of pods of plans of several; None: they are ready.
        """
        self._world = world
        self._binder = binder
        self._announcer = announcer
        self._observer = observer
        self._health = health
        self._may_decide = may_decide
        self._clock = clock
        self._wall_clock = wall_clock
        self._journal = journal
        self._on_bound = on_bound
        self._failures = failures or PartFailures(observer)
        self._gates = gates
        self._pacing = Pacing(None if gates is None else gates.gate_limiter)
        self._wake_at = -inf
        self._earlier = asyncio.Event()
        self._plans = PlanCarrier(self._send, self._end, readiness or NothingToPrepare(), self.note_awaits)
        self._decider = decider or Decider()
        self._noted: Sequence[Wait] = ()
        self._has_rotated = True
        self._cycles = 0
        self.decided = 0

    def wake(self) -> None:
        """Something changed: a cycle may decide more, or differently."""
        self._obey(self._pacing.handle(_CHANGED, self._clock()))

    def may_send(self, uid: str) -> bool:
        """Tell whether a binding that has begun may still be sent for the first time."""
        return self._plans.may_send(uid) and self._pacing.may_send(uid)

    def find_refused(self) -> set[str]:
        """Return the tenants whose bindings fail or hang now."""
        return self._pacing.find_refused()

    def note_awaits(self, uid: str, awaits: bool) -> None:  # noqa: FBT001 - the claim binder's callback
        """A binding waits for the claims of its pod, or not any more."""
        self._obey(self._pacing.handle(BindAwaits(uid, awaits), self._clock()))

    def note_on_its_way(self, uid: str, tenant: str, has_capacity: bool) -> None:  # noqa: FBT001 - as `Gates.recover` asks
        """Note a pod whose gate is open and that has no node, at the beginning of a time as leader."""
        self._obey(self._pacing.handle(PodOnItsWay(uid, tenant, has_capacity), self._clock()))

    def note_reserved(self, uid: str, has_capacity: bool) -> None:  # noqa: FBT001 - the cache's callback
        """Other capacity is reserved for a pod on its way, or none any more."""
        self._obey(self._pacing.handle(PodReserved(uid, has_capacity), self._clock()))

    def note_arrival(self, uid: str, is_bound: bool) -> None:  # noqa: FBT001 - the cache's callback
        """A rationed pod has come to a node, or is gone."""
        self._obey(self._pacing.handle(PodArrived(uid, is_bound), self._clock()))

    def note_asked(self, binding: str, tenant: str, namespace: str) -> None:
        """Note that a binding begins because another scheduler asked for it."""
        self._obey(self._pacing.handle(BindAsked(binding, tenant, namespace), self._clock()))

    def note_stall(self, binding: str, failed: bool) -> None:  # noqa: FBT001 - what the binder's callback says
        """Note that a binding takes long, or that an attempt failed."""
        self._obey(self._pacing.handle(BindStalled(binding, failed), self._clock()))

    def note_answered(self, binding: str, result: BindResult) -> None:
        """Note the end of a binding that another scheduler asked for."""
        self._obey(self._pacing.handle(BindAnswered(binding, result), self._clock()))

    async def run(self) -> None:
        """Decide until cancelled. Bindings in flight go on after it."""
        while True:
            now = await self._wait_until_due()
            self._obey(self._pacing.handle(_TICK, now))

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait for the bindings in flight; True when all have ended in time."""
        return await self._plans.drain(timeout_seconds)

    async def _wait_until_due(self) -> float:
        """Wait until the time that pacing named last, and return the time of the step.

        Timers may fire some time before the clock gets there; the step is due all the same.
        """
        while (seconds := self._wake_at - self._clock()) > 0:
            self._earlier.clear()
            try:
                async with asyncio.timeout(seconds):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await self._earlier.wait()
            except TimeoutError:
                break
        return max(self._clock(), self._wake_at)

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case WakeAt(at):
                    self._wake_at = at
                    self._earlier.set()
                case Forget(uid, postponed):
                    self._world.forget(uid, postponed=postponed)
                case Resume(uid):
                    self._resume(uid)
                case GiveBack(uid):
                    self._give_back(uid)
                case BackOff(uid):
                    self._world.back_off(uid)
                case RunCycle():
                    self._obey(self._run_cycle(instruction))
                case Beat():
                    self._health.beat()

    def _resume(self, uid: str) -> None:
        try:
            self._world.resume(uid)
        except Exception:  # noqa: BLE001 - a bug; the others must not wait for ever because of it
            _log.exception("resuming %s failed", uid)

    def _give_back(self, uid: str) -> None:
        assert self._gates is not None
        try:
            is_refused = self._gates.give_back(uid)
        except Exception:  # noqa: BLE001 - a bug; the others must not wait for ever because of it
            _log.exception("taking the reservation of %s back failed", uid)
            return
        if is_refused:
            self._obey(self._pacing.handle(PodRefused(uid), self._clock()))

    def _begin_round(self, *, opens: bool) -> Callable[[str, int], bool]:
        """Return what says whether a plan of so many pods of a tenant may be decided in this cycle."""
        if self._gates is None:
            return lambda _tenant, _count: opens
        limiter, now = self._gates.gate_limiter, self._clock()
        return (limiter.begin_round(now) if opens else limiter.let_newcomers_in(now)).take

    def _may_begin(self, task_class: TaskClass) -> bool:
        """Tell whether a cycle amid a round may decide a pod of a class."""
        if not task_class.is_rationed:
            return True
        is_joint = task_class.group is not None and task_class.group.lacking > 1  # amid a round each takes one place
        if self._gates is None or task_class.blocked is not None or is_joint:
            return False
        return self._gates.gate_limiter.lets_in(task_class.tenant)

    def _find_opens(self, bindings: Iterable[Bind]) -> frozenset[str]:
        """Return the UIDs of the pods whose gate opens when they are decided."""
        if self._gates is None:
            return frozenset()
        return frozenset(bind.task.uid for bind in bindings if self._gates.is_gated(bind.task.uid))

    def _find_scale_ups(self, snapshot: Snapshot, report: CycleReport) -> Sequence[Bind]:
        if self._gates is None or not self._gates.gate_limiter.most_scale_ups:
            return ()
        return find_scale_ups(snapshot, report, self._gates.is_gated)

    # --- cycles ---

    def _run_cycle(self, order: RunCycle) -> Sequence[Instruction]:
        """Run one cycle and begin its bindings; return what is to be done after it."""
        if not self._may_decide():
            self._decider.reservations.end_all()  # the replica that decides has its own
            return self._pacing.handle(CycleSkipped(), self._clock())
        started, before = self._clock(), self._pacing.get_state()
        self._cycles += 1
        classes: int | None = None
        try:
            snapshot = self._world.build_snapshot()
            classes = len(snapshot.task_classes)
            if not classes and snapshot.is_current:
                self._note_nothing_waits(len(snapshot.servers.names))
                return self._pacing.handle(NothingWaits(), self._clock())
            if not order.opens and not any(self._may_begin(each) for each in snapshot.task_classes):
                return self._pacing.handle(CycleSkipped(), self._clock())
            may_have = self._begin_round(opens=order.opens)
            report = self._decider.decide(snapshot, self._world.settings, self._wall_clock(), order, may_have=may_have)
            decided = Decided(
                report.plans,
                report.complete and not report.reopens,
                classes,
                self._find_opens(report.bindings),
                self._find_scale_ups(snapshot, report),
                report.is_rationed,
                report.again_in,
            )
            binds = self._pacing.handle(decided, self._clock())
            classes = None  # pacing knows
            self._begin(binds)
            is_next_different = self._note_waits(report, snapshot, rotates=order.rotates)
        except Exception:  # noqa: BLE001 - whatever it was, the loop goes on
            self._observer.cycle_failed()
            _log.exception("a scheduling cycle failed; the next one is in %s s", pacing.FAILED_CYCLE_SECONDS)
            return self._pacing.handle(CycleFailed(classes), self._clock())
        seconds = self._clock() - started
        self._observer.cycle_finished(seconds)
        _log.debug(
            "cycle: %d decided, %d classes wait, %s, %.1f ms",
            len(report.bindings),
            len(report.waits),
            "complete" if report.complete else "more to do",
            seconds * 1000,
        )
        if self._journal is not None:
            with self._failures.contain("journal"):
                self._journal.record(make_record(self._cycles, order, before, snapshot, report, seconds))
        return self._pacing.handle(CycleEnded(seconds, is_next_different), self._clock())

    def _note_nothing_waits(self, node_count: int) -> None:
        self._noted = ()
        self._decider.reservations.end_all()
        self._world.note_waits(())
        with self._failures.contain("recorder"):
            self._announcer.note_waits((), node_count)

    def _note_waits(self, report: CycleReport, snapshot: Snapshot, *, rotates: bool) -> bool:
        """Say why classes wait; return whether the next cycle looks at others."""
        if report.complete:
            with self._failures.contain("recorder"):
                self._announcer.note_waits(report.waits, len(snapshot.servers.names))
        if report.waits == self._noted and self._has_rotated >= rotates and snapshot.is_current:
            return False
        self._noted, self._has_rotated = report.waits, rotates
        return self._world.note_waits(report.waits, rotates=rotates)

    # --- bindings ---

    def _begin(self, instructions: Iterable[Instruction]) -> None:
        """Begin the plans; those that cannot begin are withdrawn, also the rest when an error ends it amid them."""
        instructions = list(instructions)
        plans = (plan for plan in instructions if isinstance(plan, Plan))
        for plan in plans:
            pods: list[PodToBind] = []
            is_stuck = False
            try:
                for bind in plan.binds:
                    pod = self._world.find_pod(bind.task.uid)
                    if pod is None or not self._take(bind, joins=bool(pods)):
                        is_stuck = pod is not None and bool(pods)  # else it went away while we decided
                        break
                    pods.append(pod)
            except Exception:
                self._withdraw(plan, len(pods))
                for lost in plans:
                    self._withdraw(lost)
                raise
            if len(pods) < len(plan.binds) or plan.evictions:  # nothing evicts yet
                self._withdraw(plan, len(pods), is_stuck=is_stuck)
                continue
            self.decided += len(pods)
            self._plans.begin(plan, pods)
        self._obey(instruction for instruction in instructions if isinstance(instruction, BackOff))

    def _take(self, bind: Bind, *, joins: bool) -> bool:
        """Let a pod hold its capacity from now on, or count without any; False when it waits no more.

        joins: whether others of its plan hold theirs.
        """
        if not bind.server and self._gates is not None:
            return self._gates.scale_up(bind.task.uid)
        return self._world.assume(bind.task.uid, bind.server, joins=joins)

    def _withdraw(self, plan: Plan, taken: int = 0, *, is_stuck: bool = False) -> None:
        """Let none of a plan begin. taken: so many of its pods hold their capacity already. is_stuck: see the event."""
        for bind in plan.binds[:taken]:
            self._world.forget(bind.task.uid)
        for bind in plan.binds:
            self._obey(self._pacing.handle(BindWithdrawn(bind.task.uid, is_stuck), self._clock()))

    async def _send(self, bind: Bind, pod: PodToBind) -> BindResult:
        uid = bind.task.uid
        try:
            return await self._binder.bind(
                pod.namespace, pod.name, uid, bind.server, lambda failed: self.note_stall(uid, failed)
            )
        except Exception:  # noqa: BLE001 - a bug; the pod must not hold its capacity for ever because of it
            fields = _make_fields(bind, pod)
            _log.exception("binding %s/%s to %s failed", pod.namespace, pod.name, bind.server, extra=fields)
            return BindResult.FAILED

    def _end(self, bind: Bind, pod: PodToBind, result: BindResult) -> None:
        uid = bind.task.uid
        if result.is_done:
            self._observer.pod_scheduled(pod.tenant, self._wall_clock() - pod.ready_since)
        for instruction in self._pacing.handle(BindEnded(uid, result), self._clock()):
            if isinstance(instruction, Announce):
                self._on_bound(uid)
                with self._failures.contain("recorder"):
                    self._announcer.scheduled(pod.namespace, pod.name, uid, bind.server)
            else:
                self._obey((instruction,))
        if _log.isEnabledFor(logging.DEBUG):
            fields = {**_make_fields(bind, pod), "reason": result.value}
            _log.debug("%s/%s -> %s: %s", pod.namespace, pod.name, bind.server, result.value, extra=fields)


def _make_fields(bind: Bind, pod: PodToBind) -> dict[str, str]:
    return {"pod": f"{pod.namespace}/{pod.name}", "node": bind.server, "tenant": pod.tenant}


def make_record(
    number: int, order: RunCycle, before: PacingState, snapshot: Snapshot, report: CycleReport, seconds: float
) -> CycleRecord:
    """Return what a journal keeps of a cycle. before: the state of pacing when the cycle began."""
    return CycleRecord(
        number=number,
        time=report.now,
        seconds=seconds,
        policy=report.policy,
        limit=order.limit,
        explains=order.explains,
        outstanding=before.outstanding,
        has_more=before.has_more,
        world=compute_fingerprint(snapshot),
        bindings=tuple((bind.task.uid, bind.server) for bind in report.bindings),
        complete=report.complete,
        turns=order.rotates,
        plans=list_plans(report),
        reserved=report.reserved or UNSET,
    )
