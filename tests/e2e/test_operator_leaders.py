"""Several replicas: one binds, the others are ready to; never two, whatever happens to the one."""

from __future__ import annotations

import base64
import json
import signal
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.audit import read_bindings
from e2e.checks import check_cluster, check_metrics
from e2e.objects import make_name, make_pod
from e2e.operators import NAMESPACE
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bindings, count_bound, create_pods, make_mixed_pods

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator
    from e2e.operators import Operator

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/fairbind"
TAKE_OVER_SECONDS = 15.0
LEASE_SECONDS = 10.0


def start_two(operator: StartOperator) -> tuple[Operator, Operator]:
    """Start two replicas and return the leader and the standby."""
    first, second = operator(wait=False), operator(wait=False)
    for replica in (first, second):
        replica.wait_ready()
    wait_for(lambda: first.is_leader() or second.is_leader(), describe="one of two to lead")
    assert not (first.is_leader() and second.is_leader())
    return (first, second) if first.is_leader() else (second, first)


def find_holder(api: Api) -> str:
    return str(api.get(LEASE)["spec"].get("holderIdentity") or "")


def check_it_binds(api: Api, namespace: str) -> None:
    before = count_bound(api, namespace)
    create_pods(api, namespace, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, namespace) == before + 1, describe="one more pod to be bound")


def test_a_standby_is_ready_warm_and_binds_nothing(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes(6)
    name = namespace()
    leader, standby = start_two(operator)
    create_pods(cluster.api, name, make_mixed_pods(20))
    wait_for(lambda: count_bound(cluster.api, name) == 20, describe="all pods to be bound")
    assert leader.metrics().value("fairbind_bindings_total", result="bound") == 20.0
    assert standby.metrics().total("fairbind_bindings_total") == 0.0
    assert standby.metrics().value("fairbind_leader") == 0.0
    assert standby.is_ready()
    assert leader.is_ready()
    for replica in (leader, standby):
        check_metrics(cluster.api, replica, [name])


@pytest.mark.parametrize(
    ("end", "within"),
    [
        pytest.param(lambda leader: leader.kill(), TAKE_OVER_SECONDS, id="SIGKILL"),
        pytest.param(lambda leader: leader.send(signal.SIGTERM), 5.0, id="SIGTERM"),
    ],
)
def test_another_takes_over(
    end: Callable[[Operator], None],
    within: float,
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    operator: StartOperator,
) -> None:
    nodes(6)
    name = namespace()
    leader, standby = start_two(operator)
    check_it_binds(cluster.api, name)
    end(leader)
    ended = time.monotonic()
    never(lambda: not standby.is_ready(), 0.5, "the standby is not ready while nobody leads")
    wait_for(standby.is_leader, within, "the standby to lead")
    assert time.monotonic() - ended <= within
    check_it_binds(cluster.api, name)
    check_cluster(cluster)


def make_credentials(cluster: Cluster, folder: Path) -> tuple[Path, str]:
    """Return a kubeconfig with a token of its own and how the audit log names this token."""
    kubeconfig = folder / make_name("kubeconfig")
    kubeconfig.write_bytes(cluster.operator_kubeconfig().read_bytes())
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    padding = "=" * (-len(claims) % 4)
    return kubeconfig, f"JTI={json.loads(base64.urlsafe_b64decode(claims + padding))['jti']}"


@pytest.mark.local_plane
def test_a_leader_that_was_frozen_binds_nothing_before_it_leads_again(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator, tmp_path: Path
) -> None:
    assert cluster.plane is not None
    audit_log = cluster.plane.audit_log
    nodes(40)
    name = namespace()
    pods = make_mixed_pods(300)
    (first, first_token), (second, second_token) = (
        make_credentials(cluster, tmp_path),
        make_credentials(cluster, tmp_path),
    )
    old = operator(kubeconfig=first)
    wait_for(old.is_leader, describe="the first to lead")
    new = operator(kubeconfig=second)
    create_pods(cluster.api, name, pods[:200])
    wait_for(lambda: count_bindings(old) >= 10, describe="some pods to be bound", pause=0.02)
    old.freeze()
    wait_for(new.is_leader, TAKE_OVER_SECONDS, "the standby to lead")
    create_pods(cluster.api, name, pods[200:])  # something to bind for whoever believes that it leads
    old.thaw()
    wait_for(lambda: count_bound(cluster.api, name) == len(pods), describe="all pods to be bound")
    wait_for(lambda: old.is_ready() and not old.is_leader(), describe="the thawed one to see that it does not lead")
    check_cluster(cluster)
    moments: dict[str, list[str]] = {token: [] for token in (first_token, second_token)}
    for binding in read_bindings(audit_log, namespace=name):
        moments[binding.credential].append(binding.moment)
    assert moments[first_token]
    assert max(moments[first_token]) < min(moments[second_token])
