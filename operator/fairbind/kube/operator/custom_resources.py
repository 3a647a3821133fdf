"""Tenants and SchedulingPolicies, followed through kopf. The only module that knows kopf.

kopf owns the watching of these rare objects: connections, resuming, relisting, one queue for each object. Three things
are ours, because a scheduler must not miss a weight:

1. Before kopf starts, both kinds are listed once, and nothing is decided until that worked. A CRD that is missing or a
   verb that is forbidden is said here, with what to do, and tried again until it is there.
2. kopf does not tell of objects that were deleted while its watch was broken, nor of a watch that is dead without a
   word or of a cluster that was restored from a backup. So both kinds are listed again every ten seconds and compared;
   that costs two requests that the API server answers from memory. `find_ages` says how old the last lists are.
3. kopf ends when something happens that it was not made for (its CRD is deleted); then it is started again from step 1.
   So it is when the server's authority was exchanged: kopf asks for a new session after a 401 only.

kopf gets handlers for raw events only. It then never writes to an object: no finalizer, no annotation, no event.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import msgspec

from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.kube.client.api import Api, make_socket
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import (
    FORBIDDEN,
    GROUP,
    KINDS,
    NOT_FOUND,
    VERSION,
    explain_failure,
    list_objects,
)
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.observer import Observer
from fairbind.kube.operator.health import Health

RELIST_SECONDS = 10.0
RETRY_SECONDS = 2.0
REMIND_SECONDS = 60.0
"""A problem that lasts is logged again this often."""
RECONNECT_SECONDS = 2.0
"""kopf lists a kind again so long after its history was lost: 0.1 s by default, however often it is lost."""
MAX_RETRY_AFTER_SECONDS = 10.0
"""kopf would obey any `Retry-After`, a day, too."""
CANCEL_AGAIN_SECONDS = 3.0

_KOPF_FOLDER = str(Path(kopf.__file__).parent) + os.sep
_log = logging.getLogger(__name__)


class CustomResources:
    """Keeps the tables of Tenants and SchedulingPolicies up to date, through kopf.

    reinstall_signals: called after kopf took the process's signal handlers, to take them back.
    """

    def __init__(
        self,
        api: Api,
        credentials: Credentials,
        tables: Mapping[str, ObjectTable],
        *,
        observer: Observer,
        health: Health,
        reinstall_signals: Callable[[], None],
    ) -> None:
        self._api = api
        self._credentials = credentials
        self._tables = tables
        self._observer = observer
        self._health = health
        self._reinstall_signals = reinstall_signals
        self._reminded_at: dict[str, float] = {}
        self._is_missing = dict.fromkeys(KINDS, False)
        self._sessions: list[aiohttp.ClientSession] = []
        self._listed_at: dict[str, float] = {}
        self.listed = asyncio.Event()

    def find_ages(self) -> dict[str, float]:
        """Return for each kind that was listed how many seconds ago its last list was begun."""
        now = asyncio.get_running_loop().time()
        return {kind: now - at for kind, at in self._listed_at.items()}

    async def run(self) -> None:
        """Follow both kinds until cancelled."""
        while True:
            await self._list_until_it_works()
            self.listed.set()
            problem = await self._run_kopf()
            for kind in KINDS:
                self._observer.watch_restarted(kind, "connection")
            _log.debug("kopf ended and is started again: %s", problem)
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_until_it_works(self) -> None:
        while True:
            if await self._list_everything():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_everything(self) -> bool:
        """List both kinds and replace what the tables have. False when one could not be listed; what was, is taken."""
        outcomes = [await self._list_kind(kind) for kind in KINDS]
        return all(outcomes)

    async def _list_kind(self, kind: str) -> bool:
        asked_at = asyncio.get_running_loop().time()
        known = self._tables[kind].version
        try:
            objects, version = await list_objects(self._api, kind)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            self._is_missing[kind] = isinstance(error, ApiError) and error.status in {NOT_FOUND, FORBIDDEN}
            self._report(kind, explain_failure(kind, error))
            return False
        self._is_missing[kind] = False
        self._listed_at[kind] = asked_at
        if self._tables[kind].replace(objects, version, known_before=known):
            _log.warning("%s.%s: the cluster went back in time; everything is read again", kind, GROUP)
        if self._health.clear_problem(kind):
            _log.info("%s.%s: listed", kind, GROUP)
        self._reminded_at.pop(kind, None)
        return True

    def _report(self, kind: str, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        is_new = self._health.set_problem(kind, problem)
        if is_new or now - self._reminded_at.get(kind, -REMIND_SECONDS) >= REMIND_SECONDS:
            _log.warning("%s.%s: %s", kind, GROUP, problem)
            self._reminded_at[kind] = now

    async def _run_kopf(self) -> str:
        """Run kopf until it, or the comparison beside it, finds that it cannot go on; return why."""
        settings, registry = _make_settings(), self._make_registry()
        tasks = await kopf.spawn_tasks(registry=registry, settings=settings, clusterwide=True, standalone=True)
        self._reinstall_signals()
        own = asyncio.create_task(self._compare_regularly(), name="compare-custom-resources")
        try:
            done, _ = await asyncio.wait([*tasks, own], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # kopf.run_tasks() would also end every task that was born after kopf, such as each binding in flight.
            await _cancel_and_wait([own, *tasks])
            await _cancel_and_wait(_find_orphans())
            await self._close_sessions()
        return ", ".join(sorted(_describe_end(task) for task in done))

    async def _compare_regularly(self) -> None:
        """Return when kopf must be started again: a kind cannot be listed any more, or the authority is another one."""
        pause, trusted = RELIST_SECONDS, self._credentials.ssl_context
        while True:
            await asyncio.sleep(pause)
            is_listed = await self._list_everything()
            if not is_listed and any(self._is_missing.values()):
                return
            if self._credentials.ssl_context is not trusted:
                return  # kopf's session trusts the authority of before
            # /readyz names what is wrong until a list has worked, so an outage is looked at more often.
            pause = RELIST_SECONDS if is_listed else RETRY_SECONDS

    def _make_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.AiohttpSession:
            return self._make_session()

        kopf.on.login(registry=registry, id="login")(login)
        for kind, table in self._tables.items():
            kopf.on.event(GROUP, VERSION, kind, registry=registry, id=kind)(_make_event_handler(table))
        return registry

    def _make_session(self) -> kopf.AiohttpSession:
        """Make the session that kopf uses until a 401, after which it closes it and asks for another."""
        access = self._credentials.access

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            if authorization := await self._credentials.authorization():
                request.headers["Authorization"] = authorization
            if access.tls_server_name is not None:
                request.server_hostname = access.tls_server_name  # kopf knows no such thing
            response = await handler(request)
            if response.status == HTTPStatus.TOO_MANY_REQUESTS and _asks_for_too_long(response):
                response.close()
                await asyncio.sleep(MAX_RETRY_AFTER_SECONDS)
                raise aiohttp.ClientConnectionError("too many requests")  # which kopf tries again after a second
            return response

        context = self._credentials.ssl_context
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context if context is not None else True, socket_factory=make_socket),
            middlewares=[authorize],
            proxy=access.proxy,
        )
        self._sessions.append(session)
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session)

    async def _close_sessions(self) -> None:
        """Close what kopf leaves open when its end is cancelled, as a cancellation that is repeated does."""
        while self._sessions:
            await self._sessions.pop().close()


def _make_event_handler(table: ObjectTable) -> Callable[..., Any]:
    async def handle(event: Mapping[str, Any], **_: Any) -> None:
        if event["type"] == "DELETED":
            table.delete(event["object"])
        else:
            table.apply(event["object"])

    return handle


def _asks_for_too_long(response: aiohttp.ClientResponse) -> bool:
    """Whether kopf would wait for longer than `MAX_RETRY_AFTER_SECONDS`, or end because it cannot read the header."""
    asked = response.headers.get("Retry-After")
    try:
        return asked is not None and not float(asked) <= MAX_RETRY_AFTER_SECONDS
    except ValueError:
        return True


def _make_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # whether the CRDs are there is our own business: step 1 above
    settings.process.ultimate_exiting_timeout = None  # would kill us minutes after kopf was started again
    settings.watching.reconnect_backoff = RECONNECT_SECONDS
    return settings


def _describe_end(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return f"{task.get_name()} was cancelled"
    error = task.exception()
    return f"{task.get_name()} ended" if error is None else f"{task.get_name()}: {error}"


def _find_orphans() -> list[asyncio.Task[Any]]:
    """Return the tasks that kopf leaves behind when one of its watches fails: the other watches.

    Each watch ends the task that waits for its pause; who does that in its place raises an error in a callback of kopf.
    """
    return [
        task
        for task in asyncio.all_tasks()
        if _runs_code_of(task, _KOPF_FOLDER) and not task.get_name().startswith("pause-waiter")
    ]


def _runs_code_of(task: asyncio.Task[Any], folder: str) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(folder)


async def _cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended: kopf loses a cancellation that comes while one of its watches ends."""
    tasks = list(tasks)
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)  # raises only when we are cancelled ourselves
