from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fairbind.kube import handlers
from fairbind.kube.errors import TransientClusterError
from fairbind.kube.handlers import POLICIES, TENANTS, CustomResources, _cancel_and_wait
from fairbind.kube.health import Health
from fairbind.kube.objects import ObjectTable
from fairbind.kube.observer import SilentObserver

EMPTY_LIST = b'{"metadata": {"resourceVersion": "7"}, "items": []}'


class FlakyApi:
    """Answers lists, or not."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked = 0

    async def request(self, method: str, path: str) -> bytes:
        assert method == "GET"
        assert path.startswith("/apis/fairbind.io/")
        self.asked += 1
        if self.is_away:
            raise TransientClusterError("away")
        return EMPTY_LIST


async def test_after_an_outage_it_is_ready_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "RELIST_SECONDS", 0.01)
    monkeypatch.setattr(handlers, "RETRY_SECONDS", 0.01)
    api, health = FlakyApi(), Health()
    health.clear_problem("operator")
    resources = CustomResources(
        cast("Any", api),
        cast("Any", None),
        {kind: ObjectTable(lambda: None) for kind in (TENANTS, POLICIES)},
        observer=SilentObserver(),
        health=health,
        reinstall_signals=lambda: None,
    )
    comparing = asyncio.create_task(resources._compare_regularly())
    async with asyncio.timeout(10.0):
        while health.find_unready() is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        monkeypatch.setattr(handlers, "RELIST_SECONDS", 3600.0)
        asked = api.asked
        while api.asked < asked + 6:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        api.is_away = False
        while health.find_unready() is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
    assert not comparing.done()
    asked = api.asked
    await asyncio.sleep(0.05)
    assert api.asked == asked  # what is well is looked at rarely
    await _cancel_and_wait([comparing])


async def test_who_is_cancelled_while_kopf_ends_does_not_live_on() -> None:
    is_ending, is_over = asyncio.Event(), asyncio.Event()

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(3600.0)
        except asyncio.CancelledError:
            is_ending.set()
            await is_over.wait()

    slow = asyncio.create_task(end_slowly())
    await asyncio.sleep(0)
    ending = asyncio.create_task(_cancel_and_wait([slow]))
    await is_ending.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    is_over.set()
    await asyncio.gather(slow, return_exceptions=True)
