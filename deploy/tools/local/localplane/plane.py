"""One control plane: start it, use it, break parts of it, stop it.

``ControlPlane`` owns a folder (keys, kubeconfigs, logs, etcd's data) and the processes of its components, which die
with this process however it ends. Ports are chosen free; when one is taken before we listen, others are chosen.
Nothing is shared between planes, so any number of them run side by side.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import urllib3

from localplane import components, folders, nodes, processes
from localplane.certificates import Authority
from localplane.client import ApiClient, ApiError
from localplane.components import Layout, Ports
from localplane.identities import COMPONENT_GROUPS, Identities
from localplane.ports import find_free_ports, is_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from localplane.client import Json
    from localplane.tools import Tools

CHART = Path(__file__).resolve().parents[4] / "charts" / "fairbind"
START_TIMEOUT_SECONDS = 120.0
STOP_GRACE_SECONDS = {"kube-apiserver": 5.0}  # it would wait a minute for its clients to end their watches
DEFAULT_STOP_GRACE_SECONDS = 20.0
POLL_SECONDS = 0.05
PORT_ATTEMPTS = 5
PORT_TAKEN = "address already in use"
CORE = ("etcd", "kube-apiserver")
CLIENTS = ("kube-controller-manager", "kwok")


class PlaneError(RuntimeError):
    """The control plane, or a part of it, does not do what it should; the message shows the end of its log."""


class _PortTakenError(PlaneError):
    """Another program listens on a port that was free a moment ago."""


@dataclass(slots=True)
class _Component:
    name: str
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kwok on loopback; a context manager.

    tools: where the binaries are. directory: the plane's folder; a temporary one, removed by ``stop``, when None.
    node_lease_seconds: 0 gives nodes that are Ready as long as kwok once said so and costs nothing when idle; 40 makes
    them NotReady 50 s after kwok is gone, as real ones. scheduler: start kube-scheduler as well. feature_gates: of
    Kubernetes' own components, switched on. apis: served in addition to the default ones, such as
    scheduling.k8s.io/v1beta1. find_ports: returns so many ports that seem to be free.
    """

    def __init__(
        self,
        tools: Tools,
        directory: Path | None = None,
        *,
        node_lease_seconds: int = 0,
        scheduler: bool = False,
        feature_gates: Sequence[str] = (),
        apis: Sequence[str] = (),
        find_ports: Callable[[int], Sequence[int]] = find_free_ports,
    ) -> None:
        self._tools = tools
        self._wanted_directory = directory
        self._folder: folders.PlaneFolder | None = None
        self._node_lease_seconds = node_lease_seconds
        self._with_scheduler = scheduler
        self._feature_gates, self._apis = feature_gates, apis
        self._find_ports = find_ports
        self._identities = Identities(Authority())
        self._components: dict[str, _Component] = {}
        self._ports: Ports | None = None
        self._client: ApiClient | None = None

    # --- life ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until pods can be created; raise PlaneError with the end of a log otherwise."""
        self._folder = folders.PlaneFolder.make(self._wanted_directory)
        try:
            self._write_files()
            self._start_core()
            for name in CLIENTS:
                self.start_component(name)
            self._wait(self._is_usable, "the default service account", self._components)
            if self._with_scheduler:
                self.start_component("kube-scheduler")
        except BaseException as error:
            self.stop(keep_logs=isinstance(error, Exception))
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """End all processes at once and remove the folder; with ``keep_logs`` the logs stay."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._kill_all()
        if self._folder is not None:
            self._folder.remove(keep_logs=keep_logs)

    # --- where things are ---

    @property
    def directory(self) -> Path:
        """The plane's folder."""
        if self._folder is None:
            raise PlaneError("the control plane has not been started")
        return self._folder.path

    @property
    def layout(self) -> Layout:
        """The files in the plane's folder."""
        return Layout(self.directory)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{components.LOOPBACK}:{self._listening().apiserver}"

    @property
    def etcd_url(self) -> str:
        """Where etcd listens; it wants a client certificate of the plane's authority."""
        return f"https://{components.LOOPBACK}:{self._listening().etcd}"

    @property
    def scheduler_metrics_port(self) -> int:
        """Where kube-scheduler serves its metrics (HTTPS, authenticated)."""
        return self._listening().scheduler

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig("admin")

    @property
    def audit_log(self) -> Path:
        """All writes, one JSON object a line; binds with their bodies."""
        return self.layout.audit_log

    @property
    def client(self) -> ApiClient:
        """A JSON client with the administrator's identity."""
        if self._client is None:
            self._client = ApiClient.from_kubeconfig(self.kubeconfig)
        return self._client

    @property
    def tools(self) -> Tools:
        """The binaries."""
        return self._tools

    def logs(self, name: str) -> Path:
        """The log of a component."""
        return self.layout.logs / f"{name}.log"

    def pid(self, name: str) -> int:
        """The process id of a running component."""
        process = self._components[name].process
        if process is None or process.poll() is not None:
            raise PlaneError(f"{name} is not running")
        return process.pid

    def running(self) -> dict[str, int]:
        """The process ids of the components that run, by name."""
        return {name: part.process.pid for name, part in self._components.items() if part.is_running and part.process}

    # --- components ---

    def start_component(self, name: str, *arguments: str) -> None:
        """Start a component that does not run and wait until it works. arguments: more of them, for this time."""
        component = self._components[name] = _Component(name, [*self._compute_arguments(name), *arguments])
        if name == "kube-apiserver" and not is_free(self._listening().apiserver):
            raise _PortTakenError(f"another program listens on {self.server}")
        self._spawn(component)
        readiness = {"etcd": self._is_etcd_healthy, "kube-apiserver": self._is_apiserver_ready}
        if name in readiness:
            self._wait(readiness[name], f"{name} to answer", [name, *(part for part in CORE if part != name)])

    def stop_component(self, name: str, *, kill: bool = False) -> None:
        """Stop a component in good order, or at once with ``kill``."""
        process = self._components[name].process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
        if kill:
            processes.kill(process)
        else:
            processes.terminate(process, STOP_GRACE_SECONDS.get(name, DEFAULT_STOP_GRACE_SECONDS))
        self._components[name].process = None  # stopped on purpose: it is not to be reported as died

    def restart_component(self, name: str, *, kill: bool = False) -> None:
        """Stop a component and start it again, on the same port and the same files."""
        self.stop_component(name, kill=kill)
        self.start_component(name)

    def compact(self) -> None:
        """Make every resume from an older version a 410 Gone, as after a long time apart.

        Compacting etcd is not enough: the API server answers lists and watches from its own memory. So it is stopped,
        the version moved on, etcd's history dropped and the API server started; what any client saw before, be it the
        last change of all, is then too old.
        """
        self.stop_component("kube-apiserver", kill=True)
        key = base64.b64encode(b"fairbind/version").decode()
        moved = self._call_etcd("/v3/kv/put", {"key": key, "value": ""})
        self._call_etcd("/v3/kv/compaction", {"revision": moved["header"]["revision"], "physical": True})
        self.start_component("kube-apiserver")

    # --- identities ---

    def certificate_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig for any user and groups, proven by a client certificate."""
        path = self.layout.kubeconfig(f"user-{_compute_file_name(user)}")
        return self._identities.write_certificate_kubeconfig(path, self.server, user, groups)

    def service_account_kubeconfig(self, namespace: str, name: str, lifetime_seconds: int = 86400) -> Path:
        """Write a kubeconfig with a token that the API server issued to a service account (600 s at least)."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_seconds},
        }
        answer = self.client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        path = self.layout.kubeconfig(f"service-account-{namespace}-{name}")
        return self._identities.write_token_kubeconfig(path, self.server, name, answer["status"]["token"])

    # --- contents ---

    def add_nodes(
        self,
        count_or_specs: int | Sequence[Json],
        *,
        prefix: str = "node",
        labels: Mapping[str, str] | None = None,
        parallel: int = 16,
    ) -> list[str]:
        """Create a number of mixed nodes, or these nodes, and return their names; they are Ready a little later."""
        if isinstance(count_or_specs, int):
            specs: Sequence[Json] = nodes.mixed_nodes(count_or_specs, prefix=prefix, labels=labels)
        else:
            specs = count_or_specs
        nodes.create_nodes(self.client, specs, parallel=parallel)
        return [spec["metadata"]["name"] for spec in specs]

    def wait_nodes_ready(self, names: Iterable[str] | None = None, *, timeout_seconds: float = 300.0) -> None:
        """Wait until these nodes (all when None) are Ready and without the taints of new nodes."""
        wanted = None if names is None else frozenset(names)

        def are_ready() -> bool:
            found = [node for node in self.client.items("/api/v1/nodes", resourceVersion="0") if _is_in(node, wanted)]
            is_complete = bool(found) if wanted is None else len(found) == len(wanted)
            return is_complete and all(nodes.is_schedulable(node) for node in found)

        pause_seconds = 0.1 if wanted is None or len(wanted) < 500 else 2.0  # noqa: PLR2004  listing many costs
        self._wait(are_ready, "nodes to be ready", self._components, timeout_seconds, pause_seconds)

    def install_chart(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "fairbind",
        namespace: str = "fairbind-system",
        chart: Path = CHART,
    ) -> None:
        """Install or upgrade the chart with helm and wait until its CRDs are served.

        Raises PlaneError with helm's words when it refuses.
        """
        values_file = self.directory / f"values-{release}.json"
        values_file.write_text(json.dumps(dict(values or {})), encoding="utf-8")
        target = [release, str(chart), f"--namespace={namespace}", "--create-namespace"]
        self.run_helm(["upgrade", "--install", *target, f"--values={values_file}"])
        self._wait(lambda: are_crds_served(self.client), "the chart's CRDs to be served", self._components)

    def run_helm(self, arguments: Sequence[str]) -> str:
        """Run helm as the administrator and return what it prints; raise PlaneError when it fails."""
        return run_tool(self._tools, "helm", [*arguments, f"--kubeconfig={self.kubeconfig}"], self.directory)

    def run_kubectl(self, arguments: Sequence[str]) -> str:
        """Run kubectl as the administrator and return what it prints; raise PlaneError when it fails."""
        return run_tool(self._tools, "kubectl", [*arguments, f"--kubeconfig={self.kubeconfig}"], self.directory)

    # --- inside ---

    def _write_files(self) -> None:
        layout = self.layout
        for folder in (layout.pki, layout.logs, layout.kubeconfigs):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._identities.write_keys(layout.pki)
        layout.audit_policy.write_text(components.AUDIT_POLICY, encoding="utf-8")
        options = components.KWOK_OPTIONS.format(lease_seconds=self._node_lease_seconds)
        stages = components.KWOK_STAGES.read_text(encoding="utf-8")
        layout.kwok_config.write_text(options + stages, encoding="utf-8")

    def _start_core(self) -> None:
        """Start etcd and the API server on free ports, on others when another program was quicker."""
        for _ in range(PORT_ATTEMPTS):
            self._ports = Ports(*self._find_ports(3))
            for name, (user, groups) in COMPONENT_GROUPS.items():
                path = self.layout.kubeconfig(name)
                self._identities.write_certificate_kubeconfig(path, self.server, user, groups)
            try:
                for name in CORE:
                    self.start_component(name)
            except _PortTakenError:
                self._kill_all()
                self._client = None
                shutil.rmtree(self.layout.etcd, ignore_errors=True)
            else:
                return
        raise PlaneError(f"chosen ports were taken by others {PORT_ATTEMPTS} times in a row")

    def _spawn(self, component: _Component) -> None:
        argv: list[str | Path] = [self._tools.path(component.name), *component.arguments]
        component.process = processes.spawn(
            argv, self.logs(component.name), environment=_compute_environment(), directory=self.directory
        )

    def _compute_arguments(self, name: str) -> list[str]:
        layout, ports = self.layout, self._listening()
        gates = components.compute_gate_arguments(self._feature_gates)
        match name:
            case "etcd":
                return components.compute_etcd_arguments(layout, ports)
            case "kube-apiserver":
                served = components.compute_api_arguments(self._apis)
                return [*components.compute_apiserver_arguments(layout, ports), *gates, *served]
            case "kube-controller-manager":
                seconds = self._node_lease_seconds
                return [*components.compute_controller_manager_arguments(layout, node_lease_seconds=seconds), *gates]
            case "kwok":
                return components.compute_kwok_arguments(layout)
            case "kube-scheduler":
                return [*components.compute_scheduler_arguments(layout, ports), *gates]
        raise PlaneError(f"there is no component {name!r}")

    def _listening(self) -> Ports:
        if self._ports is None:
            raise PlaneError("the control plane has not been started")
        return self._ports

    def _kill_all(self) -> None:
        for component in self._components.values():
            if component.process is not None and component.process.poll() is None:
                component.process.kill()
        for component in self._components.values():
            if component.process is not None:
                component.process.wait()

    def _wait(
        self,
        condition: Callable[[], bool],
        what: str,
        watched: Iterable[str],
        timeout_seconds: float = START_TIMEOUT_SECONDS,
        pause_seconds: float = POLL_SECONDS,
    ) -> None:
        """Wait for a condition (no answer is "not yet"); fail early when a component that it needs has ended."""
        deadline = time.monotonic() + timeout_seconds
        names = list(watched)
        while not _is_fulfilled(condition):
            for name in names:
                self._check_alive(name)
            if time.monotonic() > deadline:
                raise PlaneError(f"waited {timeout_seconds:.0f} s for {what}\n{self._describe_logs(names)}")
            time.sleep(pause_seconds)

    def _check_alive(self, name: str) -> None:
        component = self._components.get(name)
        if component is None or component.process is None or component.process.poll() is None:
            return
        tail = processes.read_tail(self.logs(name))
        if PORT_TAKEN in tail:
            raise _PortTakenError(f"{name} found its port taken\n{self._describe_logs([name])}")
        raise PlaneError(f"{name} ended with exit status {component.process.returncode}\n{self._describe_logs([name])}")

    def _describe_logs(self, names: Iterable[str]) -> str:
        parts = [f"--- the end of {self.logs(name)}:\n{processes.read_tail(self.logs(name))}" for name in names]
        return "\n".join(parts)

    def _is_etcd_healthy(self) -> bool:
        return bool(self._call_etcd("/v3/maintenance/status", {}))

    def _is_apiserver_ready(self) -> bool:
        return bool(self.client.get("/readyz") == "ok")

    def _is_usable(self) -> bool:
        """Pods can be made once the controllers have given the namespace its service account."""
        return self.client.exists("/api/v1/namespaces/default/serviceaccounts/default")

    def _call_etcd(self, path: str, body: Json) -> Json:
        pki = self.layout.pki
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "etcd-client.crt", pki / "etcd-client.key")
        with ApiClient(self.etcd_url, tls=tls, connections=1) as etcd:
            answer: Json = etcd.post(path, body)
            return answer


def _is_fulfilled(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (urllib3.exceptions.HTTPError, ApiError):
        return False


def run_tool(tools: Tools, name: str, arguments: Sequence[str], folder: Path) -> str:
    """Run a command line tool and return what it prints; raise PlaneError with its words when it fails.

    folder: where it may keep its caches, so that it neither finds nor leaves anything in the user's home.
    """
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {**_compute_environment(), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    result = subprocess.run(
        [tools.path(name), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if result.returncode != 0:
        raise PlaneError(f"{name} {' '.join(arguments[:2])} failed: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def are_crds_served(client: ApiClient) -> bool:
    """Tell whether every CRD that there is can be listed: a new one answers 404, then 429, for a moment."""
    for crd in client.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
        spec = crd["spec"]
        versions = [version["name"] for version in spec["versions"] if version["served"]]
        for version in versions:
            try:
                client.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", limit=1)
            except ApiError:
                return False
    return True


def _compute_environment() -> dict[str, str]:
    """Our environment without what would lead a child to another cluster or another configuration."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "KWOK_", "HELM_", "ETCD_"))}


def _compute_file_name(user: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in user)


def _is_in(node: Json, names: frozenset[str] | None) -> bool:
    return names is None or node["metadata"]["name"] in names
