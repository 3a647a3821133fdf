"""What is looked at between a decision and its sending: is the node still one to which this pod may go?"""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.model import PolicySettings

TAINT = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}


def decide(*pods: Json) -> Cluster:
    """A cluster in which these pods are on their way to the node n1, which has a label."""
    cluster = Cluster()
    cluster.add_nodes(make_node("n1", labels={"disk": "ssd"}))
    cluster.add_pods(*pods)
    for pod in pods:
        assert cluster.cache.assume(pod["metadata"]["uid"], "n1")
        assert cluster.cache.queries.may_use(pod["metadata"]["uid"], "n1")
    return cluster


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_that_comes_later_stops_who_does_not_tolerate_it(effect: str) -> None:
    cluster = decide(
        make_pod("plain"), make_pod("tolerant", tolerations=[{"key": "maintenance", "operator": "Exists"}])
    )
    cluster.add_nodes(make_node("n1", labels={"disk": "ssd"}, taints=[{**TAINT, "effect": effect}]))

    assert not cluster.cache.queries.may_use("uid-plain", "n1")  # at once, not with the next snapshot
    assert cluster.cache.queries.may_use("uid-tolerant", "n1")

    cluster.add_nodes(make_node("n1", labels={"disk": "ssd"}))
    assert cluster.cache.queries.may_use("uid-plain", "n1")


@pytest.mark.parametrize(
    ("node", "may"),
    [
        ({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, True),
        ({"labels": {"disk": "hdd"}}, False),
        ({"labels": {}}, False),
        ({"labels": {"disk": "ssd", "zone": "a"}}, True),
        ({"ready": False}, False),
        ({"unschedulable": True}, False),
        ({"allocatable": {}}, True),  # room is another question
    ],
)
def test_what_else_may_change_on_the_way(node: dict[str, Any], may: bool) -> None:  # noqa: FBT001 - a parameter
    cluster = decide(make_pod("pod", nodeSelector={"disk": "ssd"}))
    cluster.add_nodes(make_node("n1", **{"labels": {"disk": "ssd"}, **node}))

    assert cluster.cache.queries.may_use("uid-pod", "n1") is may


def test_a_node_outside_of_a_new_selector_or_gone_is_closed() -> None:
    cluster = decide(make_pod("pod"))
    cluster.cache.set_policy(PolicySettings(server_selector=(("disk", "hdd"),)))
    assert not cluster.cache.queries.may_use("uid-pod", "n1")
    cluster.cache.set_policy(None)
    assert cluster.cache.queries.may_use("uid-pod", "n1")
    cluster.cache.nodes.replace([], "999999")
    assert not cluster.cache.queries.may_use("uid-pod", "n1")


def test_what_became_of_a_pod_that_is_gone_says_the_api_server() -> None:
    pod = make_pod("pod")
    cluster = decide(pod)
    cluster.add_nodes(make_node("n1", taints=[TAINT]))
    cluster.delete_pod(pod)

    assert cluster.cache.queries.may_use("uid-pod", "n1")
