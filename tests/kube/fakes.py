"""An API server that misbehaves on demand, and what else the outbound half needs to be tested without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import ClusterAccess, Credentials


class FixedSource:
    """Credentials that are what the test says."""

    name = "the test"

    def __init__(self, server: str, token: str | None = "first") -> None:
        self.server = server
        self.token = token
        self.loads: list[bool] = []

    def load(self, *, again: bool) -> ClusterAccess:
        self.loads.append(again)
        return ClusterAccess(
            server=self.server,
            authorization=None if self.token is None else f"Bearer {self.token}",
            ca_path=None,
            certificate_path=None,
            private_key_path=None,
            verifies_server=True,
            tls_server_name=None,
            proxy=None,
            fingerprint="",
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a response is made of; a response itself can be sent only once."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    def make(self) -> web.Response:
        return web.Response(status=self.status, text=self.text, headers=self.headers)


class Silence:
    """Nothing comes until the client gives up."""


@dataclass(frozen=True, slots=True)
class Trick:
    """What the server does instead of answering as it should.

    happens: whether the request is carried out. answer: what comes back; None: the connection is dropped.
    """

    happens: bool
    answer: Answer | Silence | None = None


def refuse(
    status: int, reason: str = "", message: str = "", *, headers: dict[str, str] | None = None, **extra: Any
) -> Answer:
    """Return a Status as an API server writes it."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status, **extra}
    return Answer(status, json.dumps(body), headers or {})


DROPPED_AFTER = Trick(happens=True)
DROPPED_BEFORE = Trick(happens=False)
SILENT_AFTER = Trick(happens=True, answer=Silence())
SILENT_BEFORE = Trick(happens=False, answer=Silence())


async def eventually(condition: Callable[[], object], timeout_seconds: float = 30.0) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():  # noqa: ASYNC110 - conditions of others, which tell nobody
            await asyncio.sleep(0.001)


@dataclass
class FakePods:
    """Pods with their bindings, behind the paths that the API server has. tricks: for the next bindings, in order."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    tricks: list[Trick] = field(default_factory=list)
    get_tricks: list[Trick] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    bound: list[tuple[str, str]] = field(default_factory=list)
    on_request: Callable[[Seen], None] = lambda _seen: None
    open_requests: int = 0
    most_open: int = 0
    pace: Callable[[], Any] | None = None

    def add(self, name: str, uid: str = "", node: str | None = None) -> None:
        self.pods[name] = {"metadata": {"name": name, "uid": uid or f"uid-{name}"}, "spec": {"nodeName": node}}

    @property
    def binds(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "POST"]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        seen = Seen(
            request.method, request.path, dict(request.query), json.loads(text) if text else None, dict(request.headers)
        )
        self.seen.append(seen)
        self.on_request(seen)
        self.open_requests += 1
        self.most_open = max(self.most_open, self.open_requests)
        try:
            if self.pace is not None:
                await self.pace()
            return await self._answer(request, seen)
        finally:
            self.open_requests -= 1

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        tricks = self.tricks if seen.method == "POST" else self.get_tricks
        if not tricks:
            return self._carry_out(seen).make()
        trick = tricks.pop(0)
        if trick.happens:
            self._carry_out(seen)
        if isinstance(trick.answer, Answer):
            return trick.answer.make()
        if trick.answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        await asyncio.sleep(3600)
        raise AssertionError

    def _carry_out(self, seen: Seen) -> Answer:
        name = seen.path.split("/")[6]
        pod = self.pods.get(name)
        if pod is None:
            return refuse(404, "NotFound", f'pods "{name}" not found')
        if seen.method == "GET":
            return Answer(200, json.dumps(pod))
        uid = seen.body["metadata"]["uid"]
        if uid != pod["metadata"]["uid"]:
            return refuse(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        if pod["spec"]["nodeName"]:
            return refuse(409, "Conflict", f"pod {name} is already assigned to node {pod['spec']['nodeName']}")
        pod["spec"]["nodeName"] = seen.body["target"]["name"]
        self.bound.append((name, seen.body["target"]["name"]))
        return Answer(201, '{"kind": "Status", "status": "Success", "code": 201}')


Handler = Callable[[web.Request], Any]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve on a free loopback port; yields the URL."""
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[ApiClient]:
    """Serve, and yield a client of it."""
    async with serving(handler) as url:
        api = ApiClient(Credentials(FixedSource(url)))
        try:
            yield api
        finally:
            await api.close()


class CountingObserver:
    """Remembers how bindings ended."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def binding_finished(self, result: str) -> None:
        self.results.append(result)
