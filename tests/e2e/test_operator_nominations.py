"""Room that kube-scheduler makes by evicting pods is for the pod for which it was made, from the API's state alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from e2e.api import ApiError
from e2e.objects import make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import create_pod, create_pods, find_bound, find_waiting

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import StartOperator

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
FINALIZER = "fairbind.io/test"


def find_nominated(api: Api, namespace: str, name: str) -> str | None:
    found: Json = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    node: str | None = found["status"].get("nominatedNodeName")
    return node


def release(api: Api, namespace: str, pod: Json) -> None:
    """Let a pod go that a finalizer holds, if it is still there."""
    with contextlib.suppress(ApiError):
        api.patch(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})


@pytest.mark.local_plane
def test_what_kube_scheduler_evicts_for_a_critical_pod_goes_to_that_pod(
    cluster: Cluster, node: str, mine: str, theirs: str, operator: StartOperator
) -> None:
    """Finalizers hold the evicted pods, so that room comes in two halves: the first one alone is too small for it."""
    plane, api = cluster.plane, cluster.api
    assert plane is not None
    operator()
    victims = [make_pod({"cpu": "5500m"}) for _ in range(2)]
    for victim in victims:
        victim["metadata"]["finalizers"] = [FINALIZER]
    create_pods(api, mine, victims)
    wait_for(lambda: len(find_bound(api, mine)) == 2, describe="the node to be full")
    small = set(create_pods(api, mine, [make_pod({"cpu": "2"}) for _ in range(20)]))
    priority_class = make_name("critical")
    api.post(CLASSES, {"metadata": {"name": priority_class}, "value": 1000})
    plane.start_component("kube-scheduler")

    def find_small() -> list[str]:
        return [pod["metadata"]["name"] for pod in find_bound(api, mine) if pod["metadata"]["name"] in small]

    try:
        critical = make_pod({"cpu": "10"}, scheduler_name="default-scheduler", priorityClassName=priority_class)
        name = critical["metadata"]["name"]
        create_pod(api, theirs, critical)
        wait_for(lambda: find_nominated(api, theirs, name) == node, describe="the room to be promised")
        for victim in victims:
            never(find_small, 1.0, "a small pod in room that is promised")
            release(api, mine, victim)
        wait_for(lambda: find_bound(api, theirs), describe="the critical pod to be bound")
        # beside it there is room for one of 2 CPUs
        wait_for(lambda: len(find_small()) == 1, describe="the rest of the node to be used")
        never(lambda: len(find_small()) > 1, 1.0, "a small pod where none fits")
        assert len(find_waiting(api, mine)) == 19  # nobody else was evicted
    finally:
        plane.stop_component("kube-scheduler")
        for victim in victims:
            release(api, mine, victim)
        api.delete(f"{CLASSES}/{priority_class}")
