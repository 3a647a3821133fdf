"""Gate mode on a real API server with the real kube-scheduler: what is set is changed, and policies are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.members import try_pod, wait_refused
from e2e.objects import TENANTS, make_name
from e2e.test_admission import ENFORCED, WITHOUT_OPERATOR
from e2e.test_admission_gate import find_gates
from e2e.turns import (
    TWELVE_CORES,
    check_shares,
    count_bound,
    gating,
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

ADMISSION = "/apis/admissionregistration.k8s.io/v1"

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster) -> Iterator[None]:
    """The chart in gate mode and kube-scheduler, and both as they were after the module."""
    with gating(cluster):
        yield


@pytest.fixture
def two_nodes(nodes: MakeNodes) -> list[str]:
    """Room for 24 pods."""
    return nodes([make_node(make_name("n"), allocatable=TWELVE_CORES) for _ in range(2)])


@pytest.mark.usefixtures("two_nodes")
def test_a_weight_that_changes_acts_on_the_next_pods(
    cluster: Cluster, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api = cluster.api
    teams = [namespace(labels=ENFORCED) for _ in range(2)]
    names = [tenant(namespaces=[team], weight=1) for team in teams]
    for team in teams:
        wait_gated(api, team)
        create_pods(api, team, [make_default() for _ in range(40)])
    started = operator("--mode", "gate")
    check_shares(wait_bound(api, teams, 24), (1, 1))

    api.patch(f"{TENANTS}/{names[1]}", {"spec": {"weight": 3}})
    wait_for(lambda: started.metrics().value("fairbind_tenant_weight", tenant=names[1]) == 3, describe="the weight")
    delete_pods(api, teams[0], [pod["metadata"]["name"] for pod in find_bound(api, teams[0])[:6]])

    wait_for(lambda: sum(count_bound(api, teams)) == 24, describe="the room to be used again")
    check_shares(count_bound(api, teams), (1, 3))


@pytest.mark.usefixtures("two_nodes")
def test_pods_that_came_while_the_admission_policies_were_gone_count(
    cluster: Cluster, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """Without the policy that adds the gate no pod is admitted; without the other one too, pods have no gate."""
    api = cluster.api
    teams = make_teams(namespace, tenant, (1, 1), ENFORCED)
    for team in teams:
        wait_gated(api, team)
    started = operator("--mode", "gate")

    api.delete(f"{ADMISSION}/mutatingadmissionpolicybindings/fairbind-gate")
    wait_refused(lambda: try_pod(api, teams[0], make_default()), "wait for their turn behind the scheduling gate")
    api.delete(f"{ADMISSION}/validatingadmissionpolicybindings/fairbind-gate")
    wait_for(lambda: not find_gates(try_pod(api, teams[0], make_default())), describe="a pod without a gate")
    create_pods(api, teams[0], [make_default() for _ in range(6)])
    wait_bound(api, teams, 6)
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate"})
    started.freeze()  # the first tenant alone would have all the room
    for team in teams:
        wait_gated(api, team)
        create_pods(api, team, [make_default() for _ in range(20)])
    started.thaw()

    check_shares(wait_bound(api, teams, 24), (1, 1))
