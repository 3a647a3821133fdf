"""The deciding side is busy for five seconds: the lease stays, probes say what is true, pages are served."""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import pytest

from fairbind.cli.operator import _find_loop_factory, _Pages, _serving
from fairbind.kube.client.api import ApiClient
from fairbind.kube.operator.election import ThreadedElector
from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.health import UNREADY_AFTER_SECONDS, Health
from fairbind.kube.operator.loop_thread import LoopThread
from fairbind.web.metrics import Metrics
from fairbind.web.pages import PAGE_SECONDS
from fairbind.web.serving import Address
from kube.operator.simulation import DirectApi, LeaseServer

BUSY_SECONDS = 5.0
COUNTED = b"fairbind_cycle_errors_total "


@dataclass(frozen=True, slots=True)
class Look:
    """What the pages said. at, took: in seconds, on the monotonic clock. counted: how often, as the metrics say."""

    at: float
    took: float
    health: int
    readiness: int
    counted: float


def look(host: str) -> Look:
    at = time.monotonic()
    connection = http.client.HTTPConnection(host, timeout=60.0)
    answers = {}
    for path in ("/healthz", "/readyz", "/metrics"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answers[path] = answer.status, answer.read()
    connection.close()
    (line,) = (line for line in answers["/metrics"][1].splitlines() if line.startswith(COUNTED))
    return Look(
        at, time.monotonic() - at, answers["/healthz"][0], answers["/readyz"][0], float(line.removeprefix(COUNTED))
    )


def keep_looking(host: str, ends_at: float) -> list[Look]:
    looks = []
    while time.monotonic() < ends_at:
        looks.append(look(host))
        time.sleep(0.2)
    return looks


def be_busy(seconds: float, count: Callable[[], None]) -> list[float]:
    """Hold the loop up, as a long cycle does; return when something was counted."""
    counted: list[float] = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        if not counted or time.monotonic() - counted[-1] > 0.5:
            count()
            counted.append(time.monotonic())
    return counted


@pytest.mark.slow
async def test_five_busy_seconds_cost_neither_lease_nor_probes_nor_pages() -> None:
    front = LoopThread("front", make_loop=_find_loop_factory())
    front.start()
    server, metrics, health = LeaseServer(), Metrics(), Health()
    health.clear_problem("operator")
    changes: list[bool] = []
    election = ThreadedElector(
        lambda report: Elector(
            DirectApi(server), "fairbind-system", identity="me", on_change=report, may_stand=lambda: True
        ),
        front,
        changes.append,
    )
    pages = _Pages(Address("127.0.0.1", 0), certificate=None, is_guarded=False)
    running = asyncio.create_task(election.run())
    with ThreadPoolExecutor(1) as pool:
        async with front.entered(_serving(pages, metrics, health, cast("ApiClient", None))) as url:
            async with asyncio.timeout(60.0):
                while not election.may_bind():  # noqa: ASYNC110 - the other thread tells nobody
                    await asyncio.sleep(0.01)
            health.note_event_loop()
            health.beat()
            written = len(server.writes)
            began = time.monotonic()
            looking = pool.submit(keep_looking, url.removeprefix("http://"), began + BUSY_SECONDS - 0.1)
            counted = be_busy(BUSY_SECONDS, metrics.cycle_failed)
            assert election.may_bind()  # before our loop has turned once
            assert changes == [True]
            assert len(server.writes) - written >= 2
            looks = looking.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await election.release()
    front.stop()

    assert len(looks) >= 3
    assert {seen.health for seen in looks} == {200}
    for seen in looks:
        silence = seen.at - began
        if silence + seen.took < UNREADY_AFTER_SECONDS or silence > UNREADY_AFTER_SECONDS:
            assert seen.readiness == (200 if silence < UNREADY_AFTER_SECONDS else 503)
        known = sum(at < seen.at - PAGE_SECONDS for at in counted)
        assert known <= seen.counted <= len(counted)
    assert {seen.readiness for seen in looks} == {200, 503}
