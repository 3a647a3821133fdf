"""The operator, put together: cache, reflectors, loop, binder, elector, recorder, status, and their common life.

Its life has three parts. *Listing*: nothing is decided, and no lease is asked for, before pods, nodes, namespaces,
Tenants and policies are all listed; a replica that cannot see must not keep the lease from one that can. *Running*:
every replica keeps its cache warm and its metrics true, the leader decides. *Ending*: no new decisions, the bindings
in flight come to their end, the lease is given back, all within `STOP_SECONDS`.

A replica that begins to lead lists all pods once more before its first cycle: its watch may not have brought the last
bindings of the leader before it, and what it has not seen it would place others upon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.tenancy.administration import Administration
from fairbind.cluster.tenancy.tenants import TenantState
from fairbind.kube.client.api import Api
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import POLICIES, TENANTS
from fairbind.kube.fair_shares.fair_shares import FairShares
from fairbind.kube.observer import Observer
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.custom_resources import CustomResources
from fairbind.kube.operator.election import Election
from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.extender import ExtenderMode, ExtenderSettings
from fairbind.kube.operator.gates import Gates
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.list_once import make_reflectors
from fairbind.kube.operator.loop import Journal, SchedulingLoop
from fairbind.kube.operator.loop_lag import LoopLag
from fairbind.kube.operator.node_fault_log import NodeFaultLog
from fairbind.kube.operator.surroundings import Follower, OperatorSettings, Surroundings
from fairbind.kube.operator.unconfirmed import UnconfirmedBindings
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.claim_binder import ClaimBinder
from fairbind.kube.writers.nominator import Nominator
from fairbind.kube.writers.recorder import Recorder, WaitingPod
from fairbind.kube.writers.status import StatusWriter
from fairbind.model import FairbindError, Snapshot
from fairbind.model.overview import ClusterOverview

STOP_SECONDS = 8.0
"""Below the 10 s that were promised; a pod's grace period is 30 s by default."""
FLUSH_SECONDS = 1.0
OVERVIEW_SECONDS = 1.0
WATCH_SECONDS = 1.0
PASSING = frozenset({"catch up", "unconfirmed bindings"})
"""Tasks that may come to their end while everything goes on."""
DECISIVE = ("pods", "nodes")
BLIND_SECONDS = 3.0
"""When pods or nodes are out of sight for longer, nothing is decided: their room may be gone, or they themselves."""
MAX_WATCH_AGE_SECONDS = 75.0
"""When the API server did not show for longer that a watch is alive, nothing is decided, whatever the watch is of."""
_log = logging.getLogger(__name__)


async def run_operator(
    settings: OperatorSettings,
    *,
    credentials: Credentials,
    api: Api,
    observer: Observer,
    health: Health,
    stop: asyncio.Event,
    reinstall_signals: Callable[[], None],
    journal: Journal | None = None,
    surroundings: Surroundings | None = None,
) -> None:
    """Run until `stop` is set and then end in order. FairbindError when a part of it came to an end by itself."""
    await Operator(
        settings, credentials, api, observer, health, reinstall_signals, journal=journal, surroundings=surroundings
    ).run(stop)


