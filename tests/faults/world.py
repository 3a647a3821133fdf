"""What the faults happen to: a local control plane, two operators behind wires of their own, and pods that churn."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from e2e.api import ApiError, call_many
from e2e.checks import is_finished, is_waiting
from e2e.clusters import Cluster
from e2e.modes import APIS, BIND, EXTENDER, GATE, LABELS, SCHEDULERS, VALUES, OtherScheduler
from e2e.objects import POLICIES, TENANTS, make_pod, make_tenant
from e2e.operators import NAMESPACE, SERVICE_ACCOUNT, Operator, start_operator
from e2e.relay import Flows, Relay
from e2e.turns import wait_gated
from e2e.waiting import wait_for
from e2e.workloads import create_object
from faults.churn import TIMEOUT_SECONDS, Churn
from faults.constraints import Constraints
from faults.groups import KEPT_SECONDS, TornGroups, describe_incomplete, get_group
from faults.judge import KUBE_SCHEDULER, Judge, add_bodies, read_token_id
from faults.service import SERVICE, ServiceProxy
from faults.storage import CLAIMS, VOLUMES, Storage, find_left_behind
from faults.wire import Wire
from localplane.nodes import ZONES, make_node
from localplane.plane import ControlPlane
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from types import TracebackType

    from e2e.checks import View
    from localplane.client import Json
    from localplane.tools import Tools

CLOCK_STEP = Path(__file__).with_name("clock_step.c")
NODES, SERVERS = 8, {"cpu": "4", "memory": "8Gi", "pods": "20"}
ROOM_PODS = 52
"""About so many of the churn's pods find room."""
CHURN_PER_SECOND = 8.0
PROBE_KEY = "probe"
PROBE = {"cpu": "10m", "memory": "16Mi"}
TENANT_WEIGHTS = {"red": 1, "blue": 2}
NAMESPACES = (*TENANT_WEIGHTS, "green")
WATCHED = (*(f"{TENANTS}/{name}" for name in TENANT_WEIGHTS), f"{POLICIES}/default")
"""What is changed after each fault, to see that it is heeded."""
TOKEN_SECONDS = 86400


