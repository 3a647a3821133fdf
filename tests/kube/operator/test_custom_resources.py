from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.client.custom_objects import POLICIES, TENANTS
from fairbind.kube.client.errors import TransientClusterError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.operator import custom_resources as handlers
from fairbind.kube.operator.custom_resources import CustomResources, _cancel_and_wait
from fairbind.kube.operator.health import Health
from kube.fakes import FixedSource, eventually, serving

EMPTY_LIST = b'{"metadata": {"resourceVersion": "7"}, "items": []}'


class FlakyApi:
    """Answers lists, or not."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked = 0
        self.answer = EMPTY_LIST
        self.missing: str | None = None

    async def request(self, method: str, path: str) -> bytes:
        assert method == "GET"
        assert path.startswith("/apis/fairbind.io/")
        self.asked += 1
        if self.is_away or path.rpartition("/")[2] == self.missing:
            raise TransientClusterError("away")
        return self.answer


def make_resources(
    api: FlakyApi | None,
    health: Health,
    credentials: object = SimpleNamespace(ssl_context=None),
    made_by: type[CustomResources] = CustomResources,
) -> CustomResources:
    return made_by(
        cast("Any", api),
        cast("Any", credentials),
        {kind: ObjectTable(lambda: None) for kind in (TENANTS, POLICIES)},
        observer=SilentObserver(),
        health=health,
        reinstall_signals=lambda: None,
    )


async def test_after_an_outage_it_is_ready_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "RELIST_SECONDS", 0.01)
    monkeypatch.setattr(handlers, "RETRY_SECONDS", 0.01)
    api, health = FlakyApi(), Health()
    health.clear_problem("operator")
    resources = make_resources(api, health)
    comparing = asyncio.create_task(resources._compare_regularly())
    async with asyncio.timeout(60.0):
        while health.find_unready() is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        monkeypatch.setattr(handlers, "RELIST_SECONDS", 3600.0)
        asked = api.asked
        while api.asked < asked + 6:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        api.is_away = False
        while health.find_unready() is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
    assert not comparing.done()
    asked = api.asked
    await asyncio.sleep(0.05)
    assert api.asked == asked  # what is well is looked at rarely
    await _cancel_and_wait([comparing])


async def test_an_object_that_was_deleted_unseen_goes_with_the_next_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that comes while its watch is broken, kopf does not tell of."""
    monkeypatch.setattr(handlers, "RELIST_SECONDS", 0.001)
    api = FlakyApi()
    api.is_away = False
    api.answer = (
        b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a", "resourceVersion": "5"}}]}'
    )
    resources = make_resources(api, Health())
    comparing = asyncio.create_task(resources._compare_regularly())
    await eventually(lambda: "a" in resources._tables[TENANTS].objects)
    api.answer = b'{"metadata": {"resourceVersion": "9"}, "items": []}'
    await eventually(lambda: not resources._tables[TENANTS].objects)
    await _cancel_and_wait([comparing])


