"""What is said of each Tenant's place in the tree."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cluster.builders import Cluster, make_node
from fairbind.cluster.cache.overview import complete_overview
from fairbind.cluster.cache.tree_states import DeclaredTree, add_tree_to_states
from fairbind.cluster.tenancy.guarantees import Overcommitment, ScaledGuarantees
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.cluster.tenancy.tree import build_tree
from fairbind.model.reservations import Reserved


def make_specs(**specs: dict[str, Any]) -> dict[str, TenantSpec]:
    return {name: parse_tenant({"metadata": {"name": name}, "spec": spec}) for name, spec in specs.items()}


def test_states_tell_of_parents_and_guarantees() -> None:
    named = {"guarantee": [{"resources": {"gpu": 8}}]}
    specs = make_specs(top={}, a={"parent": "top", **named}, b={"parent": "gone", **named})
    cluster = Cluster()
    cluster.cache.replace_tenants(list(specs.values()))
    scaled = ScaledGuarantees({}, {"a": (Overcommitment("gpu", 16, 8, None),)})
    declared = DeclaredTree(specs, build_tree(specs.values()), scaled)
    states = add_tree_to_states(cluster.cache.state.directory.compute_states(frozenset()), declared)
    assert [states[name].claims_nothing for name in ("top", "a", "b")] == [False, True, True]
    assert [states[name].parent for name in ("top", "a", "b")] == [None, "top", "gone"]
    assert [states[name].path for name in ("top", "a", "b")] == ["top", "top/a", "b"]
    assert states["b"].parent_trouble is not None
    assert states["b"].parent_trouble[0] == "MissingParent"
    assert states["a"].parent_trouble is None
    assert states["a"].overcommitted == ("of gpu 16 are guaranteed, and all nodes have 8",)
    assert [states[name].overcommitted for name in ("top", "b")] == [None, ()]


def test_states_stay_the_same_object_while_nothing_changes() -> None:
    cluster = Cluster()
    cluster.cache.replace_tenants(list(make_specs(top={}, a={"parent": "top"}).values()))
    before = cluster.cache.queries.tenant_states()
    assert cluster.cache.queries.tenant_states() is before
    cluster.cache.replace_tenants(list(make_specs(top={}, a={}).values()))
    assert cluster.cache.queries.tenant_states()["a"].path == "a"


def test_guarantees_above_what_nodes_have_follow_the_nodes() -> None:
    cluster = Cluster()
    guarantee = {"guarantee": [{"resources": {"cpu": "8"}}]}
    cluster.cache.replace_tenants(list(make_specs(a=guarantee, b=guarantee, c={}).values()))
    cluster.add_nodes(make_node("n", allocatable={"cpu": "10", "memory": "10Gi", "pods": "110"}))
    states = cluster.cache.queries.tenant_states()
    told = ("of cpu 16 are guaranteed, and all nodes have 10",)
    assert [states[name].overcommitted for name in "abc"] == [told, told, None]
    overview = cluster.cache.queries.build_overview()
    assert [tenant.guaranteed for tenant in overview.tenants] == [{"cpu": 5.0}, {"cpu": 5.0}, {}]

    cluster.add_nodes(make_node("m", allocatable={"cpu": "10", "memory": "10Gi", "pods": "110"}))
    states = cluster.cache.queries.tenant_states()
    assert [states[name].overcommitted for name in "abc"] == [(), (), None]


def test_what_is_reserved_below_a_tenant_is_reserved_for_it() -> None:
    cluster = Cluster()
    specs = make_specs(top={"namespaces": ["x"]}, vis={"parent": "top"}, va={"parent": "vis"}, other={})
    cluster.cache.replace_tenants(list(specs.values()))
    overview = cluster.cache.queries.build_overview()
    reserved = {
        "va": Reserved({"n"}, Counter(cpu=1500)),
        "top": Reserved({"n", "m"}, Counter(cpu=500)),
        "other": Reserved({"m"}, Counter(cpu=1000)),
    }
    shown = {tenant.name: tenant for tenant in complete_overview(overview, reserved, ()).shown}
    assert {name: tenant.reserved_nodes for name, tenant in shown.items()} == {"other": 1, "top": 2, "va": 1, "vis": 1}
    assert [shown[name].reserved for name in ("top", "vis", "va")] == [{"cpu": 2.0}, {"cpu": 1.5}, {"cpu": 1.5}]
