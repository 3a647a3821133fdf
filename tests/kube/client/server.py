"""The API server as a reflector sees it: lists in pages, watches, a history that can be lost, and bad days."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from cluster.builders import Json, make_pod
from fairbind.cluster.objects.facts import PodFacts
from fairbind.kube.client.errors import ApiError, TransientClusterError


class Server:
    """Pods, and what happened to them. `faults`: what the next requests meet instead of an answer."""

    def __init__(self) -> None:
        self.version = 100
        self.pods: dict[str, Json] = {}
        self.history: list[tuple[int, bytes]] = []
        self.oldest = 0
        self.faults: list[Exception] = []
        self.list_faults: list[Exception] = []
        self.page_faults: list[Exception] = []
        """What pages after the first meet."""
        self.requests: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.open_watches = 0
        self._happened = asyncio.Condition()
        self._break: Exception | None = None
        self._ends = 0

    async def put(self, name: str, **spec: Any) -> None:
        kind = "MODIFIED" if name in self.pods else "ADDED"
        await self._log(kind, self._stamp(make_pod(name, **spec)))

    async def delete(self, name: str) -> None:
        pod = self.pods[name]
        await self._log("DELETED", self._stamp(pod))
        del self.pods[name]

    async def send(self, line: bytes) -> None:
        """Say something on all watches."""
        self.version += 1
        self.history.append((self.version, line))
        await self._wake()

    async def send_bookmark(self) -> None:
        self.version += 1
        pod = {"kind": "Pod", "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}
        line = json.dumps({"type": "BOOKMARK", "object": {**pod, "spec": {"containers": None}, "status": {}}})
        self.history.append((self.version, line.encode()))
        await self._wake()

    def compact(self) -> None:
        """Forget the history."""
        self.oldest = self.version

    async def break_watches(self, error: Exception | None = None) -> None:
        """End all watches: with an error, or as the server does after their time."""
        self._break = error
        self._ends += 1
        await self._wake()

    def _stamp(self, pod: Json) -> Json:
        self.version += 1
        self.pods[pod["metadata"]["name"]] = pod
        pod["metadata"]["resourceVersion"] = str(self.version)
        return pod

    async def _log(self, kind: str, pod: Json) -> None:
        self.history.append((self.version, json.dumps({"type": kind, "object": pod}).encode()))
        await self._wake()

    async def _wake(self) -> None:
        async with self._happened:
            self._happened.notify_all()

    # --- what the reflector calls ---

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout_seconds: float = 15.0
    ) -> bytes:
        assert (method, path) == ("GET", "/api/v1/pods")
        assert timeout_seconds > 0
        asked = dict(query or {})
        self.requests.append(asked)
        await asyncio.sleep(0)
        for faults in (self.faults, self.list_faults):
            if faults:
                raise faults.pop(0)
        if "continue" in asked and self.page_faults:
            raise self.page_faults.pop(0)
        first = int(asked.get("continue", "0"))
        last = first + int(asked["limit"])
        names = sorted(self.pods)
        meta = {"resourceVersion": str(self.version), "continue": str(last) if last < len(names) else ""}
        items = [self.pods[name] for name in names[first:last]] or None
        return json.dumps({"kind": "PodList", "metadata": meta, "items": items}).encode()

    async def watch_lines(
        self, path: str, query: Mapping[str, str], *, idle_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        assert path == "/api/v1/pods"
        assert idle_timeout_seconds > int(query["timeoutSeconds"])
        self.watches.append(dict(query))
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop(0)
        sent = int(query["resourceVersion"])
        if sent < self.oldest:
            raise ApiError(410, "Expired", "too old resource version")
        self.open_watches += 1
        ends = self._ends
        try:
            while True:
                for version, line in list(self.history):
                    if version > sent:
                        sent = version
                        yield line
                if self._ends > ends:
                    if self._break is not None:
                        raise self._break
                    return
                async with self._happened:
                    await self._happened.wait()
        finally:
            self.open_watches -= 1


class Collected:
    """A sink that keeps what it is told. is_slow: it takes lists in parts of one pod."""

    def __init__(self) -> None:
        self.is_slow = False
        self.pods: dict[str, PodFacts] = {}
        self.lists = 0

    def replace_in_parts(self, items: Any, version: str = "") -> Iterator[None]:
        assert version or not items  # of a kind that is absent
        self.lists += 1
        self.pods = {}
        for pod in items:
            self.pods[pod.name] = pod
            if self.is_slow:
                yield

    def apply(self, item: PodFacts) -> None:
        self.pods[item.name] = item

    def delete(self, item: PodFacts) -> None:
        self.pods.pop(item.name, None)


async def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Let others work until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  whatever the condition looks at has no event of its own
            await asyncio.sleep(0)


LOST = TransientClusterError("the connection was lost")
