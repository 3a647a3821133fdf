"""A deferred growth holds capacity on its node only while its tenant is not above its fair share."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from cluster.builders import SCHEDULER, Cluster, Json, make_namespace, make_node, make_pod
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.scheduling import run_cycle

NODES = 10
CORES = 16
OTHER = "default-scheduler"


def make_world(**settings: Any) -> Cluster:
    cluster = Cluster(**settings)
    cluster.add_namespaces(*(make_namespace(name) for name in ("evil", "good")))
    for name in ("evil", "good"):
        cluster.cache.set_tenant(TenantSpec(name, namespaces=frozenset({name})))
    cluster.add_nodes(*(make_node(f"n{n}", allocatable={"cpu": f"{CORES}", "pods": "110"}) for n in range(NODES)))
    return cluster


def make_growing(node: int, *, asked: str, allocated: str = "10m", reason: str = "Deferred") -> Json:
    """Return a pod of one tenant on a node that asks for more than what its node has allocated."""
    amounts = {"cpu": allocated}
    running = {"name": "main", "allocatedResources": amounts, "resources": {"requests": amounts}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    status = {"containerStatuses": [running], "conditions": conditions}
    pod = make_pod(f"e{node}", namespace="evil", requests={"cpu": asked}, node=f"n{node}", phase="Running")
    pod["status"] |= status
    return pod


def make_waiting(name: str, namespace: str = "good", scheduler: str = SCHEDULER) -> Json:
    return make_pod(name, namespace=namespace, requests={"cpu": "2"}, scheduler=scheduler)


def place(cluster: Cluster) -> dict[str, int]:
    """Decide as often as something is placed, and return how many pods of each tenant were."""
    placed = {"evil": 0, "good": 0}
    while bindings := run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0).bindings:
        for binding in bindings:
            placed[binding.tenant] += cluster.cache.assume(binding.task.uid, binding.server)
    return placed


def get_free_cores(cluster: Cluster) -> list[float]:
    return [cluster.get_free(f"n{n}")["cpu"] / 1000 for n in range(NODES)]


def test_tiny_pods_that_ask_for_the_whole_cluster_keep_none_of_it_from_others() -> None:
    cluster = make_world()
    cluster.add_pods(*(make_growing(n, asked=f"{CORES}") for n in range(NODES)))
    cluster.add_pods(*(make_waiting(f"g{n}") for n in range(100)))
    cluster.add_pods(*(make_waiting(f"w{n}", "evil") for n in range(100)))

    # Beside a pod of 10m there are seven of two cores on each node, and what is deferred counts in the share.
    assert place(cluster) == {"evil": 0, "good": 7 * NODES}
    cluster.cache.check_consistent()


def test_a_growth_within_the_fair_share_is_reserved_as_by_kube_scheduler() -> None:
    cluster = make_world()
    cluster.add_pods(*(make_growing(n, asked="8") for n in range(NODES)))
    cluster.add_pods(*(make_waiting(f"g{n}") for n in range(100)))

    assert place(cluster)["good"] == 4 * NODES
    cluster.cache.check_consistent()


def test_what_is_reserved_follows_who_else_has_pods_and_what_is_asked_for() -> None:
    cluster = make_world()
    growing = [make_growing(n, asked="10") for n in range(NODES)]
    cluster.add_pods(*growing)
    assert get_free_cores(cluster) == [CORES - 10] * NODES  # alone, all of the cluster is its fair share

    waiting = make_waiting("g")
    cluster.add_pods(waiting)
    assert get_free_cores(cluster) == [CORES - 0.01] * NODES
    cluster.cache.check_consistent()

    cluster.delete_pod(waiting)
    assert get_free_cores(cluster) == [CORES - 10] * NODES
    cluster.add_pods(make_waiting("h"))
    for pod in growing[5:]:
        cluster.change_pod(pod, lambda changed: changed["status"].pop("conditions"))
    assert get_free_cores(cluster) == [CORES - 0.01] * 5 + [CORES - 10] * 5  # granted: what is allocated is held
    for pod in growing[5:]:
        cluster.delete_pod(pod)
    assert get_free_cores(cluster) == [CORES - 10] * 5 + [CORES] * 5
    cluster.cache.check_consistent()


def test_a_weight_says_how_much_growth_is_reserved() -> None:
    cluster = make_world()
    cluster.cache.set_tenant(TenantSpec("evil", namespaces=frozenset({"evil"}), weight=Fraction(3)))
    cluster.add_pods(*(make_growing(n, asked="11") for n in range(NODES)), make_waiting("g"))
    assert get_free_cores(cluster) == [CORES - 11] * NODES

    cluster.cache.set_tenant(TenantSpec("good", namespaces=frozenset({"good"}), weight=Fraction(2)))
    assert get_free_cores(cluster) == [CORES - 0.01] * NODES


@pytest.mark.parametrize("settings", [{"gated_scheduler": OTHER}, {"asking": frozenset({OTHER})}], ids=str)
def test_where_kube_scheduler_places_pods_its_reservation_counts(settings: dict[str, Any]) -> None:
    cluster = make_world(**settings)
    cluster.add_pods(*(make_growing(n, asked=f"{CORES}") for n in range(NODES)), make_waiting("g"))
    assert get_free_cores(cluster) == [0] * NODES
