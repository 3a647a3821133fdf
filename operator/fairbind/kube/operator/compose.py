"""The parts of one replica, made and tied together: each is told of the others what it must know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.group_conditions import list_awaited_groups, list_group_conditions
from fairbind.cluster.cache.group_evictions import GroupEvictions
from fairbind.cluster.cache.listeners import PodListeners
from fairbind.cluster.cache.tenant_view import TenantView
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.tenancy.administration import Administration
from fairbind.kube.client.api import Api
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import POLICIES, TENANTS
from fairbind.kube.fair_shares.fair_shares import FairShares
from fairbind.kube.observer import Observer
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.custom_resources import CustomResources
from fairbind.kube.operator.election import Election, OnChange
from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.extender import ExtenderMode, ExtenderSettings
from fairbind.kube.operator.gates import Gates
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.lead import Lead
from fairbind.kube.operator.list_once import make_reflectors
from fairbind.kube.operator.loop import Journal, SchedulingLoop
from fairbind.kube.operator.overviews import Overviews
from fairbind.kube.operator.sight import Sight
from fairbind.kube.operator.surroundings import Follower, OperatorSettings, Surroundings
from fairbind.kube.operator.unconfirmed import UnconfirmedBindings
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.claim_binder import ClaimBinder
from fairbind.kube.writers.group_status import GroupStatusWriter
from fairbind.kube.writers.group_undo import GroupUndoer
from fairbind.kube.writers.nominator import Nominator
from fairbind.kube.writers.recorder import Recorder, WaitingPod
from fairbind.kube.writers.share_report import ReportWords
from fairbind.kube.writers.share_reports import ShareReportWriter
from fairbind.kube.writers.status import StatusWriter
from fairbind.kube.writers.volcano_phases import VolcanoPhases

Run = Callable[[], Coroutine[Any, Any, None]]


class Parts:
    """All parts of one replica. reporting: the parts that only report, by name, and what runs each until cancelled."""

    def __init__(
        self,
        settings: OperatorSettings,
        credentials: Credentials,
        api: Api,
        observer: Observer,
        health: Health,
        reinstall_signals: Callable[[], None],
        *,
        surroundings: Surroundings,
        journal: Journal | None,
        on_lead: OnChange,
    ) -> None:
        """on_lead: called when this replica begins to lead or ends. For the rest see `Operator`."""
        clocks = surroundings.clocks
        self.failures = PartFailures(observer)
        self._observer = observer
        self._decider = Decider()
        self.cache = ClusterCache(
            settings.scheduler_name,
            self._note_change,
            **settings.find_cache_fields(),
            listeners=PodListeners(
                arrival=self._note_arrival,
                opened=self._note_opened,
                reserved=self._note_reserved,
                rejection=self._note_rejection,
            ),
            list_closed=self._decider.reservations.list_closed,
            wall_clock=clocks.wall,
        )
        self.cache.state.groups.undoing.rule = settings.undo_rule
        administration = Administration(self.cache, self._note_change, AdministrationLog())
        reflectors = make_reflectors(api, self.cache, observer.watch_restarted, jitter=surroundings.randomness.random)
        follower = _make_follower(administration, api, credentials, observer, health, surroundings, reinstall_signals)
        self.sight = Sight(reflectors, follower, observer, clocks.monotonic)
        self.binder = self._make_binder(api, surroundings)
        self.lead = Lead(_make_elector(api, settings, surroundings, on_lead), self.binder, self.sight)
        self.claim_binder = self._make_claim_binder(clocks.monotonic)
        self.recorder = self._make_recorder(api, settings, clocks.monotonic)
        fair_shares = FairShares(
            self.cache, surroundings.make_solver(), observer, failures=self.failures, clock=clocks.monotonic
        )
        self.overviews = Overviews(
            self.cache,
            fair_shares,
            observer,
            self.failures,
            self.lead.may_decide,
            sum_reserved=self._decider.reservations.sum_by_tenant,
            find_refused=self._find_refused,
        )
        self.unconfirmed = UnconfirmedBindings(self.cache, reflectors["pods"].relist, clock=clocks.monotonic)
        self.gates = None if settings.gates is None else Gates(settings.gates, self.cache, self.binder, self.recorder)
        self.extender = None if settings.extender is None else self._make_extender(settings.extender, surroundings)
        self.loop = self._make_loop(health, surroundings, journal)
        if self.extender is not None:
            self.extender.follow(self.loop)
        self.claim_binder.on_wait = self.loop.note_awaits
        self.reporting = self._list_reporting(api, administration, fair_shares, clocks.monotonic)
        if settings.undo_rule.evicts:
            self.reporting["group_undo"] = self._make_undoer(api, clocks.monotonic).run
        if settings.report_words is not None:
            self.reporting["share_reports"] = self._make_share_reports(api, settings.report_words, clocks).run
        if settings.volcano_inqueue:
            self.reporting["volcano_phases"] = self._make_volcano_phases(api, clocks.monotonic).run

    @property
    def rationing(self) -> Gates | ExtenderMode | None:
        """The part by which another scheduler's pods are rationed, or None."""
        return self.gates or self.extender

    def _list_reporting(
        self, api: Api, administration: Administration, fair_shares: FairShares, clock: Callable[[], float]
    ) -> dict[str, Run]:
        may_decide, may_bind = self.lead.may_decide, self.lead.elector.may_bind
        nominator = Nominator(api, self.cache.queries, may_bind, may_decide, self.failures, clock)
        list_conditions = partial(list_group_conditions, self.cache.state)
        groups = GroupStatusWriter(api, list_conditions, may_bind, may_decide, self.failures, clock)
        status = StatusWriter(
            api,
            administration,
            find_overview=lambda: self.overviews.last,
            find_states=lambda: self.overviews.states,
            find_unknown_resources=lambda: self.cache.queries.unknown_fairness_resources,
            describe_fair_shares=fair_shares.describe,
            find_unplaced=None if self.gates is None else self.gates.find_unplaced,
            may_write=may_bind,
            count_bindings=lambda: self.binder.in_flight,
            failures=self.failures,
            clock=clock,
        )
        parts: dict[str, Run] = {
            "overview": self.overviews.run,
            "fair_shares": fair_shares.run,
            "recorder": self.recorder.run,
            "nominator": nominator.run,
            "group_status": groups.run,
            "claims": partial(self.claim_binder.run, may_decide),
            "status": status.run,
        }
        return parts if self.rationing is None else {**parts, "turns": partial(self.rationing.run, may_decide)}

    def _make_undoer(self, api: Api, clock: Callable[[], float]) -> GroupUndoer:
        return GroupUndoer(
            api,
            GroupEvictions(self.cache.state),
            self.recorder.tell,
            observer=self._observer,
            is_leading=self.lead.elector.may_bind,
            may_decide=self.lead.may_decide,
            failures=self.failures,
            clock=clock,
        )

    def _make_volcano_phases(self, api: Api, clock: Callable[[], float]) -> VolcanoPhases:
        list_awaited = partial(list_awaited_groups, self.cache.state)
        may_bind, may_decide = self.lead.elector.may_bind, self.lead.may_decide
        return VolcanoPhases(api, list_awaited, may_bind, may_decide, self.failures, clock)

    def _make_share_reports(self, api: Api, words: ReportWords, clocks: Clocks) -> ShareReportWriter:
        return ShareReportWriter(
            api,
            TenantView(self.cache.state),
            find_overview=lambda: self.overviews.last,
            may_write=self.lead.elector.may_bind,
            may_look=self.lead.may_decide,
            words=words,
            failures=self.failures,
            clock=clocks.monotonic,
            wall_clock=clocks.wall,
        )

    def _make_loop(self, health: Health, surroundings: Surroundings, journal: Journal | None) -> SchedulingLoop:
        rationing = self.rationing
        return SchedulingLoop(
            self.cache,
            self.claim_binder if rationing is None else rationing.make_carrier(self.claim_binder),
            self.recorder,
            observer=self._observer,
            health=health,
            may_decide=self.lead.answer_loop,
            clock=surroundings.clocks.monotonic,
            wall_clock=surroundings.clocks.wall,
            journal=journal,
            failures=self.failures,
            on_bound=self.unconfirmed.accepted,
            gates=None if rationing is None else rationing.rules,
            readiness=self.claim_binder,
            decider=self._decider,
        )

    def _make_claim_binder(self, clock: Callable[[], float]) -> ClaimBinder:
        cache, count = self.cache, self._observer.binding_finished
        return ClaimBinder(
            self.binder, cache.queries, cache.rest_claim, on_refused=self._note_refused, on_result=count, clock=clock
        )

    def _make_extender(self, settings: ExtenderSettings, surroundings: Surroundings) -> ExtenderMode:
        return ExtenderMode(
            settings,
            self.cache,
            self.binder,
            self.recorder,
            may_answer=self.lead.may_decide,
            find_overview=lambda: self.overviews.last,
            on_bound=self.unconfirmed.accepted,
            clocks=surroundings.clocks,
        )

    def _may_send(self, uid: str) -> bool:
        return self.loop.may_send(uid)  # made after the binder

    def _make_binder(self, api: Api, surroundings: Surroundings) -> Binder:
        return Binder(
            api,
            self._observer,
            may_bind=lambda: self.lead.elector.may_bind() and not self.sight.needs_list(),
            may_use=self.cache.queries.may_use,
            has_capacity=self.cache.queries.has_capacity,
            may_send=self._may_send,
            on_refused=self._note_refused,
            clock=surroundings.clocks.monotonic,
            randomness=surroundings.randomness,
        )

    def _make_recorder(self, api: Api, settings: OperatorSettings, clock: Callable[[], float]) -> Recorder:
        return Recorder(
            api,
            scheduler_name=settings.scheduler_name,
            identity=settings.identity,
            is_leading=self.lead.elector.may_bind,
            binds_in_flight=lambda: self.binder.in_flight,
            count_decided=lambda: self.loop.decided,
            find_waiting=self._find_waiting,
            find_generation=self.cache.queries.find_generation,
            shows_taints=settings.shows_taints,
            failures=self.failures,
            clock=clock,
        )

    def _find_waiting(self, uid: str) -> WaitingPod | None:
        pod = self.cache.find_pod(uid)
        if pod is None or not pod.is_waiting or self.cache.queries.asks(uid):
            return None  # of a pod whose scheduler asks, that scheduler says why it waits
        where = pod.namespace, pod.name, pod.resource_version
        said, generation = pod.scheduled_message, pod.scheduled_generation
        return WaitingPod(*where, said, pod.unsupported, pod.owner, pod.is_gated, generation)

    def _note_change(self) -> None:
        """Something in the cache changed."""
        self.loop.wake()

    def _note_rejection(self, rejection: str) -> None:
        """A kubelet refused a pod; every replica sees it, the leader counts it."""
        if self.lead.elector.leading:
            self._observer.pod_rejected(rejection)

    def _note_arrival(self, uid: str, is_bound: bool) -> None:  # noqa: FBT001 - the cache's callback
        """A rationed pod has come to a node, or is gone."""
        if self.rationing is not None:
            self.rationing.note_arrival(uid)
            self.loop.note_arrival(uid, is_bound)

    def _note_opened(self, uid: str) -> None:
        """The gate of a rationed pod is open."""
        if self.gates is not None:
            self.gates.note_opened(uid)

    def _note_reserved(self, uid: str, has_capacity: bool) -> None:  # noqa: FBT001 - the cache's callback
        """Other capacity is reserved for a pod on its way, or none any more."""
        self.loop.note_reserved(uid, has_capacity)

    def _find_refused(self) -> Collection[str]:
        """Return the tenants whose bindings fail or hang."""
        return self.loop.find_refused()

    def _note_refused(self, namespace: str, uid: str, deed: str, answer: str) -> None:
        """Have a pod told that its binding, or the opening of its gate, failed."""
        with self.failures.contain("recorder"):
            self.recorder.refused(namespace, uid, deed, answer)


def _make_follower(
    administration: Administration,
    api: Api,
    credentials: Credentials,
    observer: Observer,
    health: Health,
    surroundings: Surroundings,
    reinstall_signals: Callable[[], None],
) -> Follower:
    tables = {TENANTS: administration.tenants, POLICIES: administration.policies}
    if surroundings.make_follower is not None:
        return surroundings.make_follower(tables)
    return CustomResources(
        api, credentials, tables, observer=observer, health=health, reinstall_signals=reinstall_signals
    )


def _make_elector(api: Api, settings: OperatorSettings, surroundings: Surroundings, on_lead: OnChange) -> Election:
    if surroundings.make_election is not None:
        return surroundings.make_election(on_lead)
    return Elector(
        api,
        settings.namespace,
        identity=settings.identity,
        on_change=on_lead,
        clock=surroundings.clocks.steady,
        randomness=surroundings.randomness,
    )
