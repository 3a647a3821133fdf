"""fairbind's filters against kube-scheduler's own, on worlds at random: docs/reliability/differential.md."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from differential.compare import (
    NOMINATED_PORTS,
    NOT_OFFERED,
    NOT_READY,
    ON_PURPOSE,
    RESIZED,
    Asked,
    Difference,
    ask_oracle,
    compare,
)
from differential.generate import World
from differential.main import draw_worlds, play_sequence
from differential.oracle import Oracle, run_oracle

Json = dict[str, Any]

WORLDS = 350
LEAST_CASES = 1000
SEQUENCES = 30
MOST_SHOWN = 5


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """kube-scheduler's filters."""
    with run_oracle() as running:
        yield running


@pytest.fixture(scope="module")
def worlds(oracle: Oracle) -> list[Asked]:
    """The worlds that CI looks at."""
    return list(draw_worlds(oracle, range(WORLDS)))


def list_faults(differences: Iterator[Difference]) -> list[Difference]:
    return [difference for difference in differences if not difference.why]


def test_a_thousand_pods_may_go_where_kube_scheduler_would_place_them(worlds: list[Asked]) -> None:
    found = [difference for asked in worlds for difference in compare(asked)]

    assert sum(len(asked.waiting) for asked in worlds) >= LEAST_CASES
    assert list_faults(iter(found))[:MOST_SHOWN] == []
    assert {difference.why for difference in found} <= set(ON_PURPOSE)


def test_the_cases_are_of_all_kinds(worlds: list[Asked]) -> None:
    plugins = Counter[str]()
    feasible = Counter[int]()
    for asked in worlds:
        for verdict in asked.verdicts:
            plugins.update({refusal.plugin for refusal in verdict.values() if refusal is not None})
            feasible[min(3, sum(refusal is None for refusal in verdict.values()))] += 1

    named = (
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "InterPodAffinity",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "NodeDeclaredFeatures",
    )
    assert {plugin: plugins[plugin] for plugin in named if plugins[plugin] < 20} == {}
    assert min(feasible.values()) > 30, feasible


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_placements_one_after_the_other_leave_the_same_nodes(oracle: Oracle, seed: int) -> None:
    assert list_faults(play_sequence(oracle, seed)) == []


def without(*path: str) -> Callable[[Json], Json]:
    """Return a function that takes a field away from an object."""

    def take_away(thing: Json) -> Json:
        copied = copy.deepcopy(thing)
        _take(copied, path)
        return copied

    return take_away


def _take(part: Any, path: tuple[str, ...]) -> None:
    if isinstance(part, list):
        for item in part:
            _take(item, path)
    elif isinstance(part, dict) and len(path) == 1:
        part.pop(path[0], None)
    elif isinstance(part, dict):
        _take(part.get(path[0]), path[1:])


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = ("spec", "affinity", "podAntiAffinity", REQUIRED)
BLIND = {
    "cordons": without("spec", "unschedulable"),
    "features of kubelets": without("status", "declaredFeatures"),
    "needs of such features": without("spec", "containers", "restartPolicyRules"),
    "taints": without("spec", "taints"),
    "tolerations": without("spec", "tolerations"),
    "values of tolerations": without("spec", "tolerations", "value"),
    "effects of tolerations": without("spec", "tolerations", "effect"),
    "labels": without("metadata", "labels"),
    "node selectors": without("spec", "nodeSelector"),
    "required node affinity": without("spec", "affinity", "nodeAffinity", REQUIRED),
    "fields in node affinity": without(
        "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", "matchFields"
    ),
    "host ports": without("spec", "containers", "ports"),
    "addresses of host ports": without("spec", "containers", "ports", "hostIP"),
    "protocols of host ports": without("spec", "containers", "ports", "protocol"),
    "requests": without("spec", "containers", "resources"),
    "init containers": without("spec", "initContainers"),
    "sidecars": without("spec", "initContainers", "restartPolicy"),
    "overhead": without("spec", "overhead"),
    "resources of whole pods": without("spec", "resources"),
    "resizes": without("status", "containerStatuses"),
    "slots": without("status", "allocatable", "pods"),
    "nominations": without("status", "nominatedNodeName"),
    "priorities": without("spec", "priority"),
    "anti-affinity": without(*TERMS),
    "namespaces of anti-affinity": without(*TERMS, "namespaces"),
    "namespace selectors of anti-affinity": without(*TERMS, "namespaceSelector"),
    "phases": without("status", "phase"),
    "claims": without("spec", "volumes", "persistentVolumeClaim"),
    "ephemeral claims": without("spec", "volumes", "ephemeral"),
    "annotations of claims": without("metadata", "annotations"),
    "states of claims": without("status", "phase"),
    "deletions": without("metadata", "deletionTimestamp"),
    "owners of claims": without("metadata", "ownerReferences"),
    "access modes of claims": without("spec", "accessModes"),
    "volumes of claims": without("spec", "volumeName"),
    "node affinity of volumes": without("spec", "nodeAffinity"),
    "drivers of volumes": without("spec", "csi"),
    "binding modes": without("volumeBindingMode"),
    "limits of drivers": without("spec", "drivers", "allocatable"),
    "drivers of nodes": without("spec", "drivers"),
    "drivers that must be installed": without("spec", "preventPodSchedulingIfMissing"),
    "attachments": without("spec", "attacher"),
    "sizes of volumes": without("spec", "capacity"),
    "selectors of claims": without("spec", "selector"),
    "modes of volumes": without("spec", "volumeMode"),
    "claims of volumes": without("spec", "claimRef"),
    "classes of claims and volumes": without("spec", "storageClassName"),
    "provisioners": without("provisioner"),
    "topologies of classes": without("allowedTopologies"),
    "drivers that tell their room": without("spec", "storageCapacity"),
    "room of drivers": without("capacity"),
    "nodes of rooms": without("nodeTopology"),
    "largest volumes": without("maximumVolumeSize"),
}


