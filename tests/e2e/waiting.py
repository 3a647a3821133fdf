"""Waiting on conditions: as long as it takes, but not for ever, and with the last thing seen when it was in vain."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import urllib3

from localplane.client import ApiError
from localplane.plane import PlaneError

if TYPE_CHECKING:
    from collections.abc import Callable

Seen = TypeVar("Seen")

# Generous: a busy machine with two cores must not make an honest test fail.
PATIENCE_SECONDS = 300.0
LONGEST_PAUSE_SECONDS = 5.0
"""What passes while one look took long must not be missed because of that look."""


def wait_for(
    condition: Callable[[], Seen],
    timeout: float = PATIENCE_SECONDS,
    describe: str | Callable[[], str] = "",
    *,
    pause: float = 0.1,
) -> Seen:
    """Call ``condition`` until it returns something true and return that; fail after ``timeout`` seconds.

    A refusal of the API server, a lost connection, a tool that failed (such as kubectl) or a failed assertion inside
    the condition counts as "not yet"; the last one is shown. It gives up only after a whole look that began when the
    time was over: what was waited for may have come during a look that took long. describe: what is waited for, or a
    function that says how things stand when it was in vain.
    pause: in seconds; longer where looking takes long, up to five seconds: no more than a quarter of the time is spent
    on it, so that looking does not slow down what is waited for.
    """
    deadline = time.monotonic() + timeout
    seen = ""  # as text: an error would keep every frame here alive, with all that is open in them
    while True:
        looked_at = time.monotonic()
        try:
            result = condition()
            if result:
                return result
            seen = repr(result)
        except (ApiError, urllib3.exceptions.HTTPError, PlaneError, AssertionError) as error:
            seen = repr(error)
        if looked_at > deadline:
            what = describe() if callable(describe) else describe
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what or condition!r}; last seen: {seen}")
        time.sleep(max(pause, min(3 * (time.monotonic() - looked_at), LONGEST_PAUSE_SECONDS)))


async def until(condition: Callable[[], object], describe: str) -> None:
    """Wait as above, but in a thread: what is waited for may need the event loop."""
    await asyncio.to_thread(wait_for, condition, describe=describe, pause=0.02)


def never(condition: Callable[[], object], seconds: float, describe: str, *, pause: float = 0.1) -> None:
    """Fail as soon as ``condition`` returns something true within so many seconds: for what must not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = condition()
        assert not seen, f"{describe}: {seen!r}"
        time.sleep(pause)
