"""Says on the API server which node a pod has that is not bound yet: `status.nominatedNodeName`.

A pod that waits on its node for volumes holds capacity there, which so far only this process knows. Autoscalers read
the field: they neither remove that node nor buy another one for the pod. The binding takes it away. When the pod gives
its place up, or gets another one, the field is stale and is written again.

The cache alone says what the field should be, so a new leader also sets right what the leader before it left behind.
Autoscalers and queueing controllers write the field, too (KEP-5278), and they clear it. So it is cleared only where the
API server says that we have written it: it notes for each field who has.
Twice a second all pods are looked at whose field should say something else. A change is written when two looks in a row
ask for it: many volumes come sooner, and a replica that has just begun to lead decides first.

Every write names the version of the pod that it was decided on: it never changes a pod that was bound meanwhile. How
many go out at a time: `due_writes`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.state.nominations import NominationChange
from fairbind.kube.client.api import Requests
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.binder import LOOK_TIMEOUT_SECONDS
from fairbind.kube.writers.due_writes import MERGE, DueWrites, Sleep, WriteKind
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

_FIELD_MANAGER = "fairbind-nominator"
_OUR_MANAGERS = "fairbind"
"""How the names of managers begin that are ours, of earlier versions, too."""
_KIND = WriteKind(
    "nominator",
    "A pod's nominated node could not be written",
    "patch on pods/status",
    look_seconds=0.5,
    outdated=frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}),
)


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


class Nominator(DueWrites[NominationChange]):
    """See the module; it works while `run` runs."""

    def __init__(
        self,
        api: Requests,
        nominated: NominatedPods,
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """nominated: says what pods should say. For the rest see `DueWrites`."""
        super().__init__(_KIND, api, is_leading, may_decide, failures, clock, sleep)
        self._nominated = nominated
        self._asked: dict[str, str | None] = {}
        self._asked_before: dict[str, str | None] = {}
        self._theirs: dict[str, str | None] = {}

    def _forget(self) -> None:
        self._asked = {}

    def _list_wanted(self) -> list[NominationChange]:
        """Return what pods should say, and remember what was asked for."""
        changes = self._nominated.find_nomination_changes()
        self._asked_before, self._asked = self._asked, {change.uid: change.node for change in changes}
        self._theirs = {uid: node for uid, node in self._theirs.items() if uid in self._asked}
        return changes

    def _get_gist(self, change: NominationChange) -> str:
        return change.version

    def _is_due(self, change: NominationChange) -> bool:
        before = self._asked_before
        is_asked_again = change.uid in before and before[change.uid] == change.node
        return is_asked_again and super()._is_due(change) and not self._is_of_others(change)

    def _is_of_others(self, change: NominationChange) -> bool:
        return change.node is None and change.said is not None and self._theirs.get(change.uid) == change.said

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
            content_type=MERGE,
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=self._is_leading,
        )
