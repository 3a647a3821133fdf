"""Several replicas: one binds, the others are ready to; never two, whatever happens to the one."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import signal
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.audit import check_only_holders_write, read_bindings, read_writes
from e2e.checks import check_cluster, check_given_back, check_metrics
from e2e.objects import TENANTS, make_pod
from e2e.operators import LEASE, read_term
from e2e.stalls import Stalls
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bindings, count_bound, count_ended_bindings, create_pods, make_mixed_pods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Metrics, Operator
    from e2e.relay import Relay

pytestmark = pytest.mark.oldest_kubernetes

TAKE_OVER_SECONDS = 15.0
TERMS_TRIED = 3
FENCED_SECONDS = 4.0
"""Nobody leads for so long, at least, between one whose lease runs out and the next."""


def find_leaders(*replicas: Operator) -> list[Operator]:
    """Return who leads, each asked after the other; nobody when that took so long that the lead could pass on."""
    asked_at = time.monotonic()
    leaders = [replica for replica in replicas if replica.is_running and replica.is_leader()]
    return leaders if time.monotonic() - asked_at < FENCED_SECONDS else []


def wait_leader(*replicas: Operator) -> Operator:
    """Wait until one of them leads and return it; fail when it is not the only one."""
    leaders = wait_for(lambda: find_leaders(*replicas), describe="one of them to lead")
    assert len(leaders) == 1, leaders
    return leaders[0]


def start_two(operator: StartOperator) -> tuple[Operator, Operator]:
    """Start two replicas and return the leader and the standby."""
    first, second = operator(wait=False), operator(wait=False)
    for replica in (first, second):
        replica.wait_ready()
    return (first, second) if wait_leader(first, second) is first else (second, first)


def find_unready(operator: Operator) -> str:
    """Return what an operator waits for; not that the election's calls take long, which a busy machine brings about."""
    status, text = operator.fetch("/readyz")
    is_election_alone = text.startswith("election: ") and ";" not in text
    return "" if status == 200 or is_election_alone else f"{status} {text}"


def check_it_binds(api: Api, namespace: str) -> None:
    before = count_bound(api, namespace)
    create_pods(api, namespace, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, namespace) == before + 1, describe="one more pod to be bound")


def has_bound(api: Api, namespace: str, count: int) -> bool:
    return count_bound(api, namespace) == count


def has_counted(operator: Operator, least: float) -> bool:
    return count_ended_bindings(operator) >= least


def bind_in_one_term(api: Api, namespace: str, leader: Operator, standby: Operator) -> Metrics:
    """Have twenty pods bound, check that the standby had no part in it, and return what it says then.

    The lead passes on where the machine stands still; that round says nothing, and another one is made.
    """
    for round_number in range(1, TERMS_TRIED + 1):
        term = read_term(api)
        leader, standby = (leader, standby) if wait_leader(leader, standby) is leader else (standby, leader)
        before, bound_before = standby.metrics().total("fairbind_bindings_total"), count_ended_bindings(leader)
        create_pods(api, namespace, make_mixed_pods(20))
        wait_for(functools.partial(has_bound, api, namespace, 20 * round_number), describe="all to be bound")
        seen = standby.metrics()
        if leader.is_leader() and read_term(api) == term:
            wait_for(functools.partial(has_counted, leader, bound_before + 20.0), describe="the bindings to be counted")
            assert seen.total("fairbind_bindings_total") == before
            return seen
    pytest.fail(f"the lead passed on in each of {TERMS_TRIED} rounds")


def test_a_standby_is_ready_warm_and_binds_nothing(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes(6)
    name = namespace()
    leader, standby = start_two(operator)
    seen = bind_in_one_term(cluster.api, name, leader, standby)
    assert seen.value("fairbind_leader") == 0.0
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
    check_metrics(cluster.api, wait_leader(leader, standby), [name])


def check_ready_meanwhile(standby: Operator) -> None:
    never(lambda: find_unready(standby), 0.5, "the standby is not ready while nobody leads")


def test_another_takes_over_from_one_that_was_killed(cluster: Cluster, pair: tuple[Operator, Operator]) -> None:
    leader, standby = pair
    with Stalls(lambda: read_term(cluster.api)) as stalls:
        leader.kill()
        killed_at = dt.datetime.now(dt.UTC)
        check_ready_meanwhile(standby)
        wait_for(standby.is_leader, describe="the standby to lead")
    # by when it took the lease, not by when we saw it: the operators' clock is ours
    taken_at = dt.datetime.fromisoformat(cluster.api.get(LEASE)["spec"]["acquireTime"])
    assert (taken_at - killed_at).total_seconds() <= TAKE_OVER_SECONDS + stalls.seconds


def test_another_takes_over_from_one_that_ends_without_waiting_for_the_lease_to_run_out(
    cluster: Cluster, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    with Stalls(lambda: read_term(cluster.api)) as stalls:
        leader.send(signal.SIGTERM)
        check_ready_meanwhile(standby)
        assert leader.wait_ended() == 0
    check_given_back(cluster.api, leader, stalls)
    wait_for(standby.is_leader, describe="the standby to lead")


def read_credential(kubeconfig: Path) -> str:
    """Return how the audit log names a kubeconfig's token."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    padding = "=" * (-len(claims) % 4)
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + padding))['jti']}"


@pytest.mark.local_plane
@pytest.mark.parametrize("fault", ["frozen", pytest.param("cut off", marks=pytest.mark.nightly)])
def test_a_leader_that_was_away_binds_nothing_before_it_leads_again(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    relay: Relay,
    operator: StartOperator,
    fault: str,
) -> None:
    """Neither does it write events, conditions or statuses."""
    assert cluster.plane is not None
    audit_log = cluster.plane.audit_log
    nodes(40)
    name = namespace()
    member = tenant(namespaces=[name])
    pods = make_mixed_pods(300)
    second = cluster.operator_kubeconfig()
    first_token, second_token = read_credential(relay.kubeconfig), read_credential(second)
    old = operator(kubeconfig=relay.kubeconfig)
    wait_for(old.is_leader, describe="the first to lead")
    new = operator(kubeconfig=second)
    create_pods(cluster.api, name, pods[:200])
    wait_for(lambda: count_bindings(old) >= 10 or new.is_leader(), describe="some pods to be bound", pause=0.02)
    begin, end = (old.freeze, old.thaw) if fault == "frozen" else (relay.cut, relay.mend)
    begin()
    wait_for(new.is_leader, describe="the standby to lead")
    create_pods(cluster.api, name, pods[200:])  # something to bind for whoever believes that it leads
    end()
    wait_for(lambda: count_bound(cluster.api, name) == len(pods), describe="all pods to be bound")
    wait_for(old.is_ready, describe="the first to be back")
    wait_leader(old, new)
    path = f"{TENANTS}/{member}"
    wait_for(lambda: cluster.api.get(path)["status"]["pods"]["running"] == len(pods), describe="the tenant's status")
    check_cluster(cluster)
    check_metrics(cluster.api, new, [name])
    bindings = read_bindings(audit_log, namespace=name)
    assert {binding.credential for binding in bindings} <= {first_token, second_token}
    written = check_only_holders_write(read_writes(audit_log, credentials=[first_token, second_token]))
    assert written["pods/binding"] >= len(pods)  # some were sent twice, the first time into the cut wire
    assert written["events"] > 0
    assert written["tenants/status"] > 0
