"""Writes that follow from what is known of the cluster: which are due, whose turn it is, and the rest after a failure.

Again and again all objects are looked at that should be others on the API server. At most `WRITES_PER_LOOK` writes go
out at a time, namespaces or tenants take turns, and a namespace where a write failed rests (`write_limits`). What was
written is not written again until the watch shows it. Every write is behind the fence.
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
WriteError = ApiError | TransientClusterError | msgspec.MsgspecError
_log = logging.getLogger(__name__)


class Change(Protocol):
    """A difference that an object should have."""

    @property
    def uid(self) -> str:
        """Its UID."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""


Due = TypeVar("Due", bound=Change)


@dataclass(frozen=True, slots=True)
class WriteKind:
    """A kind of writes. part: as metrics name it. trouble: what a log line says when one failed.

    right: what the chart's ClusterRole grants for it. outdated: answers about an object that is another one by now: the
    watch will show it, and it is looked at again. most_of_turn: how many of one namespace or tenant go out at a time.
    """

    part: str
    trouble: str
    right: str
    look_seconds: float = 1.0
    outdated: frozenset[int] = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})
    most_of_turn: int = WRITES_PER_LOOK


class DueWrites(ABC, Generic[Due]):
    """See the module; it works while `run` runs.

    _written: what was written of each object that the watch shows still as it was, by UID. _left: until when objects
    are left alone, by UID.
    """

    def __init__(
        self,
        kind: WriteKind,
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
        self._left: dict[str, float] = {}
        self._rests_until = 0.0
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    @abstractmethod
    def _list_wanted(self) -> Iterable[Due]:
        """Return what should be different."""

    @abstractmethod
    async def _send(self, change: Due) -> None:
        """Write a change."""

    def _get_gist(self, change: Due) -> Hashable:
        """Return what two changes of one object share that need one write."""
        return change.uid

    def _get_turn(self, change: Due) -> str:
        """Return whose turn a change needs."""
        return change.namespace

    def _is_due(self, change: Due) -> bool:
        """Whether a change is to be written; one that was written comes back with the watch."""
        return self._written.get(change.uid) != self._get_gist(change)

    def _note_pause(self, error: WriteError) -> float | None:
        """Note an answer; return for how long the object alone is left for it, None: it is a failure of a write."""

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

    def _take_due(self) -> list[Due]:
        """Return what is to be written now."""
        wanted, now = list(self._list_wanted()), self._clock()
        uids = {change.uid for change in wanted}
        self._written = {uid: gist for uid, gist in self._written.items() if uid in uids}
        self._left = {uid: until for uid, until in self._left.items() if uid in uids and now < until}
        if now < self._rests_until:
            return []
        queue: FairQueue[str, Due] = FairQueue(self._kind.most_of_turn)
        for change in wanted:
            turn = self._get_turn(change)
            may_begin = change.uid not in self._left and self._limits.may_begin(change.namespace, now)
            if may_begin and self._is_due(change) and queue.has_place(turn):
                queue.add(turn, change)
        taken: list[Due] = []
        while len(taken) < WRITES_PER_LOOK and (found := queue.take()) is not None:
            if self._limits.may_begin(found.namespace, now):  # after a failure, one at a time
                self._limits.begin(found.namespace)
                taken.append(found)
        return taken

    async def _write(self, change: Due) -> None:
        namespace = change.namespace
        try:
            await self._send(change)
        except NotAllowedError:
            self._limits.leave(namespace)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            self._note_error(change, error)
        except BaseException:
            self._limits.leave(namespace)
            raise
        else:
            self._written[change.uid] = self._get_gist(change)
            self._limits.succeed(namespace, self._clock())

    def _note_error(self, change: Due, error: WriteError) -> None:
        namespace = change.namespace
        if isinstance(error, ApiError) and error.status in self._kind.outdated:
            self._written[change.uid] = self._get_gist(change)
            self._limits.leave(namespace)
        elif (pause_seconds := self._note_pause(error)) is not None:
            self._left[change.uid] = self._clock() + pause_seconds
            self._limits.leave(namespace)
        else:
            self._note_failure(namespace, error)

    def _note_failure(self, namespace: str, error: WriteError) -> None:
        now = self._clock()
        asked_seconds = error.retry_after if isinstance(error, ApiError) else None
        self._rests_until = max(self._rests_until, now + self._limits.fail(namespace, now, asked_seconds))
        is_forbidden = isinstance(error, ApiError) and is_right_missing(error)
        hint = f"; the chart's ClusterRole grants {self._kind.right}" if is_forbidden else ""
        _log.log(self._complaints.choose_level(), "%s: %s%s", self._kind.trouble, error, hint)
