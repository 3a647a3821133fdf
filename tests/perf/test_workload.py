from __future__ import annotations

import json
from collections import Counter

import pytest

from localplane.nodes import mixed_nodes
from perf.workload import (
    SHAPES,
    TENANT_COUNT,
    WorkloadError,
    assign_in_turn,
    compute_room,
    encode_pod,
    find_overcommitted,
    make_namespaces,
    make_pods,
    make_tenants,
    parse_amount,
)


def test_everybody_gets_the_same_pods() -> None:
    first, second = make_pods(1000, "one"), make_pods(1000, "two")

    assert [pod.shape for pod in first] == [pod.shape for pod in second]
    assert {pod.name for pod in first}.isdisjoint(pod.name for pod in second)


def test_every_tenant_has_every_shape() -> None:
    pods = make_pods(TENANT_COUNT * len(SHAPES), "run")

    assert {pod.namespace for pod in pods} == {namespace["metadata"]["name"] for namespace in make_namespaces("run")}
    assert set(Counter((pod.namespace, id(pod.shape)) for pod in pods).values()) == {1}


def test_tenants_claim_the_namespaces_of_all_runs() -> None:
    labels = [namespace["metadata"]["labels"] for namespace in make_namespaces("run")]

    assert labels == [tenant["spec"]["namespaceSelector"]["matchLabels"] for tenant in make_tenants()]
    assert {tenant["spec"]["weight"] for tenant in make_tenants()} == {1, 2, 3, 4}


def test_pod_says_what_its_shape_says() -> None:
    pod = next(pod for pod in make_pods(400, "run") if pod.shape.gpus)

    spec = json.loads(encode_pod(pod, "run", "somebody"))["spec"]

    assert spec["schedulerName"] == "somebody"
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [("cpu", "32", 32_000), ("cpu", "50m", 50), ("memory", "8Gi", 8 * 2**30), ("nvidia.com/gpu", "4", 4)],
)
def test_amounts_of_the_node_shapes_are_understood(resource: str, text: str, amount: int) -> None:
    assert parse_amount(resource, text) == amount


def test_pods_fit_with_room_and_go_only_where_they_may() -> None:
    nodes, pods = mixed_nodes(200), make_pods(2000, "run")

    assigned = assign_in_turn(pods, nodes)

    assert len(assigned) == len(pods)
    assert find_overcommitted(assigned, pods, nodes) == []
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for pod in pods:
        node = by_name[assigned[pod.name]]
        assert pod.shape.selector.items() <= node["metadata"]["labels"].items()
        tolerated = {toleration["key"] for toleration in pod.shape.tolerations}
        assert {taint["key"] for taint in node["spec"]["taints"]} <= tolerated


def test_too_many_pods_are_refused_before_anything_starts() -> None:
    with pytest.raises(WorkloadError, match="5000 pods do not fit on 30 nodes"):
        assign_in_turn(make_pods(5000, "run"), mixed_nodes(30))


def test_overcommitment_is_found() -> None:
    nodes = mixed_nodes(6)
    small = next(name for name, free in compute_room(nodes).items() if free["cpu"] == 4000)
    pods = [pod for pod in make_pods(400, "run") if pod.shape.cpu_milli == 1000][:5]

    assert find_overcommitted({pod.name: small for pod in pods}, pods, nodes) == [small]
    assert find_overcommitted({pod.name: small for pod in pods[:1]}, pods, nodes) == []


def test_pods_of_a_tenant_are_groups_one_after_the_other_and_the_last_has_what_is_left() -> None:
    pods = make_pods(20 * 25, "run", group_size=10)
    found = Counter((pod.namespace, pod.group, pod.group_size) for pod in pods)
    metadata = json.loads(encode_pod(pods[-1], "run", "fairbind"))["metadata"]

    assert {(group, size): count for (_, group, size), count in found.items()} == {
        ("g0", 10): 10,
        ("g1", 10): 10,
        ("g2", 5): 5,
    }
    assert metadata["labels"]["kueue.x-k8s.io/pod-group-name"] == "g2"
    assert metadata["annotations"] == {"kueue.x-k8s.io/pod-group-total-count": "5"}
