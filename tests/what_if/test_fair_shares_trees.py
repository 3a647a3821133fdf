"""Fair shares of a cluster whose Tenants are a tree, from its objects to what people are shown."""

from __future__ import annotations

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.what_if.fair_shares import FairShares

GPU = {"matchLabels": {"gpu": "h100"}}


def make_tenant(name: str, *namespaces: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": {"namespaces": list(namespaces), **spec}}


def build(*tenants: Json, nodes: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.cache.replace_tenants(map(parse_tenant, tenants))
    for n in range(nodes):
        labels = {"gpu": "h100"} if n % 2 else {}
        cluster.add_nodes(make_node(f"n{n}", labels=labels, allocatable={"cpu": "10", "memory": "10Gi", "pods": "99"}))
    cluster.add_namespaces(*(make_namespace(name) for each in tenants for name in each["spec"]["namespaces"]))
    return cluster


def add(cluster: Cluster, namespace: str, count: int, **requests: str) -> None:
    pods = [make_pod(f"{namespace}{n}", namespace=namespace, requests=requests) for n in range(count)]
    cluster.add_pods(*pods)


def find_fair_shares(cluster: Cluster, policy: str = "best-fit-drfh") -> dict[str, float | None]:
    """Return what is shown of each tenant."""
    found = FairShares(cluster.cache, policy)
    overview = cluster.cache.queries.build_overview(found.compute(), found.compute_inner())
    return {each.name: each.fair_share for each in (*overview.tenants, *overview.shown)}


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_science_and_engineering_have_half_of_the_cluster_each(policy: str) -> None:
    cluster = build(
        make_tenant("sci", "sci", weight=50),
        make_tenant("eng", weight=50),
        make_tenant("dev", "dev", parent="eng"),
        make_tenant("prod", "prod", parent="eng"),
    )
    add(cluster, "sci", 10, cpu="1", memory="1Gi")
    add(cluster, "dev", 10, cpu="1")
    add(cluster, "prod", 10, memory="1Gi")
    shown = find_fair_shares(cluster, policy)
    assert shown == pytest.approx({"sci": 0.5, "dev": 0.5, "prod": 0.5, "eng": 0.5}, rel=0.02)


def test_limits_and_guarantees_of_a_tree_bind_by_kind_of_node() -> None:
    cluster = build(
        make_tenant("team", "own", limit=[{"resources": {"cpu": "6"}}]),
        make_tenant("a", "a", parent="team", guarantee=[{"nodes": GPU, "resources": {"cpu": "4"}}]),
        make_tenant("b", "b"),
        nodes=2,
    )
    for namespace in ("own", "a", "b"):
        add(cluster, namespace, 20, cpu="1")
    assert find_fair_shares(cluster) == pytest.approx({"team": 0.3, "a": 0.15, "b": 0.7}, rel=0.02)
    cluster.cache.replace_tenants([parse_tenant(make_tenant("team", "own")), parse_tenant(make_tenant("b", "b"))])
    assert find_fair_shares(cluster)["team"] == pytest.approx(1 / 3, rel=0.02)
