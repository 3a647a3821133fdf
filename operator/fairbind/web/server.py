"""The small HTTP server: /metrics for Prometheus, /healthz and /readyz for the kubelet.

It knows nothing of what it shows: the metrics are rendered by a callable, and so are the two questions "is it alive"
and "is it ready", which answer None when all is well and else a line that says why not. That line is the body, so that
`curl` is enough to find out what a replica waits for.

The metrics can be kept for readers who prove who they are with a bearer token; the part that knows how to ask about
tokens is passed in. The probes stay open to all: kubelets have no token, and a line that says what a replica waits for
is all that there is to see.

No client that can reach it can stop it: connections are bounded (`connections`), and so is rendering (`pages`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from ssl import SSLContext

from aiohttp import web
from aiohttp.typedefs import Handler

from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.web.connections import Connections, Limits
from fairbind.web.pages import PageCache, Render, takes_gzip

FindProblem = Callable[[], str | None]
FindRefusal = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""For a bearer token (empty: none) and the address that it came from, why its owner may not see the metrics: an HTTP
status and a line; None: it may."""

MAX_PORT = 65535
LONGEST_LINE = 8190
MOST_HEADERS = 32
INDEX = "fairbind\n\n/metrics\n/healthz\n/readyz\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. An empty host means every address, of IPv4 and IPv6; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that "HOST:PORT", ":PORT" or "[IPV6]:PORT" means; InvalidProblemError for anything else.

    >>> parse_address("127.0.0.1:8080"), str(parse_address("[::1]:0"))
    (Address(host='127.0.0.1', port=8080), '[::1]:0')
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > MAX_PORT:
        raise InvalidProblemError(f"{text!r} is not HOST:PORT, such as :8080 or 127.0.0.1:0")
    if ":" in host and not bracketed:
        raise InvalidProblemError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:8080")
    return Address(host[1:-1] if bracketed else host, int(port))


class WebServer:
    """Serves until it is stopped; shares the event loop of its caller.

    tls: serve by HTTPS. find_refusal: asked before the metrics are shown; None shows them to all. render: called
    in another thread.
    """

    def __init__(
        self,
        address: Address,
        render: Render,
        *,
        find_dead: FindProblem,
        find_unready: FindProblem,
        find_refusal: FindRefusal | None = None,
        tls: SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._address = address
        self._pages = PageCache(render)
        self._find_dead = find_dead
        self._find_unready = find_unready
        self._find_refusal = find_refusal
        self._tls = tls
        self._limits = limits or Limits()
        self._connections: Connections | None = None
        app = web.Application(middlewares=[self._answer_in_time])
        app.router.add_get("/", self._show_index)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", self._show_health)
        app.router.add_get("/readyz", self._show_readiness)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=self._limits.idle_seconds,
            lingering_time=0.0,  # no client sends a body that is worth waiting for
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            max_headers=MOST_HEADERS,
        )

    @property
    def scheme(self) -> str:
        """What URLs of its pages begin with."""
        return "http" if self._tls is None else "https"

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return 0 if self._connections is None else len(self._connections)

    async def start(self) -> Address:
        """Listen, and return the address with the port that it got. FairbindError when the address cannot be had."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._connections = Connections(self._runner.server, limits=self._limits, tls=self._tls)
        try:
            port = await self._connections.listen(self._address.host or None, self._address.port)
        except OSError as error:
            await self._runner.cleanup()
            raise FairbindError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        return Address(self._address.host, port)

    async def stop(self) -> None:
        """Close the listening socket and the connections."""
        if self._connections is not None:
            await self._connections.stop_listening()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.close_all()

    @web.middleware
    async def _answer_in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let the connection be judged by how long the answer takes, until its reader has taken it."""
        assert self._connections is not None
        self._connections.begin_answer(request.protocol)
        try:
            response = await handler(request)
            await response.prepare(request)
            await response.write_eof()
        finally:
            self._connections.end_answer(request.protocol)
        return response

    async def _show_index(self, _request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        if self._find_refusal is not None:
            token = find_token(request.headers.get("Authorization", ""))
            refusal = await self._find_refusal(token, request.remote or "")
            if refusal is not None:
                return _refuse(*refusal)
        page = await self._pages.get(request.headers.get("Accept", ""))
        headers = {"Content-Type": page.content_type}
        if page.compressed is not None and takes_gzip(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=page.compressed, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=page.body, headers=headers)

    async def _show_health(self, _request: web.Request) -> web.Response:
        return _answer(self._find_dead())

    async def _show_readiness(self, _request: web.Request) -> web.Response:
        return _answer(self._find_unready())


def find_token(authorization: str) -> str:
    """Return the bearer token of an Authorization header; empty when there is none.

    >>> find_token("Bearer abc"), find_token("bearer  abc"), find_token("Basic abc"), find_token("")
    ('abc', 'abc', '', '')
    """
    kind, _, token = authorization.strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _refuse(status: int, reason: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=status, text=f"{reason}\n", headers=headers)


def _answer(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n")