class Operator:
    """All parts of one replica."""

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
        clocks = surroundings.clocks
        self._api = api
        self._observer = observer
        self._health = health
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures = PartFailures(observer)
        self._is_caught_up = self._is_ending = self._is_put_off = False
        self._clock = clocks.monotonic
        self._on_listed = surroundings.on_listed
        self._serve_extender = surroundings.serve_extender
        self._broken_since: dict[str, float] = {}
        self._overview: ClusterOverview | None = None
        self._states: Mapping[str, TenantState] = {}
        self.cache = ClusterCache(
            settings.scheduler_name,
            self._note_change,
            **settings.find_cache_fields(),
            on_arrival=self._note_arrival,
            on_opened=self._note_opened,
            on_promised=self._note_promise,
            on_rejection=self._note_rejection,
            wall_clock=clocks.wall,
        )
        self.administration = Administration(self.cache, self._note_change, AdministrationLog())
        self._node_fault_log = NodeFaultLog()
        self.reflectors = make_reflectors(
            api, self.cache, observer.watch_restarted, jitter=surroundings.randomness.random
        )
        self.custom_resources = self._make_follower(credentials, surroundings, reinstall_signals)
        self.elector = self._make_elector(settings, surroundings)
        self.binder = self._make_binder(surroundings)
        self.claim_binder = self._make_claim_binder(clocks)
        self.recorder = self._make_recorder(settings, clocks)
        self.nominator = Nominator(
            api, self.cache.queries, self.elector.may_bind, self.may_decide, self._failures, clocks.monotonic
        )
        self.fair_shares = FairShares(
            self.cache, surroundings.make_solver(), observer, failures=self._failures, clock=clocks.monotonic
        )
        self.unconfirmed = UnconfirmedBindings(self.cache, self.reflectors["pods"].relist, clock=clocks.monotonic)
        self.gates = None if settings.gates is None else Gates(settings.gates, self.cache, self.binder, self.recorder)
        self.extender = None if settings.extender is None else self._make_extender(settings.extender, clocks)
        self._turning = self.gates or self.extender
        self.loop = self._make_loop(clocks, journal)
        if self.extender is not None:
            self.extender.follow(self.loop)
        self.status = self._make_status_writer(clocks)

    def _make_follower(
        self, credentials: Credentials, surroundings: Surroundings, reinstall_signals: Callable[[], None]
    ) -> Follower:
        tables = {TENANTS: self.administration.tenants, POLICIES: self.administration.policies}
        if surroundings.make_follower is not None:
            return surroundings.make_follower(tables)
        return CustomResources(
            self._api,
            credentials,
            tables,
            observer=self._observer,
            health=self._health,
            reinstall_signals=reinstall_signals,
        )

    def _make_loop(self, clocks: Clocks, journal: Journal | None) -> SchedulingLoop:
        carrier = self.claim_binder if self._turning is None else self._turning.make_carrier(self.claim_binder)
        return SchedulingLoop(
            self.cache,
            carrier,
            self.recorder,
            observer=self._observer,
            health=self._health,
            may_decide=self._answer_loop,
            clock=clocks.monotonic,
            wall_clock=clocks.wall,
            journal=journal,
            failures=self._failures,
            on_bound=self.unconfirmed.accepted,
            turns=None if self._turning is None else self._turning.rules,
        )

    def _make_claim_binder(self, clocks: Clocks) -> ClaimBinder:
        cache, count, clock = self.cache, self._observer.binding_finished, clocks.monotonic
        return ClaimBinder(
            self.binder, cache.queries, cache.rest_claim, on_refused=self._note_refused, on_result=count, clock=clock
        )

    def _make_extender(self, settings: ExtenderSettings, clocks: Clocks) -> ExtenderMode:
        return ExtenderMode(
            settings,
            self.cache,
            self.binder,
            self.recorder,
            may_answer=self.may_decide,
            find_overview=lambda: self._overview,
            on_bound=self.unconfirmed.accepted,
            clocks=clocks,
        )

    def _make_elector(self, settings: OperatorSettings, surroundings: Surroundings) -> Election:
        if surroundings.make_election is not None:
            return surroundings.make_election(self._lead)
        return Elector(
            self._api,
            settings.namespace,
            identity=settings.identity,
            on_change=self._lead,
            clock=surroundings.clocks.steady,
            randomness=surroundings.randomness,
        )

    def _make_binder(self, surroundings: Surroundings) -> Binder:
        return Binder(
            self._api,
            self._observer,
            may_bind=lambda: self.elector.may_bind() and not self._is_list_owed(),
            may_use=self.cache.queries.may_use,
            has_room=self.cache.queries.has_room,
            may_send=self._may_send,
            on_refused=self._note_refused,
            clock=surroundings.clocks.monotonic,
            randomness=surroundings.randomness,
        )

    def _may_send(self, uid: str) -> bool:
        return self.loop.may_send(uid)  # made after the binder

    def _make_recorder(self, settings: OperatorSettings, clocks: Clocks) -> Recorder:
        return Recorder(
            self._api,
            scheduler_name=settings.scheduler_name,
            identity=settings.identity,
            is_leading=self.elector.may_bind,
            binds_in_flight=lambda: self.binder.in_flight,
            count_decided=lambda: self.loop.decided,
            find_waiting=self._find_waiting,
            find_generation=self.cache.queries.find_generation,
            shows_taints=settings.shows_taints,
            failures=self._failures,
            clock=clocks.monotonic,
        )

    def _make_status_writer(self, clocks: Clocks) -> StatusWriter:
        return StatusWriter(
            self._api,
            self.administration,
            find_overview=lambda: self._overview,
            find_states=lambda: self._states,
            find_unknown_resources=lambda: self.cache.queries.unknown_fairness_resources,
            describe_fair_shares=self.fair_shares.describe,
            find_unplaced=None if self.gates is None else self.gates.find_unplaced,
            may_write=self.elector.may_bind,
            count_bindings=lambda: self.binder.in_flight,
            failures=self._failures,
            clock=clocks.monotonic,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Live all three parts of the operator's life."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            self._start_listening()
            if await self._run_until(stopping, self._wait_until_listed()):
                self._start_acting()
                try:
                    await self._run_until(stopping)
                finally:
                    await self._end()
        finally:
            await _cancel([stopping, *self._tasks.values()])
            self._observer.leadership_changed(leading=False)

    def _start_listening(self) -> None:
        for name, reflector in self.reflectors.items():
            self._start(f"watch {name}", reflector.run())
        for kind in (TENANTS, POLICIES):
            self._health.set_problem(kind, "not listed yet")
        self._start("custom resources", self.custom_resources.run())
        self._start("watch health", self._watch_health())
        self._start("loop lag", LoopLag(self._clock, self._observer.loop_lagged).run())
        self._start("scheduling loop", self.loop.run())
        if self.extender is not None and self._serve_extender is not None:
            self._start("extender", self._serve_extender(self.extender.answer))

    async def _wait_until_listed(self) -> None:
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        await self.custom_resources.listed.wait()

    def _start_acting(self) -> None:
        self._on_listed()
        self.cache.build_snapshot()
        _log.info("everything is listed: %d nodes, %d pods", *self.cache.queries.count_objects())
        self._health.clear_problem("operator")
        self._report_health()
        self._start_reporting("overview", self._publish_overviews)
        self._start_reporting("fair_shares", self.fair_shares.run)
        self._start_reporting("recorder", self.recorder.run)
        self._start_reporting("nominator", self.nominator.run)
        self.claim_binder.on_wait = self.loop.note_awaits
        self._start_reporting("claims", partial(self.claim_binder.run, self.may_decide))
        self._start_reporting("status", self.status.run)
        self._start("elector", self.elector.run())
        if (turning := self._turning) is not None:
            self._start_reporting("turns", partial(turning.run, self.may_decide))

    async def _end(self) -> None:
        """Stop deciding, finish what is in flight, give the lease back."""
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        self._health.set_problem("operator", "ending")
        self._is_ending = True
        await self.binder.drain(STOP_SECONDS - 2 * FLUSH_SECONDS)
        if not await self.loop.drain(FLUSH_SECONDS):
            _log.warning("%d bindings had no answer in time; they are left to the next leader", self.binder.in_flight)
        await self.recorder.flush(FLUSH_SECONDS)
        await _cancel([self._tasks.pop("elector")])
        try:
            async with asyncio.timeout_at(deadline):
                await self.elector.release()
        except TimeoutError:
            _log.warning("the lease could not be given back in time; it runs out by itself")

    def may_decide(self) -> bool:
        """Whether this replica leads, has seen all that was bound before it did, sees, and can have it carried out."""
        return (
            self._is_caught_up
            and not self._is_ending
            and self.elector.leading
            and not self._is_blind()
            and not self.binder.is_held_back()
        )

    def _answer_loop(self) -> bool:
        """Say whether it may decide, and remember a no: what woke the loop is still to be decided."""
        self._is_put_off = not self.may_decide()
        return not self._is_put_off

    def _is_blind(self) -> bool:
        """Whether pods or nodes have been out of sight for longer than an exchange of connections takes.

        Or whether anything on which decisions depend may be too old, read by half, or of a cluster that was restored.
        """
        now = self._clock()
        return (
            self._is_list_owed()
            or any(reflector.is_half_listed for reflector in self.reflectors.values())
            or any(now - since > BLIND_SECONDS for since in self._broken_since.values())
            or any(age > MAX_WATCH_AGE_SECONDS for age in self._find_watch_ages().values())
        )

    def _is_list_owed(self) -> bool:
        return any(self.reflectors[name].is_list_owed for name in DECISIVE)

    def _find_watch_ages(self) -> dict[str, float]:
        ages = {name: reflector.age for name, reflector in self.reflectors.items() if reflector.synced.is_set()}
        return ages | dict(self.custom_resources.find_ages())

    def _note_change(self) -> None:
        """Something in the cache changed."""
        self.loop.wake()

    def _note_rejection(self, rejection: str) -> None:
        """A kubelet refused a pod; every replica sees it, the leader counts it."""
        if self.elector.leading:
            self._observer.pod_rejected(rejection)

    def _note_arrival(self, uid: str, is_bound: bool) -> None:  # noqa: FBT001 - the cache's callback
        """A pod that takes turns has come to a node, or is gone."""
        if self._turning is not None:
            self._turning.note_arrival(uid)
            self.loop.note_arrival(uid, is_bound)

    def _note_opened(self, uid: str) -> None:
        """The gate of a pod that takes turns is open."""
        if self.gates is not None:
            self.gates.note_opened(uid)

    def _note_promise(self, uid: str, has_room: bool) -> None:  # noqa: FBT001 - the cache's callback
        """A pod on its way is promised other room, or has none any more."""
        self.loop.note_promise(uid, has_room)

    def _lead(self, leading: bool) -> None:  # noqa: FBT001 - the elector's callback
        self._observer.leadership_changed(leading)
        self._is_caught_up = False
        if (earlier := self._tasks.pop("catch up", None)) is not None:
            earlier.cancel()
        if leading:
            self._start("catch up", self._catch_up())
        elif self.extender is not None:
            self.extender.end_turns()

    async def _catch_up(self) -> None:
        """List all pods once more, and only then decide."""
        await self.reflectors["pods"].relist()
        if self.gates is not None:
            self.gates.recover(self.loop.note_on_its_way)
        self._is_caught_up = True
        self.loop.wake()

    def _find_waiting(self, uid: str) -> WaitingPod | None:
        pod = self.cache.find_pod(uid)
        if pod is None or not pod.is_waiting or self.cache.queries.asks(uid):
            return None  # of a pod whose scheduler asks, that scheduler says why it waits
        where = pod.namespace, pod.name, pod.resource_version
        said, generation = pod.scheduled_message, pod.scheduled_generation
        return WaitingPod(*where, said, pod.unsupported, pod.owner, pod.is_gated, generation)

    def _note_refused(self, namespace: str, uid: str, deed: str, answer: str) -> None:
        """Have a pod told that its binding, or the opening of its gate, failed."""
        with self._failures.contain("recorder"):
            self.recorder.refused(namespace, uid, deed, answer)

    async def _publish_overviews(self) -> None:
        shown: tuple[Snapshot | None, Mapping[str, float] | None] = None, None
        while True:
            if not self.may_decide():  # a standby has no cycles that would do it
                self.cache.go_on()
            now = self.cache.build_snapshot(), self.fair_shares.shares
            # A decision changes the snapshot too, although it wakes no cycle; reasons change while a pod waits.
            if any(new is not old for new, old in zip(now, shown, strict=True)) or self.cache.queries.has_waiting:
                shown = now
                with self._failures.contain("overview"):
                    self._publish_overview()
            await asyncio.sleep(OVERVIEW_SECONDS)

    def _publish_overview(self) -> None:
        overview = self.cache.queries.build_overview(self.fair_shares.shares)
        self._overview = replace(overview, audit=self.fair_shares.audit)
        self._states = self.cache.queries.tenant_states()
        self._node_fault_log.follow(self._overview.node_faults, self._overview.left_out)
        self._observer.overview_changed(self._overview)

    async def _watch_health(self) -> None:
        might_decide = False
        while True:
            self._health.note_turn()
            self._node_fault_log.note_rests(self.cache.advance_rests(self._clock()))
            self._report_health()
            may_decide = self.may_decide()
            if may_decide and (self._is_put_off or not might_decide):
                self.loop.wake()  # whatever happened meanwhile woke it in vain
            might_decide = may_decide
            if self.unconfirmed.is_list_due() and "unconfirmed bindings" not in self._tasks:
                self._observer.watch_restarted("pods", "unconfirmed")
                self._start("unconfirmed bindings", self.unconfirmed.check())
            await asyncio.sleep(WATCH_SECONDS)

    def _report_health(self) -> None:
        """Report what the parts wait for. The election asks the API server every second or two, so it knows first."""
        problems = {name: reflector.problem for name, reflector in self.reflectors.items()}
        for name in DECISIVE:
            if problems[name] is None:
                self._broken_since.pop(name, None)
            else:
                self._broken_since.setdefault(name, self._clock())
        for name, age in self._find_watch_ages().items():
            self._observer.watch_aged(name, age)
            if age > MAX_WATCH_AGE_SECONDS and problems.get(name) is None:
                problems[name] = f"no sign of life of the watch for {age:.0f} s; nothing is decided"
        problems["election"] = self.elector.problem
        problems["bindings"] = self.binder.problem if self.elector.leading else None
        for part, problem in problems.items():
            if problem is None:
                self._health.clear_problem(part)
            else:
                self._health.set_problem(part, problem)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)

    def _start_reporting(self, part: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a part that only reports: its errors end nothing."""
        self._start(part, self._failures.keep_running(part, run))

    async def _run_until(self, stopping: asyncio.Task[Any], work: Coroutine[Any, Any, None] | None = None) -> bool:
        """Wait for the work (or for ever); False when the stop came first. Raises when a part has ended by itself."""
        working = asyncio.create_task(work or asyncio.Event().wait(), name="wait")
        try:
            while not stopping.done() and not working.done():
                waited = {stopping, working, *self._tasks.values()}
                await asyncio.wait(waited, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                self._check_tasks()
        finally:
            await _cancel([working])
        return not stopping.done()

    def _check_tasks(self) -> None:
        for name, task in list(self._tasks.items()):
            if not task.done():
                continue
            error = None if task.cancelled() else task.exception()
            if name in PASSING and error is None:
                del self._tasks[name]
                continue
            raise FairbindError(f"{name} has ended: {error or 'for no known reason'}") from error


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
