"""What administrators do to nodes under running pods, and the shares right afterwards."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING

import pytest

from e2e.checks import is_usable
from e2e.waiting import wait_for
from e2e.workloads import create_pods, find_condition, list_pods
from kind.judge import Picture, check_shares, find_places, find_refusals
from kind.owners import RESEARCH, count_ready, create_deployment, make_kind_pod, make_pod_spec, scale
from kindcluster.commands import KindError
from kindcluster.engine import docker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kind.release import Release
    from kindcluster.cluster import Cluster
    from kindcluster.images import Image

pytestmark = pytest.mark.usefixtures("calm_nodes")

SOME = {"cpu": "20m", "memory": "32Mi"}
FAILURE_SECONDS = 600.0
"""A node is NotReady some 40 to 50 s after its machine has stopped, and again so long after a controller began anew."""
RESTART_SECONDS = 600.0


def read_node(api: Api, name: str) -> Json:
    node: Json = api.get(f"/api/v1/nodes/{name}")
    return node


def count_places_but(api: Api, namespace: str, node: str) -> list[int]:
    """Return how many pods run and stay on other nodes than this one, and how many on this one."""
    places = [*find_places(api, namespace).values()]
    return [len(places) - places.count(node), places.count(node)]


def read_capacity(api: Api) -> float:
    """Return the cores that tenants can hold now."""
    return float(Picture.take(api).capacity()["cpu"])


def test_a_node_is_drained_and_comes_back(
    kind_cluster: Cluster, fairbind_installed: Release, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    create_deployment(api, own, "web", 6, make_pod_spec(SOME))
    wait_for(lambda: count_ready(api, own, "web") == 6, describe="six pods")
    node = find_places(api, own)[min(find_places(api, own))]  # whichever it likes best
    before = check_shares(api, name)[name]["dominantShare"]
    whole = read_capacity(api)

    options = ["--ignore-daemonsets", "--delete-emptydir-data", "--timeout=540s"]
    words = kind_cluster.kubectl("drain", node, *options)
    assert "evicting pod" in words or "drained" in words
    wait_for(lambda: count_places_but(api, own, node) == [6, 0], describe="six pods elsewhere")

    shares = check_shares(api, name)[name]
    assert shares["running"] == 6
    assert read_capacity(api) < whole
    assert shares["dominantShare"] > before  # of less
    assert find_refusals(api, own) == []
    fairbind_installed.wait_leader()

    kind_cluster.kubectl("uncordon", node)
    assert check_shares(api, name)[name]["dominantShare"] < shares["dominantShare"]
    scale(api, own, "web", 0)
    wait_for(lambda: not list_pods(api, own), describe="no pods")
    assert check_shares(api, name)[name]["running"] == 0


@pytest.mark.nightly
def test_nodes_get_labels_and_taints(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    node = kind_cluster.find_worker("small")
    spec = make_pod_spec(SOME, nodeSelector={"test.fairbind.io/disk": "fast"})
    create_deployment(api, own, "picky", 2, spec)
    wait_for(
        lambda: [*map(find_why, list_pods(api, own))].count(True) == 2, describe="both to be told that no node suits"
    )
    shares = check_shares(api, name)[name]
    assert (shares["running"], shares["pending"]) == (0, 2)
    try:
        kind_cluster.kubectl("label", "node", node, "test.fairbind.io/disk=fast")
        wait_for(lambda: count_ready(api, own, "picky") == 2, describe="both to run on the node with the new label")
        assert set(find_places(api, own).values()) == {node}
        assert check_shares(api, name)[name]["running"] == 2

        kind_cluster.kubectl("taint", "node", node, "test.fairbind.io/closed=yes:NoSchedule")
        scale(api, own, "picky", 3)
        create_pods(api, own, [make_tolerant_pod(node)])
        wait_for(lambda: "invited" in find_places(api, own), describe="who tolerates the taint to run there")
        wait_for(lambda: len(list_pods(api, own)) == 4, describe="the third of the others to be made")
        shares = check_shares(api, name)[name]
        assert (shares["running"], shares["pending"]) == (3, 1)  # who runs there stays, who comes new waits

        kind_cluster.kubectl("taint", "node", node, "test.fairbind.io/closed-")
        wait_for(lambda: count_ready(api, own, "picky") == 3, describe="the third to run after the taint is gone")
        kind_cluster.kubectl("label", "node", node, "test.fairbind.io/disk-")
        shares = check_shares(api, name)[name]
        assert (shares["running"], shares["pending"]) == (4, 0)
        assert find_refusals(api, own) == []
    finally:
        undo(kind_cluster, "label", "node", node, "test.fairbind.io/disk-")
        undo(kind_cluster, "taint", "node", node, "test.fairbind.io/closed-")


def find_why(pod: Json) -> bool:
    """Tell whether a pod knows that no node's labels suit it."""
    return "didn't match Pod's node affinity/selector" in find_condition(pod).get("message", "")


