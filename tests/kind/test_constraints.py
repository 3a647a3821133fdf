"""What keeps pods apart, spreads them and ties them to volumes, with kubelets that mount and real nodes that close."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.objects import make_name
from e2e.waiting import wait_for
from e2e.workloads import find_condition, list_pods
from kind.judge import check_shares, find_places, find_refusals
from kind.owners import (
    RESEARCH,
    STATEFUL_SETS,
    count_ready,
    create_deployment,
    create_stateful_set,
    make_pod_spec,
    scale,
)
from kind.workloads import make_container

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kindcluster.cluster import Cluster

pytestmark = pytest.mark.usefixtures("calm_nodes")

SOME = {"cpu": "20m", "memory": "32Mi"}
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
APP = {"labelSelector": {"matchLabels": {"app": "web"}}}


class Disks:
    """Volumes on the workers' own disks, of one storage class, which claims get when their pods have nodes."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self.storage_class = make_name("disks")
        self._cluster = cluster
        self._api = api
        self._made: list[str] = []
        spec = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        self._make(CLASSES, {"metadata": {"name": self.storage_class}, **spec})

    def add(self, node: str) -> None:
        """Give a worker one more."""
        name = make_name("disk")
        path = f"/var/local/{name}"
        self._cluster.docker("exec", node, "mkdir", "-p", path)
        expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": self.storage_class,
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        self._make(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    def remove(self) -> None:
        """Take all away."""
        for path in self._made:
            remove(self._api, path)

    def _make(self, path: str, item: Json) -> None:
        self._api.post(path, item)
        self._made.append(f"{path}/{item['metadata']['name']}")


@pytest.fixture
def disks(kind_cluster: Cluster, api: Api) -> Iterator[Disks]:
    made = Disks(kind_cluster, api)
    yield made
    made.remove()


def find_waits(api: Api, namespace: str) -> list[str]:
    """Return what is said of the pods that wait for a node."""
    waiting = [pod for pod in list_pods(api, namespace) if not pod["spec"].get("nodeName")]
    return [find_condition(pod).get("message", "") for pod in waiting]


def wait_told(api: Api, namespace: str, *words: str) -> None:
    """Wait until one pod waits, and its message says all this."""

    def is_told() -> bool:
        told = find_waits(api, namespace)
        return len(told) == 1 and all(each in told[0] for each in words)

    wait_for(is_told, describe=lambda: f"one pod to be told {words}: {find_waits(api, namespace)}")


@pytest.mark.nightly
def test_a_stateful_set_has_a_disk_of_its_node_for_each_pod(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant, disks: Disks
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    for node in kind_cluster.workers():
        disks.add(node)
    container = make_container(requests=SOME) | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = make_pod_spec(containers=[container], tolerations=[{**RESEARCH}])
    create_stateful_set(api, own, "db", 3, spec, storage_class=disks.storage_class)
    wait_for(lambda: len(find_places(api, own)) == 3, describe="all three to run")
    places = find_places(api, own)
    assert sorted(places.values()) == sorted(kind_cluster.workers())  # each has one volume

    remove(api, f"/api/v1/namespaces/{own}/pods/db-1")
    wait_for(lambda: find_places(api, own) == places, describe="the second to be back where its volume is")
    api.patch(f"{STATEFUL_SETS.format(own)}/db", {"spec": {"replicas": 4}})
    wait_told(api, own, "3 node(s) didn't find available persistent volumes to bind")
    assert check_shares(api, name)[name]["pending"] == 1
    node = kind_cluster.find_worker("large")
    disks.add(node)
    wait_for(lambda: find_places(api, own) == places | {"db-3": node}, describe="the fourth to run on the new volume")
    assert find_refusals(api, own) == []


@pytest.mark.nightly
def test_a_deployment_is_spread_over_zones_while_a_node_closes_and_opens(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    alone = kind_cluster.find_worker("large")  # in its zone
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **APP}
    spec = make_pod_spec(SOME, topologySpreadConstraints=[spread], tolerations=[{**RESEARCH}])

    def count_zones() -> list[int]:
        nodes = Counter(find_places(api, own).values())
        return [nodes[alone], nodes.total() - nodes[alone]]

    create_deployment(api, own, "web", 4, spec)
    wait_for(lambda: count_ready(api, own, "web") == 4, describe="four pods")
    assert count_zones() == [2, 2]
    kind_cluster.kubectl("cordon", alone)
    scale(api, own, "web", 6)
    wait_told(api, own, "node(s) didn't match pod topology spread constraints", "1 node(s) were unschedulable")
    wait_for(lambda: count_zones() == [2, 3], describe="one more in the other zone")
    assert check_shares(api, name)[name]["pending"] == 1

    kind_cluster.kubectl("uncordon", alone)
    wait_for(lambda: count_zones() == [3, 3], describe="the last where it keeps the zones even")
    assert find_refusals(api, own) == []


@pytest.mark.nightly
def test_of_more_replicas_that_keep_apart_than_nodes_one_waits_for_a_node(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    closed = kind_cluster.find_worker("small")
    kind_cluster.kubectl("cordon", closed)
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, **APP}]}}
    create_deployment(api, own, "web", 3, make_pod_spec(SOME, affinity=apart, tolerations=[{**RESEARCH}]))
    wait_told(api, own, "2 node(s) didn't match pod anti-affinity rules", "1 node(s) were unschedulable")
    wait_for(lambda: len(find_places(api, own)) == 2, describe="two to run")
    shares = check_shares(api, name)[name]
    assert (shares["running"], shares["pending"]) == (2, 1)

    kind_cluster.kubectl("uncordon", closed)
    wait_for(lambda: len(find_places(api, own)) == 3, describe="the third to run")
    assert sorted(find_places(api, own).values()) == sorted(kind_cluster.workers())
    assert find_refusals(api, own) == []
