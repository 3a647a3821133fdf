"""A wire to the API server that a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

from e2e.waiting import PATIENCE_SECONDS
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from types import TracebackType

CHUNK_BYTES = 1 << 16


class Flows:
    """Passes bytes on, in a thread of its own, until it is cut; then connections are refused until it is restored.

    upstream: host and port that new connections lead to.
    """

    def __init__(self) -> None:
        self.upstream = ("", 0)
        self.port = find_free_ports(1)[0]  # one that no client is given while it has no listener
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        if self._listener is not None:
            self._listener.close()
        self._loop.close()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._run(self._cut())

    def mend(self) -> None:
        """Take connections again, at the same address."""
        self._run(self._mend())

    async def _cut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            with contextlib.suppress(OSError):  # it was cut before
                self._listener.shutdown(socket.SHUT_RDWR)  # it keeps its port, which nobody else is given
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mend(self) -> None:
        # Not a server of asyncio: closed while it accepts, that one forgets the connection instead of closing it.
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.listen()
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # whoever it was has gone
        connection.setblocking(False)
        task = self._loop.create_task(self._pass_on(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: connection.close())  # cut before its first step, it closes nothing

    async def _pass_on(self, connection: socket.socket) -> None:
        writers: list[asyncio.StreamWriter] = []
        copying: list[asyncio.Task[None]] = []
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            writers.append(writer)
            upstream_reader, upstream_writer = await asyncio.open_connection(*self.upstream)
            writers.append(upstream_writer)
            for source, target in ((reader, upstream_writer), (upstream_reader, writer)):
                copying.append(asyncio.create_task(_copy(source, target)))
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or the relay was cut
        finally:
            for task in copying:
                task.cancel()
            for end in writers:
                end.transport.abort()
            await asyncio.gather(*copying, *(end.wait_closed() for end in writers), return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


class Relay(Flows):
    """Stands before the API server."""

    def __init__(self, source: Path, target: Path) -> None:
        """source: a kubeconfig. target: where to write the same that goes through the relay."""
        super().__init__()
        self._source = source
        self.kubeconfig = target

    def __enter__(self) -> Self:
        config = yaml.safe_load(self._source.read_text(encoding="utf-8"))
        parts = urlsplit(config["clusters"][0]["cluster"]["server"])
        self.upstream = parts.hostname or "", parts.port or 443
        super().__enter__()
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        return self


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