def make_tolerant_pod(node: str) -> Json:
    closed = {"key": "test.fairbind.io/closed", "operator": "Exists", "effect": "NoSchedule"}
    hostname = {"kubernetes.io/hostname": node}
    return make_kind_pod(SOME, name="invited", tolerations=[closed], nodeSelector=hostname)


def undo(cluster: Cluster, *words: str) -> None:
    """Take something away that may be gone already."""
    with contextlib.suppress(KindError):
        cluster.kubectl(*words)


@pytest.mark.nightly
def test_a_node_stops_and_starts(
    kind_cluster: Cluster, images: list[Image], api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    """Pods that cannot wait are made anew elsewhere; those that can are back when the node is, at another address."""
    own = namespace()
    name = tenant(namespaces=[own])
    node = kind_cluster.find_worker("special")
    gone = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    patient = make_pod_spec(SOME, tolerations=[RESEARCH], nodeSelector={"fairbind.io/shape": "special"})
    create_deployment(api, own, "patient", 2, patient)
    wait_for(lambda: count_ready(api, own, "patient") == 2, describe="two pods on the node")
    impatient = make_kind_pod(SOME, name="impatient", tolerations=[RESEARCH, gone], nodeName=node)
    create_pods(api, own, [impatient])
    wait_for(lambda: "impatient" in find_places(api, own), describe="a pod that leaves a dead node at once")
    assert check_shares(api, name)[name]["running"] == 3
    whole = read_capacity(api)
    try:
        kind_cluster.stop_node(node)
        wait_for(lambda: not is_usable(read_node(api, node)), FAILURE_SECONDS, "the node to be NotReady", pause=0.5)
        assert read_capacity(api) < whole
        check_shares(api, name)  # the operators know it, too
        create_pods(api, own, [make_kind_pod(SOME, name="elsewhere", tolerations=[RESEARCH])])
        wait_for(lambda: "elsewhere" in find_places(api, own), describe="a new pod to run on another node")
        assert find_places(api, own)["elsewhere"] != node
        shares = check_shares(api, name)[name]
        assert shares["running"] == 4  # nobody knows whether they run on there, so they count
        wait_for(lambda: is_leaving(api, own, "impatient"), describe="the impatient one to be told to leave")
        with taking_address(images[-1]):
            kind_cluster.start_node(node)
    finally:
        kind_cluster.start_node(node)  # if it has not been; otherwise it stays as it is
    kubelet = f"/api/v1/nodes/{node}/proxy/healthz"
    wait_for(lambda: api.get(kubelet) == "ok", RESTART_SECONDS, "its kubelet to be reached at the new address")
    wait_for(lambda: is_usable(read_node(api, node)), RESTART_SECONDS, "the node to be Ready")
    wait_for(lambda: not api.exists(f"/api/v1/namespaces/{own}/pods/impatient"), RESTART_SECONDS, "it to be gone")
    wait_for(lambda: count_ready(api, own, "patient") == 2, RESTART_SECONDS, "both patient pods to be back")

    wait_for(lambda: check_shares(api, name)[name]["running"] == 3, describe="the other three to run")
    wait_for(lambda: read_capacity(api) == whole, describe="all of the room to be there again")
    assert find_refusals(api, own) == []


@contextlib.contextmanager
def taking_address(image: Image) -> Iterator[None]:
    """Have a container in the nodes' network, which takes the address that a stopped node had."""
    container = docker("run", "--detach", "--rm", "--network=kind", image.tag, "-sleep=1h").strip()
    try:
        yield
    finally:
        docker("rm", "--force", container)


def is_leaving(api: Api, namespace: str, name: str) -> bool:
    return "deletionTimestamp" in api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]


@pytest.mark.nightly
def test_one_replica_is_replaced_when_its_node_has_stopped(
    kind_cluster: Cluster, fairbind_installed: Release, api: Api, namespace: MakeNamespace
) -> None:
    """In a minute or two: its pod leaves the node 30 s after Kubernetes has noticed, and not 300 s as others do."""
    own = namespace()
    fairbind_installed.install("--set=replicaCount=1")
    first = fairbind_installed.wait_leader()
    path = f"/api/v1/namespaces/{fairbind_installed.namespace}/pods/{first}"
    node = api.get(path)["spec"]["nodeName"]
    try:
        kind_cluster.stop_node(node)
        fairbind_installed.wait_leader(other_than=first, timeout=FAILURE_SECONDS)
        create_pods(api, own, [make_kind_pod(SOME, name="new")])
        wait_for(lambda: "new" in find_places(api, own), describe="a new pod to run")

        (since,) = [
            dt.datetime.fromisoformat(taint["timeAdded"])
            for taint in read_node(api, node)["spec"]["taints"]
            if taint["key"] == "node.kubernetes.io/unreachable" and taint["effect"] == "NoExecute"
        ]
        metadata = api.get(path)["metadata"]
        ends = dt.datetime.fromisoformat(metadata["deletionTimestamp"])
        told = ends - dt.timedelta(seconds=metadata["deletionGracePeriodSeconds"])
        assert 29.0 <= (told - since).total_seconds() < 150.0
    finally:
        kind_cluster.start_node(node)
        fairbind_installed.install()
