"""A control plane that stays when the terminal is closed: one for each clone, in the clone's ``.local``.

A supervisor process owns it and holds a lock as long as it lives, so whether it runs is never a guess from a stale
pid file; killed with -9, it takes the components with it, and the next start finds the lock free.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from localplane import processes
from localplane.client import ApiClient
from localplane.nodes import create_nodes, is_schedulable, mixed_nodes
from localplane.plane import ControlPlane, PlaneError
from localplane.tools import DEFAULT, ensure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from localplane.client import Json

ROOT = Path(__file__).resolve().parents[4]
TOOLS = (*DEFAULT, "kubectl")
START_TIMEOUT_SECONDS = 180.0
STOP_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Home:
    """Where the files of the one detached plane are."""

    folder: Path = ROOT / ".local"

    @property
    def plane(self) -> Path:
        """The plane's own folder."""
        return self.folder / "plane"

    @property
    def state(self) -> Path:
        """What the supervisor says of itself, valid while it holds the lock."""
        return self.folder / "supervisor.json"

    @property
    def log(self) -> Path:
        """What the supervisor prints."""
        return self.folder / "supervisor.log"

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.folder / "supervisor.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the process that starts or stops a supervisor."""
        return self.folder / "start.lock"


@dataclass(frozen=True, slots=True)
class State:
    """A running supervisor. server and kubeconfig are empty while it still starts."""

    pid: int
    server: str = ""
    kubeconfig: str = ""
    started: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether the plane can be used."""
        return bool(self.kubeconfig)


def find_state(home: Home) -> State | None:
    """Return what runs, None when nothing does."""
    if not is_held(home.lock):
        return None
    with contextlib.suppress(FileNotFoundError, ValueError):
        return State(**json.loads(home.state.read_text(encoding="utf-8")))
    return None  # it is being born


def is_held(lock: Path) -> bool:
    """Tell whether another process holds a lock."""
    try:
        with lock.open("r") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def bring_up(home: Home, count: int, report: Callable[[str], None]) -> State:
    """Start the plane if it does not run and give it at least so many nodes; raise PlaneError or ToolError."""
    tools = ensure_tools(TOOLS, report)
    home.folder.mkdir(exist_ok=True)
    with _hold(home.start_lock):
        state = find_state(home)
        if state is None or not state.is_ready:
            report("starting the control plane, about 10 s")
            state = _start_supervisor(home)
    wanted = mixed_nodes(count)
    with ApiClient.from_kubeconfig(Path(state.kubeconfig)) as client:
        present = {node["metadata"]["name"] for node in client.items("/api/v1/nodes")}
    missing = [node for node in wanted if node["metadata"]["name"] not in present]
    if missing:
        report(f"making {len(missing)} fake nodes, about {2 + len(missing) // 40} s")
        _add_nodes(state, missing)
    report(f"a control plane runs at {state.server}")
    report(f"  export KUBECONFIG='{state.kubeconfig}'")
    report(f"  {tools.path('kubectl')} get nodes")
    return state


def take_down(home: Home) -> bool:
    """Stop the plane and remove its files; return whether one was running."""
    if not home.folder.exists():
        return False
    with _hold(home.start_lock):
        was_running = is_held(home.lock)
        if was_running:
            _end_supervisor(home)
        shutil.rmtree(home.plane, ignore_errors=True)
        home.state.unlink(missing_ok=True)
    return was_running


def describe(home: Home) -> list[str]:
    """Return lines that say what runs; raise PlaneError when nothing does."""
    state = find_state(home)
    if state is None or not state.is_ready:
        raise PlaneError("no control plane runs for this clone; start one with `make local-up`")
    with ApiClient.from_kubeconfig(Path(state.kubeconfig), timeout_seconds=10.0) as client:
        nodes = client.items("/api/v1/nodes")
        pods = client.items("/api/v1/pods")
    ready = sum(is_schedulable(node) for node in nodes)
    bound = sum("nodeName" in pod["spec"] for pod in pods)
    return [
        f"running at {state.server} for {(time.time() - state.started) / 60:.0f} min, supervisor pid {state.pid}",
        f"nodes: {ready} of {len(nodes)} ready; pods: {bound} of {len(pods)} bound",
        f"kubeconfig: {state.kubeconfig}",
        f"logs: {home.plane / 'logs'}",
    ]


def find_kubeconfig(home: Home) -> Path:
    """Return the administrator's kubeconfig; raise PlaneError when nothing runs."""
    state = find_state(home)
    if state is None or not state.is_ready:
        raise PlaneError("no control plane runs for this clone; start one with `make local-up`")
    return Path(state.kubeconfig)


def supervise(home: Home) -> None:
    """Own the plane until told to stop. Runs as a process of its own."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with home.lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_state(home, State(os.getpid()))
        with ControlPlane(ensure_tools(), home.plane) as plane:
            _write_state(home, State(os.getpid(), plane.server, str(plane.kubeconfig), time.time()))
            stopped.wait()
        home.state.unlink(missing_ok=True)


def _write_state(home: Home, state: State) -> None:
    """Write beside and rename, so that no process reads half of it."""
    beside = home.state.with_suffix(".partial")
    fields = {"pid": state.pid, "server": state.server, "kubeconfig": state.kubeconfig, "started": state.started}
    beside.write_text(json.dumps(fields), encoding="utf-8")
    beside.replace(home.state)


def _start_supervisor(home: Home) -> State:
    argv = [sys.executable, "-m", "localplane", f"--folder={home.folder}", "supervise"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with home.log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=home.folder,
            start_new_session=True,  # it outlives this terminal
        )
    try:
        return _wait_started(home, process)
    except BaseException:
        process.terminate()
        raise


def _wait_started(home: Home, process: subprocess.Popen[bytes]) -> State:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        state = find_state(home)
        if state is not None and state.is_ready:
            return state
        if process.poll() is not None or time.monotonic() > deadline:
            raise PlaneError(f"the control plane did not start:\n{processes.read_tail(home.log, lines=40)}")
        time.sleep(0.1)


def _end_supervisor(home: Home) -> None:
    state = find_state(home)
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    is_asked = False
    while is_held(home.lock):
        state = state or find_state(home)
        if state is not None and not is_asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGTERM)
            is_asked = True
        if time.monotonic() > deadline:
            if state is None:
                raise PlaneError(f"another process holds {home.lock} without saying which; end that process first")
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGKILL)  # the components go with it
            deadline += STOP_TIMEOUT_SECONDS
        time.sleep(0.05)


def _add_nodes(state: State, nodes: list[Json]) -> None:
    with ApiClient.from_kubeconfig(Path(state.kubeconfig)) as client:
        create_nodes(client, nodes)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS + len(nodes) * 0.1
        while not all(is_schedulable(node) for node in client.items("/api/v1/nodes", resourceVersion="0")):
            if time.monotonic() > deadline:
                raise PlaneError("the nodes are not ready; see the logs (make local-status says where)")
            time.sleep(0.2)


@contextlib.contextmanager
def _hold(path: Path) -> Iterator[IO[str]]:
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream
