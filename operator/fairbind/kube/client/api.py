"""The one HTTP client through which the cache, the binder and all others speak to the API server.

It knows connections, time limits and errors, and nothing about pods: bytes go in, bytes come out. One session keeps its
connections open, because TLS costs more than a request. Answers travel uncompressed: on a local network the time to
unpack a large list is worth more than its bytes. Nothing is retried here; only the caller knows what may be repeated.

A request can carry a guard, which is asked when the connection stands and the very next step hands the bytes to it.
A leader fences its writes with this: asked any earlier, the answer could be as old as a TLS handshake takes.

What was handed over must not linger either. Left alone, the kernel goes on for minutes to repeat bytes that a broken
network swallowed, also after we gave the request up and closed the connection. So it gives a connection up when its
bytes were not acknowledged for `UNACKNOWLEDGED_MILLISECONDS`, and closing throws away what was not delivered.

A page of a list is read as far as `MOST_PAGE_BYTES`. Tenants make objects of more than a megabyte, and a page holds
hundreds: read whole, and decoded in one go, they would cost the memory and the time of all else.

A watch sends nothing, so nothing of it can stay unacknowledged. Its answer begins at once, though nothing happens yet;
when it does not within `ANSWER_SECONDS`, it is lost. Later the kernel asks the other end of a silent connection
whether it is still there, and gives the connection up `DEAD_FLOW_SECONDS` after the last sign of it.
"""

from __future__ import annotations

import asyncio
import http
import math
import re
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.errors import AnswerTooLargeError, ApiError, NotSentError, TransientClusterError

STRATEGIC = "application/strategic-merge-patch+json"
DEFAULT_TIMEOUT_SECONDS = 15.0
CONNECT_TIMEOUT_SECONDS = 10.0
ANSWER_SECONDS = 16.0
"""A second longer than a busy API server keeps a request waiting."""
KEEP_ALIVE_SECONDS = 45.0
"""Below the 90 s after which an API server closes an idle connection, so that we do not write into a closing one."""
WATCH_BUFFER_BYTES = 1 << 20
MOST_PAGE_BYTES = 8 << 20
"""A page of 500 ordinary pods has 2 to 5 million bytes. One of a single object may have any size."""
UNACKNOWLEDGED_MILLISECONDS = 3000
"""As long as a binding may take; the kernel of Linux keeps to it, others know no such limit."""
KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_PROBES = 3
DEAD_FLOW_SECONDS = KEEPALIVE_IDLE_SECONDS + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_SECONDS
"""At most; where the kernel knows the limit for unacknowledged bytes, that one ends it at the second probe."""
_KEEPALIVE_OPTIONS = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_SECONDS,
    "TCP_KEEPCNT": KEEPALIVE_PROBES,
}

_NO_TIMEOUT_ROUNDING = math.inf
"""aiohttp rounds time limits above its threshold up to whole seconds; a lease can end within that second."""


class NotAllowedError(NotSentError):
    """The request's guard said no in the last moment; nothing was sent."""


class Requests(Protocol):
    """The API server as parts see it that only ask and write: `ApiClient`, or what stands for it."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = ...,
        timeout_seconds: float = ...,
        guard: Callable[[], bool] | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer; raises as `ApiClient.request` does."""


