"""Devices that a placed pod holds through a claim, on the real API server; the test allocates as a scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import create_pods, find_condition
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

GROUP = "/apis/resource.k8s.io/v1"
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110"}


class Devices:
    """A driver with four devices on a node, and a class of them."""

    def __init__(self, api: Api, node: str) -> None:
        self.api = api
        self.name = make_name("gpu")
        self.driver = f"{self.name}.example.com"
        self.resource = f"{self.driver}/gpu"
        self.pool = node
        listed = [{"name": f"gpu-{number}"} for number in range(4)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        published = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": listed}
        self._make("deviceclasses", "DeviceClass", {"extendedResourceName": self.resource})
        self._make("resourceslices", "ResourceSlice", published)

    def _make(self, kind: str, type_: str, spec: Json) -> None:
        meta = {"name": self.name}
        self.api.post(
            f"{GROUP}/{kind}", {"apiVersion": "resource.k8s.io/v1", "kind": type_, "metadata": meta, "spec": spec}
        )

    def make_claim(self, namespace: str) -> str:
        request = {"name": "main", "exactly": {"deviceClassName": self.name}}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": make_name("claim")}}
        path = f"{GROUP}/namespaces/{namespace}/resourceclaims"
        made = self.api.post(path, {**claim, "spec": {"devices": {"requests": [request]}}})
        return f"{path}/{made['metadata']['name']}"

    def allocate(self, claim: str, device: str, pod: Json) -> None:
        """Give a claim a device, for a pod."""
        result = {"request": "main", "driver": self.driver, "pool": self.pool, "device": device}
        consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
        self.api.put(f"{claim}/status", {**self.api.get(claim), "status": status})

    def remove(self) -> None:
        for kind in ("deviceclasses", "resourceslices"):
            remove(self.api, f"{GROUP}/{kind}/{self.name}")


@pytest.fixture
def devices(api: Api, nodes: MakeNodes) -> Iterator[Devices]:
    (node,) = nodes([make_node(make_name("n"), allocatable=ROOM)])
    made = Devices(api, node)
    yield made
    made.remove()


def test_a_device_of_a_placed_pod_counts_and_a_pod_that_only_a_claim_could_serve_is_told_so(
    api: Api, devices: Devices, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    space = namespace()
    name = tenant(namespaces=[space])
    running = operator()
    claim = devices.make_claim(space)
    pods = f"/api/v1/namespaces/{space}/pods"
    uses = [{"name": "gpu", "resourceClaimName": claim.rpartition("/")[2]}]
    create_pods(
        api,
        space,
        [
            make_pod(name="holds", scheduler_name="another", resourceClaims=uses),
            make_pod({devices.resource: "1"}, name="asks"),
        ],
    )
    devices.allocate(claim, "gpu-0", api.get(f"{pods}/holds"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "holds"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": devices.pool}
    api.post(f"{pods}/holds/binding", {**binding, "target": target})

    def find_share() -> float | None:
        return running.metrics().value("fairbind_tenant_dominant_share", tenant=name)

    wait_for(lambda: find_share() == 1 / 4, describe="the device to count")
    wait_for(lambda: find_condition(api.get(f"{pods}/asks")).get("reason") == "NotSupported", describe="the reason")
    assert f"DeviceClass {devices.name} serves by claims" in find_condition(api.get(f"{pods}/asks"))["message"]
    api.delete(f"{pods}/holds", gracePeriodSeconds=0)
    wait_for(lambda: find_share() == 0.0, describe="the device to be given back")
