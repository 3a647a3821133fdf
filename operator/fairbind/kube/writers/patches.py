"""Patches that follow from what is known of the cluster: which are due, whose turn it is, and the rest after a failure.

Again and again all is looked at that should say something else on the API server. At most `WRITES_PER_LOOK` patches go
out at a time, namespaces take turns, and a namespace where a write failed rests (`write_limits`). What was written is
not written again until the watch shows it. Every write is behind the fence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, Protocol, TypeVar

import msgspec

from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.kube.client.api import NotAllowedError, Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_right_missing
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue

WRITES_PER_LOOK = 10
COMPLAINT_SECONDS = 300.0
MERGE = "application/merge-patch+json"

Sleep = Callable[[float], Awaitable[None]]
_log = logging.getLogger(__name__)


class Patched(Protocol):
    """An object that should say something else."""

    @property
    def uid(self) -> str:
        """Its UID."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""


Change = TypeVar("Change", bound=Patched)


@dataclass(frozen=True, slots=True)
class PatchKind:
    """A kind of patches. part: as metrics name it. trouble: what a log line says when one could not be written.

    right: the resource that is patched. outdated: answers about an object that is another one by now: the watch will
    show it, and it is looked at again.
    """

    part: str
    trouble: str
    right: str
    look_seconds: float = 1.0
    outdated: frozenset[int] = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


class Patches(ABC, Generic[Change]):
    """See the module; it works while `run` runs."""

    def __init__(
        self,
        kind: PatchKind,
        api: Requests,
        is_leading: Callable[[], bool],
        may_decide: Callable[[], bool],
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """is_leading: the fence. may_decide: whether the replica knows the world as it is, and leads."""
        self._kind = kind
        self._api = api
        self._is_leading = is_leading
        self._may_decide = may_decide
        self._failures = failures
        self._clock = clock
        self._sleep = sleep
        self._limits = WriteLimits()
        self._written: dict[str, Hashable] = {}
        self._rests_until = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    @abstractmethod
    def _list_wanted(self) -> Iterable[Change]:
        """Return what should say something else."""

    @abstractmethod
    def _get_gist(self, change: Change) -> Hashable:
        """Return what two changes of one object share that need one write."""

    @abstractmethod
    async def _send(self, change: Change) -> None:
        """Write a change."""

    def _is_due(self, change: Change) -> bool:
        """Whether a change is to be written; one that was written comes back with the watch."""
        return self._written.get(change.uid) != self._get_gist(change)

    def _forget(self) -> None:
        """Note that this replica does not decide."""

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._sleep(self._kind.look_seconds)
            if not self._may_decide():
                self._forget()
                continue
            with self._failures.contain(self._kind.part):
                await self.look()

    async def look(self) -> None:
        """Write what is due now."""
        due = self._take_due()
        if due:
            async with asyncio.TaskGroup() as tasks:
                for change in due:
                    name = f"{self._kind.part} {change.namespace}/{change.name}"
                    tasks.create_task(self._write(change), name=name)

    def _take_due(self) -> list[Change]:
        """Return what is to be written now."""
        wanted, now = list(self._list_wanted()), self._clock()
        uids = {change.uid for change in wanted}
        self._written = {uid: gist for uid, gist in self._written.items() if uid in uids}
        if now < self._rests_until:
            return []
        queue: FairQueue[str, Change] = FairQueue(WRITES_PER_LOOK)
        for change in wanted:
            if self._is_due(change) and queue.has_place(change.namespace):
                queue.add(change.namespace, change)
        taken: list[Change] = []
        while len(taken) < WRITES_PER_LOOK:
            found = queue.take(lambda namespace: self._limits.may_begin(namespace, now))
            if found is None:
                break
            self._limits.begin(found.namespace)
            taken.append(found)
        return taken

    async def _write(self, change: Change) -> None:
        namespace = change.namespace
        try:
            await self._send(change)
        except NotAllowedError:
            self._limits.leave(namespace)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and error.status in self._kind.outdated:
                self._written[change.uid] = self._get_gist(change)
                self._limits.leave(namespace)
            else:
                self._note_failure(namespace, error)
        except BaseException:
            self._limits.leave(namespace)
            raise
        else:
            self._written[change.uid] = self._get_gist(change)
            self._limits.succeed(namespace, self._clock())

    def _note_failure(self, namespace: str, error: ApiError | TransientClusterError | msgspec.MsgspecError) -> None:
        now = self._clock()
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        self._rests_until = max(self._rests_until, now + self._limits.fail(namespace, now, asked_seconds))
        is_forbidden = isinstance(error, ApiError) and is_right_missing(error)
        hint = f"; the chart's ClusterRole grants patch on {self._kind.right}" if is_forbidden else ""
        _log.log(self._complaints.choose_level(), "%s could not be written: %s%s", self._kind.trouble, error, hint)
