"""Child processes that never outlive us.

``spawn`` starts a program so that it is killed when this process ends, however it ends (also by SIGKILL). The kernel
ties a child to the *thread* that made it, so all children are made by one thread that lives as long as the process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REPORT_INTERVAL_SECONDS = 20.0
LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class _Request:
    argv: list[str]
    log: Path
    environment: Mapping[str, str] | None
    directory: Path | None
    with_offspring: bool
    answer: Future[subprocess.Popen[bytes]]


class _Spawner:
    """The one thread that makes children."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def spawn(
        self,
        argv: list[str],
        log: Path,
        environment: Mapping[str, str] | None,
        directory: Path | None,
        *,
        with_offspring: bool,
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or self._pid != os.getpid():  # a fork takes no threads along
                self._pid = os.getpid()
                self._requests = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put(_Request(argv, log, environment, directory, with_offspring, answer))
        try:
            return answer.result()
        except BaseException:
            if answer.exception() is None:  # an interrupt, and who asked would never know of the child
                kill(answer.result())
            raise

    def _serve(self) -> None:
        while True:
            request = self._requests.get()
            try:
                request.answer.set_result(_start(request))
            except Exception as error:  # noqa: BLE001  it belongs to the thread that asked
                request.answer.set_exception(error)


def _start(request: _Request) -> subprocess.Popen[bytes]:
    mode = ["--group"] if request.with_offspring else []
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), *mode, str(os.getpid())]
    with request.log.open("ab") as output:
        return subprocess.Popen(
            [*launcher, *request.argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=request.environment,
            cwd=request.directory,
            start_new_session=True,  # a Ctrl-C in the terminal is for us; we stop the children in order
        )


_SPAWNER = _Spawner()


def spawn(
    argv: Sequence[str | Path],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    with_offspring: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process; its output is appended to ``log``.

    argv: the program as an absolute path, then its arguments. The pid of the result is the program's own, and that of
    its process group. with_offspring: what the program starts dies with this process too; the pid is then that of a
    keeper, which leads the group.
    """
    words = [str(argument) for argument in argv]
    return _SPAWNER.spawn(words, log, environment, directory, with_offspring=with_offspring)


def run_aloud(
    argv: Sequence[str | Path],
    log: Path,
    say: Callable[[float], None],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> int:
    """Run a program that takes long to its end and return its exit status; what it starts dies with us as well.

    say: called now and then with the seconds so far.
    """
    started = time.monotonic()
    process = spawn(argv, log, environment=environment, directory=directory, with_offspring=True)
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=REPORT_INTERVAL_SECONDS)
                break
            say(time.monotonic() - started)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once and collect it."""
    if process.poll() is None:
        process.kill()
    process.wait()


def terminate(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Ask a process to end and kill it when it does not within the grace period."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def read_tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, or an empty string when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
