"""Two thousand pods behind the gate while all that can die dies, judged from the API's state and the audit log."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from e2e.audit import check_only_holders_write, count_opened, read_writes
from e2e.objects import TENANTS, make_name
from e2e.test_admission import ENFORCED
from e2e.test_admission_gate import find_gates
from e2e.test_operator_leaders import read_credential
from e2e.turns import (
    check_shares,
    count,
    count_bound,
    find_leader,
    gating,
    has_open_gate,
    make_default,
    wait_gated,
)
from e2e.waiting import wait_for
from e2e.workloads import create_pods
from fairbind.cluster.other_schedulers.gate_limiter import MOST_UNGATED
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]

WEIGHTS = (1, 2, 3, 4, 1)
"""That of the last tenant is also what a namespace has that no Tenant claims, because it leaves meanwhile."""
PODS_PER_WEIGHT = 180
ROOM = 1320
"""Two thirds of the pods fit, and of each tenant's too."""
PATIENCE_SECONDS = 900.0


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster) -> Iterator[None]:
    """The chart in gate mode and kube-scheduler, and both as they were after the module."""
    with gating(cluster):
        yield


@pytest.fixture
def credentials() -> list[str]:
    """How the audit log names the tokens of the operators that `start` has started."""
    return []


def start(cluster: Cluster, operator: StartOperator, folder: Path, credentials: list[str]) -> Operator:
    """Start an operator with a token of its own, by which the audit log knows it."""
    kubeconfig = folder / f"{make_name('operator')}.kubeconfig"
    shutil.copy(cluster.operator_kubeconfig(), kubeconfig)
    credentials.append(read_credential(kubeconfig))
    return operator("--mode", "gate", kubeconfig=kubeconfig)


def make_cores(cores: int, nodes: int) -> list[Json]:
    allocatable = {"cpu": str(cores), "memory": "1Ti", "pods": "250"}
    return [make_node(make_name("n"), allocatable=allocatable) for _ in range(nodes)]


def wait_placed(api: Api, teams: Sequence[str], least: int) -> None:
    """Wait until so many pods have a node."""
    wait_for(
        lambda: sum(count_bound(api, teams)) >= least,
        PATIENCE_SECONDS,
        describe=lambda: f"{least} bound pods, not {count_bound(api, teams)}",
        pause=0.5,
    )


def test_two_thousand_pods_behind_the_gate_outlive_all_that_dies(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    tmp_path: Path,
    credentials: list[str],
) -> None:
    """In turn die the operator, the API server and kube-scheduler; the next leader is frozen, the one after it killed.

    While no operator runs, pods come and a tenant leaves.
    """
    api, plane = cluster.api, cluster.plane
    assert plane is not None
    nodes(make_cores(120, ROOM // 120))
    teams = [namespace(labels=ENFORCED) for _ in WEIGHTS]
    names = [tenant(namespaces=[team], weight=weight) for team, weight in zip(teams, WEIGHTS, strict=True)]
    for team, weight in zip(teams, WEIGHTS, strict=True):
        wait_gated(api, team)
        create_pods(api, team, [make_default() for _ in range(PODS_PER_WEIGHT * weight)])

    first = start(cluster, operator, tmp_path, credentials)
    wait_placed(api, teams, 60)
    first.kill()
    api.delete(f"{TENANTS}/{names[-1]}")
    api.patch(f"/api/v1/namespaces/{teams[-1]}", {"metadata": {"labels": dict.fromkeys(ENFORCED)}})
    late = set(create_pods(api, teams[0], [make_default() for _ in range(40)]))
    assert all(find_gates(pod) for pod in list_named(api, teams[0], late)), "the gate is added while no operator runs"

    operators = [start(cluster, operator, tmp_path, credentials) for _ in range(3)]
    find_leader(operators)
    wait_placed(api, teams, 300)
    plane.restart_component("kube-apiserver", kill=True)
    wait_placed(api, teams, 450)
    plane.restart_component("kube-scheduler", kill=True)
    wait_placed(api, teams, 600)
    frozen = find_leader(operators)
    frozen.freeze()
    second = find_leader([each for each in operators if each is not frozen])
    wait_placed(api, teams, 800)
    frozen.thaw()
    wait_placed(api, teams, 950)
    second.kill()
    find_leader([each for each in operators if each is not second])

    wait_placed(api, teams, ROOM)
    check_shares(count_bound(api, teams), WEIGHTS)
    # a leader that dies leaves gates open whose pods may find their node full
    assert ROOM <= sum(count(api, teams, has_open_gate)) <= ROOM + MOST_UNGATED

    total = PODS_PER_WEIGHT * sum(WEIGHTS) + len(late)
    nodes(make_cores(100, (total - ROOM) // 100 + 1))
    wait_placed(api, teams, total)
    assert sum(count(api, teams, has_open_gate)) == total, "no gate is left, also where the tenant has left"
    opened = count_opened(plane.audit_log, credentials=credentials, namespaces=teams)
    assert set(opened.values()) == {1}, "no gate is opened twice"
    # the API server could not write down what it did when it was killed
    assert total - MOST_UNGATED <= len(opened) <= total
    written = check_only_holders_write(read_writes(plane.audit_log, credentials=credentials))
    assert written["pods"] >= len(opened)


def list_named(api: Api, team: str, names: set[str]) -> list[Json]:
    pods = [pod for pod in api.items(f"/api/v1/namespaces/{team}/pods") if pod["metadata"]["name"] in names]
    assert len(pods) == len(names)
    return pods
