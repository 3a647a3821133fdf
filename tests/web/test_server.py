from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.web import connections
from fairbind.web.metrics import Metrics
from fairbind.web.server import WebServer
from fairbind.web.serving import Address, parse_address


def all_well() -> str | None:
    return None


@asynccontextmanager
async def serving(
    render: Callable[[str], tuple[bytes, str]],
    *,
    find_dead: Callable[[], str | None] = all_well,
    find_unready: Callable[[], str | None] = all_well,
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    server = WebServer(Address(host, 0), render, find_dead=find_dead, find_unready=find_unready)
    address = await server.start()
    async with aiohttp.ClientSession() as session:
        yield f"http://{address}", session
    await server.stop()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:8080", Address("0.0.0.0", 8080)),
        (":9100", Address("", 9100)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:port", "host:65536", "host:-1", "::1:8080", "host:٣"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidProblemError, match=r"HOST:PORT|brackets") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@pytest.fixture
def ipv6() -> None:
    """Skip where the machine has no loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


@pytest.mark.usefixtures("ipv6")
async def test_without_a_host_probes_are_answered_on_both_families() -> None:
    """A kubelet of an IPv6-only cluster has no other way to the pod."""
    async with serving(Metrics().render, host="") as (url, session):
        for host in ("127.0.0.1", "[::1]"):
            async with session.get(f"{url.replace('://', f'://{host}')}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_without_a_host_a_machine_with_one_family_serves_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    make = connections._make_listener

    def make_without_ipv6(family: int, address: tuple[str, int]) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return make(family, address)

    monkeypatch.setattr(connections, "_make_listener", make_without_ipv6)
    async with (
        serving(Metrics().render, host="") as (url, session),
        session.get(f"{url.replace('://', '://127.0.0.1')}/healthz") as answer,
    ):
        assert answer.status == 200


async def test_a_machine_without_any_family_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_family: int, _address: tuple[str, int]) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "no such family")

    monkeypatch.setattr(connections, "_make_listener", refuse)
    server = WebServer(Address("", 0), Metrics().render, find_dead=all_well, find_unready=all_well)
    with pytest.raises(FairbindError, match="cannot listen on :0: no such family"):
        await server.start()


async def test_metrics_are_served_in_the_format_that_was_asked_for() -> None:
    async with serving(Metrics().render) as (url, session):
        async with session.get(f"{url}/metrics", headers={"Accept": "text/plain"}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "fairbind_leader 0.0" in await answer.text()
        accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
        async with session.get(f"{url}/metrics", headers={"Accept": accept}) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            assert (await answer.text()).endswith("# EOF\n")


async def test_a_large_page_is_compressed_for_those_who_can_read_it() -> None:
    async with serving(lambda _accept: (b"a_metric 1\n" * 1000, "text/plain")) as (url, session):
        async with session.get(f"{url}/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
        async with session.get(f"{url}/metrics", headers={"Accept-Encoding": "identity"}) as answer:
            assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_say_ok_or_why_not(path: str) -> None:
    problems: list[str | None] = [None, "pods: not listed yet"]

    def find() -> str | None:
        return problems[0]

    async with serving(Metrics().render, find_dead=find, find_unready=find) as (url, session):
        async with session.get(url + path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        problems.reverse()
        async with session.get(url + path) as answer:
            assert (answer.status, await answer.text()) == (503, "pods: not listed yet\n")


async def test_unknown_pages_are_not_found_and_the_root_tells_what_there_is() -> None:
    async with serving(Metrics().render) as (url, session):
        async with session.get(f"{url}/debug") as answer:
            assert answer.status == 404
        async with session.get(url) as answer:
            assert "/metrics" in await answer.text()


async def test_a_taken_port_is_said_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = WebServer(Address("127.0.0.1", port), Metrics().render, find_dead=all_well, find_unready=all_well)
        with pytest.raises(FairbindError, match=rf"^cannot listen on 127.0.0.1:{port}: ") as caught:
            await server.start()
    assert "\n" not in str(caught.value)
