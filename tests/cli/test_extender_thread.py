"""Who serves kube-scheduler: the front thread, also while the loop that decides stands still; the latter answers."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fairbind.cli.operator import _ExtenderPages
from fairbind.kube.operator.loop_thread import LoopThread
from fairbind.web.serving import Address
from fairbind.web.tls import CERTIFICATE, CLIENT_CA, KEY, ServingCertificate
from localplane.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "system:kube-scheduler"
PATIENCE_SECONDS = 30.0


@pytest.fixture
def front() -> Iterator[LoopThread]:
    made = LoopThread("front")
    made.start()
    yield made
    made.stop()


def make_client(folder: Path) -> ssl.SSLContext:
    """Write the certificates of both sides into a folder, and return the client's."""
    authority = Authority()
    authority.issue_server("extender", ["127.0.0.1"]).write(folder / CERTIFICATE, folder / KEY)
    (folder / CLIENT_CA).write_bytes(authority.certificate)
    authority.issue_client(NAME).write(folder / "client.crt", folder / "client.key")
    context = ssl.create_default_context(cafile=folder / CLIENT_CA)
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


async def find_port(caplog: pytest.LogCaptureFixture) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := re.search(r"answered on https://\S+:(\d+)", caplog.text)):  # noqa: ASYNC110 - a log wakes none
            await asyncio.sleep(0.01)
    return int(found[1])


async def test_handshakes_need_no_loop_that_decides_and_answers_are_decided_in_it(
    front: LoopThread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client, answering = make_client(tmp_path), list[threading.Thread]()

    async def answer(_verb: str, _body: bytes) -> tuple[int, bytes]:
        answering.append(threading.current_thread())
        return 200, b"{}"

    certificate = ServingCertificate(tmp_path, asks_clients=True)
    serving = asyncio.create_task(_ExtenderPages(Address("127.0.0.1", 0), certificate, (NAME,)).serve(front, answer))
    port = await find_port(caplog)

    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as raw:  # this loop stands still meanwhile
        client.wrap_socket(raw, server_hostname="127.0.0.1").close()

    url = f"https://127.0.0.1:{port}/filter"
    async with aiohttp.ClientSession() as session, session.post(url, ssl=client) as response:
        assert response.status == 200
    assert answering == [threading.current_thread()]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
