"""Pods with claims on the real API server, whose own controllers bind them: where such pods go, or why they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.conftest import remove
from e2e.objects import make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, create_pods, delete_pods, find_condition
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator

pytestmark = pytest.mark.oldest_kubernetes

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
PLACE = "example.com/place"
LOCAL = "kubernetes.io/no-provisioner"
SELECTED = "volume.kubernetes.io/selected-node"
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110"}


class Storage:
    """Volumes, classes and claims of one test, in one namespace, and pods that use them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.storage_class = make_name("class")
        self.driver = f"{self.storage_class}.example.com"
        self.made: list[str] = []

    @property
    def claims(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"

    def make(self, path: str, item: Json) -> str:
        self.api.post(path, item)
        name: str = item["metadata"]["name"]
        self.made.append(f"{path}/{name}")
        return name

    def make_class(self, mode: str, provisioner: str = "", *, allowed: str = "") -> None:
        """Say when claims are bound, and by whom volumes are made. allowed: only for nodes in this place."""
        meta = {"name": self.storage_class}
        made: Json = {"metadata": meta, "provisioner": provisioner or self.driver, "volumeBindingMode": mode}
        if allowed:
            made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": PLACE, "values": [allowed]}]}]
        self.make(CLASSES, made)

    def make_volume(self, *places: str, mode: str = "ReadWriteOnce", claim: Json | None = None) -> str:
        """A volume that can be reached from nodes in these places, or from everywhere. claim: whom it is for."""
        name = make_name("volume")
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": self.storage_class,
            "csi": {"driver": self.driver, "volumeHandle": name},
        }
        if claim is not None:
            meta = claim["metadata"]
            spec["claimRef"] = {key: meta[key] for key in ("namespace", "name", "uid")}
        if places:
            expression = {"key": PLACE, "operator": "In", "values": list(places)}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        return self.make(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    def make_claim(self, volume: str = "", *, name: str | None = None, mode: str = "ReadWriteOnce") -> str:
        name = name or make_name("claim")
        spec = {
            "storageClassName": self.storage_class,
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": volume} if volume else {}),
        }
        self.api.post(self.claims, {"metadata": {"name": name}, "spec": spec})
        return name

    def get_claim(self, name: str) -> Json:
        found: Json = self.api.get(f"{self.claims}/{name}")
        return found

    def find_selected(self, claim: str) -> str | None:
        """The node for which a volume for a claim is to be made."""
        found: str | None = self.get_claim(claim)["metadata"].get("annotations", {}).get(SELECTED)
        return found

    def provide(self, claim: str, place: str) -> None:
        """Make a volume for a claim, as a provisioner does that has seen the node."""
        self.make_volume(place, claim=self.get_claim(claim))

    def make_pod(self, *claims: str, **spec: Any) -> str:
        volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
        (name,) = create_pods(self.api, self.namespace, [make_pod(SMALL, **({"volumes": volumes} | spec))])
        return name

    def find_node(self, pod: str) -> str | None:
        node: str | None = self._get(pod)["spec"].get("nodeName")
        return node

    def find_nominated(self, pod: str) -> str | None:
        node: str | None = self._get(pod)["status"].get("nominatedNodeName")
        return node

    def find_condition(self, pod: str) -> Json:
        found: Json = find_condition(self._get(pod))
        return found

    def wait_bound(self, pod: str) -> str:
        return str(wait_for(lambda: self.find_node(pod), describe=lambda: f"a node: {self.find_condition(pod)}"))

    def wait_told(self, pod: str, words: str, reason: str) -> None:
        """Wait until a pod waits with this condition."""

        def is_told() -> bool:
            condition = self.find_condition(pod)
            return words in condition.get("message", "") and condition.get("reason") == reason

        wait_for(is_told, describe=lambda: f"{words!r} in {self.find_condition(pod)}")
        assert not self.find_node(pod)

    def _get(self, pod: str) -> Json:
        found: Json = self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{pod}")
        return found


@pytest.fixture
def storage(api: Api, namespace: MakeNamespace) -> Iterator[Storage]:
    made = Storage(api, namespace())
    yield made
    for path in made.made:
        remove(api, path)


@pytest.fixture
def places(nodes: MakeNodes) -> dict[str, str]:
    """A node here and one there."""
    names = {place: make_name(place) for place in ("here", "there")}
    nodes([make_node(name, allocatable=ROOM, labels={PLACE: place}) for place, name in names.items()])
    return names


def test_pods_go_to_their_volumes_as_soon_as_these_are_bound(
    storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    storage.make_class("Immediate")
    late, plain = make_name("claim"), storage.make_pod()
    operator()
    missing = storage.make_pod(late)
    claims = [storage.make_claim(storage.make_volume(place)) for place in (*places, "there")]
    both, bound = storage.make_pod(*claims[:2]), storage.make_pod(claims[2])
    for claim in claims:  # a free volume would be bound to the claim that names none
        wait_for(lambda found=claim: storage.get_claim(found)["status"]["phase"] == "Bound", describe="a bound claim")  # type: ignore[misc]

    assert storage.wait_bound(bound) == places["there"]
    storage.wait_bound(plain)
    storage.wait_told(missing, f'persistentvolumeclaim "{late}" not found', "ClaimNotReady")
    storage.wait_told(both, "node(s) didn't match PersistentVolume's node affinity", "Unschedulable")
    storage.make_claim(storage.make_volume("here"), name=late)
    assert storage.wait_bound(missing) == places["here"]
    unbound = storage.make_pod(storage.make_claim())  # not before: it would take the free volume that `late` names
    storage.wait_told(unbound, "pod has unbound immediate PersistentVolumeClaims", "ClaimNotReady")
    storage.make_volume("there")  # Kubernetes binds it to the claim that names none
    assert storage.wait_bound(unbound) == places["there"]
    never(lambda: storage.find_node(both), 0.5, "a pod was bound away from one of its volumes")


def test_a_node_that_comes_to_reach_a_volume_takes_its_pod(
    api: Api, storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    storage.make_class("Immediate")
    operator()
    pod = storage.make_pod(storage.make_claim(storage.make_volume("elsewhere")))

    storage.wait_told(pod, "didn't match PersistentVolume's node affinity", "Unschedulable")
    api.patch(f"/api/v1/nodes/{places['there']}", {"metadata": {"labels": {PLACE: "elsewhere"}}})
    assert storage.wait_bound(pod) == places["there"]


def test_an_ephemeral_volume_is_waited_for(storage: Storage, places: dict[str, str], operator: StartOperator) -> None:
    storage.make_class("Immediate")
    operator()
    template = {
        "storageClassName": storage.storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": template}}}
    pod = storage.make_pod(volumes=[volume])

    storage.wait_told(pod, "pod has unbound immediate PersistentVolumeClaims", "ClaimNotReady")
    storage.make_volume("there")
    assert storage.wait_bound(pod) == places["there"]


@pytest.mark.usefixtures("places")
def test_a_claim_for_one_pod_goes_from_one_to_the_next(api: Api, storage: Storage, operator: StartOperator) -> None:
    storage.make_class("Immediate")
    mode = "ReadWriteOncePod"
    claim = storage.make_claim(storage.make_volume(mode=mode), mode=mode)
    operator()
    pods = [storage.make_pod(claim) for _ in range(3)]

    def find_bound() -> list[str]:
        return [pod for pod in pods if storage.find_node(pod)]

    while pods:
        wait_for(find_bound, describe="one of them to be bound")
        for pod in pods:
            if pod not in find_bound():
                storage.wait_told(pod, "ReadWriteOncePod access mode already in-use", "ClaimNotReady")
        (user,) = find_bound()
        pods.remove(user)
        delete_pods(api, storage.namespace, [user])


def test_a_node_takes_no_more_volumes_than_its_driver_says(
    api: Api, storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    storage.make_class("Immediate")
    for name, count in zip(places.values(), (1, 2), strict=True):
        driver = {"name": storage.driver, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
        storage.make(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": [driver]}})
    claims = [storage.make_claim(storage.make_volume()) for _ in range(4)]
    operator()
    pods = [storage.make_pod(claim) for claim in claims]

    def find_nodes() -> list[str]:
        return sorted(node for pod in pods if (node := storage.find_node(pod)))

    wait_for(
        lambda: find_nodes() == sorted([places["here"], places["there"], places["there"]]), describe="three to be bound"
    )
    (waiting,) = [pod for pod in pods if not storage.find_node(pod)]
    storage.wait_told(waiting, "2 node(s) exceed max volume count", "Unschedulable")
    (there, *_) = [pod for pod in pods if storage.find_node(pod) == places["there"]]
    delete_pods(api, storage.namespace, [there])
    pods.remove(there)
    assert storage.wait_bound(waiting) == places["there"]


def test_a_claim_that_waits_for_its_pod_gets_a_volume_that_is_there(
    storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    storage.make_class("WaitForFirstConsumer", LOCAL)
    operator()
    claims = [storage.make_claim() for _ in range(2)]
    pods = [storage.make_pod(claim) for claim in claims]
    for pod in pods:
        storage.wait_told(pod, "2 node(s) didn't find available persistent volumes to bind", "Unschedulable")

    volume = storage.make_volume("there")
    wait_for(lambda: any(map(storage.find_node, pods)), describe="one of them to be bound")
    (lucky,) = [pod for pod in pods if storage.find_node(pod)]
    assert storage.find_node(lucky) == places["there"]
    assert storage.get_claim(claims[pods.index(lucky)])["spec"]["volumeName"] == volume
    (other,) = [pod for pod in pods if pod != lucky]
    never(lambda: storage.find_node(other), 0.5, "a pod was bound without a volume")
    storage.make_volume("here")
    assert storage.wait_bound(other) == places["here"]


def test_a_volume_is_made_for_the_node_of_a_pod_before_the_pod_is_bound(
    storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    storage.make_class("WaitForFirstConsumer", allowed="there")
    operator()
    claim = storage.make_claim()
    pod = storage.make_pod(claim)

    wait_for(lambda: storage.find_selected(claim), describe="a node to be selected")
    assert storage.find_selected(claim) == places["there"]
    never(lambda: storage.find_node(pod), 0.5, "a pod was bound before its claim")
    wait_for(lambda: storage.find_nominated(pod) == places["there"], describe="the pod to say where it waits")
    storage.provide(claim, "there")
    assert storage.wait_bound(pod) == places["there"]
    assert storage.get_claim(claim)["status"]["phase"] == "Bound"


@pytest.mark.usefixtures("places")
def test_nothing_stays_selected_for_a_pod_that_is_gone(api: Api, storage: Storage, operator: StartOperator) -> None:
    storage.make_class("WaitForFirstConsumer")
    operator()
    claim = storage.make_claim()
    pod = storage.make_pod(claim)
    wait_for(lambda: storage.find_selected(claim), describe="a node to be selected")
    delete_pods(api, storage.namespace, [pod])
    wait_for(lambda: not storage.find_selected(claim), describe="the selection to be taken back")


def test_a_stateful_set_gets_a_volume_for_each_of_its_pods(
    api: Api, storage: Storage, places: dict[str, str], operator: StartOperator
) -> None:
    """The operator is killed while volumes are being made, and another one goes on."""
    storage.make_class("WaitForFirstConsumer")
    first = operator()
    template = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": storage.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    pod = make_pod(SMALL)["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec = {
        "serviceName": "db",
        "replicas": 3,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod},
        "volumeClaimTemplates": [template],
    }
    api.post(f"/apis/apps/v1/namespaces/{storage.namespace}/statefulsets", {"metadata": {"name": "db"}, "spec": spec})
    claims = [f"data-db-{number}" for number in range(3)]
    wait_for(lambda: all(map(storage.find_selected, claims)), describe="nodes for all three")
    selected = {claim: storage.find_selected(claim) for claim in claims}
    first.kill()
    operator()
    by_node = {node: place for place, node in places.items()}
    for claim in claims:
        storage.provide(claim, by_node[str(selected[claim])])

    for number, claim in enumerate(claims):
        assert storage.wait_bound(f"db-{number}") == selected[claim]
