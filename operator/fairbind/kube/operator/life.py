"""The life of one replica, which has three parts.

*Listing*: nothing is decided, and no lease is asked for, before pods, nodes, namespaces, Tenants and policies are all
listed; a replica that cannot see must not keep the lease from one that can. *Running*: every replica keeps its cache
warm and its metrics true, the leader decides. *Ending*: no new decisions, the bindings in flight come to their end, the
lease is given back, all within `STOP_SECONDS`.

A replica that begins to lead lists all pods once more before its first cycle: its watch may not have brought the last
bindings of the leader before it, and what it has not seen it would place others upon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fairbind.kube.client.api import Api
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import POLICIES, TENANTS
from fairbind.kube.observer import Observer
from fairbind.kube.operator.compose import Parts
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.loop import Journal
from fairbind.kube.operator.loop_lag import LoopLag
from fairbind.kube.operator.surroundings import OperatorSettings, Surroundings
from fairbind.kube.operator.tasks import Tasks, cancel

STOP_SECONDS = 8.0
"""Below the 10 s that were promised; a pod's grace period is 30 s by default."""
FLUSH_SECONDS = 1.0
WATCH_SECONDS = 1.0
CATCH_UP, UNCONFIRMED, ELECTOR = "catch up", "unconfirmed bindings", "elector"
PASSING = frozenset({CATCH_UP, UNCONFIRMED})
"""Tasks that may come to their end while everything goes on."""
_log = logging.getLogger(__name__)


class Operator:
    """One replica: its parts, and the tasks that they live in."""

    def __init__(
        self,
        settings: OperatorSettings,
        credentials: Credentials,
        api: Api,
        observer: Observer,
        health: Health,
        reinstall_signals: Callable[[], None],
        *,
        journal: Journal | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        surroundings = surroundings or Surroundings()
        self._observer = observer
        self._health = health
        self._clock = surroundings.clocks.monotonic
        self._on_listed = surroundings.on_listed
        self._serve_extender = surroundings.serve_extender
        self.parts = Parts(
            settings,
            credentials,
            api,
            observer,
            health,
            reinstall_signals,
            surroundings=surroundings,
            journal=journal,
            on_lead=self.note_lead,
        )
        self.tasks = Tasks(self.parts.failures, PASSING)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, and then end in order. FairbindError when a part of it came to an end by itself."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            self._start_listening()
            if await self.tasks.run_until(stopping, self.parts.sight.wait_until_listed()):
                self._start_acting()
                try:
                    await self.tasks.run_until(stopping)
                finally:
                    await self.end()
        finally:
            await cancel([stopping])
            await self.tasks.end_all()
            self._observer.leadership_changed(leading=False)

    def _start_listening(self) -> None:
        parts, start = self.parts, self.tasks.start
        for name, reflector in parts.sight.reflectors.items():
            start(f"watch {name}", reflector.run())
        for kind in (TENANTS, POLICIES):
            self._health.set_problem(kind, "not listed yet")
        start("custom resources", parts.sight.follower.run())
        start("watch health", self.watch_health())
        start("loop lag", LoopLag(self._clock, self._observer.loop_lagged).run())
        start("scheduling loop", parts.loop.run())
        if parts.extender is not None and self._serve_extender is not None:
            start("extender", self._serve_extender(parts.extender.answer))

    def _start_acting(self) -> None:
        cache = self.parts.cache
        self._on_listed()
        cache.build_snapshot()
        _log.info("everything is listed: %d nodes, %d pods", *cache.queries.count_objects())
        self._health.clear_problem("operator")
        self.report_health()
        for part, run in self.parts.reporting.items():
            self.tasks.start_reporting(part, run)
        self.tasks.start(ELECTOR, self.parts.lead.elector.run())

    async def end(self) -> None:
        """Stop deciding, finish what is in flight, give the lease back."""
        parts, deadline = self.parts, asyncio.get_running_loop().time() + STOP_SECONDS
        self._health.set_problem("operator", "ending")
        parts.lead.is_ending = True
        await parts.binder.drain(STOP_SECONDS - 2 * FLUSH_SECONDS)
        if not await parts.loop.drain(FLUSH_SECONDS):
            _log.warning("%d bindings had no answer in time; they are left to the next leader", parts.binder.in_flight)
        await parts.recorder.flush(FLUSH_SECONDS)
        await self.tasks.end(ELECTOR)
        try:
            async with asyncio.timeout_at(deadline):
                await parts.lead.elector.release()
        except TimeoutError:
            _log.warning("the lease could not be given back in time; it runs out by itself")

    def note_lead(self, leading: bool) -> None:  # noqa: FBT001 - the elector's callback
        """Begin to lead, or end."""
        self._observer.leadership_changed(leading)
        self.parts.lead.is_caught_up = False
        self.tasks.drop(CATCH_UP)
        if leading:
            self.tasks.start(CATCH_UP, self._catch_up())
        elif self.parts.extender is not None:
            self.parts.extender.end_permits()

    async def _catch_up(self) -> None:
        """List all pods once more, and only then decide."""
        parts = self.parts
        await parts.sight.reflectors["pods"].relist()
        if parts.gates is not None:
            parts.gates.recover(parts.loop.note_on_its_way)
        parts.lead.is_caught_up = True
        parts.loop.wake()

    async def watch_health(self) -> None:
        """Report every second what keeps the replica from being ready, until cancelled."""
        parts, might_decide = self.parts, False
        while True:
            self._health.note_event_loop()
            parts.overviews.advance_rests(self._clock())
            self.report_health()
            may_decide = parts.lead.may_decide()
            if may_decide and (parts.lead.is_deferred or not might_decide):
                parts.loop.wake()  # whatever happened meanwhile woke it in vain
            might_decide = may_decide
            if parts.unconfirmed.is_list_due() and UNCONFIRMED not in self.tasks:
                self._observer.watch_restarted("pods", "unconfirmed")
                self.tasks.start(UNCONFIRMED, parts.unconfirmed.check())
            await asyncio.sleep(WATCH_SECONDS)

    def report_health(self) -> None:
        """Report what the parts wait for. The election asks the API server every second or two, so it knows first."""
        problems = self.parts.sight.find_problems()
        elector, binder = self.parts.lead.elector, self.parts.binder
        problems["election"] = elector.problem
        problems["bindings"] = binder.problem if elector.leading else None
        for part, problem in problems.items():
            if problem is None:
                self._health.clear_problem(part)
            else:
                self._health.set_problem(part, problem)
