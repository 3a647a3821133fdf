"""The server that kube-scheduler asks: certificates of both sides, bounded requests, and nothing but four verbs."""

from __future__ import annotations

import asyncio
import io
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fairbind.model.errors import InvalidProblemError
from fairbind.web.connections import Connections
from fairbind.web.extender import LIMITS, MOST_BYTES, VERBS, ExtenderServer
from fairbind.web.serving import Address
from fairbind.web.tls import CERTIFICATE, CLIENT_CA, KEY, ServingCertificate
from localplane.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAME = "system:kube-scheduler"


class Certificates:
    """An authority, and what it has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.authority.issue_server("extender", ["127.0.0.1"]).write(folder / CERTIFICATE, folder / KEY)
        (folder / CLIENT_CA).write_bytes(self.authority.certificate)

    def make_client(self, user: str | None, authority: Authority | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.folder / CLIENT_CA)
        if user is not None:
            pair = (authority or self.authority).issue_client(user)
            pair.write(self.folder / "client.crt", self.folder / "client.key")
            context.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@asynccontextmanager
async def serving(certificates: Certificates) -> AsyncIterator[str]:
    """Serve what says what it was asked, and give the URL."""

    async def answer(verb: str, body: bytes) -> tuple[int, bytes]:
        return 200, f"{verb} {len(body)}".encode()

    certificate = ServingCertificate(certificates.folder, asks_clients=True)
    server = ExtenderServer(Address("127.0.0.1", 0), answer, tls=certificate.context, client_names=[NAME])
    address = await server.start()
    try:
        yield f"{server.scheme}://{address}"
    finally:
        await server.stop()


async def say_yes(_verb: str, _body: bytes) -> tuple[int, bytes]:
    return 200, b"yes"


async def ask(url: str, context: ssl.SSLContext, *, body: bytes = b"", method: str = "POST") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=io.BytesIO(body), ssl=context) as answer,
    ):
        return answer.status, await answer.text()


async def test_kube_scheduler_is_answered(certificates: Certificates) -> None:
    async with serving(certificates) as url:
        client = certificates.make_client(NAME)
        for verb in VERBS:
            assert await ask(f"{url}/{verb}", client, body=b"12345") == (200, f"{verb} 5")
        assert (await ask(f"{url}/other", client))[0] == 404
        assert (await ask(f"{url}/filters", client))[0] == 404
        assert (await ask(f"{url}/filter", client, method="GET"))[0] == 405
        assert await ask(f"{url}/filter", client, body=b" " * (MOST_BYTES - 1)) == (200, f"filter {MOST_BYTES - 1}")
        assert (await ask(f"{url}/filter", client, body=b" " * (MOST_BYTES + 1)))[0] == 413


async def test_a_replica_that_does_not_lead_ends_the_connection(certificates: Certificates) -> None:
    """Services of Kubernetes leave open connections where they are, also when they lead to another replica."""
    status = 200

    async def answer(_verb: str, _body: bytes) -> tuple[int, bytes]:
        return status, b"words"

    certificate = ServingCertificate(certificates.folder, asks_clients=True)
    server = ExtenderServer(Address("127.0.0.1", 0), answer, tls=certificate.context, client_names=[NAME])
    url, client = f"https://{await server.start()}/filter", certificates.make_client(NAME)
    async with aiohttp.ClientSession() as session:
        kept = []
        for status in (200, 503):
            async with session.post(url, ssl=client) as said:
                assert (said.status, await said.text()) == (status, "words")
                kept.append(said.headers.get("Connection", "keep-alive"))
    await server.stop()

    assert kept == ["keep-alive", "close"]


async def test_another_client_of_the_same_authority_is_refused(certificates: Certificates) -> None:
    async with serving(certificates) as url:
        assert (await ask(f"{url}/filter", certificates.make_client("system:node:n1")))[0] == 403


async def test_without_a_certificate_of_the_authority_there_is_no_connection(certificates: Certificates) -> None:
    async with serving(certificates) as url:
        for client in (certificates.make_client(None), certificates.make_client(NAME, Authority())):
            with pytest.raises(aiohttp.ClientError):
                await ask(f"{url}/filter", client)


async def test_an_authority_that_is_taken_out_is_out_at_once(certificates: Certificates) -> None:
    certificate = ServingCertificate(certificates.folder, asks_clients=True)
    server = ExtenderServer(Address("127.0.0.1", 0), say_yes, tls=certificate.context, client_names=[NAME])
    url = f"https://{await server.start()}/filter"
    old, other = certificates.make_client(NAME), Authority()
    async with aiohttp.ClientSession() as session:
        async with session.post(url, ssl=old) as answer:
            assert answer.status == 200
        assert server.open_connections == 1
        (certificates.folder / CLIENT_CA).write_bytes(other.certificate)
        assert certificate.reload_if_changed()
        server.use_tls(certificate.context)
        with pytest.raises(aiohttp.ClientError):
            await session.post(url, ssl=old)
    new = ssl.create_default_context(cadata=certificates.authority.certificate.decode())
    other.issue_client(NAME).write(certificates.folder / "client.crt", certificates.folder / "client.key")
    new.load_cert_chain(certificates.folder / "client.crt", certificates.folder / "client.key")
    assert (await ask(url, new))[0] == 200
    await server.stop()


async def test_who_has_finished_a_handshake_is_not_slowed_by_those_who_have_not(certificates: Certificates) -> None:
    connections = Connections(
        asyncio.Protocol, limits=LIMITS, tls=ServingCertificate(certificates.folder, asks_clients=True).context
    )
    unknown = connections.find_pace("10.0.0.1")
    connections.note_opened("10.0.0.2")
    assert connections.find_pace("10.0.0.2") is not unknown
    assert connections.find_pace("10.0.0.1") is unknown
    begun = [unknown.enter(f"10.1.{n}") for n in range(1000)]
    assert not all(each.done() for each in begun)
    assert connections.find_pace("10.0.0.2").enter("10.0.0.2").done()
    for each in begun:
        each.cancel()
    connections.use_tls(ServingCertificate(certificates.folder, asks_clients=True).context)
    assert connections.find_pace("10.0.0.2") is unknown, "its certificate may be one of an authority that is out"


def test_a_folder_without_authorities_is_refused(certificates: Certificates) -> None:
    (certificates.folder / CLIENT_CA).unlink()
    with pytest.raises(InvalidProblemError, match=r"ca\.crt"):
        ServingCertificate(certificates.folder, asks_clients=True)
    ServingCertificate(certificates.folder)
