"""Says in the status of a PodGroup of Kubernetes whether its minimum was placed: `PodGroupInitiallyScheduled`.

Numbers in a message alone are no reason to write it again. Every write names the UID of the PodGroup (`due_writes`).
Conditions of others stay as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.group_conditions import GroupCondition
from fairbind.cluster.objects.group_facts import INITIALLY_SCHEDULED
from fairbind.kube.client.api import STRATEGIC, Requests
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import DueWrites, Sleep, WriteKind
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

_FIELD_MANAGER = "fairbind-group-status"
_KIND = WriteKind("group_status", "A PodGroup's condition could not be written", "patch on podgroups/status")


class GroupStatusWriter(DueWrites[GroupCondition]):
    """See the module; it works while `run` runs."""

    def __init__(
        self,
        api: Requests,
        list_conditions: Callable[[], Iterable[GroupCondition]],
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """list_conditions: returns what PodGroups should say and do not. For the rest see `DueWrites`."""
        super().__init__(_KIND, api, is_leading, may_decide, failures, clock, sleep)
        self._list_conditions = list_conditions
        self._wall_clock = wall_clock

    def _list_wanted(self) -> Iterable[GroupCondition]:
        return self._list_conditions()

    def _get_gist(self, change: GroupCondition) -> Hashable:
        return change.gist

    async def _send(self, change: GroupCondition) -> None:
        namespace, name = quote(change.namespace), quote(change.name)
        patch = {"metadata": {"uid": change.uid}, "status": {"conditions": [self._describe(change)]}}
        await self._api.request(
            "PATCH",
            f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups/{name}/status",
            query={"fieldManager": _FIELD_MANAGER},
            body=msgspec.json.encode(patch),
            content_type=STRATEGIC,
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=self._is_leading,
        )

    def _describe(self, condition: GroupCondition) -> dict[str, Any]:
        moment = datetime.fromtimestamp(int(self._wall_clock()), UTC)
        generation = {"observedGeneration": condition.generation} if condition.generation else {}
        return {
            "type": INITIALLY_SCHEDULED,
            "status": "True" if condition.is_scheduled else "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": moment.isoformat().replace("+00:00", "Z"),
            **generation,
        }
