"""Tells users what became of their pods: events as kube-scheduler writes them, and the condition PodScheduled=False.

Nothing here may cost a binding: what is to be written waits in bounded queues, at most `SLOW_PER_SECOND` writes go out
while many bindings are in flight and `FAST_PER_SECOND` otherwise, and a write that fails is forgotten, or due again
later. Nor may one tenant silence us for others: tenants and namespaces take turns, a write that fails stops only writes
of its kind in its namespace for a while (`write_limits`), and while pods find a place one tenant's waiting pods are
told `TENANT_PER_SECOND` at most: each write costs the API server milliseconds, which the bindings of others wait for.
`pod_messages` decides what is worth a write.

A condition is written on the condition that the pod is still the version that we know to be unbound: otherwise one that
is on its way could take back the PodScheduled=True that a binding brings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.cluster.messages import shorten
from fairbind.cluster.objects.facts import Owner
from fairbind.kube.client.api import STRATEGIC, NotAllowedError, Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_namespace_ending, is_right_missing
from fairbind.kube.client.times import format_micro_time, format_time
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue
from fairbind.kube.writers.pod_messages import UNCHANGED_SECONDS, Announced, Notice, PodMessages, Refused, WaitingPod
from fairbind.model import Wait

SLOW_PER_SECOND = 20.0
FAST_PER_SECOND = 200.0
MANY_BINDS = 8
"""More bindings in flight than this slow the writing down."""
SCAN_SECONDS = 0.5
SCAN_CHUNK = 500
"""Pods that are looked at before all else on the event loop has a turn."""
SCHEDULED_QUEUE_LENGTH = 10_000
TENANT_PER_SECOND = 50.0
CALM_SECONDS = 2.0
"""When nothing has been decided for so long, no binding waits for the API server: a tenant may have the whole pace."""
PACE_SECONDS = 0.1
"""The budget of a tenant is given out in intervals of this length, so that its writes do not come in one burst."""
NOTICES_PER_QUEUE = int(FAST_PER_SECOND * UNCHANGED_SECONDS)
"""As many as can be written in the time for which `PodMessages` leaves a class alone."""
WRITERS = 8
WRITE_TIMEOUT_SECONDS = 5.0
COMPLAINT_SECONDS = 300.0
SCHEDULED, FAILED_SCHEDULING = "Scheduled", "FailedScheduling"
"""Reasons of events, as kube-scheduler writes them."""

__all__ = ["Recorder", "WaitingPod"]

_MERGE = "application/merge-patch+json"
_EVENTS = "events"
_CONDITIONS = "conditions"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _News:
    """An event about a pod, to be written once. reason: `SCHEDULED`, or what is wrong."""

    namespace: str
    name: str
    uid: str
    reason: str
    note: str


class Recorder:
    """Writes events and conditions while `run` runs; all other calls return at once and never raise."""

    def __init__(
        self,
        api: Requests,
        *,
        scheduler_name: str,
        identity: str,
        is_leading: Callable[[], bool],
        binds_in_flight: Callable[[], int],
        count_decided: Callable[[], int],
        find_waiting: Callable[[str], WaitingPod | None],
        find_generation: Callable[[str], int] = lambda _: 0,
        shows_taints: bool = False,
        failures: PartFailures | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """is_leading: the fence. count_decided: decisions since the start, in every mode.

        find_waiting: by UID; None for a pod that is gone, bound or about to be bound. find_generation: of a pod's spec.
        shows_taints: whether messages name each taint with its key and value.
        """
        self._api = api
        self._scheduler_name = scheduler_name
        self._instance = identity[:128]
        self._is_leading = is_leading
        self._binds_in_flight = binds_in_flight
        self._count_decided = count_decided
        self._find_waiting = find_waiting
        self._failures = failures or PartFailures(SilentObserver())
        self._clock = clock
        self._sleep = sleep
        self._notices: FairQueue[Hashable, Notice] = FairQueue(NOTICES_PER_QUEUE)
        self._pod_messages = PodMessages(
            find_waiting,
            clock,
            has_place=self._has_place,
            find_generation=find_generation,
            shows_taints=shows_taints,
        )
        self._scheduled: FairQueue[str, _News] = FairQueue(SCHEDULED_QUEUE_LENGTH)
        self._limits = WriteLimits()
        self._work = asyncio.Event()
        self._writing = 0
        self._next_write_at = 0.0
        self._takes_scheduled = True
        self._told: Counter[Hashable] = Counter()
        self._tenant_pace = TENANT_PER_SECOND
        self._decided = 0
        self._decided_at = -math.inf
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    def scheduled(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Note that a pod was bound. When more are noted than can be written, the oldest go unannounced."""
        self._pod_messages.forget(uid)
        note = f"Successfully assigned {namespace}/{name} to {node}"
        self._add(_News(namespace, name, uid, SCHEDULED, note))

    def tell(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        """Note a warning about a pod, which its owner gets as an event."""
        self._add(_News(namespace, name, uid, reason, note))

    def _add(self, job: _News) -> None:
        if len(self._scheduled) >= SCHEDULED_QUEUE_LENGTH:
            self._scheduled.drop()
        self._scheduled.add(job.namespace, job)
        self._work.set()

    def refused(self, namespace: str, uid: str, deed: str, answer: str) -> None:
        """Note that the API server did not accept what was to be done with a pod, which waits on. answer: its words."""
        self._pod_messages.refuse(uid, Refused(namespace, deed, answer))

    def note_waits(self, waits: Sequence[Wait], node_count: int) -> None:
        """Note who waits now and why: the whole picture, after each complete cycle. It is looked at later.

        node_count: all nodes of the cluster.
        """
        self._pod_messages.replace(waits, node_count)

    def forget(self, uid: str) -> None:
        """Note that a pod is gone. Optional: pods that wait no more are forgotten by themselves."""
        self._pod_messages.forget(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._scan_for_ever(), name="recorder-scan")
            tasks.create_task(self._pace(), name="recorder-pace")
            for number in range(WRITERS):
                tasks.create_task(self._write_for_ever(), name=f"recorder-writer-{number}")

    async def flush(self, timeout_seconds: float) -> None:
        """Wait until all bindings that are noted are announced, at most so long; while `run` still runs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while (self._scheduled or self._writing) and self._is_leading():
                    await self._sleep(0.02)

    async def _scan_for_ever(self) -> None:
        while True:
            await self._sleep(SCAN_SECONDS)
            if not self._is_leading():
                self._scheduled.clear()
                self._notices.clear()
                self._pod_messages.clear()
                continue
            with self._failures.contain("recorder"):
                await self._scan()
            if self._scheduled:
                self._work.set()  # what could not be written yet

    async def _pace(self) -> None:
        while True:
            await self._sleep(PACE_SECONDS)
            self._told.clear()
            self._choose_tenant_pace()
            if self._notices:
                self._work.set()

    async def _scan(self) -> None:
        for looked_at, notice in enumerate(self._pod_messages.find_due(), 1):
            if notice is not None:
                if (lost := self._notices.add(notice.queue, notice)) is not None:
                    self._defer(lost)
                self._work.set()
            if looked_at % SCAN_CHUNK == 0:
                await asyncio.sleep(0)

    async def _write_for_ever(self) -> None:
        while True:
            await self._work.wait()
            await self._wait_for_pace()
            job = self._take_job()
            if job is None:
                continue
            self._writing += 1
            try:
                await job()
            except (NotAllowedError, _RestingError):
                pass
            except (ApiError, TransientClusterError) as error:
                self._complain_about(error)
            except Exception as error:  # noqa: BLE001 - no cluster should lose its scheduler over an event
                self._failures.note("recorder", error)
            finally:
                self._writing -= 1

    async def _wait_for_pace(self) -> None:
        pace = SLOW_PER_SECOND if self._binds_in_flight() > MANY_BINDS else FAST_PER_SECOND
        now = self._clock()
        write_at = max(now, self._next_write_at)
        self._next_write_at = write_at + 1.0 / pace
        if write_at > now:
            await self._sleep(write_at - now)

    def _take_job(self) -> Callable[[], Awaitable[None]] | None:
        """Take from both queues in turn what may be written now."""
        self._takes_scheduled = not self._takes_scheduled
        sources = (self._take_scheduled, self._take_notice)
        for take in sources if self._takes_scheduled else reversed(sources):
            if (job := take()) is not None:
                return job
        self._work.clear()
        return None

    def _take_scheduled(self) -> Callable[[], Awaitable[None]] | None:
        now = self._clock()
        scheduled = self._scheduled.take(lambda namespace: self._limits.may_begin((namespace, _EVENTS), now))
        return None if scheduled is None else partial(self._announce, scheduled)

    def _take_notice(self) -> Callable[[], Awaitable[None]] | None:
        now = self._clock()
        most = self._tenant_pace * PACE_SECONDS
        while (notice := self._notices.take(lambda queue: self._told[queue] < most)) is not None:
            pod = self._find_waiting(notice.uid)
            if pod is not None and self._limits.may_begin((pod.namespace, _CONDITIONS), now):
                self._told[notice.queue] += 1
                return partial(self._explain, notice, pod)
            self._defer(notice)
        return None

    def _choose_tenant_pace(self) -> None:
        """Choose how many notices a second one tenant may have."""
        now, decided = self._clock(), self._count_decided()
        if decided != self._decided or self._binds_in_flight():
            self._decided, self._decided_at = decided, now
        self._tenant_pace = FAST_PER_SECOND if now - self._decided_at >= CALM_SECONDS else TENANT_PER_SECOND

    def _has_place(self, queue: Hashable) -> bool:
        """Tell whether one more notice can be written in the time for which `PodMessages` leaves a class alone."""
        pace = min(self._tenant_pace, FAST_PER_SECOND / max(1, self._notices.queues))
        return self._notices.count(queue) < pace * UNCHANGED_SECONDS

    def _defer(self, notice: Notice) -> None:
        """Let a notice that was not written be due again."""
        notice.announced.queued = False
        if notice.event_budget is not None:
            self._pod_messages.give_back_event(notice.event_budget)

    def _complain_about(self, error: ApiError | TransientClusterError) -> None:
        if not _is_trouble(error):
            return
        hint = ""
        if isinstance(error, ApiError) and is_right_missing(error):
            hint = "; the chart's ClusterRole grants patch on pods/status, and create and patch on events.events.k8s.io"
        self._complain(f"{error}{hint}")

    def _complain(self, trouble: str) -> None:
        level = self._complaints.choose_level()
        _log.log(level, "An event or a pod's condition could not be written: %s", trouble, extra={"reason": trouble})

    async def _announce(self, job: _News) -> None:
        regarding = _refer_to_pod(job.namespace, job.name, job.uid)
        event = self._make_event(regarding, job.note, reason=job.reason)
        await self._send_event(job.namespace, event)

    async def _explain(self, notice: Notice, pod: WaitingPod) -> None:
        announced, message = notice.announced, notice.cause.format(pod.blocked_detail)
        try:
            if notice.owner is not None:
                message = shorten(f"pods such as {pod.name} wait: {message}")
            elif not pod.is_gated and (pod.condition_message, pod.condition_generation) != (message, notice.generation):
                await self._write_condition(notice, pod, message)  # of a gated pod it is the API server's
            notice.note_told(message, self._clock())
            if notice.event_budget is not None:
                await self._write_failed(announced, notice, pod, message)
        except BaseException:
            self._defer(notice)
            raise
        announced.queued = False

    async def _write_condition(self, notice: Notice, pod: WaitingPod, message: str) -> None:
        condition: dict[str, object] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": notice.cause.reason,
            "message": message,
        }
        if notice.generation:  # of which the reasons are; the pod may have a newer one by now
            condition["observedGeneration"] = notice.generation
        if pod.condition_message is None:
            condition["lastTransitionTime"] = format_time()
        patch = {
            "metadata": {"uid": notice.uid, "resourceVersion": pod.resource_version},
            "status": {"conditions": [condition]},
        }
        path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/status"
        await self._send((pod.namespace, _CONDITIONS), "PATCH", path, patch, content_type=STRATEGIC)

    async def _write_failed(self, announced: Announced, notice: Notice, pod: WaitingPod, message: str) -> None:
        """Write a new event, or count one more in the one that says the same already."""
        is_repeated = announced.event_name is not None and announced.event_signature == notice.signature
        count = announced.event_count + 1 if is_repeated else 1
        if is_repeated:
            series = {"count": count, "lastObservedTime": format_micro_time()}
            try:
                await self._send_event(pod.namespace, {"series": series}, name=announced.event_name)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                is_repeated, count = False, 1  # it has expired
        if not is_repeated:
            if notice.owner is None:
                regarding = _refer_to_pod(pod.namespace, pod.name, notice.uid)
            else:
                regarding = _refer_to_owner(pod.namespace, notice.owner)
            event = self._make_event(regarding, message)
            await self._send_event(pod.namespace, event)
            announced.event_name = event["metadata"]["name"]
        # Not before: one that could not be written is still due.
        announced.event_signature, announced.event_at, announced.event_count = notice.signature, self._clock(), count

    def _make_event(self, regarding: dict[str, str], note: str, *, reason: str = FAILED_SCHEDULING) -> dict[str, Any]:
        is_good = reason == SCHEDULED
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name'][:230]}.{uuid.uuid4().hex[:16]}",
                "namespace": regarding["namespace"],
            },
            "eventTime": format_micro_time(),
            "reportingController": self._scheduler_name,
            "reportingInstance": self._instance,
            "action": "Binding" if is_good else "Scheduling",
            "reason": reason,
            "regarding": regarding,
            "note": shorten(note),
            "type": "Normal" if is_good else "Warning",
        }

    async def _send_event(self, namespace: str, content: dict[str, Any], *, name: str | None = None) -> None:
        """Make an event, or change the named one."""
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace)}/events"
        if name is None:
            await self._send((namespace, _EVENTS), "POST", path, content)
        else:
            await self._send((namespace, _EVENTS), "PATCH", f"{path}/{name}", content, content_type=_MERGE)

    async def _send(
        self,
        place: tuple[str, str],
        method: str,
        path: str,
        content: dict[str, Any],
        *,
        content_type: str = "application/json",
    ) -> None:
        """Send a write, unless those of its place rest. place: its namespace, and what is written there."""
        if not self._limits.may_begin(place, self._clock()):
            raise _RestingError
        self._limits.begin(place)
        try:
            await self._api.request(
                method,
                path,
                body=msgspec.json.encode(content),
                content_type=content_type,
                timeout_seconds=WRITE_TIMEOUT_SECONDS,
                guard=self._is_leading,
            )
        except (ApiError, TransientClusterError) as error:
            self._note_failure(place, error)
            raise
        except BaseException:
            self._limits.leave(place)
            raise
        self._limits.succeed(place, self._clock())

    def _note_failure(self, place: tuple[str, str], error: ApiError | TransientClusterError) -> None:
        if not _is_trouble(error):
            self._limits.leave(place)
            return
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        now = self._clock()
        if (rest := self._limits.fail(place, now, asked_seconds)) > 0.0:
            self._next_write_at = max(self._next_write_at, now + rest)


class _RestingError(Exception):
    """Nothing is written in this place now, because the last write there has failed."""


def _is_trouble(error: ApiError | TransientClusterError) -> bool:
    """Whether more writes would fail. If not, the pod is gone or has changed; what is still true is written later."""
    if not isinstance(error, ApiError):
        return True
    return error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT} and not is_namespace_ending(error)


def _refer_to_pod(namespace: str, name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}


def _refer_to_owner(namespace: str, owner: Owner) -> dict[str, str]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "namespace": namespace,
        "name": owner.name,
        "uid": owner.uid,
    }
