"""Says on the API server which node a pod has that is not bound yet: `status.nominatedNodeName`.

A pod that waits on its node for volumes holds capacity there, which so far only this process knows. Autoscalers read
the field: they neither remove that node nor buy another one for the pod. The binding takes it away. When the pod gives
its place up, or gets another one, the field is stale and is written again.

The cache alone says what the field should be, so a new leader also sets right what the leader before it left behind.
Autoscalers and queueing controllers write the field, too (KEP-5278), and they clear it. So it is cleared only where the
API server says that we have written it: it notes for each field who has.
Twice a second all pods are looked at whose field should say something else. A change is written when two looks in a row
ask for it: many volumes come sooner, and a replica that has just begun to lead decides first. At most
`WRITES_PER_LOOK` go out at a time, namespaces take turns, and a namespace where a write failed rests (`write_limits`).

Every write is behind the fence, and names the version of the pod that it was decided on: it never changes a pod that
was bound meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.cluster.state.nominations import NominationChange
from fairbind.kube.client.api import NotAllowedError, Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_right_missing
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.binder import LOOK_TIMEOUT_SECONDS
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

LOOK_SECONDS = 0.5
WRITES_PER_LOOK = 10
COMPLAINT_SECONDS = 300.0

_MERGE = "application/merge-patch+json"
_FIELD_MANAGER = "fairbind-nominator"
_OUR_MANAGERS = "fairbind"
"""How the names of managers begin that are ours, of earlier versions, too."""
_OUTDATED = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""Answers about a pod that is another one by now: the watch will show it, and it is looked at again."""
_log = logging.getLogger(__name__)


class _StatusFields(msgspec.Struct):
    nominated: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="f:nominatedNodeName", default=msgspec.UNSET)


class _Fields(msgspec.Struct):
    status: _StatusFields = msgspec.field(name="f:status", default_factory=_StatusFields)


class _Managed(msgspec.Struct):
    manager: str = ""
    fieldsV1: _Fields = msgspec.field(default_factory=_Fields)  # noqa: N815 - as the API spells it


class _Metadata(msgspec.Struct):
    managedFields: list[_Managed] = []  # noqa: N815 - the same


class _Pod(msgspec.Struct):
    metadata: _Metadata


_decode_pod = msgspec.json.Decoder(_Pod).decode


def _is_ours(body: bytes) -> bool:
    """Whether we have written the nominated node of a pod, or who has is not noted."""
    fields = _decode_pod(body).metadata.managedFields
    writers = [it.manager for it in fields if it.fieldsV1.status.nominated is not msgspec.UNSET]
    return all(manager.startswith(_OUR_MANAGERS) for manager in writers)


class NominatedPods(Protocol):
    """Who knows which pods should be nominated to which nodes."""

    def find_nomination_changes(self) -> list[NominationChange]:
        """Return what pods say that they should not say."""


class Nominator:
    """See the module; it works while `run` runs."""

    def __init__(
        self,
        api: Requests,
        nominated: NominatedPods,
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """is_leading: the fence. may_decide: whether the replica knows the world as it is, and leads."""
        self._api = api
        self._nominated = nominated
        self._is_leading = is_leading
        self._may_decide = may_decide
        self._failures = failures
        self._clock = clock
        self._sleep = sleep
        self._limits = WriteLimits()
        self._seen: dict[str, str | None] = {}
        self._written: dict[str, str] = {}
        self._theirs: dict[str, str | None] = {}
        self._rests_until = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._sleep(LOOK_SECONDS)
            if not self._may_decide():
                self._seen = {}
                continue
            with self._failures.contain("nominator"):
                await self._look()

    async def _look(self) -> None:
        due = self._take_due()
        if due:
            async with asyncio.TaskGroup() as tasks:
                for change in due:
                    tasks.create_task(self._write(change), name=f"nominate {change.namespace}/{change.name}")

    def _take_due(self) -> list[NominationChange]:
        """Return what is to be written now, and remember what was seen."""
        changes = self._nominated.find_nomination_changes()
        before, self._seen = self._seen, {change.uid: change.node for change in changes}
        self._written = {uid: version for uid, version in self._written.items() if uid in self._seen}
        self._theirs = {uid: node for uid, node in self._theirs.items() if uid in self._seen}
        now = self._clock()
        if now < self._rests_until:
            return []
        queue: FairQueue[str, NominationChange] = FairQueue(WRITES_PER_LOOK)
        for change in changes:
            is_asked_again = change.uid in before and before[change.uid] == change.node
            is_done = self._written.get(change.uid) == change.version or self._is_of_others(change)
            if is_asked_again and not is_done and queue.has_place(change.namespace):
                queue.add(change.namespace, change)
        taken: list[NominationChange] = []
        while len(taken) < WRITES_PER_LOOK:
            found = queue.take(lambda namespace: self._limits.may_begin(namespace, now))
            if found is None:
                break
            self._limits.begin(found.namespace)
            taken.append(found)
        return taken

    def _is_of_others(self, change: NominationChange) -> bool:
        return change.node is None and change.said is not None and self._theirs.get(change.uid) == change.said

    async def _write(self, change: NominationChange) -> None:
        namespace = change.namespace
        try:
            await self._send(change)
        except NotAllowedError:
            self._limits.leave(namespace)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and error.status in _OUTDATED:
                self._written[change.uid] = change.version
                self._limits.leave(namespace)
            else:
                self._note_failure(namespace, error)
        except BaseException:
            self._limits.leave(namespace)
            raise
        else:
            self._written[change.uid] = change.version
            self._limits.succeed(namespace, self._clock())

    async def _send(self, change: NominationChange) -> None:
        pod = f"/api/v1/namespaces/{quote(change.namespace)}/pods/{quote(change.name)}"
        if change.node is None and not _is_ours(
            await self._api.request("GET", pod, timeout_seconds=LOOK_TIMEOUT_SECONDS)
        ):
            self._theirs[change.uid] = change.said
            return
        patch = {
            "metadata": {"uid": change.uid, "resourceVersion": change.version},
            "status": {"nominatedNodeName": change.node},
        }
        await self._api.request(
            "PATCH",
            f"{pod}/status",
            query={"fieldManager": _FIELD_MANAGER},
            body=msgspec.json.encode(patch),
            content_type=_MERGE,
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=self._is_leading,
        )

    def _note_failure(self, namespace: str, error: ApiError | TransientClusterError | msgspec.MsgspecError) -> None:
        now = self._clock()
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        self._rests_until = max(self._rests_until, now + self._limits.fail(namespace, now, asked_seconds))
        is_forbidden = isinstance(error, ApiError) and is_right_missing(error)
        hint = "; the chart's ClusterRole grants patch on pods/status" if is_forbidden else ""
        _log.log(self._complaints.choose_level(), "A pod's nominated node could not be written: %s%s", error, hint)
