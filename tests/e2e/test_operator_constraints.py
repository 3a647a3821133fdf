"""Where pods may go, on the real API server: all rules that are honoured, and pods whose wishes are not, which wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, create_pods, find_condition
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator

pytestmark = pytest.mark.oldest_kubernetes

SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
DRAINING = {"key": "draining", "value": "", "effect": "NoExecute"}
AVOID = {"key": "avoid", "value": "please", "effect": "PreferNoSchedule"}
HOSTNAME = "kubernetes.io/hostname"


def node_affinity(*expressions: Mapping[str, Any], fields: list[Json] | None = None) -> Json:
    term = {"matchExpressions": list(expressions), **({"matchFields": fields} if fields else {})}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


def matching(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


# The nodes: "a" is plain, "b" has a number, "c" is tainted, "d" is being drained, "e" is cordoned.
PLACES: dict[str, tuple[Json, str]] = {
    "nodeSelector": ({"nodeSelector": {"place": "two"}}, "b"),
    "In": ({"affinity": node_affinity(matching("place", "In", "two", "six"))}, "b"),
    "NotIn": ({"affinity": node_affinity(matching("place", "NotIn", "one"))}, "b"),
    "Exists": ({"affinity": node_affinity(matching("number", "Exists"))}, "b"),
    "DoesNotExist": ({"affinity": node_affinity(matching("number", "DoesNotExist"))}, "a"),
    "Gt": ({"affinity": node_affinity(matching("number", "Gt", "6"))}, "b"),
    "Lt": ({"affinity": node_affinity(matching("number", "Lt", "8"))}, "b"),
    "toleration of a value": (
        {"tolerations": [{"key": "spot", "value": "true", "effect": "NoSchedule"}], "nodeSelector": {"place": "three"}},
        "c",
    ),
    "toleration that exists": (
        {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"place": "four"}},
        "d",
    ),
}
NOWHERE: dict[str, tuple[Json, str]] = {
    "not tolerated": ({"nodeSelector": {"place": "three"}}, "node(s) had untolerated taint(s)"),
    "NoExecute": ({"nodeSelector": {"place": "four"}}, "node(s) had untolerated taint(s)"),
    "cordoned": ({"nodeSelector": {"place": "five"}}, "1 node(s) were unschedulable"),
    "no such label": ({"nodeSelector": {"place": "nine"}}, "node(s) didn't match Pod's node affinity/selector"),
    "required pod affinity": (
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
                    ]
                }
            }
        },
        "node(s) didn't match pod affinity rules",
    ),
    "topology spread": (
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "no-such-label",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ]
        },
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
}


@pytest.fixture
def places(nodes: MakeNodes) -> str:
    """Five nodes; returns the prefix of their names."""
    stem = make_name("place")
    free = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    specs = [
        make_node(f"{stem}-a", allocatable=free, labels={"place": "one"}),
        make_node(f"{stem}-b", allocatable=free, labels={"place": "two", "number": "7"}),
        make_node(f"{stem}-c", allocatable=free, labels={"place": "three"}, taints=[SPOT]),
        make_node(f"{stem}-d", allocatable=free, labels={"place": "four"}, taints=[DRAINING]),
        make_node(f"{stem}-e", allocatable=free, labels={"place": "five"}),
    ]
    nodes(specs)
    return stem


class Pods:
    """The pods of one namespace, made one by one and looked at."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def create(self, spec: Json, **labels: str) -> str:
        pod = make_pod(SMALL, labels=labels)
        pod["spec"] |= spec
        (name,) = create_pods(self.api, self.namespace, [pod])
        return name

    def find_node(self, pod: str) -> str | None:
        node: str | None = self._get(pod)["spec"].get("nodeName")
        return node

    def find_reason(self, pod: str) -> str:
        return str(find_condition(self._get(pod)).get("message", ""))

    def wait_placed(self, pod: str) -> str:
        return str(wait_for(lambda: self.find_node(pod), describe=f"{pod} to be bound"))

    def wait_refused(self, pod: str, reason: str) -> None:
        wait_for(lambda: reason in self.find_reason(pod), describe=lambda: f"{reason!r} in {self.find_reason(pod)!r}")
        assert not self.find_node(pod)

    def _get(self, pod: str) -> Json:
        found: Json = self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{pod}")
        return found


