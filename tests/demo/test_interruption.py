"""Signals and the leash, tried on small programs that stand for the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.waiting import wait_for

TOOLS = Path(__file__).resolve().parents[2] / "deploy" / "tools"
LIMIT_SECONDS = 120

SLEEPER = """
import contextlib, sys, time
sys.path[:0] = [{tools!r}, {local!r}]
from demo import interruption
interruption.install()
try:
    try:
        print("ready", flush=True)
        while True:
            time.sleep(0.02)  # a signal between two bytecodes is noticed after the call that comes next
    finally:
        print("cleaning", flush=True)
        time.sleep({cleaning})
        print("clean", flush=True)
except interruption.Interrupted as reason:
    print(reason)
    sys.exit(interruption.EXIT_CODE)
"""

DROPPER = """
import os, signal, sys
sys.path[:0] = [{tools!r}, {local!r}]
from demo import interruption
interruption.install()

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGHUP)

interruption.check()
try:
    Finalized()
    print("dropped", flush=True)
    interruption.check()
except interruption.Interrupted as reason:
    print(reason)
"""

KEEPER = """
import os, sys, time
from pathlib import Path
sys.path[:0] = [{tools!r}, {local!r}]
from demo import interruption, keeping

def work(leash):
    try:
        print(os.getpid(), flush=True)
        if {lets_go}:
            leash.let_go(Path({log!r}))
            print("alone", flush=True)
        while True:
            time.sleep(0.02)
    except interruption.Interrupted:
        Path({log!r}).open("a").write("ended")
        return interruption.EXIT_CODE

try:
    interruption.install()
    sys.exit(keeping.run_on_leash(work))
except interruption.Interrupted:  # as the demo does: the child may be there before the parent follows it
    sys.exit(interruption.EXIT_CODE)
"""


def start(source: str, **values: object) -> subprocess.Popen[str]:
    filled = source.format(tools=str(TOOLS), local=str(TOOLS / "local"), **values)
    return subprocess.Popen([sys.executable, "-c", filled], stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for_end(pid: int, log: Path) -> str:
    """Wait until a process that is not our child has ended; return what it wrote."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)
    return log.read_text() if log.exists() else ""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_that_came_in_a_finalizer_is_not_lost() -> None:
    assert start(DROPPER).communicate(timeout=LIMIT_SECONDS)[0] == "dropped\nthe closed terminal\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cleans_up_and_ends_with_130(number: signal.Signals) -> None:
    with start(SLEEPER, cleaning=0.01) as process:
        assert read_line(process) == "ready"
        process.send_signal(number)
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 130
    assert output.splitlines()[:2] == ["cleaning", "clean"]


def test_a_burst_of_signals_does_not_cut_the_cleaning_short() -> None:
    with start(SLEEPER, cleaning=0.3) as process:
        assert read_line(process) == "ready"
        process.send_signal(signal.SIGSTOP)  # until all are there: later ones would be taken for impatience
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert read_line(process) == "cleaning"
        assert read_line(process) == "clean"
        assert process.wait(LIMIT_SECONDS) == 130


def test_an_impatient_signal_ends_a_cleaning_that_hangs() -> None:
    with start(SLEEPER, cleaning=60) as process:
        assert read_line(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert read_line(process) == "cleaning"
        deadline = time.monotonic() + LIMIT_SECONDS
        while process.poll() is None:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert process.returncode == 130
        assert read_line(process) == ""


def test_sighup_is_left_alone_under_nohup() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(SLEEPER, cleaning=0.01)
    finally:
        signal.signal(signal.SIGHUP, previous)
    with process:
        assert read_line(process) == "ready"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert output.splitlines()[-1] == "SIGTERM"


def test_a_child_that_is_let_go_outlives_the_command_and_answers_to_kill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(KEEPER, lets_go=True, log=str(log)) as process:
        pid = int(read_line(process))
        assert process.wait(LIMIT_SECONDS) == 0
        assert read_line(process) == "", "the pipe is closed, so a reader gets its end"
    wait_for(lambda: log.exists() and "alone" in log.read_text(), describe="it to speak to its log")
    assert is_alive(pid)
    os.kill(pid, signal.SIGTERM)
    assert wait_for_end(pid, log) == "alone\nended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_child_that_is_not_let_go_ends_with_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(KEEPER, lets_go=False, log=str(log)) as process:
        pid = int(read_line(process))
        process.send_signal(number)
        code = process.wait(LIMIT_SECONDS)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert wait_for_end(pid, log) == "ended"
