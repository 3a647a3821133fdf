"""For how long the machine did nothing: limits of time are for fairbind, not for the machine that the tests share."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import urllib3

from e2e.api import ApiError
from e2e.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_SECONDS = 0.1
USUAL_SECONDS = 0.5
"""A look that takes no longer, its pause included, has met no stall."""


class Stalls(Sampling):
    """Measures, as long as the context lasts, how much longer than usual looks at something take: ``seconds``.

    look: what takes milliseconds unless the machine, or whom it asks, stands still.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__("stalls")
        self.seconds = 0.0
        self._look = look

    def sample(self) -> None:
        """Add up what looks take beyond the usual."""
        began = time.monotonic()
        while not self.ended.wait(PAUSE_SECONDS):
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError, OSError):
                self._look()
            now = time.monotonic()
            self.seconds += max(0.0, now - began - USUAL_SECONDS)
            began = now
