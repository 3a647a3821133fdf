"""``make demo`` without a terminal: judged by its summary, its exit code and what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localplane.client import ApiClient

pytestmark = pytest.mark.local_plane

PROGRAM = Path(__file__).resolve().parents[2] / "deploy" / "demo" / "main.py"
LIMIT_SECONDS = 240
END_SECONDS = 30


class Demo:
    """One run in a temporary folder of its own, by which its processes are told from everybody else's."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--nodes", "12", *arguments],
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

    def finish(self) -> int:
        """Read the rest and return the exit code."""
        output, _ = self.process.communicate(timeout=LIMIT_SECONDS)
        self.lines += output.splitlines()
        return self.process.returncode

    @property
    def text(self) -> str:
        """All output so far."""
        return "\n".join(self.lines)

    def find_processes(self) -> dict[int, str]:
        """Return the command lines of all living processes that were told about the folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except OSError:  # not a process, not ours, or just gone
                continue
            if entry.name.isdigit() and str(self.folder).encode() in command + environment:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def check_nothing_left(self) -> None:
        """Wait a moment for the last children; fail when a process or a file is left."""
        deadline = time.monotonic() + END_SECONDS
        while left := self.find_processes():
            assert time.monotonic() < deadline, f"still running: {left}\n{self.text}"
            time.sleep(0.05)
        assert list(self.folder.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "folder of the demo"
    path.mkdir()
    yield path
    for entry in Path("/proc").glob("[0-9]*/environ"):  # only after a failure is there anything to end
        try:
            if str(path).encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except OSError:
            continue


def read_shares(text: str) -> dict[str, tuple[float, float, int, int]]:
    """Return weight, weighted share, running and waiting pods from the summary, by tenant."""
    rows = re.findall(r"^  ([a-z]+) +([\d.]+)  [a-z-]+ +[\d.]+ +[\d.]+ +([\d.]+) +(\d+) +(\d+)$", text, re.MULTILINE)
    return {name: (float(weight), float(share), int(run), int(wait)) for name, weight, share, run, wait in rows}


def test_a_short_demo_is_fair_and_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    demo = Demo(folder, "--duration", "24", "--svg", str(picture))
    demo.read_until(r"pods/s$")
    running = " ".join(demo.find_processes().values())
    for part in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "fairbind operator"):
        assert part in running
    assert demo.finish() == 0, demo.text
    demo.check_nothing_left()

    assert "\x1b" not in demo.text, "a pipe gets plain lines"
    assert "Traceback" not in demo.text
    lines = [line for line in demo.lines if line.endswith(" pods/s") and "used:" in line]
    assert 4 <= len(lines) <= 7
    assert "research" not in lines[0], "the fourth tenant comes later"
    assert "research" in lines[-1]

    shares = read_shares(demo.text)
    assert {name: row[0] for name, row in shares.items()} == {"analytics": 1, "web": 2, "vision": 3, "research": 2}
    assert all(run > 0 for _, _, run, _ in shares.values()), demo.text
    free = re.search(r"that can use every node: ([\d.]+)", demo.text)
    everybody = re.search(r"over the tenants with backlog: ([\d.]+)", demo.text)
    bound = re.search(r"(\d+) pods bound, ([\d.]+) pods/s", demo.text)
    assert free is not None
    assert float(free[1]) > 0.95, demo.text
    assert everybody is not None
    assert 0.25 <= float(everybody[1]) <= float(free[1]) + 0.05
    assert bound is not None
    assert int(bound[1]) > 150, demo.text
    assert re.search(r"who wait is \d\.\d+ below its fair share", demo.text), demo.text
    assert "Audit: pairs of tenants with envy: " in demo.text
    assert "vision can only use the gpu-t4" in " ".join(demo.text.split())
    assert "What to try next" in demo.text
    assert picture.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, r"^fairbind shares"),
        (signal.SIGTERM, r"API server"),
        (signal.SIGHUP, r"nodes of six kinds"),
        (signal.SIGINT, r"pods/s$"),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_behind(number: signal.Signals, moment: str, folder: Path) -> None:
    demo = Demo(folder)
    demo.read_until(moment)
    demo.process.send_signal(number)
    assert demo.finish() == 130, demo.text
    assert demo.lines[-1].startswith("stopped by")
    assert "Traceback" not in demo.text
    demo.check_nothing_left()


def test_kill_9_leaves_no_process_behind(folder: Path) -> None:
    demo = Demo(folder)
    demo.read_until(r"pods/s$")
    demo.process.kill()
    demo.finish()
    deadline = time.monotonic() + END_SECONDS
    while left := demo.find_processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_a_reader_that_goes_away_ends_the_demo(folder: Path) -> None:
    demo = Demo(folder)
    demo.read_until(r"pods/s$")
    assert demo.process.stdout is not None
    demo.process.stdout.close()
    assert demo.process.wait(LIMIT_SECONDS) == 130
    demo.check_nothing_left()


def test_a_kept_cluster_can_be_used_and_stopped(folder: Path) -> None:
    demo = Demo(folder, "--duration", "10", "--keep")
    assert demo.finish() == 0, demo.text
    kubeconfig = re.search(r"export KUBECONFIG='(.*)'$", demo.text, re.MULTILINE)
    kill = re.search(r"kill (\d+)", demo.text)
    assert kubeconfig is not None
    assert kill is not None
    with ApiClient.from_kubeconfig(Path(kubeconfig[1])) as api:
        assert len(api.items("/api/v1/nodes")) == 12
        tenants = api.items("/apis/fairbind.io/v1alpha1/tenants")
        assert sorted(tenant["metadata"]["name"] for tenant in tenants) == ["analytics", "research", "vision", "web"]
    assert "fairbind operator" in " ".join(demo.find_processes().values())
    os.kill(int(kill[1]), signal.SIGTERM)
    demo.check_nothing_left()
