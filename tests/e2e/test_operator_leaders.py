"""Several replicas: one binds, the others are ready to; never two, whatever happens to the one."""

from __future__ import annotations

import base64
import datetime as dt
import json
import signal
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.audit import read_bindings
from e2e.checks import check_cluster, check_given_back, check_metrics
from e2e.objects import make_pod
from e2e.operators import LEASE, read_term
from e2e.stalls import Stalls
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bindings, count_bound, count_ended_bindings, create_pods, make_mixed_pods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator
    from e2e.operators import Operator
    from e2e.relay import Relay

TAKE_OVER_SECONDS = 15.0
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


def test_a_standby_is_ready_warm_and_binds_nothing(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes(6)
    name = namespace()
    leader, standby = start_two(operator)
    term = read_term(cluster.api)
    create_pods(cluster.api, name, make_mixed_pods(20))
    wait_for(lambda: count_bound(cluster.api, name) == 20, describe="all pods to be bound")
    wait_for(
        lambda: count_ended_bindings(leader) + count_ended_bindings(standby) >= 20.0,
        describe="the bindings to be counted",
    )
    seen = standby.metrics()
    if leader.is_leader() and read_term(cluster.api) == term:  # nobody else has led meanwhile
        assert seen.total("fairbind_bindings_total") == 0.0
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
    transitions_before = read_term(cluster.api)[1]
    new = operator(kubeconfig=second)
    create_pods(cluster.api, name, pods[:200])
    wait_for(lambda: count_bindings(old) >= 10 or new.is_leader(), describe="some pods to be bound", pause=0.02)
    has_bound = count_bindings(old) >= 1
    begin, end = (old.freeze, old.thaw) if fault == "frozen" else (relay.cut, relay.mend)
    begin()
    wait_for(new.is_leader, describe="the standby to lead")
    create_pods(cluster.api, name, pods[200:])  # something to bind for whoever believes that it leads
    end()
    wait_for(lambda: count_bound(cluster.api, name) == len(pods), describe="all pods to be bound")
    wait_for(old.is_ready, describe="the first to be back")
    leader = wait_leader(old, new)
    check_cluster(cluster)
    check_metrics(cluster.api, new, [name])
    bindings = sorted(read_bindings(audit_log, namespace=name), key=lambda binding: binding.moment)
    by_turns = [binding.credential for binding in bindings]
    assert set(by_turns) <= {first_token, second_token}
    assert first_token in by_turns or not has_bound
    passed = read_term(cluster.api)[1] - transitions_before
    assert sum(one != other for one, other in pairwise(by_turns)) <= passed
    if passed == 1:  # the lead comes back to the first only where the machine stands still
        assert by_turns[-1] == second_token
        assert leader is new
