"""Become another program that dies when the parent does: ``python -I -S launch.py PARENT_PID PROGRAM [ARGUMENT...]``.

Linux: the kernel kills us when the parent ends (PR_SET_PDEATHSIG; it survives exec). Elsewhere: a small watcher process
looks once a second whether the parent is still there. Run as a script, so that nothing runs between fork and exec in
the parent, which may have threads. The standard library only: it runs without site-packages to start fast.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
WATCH_INTERVAL_SECONDS = 1.0


def tie_to_parent(parent_pid: int) -> None:
    """Arrange that this process is killed when its parent ends, however that happens.

    On Linux it is the parent's *thread* that counts: start the child from a thread that lives as long as the process
    (``processes.spawn`` does).
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        _start_watcher(parent_pid)
    if os.getppid() != parent_pid:  # it ended before we asked
        sys.exit(f"{sys.argv[0]}: the parent {parent_pid} has gone")


def _start_watcher(parent_pid: int) -> None:
    """Fork a process that kills this one when the parent is no longer its parent."""
    child_pid = os.getpid()
    if os.fork() != 0:
        return
    while True:
        time.sleep(WATCH_INTERVAL_SECONDS)
        try:
            if os.getppid() != child_pid:
                os._exit(0)  # the child ended by itself
            os.kill(parent_pid, 0)
        except ProcessLookupError:
            os.kill(child_pid, signal.SIGKILL)
            os._exit(0)


def main() -> None:
    """Tie this process to its parent and become the program."""
    tie_to_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main()