class Api(Requests, Protocol):
    """The API server as parts see it that follow objects, too."""

    def watch_lines(
        self, path: str, query: Mapping[str, str], *, idle_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch until the server ends it; raises as `ApiClient.watch_lines` does."""


class ApiClient:
    """Requests to one API server. Everything raises ApiError or TransientClusterError and nothing else of aiohttp."""

    def __init__(
        self, credentials: Credentials, *, user_agent: str = "fairbind", headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Needs a running event loop only from the first request on. headers: further ones of each request."""
        self._credentials = credentials
        own = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._headers = (*own.items(), *headers)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        guard: Callable[[], bool] | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer.

        path: absolute and already quoted. guard: see the module; only for requests with a body.
        Raises ApiError for an answer that is not a success, NotAllowedError when the guard said no, NotSentError when
        nothing was sent for another reason, TransientClusterError when it is unknown whether it was carried out, and
        AnswerTooLargeError for a page of more than one object (`limit` in the query) above `MOST_PAGE_BYTES`.
        """
        limits = aiohttp.ClientTimeout(
            total=timeout_seconds, connect=CONNECT_TIMEOUT_SECONDS, ceil_threshold=_NO_TIMEOUT_ROUNDING
        )
        payload = None if body is None else _GuardedPayload(body, guard, content_type)
        try:
            async with await self._open(method, path, query=query, payload=payload, limits=limits) as response:
                answer = await _read_page(response) if _is_page(query) else await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if payload is not None and payload.refused:
                raise NotAllowedError(f"{method} {path}: not allowed any more") from None
            raise _translate_error(error, f"{method} {path}") from error
        if not _is_success(response):
            raise await self._refused(response, answer)
        return answer

    async def watch_lines(
        self, path: str, query: Mapping[str, str], *, idle_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch, without their newlines, until the server ends it.

        Lines may be of any length. Ends normally when the server closes the stream; raises as `request` does, also when
        nothing at all came for the given time.
        """
        limits = aiohttp.ClientTimeout(
            total=None,
            sock_connect=CONNECT_TIMEOUT_SECONDS,
            sock_read=idle_timeout_seconds,
            ceil_threshold=_NO_TIMEOUT_ROUNDING,
        )
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._open("GET", path, query=query, payload=None, limits=limits)
            async with response:
                if not _is_success(response):
                    raise await self._refused(response, await response.read())
                pending: list[bytes] = []  # the pieces of a line whose end has not come yet
                while chunk := await response.content.readany():
                    *complete, rest = chunk.split(b"\n")
                    if complete and pending:
                        complete[0] = b"".join((*pending, complete[0]))
                        pending.clear()
                    for line in complete:
                        if line:
                            yield line
                    if rest:
                        pending.append(rest)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _translate_error(error, f"watch {path}") from error
        if pending:
            raise TransientClusterError(f"watch {path}: the stream ended in the middle of a line")

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        payload: _GuardedPayload | None,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            # No limit on connections here: every caller bounds what it has in flight.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, socket_factory=make_socket)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, read_bufsize=WATCH_BUFFER_BYTES, auto_decompress=True
            )
        access = self._credentials.access
        headers = {}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        extra: dict[str, Any] = {}
        if self._credentials.ssl_context is not None:
            extra["ssl"] = self._credentials.ssl_context
        if access.tls_server_name is not None:
            extra["server_hostname"] = access.tls_server_name
        if access.proxy is not None:
            extra["proxy"] = access.proxy
        # Quoted here: a fifth of a request's cost would go into doing it with aiohttp's params.
        url = f"{access.server}{path}?{urlencode(query)}" if query else access.server + path
        try:
            return await self._session.request(
                method,
                URL(url, encoded=True),
                data=payload,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                **extra,
            )
        except aiohttp.ClientSSLError:
            # The server's authority may have been exchanged; the new one is where the credentials are.
            await self._credentials.renew()
            raise

    async def _refused(self, response: aiohttp.ClientResponse, answer: bytes) -> ApiError:
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            # For the next attempt; this one is the caller's to repeat.
            await self._credentials.renew()
        return parse_refusal(response.status, answer, response.headers.get("Retry-After"))


def make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that delivers soon or not at all, and notices a dead connection; see the module."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # On, for 0 seconds: to close is to reset. All answers have been read by then, or nobody wants them any more.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MILLISECONDS)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE_OPTIONS.items():
        if (known := getattr(socket, option, None)) is not None:  # not all systems know all of them
            made.setsockopt(socket.IPPROTO_TCP, known, value)
    return made


def _is_page(query: Mapping[str, str] | None) -> bool:
    """Whether a request asks for a page of a list, of more than one object."""
    return query is not None and query.get("limit", "1") != "1"


async def _read_page(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_PAGE_BYTES:
            raise AnswerTooLargeError(f"{response.url.path}: a page of more than {MOST_PAGE_BYTES:,} bytes")
    return b"".join(parts)


def _is_success(response: aiohttp.ClientResponse) -> bool:
    return http.HTTPStatus.OK <= response.status < http.HTTPStatus.MULTIPLE_CHOICES


class _GuardedPayload(aiohttp.BytesPayload):
    """A body that asks its guard when it is about to be written. The headers wait for it in aiohttp's buffer."""

    def __init__(self, body: bytes, guard: Callable[[], bool] | None, content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._guard = guard
        self.refused = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._guard is not None and not self._guard():
            self.refused = True
            raise NotAllowedError
        await super().write_with_length(writer, content_length)


class _StatusDetails(msgspec.Struct):
    retryAfterSeconds: float | None = None  # noqa: N815 - as the API spells it


class _Status(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(_Status)


def parse_refusal(status: int, answer: bytes, retry_after_header: str | None) -> ApiError:
    """Make an ApiError of an answer: from a Status object, or from whatever a proxy in between may have said."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    try:
        body = _status_decoder.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        body = _Status(message=" ".join(answer[:200].decode("utf-8", "replace").split()))
    retry_after = body.details.retryAfterSeconds if body.details is not None else None
    if retry_after is None and retry_after_header is not None and re.fullmatch(r"\d{1,6}", retry_after_header.strip()):
        retry_after = float(retry_after_header)
    return ApiError(status, body.reason or phrase, body.message or phrase, retry_after)


def _translate_error(error: Exception, call: str) -> TransientClusterError:
    """A connection that never came to be has sent nothing; after that, nothing is certain."""
    text = f"{call}: {str(error) or type(error).__name__}"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return NotSentError(text)
    if isinstance(error, asyncio.TimeoutError) and not str(error):
        text = f"{call}: timed out"
    return TransientClusterError(text)
