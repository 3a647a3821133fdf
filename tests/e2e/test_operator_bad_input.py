"""Odd objects that the API server takes all the same: each is dealt with, and none stops anything else."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from e2e.checks import check_metrics
from e2e.objects import TENANTS, make_name, make_pod, make_tenant
from e2e.waiting import wait_for
from e2e.workloads import SMALL, create_object, create_pods, find_condition
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tenants.fairbind.io"
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "300"}
SOUND = {"sound": "yes"}
HUGE = "9223372036854775807"


def make_pod_of_many(count: int) -> Json:
    pod = make_pod()
    container = pod["spec"]["containers"][0]
    requests = {"requests": {"cpu": "10m", "memory": "1Mi"}}
    pod["spec"]["containers"] = [{**container, "name": f"c{number}", "resources": requests} for number in range(count)]
    return pod


def make_odd_node(name: str, allocatable: Any) -> Json:
    node = make_node(name, allocatable=ROOM)
    node["status"] = {} if allocatable is None else {"allocatable": allocatable, "capacity": allocatable}
    return node


def test_odd_pods_nodes_and_tenants_stop_nothing(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    stem = make_name("odd")
    sound = f"{stem}-sound"
    nodes(
        [
            make_node(sound, allocatable=ROOM, labels={"sound": "yes"}),
            make_odd_node(f"{stem}-without", None),
            make_odd_node(f"{stem}-zero", {"cpu": "0", "memory": "0", "pods": "0"}),
            make_odd_node(f"{stem}-suffixes", {"cpu": "15e-1", "memory": "123456789123m", "pods": "1k"}),
            make_odd_node(f"{stem}-huge", {"cpu": HUGE, "memory": "8Ei", "pods": HUGE, "example.com/odd": HUGE}),
        ]
    )
    own = namespace()
    labelled = namespace(labels={"team": "blue"})
    tenant(namespaces=[own], weight="1500m", resourceWeights={"memory": "0.5"})
    running = operator()
    waits = {
        "huge": make_pod({"cpu": HUGE, "memory": HUGE}, nodeSelector=SOUND),
        "unknown": make_pod({"cpu": "1", "example.com/nowhere": "1"}, nodeSelector=SOUND),
        "tiny room": make_pod({"cpu": "65"}, nodeSelector=SOUND),
    }
    goes = {
        "many containers": make_pod_of_many(200),
        "nothing": make_pod(nodeSelector=SOUND),
        "odd suffixes": make_pod({"cpu": "1e-1", "memory": "128974848000m"}, nodeSelector=SOUND),
        "labels": make_pod(SMALL, labels={"app": "x" * 63, "example.com/a.b_c": ""}, nodeSelector=SOUND),
        "plain": make_pod(SMALL, nodeSelector=SOUND),
    }
    create_pods(api, own, list(waits.values()))
    create_pods(api, labelled, list(goes.values()))

    def get(name: str, pod: Json) -> Json:
        found: Json = api.get(f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}")
        return found

    for what, pod in goes.items():
        wait_for(lambda pod=pod: get(labelled, pod)["spec"].get("nodeName"), describe=what)  # type: ignore[misc]
    for what, pod in waits.items():
        wait_for(
            lambda pod=pod: "Insufficient" in find_condition(get(own, pod)).get("message", ""),  # type: ignore[misc]
            describe=what,
        )
        assert not get(own, pod)["spec"].get("nodeName")
    assert running.fetch("/healthz") == (200, "ok\n")
    wait_for(running.is_ready, describe="it to be ready")
    metrics = running.metrics()
    assert metrics.value("fairbind_cycle_errors_total") == 0.0
    assert metrics.value("fairbind_tenant_weight", tenant=next(iter(find_tenants(api, own)))) == 1.5
    assert "Traceback" not in running.read_log(500)


def find_tenants(api: Api, namespace: str) -> list[str]:
    items = api.items("/apis/fairbind.io/v1alpha1/tenants")
    return [item["metadata"]["name"] for item in items if namespace in item["spec"].get("namespaces", [])]


def find_ready(api: Api, name: str) -> Json:
    conditions = (api.get(f"{TENANTS}/{name}").get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


def test_an_object_from_before_the_crd_changed_is_left_out_and_says_why(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=ROOM)])
    own = namespace()
    old = make_name("old")
    running = operator()
    crd = api.get(CRD)
    lax = copy.deepcopy(crd["spec"])
    schema = lax["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["weight"] = {"x-kubernetes-preserve-unknown-fields": True}
    api.patch(CRD, {"spec": lax})
    try:
        body = make_tenant(old, namespaces=[own], weight="plenty")
        wait_for(lambda: create_object(api, TENANTS, body), describe="the lax CRD to let it pass", pause=0.3)
    finally:
        api.patch(CRD, {"spec": crd["spec"]})
    try:
        create_pods(api, own, [make_pod(SMALL)])
        wait_for(
            lambda: running.metrics().value("fairbind_tenant_running_pods", tenant=f"ns/{own}") == 1.0,
            describe="the pod to be bound for the namespace's own tenant",
        )
        wait_for(lambda: find_ready(api, old), describe="its condition")
        ready = find_ready(api, old)
        assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
        assert "spec.weight" in ready["message"]
    finally:
        api.delete(f"{TENANTS}/{old}")


def test_pods_that_end_free_their_room(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable={"cpu": "2", "memory": "8Gi", "pods": "110"})])
    name = namespace()
    running = operator()
    create_pods(api, name, [make_pod(SMALL, run_seconds=1, restartPolicy="Never") for _ in range(6)])

    def are_all_done() -> bool:
        return all(pod["status"].get("phase") == "Succeeded" for pod in api.items(f"/api/v1/namespaces/{name}/pods"))

    wait_for(are_all_done, describe="three rounds of pods to run and end")
    check_metrics(api, running, [name])
    assert running.metrics().total("fairbind_cluster_allocated", resource="cpu") == 0.0
