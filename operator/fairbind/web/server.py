"""The small HTTP server: /metrics for Prometheus, /healthz and /readyz for the kubelet.

It knows nothing of what it shows: the metrics are rendered by a callable, and so are the two questions "is it alive"
and "is it ready", which answer None when all is well and else a line that says why not. That line is the body, so that
`curl` is enough to find out what a replica waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from fairbind.model.errors import FairbindError, InvalidProblemError

Render = Callable[[str], tuple[bytes, str]]
FindProblem = Callable[[], str | None]

COMPRESS_FROM_BYTES = 4096
MAX_PORT = 65535
INDEX = "fairbind\n\n/metrics\n/healthz\n/readyz\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. An empty host means every interface; port 0 lets the system choose."""

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
        raise InvalidProblemError(f"{text!r} is not HOST:PORT, such as 0.0.0.0:8080 or 127.0.0.1:0")
    if ":" in host and not bracketed:
        raise InvalidProblemError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:8080")
    return Address(host[1:-1] if bracketed else host, int(port))


class WebServer:
    """Serves until it is stopped; shares the event loop of its caller."""

    def __init__(self, address: Address, render: Render, *, find_dead: FindProblem, find_unready: FindProblem) -> None:
        self._address = address
        self._render = render
        self._find_dead = find_dead
        self._find_unready = find_unready
        app = web.Application()
        app.router.add_get("/", self._show_index)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", self._show_health)
        app.router.add_get("/readyz", self._show_readiness)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    async def start(self) -> Address:
        """Listen, and return the address with the port that it got. FairbindError when the address cannot be had."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host or None, self._address.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise FairbindError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        return Address(self._address.host, int(self._runner.addresses[0][1]))

    async def stop(self) -> None:
        """Close the listening socket and the connections."""
        await self._runner.cleanup()

    async def _show_index(self, _request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._render(request.headers.get("Accept", ""))
        response = web.Response(body=body, headers={"Content-Type": content_type})
        if len(body) >= COMPRESS_FROM_BYTES:
            response.enable_compression()
        return response

    async def _show_health(self, _request: web.Request) -> web.Response:
        return _answer(self._find_dead())

    async def _show_readiness(self, _request: web.Request) -> web.Response:
        return _answer(self._find_unready())


def _answer(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n")
