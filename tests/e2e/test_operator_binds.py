"""Pods of real tenants on a real API server: bound, shared by weight, told why they wait."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from e2e.checks import View, check_cluster, check_metrics, is_waiting
from e2e.objects import make_pod
from e2e.placement import find_change
from e2e.waiting import wait_for
from e2e.workloads import (
    SMALL,
    count_bindings,
    count_bound,
    count_ended_bindings,
    create_pods,
    find_condition,
    find_waiting,
)
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

pytestmark = pytest.mark.oldest_kubernetes

SECOND = dt.timedelta(seconds=1)
"""So exact are times in objects."""


def test_one_pod_is_bound_and_runs(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    (node,) = nodes(1)
    name = namespace()
    running = operator()
    pod = make_pod(SMALL)
    create_pods(api, name, [pod])
    path = f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}"
    wait_for(lambda: api.get(path)["spec"].get("nodeName") == node, describe="the pod to be bound")
    wait_for(lambda: api.get(path)["status"].get("phase") == "Running", describe="the pod to run")
    assert running.stop() == 0


def test_tenants_share_by_weight_and_the_metrics_agree(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    api = cluster.api
    nodes(
        [
            make_node(f"even-{number}-{id(cluster):x}", allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"})
            for number in range(6)
        ]
    )
    namespaces = [namespace(), namespace(), namespace()]
    tenants = [
        tenant(weight=weight, namespaces=[name]) for weight, name in zip((1, "2", "3.0"), namespaces, strict=True)
    ]
    for name in namespaces:
        create_pods(api, name, [make_pod(SMALL) for _ in range(40)])
    last_change = max(find_change(node) for node in View.take(api).nodes.values())
    wait_for(lambda: dt.datetime.now(dt.UTC) - last_change >= SECOND, describe="the second of the last change to pass")
    running = operator()
    wait_for(lambda: sum(count_bound(api, name) for name in namespaces) == 48, describe="all 48 cores to be taken")
    view = check_cluster(cluster)
    assert view.find_judged(), "no pod is known to have been bound after its node's last change"
    assert [count_bound(api, name) for name in namespaces] == [8, 16, 24]
    check_metrics(api, running, namespaces)
    metrics = running.metrics()
    for name, weight in zip(tenants, (1, 2, 3), strict=True):
        assert metrics.value("fairbind_tenant_weight", tenant=name) == weight
        assert metrics.value("fairbind_tenant_dominant_resource", tenant=name, resource="cpu") == 1.0
        assert metrics.value("fairbind_tenant_pending_pods", tenant=name, reason="insufficient") == 40 - 8 * weight
    assert metrics.value("fairbind_fairness_jain_index") == pytest.approx(1.0)


def test_waiting_pods_say_why_in_their_condition_and_an_event(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    gpu = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    stem = f"why-{id(api):x}"
    nodes(
        [
            make_node(f"{stem}-small", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"}),
            make_node(f"{stem}-gpu", taints=[gpu]),
        ]
    )
    name = namespace()
    operator()
    pod = make_pod({"cpu": "2"})
    create_pods(api, name, [pod])
    path = f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}"
    refused = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    message = f"{refused} no node is large enough, even when empty, among those that admit the pod."
    wait_for(lambda: find_condition(api.get(path)).get("message") == message, describe=message)
    condition = find_condition(api.get(path))
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")

    def find_events() -> list[Json]:
        found = api.items(
            f"/api/v1/namespaces/{name}/events", fieldSelector=f"involvedObject.name={pod['metadata']['name']}"
        )
        return [event for event in found if event["reason"] == "FailedScheduling"]

    events = wait_for(find_events, describe="an event")
    assert {(event["type"], event["message"]) for event in events} == {("Warning", message)}


def test_a_bound_pod_has_its_event(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    (node,) = nodes(1)
    name = namespace()
    operator()
    made = create_pods(api, name, [make_pod(SMALL) for _ in range(3)])
    expected = sorted(f"Successfully assigned {name}/{own} to {node}" for own in made)

    def find_messages() -> list[str]:
        events = api.items(f"/api/v1/namespaces/{name}/events")
        return sorted(event["message"] for event in events if event["reason"] == "Scheduled")

    wait_for(lambda: len(find_messages()) >= len(made), describe="an event for each pod")
    assert find_messages() == expected


def test_a_pod_says_when_fairness_is_why_it_waits(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(f"fair-{id(api):x}", allocatable={"cpu": "4", "memory": "32Gi", "pods": "110"})])
    rich, poor = namespace(), namespace()
    first, second = tenant(namespaces=[rich]), tenant(namespaces=[poor])
    operator()
    create_pods(api, rich, [make_pod(SMALL) for _ in range(4)])
    wait_for(lambda: count_bound(api, rich) == 4, describe="the first tenant to take everything")
    create_pods(api, poor, [make_pod(SMALL)])
    create_pods(api, rich, [make_pod(SMALL)])
    (pod,) = find_waiting(api, rich)
    path = f"/api/v1/namespaces/{rich}/pods/{pod['metadata']['name']}"
    begun = (
        f"tenant {first} waits: its weighted share 1.00 is above 0.00 of {second}, which takes the next free capacity"
    )
    expected = (f"{begun}.", f"{begun}; free capacity on 1 node(s) is reserved for it.")

    def tells() -> bool:
        message = find_condition(api.get(path)).get("message", "")
        return any(each in message for each in expected)

    wait_for(tells, describe=" or ".join(expected))
    victim = next(pod for pod in api.items(f"/api/v1/namespaces/{rich}/pods") if pod["spec"].get("nodeName"))
    api.delete(f"/api/v1/namespaces/{rich}/pods/{victim['metadata']['name']}")
    wait_for(lambda: count_bound(api, poor) == 1, describe="the room to go to the second tenant")
    assert find_waiting(api, rich)


def test_pods_of_other_schedulers_are_left_alone(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    nodes(1)
    name = namespace()
    running = operator("--scheduler-name", "somebody-else")
    create_pods(api, name, [make_pod(SMALL), make_pod(SMALL, scheduler_name="somebody-else")])
    wait_for(lambda: count_bound(api, name) == 1, describe="one pod to be bound")
    (left,) = [pod for pod in View.take(api).pods if pod["metadata"]["namespace"] == name and is_waiting(pod)]
    assert left["spec"]["schedulerName"] == "fairbind"
    wait_for(lambda: count_ended_bindings(running) >= 1.0, describe="the one binding to be counted")
    assert count_bindings(running) <= 1.0
