"""Constraints of pods, as the classes of a snapshot show them: who may go where, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod, read_namespace, read_pod
from fairbind.model import PolicySettings, Rejection, RejectionKind
from fairbind.scheduling import run_cycle
from rejections import CORDONED, NOT_READY, OUTSIDE, REPELLED, UNWANTED, lack, taint

GPU = {"key": "gpu", "value": "true", "effect": "NoSchedule"}


def make_cluster(*nodes: Json, **pod: Any) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(*nodes)
    cluster.add_pods(make_pod(**pod))
    return cluster


def find_eligible(*nodes: Json, **pod: Any) -> set[str]:
    return make_cluster(*nodes, **pod).find_eligible("uid-pod")


def find_rejections(*nodes: Json, **pod: Any) -> dict[Rejection, int]:
    return dict(make_cluster(*nodes, **pod).get_class("uid-pod").placement.rejections)


def test_cordoned_and_unready_nodes_take_nothing() -> None:
    nodes = make_node("a"), make_node("b", unschedulable=True), make_node("c", ready=False)
    assert find_eligible(*nodes) == {"a"}
    assert find_rejections(*nodes) == {CORDONED: 1, NOT_READY: 1}


CORDON = "node.kubernetes.io/unschedulable"
UNREADY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": CORDON, "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": CORDON, "effect": "NoSchedule"}, True),
        ({"key": CORDON, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": UNREADY, "operator": "Exists"}, False),
    ],
)
def test_a_cordoned_node_takes_pods_that_tolerate_it_as_kube_scheduler_does(
    toleration: Json,
    tolerated: bool,  # noqa: FBT001
) -> None:
    node = make_node("a", unschedulable=True)
    assert find_eligible(node, tolerations=[toleration]) == ({"a"} if tolerated else set())
    assert find_rejections(node, tolerations=[toleration]) == ({} if tolerated else {CORDONED: 1})
    tainted = make_node("a", unschedulable=True, taints=[{"key": CORDON, "effect": "NoSchedule"}])
    assert find_eligible(tainted, tolerations=[toleration]) == ({"a"} if tolerated else set())


@pytest.mark.parametrize(
    ("taints", "refusal"),
    [
        ([], NOT_READY),
        ([{"key": UNREADY, "effect": "NoSchedule"}], taint(f"{UNREADY}: ")),
        ([{"key": UNREACHABLE, "effect": "NoExecute"}], taint(f"{UNREACHABLE}: ")),
    ],
)
def test_a_node_that_is_not_ready_refuses_by_its_taints_and_before_it_has_them_as_if_it_had(
    taints: list[Json], refusal: Rejection
) -> None:
    node = make_node("a", ready=False, taints=taints)
    assert find_rejections(node) == {refusal: 1}
    key = taints[0]["key"] if taints else UNREADY
    assert find_eligible(node, tolerations=[{"key": key, "operator": "Exists"}]) == {"a"}
    assert find_eligible(node, tolerations=[{"key": "other", "operator": "Exists"}]) == set()


def test_a_tolerated_cordon_gives_a_place_and_no_capacity() -> None:
    cluster = make_cluster(
        make_node("a"),
        make_node("b", unschedulable=True),
        nodeSelector={},
        affinity=require({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}),
        tolerations=[{"key": CORDON, "operator": "Exists"}],
        requests={"cpu": "1"},
    )
    snapshot = cluster.cache.build_snapshot()
    assert snapshot.total_r[0] == 4000
    report = run_cycle(snapshot, PolicySettings(), 0.0)
    assert [(bind.task.uid, bind.server) for bind in report.bindings] == [("uid-pod", "b")]
    assert cluster.cache.queries.may_use("uid-pod", "b")


def test_who_may_use_cordoned_nodes_sets_no_two_nodes_apart() -> None:
    cluster = make_cluster(make_node("a"), *(make_node(name, unschedulable=True) for name in "bc"))
    before = cluster.cache.build_snapshot().servers.class_names
    only_b = require({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]})
    cluster.add_pods(make_pod("other", tolerations=[{"operator": "Exists"}], affinity=only_b))
    assert cluster.find_eligible("uid-other") == {"b"}
    assert cluster.cache.build_snapshot().servers.class_names == before


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_hard_taints_keep_pods_away(effect: str) -> None:
    nodes = make_node("a"), make_node("b", taints=[{**GPU, "effect": effect}])
    assert find_eligible(*nodes) == {"a"}
    assert find_rejections(*nodes) == {taint("gpu: true"): 1}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "true"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "false"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "true"}, False),
        ({"operator": "Equal", "value": "true"}, False),
    ],
)
def test_tolerations(toleration: Json, tolerated: bool) -> None:  # noqa: FBT001
    assert find_eligible(make_node("a", taints=[GPU]), tolerations=[toleration]) == ({"a"} if tolerated else set())


def test_every_hard_taint_must_be_tolerated() -> None:
    other = {"key": "other", "effect": "NoExecute"}
    node = make_node("a", taints=[GPU, other])
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    assert find_rejections(node, tolerations=tolerations) == {taint("other: "): 1}


def test_a_node_selector_needs_all_its_labels() -> None:
    nodes = make_node("a", labels={"disk": "ssd", "zone": "1"}), make_node("b", labels={"disk": "ssd"}), make_node("c")
    assert find_eligible(*nodes, nodeSelector={"disk": "ssd", "zone": "1"}) == {"a"}
    assert find_rejections(*nodes, nodeSelector={"disk": "ssd"}) == {UNWANTED: 1}


def require(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expect(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_constraints_that_say_the_same_in_another_order_are_one_object() -> None:
    some, other = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
    one = read_pod(make_pod(nodeSelector={"a": "1", "b": "2"}, tolerations=[some, other]))
    same = read_pod(make_pod(nodeSelector={"b": "2", "a": "1"}, tolerations=[other, some, some]))
    assert one.constraints is same.constraints


def test_one_term_of_the_required_affinity_is_enough_and_the_selector_holds_as_well() -> None:
    nodes = (
        make_node("a", labels={"zone": "1", "disk": "ssd"}),
        make_node("b", labels={"zone": "2", "disk": "ssd"}),
        make_node("c", labels={"zone": "1"}),
        make_node("d", labels={"zone": "3", "disk": "ssd"}),
    )
    affinity = require(expect("zone", "In", "1"), expect("zone", "In", "2"))
    assert find_eligible(*nodes, affinity=affinity, nodeSelector={"disk": "ssd"}) == {"a", "b"}


def test_numbers_and_names_of_nodes_can_be_asked_for() -> None:
    nodes = make_node("a", labels={"cores": "8"}), make_node("b", labels={"cores": "16"}), make_node("c")
    assert find_eligible(*nodes, affinity=require(expect("cores", "Gt", "8"))) == {"b"}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}
    assert find_eligible(*nodes, affinity=require(by_name)) == {"c"}


def test_an_empty_term_and_no_term_at_all_match_nothing() -> None:
    assert find_eligible(make_node("a"), affinity=require({})) == set()
    assert find_eligible(make_node("a"), affinity=require()) == set()


def test_labels_may_be_any_text() -> None:
    assert find_eligible(make_node("a", labels={"größe": "大"}), nodeSelector={"größe": "大"}) == {"a"}


def prefer(weight: int, term: Json) -> Json:
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}
    }


def find_preference(*nodes: Json, **pod: Any) -> list[int] | None:
    preference_k = make_cluster(*nodes, **pod).get_class("uid-pod").placement.preference_k
    return None if preference_k is None else preference_k.tolist()


def test_preferred_nodes_score_higher() -> None:
    nodes = make_node("a", labels={"disk": "hdd"}), make_node("b", labels={"disk": "ssd"})
    assert find_preference(*nodes, affinity=prefer(30, expect("disk", "In", "ssd"))) == [0, 200]


def test_soft_taints_score_lower_and_weigh_more_than_the_affinity() -> None:
    soft = {"key": "old", "effect": "PreferNoSchedule"}
    nodes = make_node("a", labels={"disk": "ssd"}, taints=[soft]), make_node("b")
    assert find_eligible(*nodes) == {"a", "b"}
    assert find_preference(*nodes, affinity=prefer(1, expect("disk", "In", "ssd"))) == [200, 300]
    assert find_preference(*nodes, tolerations=[{"key": "old", "operator": "Exists"}]) is None


def test_without_soft_wishes_there_is_no_score() -> None:
    assert find_preference(make_node("a"), make_node("b")) is None


def test_only_what_eligible_nodes_offer_scales_the_scores() -> None:
    nodes = make_node("a", labels={"disk": "ssd"}, unschedulable=True), make_node("b"), make_node("c")
    assert find_preference(*nodes, affinity=prefer(30, expect("disk", "In", "ssd"))) is None


def test_equal_constraints_share_one_placement() -> None:
    cluster = make_cluster(make_node("a"), requests={"cpu": "1"})
    cluster.add_pods(make_pod("other", namespace="elsewhere", requests={"cpu": "2"}))
    assert cluster.get_class("uid-pod").placement is cluster.get_class("uid-other").placement


def test_a_change_of_a_node_changes_eligibility_and_a_heartbeat_does_not() -> None:
    node = make_node("a", labels={"disk": "ssd"})
    cluster = make_cluster(node, make_node("b"), nodeSelector={"disk": "ssd"})
    before, changes = cluster.get_class("uid-pod"), cluster.changes
    node["metadata"]["resourceVersion"] += "0"
    node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-02T00:00:00Z"
    node["status"]["images"] = [{"names": ["image"]}]
    cluster.add_nodes(node)
    assert cluster.changes == changes
    assert cluster.get_class("uid-pod") is before
    node["metadata"]["resourceVersion"] += "0"
    node["spec"]["taints"] = [GPU]
    cluster.add_nodes(node)
    assert cluster.changes == changes + 1
    assert cluster.find_eligible("uid-pod") == set()


def test_the_selector_of_the_policy_takes_other_nodes_out_of_sight() -> None:
    cluster = make_cluster(make_node("a", labels={"pool": "x"}), make_node("b"))
    cluster.cache.set_policy(PolicySettings(server_selector=(("pool", "x"),)))
    assert cluster.find_eligible("uid-pod") == {"a"}
    assert cluster.cache.build_snapshot().total_r[0] == 4000
    reasons = dict(cluster.get_class("uid-pod").placement.rejections)
    assert reasons == {OUTSIDE: 1}
    cluster.cache.set_policy(None)
    assert cluster.find_eligible("uid-pod") == {"a", "b"}


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    cluster = make_cluster(
        make_node("a"), make_node("b", unschedulable=True), requests={"cpu": "1", "example.com/moon": "1"}
    )
    task_class = cluster.get_class("uid-pod")
    assert not task_class.placement.eligible_k.any()
    assert task_class.placement.rejections == ((CORDONED, 1), (lack("example.com/moon"), 1))
    cluster.add_nodes(make_node("c", allocatable={"cpu": "4", "pods": "10", "example.com/moon": "1"}))
    assert cluster.find_eligible("uid-pod") == {"a", "c"}
    cluster.cache.check_consistent()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(129)]},
            "129 volumes with claims",
        ),
        ({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "x"}}]}, "awsElasticBlockStore volume 'v'"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}, "resource claim 'gpu'"),
        ({"workloadRef": {"name": "w"}}, "gang scheduling"),
    ],
)
def test_what_is_not_honoured_is_named_and_blocks_its_class(spec: Json, named: str) -> None:
    cluster = make_cluster(make_node("a"), **spec)
    cluster.add_pods(make_pod("plain"))
    blocked = cluster.get_class("uid-pod").blocked
    assert blocked is not None
    assert blocked.kind == RejectionKind.NOT_SUPPORTED
    assert set(blocked.subject.split()) & set(named.split())  # what of the kind all such pods share
    record = cluster.cache.find_pod("uid-pod")
    assert record is not None
    assert record.unsupported is not None
    assert record.unsupported.startswith(named)
    assert cluster.get_class("uid-plain").blocked is None


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]},
        {
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "w", "csi": {"driver": "d"}},
                {"name": "x", "projected": {}},
            ]
        },
    ],
)
def test_preferences_and_volumes_without_claims_block_nothing(spec: Json) -> None:
    assert make_cluster(make_node("a"), **spec).get_class("uid-pod").blocked is None


def with_ports(*ports: Json) -> list[Json]:
    return [{"name": "main", "ports": list(ports)}]


def port(number: int, protocol: str = "TCP", address: str = "") -> Json:
    return {"containerPort": 1, "hostPort": number, "protocol": protocol, "hostIP": address}


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (port(80), port(80), True),
        (port(80), port(81), False),
        (port(80), port(80, "UDP"), False),
        (port(80), port(80, address="10.0.0.1"), True),
        (port(80, address="10.0.0.1"), port(80), True),
        (port(80, address="10.0.0.1"), port(80, address="0.0.0.0"), True),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.1"), True),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.2"), False),
        (port(80), {"containerPort": 80}, False),
    ],
)
def test_host_ports_conflict_by_protocol_address_and_port(one: Json, other: Json, conflict: bool) -> None:  # noqa: FBT001
    cluster = make_cluster(make_node("a"), containers=with_ports(one))
    cluster.add_pods(make_pod("placed", scheduler="another", node="a", containers=with_ports(other)))
    snapshot = cluster.cache.build_snapshot()
    wanted = cluster.get_class("uid-pod").placement.exclusive_keys.conflicting
    assert (not wanted.isdisjoint(snapshot.servers.taken_keys.get(0, frozenset()))) is conflict


def test_ports_of_sidecars_count_and_those_of_other_init_containers_do_not() -> None:
    init = {"name": "i", "ports": [port(1)]}
    side = {"name": "s", "restartPolicy": "Always", "ports": [port(2)]}
    exclusive_keys = (
        make_cluster(make_node("a"), initContainers=[init, side]).get_class("uid-pod").placement.exclusive_keys
    )
    assert exclusive_keys.conflicting == {"TCP:2/any"}


def test_a_port_is_free_again_when_its_last_holder_is_gone() -> None:
    cluster = make_cluster(make_node("a"))
    holders = [make_pod(f"p{i}", node="a", containers=with_ports(port(80, address=f"10.0.0.{i}"))) for i in range(2)]
    cluster.add_pods(*holders)
    assert "TCP:80/any" in cluster.cache.build_snapshot().servers.taken_keys[0]
    cluster.delete_pod(holders[0])
    assert "TCP:80/any" in cluster.cache.build_snapshot().servers.taken_keys[0]
    cluster.delete_pod(holders[1])
    assert not cluster.cache.build_snapshot().servers.taken_keys


def repel(labels: Json, topology_key: str = "zone", **rest: Any) -> Json:
    term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": labels}, **rest}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


ZONES = (
    make_node("a1", labels={"zone": "a"}),
    make_node("a2", labels={"zone": "a"}),
    make_node("b1", labels={"zone": "b"}),
    make_node("x1"),
)


def place_repelling(cluster: Cluster, affinity: Json, node: str = "a1", namespace: str = "team") -> Json:
    pod = make_pod("repelling", namespace=namespace, scheduler="another", node=node, affinity=affinity)
    cluster.add_pods(pod)
    return pod


def test_what_a_placed_pod_repels_stays_out_of_its_domain_until_it_is_gone() -> None:
    cluster = make_cluster(*ZONES, labels={"app": "web"})
    cluster.add_pods(make_pod("other", labels={"app": "db"}))
    pod = place_repelling(cluster, repel({"app": "web"}))
    assert cluster.find_eligible("uid-pod") == {"b1", "x1"}
    assert cluster.find_eligible("uid-other") == {"a1", "a2", "b1", "x1"}
    reasons = dict(cluster.get_class("uid-pod").placement.rejections)
    assert reasons == {REPELLED: 2}
    cluster.cache.check_consistent()
    cluster.delete_pod(pod)
    assert cluster.find_eligible("uid-pod") == {"a1", "a2", "b1", "x1"}
    cluster.cache.check_consistent()


def test_of_two_pods_that_repel_each_closes_its_own_domain() -> None:
    cluster = make_cluster(*ZONES, labels={"app": "web"})
    affinity = repel({"app": "web"})
    others = [make_pod(f"r-{node}", scheduler="another", node=node, affinity=affinity) for node in ("a1", "b1")]
    cluster.add_pods(*others)
    assert cluster.find_eligible("uid-pod") == {"x1"}
    cluster.delete_pod(others[0])
    assert cluster.find_eligible("uid-pod") == {"a1", "a2", "x1"}
    cluster.add_pods(make_pod("r-a2", scheduler="another", node="a2", affinity=affinity))
    assert cluster.find_eligible("uid-pod") == {"x1"}
    cluster.cache.check_consistent()


def test_a_repelled_pod_that_comes_later_is_kept_away_too() -> None:
    cluster = make_cluster(*ZONES)
    place_repelling(cluster, repel({"app": "web"}))
    cluster.add_pods(make_pod("late", labels={"app": "web"}))
    assert cluster.find_eligible("uid-late") == {"b1", "x1"}


def test_domains_follow_the_labels_of_nodes() -> None:
    cluster = make_cluster(*ZONES, labels={"app": "web"})
    place_repelling(cluster, repel({"app": "web"}))
    assert cluster.find_eligible("uid-pod") == {"b1", "x1"}
    cluster.add_nodes(make_node("b1", labels={"zone": "a"}))
    assert cluster.find_eligible("uid-pod") == {"x1"}
    cluster.cache.check_consistent()


@pytest.mark.parametrize(
    ("rest", "selected_by"),
    [
        ({}, False),
        ({"namespaces": ["team"]}, True),
        ({"namespaces": ["third"]}, False),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "test"}}}, False),
    ],
)
def test_terms_reach_other_namespaces_only_when_they_say_so(rest: Json, selected_by: bool) -> None:  # noqa: FBT001
    cluster = make_cluster(*ZONES, labels={"app": "web"})
    cluster.cache.namespaces.apply(read_namespace(make_namespace("team", {"env": "prod"})))
    place_repelling(cluster, repel({"app": "web"}, **rest), namespace="elsewhere")
    assert ("a1" not in cluster.find_eligible("uid-pod")) is selected_by
    cluster.cache.check_consistent()


def test_a_new_label_of_a_namespace_brings_its_pods_into_a_terms_reach() -> None:
    cluster = make_cluster(*ZONES, labels={"app": "web"})
    selector = {"matchLabels": {"env": "prod"}}
    place_repelling(cluster, repel({"app": "web"}, namespaceSelector=selector), namespace="elsewhere")
    assert "a1" in cluster.find_eligible("uid-pod")
    cluster.cache.namespaces.apply(read_namespace(make_namespace("team", {"env": "prod"})))
    assert "a1" not in cluster.find_eligible("uid-pod")
