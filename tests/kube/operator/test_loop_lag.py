from __future__ import annotations

import asyncio
import time

from fairbind.kube.operator.loop_lag import PERIOD_SECONDS, SHOWN_SECONDS, LoopLag


def test_the_longest_lag_of_the_last_minute_is_reported() -> None:
    reported: list[float] = []
    lag = LoopLag(lambda: 0.0, reported.append)
    for seconds in (0.01, 0.5, 0.02, -0.001):
        lag.note(seconds)
    assert reported == [0.01, 0.5, 0.5, 0.5]
    for _ in range(round(SHOWN_SECONDS / PERIOD_SECONDS)):
        lag.note(0.02)
    assert reported[-1] == 0.02


async def test_a_loop_that_stands_is_seen() -> None:
    reported: asyncio.Queue[float] = asyncio.Queue()
    running = asyncio.create_task(LoopLag(time.monotonic, reported.put_nowait).run())
    await asyncio.sleep(0)
    time.sleep(PERIOD_SECONDS + 0.3)  # noqa: ASYNC251 - this is what is measured
    assert await reported.get() >= 0.29
    running.cancel()
