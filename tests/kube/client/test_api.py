from __future__ import annotations

import asyncio
import itertools
import math
import socket
import struct
import time
from typing import Any

import pytest
from aiohttp import web

from fairbind.kube.client import api as api_module
from fairbind.kube.client.api import (
    DEAD_FLOW_SECONDS,
    UNACKNOWLEDGED_MILLISECONDS,
    ApiClient,
    NotAllowedError,
    parse_refusal,
)
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.errors import (
    MAX_RETRY_AFTER_SECONDS,
    AnswerTooLargeError,
    ApiError,
    NotSentError,
    TransientClusterError,
)
from kube.fakes import Answer, FixedSource, connected, refuse, serving


async def collect(api: ApiClient, idle_timeout_seconds: float = 5.0) -> list[bytes]:
    return [line async for line in api.watch_lines("/watch", {}, idle_timeout_seconds=idle_timeout_seconds)]


async def stream(request: web.Request, *pieces: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    return response


async def test_a_request_carries_query_body_and_headers_and_returns_the_answer() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer first"
        assert request.headers["Accept"] == "application/json"
        assert request.headers["Accept-Encoding"] == "identity"
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        return web.json_response([request.method, request.path_qs, await request.text()])

    async with connected(answer) as api:
        body = await api.request(
            "PATCH", "/a/b%20c", query={"x": "1 &2", "y": ""}, body=b"{}", content_type="application/merge-patch+json"
        )
    assert body == b'["PATCH", "/a/b%20c?x=1+%262&y=", "{}"]'


@pytest.mark.parametrize(("limit", "size"), [("2", 1000), ("2", 1001), ("1", 5000)])
async def test_a_page_of_several_objects_is_read_as_far_as_it_may_go(
    limit: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "MOST_PAGE_BYTES", 1000)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, *(b"x" * 100 for _ in range(size // 100)), b"x" * (size % 100))

    async with connected(answer) as api:
        if limit == "1" or size <= 1000:
            assert await api.request("GET", "/pods", query={"limit": limit}) == b"x" * size
        else:
            with pytest.raises(AnswerTooLargeError, match="/pods: a page of more than 1,000 bytes"):
                await api.request("GET", "/pods", query={"limit": limit})
        assert await api.request("GET", "/pods", query={"limit": "1"}) == b"x" * size  # the client goes on


async def test_a_server_below_a_path_is_asked_below_it() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async with serving(answer) as url:
        api = ApiClient(Credentials(FixedSource(f"{url}/k8s/clusters/c1")))
        assert await api.request("GET", "/api/v1/pods") == b"/k8s/clusters/c1/api/v1/pods"
        await api.close()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (refuse(409, "Conflict", "already bound"), (409, "Conflict", "already bound", None)),
        (refuse(429, "TooManyRequests", "slow", headers={"Retry-After": "7"}), (429, "TooManyRequests", "slow", 7.0)),
        (refuse(500, "InternalError", "x", details={"retryAfterSeconds": 3}), (500, "InternalError", "x", 3.0)),
        (Answer(503, "<html>\nsorry"), (503, "Service Unavailable", "<html> sorry", None)),
        (Answer(404, "??"), (404, "Not Found", "??", None)),
        (Answer(500, '{"message": 5}'), (500, "Internal Server Error", '{"message": 5}', None)),
        (Answer(403, "{}"), (403, "Forbidden", "Forbidden", None)),
        (Answer(302, "", {"Location": "/elsewhere"}), (302, "Found", "Found", None)),
        (refuse(429, headers={"Retry-After": "Fri, 31 Dec 1999"}), (429, *["Too Many Requests"] * 2, None)),
        (refuse(429, "r", "slow", headers={"Retry-After": "86400"}), (429, "r", "slow", MAX_RETRY_AFTER_SECONDS)),
        (refuse(429, "r", "slow", details={"retryAfterSeconds": -5}), (429, "r", "slow", None)),
        (refuse(429, "r", "slow", details={"retryAfterSeconds": 1e300}), (429, "r", "slow", MAX_RETRY_AFTER_SECONDS)),
    ],
)
async def test_an_answer_that_is_no_success_is_an_api_error(response: Answer, expected: tuple[Any, ...]) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return response.make()

    async with connected(answer) as api:
        with pytest.raises(ApiError) as caught:
            await api.request("GET", "/x")
    error = caught.value
    assert (error.status, error.reason, error.message, error.retry_after) == expected


def test_an_answer_that_is_no_text_is_shown_as_far_as_possible() -> None:
    assert parse_refusal(404, b"no \xff", None).message == "no \ufffd"


def test_statuses_that_nobody_knows_are_errors_too() -> None:
    assert parse_refusal(799, b"", None).reason == "Unknown"


async def test_a_refused_connection_has_sent_nothing() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    async with serving(answer) as url:
        pass
    api = ApiClient(Credentials(FixedSource(url)))
    with pytest.raises(NotSentError):
        await api.request("POST", "/x", body=b"{}")
    await api.close()


async def test_after_a_dropped_connection_nothing_is_certain() -> None:
    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with connected(drop) as api:
        with pytest.raises(TransientClusterError) as caught:
            await api.request("POST", "/x", body=b"{}")
    assert not isinstance(caught.value, NotSentError)


async def test_time_limits_hold_to_the_fraction_of_a_second() -> None:
    async def sleep(_request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    async with connected(sleep) as api:
        started = time.monotonic()
        with pytest.raises(TransientClusterError, match="timed out"):
            await api.request("GET", "/x", timeout_seconds=0.2)
        assert time.monotonic() - started < 12.0


async def test_a_401_renews_the_credentials_for_the_next_attempt() -> None:
    times = itertools.count(0.0, 10.0)

    async def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer second":
            return refuse(401, "Unauthorized", "who?").make()
        return web.Response(text="welcome")

    async with serving(answer) as url:
        source = FixedSource(url)
        api = ApiClient(Credentials(source, clock=lambda: next(times)))
        source.token = "second"
        with pytest.raises(ApiError, match="401"):
            await api.request("GET", "/x")
        assert await api.request("GET", "/x") == b"welcome"
        assert source.loads == [True, True]
        await api.close()


async def test_a_server_that_is_not_trusted_renews_the_credentials_for_the_next_attempt() -> None:
    """Its authority was exchanged, perhaps, and the new one is in the file."""
    times = itertools.count(0.0, 10.0)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    async with serving(answer) as url:
        source = FixedSource(url.replace("http:", "https:"))  # what answers there is no TLS at all
        api = ApiClient(Credentials(source, clock=lambda: next(times)))
        source.server = url
        with pytest.raises(NotSentError):
            await api.request("GET", "/x")
        assert await api.request("GET", "/x") == b"welcome"
        assert source.loads == [True, True]
        await api.close()


async def test_the_guard_is_asked_when_the_connection_stands_and_nothing_is_sent_when_it_refuses() -> None:
    events: list[str] = []

    async def answer(_request: web.Request) -> web.Response:
        events.append("request")
        return web.Response()

    class Listening(Credentials):
        async def authorization(self) -> str | None:
            events.append("headers")
            return await super().authorization()

    def guard() -> bool:
        events.append("guard")
        return len(events) < 5

    async with serving(answer) as url:
        api = ApiClient(Listening(FixedSource(url)))
        await api.request("POST", "/x", body=b"{}", guard=guard)
        assert events == ["headers", "guard", "request"]
        with pytest.raises(NotAllowedError):
            await api.request("POST", "/x", body=b"{}", guard=guard)
        assert events == ["headers", "guard", "request", "headers", "guard"]
        assert await api.request("GET", "/x") == b""  # the client goes on
        await api.close()


async def test_watch_lines_are_whole_however_they_are_cut() -> None:
    long = b"x" * 3_000_000

    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, b"one\ntw", b"o\n", long, long, b"\n", b"\n", b"last\n")

    async with connected(answer) as api:
        assert await collect(api) == [b"one", b"two", long + long, b"last"]


async def test_a_watch_that_ends_within_a_line_is_a_lost_connection() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, b"one\ntw")

    async with connected(answer) as api:
        with pytest.raises(TransientClusterError, match="middle of a line"):
            await collect(api)


