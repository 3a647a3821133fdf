"""Extender mode on a real API server: the real kube-scheduler asks before it places a pod."""

from __future__ import annotations

import base64
import functools
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pytest
import urllib3
import yaml

from e2e.members import check_refused, wait_allowed, wait_refused
from e2e.objects import make_name, make_pod
from e2e.operators import NAMESPACE
from e2e.test_admission import DEFAULT, WITHOUT_OPERATOR
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound, list_pods
from localplane.nodes import make_node
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

ONE_CORE = {"cpu": "1", "memory": "64Mi"}
TWELVE_CORES = {"cpu": "12", "memory": "64Gi", "pods": "110"}
WEIGHTS = (1, 2, 3)
TOLERANCE = 2

pytestmark = pytest.mark.local_plane


@dataclass(frozen=True, slots=True)
class Extended:
    """The chart in extender mode, and what kube-scheduler and operators need to speak to each other."""

    cluster: Cluster
    folder: Path

    @classmethod
    def make(cls, cluster: Cluster, folder: Path) -> Self:
        """Write the certificates: those of kube-scheduler and of a server, both signed by the cluster's authority."""
        plane = cluster.plane
        assert plane is not None
        pki = plane.layout.pki
        for source, target in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt", "ca.crt")):
            shutil.copy(pki / source, folder / target)
        kubeconfigs = {
            "client": plane.layout.kubeconfig("kube-scheduler"),
            "other": plane.certificate_kubeconfig("other"),
        }
        for name, kubeconfig in kubeconfigs.items():
            user = json.loads(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
            (folder / f"{name}.crt").write_bytes(base64.b64decode(user["client-certificate-data"]))
            (folder / f"{name}.key").write_bytes(base64.b64decode(user["client-key-data"]))
        return cls(cluster, folder)

    def compute_arguments(self, port: int, *more: str) -> list[str]:
        """Return what an operator is started with that answers at a port."""
        address = f"127.0.0.1:{port}"
        return ["--mode=extender", f"--extender-address={address}", f"--extender-tls={self.folder}", *more]

    def start_scheduler(self, port: int) -> None:
        """Start kube-scheduler with the chart's configuration, changed only in where things are on this machine."""
        plane = self.cluster.plane
        assert plane is not None
        found = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/fairbind-extender")
        config: Json = yaml.safe_load(found["data"]["config.yaml"])
        kubeconfig = str(plane.layout.kubeconfig("kube-scheduler"))
        config["clientConnection"] = {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
        config["leaderElection"] = {"leaderElect": False}
        (extender,) = config["extenders"]
        extender["urlPrefix"] = f"https://127.0.0.1:{port}"
        names = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
        extender["tlsConfig"] = {key: str(self.folder / name) for key, name in names.items()}
        path = self.folder / f"kube-scheduler-{port}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        plane.start_component("kube-scheduler", f"--config={path}")

    def ask(self, port: int, verb: str, args: Json, *, certificate: str = "client") -> tuple[int, Any]:
        """Ask an operator as kube-scheduler does."""
        names = {"cert_file": f"{certificate}.crt", "key_file": f"{certificate}.key", "ca_certs": "ca.crt"}
        files: dict[str, Any] = {key: str(self.folder / name) for key, name in names.items()}
        with urllib3.PoolManager(retries=False, **files) as pool:
            answer = pool.request("POST", f"https://127.0.0.1:{port}/{verb}", json=args, timeout=30.0)
            return answer.status, answer.json() if answer.status == 200 else answer.data.decode()


@pytest.fixture(scope="module")
def extended(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    """The chart in extender mode, and as it was after the module."""
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "extender", "extender": {"tlsSecretName": "unused"}})
    yield Extended.make(cluster, tmp_path_factory.mktemp("extender"))
    cluster.install_chart(WITHOUT_OPERATOR)


@pytest.fixture(autouse=True)
def no_scheduler(cluster: Cluster) -> Iterator[None]:
    yield
    assert cluster.plane is not None
    if "kube-scheduler" in cluster.plane.running():
        cluster.plane.stop_component("kube-scheduler")


def make_default(**fields: Any) -> Json:
    return make_pod(ONE_CORE, scheduler_name=DEFAULT, **fields)


def make_teams(namespace: MakeNamespace, tenant: MakeTenant, weights: Sequence[int] = WEIGHTS) -> list[str]:
    teams = [namespace() for _ in weights]
    for team, weight in zip(teams, weights, strict=True):
        tenant(namespaces=[team], weight=weight)
    return teams


def count_bound(api: Api, teams: Sequence[str]) -> list[int]:
    return [len(find_bound(api, team)) for team in teams]


def wait_bound(api: Api, teams: Sequence[str], count: int) -> list[int]:
    wait_for(
        lambda: sum(count_bound(api, teams)) == count,
        describe=lambda: f"{count} bound pods, not {count_bound(api, teams)}",
    )
    return count_bound(api, teams)


def check_shares(bound: Sequence[int], weights: Sequence[int] = WEIGHTS) -> None:
    """What bind mode gives, within two pods."""
    fair = [sum(bound) * weight / sum(weights) for weight in weights]
    assert all(abs(one - other) <= TOLERANCE for one, other in zip(bound, fair, strict=True)), (bound, fair)


def find_endpoint(api: Api) -> tuple[str, int] | None:
    """Return where the Service that kube-scheduler asks leads to."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    found = api.items(path, labelSelector="kubernetes.io/service-name=fairbind-extender")
    return next(((each["endpoints"][0]["addresses"][0], each["ports"][0]["port"]) for each in found), None)


def start_leader(extended: Extended, operator: StartOperator, *more: str) -> tuple[Operator, int]:
    """Start an operator that leads, and return where it answers."""
    (port,) = find_free_ports(1)
    started = operator(*extended.compute_arguments(port, *more))
    wait_for(started.is_leader, describe="the operator to lead")
    return started, port


def test_shares_are_those_of_bind_mode_while_kube_scheduler_asks_and_the_leader_is_killed(
    extended: Extended, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api, plane = extended.cluster.api, extended.cluster.plane
    assert plane is not None
    names = nodes([make_node(make_name("n"), allocatable=TWELVE_CORES) for _ in range(2)])
    teams = make_teams(namespace, tenant)
    for team in teams:  # before any turn is given, because the first tenant alone would have them all
        create_pods(api, team, [make_default() for _ in range(20)])
    service = "--extender-service=fairbind-extender"
    first, port = start_leader(extended, operator, service, "--extender-pod-ip=10.1.2.3")
    wait_for(lambda: find_endpoint(api) == ("10.1.2.3", port), describe="the Service to lead to the leader")
    (other_port,) = find_free_ports(1)
    second = operator(*extended.compute_arguments(other_port, service, "--extender-pod-ip=10.1.2.4"))
    extended.start_scheduler(port)
    check_shares(wait_bound(api, teams, 24))

    waiting = next(pod for pod in list_pods(api, teams[0]) if not pod["spec"].get("nodeName"))
    asked = {"Pod": waiting, "NodeNames": names}
    status, answer = extended.ask(port, "filter", asked)
    assert status == 200
    assert answer["NodeNames"] == []
    assert all(answer["FailedNodes"][name].startswith("not its turn") for name in names)
    assert extended.ask(other_port, "filter", asked)[0] == 503, "only the leader answers"
    assert extended.ask(port, "filter", asked, certificate="other")[0] == 403, "only kube-scheduler may ask"

    first.kill()
    plane.stop_component("kube-scheduler")
    delete_pods(api, teams[2], [pod["metadata"]["name"] for pod in find_bound(api, teams[2])[:6]])
    wait_for(second.is_leader, describe="the other operator to lead")
    wait_for(lambda: find_endpoint(api) == ("10.1.2.4", other_port), describe="the Service to lead to the other one")
    extended.start_scheduler(other_port)
    check_shares(wait_bound(api, teams, 24))
    third = next(pod for pod in list_pods(api, teams[1]) if not pod["spec"].get("nodeName"))
    reasons = [c["message"] for c in third["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert reasons, "kube-scheduler says why it waits"


def test_a_pod_that_was_refused_is_woken_when_its_turn_comes(
    extended: Extended, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """Of two turns that may be given, the only one is with a pod that kube-scheduler cannot place, for three seconds.

    Nothing else happens when it ends, so without a nudge the other pod would sleep for minutes.
    """
    api = extended.cluster.api
    nodes([make_node(make_name("n"), allocatable=TWELVE_CORES)])
    teams = make_teams(namespace, tenant, (1, 1))
    _, port = start_leader(extended, operator, "--max-turns=1", "--turn-timeout=3")
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "nowhere"}]}
    create_pods(api, teams[0], [make_default(**claim)])
    wait_for(lambda: has_turn(api, teams[0]), describe="the first pod to have its turn")
    extended.start_scheduler(port)
    create_pods(api, teams[1], [make_default()])
    wait_for(lambda: count_bound(api, teams) == [0, 1], describe="the other pod to be bound")


def test_the_operator_writes_one_condition_of_pods_of_these_schedulers(
    extended: Extended, namespace: MakeNamespace
) -> None:
    """Each attempt is a dry run."""
    api, path = extended.cluster.api, f"/api/v1/namespaces/{namespace()}/pods"
    account = extended.cluster.connect_as(extended.cluster.operator_kubeconfig())
    turn, waits = ({"type": kind, "status": "False"} for kind in ("fairbind.io/Turn", "PodScheduled"))
    made = {name: api.post(path, make_pod(scheduler_name=name)) for name in (DEFAULT, "fairbind", "third")}

    def write(name: str, status: Json) -> object:
        return account.patch(
            f"{path}/{made[name]['metadata']['name']}/status", {"status": status}, kind="strategic", dryRun="All"
        )

    wait_refused(lambda: write("third", {"conditions": [turn]}), "fairbind-own-status")
    wait_allowed(lambda: write(DEFAULT, {"conditions": [turn]}))
    write("fairbind", {"conditions": [waits]})
    for name, status in (
        (DEFAULT, {"conditions": [waits]}),
        (DEFAULT, {"conditions": [turn], "phase": "Failed"}),
        (DEFAULT, {"nominatedNodeName": "n"}),
        ("fairbind", {"conditions": [turn]}),
    ):
        check_refused(functools.partial(write, name, status), "fairbind-own-status", what=str(status))
    account.close()


def has_turn(api: Api, team: str) -> bool:
    conditions = [c["type"] for pod in list_pods(api, team) for c in pod["status"].get("conditions", ())]
    return "fairbind.io/Turn" in conditions


@pytest.mark.nightly
def test_shares_by_server_class(
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    policy: Callable[..., None],
) -> None:
    api = extended.cluster.api
    policy(policy="ps-dsf")
    large = {"cpu": "24", "memory": "64Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=each) for each in (TWELVE_CORES, TWELVE_CORES, large)])
    teams = make_teams(namespace, tenant)
    for team in teams:
        create_pods(api, team, [make_default() for _ in range(40)])
    _, port = start_leader(extended, operator)
    extended.start_scheduler(port)
    check_shares(wait_bound(api, teams, 48))
