"""Which tenants are told to come before others, and how even those are that share the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, make_namespace, make_node, make_pod
from fairbind.cluster.cache.tenant_ranking import Standing, TenantRanking
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model.overview import ClusterOverview


def make_overview(**specs: dict[str, Any]) -> ClusterOverview:
    """Ten cores: of the lab lx holds nothing and ly 4, solo holds 2; ly, lx and solo wait. The lab itself holds 2."""
    cluster = Cluster()
    declared: dict[str, dict[str, Any]] = {
        "lab": {"namespaces": ["lab"]},
        "lx": {"parent": "lab", "namespaces": ["lx"]},
        "ly": {"parent": "lab", "namespaces": ["ly"]},
        "solo": {"namespaces": ["solo"]},
    }
    for name, spec in specs.items():
        declared[name] = {**declared[name], **spec}
    cluster.cache.replace_tenants(
        [parse_tenant({"metadata": {"name": name}, "spec": spec}) for name, spec in declared.items()]
    )
    cluster.add_namespaces(*map(make_namespace, declared))
    cluster.add_nodes(make_node("n", allocatable={"cpu": "10", "memory": "100Gi", "pods": "110"}))
    cluster.add_pods(
        *(
            make_pod(f"{name}-runs", namespace=name, node="n", requests={"cpu": cpu})
            for name, cpu in {"lab": "2", "ly": "4", "solo": "2"}.items()
        ),
        *(make_pod(f"{name}-waits", namespace=name, requests={"cpu": "5"}) for name in ("lx", "ly", "solo")),
    )
    return cluster.cache.queries.build_overview()


def count_before(overview: ClusterOverview) -> dict[str, int]:
    ranking = TenantRanking(overview)
    return {tenant.name: ranking.count_before(tenant) for tenant in overview.tenants}


def test_tenants_are_compared_where_their_paths_part() -> None:
    overview = make_overview()
    assert count_before(overview) == {"solo": 0, "lx": 1, "lab": 2, "ly": 2}
    leaves = {tenant.name: tenant for tenant in overview.tenants}
    assert TenantRanking(overview).list_before(leaves["ly"]) == (
        Standing("solo", 0.2, ("solo", "lab", 0.6)),
        Standing("lx", 0.0),
    )


def test_weights_and_priorities_are_those_among_siblings() -> None:
    assert count_before(make_overview(lab={"weight": 4}))["solo"] == 2
    assert count_before(make_overview(lx={"weight": 4}))["solo"] == 0
    assert count_before(make_overview(lab={"priority": 1}))["solo"] == 2
    assert count_before(make_overview(ly={"priority": 1})) == {"solo": 0, "ly": 1, "lx": 2, "lab": 3}


def test_jains_index_is_that_of_the_children_of_the_root() -> None:
    assert make_overview().jain_index == pytest.approx(0.8**2 / (2 * (0.6**2 + 0.2**2)))
    assert make_overview(lab={"weight": 3}).jain_index == pytest.approx(1.0)
