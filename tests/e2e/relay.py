"""A wire to the API server that a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from types import TracebackType

PATIENCE_SECONDS = 30.0
CHUNK_BYTES = 1 << 16


class Relay:
    """Passes bytes on, in a thread of its own, until it is cut; then connections are refused until it is mended."""

    def __init__(self, source: Path, target: Path) -> None:
        """source: a kubeconfig. target: where to write the same that goes through the relay."""
        self._source = source
        self.kubeconfig = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._upstream = ("", 0)
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        config = yaml.safe_load(self._source.read_text(encoding="utf-8"))
        parts = urlsplit(config["clusters"][0]["cluster"]["server"])
        self._upstream = parts.hostname or "", parts.port or 443
        self._thread.start()
        self.mend()
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self._port}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._run(self._cut())

    def mend(self) -> None:
        """Take connections again, at the same address."""
        self._run(self._mend())

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mend(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._tasks.add(current)
        writers = [writer]
        copying: list[asyncio.Task[None]] = []
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
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
            self._tasks.discard(current)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
