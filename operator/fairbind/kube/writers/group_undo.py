"""Evicts members of groups that began and cannot be completed, where the administrator switched that on.

Every `LOOK_SECONDS` those are looked at that should be evicted (`GroupEvictions`). At most `EVICTIONS_PER_LOOK` go out
at a time, `MAX_OF_TENANT` of one tenant; tenants take turns, and a namespace where an eviction failed rests
(`write_limits`). A PodDisruptionBudget may forbid an eviction for now: then this pod alone is left for as long as the
API server asks for, and no other namespace waits.

Every eviction is behind the fence, which also looks once more whether the group is torn still. It names the UID of the
pod, and it is an eviction of the API (`policy/v1`), so that the pod has its grace period.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.group_evictions import MemberEviction
from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.kube.client.api import NotAllowedError, Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_right_missing
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

LOOK_SECONDS = 1.0
EVICTIONS_PER_LOOK = 10
MAX_OF_TENANT = 5
BLOCKED_SECONDS = 10.0
"""For so long a pod is left that may not be evicted now, if the API server does not say for how long."""
COMPLAINT_SECONDS = 300.0
UNDONE = "GroupUndone"
"""The reason of the event of a pod that was evicted."""
EVICTED, BLOCKED, FAILED = "evicted", "blocked", "failed"

_OUTDATED = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""Answers about a pod that is gone, or another one by now."""
_log = logging.getLogger(__name__)


class Evictions(Protocol):
    """Who knows which pods are to be evicted."""

    def list_due(self) -> Iterable[MemberEviction]:
        """Return all of them."""

    def is_due(self, eviction: MemberEviction) -> bool:
        """Tell whether one is to be evicted still."""


class EvictionObserver(Protocol):
    """Who counts evictions."""

    def member_evicted(self, result: str) -> None:
        """Count an eviction: evicted, blocked or failed."""


class GroupUndoer:
    """See the module; it works while `run` runs.

    _done: UIDs of pods that are evicted and that the watch shows still. _blocked: until when pods are left, by UID.
    """

    def __init__(
        self,
        api: Requests,
        evictions: Evictions,
        tell: Callable[[str, str, str, str, str], None],
        *,
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        observer: EvictionObserver,
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """tell: see `Recorder.tell`. is_leading: the fence.

        may_decide: whether the replica knows the world as it is, and leads.
        """
        self._api = api
        self._evictions = evictions
        self._tell = tell
        self._is_leading = is_leading
        self._may_decide = may_decide
        self._observer = observer
        self._failures = failures
        self._clock = clock
        self._sleep = sleep
        self._limits = WriteLimits()
        self._done: set[str] = set()
        self._blocked: dict[str, float] = {}
        self._rests_until = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    async def run(self) -> None:
        """Evict until cancelled."""
        while True:
            await self._sleep(LOOK_SECONDS)
            if self._may_decide():
                with self._failures.contain("group_undo"):
                    await self.look()

    async def look(self) -> None:
        """Evict what is due now."""
        due = self._take_due()
        if due:
            async with asyncio.TaskGroup() as tasks:
                for eviction in due:
                    tasks.create_task(self._evict(eviction))

    def _take_due(self) -> list[MemberEviction]:
        """Return what is to be evicted now."""
        wanted, now = list(self._evictions.list_due()), self._clock()
        uids = {eviction.uid for eviction in wanted}
        self._done &= uids
        self._blocked = {uid: until for uid, until in self._blocked.items() if uid in uids and now < until}
        if now < self._rests_until:
            return []
        queue: FairQueue[str, MemberEviction] = FairQueue(MAX_OF_TENANT)
        for eviction in wanted:
            is_left = eviction.uid in self._done or eviction.uid in self._blocked
            if not is_left and queue.has_place(eviction.tenant) and self._limits.may_begin(eviction.namespace, now):
                queue.add(eviction.tenant, eviction)
        taken: list[MemberEviction] = []
        while len(taken) < EVICTIONS_PER_LOOK and (found := queue.take()) is not None:
            if self._limits.may_begin(found.namespace, now):  # after a failure, one at a time
                self._limits.begin(found.namespace)
                taken.append(found)
        return taken

    async def _evict(self, eviction: MemberEviction) -> None:
        namespace = eviction.namespace
        try:
            await self._send(eviction)
        except NotAllowedError:
            self._limits.leave(namespace)
        except (ApiError, TransientClusterError) as error:
            self._note_refusal(eviction, error)
        except BaseException:
            self._limits.leave(namespace)
            raise
        else:
            self._done.add(eviction.uid)
            self._limits.succeed(namespace, self._clock())
            self._announce(eviction)

    async def _send(self, eviction: MemberEviction) -> None:
        namespace, name = quote(eviction.namespace), quote(eviction.name)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": eviction.name, "namespace": eviction.namespace},
            "deleteOptions": {"preconditions": {"uid": eviction.uid}},
        }
        await self._api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            body=msgspec.json.encode(body),
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=lambda: self._is_leading() and self._evictions.is_due(eviction),
        )

    def _announce(self, eviction: MemberEviction) -> None:
        self._observer.member_evicted(EVICTED)
        note = (
            f"evicted: group {eviction.group} has {eviction.bound} of {eviction.minimum} pods on nodes and cannot be "
            "completed (groups.undo)"
        )
        self._tell(eviction.namespace, eviction.name, eviction.uid, UNDONE, note)
        _log.info("pod %s/%s is %s", eviction.namespace, eviction.name, note)

    def _note_refusal(self, eviction: MemberEviction, error: ApiError | TransientClusterError) -> None:
        now, namespace = self._clock(), eviction.namespace
        status = error.status if isinstance(error, ApiError) else None
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        if status in _OUTDATED:
            self._done.add(eviction.uid)
            self._limits.leave(namespace)
        elif status == HTTPStatus.TOO_MANY_REQUESTS:
            self._observer.member_evicted(BLOCKED)
            self._blocked[eviction.uid] = now + (asked_seconds or BLOCKED_SECONDS)
            self._limits.leave(namespace)
        else:
            self._observer.member_evicted(FAILED)
            self._rests_until = max(self._rests_until, now + self._limits.fail(namespace, now, asked_seconds))
            is_forbidden = isinstance(error, ApiError) and is_right_missing(error)
            hint = "; the chart's ClusterRole grants create on pods/eviction with groups.undo" if is_forbidden else ""
            _log.log(self._complaints.choose_level(), "A member of a group could not be evicted: %s%s", error, hint)
