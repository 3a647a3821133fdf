"""What a pod holds, compared with what `kubectl describe node` says of the same pod on the real API server.

Every shape of pod has a node of its own, so the node's "Allocated resources" are the pod's. kubectl counts from the
spec alone; for a pod that is being resized, what its node still holds counts too, so that one is tested apart.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.utils import parse_quantity

from e2e.caches import LiveCache
from e2e.conftest import remove, remove_namespace
from e2e.objects import IMAGE, make_name, make_pod
from e2e.waiting import wait_for
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from e2e.api import Json
    from e2e.clusters import Cluster

pytestmark = pytest.mark.local_plane

DONGLE = "example.com/dongle"
ALLOCATABLE = {
    "cpu": "64",
    "memory": "512Gi",
    "ephemeral-storage": "500Gi",
    "pods": "110",
    "hugepages-2Mi": "4Gi",
    DONGLE: "8",
}


def container(
    name: str, requests: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None, **rest: Any
) -> Json:
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {"name": name, "image": IMAGE, "resources": resources, **rest}


def sidecar(name: str, requests: Mapping[str, str]) -> Json:
    return container(name, requests, restartPolicy="Always")


def shape(*containers: Json, **spec: Any) -> Json:
    return make_pod(containers=list(containers) or [container("main", {"cpu": "1", "memory": "1Gi"})], **spec)


ONE = container("one", {"cpu": "500m", "memory": "256Mi"})
HUGE = {"hugepages-2Mi": "128Mi", "memory": "64Mi", "cpu": "100m"}

SHAPES: dict[str, Json] = {
    "requests": shape(ONE),
    "nothing": shape(container("main")),
    "limits-only": shape(container("main", None, {"cpu": "2", "memory": "1Gi"})),
    "some-limits": shape(container("main", {"cpu": "1"}, {"cpu": "2", "memory": "3Gi", "ephemeral-storage": "5Gi"})),
    "containers": shape(ONE, container("two", {"cpu": "1500m"}), container("three", {"memory": "1G"})),
    "many-containers": shape(*(container(f"c{i}", {"cpu": "10m", "memory": "1Mi"}) for i in range(200))),
    "init-larger": shape(
        ONE, initContainers=[container("i", {"cpu": "3", "memory": "1Mi"}), container("j", {"memory": "2Gi"})]
    ),
    "init-smaller": shape(ONE, initContainers=[container("i", {"cpu": "100m"})]),
    "sidecar-first": shape(
        ONE, initContainers=[sidecar("s", {"cpu": "1", "memory": "1Gi"}), container("i", {"cpu": "4"})]
    ),
    "sidecar-last": shape(
        ONE, initContainers=[container("i", {"cpu": "4"}), sidecar("s", {"cpu": "1", "memory": "1Gi"})]
    ),
    "sidecars-around": shape(
        ONE,
        initContainers=[
            sidecar("s", {"cpu": "1"}),
            container("i", {"cpu": "2", "memory": "8Gi"}),
            sidecar("t", {"cpu": "3"}),
            container("j", {"cpu": "250m"}),
        ],
    ),
    "pod-level": shape(
        ONE, container("two", {"ephemeral-storage": "1Gi"}), resources={"requests": {"cpu": "3", "memory": "2Gi"}}
    ),
    "pod-level-partly": shape(ONE, resources={"requests": {"cpu": "3"}, "limits": {"memory": "4Gi"}}),
    "pod-level-limits": shape(container("main"), resources={"limits": {"cpu": "3", "memory": "2Gi"}}),
    "huge-pages": shape(container("main", HUGE, {"hugepages-2Mi": "128Mi"})),
    "extended": shape(container("main", {DONGLE: "3", "cpu": "1"}, {DONGLE: "3"})),
    "storage": shape(container("main", {"ephemeral-storage": "1.5Gi"})),
    "fractions": shape(container("main", {"cpu": "0.001", "memory": "1500k"}), container("b", {"memory": "0.5Ki"})),
    "exponents": shape(container("main", {"cpu": "1e0", "memory": "12e6"})),
    "overhead": shape(ONE),
    "overhead-pod-level": shape(ONE, resources={"requests": {"cpu": "3", "memory": "2Gi"}}),
    "terminating": shape(ONE),
    "succeeded": shape(ONE),
    "failed": shape(ONE),
    "resized-up": shape(container("main", {"cpu": "1", "memory": "1Gi"})),
}
OVERHEAD = ("overhead", "overhead-pod-level")
FINISHED = {"succeeded": "Succeeded", "failed": "Failed"}


class Scene:
    """All shapes on their nodes, and a cache that looks at them."""

    def __init__(self, cluster: Cluster, namespace: str, cache: LiveCache) -> None:
        self.cluster = cluster
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.cache = cache
        self.node_prefix = namespace

    def node(self, name: str) -> str:
        return f"{self.node_prefix}-{name}"

    def change(self, name: str, change: Json, subresource: str = "") -> None:
        self.cluster.api.patch(f"{self.path}/{name}{subresource}", change)

    def describe(self, name: str) -> dict[str, int]:
        """The requests that kubectl counts on a node, base units; without zeros."""
        text = self.cluster.kubectl("describe", "node", self.node(name))
        table = text.split("Allocated resources:", 1)[1].split("Events:", 1)[0]
        found: dict[str, int] = {}
        for resource, amount in re.findall(r"^  ([a-z][\w./-]*) +(\S+) ", table, flags=re.MULTILINE):
            value = parse_quantity(amount) * (1000 if resource == "cpu" else 1)
            if value:
                found[resource] = math.ceil(value)
        return found


@pytest.fixture(scope="module")
def scene(cluster: Cluster) -> Iterator[Scene]:
    api, namespace, runtime = cluster.api, make_name("demand"), make_name("heavy")
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for(lambda: api.exists(account), describe="the namespace's service account")
    runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    api.post(runtimes, {"metadata": {"name": runtime}, "handler": "heavy", "overhead": overhead})
    nodes = [f"{namespace}-{name}" for name in SHAPES]
    try:
        for node in nodes:
            api.post("/api/v1/nodes", make_node(node, allocatable=ALLOCATABLE))
        with LiveCache(cluster.operator_kubeconfig()) as cache:
            made = Scene(cluster, namespace, cache)
            make_pods(made, runtime)
            wait_for(lambda: cache.ask(lambda m: set(nodes) <= set(m.build_snapshot().servers.names)))
            yield made
            made.change("terminating", {"metadata": {"finalizers": None}})
    finally:
        remove_namespace(api, namespace)
        for node in nodes:
            remove(api, f"/api/v1/nodes/{node}")
        remove(api, f"{runtimes}/{runtime}")


def make_pods(scene: Scene, runtime: str) -> None:
    api = scene.cluster.api
    for name, pod in SHAPES.items():
        spec = {**pod["spec"], "nodeName": scene.node(name)}
        if name in OVERHEAD:
            spec["runtimeClassName"] = runtime
        finalizers = ["example.com/stay"] if name == "terminating" else []
        api.post(scene.path, {**pod, "metadata": {"name": name, "finalizers": finalizers}, "spec": spec})
    api.delete(f"{scene.path}/terminating")
    for name, phase in FINISHED.items():
        wait_running(scene, name)
        scene.change(name, {"status": {"phase": phase}}, "/status")
    wait_running(scene, "resized-up")
    report_held(scene, resources={"requests": {"cpu": "1", "memory": "1Gi"}})
    resources = {"requests": {"cpu": "2", "memory": "3Gi"}}
    strategic = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    api.patch(f"{scene.path}/resized-up/resize", strategic, "strategic")


def wait_running(scene: Scene, name: str) -> None:
    path = f"{scene.path}/{name}"
    wait_for(lambda: scene.cluster.api.get(path)["status"]["phase"] == "Running", describe=f"{name} to run")


def report_held(scene: Scene, **held: Any) -> None:
    """Say, as a kubelet would, what the container of the pod that is resized holds."""
    (status,) = scene.cluster.api.get(f"{scene.path}/resized-up")["status"]["containerStatuses"]
    scene.change("resized-up", {"status": {"containerStatuses": [{**status, **held}]}}, "/status")


@pytest.mark.parametrize("name", SHAPES)
def test_a_pod_holds_what_kubectl_says(scene: Scene, name: str) -> None:
    described = scene.describe(name)
    expected = described if name in FINISHED else {**described, "pods": 1}
    wait_for(lambda: scene.cache.find_held(scene.node(name)) == expected, describe=lambda: explain(scene, name))
    assert bool(described) is (name not in {*FINISHED, "nothing"})


def explain(scene: Scene, name: str) -> str:
    return f"{name}: kubectl says {scene.describe(name)}, the cache {scene.cache.find_held(scene.node(name))}"


@pytest.mark.parametrize("field", ["resources", "allocatedResources"])
def test_a_pod_that_shrinks_holds_what_its_node_has_not_let_go(scene: Scene, field: str) -> None:
    node = scene.node("resized-up")
    held = {"cpu": "5"}
    report_held(scene, **{field: {"requests": held} if field == "resources" else held})
    wait_for(lambda: scene.cache.find_held(node).get("cpu") == 5000, describe="what the node holds")
    report_held(scene, resources={"requests": {"cpu": "2"}}, allocatedResources={"cpu": "2"})
    wait_for(lambda: scene.cache.find_held(node).get("cpu") == 2000, describe="the end of the resize")