@pytest.mark.parametrize("what", BLIND)
def test_what_is_not_looked_at_is_noticed(worlds: list[Asked], what: str) -> None:
    """As if each filter, and each part of it, were broken in turn."""
    assert any(list_faults(compare(asked, BLIND[what])) for asked in worlds)


# --- differences that were found: fixed, or kept on purpose ---

NODE: Json = {
    "metadata": {"name": "n", "uid": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def make_pod(name: str, cpu: str = "1", *, ports: bool = False, node: str = "", **status: Any) -> Json:
    container: Json = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    if ports:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return {
        "metadata": {"name": name, "namespace": "red", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": "fairbind",
            "priority": 10,
            "containers": [container],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Pending", **status},
    }


def find_differences(oracle: Oracle, pods: list[Json], waiting: Json, node: Json = NODE) -> list[str]:
    world = World(0, (node,), ({"metadata": {"name": "red"}},), tuple(pods), (waiting,))
    return [difference.why or difference.text for difference in compare(ask_oracle(oracle, world))]


def test_host_ports_of_nominated_pods_are_not_kept(oracle: Oracle) -> None:
    nominated = make_pod("a", ports=True, nominatedNodeName="n")

    assert find_differences(oracle, [nominated], make_pod("b", ports=True)) == [NOMINATED_PORTS]
    assert find_differences(oracle, [nominated], make_pod("b", cpu="3500m")) == []


def test_containers_that_are_resized_count_one_by_one(oracle: Oracle) -> None:
    resized = make_pod("a", node="n", phase="Running")
    resized["spec"]["containers"] = [
        {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}} for name, cpu in (("c", "1"), ("d", "3"))
    ]
    resized["status"]["containerStatuses"] = [
        {"name": "c", "resources": {"requests": {"cpu": "3"}}},
        {"name": "d", "resources": {"requests": {"cpu": "1"}}},
    ]

    node = copy.deepcopy(NODE)
    node["status"]["allocatable"]["cpu"] = "5"

    assert find_differences(oracle, [resized], make_pod("b"), node) == [RESIZED]  # it counts as 6 here, as 4 there
    del resized["status"]["containerStatuses"][1]
    assert find_differences(oracle, [resized], make_pod("b"), node) == []  # 6 and 6
    resized["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert find_differences(oracle, [resized], make_pod("b"), node) == [RESIZED]  # 6, and 3: what is not told is 0
    del resized["status"]["containerStatuses"]
    assert find_differences(oracle, [resized], make_pod("b"), node) == []


@pytest.mark.parametrize("reason", ["Infeasible", "Deferred"])
def test_one_container_that_is_resized_counts_alike(oracle: Oracle, reason: str) -> None:
    resized = make_pod("a", cpu="3", node="n", phase="Running")
    resized["status"] |= {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }

    assert find_differences(oracle, [resized], make_pod("b", cpu="3")) == []  # there is room when it is infeasible


def test_a_node_that_is_not_ready_takes_no_pods_even_without_a_taint(oracle: Oracle) -> None:
    node = copy.deepcopy(NODE)
    node["status"]["conditions"][0]["status"] = "Unknown"

    assert find_differences(oracle, [], make_pod("b"), node) == [NOT_READY]


def test_a_resource_that_no_node_offers_is_the_only_lack_that_is_told(oracle: Oracle) -> None:
    waiting = make_pod("b", cpu="8")
    assert find_differences(oracle, [], waiting) == []
    waiting["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    assert find_differences(oracle, [], waiting) == [NOT_OFFERED]


@pytest.mark.parametrize("address", ["", "0.0.0.0", "127.0.0.1", "::1", "::"])
@pytest.mark.parametrize("other", ["", "0.0.0.0", "127.0.0.1", "::1", "::"])
def test_all_addresses_are_those_of_kube_scheduler(oracle: Oracle, address: str, other: str) -> None:
    """`::` was taken for all addresses, so a port of 127.0.0.1 beside it was refused."""
    placed, waiting = make_pod("a", ports=True, node="n", phase="Running"), make_pod("b", ports=True)
    for pod, on in ((placed, address), (waiting, other)):
        pod["spec"]["containers"][0]["ports"][0]["hostIP"] = on

    assert find_differences(oracle, [placed], waiting) == []
