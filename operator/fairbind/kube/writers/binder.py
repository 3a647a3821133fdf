"""Carries decisions out: one POST to the binding subresource of each pod, many of them in flight.

A pod must never be bound twice or by a replica that no longer leads, and no node may be filled on the belief that an
earlier pod was not bound there. So:

* Every request carries the pod's UID as precondition; a pod that is bound already answers 409. A repeated request can
  do no harm, and the answer "not bound" is never guessed: after a lost answer the same binding is sent again, or the
  pod is looked at, until it is known what became of it.
* Every request, also a repeated one, asks the fence in the moment in which its bytes are handed over. The server is
  told to give a request up after `BIND_TIMEOUT_SECONDS`, and the fence closes by more than that before the lease ends.
  So a binding that was sent while we led has either happened or never will when another can lead.
* What the network swallowed does not come to light later: the kernel repeats it for no longer than a request may take,
  and a request that was given up resets its connection (`api`).
* What remains are stragglers that no clock of ours can reach: a freeze of the process between the fence's yes and the
  system call that follows it in the same call stack, some microseconds later; and a request that did reach a proxy or
  the API server's machine, which then froze for seconds before it read it and had not heard of the reset. Such a
  straggler still binds its pod at most once, to the node that was free then; the capacity may be given away twice.

At most `in_flight` requests are open, not counting those that take longer than `SLOW_SECONDS`; a pause between two
attempts holds no slot. A binding that failed once or takes long says so (`on_stall`), and pacing bounds how many of one
namespace may. One of which nothing is known after `MOST_ATTEMPTS` is looked at and given back. So a namespace whose
admission webhook fails does not stop the others.

The requests are far below what API priority and fairness refuses; where it refuses all the same,
its Retry-After holds back every binding, not only the refused one. While no replica may bind at all (the right is
missing), one binding in `FORBIDDEN_SECONDS` finds out whether that has changed, and `problem` says what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.client.api import Api, NotAllowedError
from fairbind.kube.client.errors import (
    ApiError,
    NotSentError,
    TransientClusterError,
    is_namespace_ending,
    is_webhook_refusing,
)
from fairbind.kube.writers.complaints import Complaints

BIND_TIMEOUT_SECONDS = 3.0
"""Our own time limit for one request and the server's. The elector's margin is larger than this."""
LOOK_TIMEOUT_SECONDS = 5.0
SLOW_SECONDS = 1.0
MOST_ATTEMPTS = 4
"""So often a binding is sent whose requests end without a certain answer."""
GIVE_UP_SECONDS = 30.0
"""A pod whose binding is only ever refused for now goes back to its queue after this."""
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0
MAX_RETRY_AFTER_SECONDS = 10.0
FORBIDDEN_SECONDS = 10.0
COMPLAINT_SECONDS = 60.0
"""The same trouble is logged as a warning at most this often."""

_UNCERTAIN = frozenset(
    {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE,
     HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.REQUEST_TIMEOUT}
)  # fmt: skip
_NOT_NOW = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UNAUTHORIZED})
_log = logging.getLogger(__name__)


class BindObserver(Protocol):
    """Who counts the results."""

    def binding_finished(self, result: str) -> None:
        """One decision was carried out or not."""


class Binder:
    """Binds pods. `bind` returns when it is known what became of the pod, or when we may not find out any more."""

    def __init__(
        self,
        api: Api,
        observer: BindObserver,
        *,
        in_flight: int = 128,
        may_bind: Callable[[], bool],
        may_use: Callable[[str, str], bool] = lambda _uid, _node: True,
        has_capacity: Callable[[str, str], bool] = lambda _uid, _node: True,
        may_send: Callable[[str], bool] = lambda _uid: True,
        on_refused: Callable[[str, str, str, str], None] = lambda _namespace, _uid, _deed, _answer: None,
        timeout_seconds: float = BIND_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        randomness: random.Random | None = None,
    ) -> None:
        """may_bind: the fence, `Elector.may_bind`. may_use: whether a node is still there and takes this pod.

        has_capacity: whether a decided pod still has its capacity on its node, given what others bound there since.
        may_send: whether a binding that had to wait for its slot may still be sent, given what became of others of its
        namespace meanwhile.
        on_refused: called with namespace, UID, what was to be done and the API server's words when a binding ends
        without success although the pod waits on; must not raise.
        timeout_seconds: for one request; below the margin of the fence.
        """
        self.problem: str | None = None
        """Why nothing can be bound, in one line that says what to do; None while something can."""
        self.may_use = may_use
        self.has_capacity = has_capacity
        self.may_send = may_send
        self.api = api
        self.clock = clock
        self.sleep = sleep
        self.timeout_seconds = timeout_seconds
        self.query = {"timeout": f"{timeout_seconds:g}s"}
        self._observer = observer
        self._may_bind = may_bind
        self._on_refused = on_refused
        self._random = randomness or random.Random()  # noqa: S311 - spreads retries, guards no secret
        self._slots = asyncio.Semaphore(in_flight)
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = 0
        self._ending: set[asyncio.Task[BindResult]] = set()
        self._not_before = 0.0
        self._next_probe_at = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    @property
    def in_flight(self) -> int:
        """How many decisions are being carried out or wait for a free place."""
        return self._open

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        on_stall: Callable[[bool], None] = lambda _failed: None,
    ) -> BindResult:
        """Bind one pod to a node and say what became of it. Raises nothing but CancelledError.

        on_stall: called when the binding takes long (False), and after each attempt that failed (True).
        """
        return await self.carry(Binding(self, namespace, name, uid, node, on_stall))

    async def carry(self, binding: Binding) -> BindResult:
        """Carry out a binding, or what is carried out like one."""
        self._open += 1
        self._idle.clear()
        result = BindResult.FAILED
        try:
            result = await binding.carry_out()
        finally:
            self._open -= 1
            if self._open == 0:
                self._idle.set()
            if binding.is_counted:
                self._observer.binding_finished(result.value)
        if result in {BindResult.FAILED, BindResult.INVALID} and binding.answer is not None:
            self._on_refused(binding.namespace, binding.uid, binding.deed, binding.answer)
        return result

    def let_end(self, sending: asyncio.Task[BindResult]) -> None:
        """Let what is on its way come to its end by itself, as nothing depends on it any more."""
        self._ending.add(sending)
        sending.add_done_callback(self._ending.discard)

    @contextlib.asynccontextmanager
    async def take_slot(self, on_slow: Callable[[], None]) -> AsyncIterator[None]:
        """Hold a slot for one request, or until it is slow."""
        await self._slots.acquire()
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._slots.release()

        def note_slowness() -> None:
            give_back()
            on_slow()

        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, note_slowness)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def drain(self, timeout_seconds: float) -> bool:
        """Send nothing more and wait for what is in flight. Returns whether all of it has ended in time."""
        self._draining = True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def is_open(self) -> bool:
        """Whether a binding may be sent at this very moment."""
        return not self._draining and self._may_bind()

    def find_obstacle(self, uid: str, node: str) -> BindResult | None:
        """Return how the binding of a pod to a node (empty: none) would end unsent; None: it would be sent now."""
        if not self.is_open():
            return BindResult.FENCED
        if node and not self.may_use(uid, node):
            return BindResult.STALE
        if node and not self.has_capacity(uid, node):
            return BindResult.OVERCOMMITTED
        return BindResult.FAILED if self.is_held_back() else None

    def is_held_back(self) -> bool:
        """Whether nothing would be sent now, because bindings are forbidden and were tried a moment ago."""
        return self.problem is not None and self.clock() < self._next_probe_at

    def begin_probe(self) -> None:
        """Note that a binding is sent: while bindings are forbidden the next one is for some time later."""
        self._next_probe_at = self.clock() + FORBIDDEN_SECONDS

    def note_forbidden(self, error: ApiError, needed: str) -> None:
        """Note that no replica may bind. needed: the right that is missing."""
        self.problem = f"forbidden: {error.message}; the chart's ClusterRole grants {needed}"
        self._next_probe_at = self.clock() + FORBIDDEN_SECONDS
        self.complain("forbidden", f"Bindings: {self.problem}; trying again every {FORBIDDEN_SECONDS:.0f} s")

    def note_allowed(self) -> None:
        """Note that a binding came through."""
        if self.problem is not None:
            _log.info("Bindings: allowed again.")
            self.problem = None
            self._complaints.forget("forbidden")

    async def wait_for_pace(self) -> None:
        """Wait while the API server has asked for patience."""
        while self.must_wait():
            await self.sleep(min(self._not_before - self.clock(), 1.0) * self._random.uniform(1.0, 1.5))

    def must_wait(self) -> bool:
        """Whether the API server has asked for patience, and a binding may be sent at all."""
        return self.clock() < self._not_before and self.is_open()

    async def back_off(self, attempt: int) -> None:
        """Wait longer after each attempt, by chance more or less, so that many do not come back at once."""
        await self.sleep(min(FIRST_BACKOFF_SECONDS * 2**attempt, MAX_BACKOFF_SECONDS) * self._random.uniform(0.5, 1.0))

    def hold_back(self, error: ApiError) -> None:
        """Note that the server is overloaded, for all bindings."""
        patience = min(error.retry_after or 1.0, MAX_RETRY_AFTER_SECONDS)
        self._not_before = max(self._not_before, self.clock() + patience)

    def complain(self, kind: str, message: str, **fields: str) -> None:
        """Log a trouble as a warning, rarely, and each time for those who look closely. fields: of the line in JSON."""
        _log.log(self._complaints.choose_level(kind), "%s", message, extra=fields)


class _PodMetadata(msgspec.Struct):
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - as the API spells it
    deletionTimestamp: str | None = None  # noqa: N815 - as the API spells it


class _Gate(msgspec.Struct):
    name: str = ""


class _PodSpec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - as the API spells it
    schedulingGates: list[_Gate] | None = None  # noqa: N815 - as the API spells it
    affinity: dict[str, Any] | None = None


class Pod(msgspec.Struct):
    """What became of a pod."""

    metadata: _PodMetadata
    spec: _PodSpec


_pod_decoder = msgspec.json.Decoder(Pod)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """What became of the pod unless an earlier request did more. has_ended: whether none of them can act any more."""

    otherwise: BindResult
    has_ended: bool = False


class Binding:
    """One decision on its way.

    right: what it takes. is_counted: whether it is one of the bindings that are counted.
    answer: what the API server said last when it did not bind the pod, or why it said nothing.
    uncertain_until: set once a request was sent of which we do not know what became; when the server gives it up.
    """

    right: ClassVar[str] = "create on pods/binding"
    is_counted: ClassVar[bool] = True

    def __init__(
        self, binder: Binder, namespace: str, name: str, uid: str, node: str, on_stall: Callable[[bool], None]
    ) -> None:
        self.answer: str | None = None
        self._binder = binder
        self._on_stall = on_stall
        self._api = binder.api
        self._clock = binder.clock
        self.namespace, self.uid, self.node = namespace, uid, node
        self._name = f"{namespace}/{name}"
        self._pod_path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        self._body = msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
        )
        self._uncertain_until: float | None = None

    @property
    def deed(self) -> str:
        """What is to be done, for people."""
        return name_binding(self.node)

    async def carry_out(self) -> BindResult:
        """Bind, or find out why not. When it ends as fenced, nothing that was sent can take effect any more."""
        while (result := await self._try()) is BindResult.FENCED and self._uncertain_until is not None:
            await self._outlive_requests()
            if not self._binder.is_open():
                break
        return result

    def _complain(self, kind: str, words: str, error: Exception) -> None:
        self._binder.complain(kind, f"{words}: {error}", pod=self._name, node=self.node, reason=str(error))

    async def _try(self) -> BindResult:
        give_up_at = self._clock() + GIVE_UP_SECONDS
        attempt = 0
        while True:
            await self._binder.wait_for_pace()
            async with self._binder.take_slot(lambda: self._on_stall(False)):
                if self._binder.must_wait():
                    continue  # the API server asked for patience while this waited for its slot
                outcome = await self._attempt()
            if isinstance(outcome, BindResult):
                return outcome
            if isinstance(outcome, Unresolved):
                return await self._resolve(outcome)
            self._on_stall(True)
            attempt += 1
            if self._clock() > give_up_at or (self._uncertain_until is not None and attempt >= MOST_ATTEMPTS):
                return await self._conclude()
            await self._binder.back_off(attempt - 1)

    async def _attempt(self) -> BindResult | Unresolved | None:
        """Send the binding once, if it may be sent; None when it must be sent again to know more."""
        obstacle = self._binder.find_obstacle(self.uid, self.node)
        if obstacle is BindResult.FENCED:
            return obstacle
        if self._uncertain_until is None and not self._binder.may_send(self.uid):
            return BindResult.DEFERRED
        if obstacle is not None:
            self.answer = self.answer or self._binder.problem
            return Unresolved(obstacle)
        self._binder.begin_probe()
        return await self._send()

    async def _resolve(self, outcome: Unresolved) -> BindResult:
        if not outcome.has_ended:
            return await self._conclude(outcome.otherwise)
        found = None if self._uncertain_until is None else await self._look()
        return found or outcome.otherwise

    async def _send(self) -> BindResult | Unresolved | None:
        try:
            await self._request()
        except NotAllowedError:
            return BindResult.FENCED
        except NotSentError as error:
            self.answer = str(error)
            self._complain("connection", f"Binding {self._name} could not be sent", error)
            return None
        except TransientClusterError as error:
            self.answer = str(error)
            self._complain("answer", f"Binding {self._name} had no answer, sending it again", error)
            self._note_uncertainty()
            return None
        except ApiError as error:
            self.answer = str(error)
            return self._judge(error)
        self._binder.note_allowed()
        return BindResult.BOUND

    async def _request(self) -> None:
        await self._api.request(
            "POST",
            f"{self._pod_path}/binding",
            query=self._binder.query,
            body=self._body,
            timeout_seconds=self._binder.timeout_seconds,
            guard=self._binder.is_open,
        )

    def _judge(self, error: ApiError) -> BindResult | Unresolved | None:
        if error.status == HTTPStatus.CONFLICT:
            # An earlier attempt of ours may be what it conflicts with.
            self._binder.note_allowed()
            return Unresolved(BindResult.CONFLICT, has_ended=True)
        if error.status == HTTPStatus.NOT_FOUND or is_namespace_ending(error):
            return BindResult.GONE
        if error.status in _NOT_NOW:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS and not is_webhook_refusing(error):
                self._binder.hold_back(error)
            self._complain(str(error.status), f"Binding {self._name} has to wait", error)
            return None
        if error.status in _UNCERTAIN:
            self._complain(str(error.status), f"Binding {self._name} failed, sending it again", error)
            self._note_uncertainty()
            return None
        if _is_right_missing(error):
            self._binder.note_forbidden(error, self.right)
        else:
            self._complain(str(error.status), f"Binding {self._name} to {self.node} was refused", error)
        if error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
            return BindResult.INVALID
        return Unresolved(BindResult.FAILED)

    def _note_uncertainty(self) -> None:
        self._uncertain_until = self._clock() + self._binder.timeout_seconds

    async def _outlive_requests(self) -> None:
        """Wait until the server has given up whatever we sent without hearing what became of it."""
        while self._uncertain_until is not None and (delay := self._uncertain_until - self._clock()) > 0:
            await self._binder.sleep(delay)

    async def _conclude(self, otherwise: BindResult = BindResult.FAILED) -> BindResult:
        """Give up, but not before every request that was sent has had its end."""
        if self._uncertain_until is None:
            return otherwise
        await self._outlive_requests()
        result = await self._look()
        return otherwise if result is None else result

    async def _look(self) -> BindResult | None:
        """Ask the API server what became of the pod, until it answers or we may not bind any more; None: not bound."""
        attempt = 0
        while self._binder.is_open():
            try:
                pod = await self._fetch()
            except ApiError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return BindResult.GONE
                self._complain("look", f"What became of {self._name} is not known yet", error)
            except (TransientClusterError, msgspec.MsgspecError) as error:
                self._complain("look", f"What became of {self._name} is not known yet", error)
            else:
                return self._compare(pod)
            await self._binder.back_off(attempt)
            attempt += 1
        return BindResult.FENCED

    async def _fetch(self) -> Pod:
        return _pod_decoder.decode(await self._api.request("GET", self._pod_path, timeout_seconds=LOOK_TIMEOUT_SECONDS))

    def _compare(self, pod: Pod) -> BindResult | None:
        if pod.metadata.uid != self.uid:
            return BindResult.GONE
        if pod.spec.nodeName:
            return BindResult.BOUND if pod.spec.nodeName == self.node else BindResult.CONFLICT
        return None if pod.metadata.deletionTimestamp is None else BindResult.CONFLICT


def name_binding(node: str) -> str:
    """Return what a binding is called when it fails."""
    return f"binding to {node}"


def _is_right_missing(error: ApiError) -> bool:
    """Tell whether every binding would be refused, not only this one, as an admission webhook may do."""
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return True
    lacks_verb = "cannot create resource" in error.message or "cannot patch resource" in error.message
    return error.status == HTTPStatus.FORBIDDEN and lacks_verb
