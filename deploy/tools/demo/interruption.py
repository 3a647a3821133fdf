"""Ctrl-C, a closed terminal and a kind kill, all turned into one exception in the main thread.

The first signal raises `Interrupted` wherever the program is, so that every `with` and `finally` on the way out does
its work. More of them are ignored for a moment (a terminal, make and timeout may each send one); later ones end the
process at once, and the children, which are tied to it, with it. The standard library only: it is loaded before all
else.

A signal that comes just before a blocking call is seen when the call returns, so the main thread waits in short turns.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

EXIT_CODE = 130
IMPATIENCE_SECONDS = 2.0
WORDS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "the closed terminal"}


class Interrupted(BaseException):
    """A user or another program wants this one to end; the message says which."""


class _Handler:
    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise Interrupted(WORDS[signal.Signals(number)])
        if now - self._first > IMPATIENCE_SECONDS:
            os._exit(EXIT_CODE)


def install() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`; SIGHUP only when nohup has not said otherwise."""
    handler = _Handler()
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)
