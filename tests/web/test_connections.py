"""Connections of those who never end a request, never read an answer, or open one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from fairbind.web.connections import Limits
from fairbind.web.server import WebServer
from fairbind.web.serving import Address, Serving
from fairbind.web.tls import CERTIFICATE, KEY, ServingCertificate
from localplane.certificates import Authority

ATTACKER, OTHER_ATTACKER, READER = "127.0.0.2", "127.0.0.3", "127.0.0.1"
FLOOD = 5_000
PAGE = b"a_metric 1\n"
FOREVER = 600.0


def all_well() -> str | None:
    return None


@asynccontextmanager
async def serving(
    limits: Limits, *, body: bytes = PAGE, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[WebServer, int]]:
    server = WebServer(
        Address("127.0.0.1", 0),
        lambda _accept: (body, "text/plain"),
        find_dead=all_well,
        find_unready=all_well,
        tls=tls,
        limits=limits,
    )
    address = await server.start()
    yield server, address.port
    await server.stop()


@asynccontextmanager
async def connecting(port: int, source: str = ATTACKER, sent: bytes = b"") -> AsyncIterator[socket.socket]:
    made = await connect(port, source, sent)
    yield made
    made.close()


async def connect(port: int, source: str = ATTACKER, sent: bytes = b"") -> socket.socket:
    """Open a connection from an address and send the begin of something."""
    made = socket.socket()
    made.bind((source, 0))
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(made, sent)
    return made


async def is_closed(client: socket.socket, patience: float = 60.0) -> bool:
    """Whether the server closes the connection before patience ends."""
    try:
        async with asyncio.timeout(patience):
            while await asyncio.get_running_loop().sock_recv(client, 1 << 16):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def fetch(port: int, path: str = "/metrics", tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Ask as one who connects anew, as a kubelet does."""
    scheme = "http" if tls is None else "https"
    connector = aiohttp.TCPConnector(local_addr=(READER, 0), ssl=tls if tls is not None else True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"{scheme}://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.read()


def make_tls(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that trusts it. folder: for the server's certificate."""
    authority = Authority()
    authority.issue_server("server", ["127.0.0.1"]).write(folder / CERTIFICATE, folder / KEY)
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    return ServingCertificate(folder).context, trusting


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 - sockets tell nobody
            await asyncio.sleep(0.01)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have as many open files as the flood needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * FLOOD + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX-Slow: "])
async def test_five_thousand_half_open_requests_keep_nobody_out(sent: bytes) -> None:
    limits = Limits(connections=16, per_address=8, header_seconds=FOREVER, idle_seconds=FOREVER)
    clients = []
    most = 0
    async with serving(limits) as (server, port):
        for number in range(FLOOD):
            clients.append(await connect(port, f"127.0.1.{number % 200 + 1}", sent))
            most = max(most, server.open_connections)
            if number % 500 == 499:
                assert await fetch(port) == (200, PAGE)
                assert await fetch(port, "/healthz") == (200, b"ok\n")
        assert most <= limits.connections
        assert server.open_connections <= limits.connections
        for client in clients[: -2 * limits.connections]:
            assert await is_closed(client)
            client.close()
    for client in clients[-2 * limits.connections :]:
        client.close()


async def test_one_address_has_so_many_and_its_newest_ones() -> None:
    limits = Limits(connections=16, per_address=2, header_seconds=FOREVER)
    async with serving(limits) as (server, port):
        clients = [await connect(port) for _ in range(5)]
        assert [await is_closed(client) for client in clients[:3]] == [True] * 3
        assert [await is_closed(client, 0.2) for client in clients[3:]] == [False] * 2
        assert server.open_connections == 2
        for client in clients:
            client.close()


async def test_above_the_limit_who_has_most_gives_a_place_and_others_stay() -> None:
    limits = Limits(connections=4, per_address=4, header_seconds=FOREVER)
    async with serving(limits) as (server, port), connecting(port, OTHER_ATTACKER) as modest:
        greedy = [await connect(port, ATTACKER) for _ in range(3)]
        async with connecting(port, READER) as newcomer:
            assert await is_closed(greedy[0])
            assert not await is_closed(newcomer, 0.2)
            assert not await is_closed(modest, 0.2)
            assert server.open_connections == 4
        for client in greedy:
            client.close()


async def test_who_is_being_answered_stays_before_one_that_asks_nothing() -> None:
    """A large page that is not read keeps its connection busy, although it is the older one."""
    limits = Limits(connections=16, per_address=2, header_seconds=FOREVER, answer_seconds=FOREVER)
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    async with (
        serving(limits, body=PAGE * 1_000_000) as (_, port),
        connecting(port, sent=request) as busy,
        connecting(port) as silent,
    ):
        assert await asyncio.get_running_loop().sock_recv(busy, 1) == b"H"
        async with connecting(port):
            assert await is_closed(silent)
            assert await asyncio.get_running_loop().sock_recv(busy, 1) == b"T"


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX-Slow: "])
async def test_a_header_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    async with serving(Limits(header_seconds=0.2)) as (server, port), connecting(port, sent=sent) as client:
        assert await is_closed(client)
        await eventually(lambda: server.open_connections == 0)


@pytest.mark.slow
async def test_the_header_of_a_later_request_has_the_same_time() -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(Limits(header_seconds=1.0, idle_seconds=FOREVER)) as (_, port):
        client = await connect(port, sent=whole)
        assert (await asyncio.get_running_loop().sock_recv(client, 4096)).startswith(b"HTTP/1.1 200")
        assert not await is_closed(client, 2.5)  # idle, which it may be for long
        await asyncio.get_running_loop().sock_sendall(client, whole[:10])
        assert await is_closed(client)
        client.close()


async def test_an_idle_connection_ends() -> None:
    async with serving(Limits(idle_seconds=0.2)) as (server, port):
        client = await connect(port, sent=b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await is_closed(client)
        await eventually(lambda: server.open_connections == 0)
        client.close()


async def test_an_answer_that_nobody_reads_ends_the_connection() -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    limits = Limits(header_seconds=FOREVER, answer_seconds=0.5, idle_seconds=FOREVER)
    async with (
        serving(limits, body=PAGE * 1_000_000) as (server, port),
        connecting(port, sent=request),
    ):
        await eventually(lambda: server.open_connections == 1)
        await eventually(lambda: server.open_connections == 0)


async def test_a_client_that_goes_before_its_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """As kube-scheduler when it is killed: a traceback in the log would be looked for in vain."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        asked.set()
        await may_answer.wait()
        return web.Response(text="late")

    serving = Serving(Address("127.0.0.1", 0), [web.get("/", answer)], limits=Limits())
    address = await serving.start()
    async with connecting(address.port, sent=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        await asked.wait()
    await eventually(lambda: serving.open_connections == 0)
    may_answer.set()
    await serving.stop()

    assert [record.getMessage() for record in caplog.records if record.name == "aiohttp.server"] == []


@pytest.mark.slow
async def test_handshakes_that_do_not_end_count_as_connections_and_end(tmp_path: Path) -> None:
    tls, trusting = make_tls(tmp_path)
    limits = Limits(connections=4, per_address=2, header_seconds=2.0)
    async with serving(limits, tls=tls) as (server, port):
        clients = [await connect(port, f"127.0.0.{2 + number % 8}", b"\x16\x03\x01") for number in range(40)]
        assert server.open_connections <= limits.connections
        assert await fetch(port, tls=trusting) == (200, PAGE)
        assert all([await is_closed(client) for client in clients])
        await eventually(lambda: server.open_connections == 0)
        assert await fetch(port, tls=trusting) == (200, PAGE)
        for client in clients:
            client.close()


async def test_an_address_is_answered_ten_times_a_second_and_others_at_once() -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    loop, answers = asyncio.get_running_loop(), 0
    async with serving(Limits()) as (_, port), connecting(port) as client:
        began_at = loop.time()
        await loop.sock_sendall(client, 1000 * whole)
        while answers < 15:
            answers += (await loop.sock_recv(client, 1 << 16)).count(b"HTTP/1.1 200")
        seconds = loop.time() - began_at
        assert await fetch(port) == (200, PAGE)  # would come after half a minute, were it a matter of who asked first
        assert answers <= 11 + 10 * seconds


async def test_an_address_opens_ten_connections_a_second_and_others_at_once(tmp_path: Path) -> None:
    """A handshake costs more than an answer."""
    tls, trusting = make_tls(tmp_path)
    opened = 0

    async def knock() -> None:
        nonlocal opened
        while True:
            opening = asyncio.open_connection("127.0.0.1", port, ssl=trusting, local_addr=(ATTACKER, 0))
            with contextlib.suppress(OSError):
                _, writer = await opening
                opened += 1
                writer.close()

    async with serving(Limits(), tls=tls) as (_, port):
        began_at = asyncio.get_running_loop().time()
        knocking = [asyncio.create_task(knock()) for _ in range(16)]
        await eventually(lambda: opened >= 15)
        seconds = asyncio.get_running_loop().time() - began_at
        assert opened <= 11 + 10 * seconds
        assert await fetch(port, tls=trusting) == (200, PAGE)
        for task in knocking:
            task.cancel()
        await asyncio.gather(*knocking, return_exceptions=True)


@pytest.mark.parametrize(
    "request_line",
    [b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 1000],
)
async def test_a_header_without_end_is_refused(request_line: bytes) -> None:
    async with serving(Limits()) as (_, port):
        client = await connect(port, sent=request_line + b"\r\n")
        answer = await asyncio.get_running_loop().sock_recv(client, 4096)
        assert answer.split()[1] == b"400"
        client.close()
