"""For how long the machine did nothing: limits of time are for fairbind, not for the machine that the tests share."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

import urllib3

from e2e.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

PAUSE_SECONDS = 0.1
USUAL_SECONDS = 0.5
"""A look that takes no longer, its pause included, has met no stall."""


class Stalls:
    """Measures, as long as the context lasts, how much longer than usual looks at something take: ``seconds``.

    look: what takes milliseconds unless the machine, or whom it asks, stands still.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self.seconds = 0.0
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="stalls")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _measure(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(PAUSE_SECONDS):
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError, OSError):
                self._look()
            now = time.monotonic()
            self.seconds += max(0.0, now - began - USUAL_SECONDS)
            began = now
