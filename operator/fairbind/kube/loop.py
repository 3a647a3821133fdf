"""The loop that decides: woken by changes, one cycle for a batch of them, bindings carried out beside it.

A cycle starts when something changed, `COALESCE_SECONDS` later, so that the order is decided over the batch and not by
who arrived first within it; when cycles are long the pause grows with them, so that deciding takes at most about half
of the time. A cycle decides no more than keeps the binder busy while the next one is made: decisions stay fresh, and
the order stays right when something changes in the middle of a long backlog. Decisions are assumed in the mirror at
once, so the next cycle counts them although the API server has not heard of them yet.

A binding that failed gives its room back at once, and its pod waits for the API's word: 1 to 10 seconds, longer each
time. A cycle that raises an error executes nothing, is counted, and is tried again later; the loop goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fairbind.kube.binder import BindResult
from fairbind.kube.health import Health
from fairbind.kube.observer import Observer
from fairbind.model import Bind, CycleReport, PolicySettings, Snapshot, Wait
from fairbind.scheduling import MANY_CLASSES, CycleState, Memory, run_cycle

COALESCE_SECONDS = 0.05
BEAT_SECONDS = 5.0
SWEEP_SECONDS = 300.0
MAX_OUTSTANDING = 256
"""Decisions that are not carried out yet, at most: twice what the binder has in flight."""
LOW_WATER = 160
"""A cycle that was ended by the limit goes on when no more than this are left: what is in flight, and as much as ends
while the next cycle decides."""
EXPLAIN_SECONDS = 5.0
EXPLAIN_SECONDS_PER_CLASS = 5e-4
"""How old the explanation of a class may be when very many wait: a fiftieth of the time goes into explaining them."""
FIRST_POSTPONE_SECONDS = 1.0
MAX_POSTPONE_SECONDS = 10.0
FAILED_CYCLE_SECONDS = 1.0
MAX_REMEMBERED = 10_000
"""How many pods are known to have failed before, at most."""

_log = logging.getLogger(__name__)


class PodRecord(Protocol):
    """What the loop must know of a pod. created: seconds since the epoch."""

    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def created(self) -> float: ...  # noqa: D102


class World(Protocol):
    """The mirror, as the loop sees it."""

    @property
    def settings(self) -> PolicySettings: ...  # noqa: D102
    def build_snapshot(self) -> Snapshot: ...  # noqa: D102
    def assume(self, uid: str, node: str) -> bool: ...  # noqa: D102
    def forget(self, uid: str, *, postponed: bool = False) -> None: ...  # noqa: D102
    def resume(self, uid: str) -> None: ...  # noqa: D102
    def find_pod(self, uid: str) -> PodRecord | None: ...  # noqa: D102
    def note_waits(self, waits: Sequence[Wait]) -> None: ...  # noqa: D102


class BindCarrier(Protocol):
    """The binder, as the loop sees it."""

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> BindResult: ...  # noqa: D102


class Announcer(Protocol):
    """The recorder, as the loop sees it."""

    def scheduled(self, namespace: str, name: str, uid: str, node: str) -> None: ...  # noqa: D102
    def note_waits(self, waits: Sequence[Wait], node_count: int) -> None: ...  # noqa: D102


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
    ) -> None:
        """wall_clock: seconds since the epoch, as pods' creation times are. clock: monotonic."""
        self._world = world
        self._binder = binder
        self._announcer = announcer
        self._observer = observer
        self._health = health
        self._may_decide = may_decide
        self._clock = clock
        self._wall_clock = wall_clock
        self._wake = asyncio.Event()
        self._outstanding: set[asyncio.Task[None]] = set()
        self._postponed_seconds: dict[str, float] = {}
        self._has_more = False
        self._last_cycle_seconds = 0.0
        self._memory = Memory()
        self._state = CycleState()
        self._explain_at = 0.0
        self._explains_later = False
        self._noted: Sequence[Wait] = ()
        self.decided = 0

    def wake(self) -> None:
        """Something changed: a cycle may decide more, or differently."""
        self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled. Bindings in flight go on after it."""
        swept_at = self._clock()
        while True:
            self._health.beat()
            try:
                async with asyncio.timeout(BEAT_SECONDS):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await self._wake.wait()
            except TimeoutError:
                if self._clock() - swept_at < SWEEP_SECONDS:
                    continue
                swept_at = self._clock()
            if not self._has_more:
                await asyncio.sleep(max(COALESCE_SECONDS, self._last_cycle_seconds))
            self._wake.clear()
            room = MAX_OUTSTANDING - len(self._outstanding)
            self._has_more |= room <= 0  # what woke us is not decided yet
            if self._has_more and len(self._outstanding) > LOW_WATER:
                continue  # woken again when enough of them have ended
            if self._may_decide():
                await self._decide(room)

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait for the bindings in flight; True when all have ended in time."""
        if not self._outstanding:
            return True
        _, pending = await asyncio.wait(set(self._outstanding), timeout=timeout_seconds)
        return not pending

    async def _decide(self, limit: int) -> None:
        started = self._clock()
        try:
            snapshot = self._world.build_snapshot()
            settings = self._world.settings
            if not snapshot.task_classes:
                self._has_more = False
                self._noted = ()
                self._world.note_waits(())
                self._announcer.note_waits((), len(snapshot.servers.names))
                return
            memory = self._choose_memory(snapshot, started)
            report = run_cycle(snapshot, settings, self._wall_clock(), limit=limit, memory=memory, state=self._state)
            self._execute(report)
            if report.complete:
                self._announcer.note_waits(report.waits, len(snapshot.servers.names))
            if report.waits != self._noted:
                self._world.note_waits(report.waits)
                self._noted = report.waits
        except Exception:  # noqa: BLE001 - whatever it was, the loop goes on
            self._observer.cycle_failed()
            _log.exception("a scheduling cycle failed; the next one is in %s s", FAILED_CYCLE_SECONDS)
            await asyncio.sleep(FAILED_CYCLE_SECONDS)
            self.wake()
            return
        self._has_more = not report.complete
        if self._has_more and len(self._outstanding) <= LOW_WATER:
            self.wake()
        self._last_cycle_seconds = self._clock() - started
        self._observer.cycle_finished(self._last_cycle_seconds)
        _log.debug(
            "cycle: %d decided, %d classes wait, %s, %.1f ms",
            len(report.bindings),
            len(report.waits),
            "complete" if report.complete else "more to do",
            self._last_cycle_seconds * 1000,
        )

    def _choose_memory(self, snapshot: Snapshot, now: float) -> Memory | None:
        """Return what the last cycle saw fit nowhere, if so many classes wait that to look at all would take long.

        Now and then all are looked at and explained anew, and once more after the last change.
        """
        if len(snapshot.task_classes) < MANY_CLASSES:
            self._memory.forget()
            return None
        if now >= self._explain_at:
            self._memory.forget()
            self._explain_at = now + max(EXPLAIN_SECONDS, EXPLAIN_SECONDS_PER_CLASS * len(snapshot.task_classes))
            self._explains_later = False
        elif not self._explains_later:
            self._explains_later = True
            asyncio.get_running_loop().call_later(self._explain_at - now, self.wake)
        return self._memory

    def _execute(self, report: CycleReport) -> None:
        for bind in report.bindings:
            pod = self._world.find_pod(bind.task.uid)
            if pod is None or not self._world.assume(bind.task.uid, bind.server):
                continue  # it went away while we decided
            self.decided += 1
            task = asyncio.get_running_loop().create_task(self._carry_out(bind, pod), name=f"bind {bind.task.name}")
            self._outstanding.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._outstanding.discard(task)
        if self._has_more and len(self._outstanding) <= LOW_WATER:
            self.wake()

    async def _carry_out(self, bind: Bind, pod: PodRecord) -> None:
        uid = bind.task.uid
        try:
            result = await self._binder.bind(pod.namespace, pod.name, uid, bind.server)
        except Exception:  # noqa: BLE001 - a bug; the pod must not hold its room for ever because of it
            _log.exception("binding %s/%s to %s failed", pod.namespace, pod.name, bind.server)
            result = BindResult.FAILED
        if result is BindResult.BOUND:
            self._postponed_seconds.pop(uid, None)
            self._observer.pod_scheduled(self._wall_clock() - pod.created)
            self._announcer.scheduled(pod.namespace, pod.name, uid, bind.server)
        elif result in {BindResult.FENCED, BindResult.STALE, BindResult.CROWDED}:
            self._world.forget(uid)
        else:
            self._postpone(uid)
        _log.debug("%s/%s -> %s: %s", pod.namespace, pod.name, bind.server, result.value)

    def _postpone(self, uid: str) -> None:
        """Take the decision back; the pod has its next turn after a while, longer each time."""
        seconds = min(2 * self._postponed_seconds.get(uid, FIRST_POSTPONE_SECONDS / 2), MAX_POSTPONE_SECONDS)
        if len(self._postponed_seconds) >= MAX_REMEMBERED:
            self._postponed_seconds.pop(next(iter(self._postponed_seconds)))
        self._postponed_seconds[uid] = seconds
        self._world.forget(uid, postponed=True)
        asyncio.get_running_loop().call_later(seconds, self._world.resume, uid)
