"""Gate mode on a real API server with the real kube-scheduler, from the API's state alone."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from e2e.demanding import PODS as DEMANDING_PODS
from e2e.demanding import Demanding
from e2e.example import CORES, SMALL_CORES, create_backlog, place_guided
from e2e.example import make_nodes as make_unlike_nodes
from e2e.objects import make_name, make_pod
from e2e.operators import PROGRAM
from e2e.starvation import check_share, make_nodes
from e2e.test_admission import DEFAULT, ENFORCED
from e2e.test_admission_gate import BOUND
from e2e.turns import (
    ONE_CORE,
    check_shares,
    count,
    count_bound,
    find_leader,
    gating,
    has_open_gate,
    make_default,
    make_teams,
    wait_bound,
    wait_gated,
)
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

pytestmark = pytest.mark.local_plane


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster) -> Iterator[None]:
    """The chart in gate mode and kube-scheduler, and both as they were after the module."""
    with gating(cluster):
        yield


def test_shares_are_those_of_bind_mode_while_kube_scheduler_places_the_pods_and_the_leader_is_killed(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """kube-scheduler stands still while the first leader opens gates: the second one finds pods on their way."""
    api, plane = cluster.api, cluster.plane
    assert plane is not None
    allocatable = {"cpu": "12", "memory": "64Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=allocatable) for _ in range(2)])
    teams = make_teams(namespace, tenant, labels=ENFORCED)
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
    # Where kube-scheduler places a pod elsewhere than was decided, one that is on its way may find its node full.
    assert 24 <= sum(count(api, teams, has_open_gate)) <= 24 + 12, "what fits nowhere keeps its gate"

    freed = [pod["metadata"]["name"] for pod in find_bound(api, teams[2])[:6]]
    delete_pods(api, teams[2], freed)
    wait_for(lambda: sum(count_bound(api, teams)) == 24, describe="the room to be used again")
    check_shares(count_bound(api, teams))

    for each in pair:
        each.stop()
    left = 60 - 6 - sum(count(api, teams, has_open_gate))
    opened = subprocess.run(
        [PROGRAM, "open-gates", "--kubeconfig", cluster.kubeconfig], capture_output=True, text=True, check=True
    )
    assert f"{left} gates opened" in opened.stderr
    assert len(opened.stdout.splitlines()) == left
    assert sum(count(api, teams, has_open_gate)) == 60 - 6


def test_one_tenant_is_bound_one_gated_and_one_placed_by_kube_scheduler_alone(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """One set of books: what kube-scheduler placed before counts, and the room goes on in equal parts.

    Two schedulers may give the last core of a node away in the same moment, and no kubelet is here to refuse a pod.
    """
    api = cluster.api
    nodes([make_node(make_name("n"), allocatable={"cpu": "12", "memory": "64Gi", "pods": "110"}) for _ in range(2)])
    alone, gated, bound = teams = [namespace(labels=labels) for labels in ({}, ENFORCED, ENFORCED | BOUND)]
    for team in teams:
        tenant(namespaces=[team], weight=1)
    wait_gated(api, gated)
    create_pods(api, alone, [make_default() for _ in range(8)])
    wait_for(lambda: count_bound(api, teams) == [8, 0, 0], describe="the pods of kube-scheduler to be bound")
    create_pods(api, gated, [make_default() for _ in range(20)])
    create_pods(api, bound, [make_pod(ONE_CORE) for _ in range(20)])
    started = operator("--mode", "gate")

    wait_for(
        lambda: sum(count_bound(api, teams)) >= 24, describe=lambda: f"24 bound pods, not {count_bound(api, teams)}"
    )

    check_shares(count_bound(api, teams), (1, 1, 1))
    started.stop()


@pytest.mark.nightly
def test_what_kube_scheduler_sees_to_is_placed_while_shares_hold(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """Volumes that wait for their pod, a device, anti-affinity and spread; then the room goes on by weights."""
    api, weights = cluster.api, (1, 2)
    with Demanding(api, nodes) as demanding:
        teams = make_teams(namespace, tenant, weights, ENFORCED)
        for team in teams:
            wait_gated(api, team)
            demanding.create(team)
        started = operator("--mode", "gate")
        wait_bound(api, teams, DEMANDING_PODS * len(teams))
        started.freeze()  # the first tenant alone would have all the room
        for team in teams:
            create_pods(api, team, [make_default() for _ in range(20)])
        started.thaw()

        check_shares(wait_bound(api, teams, 24), weights)
        for team in teams:
            demanding.check(team)
        started.stop()


@pytest.mark.nightly
def test_shares_of_two_thousand_pods_on_mixed_nodes_are_those_of_bind_mode(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """Five tenants of weights 1 to 5, and room for 900 of their pods."""
    api, weights = cluster.api, (1, 2, 3, 4, 5)
    for cores in (60, 80, 100, 120, 140, 100, 100, 100, 100):
        nodes([make_node(make_name("n"), allocatable={"cpu": str(cores), "memory": "1Ti", "pods": "250"})])
    teams = make_teams(namespace, tenant, weights, ENFORCED)
    for team in teams:
        wait_gated(api, team)
        create_pods(api, team, [make_default() for _ in range(400)])
    started = operator("--mode", "gate")

    wait_for(
        lambda: sum(count_bound(api, teams)) == 900,
        900.0,
        describe=lambda: f"900 bound pods, not {count_bound(api, teams)}",
        pause=1.0,
    )

    check_shares(count_bound(api, teams), weights)
    assert sum(count(api, teams, has_open_gate)) == 900, "no more gates are open than the nodes can hold"
    started.stop()


def test_what_is_reserved_for_large_pods_is_not_taken_by_small_ones_that_kube_scheduler_places(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes(make_nodes())
    small, large = namespace(labels=ENFORCED), namespace(labels=ENFORCED)
    tenant(namespaces=[small], weight=1)
    waiting = tenant(namespaces=[large], weight=1)
    for team in (small, large):
        wait_gated(cluster.api, team)

    check_share(cluster.api, operator("--mode", "gate"), (small, large), waiting, "default-scheduler")


def test_the_class_of_nodes_is_the_one_that_the_exact_answer_says(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """kube-scheduler alone would spread the pods of `batch` over the nodes that `edge` needs."""
    api = cluster.api
    nodes(make_unlike_nodes())
    edge, batch = namespace(labels=ENFORCED), namespace(labels=ENFORCED)
    names = tenant(namespaces=[edge]), tenant(namespaces=[batch])
    for space in (edge, batch):
        wait_gated(api, space)
    create_backlog(api, edge, batch, DEFAULT)

    placed = place_guided(api, partial(operator, "--mode", "gate"), (edge, batch), names)

    assert placed == (SMALL_CORES, CORES - SMALL_CORES)
