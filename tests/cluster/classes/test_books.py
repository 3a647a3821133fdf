"""Numbers that are kept in two places, of which both must say the same, now and not only after the next snapshot."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cluster.builders import Cluster, make_node, make_pod, read_node
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.scheduling import run_cycle


def test_a_weight_divides_what_is_left_after_the_weights_of_resources() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"), make_node("n2"))
    resource_weights = {"memory": Fraction(1, 8)}
    spec = TenantSpec("a", weight=Fraction(2), resource_weights=resource_weights, namespaces=frozenset({"team"}))
    cluster.cache.set_tenant(spec)
    requests = {"cpu": "1", "memory": "1Gi"}
    cluster.add_pods(
        make_pod("held", node="n1", requests=requests),
        make_pod("other", namespace="else", node="n2", requests=requests),
        make_pod("waits", namespace="else", requests={"cpu": "1000"}),
    )
    snapshot = cluster.cache.build_snapshot()
    total = dict(zip(snapshot.resources, snapshot.total_r, strict=True))
    expected = max(1000 / total["cpu"], 2**30 / (total["memory"] / 8)) / 2
    shown = {tenant.name: tenant.weighted_share for tenant in cluster.cache.queries.build_overview().tenants}
    decided = dict(run_cycle(snapshot, cluster.cache.settings, 0.0).weighted_shares)
    assert shown["a"] == pytest.approx(expected)
    assert decided["a"] == pytest.approx(expected)
    assert 2**30 / (total["memory"] / 8) > 1000 / total["cpu"]  # so that the resource's weight matters
    assert shown == pytest.approx(decided)


def test_a_node_may_be_used_as_long_as_it_is_there_and_open() -> None:
    cluster = Cluster()
    cluster.add_pods(make_pod("p"))
    assert not cluster.cache.queries.may_use("uid-p", "n1")
    cluster.add_nodes(make_node("n1"))
    assert cluster.cache.queries.may_use("uid-p", "n1")
    cluster.add_nodes(make_node("n1", unschedulable=True))
    assert not cluster.cache.queries.may_use("uid-p", "n1")  # at once, not with the next snapshot
    cluster.add_nodes(make_node("n1"))
    assert cluster.cache.queries.may_use("uid-p", "n1")
    cluster.cache.nodes.delete(read_node(make_node("n1")))
    assert not cluster.cache.queries.may_use("uid-p", "n1")


def test_resources_that_no_node_offers_any_more_are_forgotten() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.add_nodes(make_node("n1", allocatable={"cpu": "4", f"example.com/r{number}": "1"}))
    assert set(cluster.cache.state.servers.offered._allocatable) == {"cpu", "example.com/r2"}
    cluster.cache.nodes.delete(read_node(make_node("n1")))
    assert not cluster.cache.state.servers.offered._allocatable


def test_a_decided_pod_has_its_room_until_somebody_else_takes_it() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1", allocatable={"cpu": "2", "memory": "8Gi", "pods": "110"}), make_node("n2"))
    decided = make_pod("decided", requests={"cpu": "2"})
    cluster.add_pods(decided)
    assert cluster.cache.assume("uid-decided", "n1")
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")
    cluster.add_pods(make_pod("other", scheduler="default-scheduler", node="n1", requests={"memory": "9Gi"}))
    assert cluster.cache.queries.has_capacity(
        "uid-decided", "n1"
    )  # more memory is held than there is, but it asks for none
    intruder = make_pod("intruder", scheduler="default-scheduler", node="n1", requests={"cpu": "1m"})
    cluster.add_pods(intruder)
    assert not cluster.cache.queries.has_capacity("uid-decided", "n1")
    cluster.change_pod(intruder, lambda pod: pod["status"].update(phase="Succeeded"))
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")
    cluster.add_nodes(make_node("n1", allocatable={"cpu": "1", "memory": "8Gi", "pods": "110"}))
    assert not cluster.cache.queries.has_capacity("uid-decided", "n1")
    cluster.cache.forget("uid-decided")
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")  # nothing is decided of it
    cluster.change_pod(decided, lambda pod: pod["spec"].update(nodeName="n2"))
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")  # the API server will refuse it
    assert cluster.cache.queries.has_capacity("uid-unknown", "n1")


def test_a_system_pod_takes_room_too() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    cluster.add_pods(make_pod("decided", requests={"cpu": "4"}))
    cluster.cache.assume("uid-decided", "n1")
    cluster.add_pods(
        make_pod("daemon", namespace="kube-system", scheduler="default-scheduler", node="n1", requests={"cpu": "1m"})
    )
    assert not cluster.cache.queries.has_capacity("uid-decided", "n1")


def test_a_decided_pod_has_its_host_port_until_somebody_else_takes_it() -> None:
    port = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]}
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    cluster.add_pods(make_pod("decided", containers=[port]), make_pod("same", containers=[port]))
    cluster.cache.assume("uid-decided", "n1")
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")  # it is its own
    other = make_pod("other", scheduler="default-scheduler", node="n1", containers=[port])
    cluster.add_pods(other)
    assert not cluster.cache.queries.has_capacity("uid-decided", "n1")
    cluster.delete_pod(other)
    assert cluster.cache.queries.has_capacity("uid-decided", "n1")
