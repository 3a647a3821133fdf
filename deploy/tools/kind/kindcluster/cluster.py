"""One cluster by kind: made, used, broken in parts, taken away.

``Cluster`` owns a folder (kubeconfig, logs, homes of the programs) and the containers of its nodes. Its name is its
own, so clusters of several runs share an engine without meeting. ``delete`` removes everything; a process beside us
does so when we are killed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kindcluster import engine
from kindcluster.commands import COMMAND_SECONDS, ROOT, KindError, compute_environment, run_command
from kindcluster.freezer import thaw
from kindcluster.images import Image, compute_clone
from kindcluster.reaper import ALL_IS_DONE
from localplane import processes
from localplane.client import ApiClient
from localplane.tools import ensure_tools, print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from localplane.tools import Tools

CONFIG = ROOT / "kind-config.yaml"
TOOLS = ("kind", "helm", "kubectl")
LOCAL_PACKAGES = (ROOT / "deploy" / "tools" / "kind", ROOT / "deploy" / "tools" / "local")
CREATE_TIMEOUT_SECONDS = 600.0
NODES_TIMEOUT_SECONDS = 540
RESTART_TIMEOUT_SECONDS = 540
"""Less than a program may take (``run_command``), so that kubectl can say what it waited for."""
KUBELET_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
POLL_SECONDS = 0.2
HALF_MADE_ATTEMPTS = 4
REMOVAL_PAUSE_SECONDS = 2.0
"""Until the engine has made whatever it was asked for by who was cut short."""
TRACE_SECONDS = 20.0
EXPORT_SECONDS = 120.0
"""A developer waits for the traces and the logs of a failure: what takes longer is left out of them."""


class Cluster:
    """A kind cluster; a context manager that removes it at the end, also after a failure.

    name: the cluster's, and the beginning of its containers' names. tools: where kind, helm and kubectl are. config: a
    kind configuration. folder: for the kubeconfig and what programs keep; a temporary one, removed by ``delete``, when
    None. report: takes lines about what is done. stays: the cluster outlives this process; ``delete`` it later.
    """

    def __init__(
        self,
        name: str,
        tools: Tools,
        *,
        config: Path = CONFIG,
        folder: Path | None = None,
        report: Callable[[str], None] = print_line,
        stays: bool = False,
    ) -> None:
        self.name = name
        self.tools = tools
        self.config = config
        self.is_temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.removal_pause_seconds = REMOVAL_PAUSE_SECONDS
        self.export_seconds = EXPORT_SECONDS
        self._report = report
        self._stays = stays
        self._reaper: subprocess.Popen[bytes] | None = None
        self._client: ApiClient | None = None
        self._nodes: tuple[str, ...] = ()

    @classmethod
    def make(
        cls, prefix: str = "fairbind", *, config: Path = CONFIG, report: Callable[[str], None] = print_line
    ) -> Self:
        """Return a cluster with a name that no other one uses, not started; raise NoEngineError without an engine."""
        engine.check_engine()
        name = f"{prefix}-{compute_clone()[:4]}-{os.urandom(2).hex()}"
        return cls(name, ensure_tools(TOOLS, report), config=config, report=report)

    # --- life ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def start(self) -> None:
        """Make the cluster and wait until all its nodes are Ready; raise KindError with kind's last words otherwise."""
        engine.check_engine()
        if shortage := engine.find_inotify_shortage():
            self._report(shortage)
        self._report(f"creating the kind cluster {self.name}, about 40 s")
        started = time.monotonic()
        try:
            self._start_reaper()
            self._create()
            self.kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={NODES_TIMEOUT_SECONDS}s")
        except BaseException:
            self._delete_half_made()
            raise
        self._report(f"{self.name} is ready after {time.monotonic() - started:.0f} s")

    def delete(self) -> None:
        """Remove the cluster and its folder; no error when there is none."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._nodes = ()
        is_gone = False
        try:
            self._remove_containers()
            is_gone = True
        finally:
            self._dismiss_reaper(is_gone=is_gone)
            if self.is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_containers(self) -> None:
        words = ["delete", "cluster", f"--name={self.name}"]
        try:
            self.kind(*words)
        except KindError:
            label = f"label=io.x-k8s.kind.cluster={self.name}"
            thaw(self.docker("ps", "--all", "--quiet", "--no-trunc", f"--filter={label}").split())
            self.kind(*words)

    def _delete_half_made(self) -> None:
        """Remove a cluster whose making was cut short: the engine goes on for a moment with what it was asked for."""
        with contextlib.suppress(KindError):
            for _ in range(HALF_MADE_ATTEMPTS):
                self.kind("delete", "cluster", f"--name={self.name}")
                time.sleep(self.removal_pause_seconds)
        self.delete()

    # --- where things are ---

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def client(self) -> ApiClient:
        """A JSON client with the administrator's identity, as the local control plane has one."""
        if self._client is None:
            self._client = ApiClient.from_kubeconfig(self.kubeconfig)
        return self._client

    def nodes(self) -> list[str]:
        """Return the names of all nodes, which are their containers' names too, sorted; also those that are stopped.

        They are asked for once: a cluster keeps its nodes until it is deleted.
        """
        if not self._nodes:
            self._nodes = tuple(sorted(self.kind("get", "nodes", f"--name={self.name}").split()))
        return list(self._nodes)

    def workers(self) -> list[str]:
        """Return the names of the nodes but the control plane's, sorted."""
        return [name for name in self.nodes() if "control-plane" not in name]

    def find_worker(self, shape: str) -> str:
        """Return the name of the worker with this label ``fairbind.io/shape`` (large, small or special)."""
        chosen = self.kubectl("get", "nodes", f"--selector=fairbind.io/shape={shape}", "--output=name").split()
        if len(chosen) != 1:
            raise KindError(f"{len(chosen)} nodes of {self.name} have the shape {shape!r}")
        return chosen[0].removeprefix("node/")

    # --- programs ---

    def kubectl(self, *arguments: str, stdin: str = "", timeout_seconds: float = COMMAND_SECONDS) -> str:
        """Run kubectl as the administrator and return what it prints; raise KindError with its words when it fails.

        stdin: what it reads, for ``--filename=-``.
        """
        words = [*arguments, f"--kubeconfig={self.kubeconfig}"]
        return self._run("kubectl", words, stdin=stdin, timeout_seconds=timeout_seconds)

    def helm(self, *arguments: str) -> str:
        """Run helm as the administrator and return what it prints; raise KindError with its words when it fails."""
        return self._run("helm", [*arguments, f"--kubeconfig={self.kubeconfig}"])

    def kind(self, *arguments: str, timeout_seconds: float = COMMAND_SECONDS) -> str:
        """Run kind and return what it prints; raise KindError with its words when it fails."""
        words: list[str | Path] = [self.tools.path("kind"), *arguments]
        return run_command(words, settings=self._kind_settings(), timeout_seconds=timeout_seconds)

    def docker(self, *arguments: str) -> str:
        """Run docker and return what it prints; raise KindError with its words when it fails."""
        return engine.docker(*arguments)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects with kubectl, server-side."""
        documents = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=documents)

    # --- contents ---

    def load_images(self, images: Sequence[Image], *, nodes: Iterable[str] | None = None) -> None:
        """Load images from the engine's store into the nodes (the workers when None), under their names for pods.

        All at once, because kind saves and unpacks them together. A node takes about five seconds for the operator's.
        """
        targets = sorted(nodes) if nodes is not None else self.workers()
        self._report(f"loading {' and '.join(image.name for image in images)} into {len(targets)} nodes")
        tags = [image.tag for image in images]
        self.kind("load", "docker-image", *tags, f"--name={self.name}", f"--nodes={','.join(targets)}")
        for image in images:
            if image.tag != image.name:
                for node in targets:
                    names = [f"docker.io/library/{image.tag}", f"docker.io/library/{image.name}"]
                    self.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", *names)

    def stop_node(self, name: str) -> None:
        """Stop a node's container: to the cluster its machine lost power. It is NotReady some 40 s later."""
        words = ["stop", "-t", "0", name]
        try:
            self.docker(*words)
        except KindError:  # no exit event: see ``freezer``
            thaw(self.docker("inspect", "--format={{.Id}}", name).split())
            self.docker(*words)

    def start_node(self, name: str) -> None:
        """Start the container of a stopped node again and wait until the node is Ready."""
        self.docker("start", name)
        self._tell_address(name)
        self.kubectl("wait", "--for=condition=Ready", f"node/{name}", f"--timeout={RESTART_TIMEOUT_SECONDS}s")

    def restart_nodes(self) -> None:
        """Stop and start the containers of all nodes, one right after the other, and wait until all are Ready.

        A node keeps its address because it takes the lowest that is free, which is the one that it just gave back.
        """
        for name in self.nodes():
            self.stop_node(name)
            self.docker("start", name)
        for name in self.nodes():
            self._tell_address(name)
        deadline = time.monotonic() + RESTART_TIMEOUT_SECONDS
        while True:  # until the API server answers, kubectl fails at once
            try:
                self.kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={NODES_TIMEOUT_SECONDS}s")
            except KindError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
            else:
                return

    def export_logs(self, folder: Path) -> None:
        """Write the logs of all nodes, kubelets and pods, and the cluster's events, into a folder.

        It is called when something failed already, so what cannot be had within a moment is left out; the file says so.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # `kubectl events` sorts by when an event was last seen; `kubectl get --sort-by` knows one field, and no field
        # has it for all events. Its table counts seconds from now: the other format has times, and who reported.
        for name, words in (
            ("events.txt", ("events", "--all-namespaces")),
            ("events.yaml", ("events", "--all-namespaces", "--output=yaml")),
            ("pods.txt", ("get", "pods", "--all-namespaces", "--output=wide")),
            ("nodes.txt", ("describe", "nodes")),
        ):
            ask = functools.partial(self.kubectl, *words, timeout_seconds=TRACE_SECONDS)
            (folder / name).write_text(get_answer(ask), encoding="utf-8")
        words = ("export", "logs", str(folder), f"--name={self.name}")
        ask = functools.partial(self.kind, *words, timeout_seconds=self.export_seconds)
        (folder / "kind.txt").write_text(get_answer(ask), encoding="utf-8")

    def read_last_events(self, lines: int) -> str:
        """Return the events that were last seen, the newest at the end."""
        text = self.kubectl("events", "--all-namespaces", timeout_seconds=TRACE_SECONDS)
        return "\n".join(text.splitlines()[-lines:])

    # --- inside ---

    def _tell_address(self, name: str) -> None:
        """Tell a started node's kubelet its address, which is another one if a lower one has come free in the network.

        No other node would reach it and its pods. Some images for nodes see to it before systemd starts, not all.
        """
        deadline = time.monotonic() + RESTART_TIMEOUT_SECONDS
        while not self._has_systemd(name) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        shape = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        address = self.docker("inspect", f"--format={shape}", name).strip()
        flags = self.docker("exec", name, "cat", KUBELET_FLAGS)
        if not re.search(rf"--node-ip={re.escape(address)}\b", flags):
            change = f"s/--node-ip=[0-9.]*/--node-ip={address}/"
            self.docker("exec", name, "sed", "--in-place", change, KUBELET_FLAGS)
            self.docker("exec", name, "systemctl", "restart", "kubelet")

    def _has_systemd(self, name: str) -> bool:
        """Tell whether a node's systemd answers."""
        try:
            self.docker("exec", name, "systemctl", "show", "--property=Version")
        except KindError:
            return False
        return True

    def _run(
        self, tool: str, arguments: list[str], *, stdin: str = "", timeout_seconds: float = COMMAND_SECONDS
    ) -> str:
        words: list[str | Path] = [self.tools.path(tool), *arguments]
        home = self.folder / "home"
        return run_command(words, stdin=stdin, home=home, folder=self.folder, timeout_seconds=timeout_seconds)

    def _kind_settings(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig), "KIND_EXPERIMENTAL_PROVIDER": "docker"}

    def _create(self) -> None:
        """Run ``kind create`` so that it dies with us: nothing is made any more once the cluster is being removed."""
        log = self.folder / "create.log"
        log.unlink(missing_ok=True)
        words = ["create", "cluster", f"--name={self.name}", f"--config={self.config}", "--wait=120s"]
        process = processes.spawn(
            [self.tools.path("kind"), *words],
            log,
            environment=compute_environment(None, self._kind_settings()),
            with_offspring=True,
        )
        try:
            process.wait(timeout=CREATE_TIMEOUT_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise KindError(f"kind create did not end within {CREATE_TIMEOUT_SECONDS:.0f} s") from error
            raise
        if process.returncode != 0:
            raise KindError(f"kind create failed: {processes.read_tail(log, 30)}")

    def _start_reaper(self) -> None:
        if self._stays:
            return
        path = os.pathsep.join(str(folder) for folder in LOCAL_PACKAGES)
        words = [str(self.tools.path("kind")), self.name, str(self.folder), str(self.removal_pause_seconds)]
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "kindcluster.reaper", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=compute_environment(None, {"PYTHONPATH": path}),
        )

    def _dismiss_reaper(self, *, is_gone: bool) -> None:
        """Tell the reaper that nothing is left for it; without the word it goes on where we failed, and we wait."""
        if self._reaper is not None:
            self._reaper.communicate(ALL_IS_DONE if is_gone else b"")
            self._reaper = None


def get_answer(ask: Callable[[], str]) -> str:
    """Return what a program answers, or why it does not."""
    try:
        return ask()
    except KindError as error:
        return f"{error}\n"
