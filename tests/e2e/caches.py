"""The operator's cache on a real API server, without the rest of the operator, beside a test that is synchronous."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from e2e.waiting import PATIENCE_SECONDS
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.decode import NAMESPACES, NODES, PODS
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.client.reflector import PAGE_SIZE, Reflector

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from types import TracebackType

Answer = TypeVar("Answer")


class LiveCache:
    """A cache whose event loop has a thread of its own. restarts: what the reflectors told of, as (kind, reason)."""

    def __init__(self, kubeconfig: Path, page_size: int = PAGE_SIZE) -> None:
        self._kubeconfig = kubeconfig
        self._page_size = page_size
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cache", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._api: ApiClient | None = None
        self.cache = ClusterCache("fairbind", lambda: None)
        self.reflectors: dict[str, Reflector[Any]] = {}
        self.restarts: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def ask(self, question: Callable[[ClusterCache], Answer]) -> Answer:
        """Return what a function finds in the cache, asked between two events."""

        async def answer() -> Answer:
            self.cache.check_consistent()
            return question(self.cache)

        return self._run(answer())

    def wait_synced(self) -> None:
        """Wait until everything was listed."""

        async def wait() -> None:
            for reflector in self.reflectors.values():
                await reflector.synced.wait()

        self._run(wait())

    def relist(self) -> None:
        """List all pods again."""
        self._run(self.reflectors["pods"].relist())

    def find_held(self, node: str) -> dict[str, int]:
        """What tenants' pods hold on a node, base units; without zeros."""

        def question(cache: ClusterCache) -> dict[str, int]:
            snapshot = cache.build_snapshot()
            index = snapshot.servers.names.index(node)
            held_r = (snapshot.servers.capacity_kr - snapshot.servers.free_kr)[index].tolist()
            return {resource: held for resource, held in zip(snapshot.resources, held_r, strict=True) if held}

        return self.ask(question)

    async def _start(self) -> None:
        self._api = ApiClient(load_credentials(self._kubeconfig))
        feeds = ((PODS, self.cache.pods), (NODES, self.cache.nodes), (NAMESPACES, self.cache.namespaces))
        for kind, feed in feeds:
            reflector: Reflector[Any] = Reflector(
                self._api, kind, feed, on_restart=self._note, page_size=self._page_size
            )
            self.reflectors[kind.name] = reflector
            self._tasks.append(asyncio.create_task(reflector.run()))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._api is not None:
            await self._api.close()
        await self._wait_closed()

    async def _wait_closed(self) -> None:
        """TLS connections say goodbye after the session was closed; the loop must not end before."""
        selector: Any = self._loop._selector  # type: ignore[attr-defined]
        while len(selector.get_map()) > 1:  # noqa: ASYNC110  no event says it; what is left is the loop's own
            await asyncio.sleep(0.01)

    def _note(self, kind: str, reason: str) -> None:
        self.restarts.append((kind, reason))

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)