async def test_kopf_is_started_again_when_the_servers_authority_was_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on with a session that trusts the old one."""
    monkeypatch.setattr(handlers, "RELIST_SECONDS", 0.001)
    api, credentials = FlakyApi(), SimpleNamespace(ssl_context=object())
    api.is_away = False
    comparing = asyncio.create_task(make_resources(api, Health(), credentials)._compare_regularly())
    await eventually(lambda: api.asked > 6)
    assert not comparing.done()
    credentials.ssl_context = object()
    await asyncio.wait_for(comparing, 60.0)


class WithoutKopf(CustomResources):
    """Follows nothing after the first lists."""

    async def _run_kopf(self) -> str:
        await asyncio.Event().wait()
        return "for no reason"


@pytest.mark.parametrize("kind", [TENANTS, POLICIES])
async def test_nothing_counts_as_listed_before_both_kinds_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "RETRY_SECONDS", 0.001)
    api = FlakyApi()
    api.is_away, api.missing = False, kind
    resources = make_resources(api, Health(), made_by=WithoutKopf)
    following = asyncio.create_task(resources.run())
    await eventually(lambda: api.asked >= 6)
    assert not resources.listed.is_set()
    api.missing = None
    await eventually(resources.listed.is_set)
    assert set(resources.find_ages()) == {TENANTS, POLICIES}
    await _cancel_and_wait([following])


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"<html>please log in</html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"metadata": {}}',
        b'{"metadata": null, "items": []}',
        b'{"metadata": {"resourceVersion": 7}, "items": []}',
        b'{"metadata": {"resourceVersion": "7"}, "items": [5]}',
        b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {}}]}',
        b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "\xff"}}]}',
    ],
)
async def test_an_answer_that_is_no_list_is_said_and_asked_for_again(garbage: bytes) -> None:
    api, health = FlakyApi(), Health()
    health.clear_problem("operator")
    resources = make_resources(api, health)
    api.is_away, api.answer = False, garbage
    assert not await resources._list_kind(TENANTS)
    assert "tenants: the list cannot be read" in str(health.find_unready())
    api.answer = EMPTY_LIST
    assert await resources._list_kind(TENANTS)
    assert health.find_unready() is None


def make_certificate(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a certificate that is good for this name only, and its key."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "server.crt", folder / "server.key"
    paths[0].write_bytes(certificate.public_bytes(pem))
    paths[1].write_bytes(private)
    return paths


async def test_kopf_asks_for_the_server_by_the_name_that_the_kubeconfig_says(tmp_path: Path) -> None:
    certificate, key = make_certificate("kube.example", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    source = FixedSource(f"https://127.0.0.1:{runner.addresses[0][1]}")
    load = source.load
    source.load = lambda *, again: replace(  # type: ignore[method-assign]
        load(again=again), ca_path=certificate, tls_server_name="kube.example"
    )
    session = make_resources(None, Health(), Credentials(source))._make_session()
    try:
        async with session.aiohttp_session.get(source.server) as response:
            assert await response.text() == "welcome"
    finally:
        await session.aiohttp_session.close()
        await runner.cleanup()


async def test_the_kernel_asks_silent_connections_of_kopf_too_whether_they_are_still_there() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    async with serving(answer) as server:
        made = make_resources(None, Health(), Credentials(FixedSource(server)))._make_session()
        async with made.aiohttp_session as session:
            async with session.get(f"{server}/x"):
                pass
            assert session.connector is not None
            [[(idle, _)]] = session.connector._conns.values()
            assert idle.transport is not None
            opened = idle.transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def test_a_cancellation_that_is_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "CANCEL_AGAIN_SECONDS", 0.01)

    async def lose_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    losing = asyncio.create_task(lose_one())
    await asyncio.sleep(0)
    async with asyncio.timeout(30.0):
        await _cancel_and_wait([losing])
    assert losing.cancelled()


@pytest.mark.parametrize(("asked", "expected"), [("10", 429), ("11", 0), ("nan", 0), ("tomorrow", 0), (None, 429)])
async def test_a_short_pause_is_left_to_kopf(asked: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=429, headers={} if asked is None else {"Retry-After": asked})

    async def pause(seconds: float) -> None:
        assert seconds == handlers.MAX_RETRY_AFTER_SECONDS

    seen = 0
    async with serving(answer) as url:
        session = make_resources(None, Health(), Credentials(FixedSource(url)))._make_session()
        with monkeypatch.context() as patching, contextlib.suppress(aiohttp.ClientConnectionError):
            patching.setattr(handlers, "asyncio", SimpleNamespace(sleep=pause))
            async with session.aiohttp_session.get(f"{url}/x") as response:
                seen = response.status
        await session.aiohttp_session.close()
    assert seen == expected


async def test_who_is_cancelled_while_kopf_ends_does_not_live_on() -> None:
    is_ending, is_over = asyncio.Event(), asyncio.Event()

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(3600.0)
        except asyncio.CancelledError:
            is_ending.set()
            await is_over.wait()

    slow = asyncio.create_task(end_slowly())
    await asyncio.sleep(0)
    ending = asyncio.create_task(_cancel_and_wait([slow]))
    await is_ending.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    is_over.set()
    await asyncio.gather(slow, return_exceptions=True)
