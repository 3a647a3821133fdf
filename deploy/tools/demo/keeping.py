"""How a cluster can stay when the demo's command ends: the work is done by a child that is let go at the end.

Until then the two are one: a signal to the parent ends the child, and the child ends when the parent is gone. Once let
go, the child has no terminal, answers to `kill` alone and takes the cluster with it when it ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from demo import interruption

LET_GO = b"+"
PERMIT_SECONDS = 0.5


class Leash:
    """The child's end of the bond: two pipes. It is cut once, by ``let_go``."""

    def __init__(self, news: int, lifeline: int) -> None:
        self._news = news
        self._lifeline = lifeline
        self._is_cut = False

    def guard(self) -> None:
        """End this process, the polite way, when the parent is gone before it let go."""
        threading.Thread(target=self._wait_for_end, name="leash", daemon=True).start()

    def let_go(self, log: Path) -> None:
        """Tell the parent that it may end, and write to a file from now on."""
        self._is_cut = True
        sys.stdout.flush()
        sys.stderr.flush()
        with log.open("ab") as stream, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._news, LET_GO)
        os.close(self._news)

    def _wait_for_end(self) -> None:
        os.read(self._lifeline, 1)  # nothing is ever written: this returns when the parent's end is closed
        if not self._is_cut:
            os.kill(os.getpid(), signal.SIGTERM)


def run_on_leash(work: Callable[[Leash], int]) -> int:
    """Do the work in a child; return its exit code, or 0 as soon as it has let go. Call it before there are threads."""
    news_read, news_write = os.pipe()
    lifeline_read, lifeline_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(news_read)
        os.close(lifeline_write)
        os.setsid()  # a Ctrl-C in the terminal reaches the parent, which passes it on
        interruption.install()
        leash = Leash(news_write, lifeline_read)
        leash.guard()
        code = work(leash)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(news_write)
    os.close(lifeline_read)
    return _follow(pid, news_read)


def _follow(pid: int, news: int) -> int:
    try:
        while not select.select([news], [], [], PERMIT_SECONDS)[0]:
            pass
        if os.read(news, 1) == LET_GO:
            return 0
    except interruption.Interrupted:
        os.kill(pid, signal.SIGINT)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
