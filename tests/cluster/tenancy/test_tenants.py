from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from cluster.builders import Cluster, make_namespace, make_node, make_pod
from fairbind.cluster.tenancy.node_amounts import NodeAmounts
from fairbind.cluster.tenancy.tenants import Directory, TenantSpec, parse_tenant
from fairbind.model import InvalidProblemError, PolicySettings, Unclaimed
from fairbind.scheduling import run_cycle
from rejections import UNCLAIMED, unsupported


def make_spec(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> TenantSpec:
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created, "generation": 3}
    return parse_tenant({"metadata": meta, "spec": spec})


def test_a_tenant_object_is_read_in_full() -> None:
    spec = make_spec(
        "a",
        weight="2500m",
        resourceWeights={"cpu": "0.1", "nvidia.com/gpu": 3},
        namespaces=["x", "y"],
        namespaceSelector={"matchLabels": {"team": "a"}},
    )
    assert spec.weight == Fraction(5, 2)
    assert spec.resource_weights == {"cpu": Fraction(1, 10), "nvidia.com/gpu": Fraction(3)}
    assert spec.namespaces == {"x", "y"}
    assert spec.selector is not None
    assert spec.selector.is_met_by({"team": "a"})
    assert (spec.uid, spec.generation, spec.created) == ("uid-a", 3, 1767225600.0)


def test_a_place_in_the_tree_is_read() -> None:
    amounts = [{"resources": {"cpu": "1500m"}}]
    spec = make_spec(
        "a",
        parent="b",
        priority=-1000,
        guarantee=amounts,
        lending="Never",
        minRuntimeSeconds=600,
        users={"label": "fairbind.io/user"},
    )
    assert (spec.parent, spec.priority, spec.lends, spec.min_runtime_seconds) == ("b", -1000, False, 600)
    assert spec.guarantee == (NodeAmounts(None, (("cpu", 1500),)),)
    assert spec.users_label == "fairbind.io/user"
    assert not spec.is_deleted
    assert make_spec("a", lending="Always") == make_spec("a")


def test_a_deletion_that_has_begun_is_known() -> None:
    assert parse_tenant({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}).is_deleted


def test_what_is_left_out_has_defaults_and_what_is_unknown_is_ignored() -> None:
    spec = parse_tenant({"metadata": {"name": "a"}, "spec": {"reclaim": {"cpu": "1"}}})
    assert spec == TenantSpec("a")
    assert parse_tenant({"metadata": {"name": "a"}}).weight == 1