class NotingPlane(ControlPlane):
    """A control plane whose audit log has the bodies of writes of the lease and of patches of pods, too."""

    def _write_files(self) -> None:
        super()._write_files()
        policy = self.layout.audit_policy
        policy.write_text(add_bodies(policy.read_text(encoding="utf-8")), encoding="utf-8")

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a component that runs."""
        os.kill(self.pid(name), number)

    def wait_usable(self) -> None:
        """Wait until the API server answers; start it when it has ended with the etcd that it lost."""
        if "kube-apiserver" not in self.running():
            self.start_component("kube-apiserver")
        wait_for(self._is_apiserver_ready, describe="the API server to be ready")


@dataclass(slots=True)
class Replica:
    """One of the operators, and what stands between it and the API server. arguments: of its mode."""

    name: str
    world: World
    folder: Path
    wire: Wire
    relay: Relay
    arguments: list[str]
    operator: Operator | None = None
    secret: str = ""
    starts: int = 0
    preload: dict[str, str] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """What its operator reads."""
        return self.folder / "operator.kubeconfig"

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.operator is not None and self.operator.is_running

    @property
    def owner(self) -> str:
        """How the judge knows its operator."""
        return f"{self.name}{self.starts}"

    def read_wait(self) -> tuple[int, float]:
        """Return its operator's process and for how many seconds its main thread could run and had no processor.

        That is what a busy machine costs it; the start of a process, above all.
        """
        if self.operator is None or not self.operator.is_running:
            return 0, 0.0
        try:
            statistics = Path(f"/proc/{self.operator.pid}/schedstat").read_text(encoding="utf-8")
        except OSError:
            return 0, 0.0  # it has ended, or the kernel keeps no account
        return self.operator.pid, int(statistics.split()[1]) / 1e9

    def start(self, code: str | None = None) -> None:
        """Start an operator with a token of its own, so that the audit log can tell it from the one before it.

        code: a path to look for its packages in first, for another version.
        """
        self.starts += 1
        self.renew_access()
        environment = dict(self.preload)
        if code is not None:
            environment["PYTHONPATH"] = code
        log = self.folder / f"operator-{self.starts}.log"
        arguments = ["--log-level=debug", *self.arguments]
        self.operator = start_operator(self.kubeconfig, log, arguments, environment=environment)

    def renew_access(self) -> None:
        """Write a kubeconfig with a new token and the wire's present authority; the one before is worth nothing."""
        token, secret = wait_for(lambda: self.world.issue_token(self.owner), describe="a token")
        server = yaml.safe_load(self.relay.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
        self.wire.write_kubeconfig(self.kubeconfig, server, token)
        before, self.secret = self.secret, secret
        if before:
            self.world.remove(f"/api/v1/namespaces/{NAMESPACE}/secrets/{before}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the operator and to all that it has started, as when its container is meant."""
        if self.operator is not None and self.operator.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.operator.pid, number)

    def end(self) -> None:
        """End what runs, at once."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        if self.operator is not None:
            self.operator.close()

    def step_clock(self, seconds: float) -> None:
        """Set its wall clock so much before or behind the machine's."""
        with (self.folder / "clock").open("r+b") as stream:
            stream.write(struct.pack("=q", round(seconds * 1e9)))


class World:
    """A context manager. seed: of the churn and of what wires draw. mode: of the operators. code: another version's."""

    def __init__(self, tools: Tools, seed: int, *, mode: str = BIND, code: str | None = None) -> None:
        self.mode = mode
        self.code = code
        self._seed = seed
        self._stack = contextlib.ExitStack()
        self._tools = tools
        self._secrets = 0
        self.replicas: list[Replica] = []
        self.torn = TornGroups()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.plane = stack.enter_context(NotingPlane(self._tools))
            self.cluster = stack.enter_context(Cluster.connect(self.plane.kubeconfig, self._tools, self.plane))
            self.api = APIS[self.mode].connect(self.plane.kubeconfig)
            stack.callback(self.api.close)
            self.judge = Judge(self.plane.audit_log, binder=KUBE_SCHEDULER if self.mode == GATE else "")
            # To the judge a pod is forgotten that waits beside free capacity, also where that is reserved for others.
            policy = {"reservations": {"mode": "Off"}}
            self.cluster.install_chart({"operator": {"enabled": False}, "policy": policy, **VALUES[self.mode]})
            self._fill()
            self.storage = Storage(self.plane.kubeconfig, [f"n{number}" for number in range(NODES)])
            stack.callback(self.storage.stop)
            self.storage.start()
            self._start_scheduler(stack)
            library = self._build_clock_step()
            for number, name in enumerate("ab"):
                self.replicas.append(self._make_replica(stack, number, name, library))
            for replica in self.replicas:
                stack.callback(replica.end)
                replica.start()
            for replica in self.replicas:
                assert replica.operator is not None
                replica.operator.wait_ready()
            self._start_churn(stack)
            self._stack = stack.pop_all()
        return self

    def _start_scheduler(self, stack: contextlib.ExitStack) -> None:
        """Start kube-scheduler where the mode has it, and in extender mode its way to the operator that leads."""
        flows = Flows()
        self.scheduler = OtherScheduler.make(
            self.plane, self.mode, self.plane.directory / "extender-certificates", flows.port
        )
        if self.mode == EXTENDER:
            stack.enter_context(flows)
            stack.enter_context(ServiceProxy(self.plane.kubeconfig, flows))
        if self.mode == GATE:
            for name in NAMESPACES:
                wait_gated(self.api, name)
        self.scheduler.start()

    def _start_churn(self, stack: contextlib.ExitStack) -> None:
        api = APIS[self.mode].connect(self.plane.kubeconfig, timeout_seconds=TIMEOUT_SECONDS)
        self.churn = Churn(
            api, list(NAMESPACES), ROOM_PODS * 5 // 4, self._seed, CHURN_PER_SECOND, groups=self.mode == BIND
        )
        self.churn.start()
        stack.callback(self.churn.stop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def has_clock_steps(self) -> bool:
        """Whether there was a C compiler."""
        return bool(self.replicas[0].preload)

    def find(self, who: str) -> list[Replica]:
        """Return the leader, the standby, or both; the leader is the last that wrote the lease, or any one.

        Nothing is asked of the operators: one that another fault has frozen would be waited for.
        """
        if who == "both":
            return self.replicas
        self.judge.read_on()
        last = self.judge.leases[-1].owner if self.judge.leases else ""
        leader = next((replica for replica in self.replicas if replica.owner == last), self.replicas[0])
        return [replica for replica in self.replicas if (replica is leader) == (who == "leader")]

    def issue_token(self, owner: str) -> tuple[str, str]:
        """Return a token of the operators' service account and the Secret with whose end it ends."""
        self._secrets += 1
        name = f"token-{self._secrets}"
        secret = self.api.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": name}})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret["metadata"]["uid"]}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
        spec = {"expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}
        answer = self.api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        token: str = answer["status"]["token"]
        self.judge.owners[read_token_id(token)] = owner
        return token, name

    def is_gone(self, path: str) -> bool:
        """Tell whether there is nothing there."""
        return not self.api.exists(path)

    def remove(self, path: str) -> None:
        """Delete an object if it is there."""
        with contextlib.suppress(ApiError):
            self.api.delete(path)

    def make_probe(self, namespace: str) -> str:
        """Make a pod for which there is always room, and return its path."""
        toleration = {"key": PROBE_KEY, "operator": "Exists"}
        pod = make_pod(PROBE, nodeSelector={PROBE_KEY: "true"}, tolerations=[toleration])
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.api.post(path, pod)
        return f"{path}/{pod['metadata']['name']}"

    def change_spec(self, path: str) -> None:
        """Give a Tenant another weight, or the policy another tolerance, from which nothing else follows here."""
        spec = self.api.get(path)["spec"]
        change = {"weight": 3 - spec["weight"]} if "weight" in spec else {"serverClassTolerance": draw_tolerance(spec)}
        self.api.patch(path, {"spec": change})

    def is_heeded(self, path: str) -> bool:
        """Tell whether somebody who leads has seen the present spec, by what it says in the object's own status."""
        seen = self.api.get(path)
        return bool((seen.get("status") or {}).get("observedGeneration") == seen["metadata"]["generation"])

    def copy_etcd(self, target: Path) -> None:
        """Copy etcd's files as they are at one moment, as a power cut would leave them."""
        self.plane.send("etcd", signal.SIGSTOP)
        try:
            shutil.copytree(self.plane.layout.etcd, target)
        finally:
            self.plane.send("etcd", signal.SIGCONT)

    def restore_etcd(self, source: Path) -> None:
        """Put etcd's files back and start all that is built on them anew, as the instructions for a restore say."""
        for name in ("kube-apiserver", "etcd"):
            self.plane.stop_component(name, kill=True)
        shutil.rmtree(self.plane.layout.etcd)
        source.rename(self.plane.layout.etcd)
        for name in ("etcd", "kube-apiserver"):
            self.plane.start_component(name)
        for name in ("kube-controller-manager", "kwok"):
            self.plane.restart_component(name, kill=True)
        self.scheduler.restart()

    def find_forgotten(self, view: View) -> list[str]:
        """Return waiting pods for which some node has room, with volumes and where their constraints let them go."""
        constraints = self._read_constraints(view)
        alone = view.find_forgotten(
            objects=constraints.find_objections, waits=lambda pod: self.is_waiting(pod) and not get_group(pod)
        )
        return [*alone, *self.find_incomplete(view)]

    def find_incomplete(self, view: View) -> list[str]:
        """Return the groups that could stand whole and do not, and note which are torn."""
        return describe_incomplete(self.torn.look(view, self.is_waiting))

    def is_waiting(self, pod: Json) -> bool:
        """Tell whether a pod waits for the operators, or for kube-scheduler at their word."""
        return is_waiting(pod, SCHEDULERS[self.mode])

    def find_broken(self, view: View) -> list[str]:
        """Return pods that are where their constraints do not let them be."""
        constraints = self._read_constraints(view)
        return [*constraints.find_broken(), *constraints.find_elsewhere(view.pods)]

    def find_left_behind(self) -> list[str]:
        """Return what stays reserved for pods that are gone."""
        pods = [pod for pod in self.api.items("/api/v1/pods") if not is_finished(pod)]
        return find_left_behind(pods, [*self.api.items(CLAIMS)], [*self.api.items(VOLUMES)])

    def _read_constraints(self, view: View) -> Constraints:
        return Constraints.read(view, self.api.items(CLAIMS), self.api.items(VOLUMES))

    def write(self, count: int) -> None:
        """Let the cluster's version grow by so much."""
        path = "/api/v1/namespaces/default/configmaps"

        def write_one(number: int) -> None:
            thing = {"metadata": {"name": f"write-{number}"}}
            wait_for(functools.partial(create_object, self.api, path, thing), describe=path)

        call_many(range(count), write_one)
        self.api.delete(path)

    def has_secret(self, replica: Replica) -> bool:
        """Tell whether a replica's token is still worth something."""
        return self.api.exists(f"/api/v1/namespaces/{NAMESPACE}/secrets/{replica.secret}")

    def _fill(self) -> None:
        servers = [
            make_node(f"n{number}", allocatable=SERVERS, zone=ZONES[number % len(ZONES)], taints=[])
            for number in range(NODES)
        ]
        taint = {"key": PROBE_KEY, "value": "true", "effect": "NoSchedule"}
        servers.append(
            make_node("probe", allocatable={**SERVERS, "pods": "110"}, labels={PROBE_KEY: "true"}, taints=[taint])
        )
        self.plane.add_nodes(servers)
        self.plane.wait_nodes_ready()
        for name in NAMESPACES:
            self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": LABELS.get(self.mode, {})}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait_for(functools.partial(self.api.exists, account), describe=account)
        for name, weight in TENANT_WEIGHTS.items():
            self.api.post(TENANTS, make_tenant(name, namespaces=[name], weight=weight))

    def _build_clock_step(self) -> Path | None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        library = self.plane.directory / "clock_step.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, CLOCK_STEP, "-ldl"], check=True)
        return library

    def _make_replica(self, stack: contextlib.ExitStack, number: int, name: str, library: Path | None) -> Replica:
        folder = self.plane.directory / f"replica-{name}"
        folder.mkdir()
        wire = stack.enter_context(Wire(self.plane.kubeconfig, folder, self._seed + number))
        wire.write_kubeconfig(wire.kubeconfig, wire.server, "none")
        relay = stack.enter_context(Relay(wire.kubeconfig, folder / "relay.kubeconfig"))
        clock = folder / "clock"
        clock.write_bytes(bytes(8))
        preload = {} if library is None else {"LD_PRELOAD": str(library), "CLOCK_STEP_FILE": str(clock)}
        arguments = [*self.scheduler.compute_arguments(find_free_ports(1)[0]), f"--kept-place-seconds={KEPT_SECONDS}"]
        if self.mode == EXTENDER:
            arguments += [f"--extender-service={SERVICE}", f"--extender-pod-ip=10.1.2.{number + 1}"]
        return Replica(name, self, folder, wire, relay, arguments, preload=preload)


def draw_tolerance(spec: Json) -> str:
    """Return another tolerance than it has."""
    return "0.01" if spec.get("serverClassTolerance") != "0.01" else "0.02"
