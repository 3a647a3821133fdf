"""Children die with their parent, however it ends and whatever thread made them."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from local.waiting import is_alive, wait_for
from localplane import processes

SLEEP = ["/bin/sleep", "1000"]
SOURCE = Path(processes.__file__).parents[1]


def start_parent(program: str, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """Run a program that spawns a child and prints its pid; return the parent and that pid."""
    head = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
    head += "from pathlib import Path\nfrom localplane import processes\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


PLAIN = """
    import time
    print(processes.spawn([Path("/bin/sleep"), "1000"], Path("log")).pid, flush=True)
    time.sleep(1000)
"""
FROM_A_THREAD_THAT_ENDS = """
    import threading, time
    def work():
        global pid
        pid = processes.spawn([Path("/bin/sleep"), "1000"], Path("log")).pid
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(pid, flush=True)
    time.sleep(1000)
"""
ENDS_BY_ITSELF = """
    print(processes.spawn([Path("/bin/sleep"), "1000"], Path("log")).pid, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("program", [PLAIN, FROM_A_THREAD_THAT_ENDS])
def test_child_dies_when_the_parent_is_killed(program: str, tmp_path: Path) -> None:
    parent, child = start_parent(program, tmp_path)
    with parent:
        assert is_alive(child)
        parent.kill()
        parent.wait()
        wait_for(lambda: not is_alive(child), "the child to die")


def test_child_dies_when_the_parent_ends_by_itself(tmp_path: Path) -> None:
    parent, child = start_parent(ENDS_BY_ITSELF.replace("sys.stdin.readline()", ""), tmp_path)
    with parent:
        parent.wait()
        wait_for(lambda: not is_alive(child), "the child to die")


COMPILES = """
    import time
    script = "sleep 1000 & echo $! > grandchild; wait"
    processes.spawn([Path("/bin/sh"), "-c", script], Path("log"), with_offspring=True)
    while not Path("grandchild").exists() or not Path("grandchild").read_text().endswith("\\n"):
        time.sleep(0.01)
    print(Path("grandchild").read_text(), flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_offspring_dies_when_the_parent_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    parent, grandchild = start_parent(COMPILES, tmp_path)
    with parent:
        assert is_alive(grandchild)
        parent.send_signal(number)
        parent.wait()
        wait_for(lambda: not is_alive(grandchild), "the grandchild to die")


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_keeper_ends_as_its_program_does(script: str, status: int, tmp_path: Path) -> None:
    with processes.spawn([Path("/bin/sh"), "-c", script], tmp_path / "log", with_offspring=True) as keeper:
        assert keeper.wait() == status % 256


def test_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    made: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: made.append(processes.spawn(SLEEP, tmp_path / "log")))
    thread.start()
    thread.join()

    with made[0] as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.3)
        processes.kill(child)


def test_pid_is_that_of_the_program_and_output_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with processes.spawn([Path("/bin/sh"), "-c", "echo $$; exit 3"], log) as child:
        assert child.wait() == 3

    assert log.read_text() == f"{child.pid}\n"


def test_program_that_is_not_there_ends_with_a_message(tmp_path: Path) -> None:
    with processes.spawn([tmp_path / "nothing"], tmp_path / "log") as child:
        assert child.wait() != 0

    assert "No such file" in processes.read_tail(tmp_path / "log")


def test_terminate_kills_what_does_not_listen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with processes.spawn([Path("/bin/sh"), "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], log) as child:
        wait_for(lambda: "ready" in processes.read_tail(log), "the child to be ready")
        processes.terminate(child, 0.2)

        assert child.returncode == -9


def test_tail_is_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))

    assert processes.read_tail(log, 2) == "line 99998\nline 99999"
    assert processes.read_tail(tmp_path / "nothing") == ""


def test_a_child_that_is_made_while_an_interrupt_comes_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = processes._start, []

    def make_amid_an_interrupt(request: processes._Request) -> subprocess.Popen[bytes]:
        made.append(make(request))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        asked.wait()
        return made[0]

    asked = threading.Event()
    monkeypatch.setattr(processes, "_start", make_amid_an_interrupt)

    def let_go(*_: object) -> None:
        asked.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, let_go)
    try:
        with pytest.raises(KeyboardInterrupt):
            processes.spawn(SLEEP, tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    assert made[0].poll() == -signal.SIGKILL
