"""Become another program that dies when the parent does: ``python -I -S launch.py PARENT_PID PROGRAM [ARGUMENT...]``.

With ``--group`` before all that, stay beside the program instead, so that what it started itself dies too; this process
must lead a process group of its own.

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


def tie_to_parent(parent_pid: int, number: int = signal.SIGKILL) -> None:
    """Arrange that this process gets a signal when its parent ends, however that happens.

    On Linux it is the parent's *thread* that counts: start the child from a thread that lives as long as the process
    (``processes.spawn`` does).
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, number) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        _start_watcher(parent_pid, number)
    if os.getppid() != parent_pid:  # it ended before we asked
        sys.exit(f"{sys.argv[0]}: the parent {parent_pid} has gone")


def _start_watcher(parent_pid: int, number: int) -> None:
    """Fork a process that signals this one when the parent is no longer its parent."""
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
            os.kill(child_pid, number)
            os._exit(0)


def run_group(parent_pid: int, argv: list[str]) -> int:
    """Run a program in our group and return its exit status; when the parent ends, kill the whole group.

    The signals are blocked and waited for, so that none is missed between two looks.
    """
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, lambda *_: None)  # what is ignored by default may not be waited for everywhere
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    tie_to_parent(parent_pid, signal.SIGTERM)
    pid = os.posix_spawn(argv[0], argv, os.environ, setsigmask=())
    while signal.sigwait(awaited) == signal.SIGCHLD:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
    os.killpg(0, signal.SIGKILL)
    return 1  # not reached: we belong to the group


def main() -> None:
    """Tie this process to its parent and become the program, or stay beside it."""
    if sys.argv[1] == "--group":
        sys.exit(run_group(int(sys.argv[2]), sys.argv[3:]))
    tie_to_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main()
