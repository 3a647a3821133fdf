"""Runs of ``make demo`` without a terminal, for the tests that judge it by its words, its end and what it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kindcluster import engine

PROGRAM = Path(__file__).resolve().parents[2] / "deploy" / "tools" / "demo" / "main.py"
LIMIT_SECONDS = 600.0
"""For a whole run on a busy machine."""
END_SECONDS = 30
REMOVAL_SECONDS = 600
"""How long it may take to remove a kind cluster on a busy machine."""


class Demo:
    """One run in a temporary folder of its own, by which its processes are told from everybody else's."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def read_until(self, pattern: str) -> None:
        """Read output up to a line that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return
        pytest.fail(f"no line matches {pattern!r}:\n" + "\n".join(self.lines))

    def finish(self, limit_seconds: float = LIMIT_SECONDS) -> int:
        """Read the rest and return the exit code; end the run and fail with what it said when it takes longer."""
        try:
            output, _ = self.process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            output, _ = self.process.communicate(timeout=REMOVAL_SECONDS)
            self.lines += output.splitlines()
            pytest.fail(f"no end within {limit_seconds:.0f} s:\n{self.text}")
        self.lines += output.splitlines()
        return self.process.returncode

    @property
    def text(self) -> str:
        """All output so far."""
        return "\n".join(self.lines)

    def find_processes(self) -> dict[int, str]:
        """Return the command lines of all living processes that were told about the folder."""
        return find_processes(self.folder)

    def check_nothing_left(self, limit_seconds: float = END_SECONDS) -> None:
        """Wait a moment for the last children; fail when a process or a file is left."""
        deadline = time.monotonic() + limit_seconds
        while left := self.find_processes():
            assert time.monotonic() < deadline, f"still running: {left}\n{self.text}"
            time.sleep(0.05)
        assert [str(path) for path in self.folder.rglob("*")] == []


@contextmanager
def make_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for one run; a demo that is left after a failure is ended, and whatever then is left is killed."""
    path = parent / "folder of the demo"
    path.mkdir()
    try:
        yield path
    finally:
        deadline = time.monotonic() + REMOVAL_SECONDS
        asked: set[int] = set()
        while (left := find_processes(path)) and time.monotonic() < deadline:
            demos = {pid for pid, command in left.items() if str(PROGRAM) in command} - asked
            asked |= demos
            for pid in demos:  # it takes down what no signal to its children would, such as containers
                _signal(pid, signal.SIGTERM)
            time.sleep(0.1)
        for pid in left:
            _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def find_processes(folder: Path) -> dict[int, str]:
    """Return the command lines of all living processes that were told about a folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:  # not a process, not ours, or just gone
            continue
        if entry.name.isdigit() and str(folder).encode() in command + environment:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def read_shares(text: str) -> dict[str, tuple[float, float, int, int]]:
    """Return weight, weighted share, running and waiting pods from the summary, by tenant."""
    fair = r"(?:[\d.]+|-)"  # it is not known yet of a tenant that has only just come
    row = rf"^  ([a-z]+) +([\d.]+)  [a-z-]+ +[\d.]+ +{fair} +([\d.]+) +(\d+) +(\d+)$"
    rows = re.findall(row, text, re.MULTILINE)
    return {name: (float(weight), float(share), int(run), int(wait)) for name, weight, share, run, wait in rows}


def find_containers(cluster: str) -> list[str]:
    """Return the ids of the containers of a kind cluster."""
    return engine.docker("ps", "--all", "--quiet", f"--filter=label=io.x-k8s.kind.cluster={cluster}").split()
