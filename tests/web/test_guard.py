"""Metrics that are not for everybody: readers with tokens, and TLS so that nobody else sees these."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from fairbind.model.errors import InvalidProblemError
from fairbind.web import self_signed
from fairbind.web.self_signed import LIFETIME, RENEW_AFTER, SelfSignedCertificate
from fairbind.web.server import FindRefusal, WebServer, find_token
from fairbind.web.serving import Address
from fairbind.web.tls import CERTIFICATE, KEY, ServingCertificate
from localplane.certificates import Authority


def render(_accept: str) -> tuple[bytes, str]:
    return b"secret_shares 1\n", "text/plain"


def all_well() -> str | None:
    return None


@asynccontextmanager
async def serving(find_refusal: FindRefusal | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = WebServer(
        Address("127.0.0.1", 0), render, find_dead=all_well, find_unready=all_well, find_refusal=find_refusal, tls=tls
    )
    address = await server.start()
    yield f"{server.scheme}://{address}"
    await server.stop()


async def only_good(token: str, _address: str) -> tuple[int, str] | None:
    if not token:
        return 401, "a bearer token is needed"
    return None if token == "good" else (403, "not for you")


@pytest.mark.parametrize(
    ("authorization", "token"),
    [
        ("Bearer good", "good"),
        ("bearer good", "good"),
        ("Basic good", ""),
        ("Bearer", ""),
        ("good", ""),
        ("", ""),
        ("Bearer good bad", "good bad"),
    ],
)
def test_tokens_are_found_in_the_header(authorization: str, token: str) -> None:
    assert find_token(authorization) == token


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({}, 401, "a bearer token is needed\n"),
        ({"Authorization": "Bearer bad"}, 403, "not for you\n"),
        ({"Authorization": "Bearer good"}, 200, "secret_shares 1\n"),
    ],
)
async def test_metrics_are_for_those_who_may(headers: dict[str, str], status: int, said: str) -> None:
    async with (
        serving(only_good) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics", headers=headers) as answer,
    ):
        assert (answer.status, await answer.text()) == (status, said)
        assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/"])
async def test_probes_need_no_token(path: str) -> None:
    async with serving(only_good) as url, aiohttp.ClientSession() as session, session.get(url + path) as answer:
        assert answer.status == 200
        assert "secret" not in await answer.text()


async def test_no_other_spelling_of_the_path_gets_round_the_question() -> None:
    async with serving(only_good) as url, aiohttp.ClientSession() as session:
        for path in ("/metrics/", "//metrics", "/metrics?x=1", "/./metrics", "/%6detrics", "/METRICS"):
            async with session.get(url + path) as answer:
                assert answer.status in {401, 404}, path
        async with session.head(f"{url}/metrics") as answer:
            assert answer.status == 401


def write_pair(folder: Path, authority: Authority, name: str) -> None:
    authority.issue_server(name, ["127.0.0.1"]).write(folder / CERTIFICATE, folder / KEY)


def make_client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.decode())


async def fetch_common_name(url: str, context: ssl.SSLContext) -> str:
    """Return the name in the certificate that a new connection gets."""
    host, _, port = url.removeprefix("https://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    (name,) = [value for ((key, value),) in certificate["subject"] if key == "commonName"]
    return str(name)


async def test_pages_are_served_by_https_and_a_renewed_certificate_is_used(tmp_path: Path) -> None:
    authority = Authority()
    write_pair(tmp_path, authority, "first")
    certificate = ServingCertificate(tmp_path)
    context = make_client_context(authority)
    async with serving(tls=certificate.context) as url, aiohttp.ClientSession() as session:
        assert url.startswith("https://127.0.0.1:")
        async with session.get(f"{url}/metrics", ssl=context) as answer:
            assert await answer.text() == "secret_shares 1\n"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{url.replace('https', 'http')}/metrics")
        assert await fetch_common_name(url, context) == "first"
        assert not certificate.reload_if_changed()

        write_pair(tmp_path, authority, "second")
        assert certificate.reload_if_changed()
        assert await fetch_common_name(url, context) == "second"
        assert not certificate.reload_if_changed()


async def test_a_pair_that_does_not_match_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    write_pair(tmp_path, authority, "first")
    certificate = ServingCertificate(tmp_path)
    context = make_client_context(authority)
    async with serving(tls=certificate.context) as url:
        authority.issue_server("other", ["127.0.0.1"]).write(tmp_path / CERTIFICATE, tmp_path / "unused")
        assert not certificate.reload_if_changed()
        assert await fetch_common_name(url, context) == "first"
        (tmp_path / KEY).unlink()
        assert not certificate.reload_if_changed()
        assert await fetch_common_name(url, context) == "first"
        assert "the certificate before it stays" in caplog.text

        write_pair(tmp_path, authority, "third")
        assert certificate.reload_if_changed()
        assert await fetch_common_name(url, context) == "third"


async def test_files_are_looked_at_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubelets do it: the folder's files are links through one link, which is exchanged."""
    monkeypatch.setattr("fairbind.web.tls.LOOK_SECONDS", 0.01)
    authority = Authority()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name, authority, name)
    (tmp_path / "..data").symlink_to("first")
    for name in (CERTIFICATE, KEY):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificate = ServingCertificate(tmp_path)
    context = make_client_context(authority)
    async with serving(tls=certificate.context) as url:
        looking = asyncio.create_task(certificate.keep_fresh())
        (tmp_path / "..new").symlink_to("second")
        (tmp_path / "..new").replace(tmp_path / "..data")
        async with asyncio.timeout(30):
            while await fetch_common_name(url, context) != "second":  # noqa: ASYNC110 - only a handshake shows it
                await asyncio.sleep(0.01)
        looking.cancel()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match=rf"{tmp_path}: tls.crt and tls.key"):
        ServingCertificate(tmp_path)

    (tmp_path / CERTIFICATE).write_text("no certificate")
    (tmp_path / KEY).write_text("no key")
    with pytest.raises(InvalidProblemError, match=r"no usable pair") as caught:
        ServingCertificate(tmp_path)
    assert "\n" not in str(caught.value)


