"""A cordon changes the share of no tenant whose pods fill the node: its pods and what they hold stay in the totals.

In the papers a share is a part of what tenants can use. Of a cordoned node, a tenant with pods there uses what they
hold, and no tenant can use the rest. So what is held counts above and below, and what is free counts nowhere. Were the
whole node out of the totals, a cordon under its pods would raise their tenant's share, here from 0.719 to 0.958.
"""

from __future__ import annotations

import pytest

from cluster.builders import Cluster, make_node, make_pod
from fairbind.model import PolicySettings
from fairbind.scheduling import POLICIES, run_cycle

CPU = {"cpu": "8", "memory": "64Gi", "pods": "110"}
GPU = CPU | {"x.io/gpu": "4"}


def cordon(cluster: Cluster, name: str, allocatable: dict[str, str] = CPU) -> None:
    cluster.add_nodes(make_node(name, allocatable=allocatable, unschedulable=True))


def find_shares(cluster: Cluster) -> dict[str, float]:
    overview = cluster.cache.queries.build_overview()
    return {tenant.name: round(tenant.dominant_share, 3) for tenant in overview.tenants}


@pytest.fixture
def cluster() -> Cluster:
    """Four nodes of 8 CPUs. Tenant x fills two of them and holds 7 of a third; y holds 5 of the fourth."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{number}", allocatable=CPU) for number in range(4)))
    for node, tenant, cpus in (("n0", "x", 8), ("n1", "x", 8), ("n2", "x", 7), ("n3", "y", 5)):
        cluster.add_pods(make_pod(f"on-{node}", namespace=tenant, node=node, requests={"cpu": str(cpus)}))
    return cluster


def test_who_has_its_own_full_node_cordoned_has_the_share_that_it_had(cluster: Cluster) -> None:
    assert find_shares(cluster) == {"ns/x": 0.719, "ns/y": 0.156}
    cordon(cluster, "n0")
    assert find_shares(cluster) == {"ns/x": 0.719, "ns/y": 0.156}


def test_what_is_free_on_the_node_of_another_leaves_the_totals_for_all(cluster: Cluster) -> None:
    """Three CPUs that no tenant can use are gone, and both shares grow by the same factor."""
    cordon(cluster, "n3")
    assert find_shares(cluster) == {"ns/x": round(23 / 29, 3), "ns/y": round(5 / 29, 3)}


@pytest.mark.parametrize(("cordoned", "more"), [("c0", "1"), ("g0", "4")])
@pytest.mark.parametrize("policy", sorted(name for name, policy in POLICIES.items() if policy.mechanism is not None))
def test_the_next_decision_is_the_same_after_a_cordon(policy: str, cordoned: str, more: str) -> None:
    """Tenant x holds CPUs and y GPUs, nearly equal shares; either has a node cordoned that its pods fill.

    With that node out of the totals DRFH's next tenant would change, for its owner would seem to have more.
    """
    cluster = Cluster()
    cluster.cache.set_policy(PolicySettings(policy=policy))
    kinds = {name: GPU if name.startswith("g") else CPU for name in ("c0", "c1", "c2", "c3", "g0", "g1", "g2")}
    cluster.add_nodes(*(make_node(name, allocatable=kind) for name, kind in kinds.items()))
    cluster.add_pods(
        make_pod("gpus", namespace="y", node="g0", requests={"cpu": "8", "memory": "8Gi", "x.io/gpu": "4"})
    )
    for node, cpus in (("c0", "8"), ("c1", "8"), ("c2", more)):
        cluster.add_pods(
            make_pod(f"on-{node}", namespace="x", node=node, requests={"cpu": cpus, "memory": f"{cpus}Gi"})
        )
    for tenant in "xy":
        cluster.add_pods(make_pod(f"of-{tenant}", namespace=tenant, requests={"cpu": "1", "memory": "1Gi"}))

    def find_first() -> str:
        return run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0).bindings[0].tenant

    before = find_first()
    cordon(cluster, cordoned, kinds[cordoned])
    assert find_first() == before
