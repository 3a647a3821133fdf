"""Pods that are pinned to one node each: decided as their affinity says, at the cost of pods that are not pinned."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from cluster import strategies as some
from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.model import CycleReport, PolicySettings, Rejection
from fairbind.scheduling import run_cycle
from rejections import REPELLED, UNWANTED, lack, taint
from scheduling.worlds import describe, places_of

GPU_TAINT = {"key": "gpu", "value": "x", "effect": "NoSchedule"}
POLICIES = ("best-fit-drfh", "fifo", "asset-fairness", "two-choices-drfh")
"""Those that compare tenants on the whole cluster: a pin that is not split off sets its node apart from others."""


def pin(node: str, **labels: str) -> Json:
    """Say what the DaemonSet controller writes into the pod for a node."""
    return require({"key": "metadata.name", "operator": "In", "values": [node]}, labels=labels)


def pin_openly(node: str, **labels: str) -> Json:
    """Say the same so that it is not taken for a pin."""
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return require(by_name, {"key": "metadata.name", "operator": "NotIn", "values": ["nobody"]}, labels=labels)


def require(*fields: Json, labels: dict[str, str]) -> Json:
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    term = {"matchFields": list(fields), **({"matchExpressions": expressions} if expressions else {})}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def run(cluster: Cluster) -> CycleReport:
    return run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)


def find_rejections(cluster: Cluster) -> dict[Rejection, int]:
    (wait,) = run(cluster).waits
    return dict(wait.rejections)


def test_a_pinned_pod_goes_to_its_node_and_to_no_other() -> None:
    cluster = Cluster()
    cluster.add_nodes(*map(make_node, "abc"))
    cluster.add_pods(make_pod("p", affinity=pin("b")))

    assert places_of(run(cluster)) == ["b"]
    assert cluster.cache.queries.may_use("uid-p", "b")
    assert not cluster.cache.queries.may_use("uid-p", "a")


def test_what_its_template_asks_for_counts_too() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a", labels={"disk": "hdd"}), make_node("b", labels={"disk": "ssd"}))
    cluster.add_pods(make_pod("p", affinity=pin("a", disk="ssd")))

    assert find_rejections(cluster) == {UNWANTED: 2}


def test_each_node_counts_once_under_the_first_reason() -> None:
    cluster = Cluster()
    full = make_node("full", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"})
    cluster.add_nodes(full, make_node("other"), make_node("tainted", taints=[GPU_TAINT]))
    cluster.add_pods(make_pod("p", requests={"cpu": "2"}, affinity=pin("full")))

    assert find_rejections(cluster) == {lack("cpu"): 1, UNWANTED: 1, taint("gpu: x"): 1}


def test_its_node_may_be_closed_by_a_placed_pod() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name, labels={"host": name}) for name in "abc"))
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.add_pods(make_pod("q", node="a", affinity=anti), make_pod("r", node="b", affinity=anti))
    cluster.add_pods(make_pod("p", labels={"app": "web"}, affinity=pin("a")))

    assert find_rejections(cluster) == {REPELLED: 1, UNWANTED: 2}


@pytest.mark.parametrize("name", ["a", "gone"])
def test_a_resource_that_no_node_offers_is_lacking_on_its_node(name: str) -> None:
    cluster = Cluster()
    cluster.add_nodes(*map(make_node, "ab"))
    cluster.add_pods(make_pod("p", requests={"gpu.io/x": "1"}, affinity=pin(name)))

    assert find_rejections(cluster) == ({lack("gpu.io/x"): 1, UNWANTED: 1} if name == "a" else {UNWANTED: 2})


def test_it_waits_for_a_node_that_is_not_there_yet() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("b"))
    cluster.add_pods(make_pod("p", affinity=pin("a")))
    assert find_rejections(cluster) == {UNWANTED: 1}

    cluster.add_nodes(make_node("a"))

    assert places_of(run(cluster)) == ["a"]
    cluster.cache.check_consistent()


def fill(nodes: int, affinity: Any = pin, policy: str = "best-fit-drfh") -> Cluster:
    """Have a pod wait for each node; every third node is full."""
    cluster = Cluster()
    cluster.cache.set_policy(PolicySettings(policy))
    for n in range(nodes):
        cluster.add_nodes(make_node(f"n{n:04}", allocatable={"cpu": str(n % 3), "memory": "8Gi", "pods": "110"}))
        cluster.add_pods(make_pod(f"p{n:04}", requests={"cpu": "1"}, affinity=affinity(f"n{n:04}")))
    return cluster


def test_a_daemonset_of_ours_has_one_placement_and_sets_no_nodes_apart() -> None:
    snapshot = fill(30, policy="ps-dsf").cache.build_snapshot()

    assert len(snapshot.task_classes) == 30
    assert len({id(task_class.placement) for task_class in snapshot.task_classes}) == 1
    assert len(snapshot.servers.class_names) == 3
    assert len(run_cycle(snapshot, PolicySettings("ps-dsf"), 0.0).bindings) == 20


def test_it_costs_as_much_memory_as_there_are_pods_and_not_nodes_times_pods() -> None:
    cluster = fill(1_500)
    tracemalloc.start()
    run(cluster)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_500 * 10_000


@pytest.mark.slow
def test_it_costs_as_much_time_as_there_are_pods_and_not_nodes_times_pods() -> None:
    def measure(nodes: int) -> float:
        seconds = []
        for _ in range(3):
            cluster = fill(nodes)
            begin = time.process_time()
            run(cluster)
            seconds.append(time.process_time() - begin)
        return min(seconds)

    assert measure(2_000) < 10 * measure(500)  # four times as much, or sixteen times


nodes = st.fixed_dictionaries(
    {
        "labels": some.labels,
        "taints": some.taints,
        "ready": st.sampled_from([True, True, True, False]),
        "unschedulable": st.sampled_from([False, False, False, True]),
        "allocatable": st.sampled_from([{"cpu": "2", "pods": "9"}, {"cpu": "1", "pods": "1"}, {"pods": "3"}]),
    }
)
pods = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["team", "shop"]),
        "requests": st.sampled_from([{"cpu": "1"}, {"cpu": "2"}, {}, {"gpu.io/x": "1"}]),
        "priority": st.sampled_from([0, 0, 1]),
        "labels": st.sampled_from([{}, {"app": "web"}]),
        "tolerations": some.tolerations,
        "ports": st.sampled_from([[], [{"hostPort": 80}]]),
        "pinned_to": st.sampled_from(["a", "b", "c", "gone", None]),
        "asks": st.sampled_from([{}, {}, {"disk": "ssd"}]),
    }
)


@given(
    st.lists(nodes, min_size=1, max_size=3),
    st.lists(pods, min_size=1, max_size=6),
    st.none() | st.sampled_from("abc"),
    st.sampled_from(POLICIES),
)
def test_a_pin_decides_as_the_affinity_that_it_was_read_from(
    nodes: list[Json], pods: list[Json], repelling: str | None, policy: str
) -> None:
    reports = []
    for affinity in (pin, pin_openly):
        cluster = Cluster()
        cluster.cache.set_policy(PolicySettings(policy))
        cluster.add_nodes(*(make_node(name, **node) for name, node in zip("abc", nodes, strict=False)))
        if repelling is not None:
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            cluster.add_pods(make_pod("placed", node=repelling, affinity=anti))
        for n, pod in enumerate(pods):
            spec = {key: value for key, value in pod.items() if key not in {"pinned_to", "asks", "requests", "ports"}}
            container = {"name": "main", "resources": {"requests": pod["requests"]}, "ports": pod["ports"]}
            if pod["pinned_to"] is not None:
                spec["affinity"] = affinity(pod["pinned_to"], **pod["asks"])
            cluster.add_pods(make_pod(f"p{n}", containers=[container], **spec))
        cluster.cache.check_consistent()
        reports.append(run(cluster))
    note(describe(reports[1]))

    assert describe(reports[0]) == describe(reports[1])
