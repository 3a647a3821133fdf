"""Several replicas: one binds, the others are ready to; never two, whatever happens to the one."""

from __future__ import annotations

import base64
import datetime as dt
import json
import signal
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.audit import read_bindings
from e2e.checks import check_cluster, check_metrics
from e2e.objects import make_pod
from e2e.operators import LEASE
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bindings, count_bound, create_pods, make_mixed_pods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator
    from e2e.operators import Operator
    from e2e.relay import Relay

TAKE_OVER_SECONDS = 15.0


def start_two(operator: StartOperator) -> tuple[Operator, Operator]:
    """Start two replicas and return the leader and the standby."""
    first, second = operator(wait=False), operator(wait=False)
    for replica in (first, second):
        replica.wait_ready()
    leaders = wait_for(
        lambda: [replica for replica in (first, second) if replica.is_leader()], describe="one of two to lead"
    )
    assert len(leaders) == 1
    return (first, second) if leaders == [first] else (second, first)


def find_holder(api: Api) -> str:
    return str(api.get(LEASE)["spec"].get("holderIdentity") or "")


def count_ended_bindings(operator: Operator) -> float:
    """Return how many pods an operator has bound, or may have: with those whose answer came when it led no more."""
    metrics = operator.metrics()
    return sum(metrics.total("fairbind_bindings_total", result=result) for result in ("bound", "fenced"))


def find_unready(operator: Operator) -> str:
    """Return what an operator waits for; not that the election's calls take long, which a busy machine brings about."""
    status, text = operator.fetch("/readyz")
    is_election_alone = text.startswith("election: ") and ";" not in text
    return "" if status == 200 or is_election_alone else f"{status} {text}"


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
    wait_for(lambda: count_ended_bindings(leader) >= 20.0, describe="the leader to count its bindings")
    assert standby.metrics().total("fairbind_bindings_total") == 0.0
    assert standby.metrics().value("fairbind_leader") == 0.0
    for replica in (leader, standby):
        wait_for(replica.is_ready, describe="both to be ready")
        check_metrics(cluster.api, replica, [name])


@pytest.fixture
def pair(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> Iterator[tuple[Operator, Operator]]:
    """A leader and a standby; pods are bound before the test, and after it too, whoever leads then."""
    nodes(6)
    name = namespace()
    leader, standby = start_two(operator)
    check_it_binds(cluster.api, name)
    yield leader, standby
    check_it_binds(cluster.api, name)
    check_cluster(cluster)
    [now] = [replica for replica in (leader, standby) if replica.is_running and replica.is_leader()]
    check_metrics(cluster.api, now, [name])


def check_ready_meanwhile(standby: Operator) -> None:
    never(lambda: find_unready(standby), 0.5, "the standby is not ready while nobody leads")


def test_another_takes_over_from_one_that_was_killed(cluster: Cluster, pair: tuple[Operator, Operator]) -> None:
    leader, standby = pair
    leader.kill()
    killed_at = dt.datetime.now(dt.UTC)
    check_ready_meanwhile(standby)
    wait_for(standby.is_leader, describe="the standby to lead")
    # by when it took the lease, not by when we saw it: the operators' clock is ours
    taken_at = dt.datetime.fromisoformat(cluster.api.get(LEASE)["spec"]["acquireTime"])
    assert (taken_at - killed_at).total_seconds() <= TAKE_OVER_SECONDS


def test_another_takes_over_from_one_that_ends_without_waiting_for_the_lease_to_run_out(
    cluster: Cluster, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    holder = find_holder(cluster.api)
    leader.send(signal.SIGTERM)
    check_ready_meanwhile(standby)
    assert leader.wait_ended() == 0
    assert find_holder(cluster.api) != holder
    wait_for(standby.is_leader, describe="the standby to lead")


def read_credential(kubeconfig: Path) -> str:
    """Return how the audit log names a kubeconfig's token."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    padding = "=" * (-len(claims) % 4)
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + padding))['jti']}"


@pytest.mark.local_plane
@pytest.mark.parametrize("fault", ["frozen", "cut off"])
def test_a_leader_that_was_away_binds_nothing_before_it_leads_again(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, relay: Relay, operator: StartOperator, fault: str
) -> None:
    assert cluster.plane is not None
    audit_log = cluster.plane.audit_log
    nodes(40)
    name = namespace()
    pods = make_mixed_pods(300)
    second = cluster.operator_kubeconfig()
    first_token, second_token = read_credential(relay.kubeconfig), read_credential(second)
    old = operator(kubeconfig=relay.kubeconfig)
    wait_for(old.is_leader, describe="the first to lead")
    new = operator(kubeconfig=second)
    create_pods(cluster.api, name, pods[:200])
    wait_for(lambda: count_bindings(old) >= 10, describe="some pods to be bound", pause=0.02)
    begin, end = (old.freeze, old.thaw) if fault == "frozen" else (relay.cut, relay.mend)
    begin()
    wait_for(new.is_leader, describe="the standby to lead")
    create_pods(cluster.api, name, pods[200:])  # something to bind for whoever believes that it leads
    end()
    wait_for(lambda: count_bound(cluster.api, name) == len(pods), describe="all pods to be bound")
    wait_for(lambda: old.is_ready() and not old.is_leader(), describe="the first to see that it does not lead")
    check_cluster(cluster)
    check_metrics(cluster.api, new, [name])
    moments: dict[str, list[str]] = {token: [] for token in (first_token, second_token)}
    for binding in read_bindings(audit_log, namespace=name):
        moments[binding.credential].append(binding.moment)
    assert moments[first_token]
    assert max(moments[first_token]) < min(moments[second_token])
