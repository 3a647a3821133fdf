"""Extender mode on a real API server: the real kube-scheduler asks before it places a pod."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from e2e.members import check_refused, wait_allowed, wait_refused
from e2e.objects import make_name, make_pod
from e2e.operators import NAMESPACE
from e2e.test_admission import DEFAULT
from e2e.turns import (
    TWELVE_CORES,
    check_shares,
    claim_device_of_nowhere,
    count_bound,
    extending,
    make_default,
    make_teams,
    wait_bound,
)
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound, list_pods
from localplane.extender import CLIENT, OTHER, Extended
from localplane.nodes import make_node
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

pytestmark = pytest.mark.local_plane


def ask(extended: Extended, port: int, verb: str, args: Json, *, certificate: str = CLIENT) -> tuple[int, Any]:
    """Ask an operator as kube-scheduler does."""
    names = {"cert_file": f"{certificate}.crt", "key_file": f"{certificate}.key", "ca_certs": "ca.crt"}
    files: dict[str, Any] = {key: str(extended.folder / name) for key, name in names.items()}
    with urllib3.PoolManager(retries=False, **files) as pool:
        answer = pool.request("POST", f"https://127.0.0.1:{port}/{verb}", json=args, timeout=30.0)
        return answer.status, answer.json() if answer.status == 200 else answer.data.decode()


@pytest.fixture(scope="module")
def extended(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    """The chart in extender mode, and as it was after the module."""
    with extending(cluster, tmp_path_factory.mktemp("extender")) as extended:
        yield extended


@pytest.fixture(autouse=True)
def no_scheduler(cluster: Cluster) -> Iterator[None]:
    yield
    assert cluster.plane is not None
    if "kube-scheduler" in cluster.plane.running():
        cluster.plane.stop_component("kube-scheduler")


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
    cluster: Cluster,
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    api, plane = cluster.api, cluster.plane
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
    status, answer = ask(extended, port, "filter", asked)
    assert status == 200
    assert answer["NodeNames"] == []
    assert all(answer["FailedNodes"][name].startswith("not its turn") for name in names)
    assert ask(extended, other_port, "filter", asked)[0] == 503, "only the leader answers"
    assert ask(extended, port, "filter", asked, certificate=OTHER)[0] == 403, "only kube-scheduler may ask"

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
    cluster: Cluster,
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    """Of two turns that may be given, the only one is with a pod that kube-scheduler cannot place, for three seconds.

    Nothing else happens when it ends, so without a nudge the other pod would sleep for minutes.
    """
    api = cluster.api
    nodes([make_node(make_name("n"), allocatable=TWELVE_CORES)])
    teams = make_teams(namespace, tenant, (1, 1))
    _, port = start_leader(extended, operator, "--max-turns=1", "--turn-timeout=3")
    create_pods(api, teams[0], [make_default(**claim_device_of_nowhere(api, teams[0]))])
    wait_for(lambda: has_turn(api, teams[0]), describe="the first pod to have its turn")
    extended.start_scheduler(port)
    create_pods(api, teams[1], [make_default()])
    wait_for(lambda: count_bound(api, teams) == [0, 1], describe="the other pod to be bound")


@pytest.mark.usefixtures("extended")
def test_the_operator_writes_one_condition_of_pods_of_these_schedulers(
    cluster: Cluster, namespace: MakeNamespace
) -> None:
    """Each attempt is a dry run."""
    api, path = cluster.api, f"/api/v1/namespaces/{namespace()}/pods"
    account = cluster.connect_as(cluster.operator_kubeconfig())
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
    cluster: Cluster,
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    policy: Callable[..., None],
) -> None:
    api = cluster.api
    policy(policy="ps-dsf")
    large = {"cpu": "24", "memory": "64Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=each) for each in (TWELVE_CORES, TWELVE_CORES, large)])
    teams = make_teams(namespace, tenant)
    for team in teams:
        create_pods(api, team, [make_default() for _ in range(40)])
    _, port = start_leader(extended, operator)
    extended.start_scheduler(port)
    check_shares(wait_bound(api, teams, 48))
