"""Affinity, anti-affinity and spread on a real API server: placed, refused with a reason, and woken when that ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from e2e.objects import make_name, make_pod
from e2e.test_operator_constraints import Pods
from e2e.waiting import wait_for
from e2e.workloads import SMALL, create_pods, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110"}


def select(app: str) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}}


def wish(kind: str, app: str, key: str) -> Json:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, **select(app)}]}}}


def spread(app: str) -> Json:
    return {
        "topologySpreadConstraints": [
            {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **select(app)}
        ]
    }


def make_labelled(app: str, **spec: Any) -> Json:
    pod: Json = make_pod(SMALL, **spec)
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), "app": app}
    return pod


def make_zone_node(name: str, zone: str, allocatable: dict[str, str] = ROOM) -> Json:
    node: Json = make_node(name, allocatable=allocatable, labels={ZONE: zone, HOSTNAME: name})
    return node


def find_nodes(api: Api, namespace: str) -> Counter[str]:
    return Counter(pod["spec"]["nodeName"] for pod in list_pods(api, namespace) if pod["spec"].get("nodeName"))


def test_replicas_are_spread_over_zones_and_over_a_new_one(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    stem, mine = make_name("spread"), namespace()
    nodes([make_zone_node(f"{stem}-{zone}", f"{stem}-{zone}") for zone in "abc"])
    create_pods(api, mine, [make_labelled("web", **spread("web")) for _ in range(7)])
    operator()
    wait_for(lambda: find_nodes(api, mine).total() == 7, describe="all replicas to be bound")
    assert sorted(find_nodes(api, mine).values()) == [2, 2, 3]

    nodes([make_zone_node(f"{stem}-d", f"{stem}-d")])
    create_pods(api, mine, [make_labelled("web", **spread("web")) for _ in range(3)])
    wait_for(lambda: find_nodes(api, mine).total() == 10, describe="three more replicas to be bound")
    assert sorted(find_nodes(api, mine).values()) == [2, 2, 3, 3]


def test_more_replicas_that_keep_apart_than_nodes_wait_until_a_node_comes(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    stem = make_name("apart")
    nodes([make_zone_node(f"{stem}-{n}", stem) for n in range(2)])
    pods = Pods(api, namespace())
    operator()
    names = create_pods(
        api, pods.namespace, [make_labelled("db", **wish("podAntiAffinity", "db", HOSTNAME)) for _ in range(3)]
    )
    wait_for(lambda: find_nodes(api, pods.namespace).total() == 2, describe="one on each node")
    (waiting,) = (name for name in names if not pods.find_node(name))
    pods.wait_refused(waiting, "2 node(s) didn't match pod anti-affinity rules")

    nodes([make_zone_node(f"{stem}-2", stem)])
    assert pods.wait_placed(waiting) == f"{stem}-2"


def test_a_pod_waits_for_the_pod_that_it_wants_to_be_with(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    stem = make_name("near")
    nodes([make_zone_node(f"{stem}-{n}", f"{stem}-{n % 2}") for n in range(4)])
    pods = Pods(api, namespace())
    operator()
    (cache,) = create_pods(api, pods.namespace, [make_labelled("cache", **wish("podAffinity", "web", ZONE))])
    pods.wait_refused(cache, "4 node(s) didn't match pod affinity rules")

    create_pods(api, pods.namespace, [make_labelled("web", nodeSelector={HOSTNAME: f"{stem}-3"})])
    assert pods.wait_placed(cache) in {f"{stem}-1", f"{stem}-3"}


def test_shares_of_two_tenants_come_out_right_when_their_pods_are_spread(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    stem, tenants = make_name("two"), [namespace(), namespace()]
    nodes([make_zone_node(f"{stem}-{zone}", f"{stem}-{zone}", {**ROOM, "pods": "8"}) for zone in "abc"])
    for mine in tenants:
        create_pods(api, mine, [make_labelled("web", **spread("web")) for _ in range(20)])
    operator()

    wait_for(lambda: sum(find_nodes(api, mine).total() for mine in tenants) == 24, describe="the nodes to be full")
    for mine in tenants:
        assert sorted(find_nodes(api, mine).values()) == [4, 4, 4]
