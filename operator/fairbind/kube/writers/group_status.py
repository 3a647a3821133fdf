"""Says in the status of a PodGroup of Kubernetes whether its minimum was placed: `PodGroupInitiallyScheduled`.

Every `LOOK_SECONDS` all PodGroups are looked at that should say something else (`list_group_conditions`). At most
`WRITES_PER_LOOK` are written at a time, namespaces take turns, and a namespace where a write failed rests
(`write_limits`). Numbers in a message alone are no reason to write it again.

Every write is behind the fence, and names the UID of the PodGroup. Conditions of others stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.group_conditions import GroupCondition
from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.cluster.objects.group_facts import INITIALLY_SCHEDULED
from fairbind.kube.client.api import STRATEGIC, NotAllowedError, Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_right_missing
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue
from fairbind.kube.writers.recorder import WRITE_TIMEOUT_SECONDS

LOOK_SECONDS = 1.0
WRITES_PER_LOOK = 10
COMPLAINT_SECONDS = 300.0

_FIELD_MANAGER = "fairbind-group-status"
_OUTDATED = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Answers about a PodGroup that is another one by now."""
_log = logging.getLogger(__name__)


class GroupStatusWriter:
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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """is_leading: the fence. may_decide: whether the replica knows the world as it is, and leads."""
        self._api = api
        self._list_conditions = list_conditions
        self._is_leading = is_leading
        self._may_decide = may_decide
        self._failures = failures
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._limits = WriteLimits()
        self._written: dict[str, object] = {}
        self._rests_until = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._sleep(LOOK_SECONDS)
            if self._may_decide():
                with self._failures.contain("group_status"):
                    await self.look()

    async def look(self) -> None:
        """Write what is due now."""
        due = self._take_due()
        if due:
            async with asyncio.TaskGroup() as tasks:
                for condition in due:
                    tasks.create_task(self._write(condition))

    def _take_due(self) -> list[GroupCondition]:
        """Return what is to be written now. What was written already comes back with the watch."""
        wanted, now = list(self._list_conditions()), self._clock()
        uids = {condition.uid for condition in wanted}
        self._written = {uid: gist for uid, gist in self._written.items() if uid in uids}
        if now < self._rests_until:
            return []
        queue: FairQueue[str, GroupCondition] = FairQueue(WRITES_PER_LOOK)
        for condition in wanted:
            if self._written.get(condition.uid) != condition.gist and queue.has_place(condition.namespace):
                queue.add(condition.namespace, condition)
        taken: list[GroupCondition] = []
        while len(taken) < WRITES_PER_LOOK:
            found = queue.take(lambda namespace: self._limits.may_begin(namespace, now))
            if found is None:
                break
            self._limits.begin(found.namespace)
            taken.append(found)
        return taken

    async def _write(self, condition: GroupCondition) -> None:
        namespace = condition.namespace
        try:
            await self._send(condition)
        except NotAllowedError:
            self._limits.leave(namespace)
        except (ApiError, TransientClusterError) as error:
            if isinstance(error, ApiError) and error.status in _OUTDATED:
                self._written[condition.uid] = condition.gist
                self._limits.leave(namespace)
            else:
                self._note_failure(namespace, error)
        except BaseException:
            self._limits.leave(namespace)
            raise
        else:
            self._written[condition.uid] = condition.gist
            self._limits.succeed(namespace, self._clock())

    async def _send(self, condition: GroupCondition) -> None:
        namespace, name = quote(condition.namespace), quote(condition.name)
        patch = {"metadata": {"uid": condition.uid}, "status": {"conditions": [self._describe(condition)]}}
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

    def _note_failure(self, namespace: str, error: ApiError | TransientClusterError) -> None:
        now = self._clock()
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        self._rests_until = max(self._rests_until, now + self._limits.fail(namespace, now, asked_seconds))
        is_forbidden = isinstance(error, ApiError) and is_right_missing(error)
        hint = "; the chart's ClusterRole grants patch on podgroups/status" if is_forbidden else ""
        _log.log(self._complaints.choose_level(), "A PodGroup's condition could not be written: %s%s", error, hint)
