"""A reflector keeps a sink in step with all objects of one kind: it lists them once and then follows a watch.

The list comes in pages, so that no answer is larger than some megabytes: where objects are large, a page has fewer of
them. The watch starts at the list's version and
asks for bookmarks, so that after a broken connection it can go on where it was although nothing happened for hours.
When the server has forgotten that version (410, in the answer or as an event), or was away, everything is listed again;
the sink finds the difference, deletions included.

A watch can be dead without a word: its connection is lost without notice, or something in between holds it open. So
every watch is asked for `WATCH_SECONDS` only. The server ends it then, which shows that it is alive, and the next one
goes on at the same place, after one small request that shows how new the server is. A watch that is silent beyond its
time is given up. `age` says how long ago the server last showed that it tells us everything.

A server that is away, overloaded or refuses us is asked again, ever less often up to `MAX_BACKOFF_SECONDS`, with
jitter, so that many clients do not come back at the same moment. `problem` says what is wrong meanwhile. The small
request before each watch tells whether the server is back, because a watch on which nothing happens does not tell.

While a server is away, its cluster may be restored from a backup: then versions go back, and what we know is of a
history that never was. The small request shows it as long as the versions are behind ours. They need not be: on a busy
cluster they catch up within seconds, and a watch would go on at our version as if nothing had been. So after a server
was away everything is listed again, and `needs_relist` until that has happened: what we know may be wrong.

A cluster may not have a kind at all that is optional: its API server answers that it cannot find the resource (404).
Then there are no such objects, and every `ABSENT_SECONDS` the reflector asks whether the kind is there now.

A list can be as long as the cluster is large. So when histories are lost again and again, lists begin at least a second
apart, and ever further up to `MAX_RELIST_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Generic, Protocol, TypeVar

import msgspec

from fairbind.cluster.cache.feeds import Sink, parse_version
from fairbind.cluster.objects.decode import Bookmark, ResourceType, WatchFault
from fairbind.kube.client.api import MOST_PAGE_BYTES
from fairbind.kube.client.errors import AnswerTooLargeError, ApiError, TransientClusterError

PAGE_SIZE = 500
SMALLER_PAGE = 4
"""A page that is too large is asked for again with so many times fewer objects."""
LIST_TIMEOUT_SECONDS = 60.0
LINES_AT_ONCE = 64
"""So many lines of a watch are taken at a time, when more have come: some ten milliseconds."""
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0
FIRST_RELIST_SECONDS = 1.0
MAX_RELIST_SECONDS = 30.0
CALM_SECONDS = 60.0
"""After a history that lasted this long, the next loss counts as the first."""
WATCH_SECONDS = (15, 24)
"""The server ends a watch after a time from this range; spread, so that watches do not end together."""
OVERDUE_SECONDS = 4.0
"""A watch that says nothing for so long after it should have ended is dead. With it, one is noticed within 30 s."""
CHECK_TIMEOUT_SECONDS = 5.0
ABSENT_SECONDS = 30.0
"""An optional kind that is absent is asked for so often: a server that was restarted may have it."""
CALM_PER_LIST = 4.0
"""Lists because the server was away begin so many times further apart than they take, so they take a fifth at most."""
PAGE_TRIES = 2
"""So often a page after the first is asked for; a list of many pages would else hardly pass a server in trouble."""

REMIND_AFTER_FAILURES = 20
"""A problem that lasts is logged again after so many attempts, which is about every minute and a half."""

NOT_LISTED = "not listed yet"
"""The problem of a reflector that has not tried."""

CONNECTION = "connection"
EXPIRED = "expired"
UNREADABLE = "unreadable"

Item = TypeVar("Item")

_UNUSABLE_VERSION = frozenset({HTTPStatus.GONE, HTTPStatus.BAD_REQUEST})

_log = logging.getLogger(__name__)


class Source(Protocol):
    """The API client, as a reflector sees it."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float = 15.0,
    ) -> bytes:
        """Send a request and return the answer's body."""

    def watch_lines(
        self, path: str, query: Mapping[str, str], *, idle_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch until the server ends it."""


class _HistoryLostError(Exception):
    """What we know is too old to go on from: everything must be listed again. reason: for the counter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reflector(Generic[Item]):
    """Feeds one sink. synced: set when everything was listed once. problem: what is wrong now, or None.

    on_restart: called with the kind's name and "expired", "connection" or "unreadable" when a watch could not go on.
    """

    def __init__(
        self,
        api: Source,
        resource_type: ResourceType[Item],
        sink: Sink[Item],
        *,
        on_restart: Callable[[str, str], None],
        page_size: int = PAGE_SIZE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """jitter: random numbers from 0 to 1."""
        self._api = api
        self._resource_type = resource_type
        self._sink = sink
        self._on_restart = on_restart
        self._page_size = page_size
        self._sleep = sleep
        self._jitter = jitter
        self._version = ""
        self._failures = 0
        self._losses = 0
        self._listed_at = 0.0
        self._list_seconds = 0.0
        self._alive_at: float | None = None
        self._is_silent = False
        self._is_absent = False
        self.needs_relist = False
        """Whether everything is to be listed before what we know can be trusted again.

        The server was away, or a list has reached the sink in part.
        """
        self.is_half_listed = False
        """Whether a list is reaching the sink in parts just now."""
        self._waiters: list[asyncio.Future[None]] = []
        self._is_relist_wanted = asyncio.Event()
        self.synced = asyncio.Event()
        self.problem: str | None = NOT_LISTED

    async def run(self) -> None:
        """Feed the sink until cancelled."""
        while True:
            await self._list_until_it_works()
            if self._is_absent:
                await self._sleep(ABSENT_SECONDS * (0.5 + 0.5 * self._jitter()))
                continue
            following = asyncio.create_task(self._follow(), name=f"watch {self._resource_type.name}")
            wanted = asyncio.create_task(self._is_relist_wanted.wait(), name=f"relist {self._resource_type.name}")
            try:
                await asyncio.wait({following, wanted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, wanted):
                    task.cancel()
                await asyncio.gather(following, wanted, return_exceptions=True)
            if following.cancelled():
                continue
            if (error := following.exception()) is not None:
                self._note_loss(error)
                await self._pause_before_relist()
            else:
                _log.info("%s: listing everything again: the server was away", self._resource_type.name)
                calm_seconds = asyncio.get_running_loop().time() - self._listed_at - self._list_seconds
                await self._sleep(max(CALM_PER_LIST * self._list_seconds - calm_seconds, 0.0))

    @property
    def age(self) -> float:
        """How many seconds ago the server last showed that it tells us everything; infinite before the first list."""
        return math.inf if self._alive_at is None else asyncio.get_running_loop().time() - self._alive_at

    async def relist(self) -> None:
        """List everything again; return when a list that was begun after this call has reached the sink."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._is_relist_wanted.set()
        await waiter

    def _note_loss(self, error: BaseException) -> None:
        if not isinstance(error, _HistoryLostError):
            raise error
        _log.info("%s: listing everything again (%s)", self._resource_type.name, error.reason)
        self._on_restart(self._resource_type.name, error.reason)

    async def _pause_before_relist(self) -> None:
        """Keep lists apart that follow one another because histories are lost."""
        lasted = asyncio.get_running_loop().time() - self._listed_at
        self._losses = 1 if lasted > CALM_SECONDS else self._losses + 1
        longest = min(FIRST_RELIST_SECONDS * 2 ** min(self._losses - 1, 16), MAX_RELIST_SECONDS)
        if (pause := longest * (1.0 + 0.5 * self._jitter()) - lasted) > 0:
            self.problem = "history was lost again right after a list; listing again in some seconds"
            await self._sleep(pause)

    # --- the list ---

    async def _list_until_it_works(self) -> None:
        while True:
            self._is_relist_wanted.clear()
            waiters, self._waiters = self._waiters, []
            try:
                await self.list_once()
            except (ApiError, TransientClusterError, msgspec.DecodeError) as error:
                self._waiters = waiters + self._waiters
                await self._back_off(error)
                continue
            self._note_success()
            self.synced.set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            return

    async def list_once(self) -> None:
        """List everything into the sink. Raises ApiError, TransientClusterError or DecodeError."""
        self._listed_at = asyncio.get_running_loop().time()
        items, version = await self._get_all()
        try:
            for _ in self._sink.replace_in_parts(items, version):
                self.is_half_listed = self.needs_relist = True  # nothing can be decided on half a list
                await asyncio.sleep(0)
        finally:
            self.is_half_listed = False
        self._version = version
        self._alive_at, self._is_silent, self.needs_relist = self._listed_at, False, False
        self._list_seconds = asyncio.get_running_loop().time() - self._listed_at
        _log.debug("%s: listed %d at version %s", self._resource_type.name, len(items), version)

    async def _get_all(self) -> tuple[list[Item], str]:
        """Return all objects, and the version of the list."""
        limit = self._page_size
        query: dict[str, str] = {}
        items: list[Item] = []
        while True:
            try:
                body = await self._get_page({"limit": str(limit), **query})
            except AnswerTooLargeError:
                limit = max(limit // SMALLER_PAGE, 1)
                continue
            except ApiError as error:
                if not self._is_kind_missing(error):
                    raise
                if not self._is_absent:
                    _log.info("%s: the cluster has no such resource", self._resource_type.name)
                self._is_absent = True
                return [], ""
            page = self._resource_type.decode_page(body)
            items.extend(page.items)
            if page.next_page is None:
                self._is_absent = False
                return items, page.version
            query["continue"] = page.next_page
            if SMALLER_PAGE * len(body) < MOST_PAGE_BYTES:
                limit = min(2 * limit, self._page_size)

    def _is_kind_missing(self, error: ApiError) -> bool:
        return self._resource_type.is_optional and error.status == HTTPStatus.NOT_FOUND

    async def _get_page(self, query: Mapping[str, str]) -> bytes:
        tries = PAGE_TRIES if "continue" in query else 1
        while True:
            try:
                return await self._api.request(
                    "GET", self._resource_type.path, query=query, timeout_seconds=LIST_TIMEOUT_SECONDS
                )
            except AnswerTooLargeError:
                raise  # there is no trouble
            except (ApiError, TransientClusterError) as error:
                tries -= 1
                if not tries or (isinstance(error, ApiError) and not error.is_retryable):
                    raise
                await self._back_off(error)

    # --- the watch ---

    async def _follow(self) -> None:
        """Follow the watch until everything is to be listed at once, because the server was away.

        Raises _HistoryLostError when everything is to be listed because there is nothing to go on from.
        """
        is_listed_just_now = True
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                if not is_listed_just_now:
                    await self._check_server()
                    if self.needs_relist:
                        return
                is_listed_just_now = False
                await self._watch()
            except msgspec.DecodeError as error:
                await self._back_off(error)
                raise _HistoryLostError(UNREADABLE) from error
            except ApiError as error:
                if error.status in _UNUSABLE_VERSION or self._is_kind_missing(error):
                    raise _HistoryLostError(EXPIRED) from error
                await self._note_break(error)
            except TransientClusterError as error:
                await self._note_break(error)
            else:
                if asyncio.get_running_loop().time() - begun < 1.0:
                    await self._sleep(self._jitter())  # a server that ends every watch at once must not be hammered

    async def _watch(self) -> None:
        seconds = int(WATCH_SECONDS[0] + self._jitter() * (WATCH_SECONDS[1] - WATCH_SECONDS[0]))
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        overdue_at = asyncio.get_running_loop().time() + seconds + OVERDUE_SECONDS
        lines = self._api.watch_lines(
            self._resource_type.path, query, idle_timeout_seconds=seconds + 2 * OVERDUE_SECONDS
        )
        try:
            async with asyncio.timeout_at(overdue_at) as limit, contextlib.aclosing(lines) as stream:
                taken = 0
                async for line in stream:
                    self._take(line)
                    taken += 1
                    if taken % LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    limit.reschedule(max(overdue_at, asyncio.get_running_loop().time() + OVERDUE_SECONDS))
        except TimeoutError:
            self._is_silent = True
            raise TransientClusterError("the watch did not end in its time; its connection is dead") from None
        self._note_life()

    def _note_life(self) -> None:
        self._alive_at, self._is_silent = asyncio.get_running_loop().time(), False

    def _take(self, line: bytes) -> None:
        event = self._resource_type.decode_event(line)
        if isinstance(event, WatchFault):
            raise ApiError(event.code, event.reason, event.message)
        if not isinstance(event, Bookmark):
            if event.deleted:
                self._sink.delete(event.item)
            else:
                self._sink.apply(event.item)
        self._version = event.version or self._version
        self._note_life()
        self._note_success()

    async def _check_server(self) -> None:
        body = await self._api.request(
            "GET", self._resource_type.path, query={"limit": "1"}, timeout_seconds=CHECK_TIMEOUT_SECONDS
        )
        if self.needs_relist:
            return
        now, known = parse_version(self._resource_type.decode_page(body).version), parse_version(self._version)
        if now is not None and known is not None and now < known:
            raise _HistoryLostError(EXPIRED)
        if not self._is_silent:  # otherwise requests come through, but watches may not
            self._note_life()
        self._note_success()

    # --- trouble ---

    async def _note_break(self, error: Exception) -> None:
        if self.problem is None:
            self._on_restart(self._resource_type.name, CONNECTION)
        is_frozen = self.age > WATCH_SECONDS[0] and not self._is_silent  # it, or we: what was meanwhile is unknown
        if is_frozen or (self._failures and _is_away(error)):
            self.needs_relist = True
        await self._back_off(error)

    async def _back_off(self, error: Exception) -> None:
        self.problem = str(error)
        if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN:
            self.problem = (
                f"{error.message}: the operator's ClusterRole must grant it, as the one of the Helm chart does"
            )
        if self._failures % REMIND_AFTER_FAILURES == 0:
            _log.warning("%s: %s; trying again", self._resource_type.name, self.problem)
        longest = min(FIRST_BACKOFF_SECONDS * 2 ** min(self._failures, 16), MAX_BACKOFF_SECONDS)
        self._failures += 1
        asked = error.retry_after if isinstance(error, ApiError) and error.retry_after else 0.0
        await self._sleep(max(asked, longest * (0.5 + 0.5 * self._jitter())))

    def _note_success(self) -> None:
        if self.problem is not None:
            if self.synced.is_set():
                _log.info("%s: the API server answers again", self._resource_type.name)
            self.problem = None
        self._failures = 0


def _is_away(error: Exception) -> bool:
    """Tell whether nothing came from an API server, or from one that cannot work."""
    return not isinstance(error, ApiError) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
