"""Extender mode in trouble, with the real kube-scheduler: parts die, what is set is changed, pods ask for much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.demanding import PODS as DEMANDING_PODS
from e2e.demanding import Demanding
from e2e.objects import TENANTS, make_name
from e2e.test_extender_mode import start_leader
from e2e.turns import TWELVE_CORES, check_shares, extending, make_default, make_teams, wait_bound
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from localplane.extender import Extended

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]


@pytest.fixture
def ignorable() -> bool:
    """Whether kube-scheduler goes on without us."""
    return False


@pytest.fixture
def extended(cluster: Cluster, tmp_path: Path, *, ignorable: bool) -> Iterator[Extended]:
    """The chart in extender mode; it and kube-scheduler are as they were after the test."""
    with extending(cluster, tmp_path, ignorable=ignorable) as extended:
        yield extended


@pytest.fixture
def two_nodes(nodes: MakeNodes) -> list[str]:
    """Room for 24 pods."""
    return nodes([make_node(make_name("n"), allocatable=TWELVE_CORES) for _ in range(2)])


def test_what_kube_scheduler_sees_to_is_placed_while_shares_hold(
    cluster: Cluster,
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    api, weights = cluster.api, (1, 2)
    with Demanding(api, nodes) as demanding:
        teams = make_teams(namespace, tenant, weights)
        for team in teams:
            demanding.create(team)
        started, port = start_leader(extended, operator)
        extended.start_scheduler(port)
        wait_bound(api, teams, DEMANDING_PODS * len(teams))
        extended.plane.stop_component("kube-scheduler")
        started.freeze()  # the first tenant alone would have all the room
        for team in teams:
            create_pods(api, team, [make_default() for _ in range(20)])
        started.thaw()
        extended.start_scheduler(port)

        check_shares(wait_bound(api, teams, 24), weights)
        for team in teams:
            demanding.check(team)


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize("ignorable", [True])
def test_kube_scheduler_goes_on_without_us_where_it_may_and_what_it_bound_counts(
    cluster: Cluster, extended: Extended, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api = cluster.api
    teams = make_teams(namespace, tenant, (1, 1))
    first, port = start_leader(extended, operator)
    extended.start_scheduler(port)
    create_pods(api, teams[0], [make_default() for _ in range(2)])
    wait_bound(api, teams, 2)
    first.kill()
    create_pods(api, teams[0], [make_default() for _ in range(8)])
    wait_bound(api, teams, 10)
    second = operator(*extended.compute_arguments(port))
    wait_for(second.is_leader, describe="the next operator to lead")
    for team in teams[::-1]:
        create_pods(api, team, [make_default() for _ in range(20)])

    check_shares(wait_bound(api, teams, 24), (1, 1))


@pytest.mark.usefixtures("two_nodes")
def test_without_us_no_pod_is_placed_where_it_may_not_go_on(
    cluster: Cluster, extended: Extended, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """kube-scheduler has looked at the pod, and its words say that nothing answers."""
    api = cluster.api
    teams = make_teams(namespace, tenant, (1,))
    first, port = start_leader(extended, operator)
    first.kill()
    extended.start_scheduler(port)
    create_pods(api, teams[0], [make_default()])

    def find_words() -> list[str]:
        (pod,) = list_pods(api, teams[0])
        return [c["message"] for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]

    wait_for(lambda: any("connection refused" in words for words in find_words()), describe="kube-scheduler's words")
    assert not find_bound(api, teams[0])
    operator(*extended.compute_arguments(port))
    wait_bound(api, teams, 1)


@pytest.mark.usefixtures("two_nodes")
def test_a_weight_that_changes_acts_on_the_next_pods_also_when_all_else_was_restarted(
    cluster: Cluster, extended: Extended, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api, plane = cluster.api, cluster.plane
    assert plane is not None
    teams = [namespace() for _ in range(2)]
    names = [tenant(namespaces=[team], weight=1) for team in teams]
    for team in teams:
        create_pods(api, team, [make_default() for _ in range(40)])
    started, port = start_leader(extended, operator)
    extended.start_scheduler(port)
    wait_for(lambda: len(find_bound(api, teams[0])) >= 3, describe="some pods to be bound")
    plane.stop_component("kube-scheduler", kill=True)
    plane.restart_component("kube-apiserver", kill=True)
    extended.start_scheduler(port)
    check_shares(wait_bound(api, teams, 24), (1, 1))

    api.patch(f"{TENANTS}/{names[1]}", {"spec": {"weight": 3}})
    wait_for(lambda: started.metrics().value("fairbind_tenant_weight", tenant=names[1]) == 3, describe="the weight")
    delete_pods(api, teams[0], [pod["metadata"]["name"] for pod in find_bound(api, teams[0])[:6]])

    wait_for(lambda: len(find_bound(api, teams[1])) >= 16, describe="the room to go to the second tenant")
    check_shares(wait_bound(api, teams, 24), (1, 3))
