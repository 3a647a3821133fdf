"""A replica's way to the API server in memory: the protocol of `ApiClient`, on virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping

from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError, NotSentError, TransientClusterError
from kube.assembled.apiserver import COLLECTIONS, ApiServer, Kind, Request
from kube.assembled.faults import Silence

BOOKMARK_SECONDS = 60.0
LATENCY_SECONDS = 0.004
LAG_STEP_SECONDS = 0.5
"""How often it is looked at whether the lag has changed."""
LEAST_SECONDS = 1e-6
"""Timers are rounded; a pause of nothing at all might be repeated for ever."""


class Connection:
    """One client. who: its name in requests and faults.

    latency: seconds of the way, drawn for each request. lag_seconds: how much later events come than they happen.
    connect_seconds: how long a request waits for a connection that stands; the guard is asked after it. withheld:
    requests to which the guard said no.
    is_cut: the process is dead or its network is; no request gets through.
    """

    def __init__(self, server: ApiServer, who: str, latency: Callable[[], float] = lambda: LATENCY_SECONDS) -> None:
        self.server = server
        self.who = who
        self.latency = latency
        self.lag_seconds = 0.0
        self.connect_seconds = 0.0
        self.withheld: list[Request] = []
        self.is_cut = False
        self._swallows_before = -1.0

    def swallow_watches(self) -> None:
        """Let the watches that are open now bring nothing any more and never end, as on a flow that died silently."""
        self._swallows_before = self.server.now

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = 15.0,
        guard: Callable[[], bool] | None = None,
    ) -> bytes:
        assert (method == "PATCH") == ("patch" in content_type)
        content = None if body is None else json.loads(body)
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(self.connect_seconds)
                request = Request(self.server.now, self.who, method, path, dict(query or {}), content)
                if guard is not None and not guard():
                    self.withheld.append(request)
                    raise NotAllowedError(f"{method} {path}: not allowed any more")
                if self.is_cut:
                    raise NotSentError("there is no way")
                return await self.server.receive(request, self.latency())
        except TimeoutError:
            raise TransientClusterError(f"{method} {path}: timed out") from None

    async def watch_lines(
        self, path: str, query: Mapping[str, str], *, idle_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        request = Request(self.server.now, self.who, "WATCH", path, dict(query), None)
        await self._open(request, idle_timeout_seconds)
        kind = self.server.kinds[COLLECTIONS[path]]
        version = int(query["resourceVersion"])
        if version < kind.oldest:
            raise ApiError(410, "Expired", "too old resource version")
        ends_at = self.server.now + float(query["timeoutSeconds"])
        position = next((n for n, entry in enumerate(kind.history) if entry.version > version), len(kind.history))
        began, breaks = self.server.now, self.server.breaks
        bookmark_at = self.server.now + BOOKMARK_SECONDS
        while self.server.now < ends_at or began <= self._swallows_before:
            if began <= self._swallows_before:
                await asyncio.sleep(idle_timeout_seconds)
                raise TransientClusterError("timed out")
            if self.server.breaks != breaks or self.is_cut:
                raise TransientClusterError("the watch broke")
            if position < len(kind.history):
                early = kind.history[position].at + self.lag_seconds - self.server.now
                if early > 0:
                    await asyncio.sleep(min(early + LEAST_SECONDS, LAG_STEP_SECONDS))
                    continue
                position += 1
                yield kind.history[position - 1].line
            elif self.server.now >= bookmark_at:
                bookmark_at = self.server.now + BOOKMARK_SECONDS
                yield _make_bookmark(self.server.version)
            else:
                await _wait_for_change(kind, min(bookmark_at, ends_at) - self.server.now)

    async def _open(self, request: Request, patience: float) -> None:
        self.server.requests.append(request)
        await asyncio.sleep(self.latency())
        fault = self.server.find_fault(request)
        if self.is_cut:
            raise NotSentError("there is no way")
        if fault is None:
            return
        await asyncio.sleep(fault.delay_seconds)
        if isinstance(fault.answer, Silence):
            await asyncio.sleep(patience)
            raise TransientClusterError("timed out")
        if fault.answer is not None:
            raise fault.answer


def _make_bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode()


async def _wait_for_change(kind: Kind, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, LEAST_SECONDS)):
            await kind.changed.wait()
    except TimeoutError:
        pass