def read_presented(url: str) -> x509.Certificate:
    """Return the certificate that a new connection gets, whoever signed it."""
    host, _, port = url.removeprefix("https://").partition(":")
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())


def list_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_without_a_certificate_of_its_own_it_makes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = SelfSignedCertificate()
    assert list_folder(tmp_path) == []  # nothing stays on the disk
    async with serving(tls=own.context) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/metrics", ssl=False) as answer:
            assert await answer.text() == "secret_shares 1\n"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{url}/metrics")
        presented = await asyncio.to_thread(read_presented, url)
    presented.verify_directly_issued_by(presented)
    now = dt.datetime.now(dt.UTC)
    assert presented.not_valid_before_utc < now < presented.not_valid_after_utc < now + LIFETIME
    constraints = presented.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


async def test_a_certificate_that_it_made_is_made_again_long_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SelfSignedCertificate()
    async with serving(tls=own.context) as url:
        first = await asyncio.to_thread(read_presented, url)
        assert not own.renew_if_old()
        later = dt.datetime.now(dt.UTC) + RENEW_AFTER
        monkeypatch.setattr(self_signed, "_now", lambda: later)
        assert own.renew_if_old()
        assert not own.renew_if_old()
        second = await asyncio.to_thread(read_presented, url)
    assert first.serial_number != second.serial_number
    assert second.not_valid_after_utc > first.not_valid_after_utc > later


def test_two_replicas_have_no_key_in_common() -> None:
    made = [self_signed.make_pair(dt.datetime.now(dt.UTC), b"password") for _ in range(2)]
    assert all(b"ENCRYPTED PRIVATE KEY" in pair for pair in made)
    keys = [x509.load_pem_x509_certificate(pair).public_key() for pair in made]
    assert keys[0] != keys[1]
