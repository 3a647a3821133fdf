"""Gate mode on a real API server with the real kube-scheduler, from the API's state alone."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from e2e.checks import is_waiting
from e2e.objects import make_name, make_pod
from e2e.operators import PROGRAM
from e2e.test_admission import DEFAULT, ENFORCED, WITHOUT_OPERATOR, serves_mutating_policies
from e2e.test_admission_gate import find_gates
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

ONE_CORE = {"cpu": "1", "memory": "64Mi"}
WEIGHTS = (1, 2, 3)
TOLERANCE = 2

pytestmark = pytest.mark.local_plane


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster, api: Api) -> Iterator[None]:
    """The chart in gate mode and kube-scheduler, and both as they were after the module."""
    if not serves_mutating_policies(api):
        pytest.skip("the cluster serves no MutatingAdmissionPolicy")
    plane = cluster.plane
    assert plane is not None
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate"})
    plane.start_component("kube-scheduler")
    yield
    plane.stop_component("kube-scheduler")
    cluster.install_chart(WITHOUT_OPERATOR)


def make_default(requests: dict[str, str] = ONE_CORE) -> Json:
    """Return a pod for kube-scheduler."""
    return make_pod(requests, scheduler_name=DEFAULT)


def make_teams(namespace: MakeNamespace, tenant: MakeTenant, weights: Sequence[int] = WEIGHTS) -> list[str]:
    """Return the namespaces of tenants with these weights, whose new pods wait behind the gate."""
    teams = [namespace(labels=ENFORCED) for _ in weights]
    for team, weight in zip(teams, weights, strict=True):
        tenant(namespaces=[team], weight=weight)
    return teams


def wait_gated(api: Api, team: str) -> None:
    """Wait until new pods of a namespace get the gate."""
    path = f"/api/v1/namespaces/{team}/pods"
    wait_for(lambda: find_gates(api.post(path, make_default(), dryRun="All")), describe="the gate to be added")


def count(api: Api, teams: Sequence[str], wanted: Callable[[Json], object]) -> list[int]:
    """Return how many such pods each namespace has."""
    return [sum(bool(wanted(pod)) for pod in list_pods(api, team)) for team in teams]


def has_open_gate(pod: Json) -> bool:
    return not find_gates(pod)


def count_bound(api: Api, teams: Sequence[str]) -> list[int]:
    return count(api, teams, lambda pod: pod["spec"].get("nodeName"))


def check_shares(bound: Sequence[int], weights: Sequence[int] = WEIGHTS) -> None:
    """What bind mode gives, within two pods."""
    fair = [sum(bound) * weight / sum(weights) for weight in weights]
    assert all(abs(one - other) <= TOLERANCE for one, other in zip(bound, fair, strict=True)), (bound, fair)


def find_leader(operators: Sequence[Operator]) -> Operator:
    wait_for(lambda: any(each.is_leader() for each in operators), describe="a leader")
    return next(each for each in operators if each.is_leader())


def test_shares_are_those_of_bind_mode_while_kube_scheduler_places_the_pods_and_the_leader_is_killed(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """kube-scheduler stands still while the first leader opens gates: the second one finds pods on their way."""
    api, plane = cluster.api, cluster.plane
    assert plane is not None
    allocatable = {"cpu": "12", "memory": "64Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=allocatable) for _ in range(2)])
    teams = make_teams(namespace, tenant)
    for team in teams:
        wait_gated(api, team)
    plane.stop_component("kube-scheduler")
    for team in teams:
        create_pods(api, team, [make_default() for _ in range(20)])
    assert count(api, teams, has_open_gate) == [0, 0, 0]
    pair = [operator("--mode", "gate", "--max-ungated", "12") for _ in range(2)]
    wait_for(lambda: sum(count(api, teams, has_open_gate)) == 12, describe="the limit of open gates to be reached")
    check_shares(count(api, teams, has_open_gate))

    leader = find_leader(pair)
    leader.kill()
    plane.start_component("kube-scheduler")
    find_leader([each for each in pair if each is not leader])

    wait_for(
        lambda: sum(count_bound(api, teams)) == 24, describe=lambda: f"24 bound pods, not {count_bound(api, teams)}"
    )
    check_shares(count_bound(api, teams))
    assert count(api, teams, has_open_gate) == count_bound(api, teams), "what fits nowhere keeps its gate"

    freed = [pod["metadata"]["name"] for pod in find_bound(api, teams[2])[:6]]
    delete_pods(api, teams[2], freed)
    wait_for(lambda: sum(count_bound(api, teams)) == 24, describe="the room to be used again")
    check_shares(count_bound(api, teams))

    opened = subprocess.run(
        [PROGRAM, "open-gates", "--kubeconfig", cluster.kubeconfig], capture_output=True, text=True, check=True
    )
    left = 60 - 6 - 24
    assert f"{left} gates opened" in opened.stderr
    assert len(opened.stdout.splitlines()) == left
    assert sum(count(api, teams, has_open_gate)) == 60 - 6


@pytest.mark.nightly
def test_a_long_backlog_of_five_tenants_is_shared_by_weights(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api, weights = cluster.api, (1, 2, 3, 4, 5)
    sizes = [str(20 + 10 * (number % 3)) for number in range(30)]
    nodes([make_node(make_name("n"), allocatable={"cpu": cpu, "memory": "64Gi", "pods": "110"}) for cpu in sizes])
    teams = make_teams(namespace, tenant, weights)
    for team in teams:
        wait_gated(api, team)
        create_pods(api, team, [make_default() for _ in range(400)])
    pair = [operator("--mode", "gate") for _ in range(2)]
    wait_for(lambda: sum(count_bound(api, teams)) >= 200, describe="some pods to be bound")
    began = time.monotonic()
    wait_for(lambda: sum(count_bound(api, teams)) == 900, describe="the cluster to be full", timeout=600.0)
    print(f"700 pods in {time.monotonic() - began:.1f} s, {count_bound(api, teams)}")
    assert any(each.is_leader() for each in pair)
    check_shares(count_bound(api, teams), weights)


def test_what_kube_scheduler_refuses_gives_its_room_back_and_says_so(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """Whether a device claim is there is for kube-scheduler to see; fairbind lets such pods have their turn."""
    api = cluster.api
    nodes([make_node(make_name("n"), allocatable={"cpu": "1", "memory": "64Gi", "pods": "110"})])
    stuck, other = make_teams(namespace, tenant, (1, 1))
    for team in (stuck, other):
        wait_gated(api, team)
    refused = make_default()
    refused["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "nothing"}]
    create_pods(api, stuck, [refused])
    operator("--mode", "gate", "--ungated-timeout", "2")
    wait_for(lambda: count(api, [stuck], has_open_gate) == [1], describe="the gate of the stuck pod to open")
    create_pods(api, other, [make_default()])

    wait_for(lambda: count_bound(api, [other]) == [1], describe="another pod to have the room that was given back")
    assert count_bound(api, [stuck]) == [0]
    wait_for(
        lambda: any(event["reason"] == "NotPlacedInTime" for event in list_events(api, stuck)),
        describe="the event of the stuck pod",
    )
    assert not any(is_waiting(pod) and has_open_gate(pod) for pod in list_pods(api, other))


def list_events(api: Api, namespace: str) -> list[Json]:
    return api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
