"""What the benchmarks see of bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast

from fairbind.kube.client.api import ApiClient
from perf.measure import BindingWatch


class Api:
    """Answers a list at version 5, and each watch with the next lines. asked: at which versions watches began."""

    def __init__(self, *watches: list[bytes]) -> None:
        self._watches = list(watches)
        self.asked: list[str] = []
        self.has_all = asyncio.Event()

    async def request(self, *_: object, **__: object) -> bytes:
        return b'{"metadata": {"resourceVersion": "5"}}'

    async def watch_lines(self, _path: str, query: Mapping[str, str], **_: object) -> AsyncIterator[bytes]:
        assert query["allowWatchBookmarks"] == "true"
        self.asked.append(query["resourceVersion"])
        if not self._watches:
            self.has_all.set()
            await asyncio.Event().wait()
        for line in self._watches.pop(0):
            yield line


async def test_a_watch_goes_on_from_the_last_version_that_it_was_told_of() -> None:
    pod = b'{"type": "ADDED", "object": {"metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"nodeName": "n"}}}'
    bookmark = b'{"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "70"}, "spec": {}}}'
    api = Api([pod], [bookmark])

    async with BindingWatch(cast("ApiClient", api), "run") as watch:
        await asyncio.wait_for(api.has_all.wait(), 60)

    assert api.asked == ["5", "7", "70"]
    assert (watch.node, watch.restarts) == ({"p": "n"}, 2)
