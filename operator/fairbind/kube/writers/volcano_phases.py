"""Lets Jobs of Volcano make their pods: their PodGroups get the phase `Inqueue` (`groups.volcanoInqueue`).

Volcano's own controller makes no pods of a Job while the PodGroup of that Job is pending. Volcano's scheduler ends this
when enough is free for all of them. Where fairbind places the pods instead, that scheduler does not run. The pods then
wait for fairbind like those of any group. PodGroups of other owners stay as they are: their pods exist.

Older versions of Volcano have the phase in the object itself, and newer ones may have it in a subresource.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.group_conditions import AwaitedGroup
from fairbind.cluster.objects.group_wire import MemberPodGroup
from fairbind.kube.client.api import Requests
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import MERGE, DueWrites, Sleep, WriteKind
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

IN_QUEUE = "Inqueue"

_FIELD_MANAGER = "fairbind-volcano-phases"
_KIND = WriteKind(
    "volcano_phases",
    "The phase of a PodGroup of Volcano could not be written",
    "patch on podgroups and podgroups/status",
)
_decode = msgspec.json.Decoder(MemberPodGroup).decode


class VolcanoPhases(DueWrites[AwaitedGroup]):
    """See the module."""

    def __init__(
        self,
        api: Requests,
        list_awaited: Callable[[], Iterable[AwaitedGroup]],
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """list_awaited: returns the PodGroups whose Jobs wait. For the rest see `DueWrites`."""
        super().__init__(_KIND, api, is_leading, may_decide, failures, clock, sleep)
        self._list_awaited = list_awaited

    def _list_wanted(self) -> Iterable[AwaitedGroup]:
        return self._list_awaited()

    async def _send(self, change: AwaitedGroup) -> None:
        namespace, name = quote(change.namespace), quote(change.name)
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/{name}"
        patch = {"metadata": {"uid": change.uid}, "status": {"phase": IN_QUEUE}}
        if _decode(await self._patch(path, patch)).status.phase != IN_QUEUE:
            await self._patch(f"{path}/status", patch)

    async def _patch(self, path: str, patch: dict[str, Any]) -> bytes:
        return await self._api.request(
            "PATCH",
            path,
            query={"fieldManager": _FIELD_MANAGER},
            body=msgspec.json.encode(patch),
            content_type=MERGE,
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=self._is_leading,
        )
