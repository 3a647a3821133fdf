"""Extender mode, as a part of the operator: kube-scheduler places the pods, and asks before it does.

The loop decides as ever. To carry out a decision about a pod of kube-scheduler means to give the pod a permit and to
wake it in kube-scheduler's queue (`nudge`). How many pods may have a permit, and for how long, is decided in
`fairbind.cluster.other_schedulers.gate_limiter`; what is answered, in `extender` beside it. A binding is sent behind
the fence, as any other. It goes on when kube-scheduler gives up waiting for it, and the pod's capacity stays taken
until it is known what became of it.

Only a replica that may decide answers; another one says 503, and so does one that does not see the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.loop.pacing_events import NOT_SENT, BindResult
from fairbind.cluster.objects.extender_wire import (
    ErrorResult,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionArgs,
    Identity,
    encode,
)
from fairbind.cluster.other_schedulers.extender import OWN_REASONS, Extender, Shares
from fairbind.cluster.other_schedulers.gate_limiter import STUCK_SECONDS, GateLimiter
from fairbind.cluster.other_schedulers.laps import Laps
from fairbind.cluster.other_schedulers.permits import Permit, Permits
from fairbind.kube.bind_carrier import BindCarrier
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.loop import GateRules
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.leader_endpoint import LeaderEndpoint
from fairbind.kube.writers.nudge import Nudge, Woken
from fairbind.kube.writers.recorder import Recorder
from fairbind.model.overview import ClusterOverview

MOST_PERMITS = 200
PERMIT_SECONDS = 10.0
BACKOFF_SECONDS = 10.0
"""The longest that kube-scheduler keeps a pod out of its queue which it tried in vain while no replica led."""
MOST_NODES = 16_384
NOT_LEADING = b"this replica does not lead, or does not see the cluster\n"
NEEDS_NAMES = "the extender must be configured with nodeCacheCapable: true"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """scheduler_names: of the schedulers that ask. most, timeout_seconds: see `GateLimiter`.

    service: the Service whose endpoint the leader is, in this namespace; None: none. address, port: where this replica
    is reached.
    """

    scheduler_names: frozenset[str]
    most: int = MOST_PERMITS
    timeout_seconds: float = PERMIT_SECONDS
    service: str | None = None
    namespace: str = ""
    address: str = ""
    port: int = 0


class Loop(Protocol):
    """The loop that decides, as far as permits are concerned."""

    def note_arrival(self, uid: str, is_bound: bool) -> None: ...  # noqa: D102, FBT001 - as the cache has it
    def note_on_its_way(self, uid: str, tenant: str, has_capacity: bool) -> None: ...  # noqa: D102, FBT001 - the same
    def note_asked(self, binding: str, tenant: str, namespace: str) -> None: ...  # noqa: D102
    def note_stall(self, binding: str, failed: bool) -> None: ...  # noqa: D102, FBT001 - as the binder has it
    def note_answered(self, binding: str, result: BindResult) -> None: ...  # noqa: D102


class ExtenderMode:
    """See the module. rules: what the loop needs. It carries out the loop's decisions, after `make_carrier`."""

    def __init__(
        self,
        settings: ExtenderSettings,
        cache: ClusterCache,
        binder: Binder,
        recorder: Recorder,
        *,
        may_answer: Callable[[], bool],
        find_overview: Callable[[], ClusterOverview | None],
        on_bound: Callable[[str], None],
        clocks: Clocks,
    ) -> None:
        """may_answer: whether this replica leads and sees. on_bound: called with the UID of a pod that was bound."""
        self._cache = cache
        self._binder = binder
        self._recorder = recorder
        self._may_answer = may_answer
        self._find_overview = find_overview
        self._settings = settings
        self._on_bound = on_bound
        self._clocks = clocks
        self._permits, laps = Permits(), Laps(BACKOFF_SECONDS)
        self._extender = Extender(cache, self._permits, laps, on_passed=self._note_passed)
        self._others: BindCarrier | None = None
        self._loop: Loop | None = None
        self._outstanding: set[asyncio.Task[str]] = set()
        gate_limiter = GateLimiter(most=settings.most, timeout_seconds=settings.timeout_seconds, laps=laps)
        self.rules = GateRules(gate_limiter, cache.queries.asks, self._give_back)
        self._verbs: Mapping[str, Callable[[bytes], Any]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }

    def make_carrier(self, others: BindCarrier) -> ExtenderMode:
        """Return itself, who carries out decisions. others: who carries out those about our own pods."""
        self._others = others
        return self

    def follow(self, loop: Loop) -> None:
        """Tell this loop what becomes of permits."""
        self._loop = loop

    async def run(self, may_decide: Callable[[], bool]) -> None:
        """Let the Service lead to this replica while it may decide, until cancelled."""
        settings = self._settings
        if settings.service is None:
            await asyncio.Event().wait()
            return
        await LeaderEndpoint(
            self._binder.api,
            namespace=settings.namespace,
            service=settings.service,
            address=settings.address,
            port=settings.port,
            may_write=may_decide,
            clock=self._clocks.monotonic,
        ).run()

    # --- decisions ---

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, on_stall: Callable[[bool], None] = lambda _failed: None
    ) -> BindResult:
        """Give a pod its permit, or have it bound, and say what became of it. Raises only CancelledError."""
        pod = self._cache.find_pod(uid)
        if pod is None:
            return BindResult.GONE
        if not self._cache.queries.asks(uid):
            assert self._others is not None
            return await self._others.bind(namespace, name, uid, node, on_stall)
        if pod.assumed != node:
            return BindResult.CONFLICT  # it came to a node, or is being deleted, since the decision: its permit is over
        if not self._cache.queries.has_capacity(uid, node):
            return BindResult.OVERCOMMITTED  # its binding would fail, and kube-scheduler look at other pods for that
        permit = self._extender.make_permit(uid, pod.tenant, node)
        self._permits.give(uid, permit)
        return await self._wake(Woken(namespace, name, uid, pod.generation), permit, on_stall)

    async def _wake(self, pod: Woken, permit: Permit, on_stall: Callable[[bool], None]) -> BindResult:
        """Wake a pod that has a permit, and say what became of it. The permit ends where that fails."""
        result = await self._binder.carry(Nudge(self._binder, pod, self._clocks.wall(), on_stall))
        permit.is_given = True
        if permit.is_binding:
            return BindResult.PERMITTED  # it has asked by itself meanwhile; the binding says what becomes of it
        if self._permits.find(pod.uid) is permit and (permit.is_over or result is not BindResult.BOUND):
            self._permits.end(pod.uid)
            return BindResult.FAILED if result is BindResult.BOUND else result
        return BindResult.PERMITTED if result is BindResult.BOUND else result

    def note_arrival(self, uid: str) -> None:
        """Note that a pod has come to a node, or is gone."""
        self._extender.forget(uid)

    def end_permits(self) -> None:
        """Take all permits back, at the end of a leader's time. Bindings that are under way come to their end."""
        for uid in self._permits.end_all():
            self._cache.forget(uid)
            self._leave_place(uid)

    def _note_passed(self, other: str, uid: str, permit: Permit) -> None:
        self._leave_place(other)
        assert self._loop is not None
        self._loop.note_on_its_way(uid, permit.tenant, has_capacity=True)

    def _give_back(self, uid: str) -> bool:
        """End the permit of a pod whose time is over; return whether kube-scheduler has refused it.

        Of a pod whose message repeats a reason of ours, it has said nothing: it found nodes, and fairbind refused them.
        """
        permit = self._permits.find(uid)
        if permit is None or permit.is_fixed:
            if permit is not None:
                permit.is_over = True
            return False
        self._permits.end(uid)
        pod = self._cache.find_pod(uid)
        asyncio.get_running_loop().call_soon(self._leave_place, uid)  # who stands still is known to be stuck before it
        self._postpone(uid)
        if pod is None:
            return False
        words = pod.scheduled_message or ""
        note = f"The pod had its turn for {self._settings.timeout_seconds:.0f} s, and its scheduler has not placed it."
        self._recorder.tell(pod.namespace, pod.name, uid, "NotPlacedInTime", f"{note} {words}".rstrip())
        if words and not any(ours in words for ours in OWN_REASONS):
            return True
        return pod.nominated_node is None and self.rules.gate_limiter.was_passed(uid)

    def _postpone(self, uid: str) -> None:
        """Take the capacity of a pod back, and let it wait for another permit after a while."""
        self._cache.forget(uid, postponed=True)
        asyncio.get_running_loop().call_later(STUCK_SECONDS, self._cache.resume, uid)

    def _leave_place(self, uid: str) -> None:
        assert self._loop is not None
        self._loop.note_arrival(uid, False)

    # --- answers ---

    async def answer(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Return the HTTP status and the body with which a request of kube-scheduler is answered.

        verb: filter, prioritize, bind or preempt.
        """
        if not self._may_answer():
            return HTTPStatus.SERVICE_UNAVAILABLE, NOT_LEADING
        try:
            if verb == "bind":
                return HTTPStatus.OK, encode(ExtenderBindingResult(await self._bind(_decode_binding(body))))
            return HTTPStatus.OK, encode(self._verbs[verb](body))
        except msgspec.MsgspecError as error:
            return HTTPStatus.BAD_REQUEST, f"{error}\n".encode()

    def _filter(self, body: bytes) -> Any:
        args = _decode_args(body)
        if args.NodeNames is None or len(args.NodeNames) > MOST_NODES:
            return ErrorResult(NEEDS_NAMES if args.NodeNames is None else f"more than {MOST_NODES:,} nodes")
        return self._extender.filter(args.Pod.metadata, args.NodeNames, self._clocks.monotonic())

    def _prioritize(self, body: bytes) -> Any:
        args = _decode_args(body)
        return self._extender.prioritize(args.Pod.metadata, (args.NodeNames or [])[:MOST_NODES])

    def _preempt(self, body: bytes) -> Any:
        args = _decode_preemption(body)
        return self._extender.preempt(args.Pod.metadata, args.NodeNameToMetaVictims or {}, self._find_shares())

    def _find_shares(self) -> Shares | None:
        overview = self._find_overview()
        if overview is None:
            return None
        return {tenant.name: (tenant.dominant_share, tenant.fair_share) for tenant in overview.tenants}

    async def _bind(self, args: ExtenderBindingArgs) -> str:
        """Bind a pod, and return why it is not bound; empty when it is."""
        pod = self._cache.find_pod(args.PodUID)
        if pod is not None and pod.node is not None:
            return "" if pod.node == args.Node else f"the pod is bound to {pod.node}"
        identity = Identity(args.PodUID, args.PodNamespace, args.PodName)
        if (reason := self._extender.begin_binding(identity, args.Node)) is not None:
            return reason
        work = asyncio.get_running_loop().create_task(self._carry_out(args), name=f"bind {args.PodName}")
        self._outstanding.add(work)
        work.add_done_callback(self._outstanding.discard)
        return await asyncio.shield(work)  # it goes on when kube-scheduler waits no longer

    async def _carry_out(self, args: ExtenderBindingArgs) -> str:
        uid, result = args.PodUID, BindResult.FAILED
        permit, binding = self._permits.find(uid), f"{uid}/binding"
        assert self._loop is not None
        if permit is not None:  # a pod of no tenant needs none
            self._loop.note_asked(binding, permit.tenant, args.PodNamespace)
        on_stall = self._make_on_stall(uid, binding)
        try:
            result = await self._binder.bind(args.PodNamespace, args.PodName, uid, args.Node, on_stall)
        finally:
            if permit is not None:
                self._loop.note_answered(binding, result)
            if result is not BindResult.BOUND:
                self._end_failed(uid, result)
        if result is not BindResult.BOUND:
            return f"the pod is not bound to {args.Node}: {result.value}"
        self._on_bound(uid)
        return ""

    def _make_on_stall(self, uid: str, binding: str) -> Callable[[bool], None]:
        """Return what notes that a binding takes long, or failed and is sent again, and has its turn all the while."""

        def note(failed: bool) -> None:  # noqa: FBT001 - the one thing that the call says
            assert self._loop is not None
            self._loop.note_stall(binding, failed)
            if failed:
                self.rules.gate_limiter.note_failed(uid)

        return note

    def _end_failed(self, uid: str, result: BindResult) -> None:
        """Take back the capacity of a pod that was not bound."""
        permit = self._permits.find(uid)
        if permit is None:
            return
        permit.is_binding = False
        if permit.is_fixed:
            permit.is_over = True  # it ends with the nudge
            return
        self._permits.end(uid)
        self._leave_place(uid)
        if result in NOT_SENT:
            self._cache.forget(uid)
        else:
            self._postpone(uid)


_args_decoder = msgspec.json.Decoder(ExtenderArgs)
_binding_decoder = msgspec.json.Decoder(ExtenderBindingArgs)
_preemption_decoder = msgspec.json.Decoder(ExtenderPreemptionArgs)
_decode_args, _decode_binding, _decode_preemption = (
    _args_decoder.decode,
    _binding_decoder.decode,
    _preemption_decoder.decode,
)
