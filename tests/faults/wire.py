"""A proxy before the API server that speaks HTTP, so that it can be slow, lie, fall silent and forget.

It ends TLS with an authority of its own, which can be exchanged, and passes on what it reads, watches too, as it comes.
As a good proxy it hears when a client resets a request, and resets it upstream too. Relays (`e2e.relay`) stand before
it: they cut.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import ssl
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from e2e.waiting import PATIENCE_SECONDS
from localplane.certificates import Authority
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"})
STEP_SECONDS = 0.05
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass(slots=True)
class Mood:
    """How a wire treats what passes. Exchanged as a whole, so that no request sees half a change.

    latency: least and most seconds that a request and each piece of a watch are late. answers: with which probability
    a request is answered with a status instead of being passed on. retry_after: what a 429 says, in seconds. lost:
    with which probability the server does what was asked and the answer is lost. is_silent: nothing passes.
    """

    latency: tuple[float, float] = (0.0, 0.0)
    answers: Mapping[int, float] = field(default_factory=dict)
    retry_after: int = 1
    lost: float = 0.0
    is_silent: bool = False


class Wire:
    """A proxy in a thread of its own. seed: of what is drawn request by request."""

    def __init__(self, source: Path, folder: Path, seed: int) -> None:
        """source: a kubeconfig of the API server. folder: where keys and its own kubeconfig go."""
        self._source = source
        self._folder = folder
        self._random = random.Random(seed)
        self.kubeconfig = folder / "wire.kubeconfig"
        self.mood = Mood()
        self.authority = Authority("wire")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._upstream = ""
        self._upstream_tls: ssl.SSLContext | None = None
        self._generation = 0
        self._flows: dict[asyncio.Transport, int] = {}

    def __enter__(self) -> Self:
        cluster = yaml.safe_load(self._source.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        self._upstream = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._upstream_tls = ssl.create_default_context(cadata=authority)
        self._port = find_free_ports(1)[0]
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mood = Mood()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def rotate_authority(self) -> None:
        """Exchange the authority and the certificate, and end all flows, as a server that starts anew with both."""
        self.authority = Authority("wire")
        self._run(self._listen())

    def reset(self) -> None:
        """End all flows in the middle of whatever they carry."""
        self._run(self._reset())

    def kill_flows(self) -> None:
        """Let what flows now never carry anything again, without a word; new flows are as good as ever."""
        self._generation += 1

    def write_kubeconfig(self, target: Path, server: str, token: str) -> None:
        """Write a kubeconfig that trusts this wire. server: where it is reached, which may be a relay before it."""
        authority = base64.b64encode(self.authority.certificate).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "wire", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "token", "user": {"token": token}}],
            "contexts": [{"name": "wire", "context": {"cluster": "wire", "user": "token"}}],
            "current-context": "wire",
        }
        beside = target.with_name(f"{target.name}.new")
        beside.touch(mode=0o600)
        beside.write_text(yaml.safe_dump(config), encoding="utf-8")
        beside.replace(target)  # a running operator may read the file at this very moment

    @property
    def server(self) -> str:
        """Its own URL."""
        return f"https://127.0.0.1:{self._port}"

    async def _open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream_tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._reset()
        pair = self.authority.issue_server("the-wire", ("127.0.0.1", "localhost"))
        pair.write(self._folder / "wire.crt", self._folder / "wire.key")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._folder / "wire.crt", self._folder / "wire.key")
        assert self._runner is not None
        assert self._runner.server is not None
        self._server = await self._loop.create_server(self._runner.server, "127.0.0.1", self._port, ssl=tls)

    async def _reset(self) -> None:
        for flow in list(self._flows):
            flow.abort()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._reset()
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return web.Response(status=HTTPStatus.BAD_GATEWAY)
        generation, mood = self._find_generation(transport), self.mood
        try:
            body = await request.read()
            await asyncio.sleep(self._random.uniform(*mood.latency))
            await self._wait_while_silent(generation)
            if (refusal := self._draw_refusal(mood)) is not None:
                return refusal
            is_lost = self._random.random() < mood.lost
            return await self._pass_on(request, body, generation, is_lost=is_lost)
        except (aiohttp.ClientError, OSError):
            transport.abort()  # the server is away: so is whoever stands before it
            raise asyncio.CancelledError from None

    def _find_generation(self, transport: asyncio.Transport) -> int:
        """Return when this flow came to be, as a number: what is older than the last killing is dead."""
        if transport not in self._flows:
            self._flows = {flow: born for flow, born in self._flows.items() if not flow.is_closing()}
            self._flows[transport] = self._generation
        return self._flows[transport]

    async def _wait_while_silent(self, generation: int) -> None:
        while self.mood.is_silent or generation < self._generation:  # noqa: ASYNC110  set from another thread
            await asyncio.sleep(STEP_SECONDS)

    def _draw_refusal(self, mood: Mood) -> web.Response | None:
        drawn = self._random.random()
        for code, probability in mood.answers.items():
            if drawn < probability:
                headers = {"Retry-After": str(mood.retry_after)} if code == HTTPStatus.TOO_MANY_REQUESTS else {}
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
                status |= {"reason": REASONS[code], "message": "a fault on the wire"}
                return web.Response(
                    status=code, headers=headers, body=json.dumps(status).encode(), content_type="application/json"
                )
            drawn -= probability
        return None

    async def _pass_on(
        self, request: web.BaseRequest, body: bytes, generation: int, *, is_lost: bool
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: text for name, text in request.headers.items() if name.lower() not in HOP_BY_HOP}
        url = self._upstream + request.raw_path
        async with self._session.request(
            request.method, URL(url, encoded=True), data=body or None, headers=headers, allow_redirects=False
        ) as upstream:
            if is_lost:
                await upstream.read()
                raise OSError("the answer is lost")
            kept = {name: text for name, text in upstream.headers.items() if name.lower() not in HOP_BY_HOP}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            late: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
            reading = asyncio.create_task(self._read_ahead(upstream, late))
            try:
                while (piece := await late.get()) is not None:
                    due, chunk = piece
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    await self._wait_while_silent(generation)
                    await response.write(chunk)
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            await response.write_eof()
            return response

    async def _read_ahead(
        self, upstream: aiohttp.ClientResponse, late: asyncio.Queue[tuple[float, bytes] | None]
    ) -> None:
        """Each piece comes as late as the wire is now, but none before the one that was read before it."""
        due = 0.0
        try:
            async for chunk in upstream.content.iter_any():
                due = max(due, time.monotonic() + self.mood.latency[1] / 2.0)
                late.put_nowait((due, chunk))
        finally:
            late.put_nowait(None)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


@contextlib.contextmanager
def mooded(wires: Sequence[Wire], mood: Mood) -> Iterator[None]:
    """Give wires a mood for as long as the context lasts."""
    before = [wire.mood for wire in wires]
    for wire in wires:
        wire.mood = mood
    try:
        yield
    finally:
        for wire, old in zip(wires, before, strict=True):
            wire.mood = old
