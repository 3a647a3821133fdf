"""Serves an application by HTTP or HTTPS, with bounded connections (`connections`); for `server` and `extender`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext

from aiohttp import web
from aiohttp.typedefs import Handler

from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.web.connections import Connections, Limits

MAX_PORT = 65535
LONGEST_LINE = 8190
MOST_HEADERS = 32


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


class Serving:
    """Serves routes until it is stopped; shares the event loop of its caller.

    most_bytes: of a request's body. tls: serve by HTTPS.
    """

    def __init__(
        self,
        address: Address,
        routes: Sequence[web.RouteDef],
        *,
        limits: Limits,
        most_bytes: int = 1 << 20,
        tls: SSLContext | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._limits = limits
        self._connections: Connections | None = None
        app = web.Application(middlewares=[self._answer_in_time], client_max_size=most_bytes)
        app.router.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=0.0,  # a body that was not read is not worth waiting for
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

    def use_tls(self, tls: SSLContext) -> None:
        """Serve by another context from now on; connections that the one before let in end."""
        self._tls = tls
        if self._connections is not None:
            self._connections.use_tls(tls)

    async def stop(self) -> None:
        """Close the listening socket and the connections."""
        if self._connections is not None:
            await self._connections.stop_listening()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.close_all()

    @web.middleware
    async def _answer_in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer when it is the turn; judge the connection by how long that takes, until its reader has the answer."""
        assert self._connections is not None
        await self._connections.begin_answer(request.protocol)
        try:
            response = await handler(request)
            with suppress(ConnectionError):  # a client that has gone is not an error of ours
                await response.prepare(request)
                await response.write_eof()
        finally:
            self._connections.end_answer(request.protocol)
        return response
