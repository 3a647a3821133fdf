"""Room that kube-scheduler has reserved for a pod: for whom it is kept, and when it is kept no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.model import PolicySettings
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle

POLICIES = ("best-fit-drfh", "first-fit-drfh", "ps-dsf", "rps-dsf", "two-choices-drfh", "fifo")


@pytest.fixture
def cluster() -> Cluster:
    """One node of 4 CPUs."""
    filled = Cluster()
    filled.add_nodes(make_node("a"))
    return filled


def nominate(name: str, node: str = "a", *, cpu: str = "3", priority: int = 10, **rest: Any) -> Json:
    """A pod of kube-scheduler's, unless the rest says otherwise."""
    spec = {"scheduler": "default-scheduler", **rest}
    status = {"nominatedNodeName": node}
    return make_pod(name, priority=priority, requests={"cpu": cpu}, status=status, **spec)


def decide(cluster: Cluster, policy: str = "best-fit-drfh") -> dict[str, str]:
    """Where the pods go that are placed now, by name."""
    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(policy), 0.0)
    return {bind.task.name.partition("/")[2]: bind.server for bind in report.bindings}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_promised_is_kept_from_pods_of_the_same_or_a_lower_priority(cluster: Cluster, policy: str) -> None:
    cluster.add_pods(nominate("preemptor", priority=10))
    cluster.add_pods(
        *(make_pod(f"low-{n}", requests={"cpu": "1"}) for n in range(3)),
        make_pod("same", requests={"cpu": "2"}, priority=10),
    )
    assert cluster.get_free("a")["cpu"] == 1000
    assert decide(cluster, policy) == {"low-0": "a"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_of_a_higher_priority_takes_it(cluster: Cluster, policy: str) -> None:
    cluster.add_pods(nominate("preemptor", priority=10), make_pod("urgent", priority=11, requests={"cpu": "2"}))
    assert decide(cluster, policy) == {"urgent": "a"}
    cluster.cache.assume("uid-urgent", "a")
    assert cluster.get_free("a")["cpu"] == -1000
    cluster.cache.check_consistent()


def test_what_a_class_of_pods_may_use_no_other_may_that_shares_its_placement(cluster: Cluster) -> None:
    """Two classes whose preferences are about other pods, and about nodes, which is left out of what they share."""
    small = {"cpu": "1", "memory": "8Gi", "pods": "110"}
    cluster.add_nodes(make_node("a", labels={"disk": "fast"}), make_node("b", allocatable=small))
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]},
                }
            ]
        },
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "x"}},
                    },
                }
            ]
        },
    }
    cluster.add_pods(nominate("preemptor", priority=10), make_pod("there", node="a", labels={"app": "x"}))
    cluster.add_pods(make_pod("urgent", priority=11, requests={"cpu": "5"}, affinity=affinity))
    assert decide(cluster) == {}
    cluster.add_pods(make_pod("low", requests={"cpu": "2"}, affinity=affinity))
    assert decide(cluster) == {}


def test_pods_of_one_kind_find_as_much_as_their_priorities_allow(cluster: Cluster) -> None:
    cluster.add_nodes(make_node("a", allocatable={"cpu": "6", "memory": "8Gi", "pods": "110"}))
    cluster.add_pods(nominate("one", cpu="2", priority=10), nominate("two", cpu="2", priority=20))
    cluster.add_pods(
        *(
            make_pod(f"{name}-{n}", priority=p, requests={"cpu": "1"})
            for name, p in (("low", 5), ("mid", 15))
            for n in range(9)
        )
    )
    # of 6 CPUs 4 are kept from the low ones, and 2 from the others, whose turn is first
    placed = decide(cluster)
    assert sorted(placed) == ["mid-0", "mid-1", "mid-2", "mid-3"]
    cluster.cache.pods.replace([])
    cluster.add_pods(nominate("one", cpu="2", priority=10), nominate("two", cpu="2", priority=20))
    cluster.add_pods(*(make_pod(f"low-{n}", priority=5, requests={"cpu": "1"}) for n in range(9)))
    assert sorted(decide(cluster)) == ["low-0", "low-1"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_of_ours_is_not_kept_from_what_is_promised_to_it(cluster: Cluster, policy: str) -> None:
    cluster.add_pods(
        make_pod("older", created="2025-01-01T00:00:00Z", requests={"cpu": "2"}, priority=10),
        nominate("ours", scheduler="fairbind"),
    )
    assert decide(cluster, policy) == {"ours": "a"}
    cluster.cache.assume("uid-ours", "a")
    assert cluster.get_free("a")["cpu"] == 1000
    cluster.cache.forget("uid-ours")
    assert cluster.get_free("a")["cpu"] == 1000
    cluster.cache.check_consistent()


def test_what_is_promised_to_others_is_kept_from_a_nominated_pod_too(cluster: Cluster) -> None:
    cluster.add_pods(nominate("ours", scheduler="fairbind", priority=5), nominate("critical", priority=10, cpu="2"))
    assert decide(cluster) == {}
    cluster.delete_pod(nominate("critical", priority=10, cpu="2"))
    assert decide(cluster) == {"ours": "a"}


def test_while_the_evicted_pods_are_still_there_nobody_gets_their_room(cluster: Cluster) -> None:
    victim = make_pod("victim", node="a", requests={"cpu": "4"})
    cluster.add_pods(victim, nominate("preemptor", cpu="4"), make_pod("waits", requests={"cpu": "1"}))
    assert cluster.get_free("a")["cpu"] == -4000
    assert decide(cluster) == {}
    cluster.delete_pod(victim)
    assert decide(cluster) == {}


def test_who_waits_for_its_own_room_is_looked_at_again_when_the_evicted_pods_have_gone(cluster: Cluster) -> None:
    """What is left for others stays at nothing all the time, so nothing seems to have changed on the node."""
    victim = make_pod("victim", node="a", requests={"cpu": "4"})
    cluster.add_pods(victim, nominate("ours", cpu="4", scheduler="fairbind"))
    unschedulable = UnschedulableCache()
    for expected in ([], ["uid-ours"]):
        snapshot = cluster.cache.build_snapshot()
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable, state=CycleState())
        assert [each.task.uid for each in report.bindings] == expected
        cluster.delete_pod(victim)