@pytest.mark.parametrize("weight", ["0.001", "1000", 1000, "1k", "1m", "1000000m"])
def test_weights_may_be_whole_numbers_and_quantities(weight: object) -> None:
    assert make_spec("a", weight=weight).weight in {Fraction(1, 1000), Fraction(1000)}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"weight": "-1"}, "spec.weight"),
        ({"weight": 1001}, "spec.weight"),
        ({"weight": "1000.5"}, "spec.weight"),
        (
            {"weight": 0.0005},
            "spec.weight must be a number or a quantity from 0.001 to 1000, such as 0.5 or 500m, not 0.0005",
        ),
        ({"weight": "heavy"}, "spec.weight"),
        ({"weight": True}, "spec.weight"),
        ({"weight": None}, "spec.weight"),
        ({"weight": [1]}, "spec.weight"),
        ({"weight": float("nan")}, "spec.weight"),
        ({"resourceWeights": {"cpu": 0}}, "spec.resourceWeights[cpu]"),
        ({"resourceWeights": [1]}, "spec.resourceWeights"),
        ({"namespaces": "x"}, "spec.namespaces"),
        ({"namespaces": [1]}, "spec.namespaces"),
        ({"namespaceSelector": {"matchLabels": {"a": 1}}}, "spec.namespaceSelector"),
        ({"namespaceSelector": "x"}, "spec.namespaceSelector"),
        ({"parent": ""}, "spec.parent must be the name of another Tenant, not ''"),
        ({"parent": "a"}, "spec.parent"),
        ({"parent": 1}, "spec.parent"),
        ({"priority": 1001}, "spec.priority must be a whole number from -1000 to 1000, not 1001"),
        ({"priority": "high"}, "spec.priority"),
        ({"guarantee": [{"resources": {}}]}, "spec.guarantee[0].resources"),
        ({"guarantee": [{"resources": {"cpu": -1}}]}, "spec.guarantee[0].resources[cpu]"),
        ({"lending": "Sometimes"}, "spec.lending must be Always or Never, not 'Sometimes'"),
        ({"lending": []}, "spec.lending"),
        ({"minRuntimeSeconds": -1}, "spec.minRuntimeSeconds"),
        ({"users": {}}, "spec.users must have the field label, the key of a label, not {}"),
        ({"users": {"label": ""}}, "spec.users"),
        ({"users": {"label": "a", "weight": 2}}, "spec.users"),
        ({"users": "a"}, "spec.users"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        make_spec("a", **spec)
    assert str(caught.value).startswith(field)


def make_cluster(*namespaces: str, **settings: Any) -> Cluster:
    """A cluster with a node, and a bound pod of one core in each namespace."""
    cluster = Cluster(**settings)
    cluster.add_nodes(make_node("n", allocatable={"cpu": "100", "memory": "100Gi", "pods": "110"}))
    for namespace in namespaces:
        cluster.add_namespaces(make_namespace(namespace, {"name": namespace}))
        cluster.add_pods(make_pod(f"in-{namespace}", namespace=namespace, node="n", requests={"cpu": "1"}))
    return cluster


def get_cores(cluster: Cluster) -> dict[str, int]:
    """What each tenant holds, in cores."""
    snapshot = cluster.cache.build_snapshot()
    return {tenant.name: tenant.allocated_r[0] // 1000 for tenant in snapshot.tenants}


def test_a_namespace_that_nobody_claims_is_a_tenant_of_its_own() -> None:
    cluster = make_cluster("x", "y")
    assert get_cores(cluster) == {"ns/x": 1, "ns/y": 1}


def test_namespaces_are_claimed_by_name_and_by_label() -> None:
    cluster = make_cluster("x", "y", "z")
    cluster.cache.set_tenant(make_spec("a", namespaces=["x"], namespaceSelector={"matchLabels": {"name": "y"}}))
    assert get_cores(cluster) == {"a": 2, "ns/z": 1}
    cluster.cache.check_consistent()


def test_a_tenant_without_pods_is_there_until_it_is_deleted() -> None:
    cluster = make_cluster("x")
    cluster.cache.set_tenant(make_spec("idle", namespaces=["nowhere"]))
    assert get_cores(cluster) == {"idle": 0, "ns/x": 1}
    cluster.cache.delete_tenant("idle")
    assert get_cores(cluster) == {"ns/x": 1}


def test_the_older_tenant_keeps_a_namespace_and_then_the_name_decides() -> None:
    cluster = make_cluster("x")
    cluster.cache.set_tenant(make_spec("b", "2026-01-02T00:00:00Z", namespaces=["x"]))
    assert get_cores(cluster) == {"b": 1}
    cluster.cache.set_tenant(make_spec("c", "2026-01-01T00:00:00Z", namespaces=["x"]))
    assert get_cores(cluster) == {"b": 0, "c": 1}
    cluster.cache.set_tenant(make_spec("a", "2026-01-01T00:00:00Z", namespaces=["x"]))
    assert get_cores(cluster) == {"a": 1, "b": 0, "c": 0}
    states = cluster.cache.queries.tenant_states()
    assert (states["a"].conflicts, states["b"].conflicts) == ({}, {"x": "a"})
    cluster.cache.delete_tenant("a")
    assert get_cores(cluster) == {"b": 0, "c": 1}
    cluster.cache.check_consistent()


def test_pods_that_hold_and_wait_follow_their_namespace_to_another_tenant() -> None:
    cluster = make_cluster("x")
    cluster.add_pods(make_pod("waiting", namespace="x"))
    cluster.cache.set_tenant(make_spec("a", namespaceSelector={"matchLabels": {"owner": "a"}}))
    assert cluster.get_class("uid-waiting").tenant == "ns/x"
    changes = cluster.changes
    cluster.add_namespaces(make_namespace("x", {"owner": "a"}))
    assert cluster.changes == changes + 1
    assert (cluster.get_class("uid-waiting").tenant, get_cores(cluster)) == ("a", {"a": 1})
    cluster.add_namespaces(make_namespace("x"))
    assert (cluster.get_class("uid-waiting").tenant, get_cores(cluster)) == ("ns/x", {"a": 0, "ns/x": 1})
    cluster.cache.check_consistent()


def test_a_change_of_weight_reaches_the_next_snapshot() -> None:
    cluster = make_cluster("x")
    cluster.cache.set_tenant(make_spec("a", namespaces=["x"], weight=2))
    assert cluster.cache.build_snapshot().tenants[0].weight == 2
    cluster.cache.set_tenant(make_spec("a", namespaces=["x"], weight=3, resourceWeights={"cpu": 5}))
    tenant = cluster.cache.build_snapshot().tenants[0]
    assert (tenant.weight, tenant.resource_weights) == (Fraction(3), {"cpu": Fraction(5)})
    assert tenant.allocated_r[0] == 1000


def test_pods_of_unclaimed_system_namespaces_make_their_node_smaller_and_belong_to_nobody() -> None:
    cluster = make_cluster("x", operator_namespace="fairbind-system")
    for namespace in ("kube-system", "fairbind-system"):
        cluster.add_pods(
            make_pod(namespace, namespace=namespace, scheduler="another", node="n", requests={"cpu": "10"})
        )
    assert cluster.get_capacity("n")["cpu"] == 80_000
    assert cluster.get_free("n")["cpu"] == 79_000
    assert cluster.cache.build_snapshot().total_r[0] == 80_000
    assert get_cores(cluster) == {"ns/x": 1}
    cluster.cache.check_consistent()


def test_a_tenant_can_claim_a_system_namespace_by_name_but_not_by_label() -> None:
    cluster = make_cluster()
    cluster.add_namespaces(make_namespace("kube-system", {"any": "thing"}))
    requests = {"cpu": "10"}
    cluster.add_pods(make_pod("it", namespace="kube-system", scheduler="another", node="n", requests=requests))
    everything = {"matchExpressions": [{"key": "any", "operator": "Exists"}]}
    cluster.cache.set_tenant(make_spec("a", namespaceSelector=everything))
    assert get_cores(cluster) == {"a": 0}
    assert cluster.get_capacity("n")["cpu"] == 90_000
    cluster.cache.check_consistent()
    cluster.cache.set_tenant(make_spec("a", namespaces=["kube-system"]))
    assert get_cores(cluster) == {"a": 10}
    assert cluster.get_capacity("n")["cpu"] == 100_000
    cluster.cache.check_consistent()


def test_a_pod_in_a_system_namespace_that_asks_for_us_is_an_implicit_tenants() -> None:
    cluster = make_cluster()
    cluster.add_pods(make_pod("waiting", namespace="kube-system"))
    assert cluster.get_class("uid-waiting").tenant == "ns/kube-system"


def test_states_say_what_has_no_effect() -> None:
    cluster = make_cluster("x")
    cluster.cache.replace_tenants(
        [
            make_spec("nothing"),
            make_spec("odd", namespaces=["x", "not-there"], resourceWeights={"cpu": 1, "moon": 2, "pods": 3}),
        ]
    )
    states = cluster.cache.queries.tenant_states()
    assert states["nothing"].claims_nothing
    assert not states["odd"].claims_nothing
    assert states["odd"].missing == ("not-there",)
    # slots count whenever they are scarce, so a weight of theirs is not without effect
    assert states["odd"].unknown_resources == ("moon",)
    cluster.cache.set_policy(PolicySettings(fairness_resources=("cpu",)))
    assert cluster.cache.queries.tenant_states()["odd"].unknown_resources == ("moon", "pods")


def test_a_namespace_that_goes_takes_its_claims_by_label_along() -> None:
    cluster = make_cluster("x")
    cluster.cache.set_tenant(make_spec("a", namespaceSelector={"matchLabels": {"name": "x"}}))
    assert get_cores(cluster) == {"a": 1}
    cluster.cache.namespaces.replace([])
    assert get_cores(cluster) == {"a": 0, "ns/x": 1}


def test_implicit_tenants_are_gone_with_their_last_pod() -> None:
    cluster = make_cluster()
    pod = make_pod("waiting", namespace="x")
    cluster.add_pods(pod)
    assert get_cores(cluster) == {"ns/x": 0}
    cluster.delete_pod(pod)
    assert get_cores(cluster) == {}


def test_states_are_made_anew_only_when_something_changed() -> None:
    directory = Directory(frozenset())
    counting = frozenset({"cpu"})
    directory.set_tenants([make_spec("a", namespaces=["x"], resourceWeights={"memory": 2})])
    before = directory.compute_states(counting)
    assert before["a"].missing == ("x",)
    assert directory.compute_states(counting) is before
    directory.set_labels("x", {})
    assert directory.compute_states(counting)["a"].missing == ()
    directory.set_labels("x", None)
    assert directory.compute_states(counting)["a"].missing == ("x",)
    assert directory.compute_states(counting | {"memory"})["a"].unknown_resources == ()
    directory.set_tenants([])
    assert directory.compute_states(counting) == {}


def fill(cluster: Cluster) -> Counter[str]:
    """Place what fits and return how many pods of each tenant were placed."""
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    return Counter(bind.tenant for bind in report.bindings)


def choose(cluster: Cluster, unclaimed: Unclaimed) -> None:
    cluster.cache.set_policy(PolicySettings(unclaimed=unclaimed))


@pytest.mark.parametrize(
    ("unclaimed", "expected"),
    [
        (Unclaimed.TENANT, {"a": 5, **{f"ns/n{n:02}": 5 for n in range(19)}}),
        (Unclaimed.TOGETHER, {"a": 50, "ns/*": 50}),
        (Unclaimed.REFUSE, {"a": 100}),
    ],
)
def test_many_unclaimed_namespaces_share_as_the_policy_says(unclaimed: Unclaimed, expected: dict[str, int]) -> None:
    """One person with 19 namespaces and a Tenant ask for a hundred cores each."""
    cluster = make_cluster()
    choose(cluster, unclaimed)
    cluster.cache.set_tenant(make_spec("a", namespaces=["mine"]))
    cluster.add_pods(*(make_pod(f"m{n}", namespace="mine", requests={"cpu": "1"}) for n in range(100)))
    for n in range(19):
        cluster.add_pods(*(make_pod(f"{n}-{m}", namespace=f"n{n:02}", requests={"cpu": "1"}) for m in range(6)))

    assert fill(cluster) == expected
    cluster.cache.check_consistent()


def test_a_change_of_what_happens_to_unclaimed_namespaces_moves_their_pods() -> None:
    cluster = make_cluster("x", "y", "claimed")
    cluster.cache.set_tenant(make_spec("a", namespaces=["claimed"]))
    cluster.add_pods(make_pod("waiting", namespace="x", requests={"cpu": "1"}))
    assert get_cores(cluster) == {"a": 1, "ns/x": 1, "ns/y": 1}

    seen = []
    for unclaimed in (Unclaimed.TOGETHER, Unclaimed.REFUSE, Unclaimed.TENANT):
        changes = cluster.changes
        choose(cluster, unclaimed)
        assert cluster.changes == changes + 1
        waiting = cluster.get_class("uid-waiting")
        seen.append((get_cores(cluster), waiting.tenant, waiting.blocked))
        cluster.cache.check_consistent()

    own = {"a": 1, "ns/x": 1, "ns/y": 1}
    assert seen == [({"a": 1, "ns/*": 2}, "ns/*", None), (own, "ns/x", UNCLAIMED), (own, "ns/x", None)]


def test_a_claim_lets_pods_of_a_refused_namespace_go_on() -> None:
    cluster = make_cluster()
    choose(cluster, Unclaimed.REFUSE)
    cluster.add_namespaces(make_namespace("x", {"owner": "a"}))
    cluster.add_pods(make_pod("waiting", namespace="x", requests={"cpu": "1"}))
    assert fill(cluster) == {}

    cluster.cache.set_tenant(make_spec("a", namespaceSelector={"matchLabels": {"owner": "a"}}))
    assert fill(cluster) == {"a": 1}
    cluster.add_namespaces(make_namespace("x"))
    assert (cluster.get_class("uid-waiting").blocked, fill(cluster)) == (UNCLAIMED, {})


def test_what_a_refused_pod_asks_for_in_vain_is_said_first() -> None:
    """Its message names the very thing, which goes with no other reason."""
    cluster = make_cluster()
    choose(cluster, Unclaimed.REFUSE)
    cluster.add_pods(make_pod("odd", namespace="x", workloadRef={"name": "w"}))

    assert cluster.get_class("uid-odd").blocked == unsupported("gang scheduling")


def test_system_pods_of_others_stay_nobodys_whatever_happens_to_unclaimed_namespaces() -> None:
    cluster = make_cluster("x")
    cluster.add_pods(
        make_pod("dns", namespace="kube-system", scheduler="another", node="n", requests={"cpu": "10"}),
        make_pod("ours", namespace="kube-system", requests={"cpu": "1"}),
    )
    choose(cluster, Unclaimed.TOGETHER)
    assert (get_cores(cluster), cluster.get_class("uid-ours").tenant) == ({"ns/*": 1}, "ns/*")
    choose(cluster, Unclaimed.REFUSE)
    assert (get_cores(cluster), cluster.get_class("uid-ours").blocked) == (
        {"ns/kube-system": 0, "ns/x": 1},
        UNCLAIMED,
    )
    assert cluster.get_capacity("n")["cpu"] == 90_000


@pytest.mark.parametrize("weight", [0.5, "0.5", "500m"])
def test_numbers_and_quantities_are_weights_alike(weight: object) -> None:
    spec = parse_tenant({"metadata": {"name": "a"}, "spec": {"weight": weight, "resourceWeights": {"cpu": weight}}})
    assert (spec.weight, spec.resource_weights) == (Fraction(1, 2), {"cpu": Fraction(1, 2)})


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -0.5])
def test_a_number_without_a_value_is_no_weight(weight: float) -> None:
    with pytest.raises(InvalidProblemError, match=r"spec\.weight must be a number"):
        parse_tenant({"metadata": {"name": "a"}, "spec": {"weight": weight}})