async def test_a_watch_that_is_cut_off_tells_its_lines_first() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await stream(request, b"one\n")
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    async with connected(answer) as api:
        lines = api.watch_lines("/watch", {}, idle_timeout_seconds=5.0)
        assert await anext(lines) == b"one"
        with pytest.raises(TransientClusterError):
            await anext(lines)


async def test_a_silent_watch_is_a_lost_connection() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await stream(request, b"one\n")
        await asyncio.sleep(3600)
        return response

    async with connected(answer) as api:
        with pytest.raises(TransientClusterError):
            await collect(api, idle_timeout_seconds=0.2)


async def test_a_watch_whose_answer_does_not_begin_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does what was asked, and its answer is lost: the time between lines is no limit for that."""
    monkeypatch.setattr(api_module, "ANSWER_SECONDS", 0.2)

    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    async with connected(answer) as api:
        with pytest.raises(TransientClusterError):
            await collect(api, idle_timeout_seconds=3600.0)


async def test_a_refused_watch_is_an_api_error() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return refuse(410, "Expired", "too old resource version").make()

    async with connected(answer) as api:
        with pytest.raises(ApiError, match="too old"):
            await collect(api)


async def test_the_kernel_does_not_go_on_with_what_nobody_acknowledges() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    async with connected(answer) as api:
        await api.request("GET", "/x")
        [options] = [_read_options(transport) for transport in _find_transports(api)]
    assert options == (UNACKNOWLEDGED_MILLISECONDS, struct.pack("ii", 1, 0))


async def test_the_kernel_asks_a_silent_connection_whether_it_is_still_there() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="{}")

    async with connected(answer) as api:
        await api.request("GET", "/x")
        [made] = [transport.get_extra_info("socket") for transport in _find_transports(api)]
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert 0 < idle + interval * probes == DEAD_FLOW_SECONDS <= 30


def _find_transports(api: ApiClient) -> list[Any]:
    assert api._session is not None
    assert api._session.connector is not None
    return [protocol.transport for idle in api._session.connector._conns.values() for protocol, _ in idle]


def _read_options(transport: Any) -> tuple[int, bytes]:
    made = transport.get_extra_info("socket")
    patience = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    return patience, made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.calcsize("ii"))


@pytest.mark.slow
async def test_a_request_that_is_given_up_resets_its_connection() -> None:
    """Closed in order, the kernel would go on to deliver what the network has swallowed."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        api = ApiClient(Credentials(FixedSource(f"http://127.0.0.1:{server.getsockname()[1]}")))
        request = asyncio.create_task(api.request("POST", "/x", body=b"{}", timeout_seconds=5.0))
        accepted, _ = await loop.sock_accept(server)
        with accepted:
            accepted.setblocking(False)
            received = b""
            while not received.endswith(b"{}"):
                piece = await loop.sock_recv(accepted, 1 << 16)
                assert piece
                received += piece
            with pytest.raises(TransientClusterError, match="timed out"):
                await request
            with pytest.raises(ConnectionResetError):
                await loop.sock_recv(accepted, 1)
        await api.close()


async def test_the_kernel_gives_up_a_peer_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the kernel's own limit can end this request: ours is far away."""
    monkeypatch.setattr(api_module, "UNACKNOWLEDGED_MILLISECONDS", 300)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        api = ApiClient(Credentials(FixedSource(f"http://127.0.0.1:{server.getsockname()[1]}")))
        started = time.monotonic()
        request = asyncio.create_task(api.request("POST", "/x", body=b"x" * 1_000_000, timeout_seconds=60.0))
        accepted, _ = await loop.sock_accept(server)
        with accepted, pytest.raises(TransientClusterError):
            await request
        assert time.monotonic() - started < 30.0
        await api.close()


def test_no_wait_is_asked_for_by_what_is_no_number() -> None:
    assert ApiError(429, "r", "slow", math.nan).retry_after is None
    assert ApiError(429, "r", "slow", math.inf).retry_after == MAX_RETRY_AFTER_SECONDS
