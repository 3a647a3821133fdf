"""Evicts members of groups that began and cannot be completed, where the administrator switched that on.

`GroupEvictions` says who should be evicted, and `due_writes` when: tenants take turns, with `MAX_OF_TENANT` at a time.
A PodDisruptionBudget may forbid an eviction for now: then this pod alone is left for as long as the API server asks
for, and no other namespace waits.

Every eviction is behind the fence, which also looks once more whether the group is torn still. It names the UID of the
pod, and it is an eviction of the API (`policy/v1`), so that the pod has its grace period.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.group_evictions import MemberEviction
from fairbind.kube.client.api import Requests
from fairbind.kube.client.errors import ApiError
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import DueWrites, Sleep, WriteError, WriteKind
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

MAX_OF_TENANT = 5
BLOCKED_SECONDS = 10.0
"""For so long a pod is left that may not be evicted now, if the API server does not say for how long."""
UNDONE = "GroupUndone"
"""The reason of the event of a pod that was evicted."""
EVICTED, BLOCKED, FAILED = "evicted", "blocked", "failed"

_KIND = WriteKind(
    "group_undo",
    "A member of a group could not be evicted",
    "create on pods/eviction with groups.undo",
    outdated=frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}),
    most_of_turn=MAX_OF_TENANT,
)
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


class GroupUndoer(DueWrites[MemberEviction]):
    """See the module; it works while `run` runs."""

    def __init__(
        self,
        api: Requests,
        evictions: Evictions,
        tell: Callable[[str, str, str, str, str], None],
        *,
        observer: EvictionObserver,
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """tell: see `Recorder.tell`. For the rest see `DueWrites`."""
        super().__init__(_KIND, api, is_leading, may_decide, failures, clock, sleep)
        self._evictions = evictions
        self._tell = tell
        self._observer = observer

    def _list_wanted(self) -> Iterable[MemberEviction]:
        return self._evictions.list_due()

    def _get_turn(self, change: MemberEviction) -> str:
        return change.tenant

    async def _send(self, change: MemberEviction) -> None:
        namespace, name = quote(change.namespace), quote(change.name)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": change.name, "namespace": change.namespace},
            "deleteOptions": {"preconditions": {"uid": change.uid}},
        }
        await self._api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            body=msgspec.json.encode(body),
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=lambda: self._is_leading() and self._evictions.is_due(change),
        )
        self._announce(change)

    def _announce(self, eviction: MemberEviction) -> None:
        self._observer.member_evicted(EVICTED)
        note = (
            f"evicted: group {eviction.group} has {eviction.bound} of {eviction.minimum} pods on nodes and cannot be "
            "completed (groups.undo)"
        )
        self._tell(eviction.namespace, eviction.name, eviction.uid, UNDONE, note)
        _log.info("pod %s/%s is %s", eviction.namespace, eviction.name, note)

    def _note_pause(self, error: WriteError) -> float | None:
        if not isinstance(error, ApiError) or error.status != HTTPStatus.TOO_MANY_REQUESTS:
            return None
        self._observer.member_evicted(BLOCKED)
        return error.retry_after or BLOCKED_SECONDS

    def _note_failure(self, namespace: str, error: WriteError) -> None:
        self._observer.member_evicted(FAILED)
        super()._note_failure(namespace, error)
