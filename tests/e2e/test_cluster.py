"""The cluster that the other tests build on does what they take for granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.objects import TENANTS, make_pod
from e2e.waiting import wait_for

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes

pytestmark = pytest.mark.oldest_kubernetes


def test_chart_is_installed_without_the_operator(cluster: Cluster, api: Api) -> None:
    assert api.items(TENANTS) is not None
    assert "fairbind" in cluster.helm("list", "--namespace=fairbind-system", "--short")
    assert api.items("/apis/apps/v1/namespaces/fairbind-system/deployments") == []


def test_a_pod_that_is_bound_runs_and_ends_after_its_time(api: Api, namespace: MakeNamespace, nodes: MakeNodes) -> None:
    [node] = nodes(1)
    pods = f"/api/v1/namespaces/{namespace()}/pods"
    pod = api.post(pods, make_pod({"cpu": "1"}, run_seconds=1))
    name = pod["metadata"]["name"]
    binding = {"metadata": {"name": name, "uid": pod["metadata"]["uid"]}, "target": {"kind": "Node", "name": node}}
    api.post(f"{pods}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    wait_for(lambda: api.get(f"{pods}/{name}")["status"]["phase"] == "Succeeded", describe="the pod to end")


def test_the_operator_account_may_not_read_secrets(cluster: Cluster) -> None:
    review = cluster.kubectl("auth", "can-i", "--list", "--as=system:serviceaccount:fairbind-system:fairbind")
    assert "secrets" not in review
    assert "pods/binding" in review
