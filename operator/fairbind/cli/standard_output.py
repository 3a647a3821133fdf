"""Standard output is for the answer of a command, whatever a library prints."""

from __future__ import annotations

import os
import sys


def reserve_standard_output() -> None:
    """Let only `sys.stdout` write to standard output.

    What a library in C prints to file descriptor 1 goes to standard error, as does what a child process prints.
    Nothing is done where the process was started without standard output or standard error.
    """
    before = sys.stdout
    if before is None or sys.stderr is None:
        return
    before.flush()
    answers = os.dup(before.fileno())
    os.dup2(sys.stderr.fileno(), before.fileno())
    sys.stdout = os.fdopen(
        answers, "w", buffering=1 if before.line_buffering else -1, encoding=before.encoding, errors=before.errors
    )


def drop_unwritten_output() -> None:
    """Forget what a full disk did not take: it was reported, and Python would try again at its end and fail."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
