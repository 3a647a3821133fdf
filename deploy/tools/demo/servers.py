"""Programs that serve HTTP on a free port of this machine, started and waited for."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from localplane import processes
from localplane.client import ApiClient, ApiError
from localplane.ports import find_free_ports

READY_TIMEOUT_SECONDS = 300.0
GRACE_SECONDS = 5.0
PORT_ATTEMPTS = 3
PORT_TAKEN = "address already in use"
POLL_SECONDS = 0.05


class DemoError(Exception):
    """The demo cannot go on; the message is all that a user needs."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running program. name: for messages. client: speaks to it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    client: ApiClient

    def check_running(self) -> None:
        """Raise DemoError with the end of the log when the program has ended."""
        code = self.process.poll()
        if code is not None:
            raise DemoError(f"{self.name} ended with code {code}; the end of its log:\n{processes.read_tail(self.log)}")


def start_server(
    stack: contextlib.ExitStack,
    name: str,
    make_words: Callable[[str], Sequence[str | Path]],
    log: Path,
    *,
    readiness: str,
) -> Server:
    """Start a program, wait until it is ready and return it; raise DemoError when it is not. The stack ends it.

    make_words: the program and its arguments for an address to listen on. readiness: the path that says that it is.
    """
    for attempts_left in reversed(range(PORT_ATTEMPTS)):
        address = f"127.0.0.1:{find_free_ports(1)[0]}"
        process = processes.spawn(make_words(address), log)
        stack.callback(processes.terminate, process, GRACE_SECONDS)
        client = stack.enter_context(ApiClient(f"http://{address}", timeout_seconds=30.0))
        server = Server(name, process, log, client)
        try:
            _wait_ready(server, readiness)
        except DemoError as error:
            if attempts_left and PORT_TAKEN in str(error):  # another program was faster
                continue
            raise
        break
    return server


def _wait_ready(server: Server, readiness: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while not _is_ready(server.client, readiness):
        server.check_running()
        if time.monotonic() > deadline:
            tail = processes.read_tail(server.log)
            raise DemoError(
                f"{server.name} is not ready after {READY_TIMEOUT_SECONDS:.0f} s; the end of its log:\n{tail}"
            )
        time.sleep(POLL_SECONDS)


def _is_ready(client: ApiClient, readiness: str) -> bool:
    try:
        client.get(readiness)
    except (ApiError, urllib3.exceptions.HTTPError):
        return False
    return True
