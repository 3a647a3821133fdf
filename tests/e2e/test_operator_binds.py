from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.objects import make_pod
from e2e.waiting import wait_for

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator


def test_one_pod_is_bound_and_runs(api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator) -> None:
    (node,) = nodes(1)
    name = namespace()
    running = operator()
    pod = make_pod({"cpu": "1", "memory": "1Gi"})
    path = f"/api/v1/namespaces/{name}/pods"
    api.post(path, pod)
    path = f"{path}/{pod['metadata']['name']}"
    wait_for(lambda: api.get(path)["spec"].get("nodeName") == node, describe="the pod to be bound")
    wait_for(lambda: api.get(path)["status"].get("phase") == "Running", describe="the pod to run")
    assert running.stop() == 0