def test_pods_go_only_where_they_may(api: Api, places: str, namespace: MakeNamespace, operator: StartOperator) -> None:
    """All at once, so that one that waits can be seen to block no other."""
    pods = Pods(api, namespace())
    api.patch(f"/api/v1/nodes/{places}-e", {"spec": {"unschedulable": True}})
    operator()
    refused = {pods.create(spec): reason for spec, reason in NOWHERE.values()}
    by_name = {"affinity": node_affinity(fields=[matching("metadata.name", "In", f"{places}-b")])}
    placed = {pods.create(spec): end for spec, end in [*PLACES.values(), (by_name, "b")]}
    for pod, end in placed.items():
        assert pods.wait_placed(pod) == f"{places}-{end}"
    for pod, reason in refused.items():
        pods.wait_refused(pod, reason)
    api.patch(f"/api/v1/nodes/{places}-e", {"spec": {"unschedulable": None}})
    uncordoned = next(pod for pod, reason in refused.items() if "unschedulable" in reason)
    assert pods.wait_placed(uncordoned) == f"{places}-e"


def test_soft_wishes_rank_before_fit(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    stem = make_name("soft")
    roomy, tight = {"cpu": "64", "memory": "256Gi", "pods": "110"}, {"cpu": "8", "memory": "8Gi", "pods": "110"}
    nodes(
        [
            make_node(f"{stem}-fits-best", allocatable=tight, taints=[AVOID]),
            make_node(f"{stem}-liked", allocatable=roomy, labels={"liked": "yes"}),
            make_node(f"{stem}-plain", allocatable=tight),
        ]
    )
    pods = Pods(api, namespace())
    operator()
    preferred = [{"weight": 50, "preference": {"matchExpressions": [matching("liked", "In", "yes")]}}]
    liking = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert pods.wait_placed(pods.create({"affinity": liking})) == f"{stem}-liked"
    assert pods.wait_placed(pods.create({})) == f"{stem}-plain"


def test_soft_wishes_about_other_pods_and_images_rank_before_fit(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    """One node suits every pod best; it has a pod that some keep away from, and another node what others look for."""
    stem, image = make_name("soft"), "registry.example/large:1"
    roomy, tight = {"cpu": "64", "memory": "64Gi", "pods": "110"}, {"cpu": "16", "memory": "16Gi", "pods": "110"}
    full, liked, _ = nodes(
        [make_node(f"{stem}-full", allocatable=tight, zone="zone-1")]
        + [make_node(f"{stem}-{name}", allocatable=roomy, zone="zone-2") for name in ("liked", "plain")]
    )
    listed = [{"names": [image], "sizeBytes": 20 * 10**9}]
    api.patch(f"/api/v1/nodes/{liked}/status", {"status": {"images": listed}})
    pods = Pods(api, namespace())
    pods.create({"nodeName": full}, app="crowd")
    pods.create({"nodeName": liked}, app="friend")
    operator()
    assert pods.wait_placed(pods.create({})) == full

    def prefer(kind: str, app: str) -> Json:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
        weighted = [{"weight": 10, "podAffinityTerm": term}]
        return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}

    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "crowd"}},
    }
    container = make_pod(SMALL)["spec"]["containers"][0] | {"image": image}
    assert pods.wait_placed(pods.create(prefer("podAffinity", "friend"))) == liked
    assert pods.wait_placed(pods.create({"containers": [container]})) == liked
    assert pods.wait_placed(pods.create(prefer("podAntiAffinity", "crowd"))) != full
    assert pods.wait_placed(pods.create({"topologySpreadConstraints": [spread]})) != full


def test_host_ports_gates_and_pods_that_name_their_node(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    first, second = nodes(2)
    pods = Pods(api, namespace())
    operator()

    def with_port(**port: str) -> Json:
        spec = make_pod({"cpu": "100m", "memory": "64Mi"})["spec"]
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080, **port}]
        return {"containers": spec["containers"]}

    ports = [pods.create(with_port()), pods.create(with_port(hostIP="127.0.0.1")), pods.create(with_port())]
    gated = pods.create({"schedulingGates": [{"name": "example.com/later"}]})
    named = pods.create({"nodeName": first})

    def find_placed() -> list[str]:
        return sorted(node for pod in ports if (node := pods.find_node(pod)))

    wait_for(lambda: find_placed() == sorted([first, second]), describe="one of them on each node")
    (waiting,) = [pod for pod in ports if not pods.find_node(pod)]
    pods.wait_refused(waiting, "2 node(s) didn't have free ports for the requested pod ports")
    assert pods.find_node(named) == first
    never(lambda: pods.find_node(gated), 0.5, "a gated pod was bound")
    api.patch(f"/api/v1/namespaces/{pods.namespace}/pods/{gated}", {"spec": {"schedulingGates": []}})
    pods.wait_placed(gated)