def bind(pod: Json) -> None:
    pod["spec"]["nodeName"] = "b"


def delete(pod: Json) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def finish(pod: Json) -> None:
    pod["status"]["phase"] = "Failed"


def clear(pod: Json) -> None:
    del pod["status"]["nominatedNodeName"]


def empty(pod: Json) -> None:
    pod["status"]["nominatedNodeName"] = ""


def elsewhere(pod: Json) -> None:
    pod["status"]["nominatedNodeName"] = "not-there"


@pytest.mark.parametrize("scheduler", ["fairbind", "default-scheduler"])
@pytest.mark.parametrize("change", [bind, delete, finish, clear, empty, elsewhere])
def test_a_promise_that_is_stale_keeps_nothing(cluster: Cluster, change: Any, scheduler: str) -> None:
    pod = nominate("preemptor", scheduler=scheduler)
    cluster.add_pods(pod)
    assert cluster.get_free("a")["cpu"] == 1000
    pod = cluster.change_pod(pod, change)
    assert cluster.get_free("a")["cpu"] == 4000
    cluster.delete_pod(pod)
    cluster.cache.check_consistent()
    assert set(cluster.cache.state.servers.states) == {"a"}


@pytest.mark.parametrize(
    "spec",
    [{"schedulingGates": [{"name": "g"}]}, {"scheduler": "fairbind", "resourceClaims": [{"name": "r"}]}],
    ids=["gated", "ours and not supported"],
)
def test_a_pod_that_cannot_come_keeps_nothing(cluster: Cluster, spec: Json) -> None:
    cluster.add_pods(nominate("p", **spec))
    assert cluster.get_free("a")["cpu"] == 4000


def test_a_promise_does_not_count_for_shares_or_capacity(cluster: Cluster) -> None:
    cluster.add_pods(nominate("preemptor", namespace="kube-system"))
    assert cluster.get_capacity("a")["cpu"] == 4000
    assert cluster.cache.build_snapshot().tenants == ()


def test_a_node_that_comes_back_keeps_what_was_promised(cluster: Cluster) -> None:
    cluster.add_pods(nominate("preemptor"))
    cluster.cache.nodes.replace([])
    assert cluster.cache.build_snapshot().servers.names == ()
    cluster.add_nodes(make_node("0"), make_node("a"))
    assert cluster.get_free("a")["cpu"] == 1000


def test_who_may_take_it_follows_the_promises_that_come_and_go(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("mid", priority=15, requests={"cpu": "3"}))
    low, high = nominate("low", priority=10, cpu="2"), nominate("high", priority=20, cpu="2")
    for expected, pod in (({"mid": "a"}, low), ({}, high)):
        cluster.add_pods(json.loads(json.dumps(pod)))
        assert decide(cluster) == expected
    cluster.delete_pod(high)
    assert decide(cluster) == {"mid": "a"}
    cluster.delete_pod(low)
    assert decide(cluster) == {"mid": "a"}
    assert not any(key.has_reserved for key in cluster.cache.state.queues.by_key)


def test_only_classes_that_may_use_it_are_made_anew(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("low"), make_pod("urgent", priority=50, requests={"cpu": "2"}))
    low = cluster.get_class("uid-low")
    for n in range(3):
        cluster.add_pods(nominate(f"preemptor-{n}", cpu="1"))
        urgent = cluster.get_class("uid-urgent")
        assert cluster.get_class("uid-low") is low
        assert urgent.placement.reserved[0][0] == 1000 * (n + 1)


LIKES_PODS = {
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {"topologyKey": "disk", "labelSelector": {"matchLabels": {"app": "cache"}}},
            }
        ]
    }
}
LIKES_NODES = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}}
        ]
    }
}


@pytest.mark.parametrize("likes", [{}, LIKES_NODES, LIKES_PODS], ids=["nothing", "other nodes", "other pods"])
@pytest.mark.parametrize("nominated", ["a", "b", "c"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_nominated_pod_goes_to_its_node_where_it_fits(policy: str, nominated: str, likes: Json) -> None:
    """It goes elsewhere when it does not fit, and one that is nominated nowhere goes where it likes."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name, labels={"disk": "fast" if name == "a" else name}) for name in "abc"))
    cluster.add_pods(make_pod("cache", node="a", requests={"cpu": "1"}, labels={"app": "cache"}))
    pod = nominate("own", nominated, cpu="3", scheduler="fairbind", affinity=likes)
    cluster.add_pods(pod)
    assert decide(cluster, policy) == {"own": nominated}
    cluster.add_pods(make_pod("large", node=nominated, requests={"cpu": "3"}))
    assert decide(cluster, policy).get("own") not in {nominated, None}
    cluster.cache.check_consistent()
