"""What kopf would do to an operator: each test fails without one of the workarounds in `custom_resources`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, cast

import kopf
import pytest
from aiohttp import web

from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import GROUP, KINDS, POLICIES, TENANTS, VERSION
from fairbind.kube.observer import SilentObserver
from fairbind.kube.operator import custom_resources as handlers
from fairbind.kube.operator.custom_resources import CustomResources
from fairbind.kube.operator.health import Health
from kube.fakes import FixedSource, eventually, serving
from kube.operator.test_custom_resources import EMPTY_LIST, FlakyApi

TENANT = {"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "5"}, "spec": {}}
GONE, BROKEN = 410, 500
CRDS = "customresourcedefinitions"


def make_discovery(*kinds: str) -> dict[str, Any]:
    fields = {"singularName": "", "namespaced": False, "verbs": ["create", "list", "watch"]}
    return {"resources": [{"name": kind, "kind": kind, **fields} for kind in kinds]}


def make_group(name: str, version: str) -> dict[str, Any]:
    return {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}


DISCOVERY = {
    "/api": {"versions": ["v1"]},
    "/api/v1": make_discovery("namespaces", "events"),
    "/apis": {"groups": [make_group(GROUP, VERSION), make_group("apiextensions.k8s.io", "v1")]},
    f"/apis/{GROUP}/{VERSION}": make_discovery(*KINDS),
    "/apis/apiextensions.k8s.io/v1": make_discovery(CRDS),
}


class Server:
    """Serves these Tenants, and no policies, to kopf.

    errors: what watches of Tenants end with, in their order, once `may_end`; those after them say nothing.
    asked: method and kind of each request. listed_at: when Tenants were listed. refusals: so many of these are refused.
    """

    def __init__(self, *errors: int, tenants: Collection[dict[str, Any]] = ()) -> None:
        self.errors = list(errors)
        self.may_end = asyncio.Event()
        self.tenants = tenants
        self.asked: list[tuple[str, str]] = []
        self.listed_at: list[float] = []
        self.refusals = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        self.asked.append((request.method, kind))
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        if "watch" in request.query:
            if kind != TENANTS or not self.errors:
                await asyncio.Event().wait()
            await self.may_end.wait()
            status = {"kind": "Status", "code": self.errors.pop(0)}
            return web.json_response({"type": "ERROR", "object": status})
        if kind != TENANTS:
            return web.Response(body=EMPTY_LIST, content_type="application/json")
        self.listed_at.append(asyncio.get_running_loop().time())
        if self.refusals:
            self.refusals -= 1
            return web.json_response({"kind": "Status", "code": 429}, status=429, headers={"Retry-After": "86400"})
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": list(self.tenants)})


class Resources(CustomResources):
    """Keeps what it makes for kopf. sessions: see there."""

    sessions: list[kopf.AiohttpSession]

    def _make_session(self) -> kopf.AiohttpSession:
        made = super()._make_session()
        self.sessions = [*getattr(self, "sessions", ()), made]
        return made


def make_resources(
    url: str, table: ObjectTable | None = None, reinstall_signals: Callable[[], None] = lambda: None
) -> Resources:
    """table: of Tenants."""
    api = FlakyApi()
    api.is_away = False
    tables = {TENANTS: table or ObjectTable(lambda: None), POLICIES: ObjectTable(lambda: None)}
    return Resources(
        cast("Any", api),
        Credentials(FixedSource(url)),
        tables,
        observer=SilentObserver(),
        health=Health(),
        reinstall_signals=reinstall_signals,
    )


@contextlib.asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "CANCEL_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(handlers, "RETRY_SECONDS", 0.01)


# --- while it runs ---


async def test_kopf_lists_seldom_when_history_is_lost_right_after_each_list() -> None:
    server = Server(GONE, GONE, GONE)
    server.may_end.set()
    async with serving(server.answer) as url, running(make_resources(url)._run_kopf()) as kopf_runs:
        await eventually(lambda: len(server.listed_at) == 3)
        assert not kopf_runs.done()
    first, second, third = server.listed_at
    assert second - first >= 1.0
    assert third - second >= 1.0


async def test_kopf_does_not_wait_for_a_day_because_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_RETRY_AFTER_SECONDS", 0.05)
    server = Server()
    server.refusals = 1
    async with serving(server.answer) as url, running(make_resources(url)._run_kopf()) as kopf_runs:
        await eventually(lambda: len(server.listed_at) == 2)
        assert not kopf_runs.done()


async def test_kopf_neither_writes_nor_follows_crds() -> None:
    """It would watch CRDs, which the chart does not grant; of errors in handlers for raw events it posts no event."""

    class FailingTable(ObjectTable):
        has_failed = False

        def apply(self, item: object) -> None:
            self.has_failed = True
            raise ValueError(f"a bug: {item}")

    server, table = Server(tenants=[TENANT]), FailingTable(lambda: None)
    async with serving(server.answer) as url, running(make_resources(url, table)._run_kopf()):
        await eventually(lambda: table.has_failed)
        await asyncio.sleep(0.3)
    assert {method for method, _ in server.asked} == {"GET"}
    assert {kind for _, kind in server.asked} == {"api", "apis", "v1", VERSION, *KINDS}


async def test_signals_stay_the_operators() -> None:
    loop, received, server = asyncio.get_running_loop(), asyncio.Event(), Server()

    def install() -> None:
        loop.add_signal_handler(signal.SIGTERM, received.set)

    install()
    async with (
        serving(server.answer) as url,
        running(make_resources(url, reinstall_signals=install)._run_kopf()) as kopf_runs,
    ):
        await eventually(lambda: server.listed_at)
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(received.is_set, 5.0)
        assert not kopf_runs.done()
    loop.remove_signal_handler(signal.SIGTERM)


# --- when it ends ---


async def test_what_was_begun_after_kopf_goes_on_when_kopf_ends() -> None:
    """Such as the bindings in flight."""
    server = Server(BROKEN)
    async with serving(server.answer) as url, running(make_resources(url)._run_kopf()) as kopf_runs:
        await eventually(lambda: server.listed_at)
        async with running(asyncio.Event().wait()) as binding:
            server.may_end.set()
            await asyncio.wait([kopf_runs], timeout=30.0)
            assert "code" in kopf_runs.result()
            assert not binding.done()


async def test_nothing_of_kopf_is_left_when_one_of_its_watches_fails() -> None:
    server, troubles = Server(BROKEN), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: troubles.append(context))
    async with serving(server.answer) as url:
        resources = make_resources(url)
        async with running(resources._run_kopf()) as kopf_runs:
            await eventually(lambda: {kind for _, kind in server.asked} >= set(KINDS))
            server.may_end.set()
            await asyncio.wait([kopf_runs], timeout=30.0)
            assert not [task for task in asyncio.all_tasks() if handlers._runs_code_of(task, handlers._KOPF_FOLDER)]
    assert troubles == []


async def test_the_connections_are_closed_also_when_the_end_of_kopf_is_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "CANCEL_AGAIN_SECONDS", 0.0)
    server = Server()
    async with serving(server.answer) as url:
        resources = make_resources(url)
        async with running(resources._run_kopf()):
            await eventually(lambda: server.listed_at)
        assert [session.aiohttp_session.closed for session in resources.sessions] == [True]


async def test_kopf_kills_nobody_minutes_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, later, server = asyncio.get_running_loop(), list[object](), Server(BROKEN)
    call_later = loop.call_later

    def note(delay: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        later.append(callback)
        return call_later(delay, callback, *arguments, **options)

    monkeypatch.setattr(loop, "call_later", note)
    server.may_end.set()
    async with serving(server.answer) as url, asyncio.timeout(30.0):
        await make_resources(url)._run_kopf()
    assert later
    assert signal.pthread_kill not in later


async def test_kopf_is_started_again_after_both_kinds_were_listed_again() -> None:
    server, table = Server(BROKEN, tenants=[TENANT]), ObjectTable(lambda: None)
    server.may_end.set()
    async with serving(server.answer) as url:
        resources = make_resources(url, table)
        async with running(resources.run()):
            await eventually(lambda: len(server.listed_at) == 2)
    assert cast("Any", resources._api).asked == 2 * len(KINDS)
