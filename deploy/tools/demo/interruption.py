"""Ctrl-C, a closed terminal and a kind kill, all turned into one exception in the main thread.

The first signal raises `Interrupted` wherever the program is, so that every `with` and `finally` on the way out does
its work. More of them are ignored for a moment (a terminal, make and timeout may each send one); later ones end the
process at once, and the children, which are tied to it, with it. The standard library only: it is loaded before all
else.

A signal that comes just before a blocking call is seen when the call returns, so the main thread waits in short turns.
Python drops what is raised while a finalizer runs, so the main thread asks in these turns whether a signal came.
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
        self._words = ""

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._words = now, WORDS[signal.Signals(number)]
            self.check()
        elif now - self._first > IMPATIENCE_SECONDS:
            os._exit(EXIT_CODE)

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._first is not None:
            raise Interrupted(self._words)


_handler = _Handler()


def check() -> None:
    """Raise `Interrupted` if a signal came, also when it was raised before; for where nothing is undone yet."""
    _handler.check()


def install() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`; SIGHUP only when nohup has not said otherwise."""
    signal.signal(signal.SIGINT, _handler)
    signal.signal(signal.SIGTERM, _handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _handler)
