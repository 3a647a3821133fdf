"""Volcano gets the same groups and the same weights as fairbind."""

from __future__ import annotations

import json
from collections import Counter

from fairbind.cluster.objects.quantity import parse_quantity
from perf.volcano import make_groups, make_queues
from perf.workload import MIB, VOLCANO, encode_pod, make_pods, make_tenants

PODS = make_pods(20 * 25, "run-0", group_size=10)


def test_each_pod_names_a_group_that_waits_for_as_many_as_name_it() -> None:
    groups = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"] for each in make_groups(PODS)}
    named = Counter[tuple[str, str]]()
    for pod in PODS:
        created = json.loads(encode_pod(pod, "run-0", VOLCANO))
        assert created["spec"]["schedulerName"] == "volcano"
        named[pod.namespace, created["metadata"]["annotations"]["scheduling.k8s.io/group-name"]] += 1

    assert {place: spec["minMember"] for place, spec in groups.items()} == named
    assert set(named.values()) == {10, 5}


def test_a_group_asks_for_what_its_pods_request() -> None:
    asked = [group["spec"]["minResources"] for group in make_groups(PODS)]

    for resource, requested in (
        ("cpu", sum(pod.shape.cpu_milli for pod in PODS) / 1000),
        ("memory", sum(pod.shape.memory_mib for pod in PODS) * MIB),
        ("nvidia.com/gpu", sum(pod.shape.gpus for pod in PODS)),
    ):
        assert sum(parse_quantity(group.get(resource, "0")) for group in asked) == requested > 0


def test_a_tenants_groups_are_in_a_queue_of_its_weight() -> None:
    weights = {queue["metadata"]["name"]: queue["spec"]["weight"] for queue in make_queues()}
    queue_of = {group["metadata"]["namespace"]: group["spec"]["queue"] for group in make_groups(PODS)}

    assert weights == {tenant["metadata"]["name"]: tenant["spec"]["weight"] for tenant in make_tenants()}
    assert queue_of == {f"run-0-t{number:02d}": f"bench-{number:02d}" for number in range(20)}
