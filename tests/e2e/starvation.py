"""Small pods that come and go fill the cluster, and a tenant of large pods comes late: does it get its share?"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from e2e.objects import SCHEDULER_NAME, TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, delete_pods, find_bound, find_condition, find_waiting
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.operators import Operator

SMALL, LARGE = {"cpu": "500m", "memory": "64Mi"}, {"cpu": "4", "memory": "64Mi"}
ENDED_AT_ONCE = 4
HALF = 2
"""So many large pods are half of the cluster."""


def make_nodes() -> list[Json]:
    """Return two nodes of eight cores."""
    allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    names = [make_name("n") for _ in range(2)]
    return [make_node(name, allocatable=allocatable, labels={"kubernetes.io/hostname": name}) for name in names]


def check_share(
    api: Api, running: Operator, teams: tuple[str, str], tenant: str, scheduler: str = SCHEDULER_NAME
) -> None:
    """Let small pods end and be followed by others until the large ones, of a tenant, hold half of the cluster."""
    small, large = teams
    random = Random(1)
    create_pods(api, small, [make_pod(SMALL, scheduler_name=scheduler) for _ in range(300)])
    wait_for(lambda: count_bound(api, small) == 32, describe="the small pods to fill all nodes")
    create_pods(api, large, [make_pod(LARGE, scheduler_name=scheduler) for _ in range(4 * HALF)])
    wait_for(
        lambda: running.metrics().total("fairbind_reserved", tenant=tenant, resource="cpu") >= 4, describe="a place"
    )
    wait_for(lambda: api.get(f"{TENANTS}/{tenant}")["status"]["reservedNodes"] >= 1, describe="the status to tell it")
    if scheduler == SCHEDULER_NAME:  # else kube-scheduler says why a pod waits
        wait_for(
            lambda: any(
                "reserved for it" in find_condition(pod).get("message", "") for pod in find_waiting(api, large)
            ),
            describe="a large pod to be told what is reserved",
        )

    def let_some_end() -> bool:
        ending = random.sample(sorted(pod["metadata"]["name"] for pod in find_bound(api, small)), ENDED_AT_ONCE)
        delete_pods(api, small, ending)
        return count_bound(api, large) == HALF

    def count() -> tuple[int, int]:
        return count_bound(api, small), count_bound(api, large)

    wait_for(let_some_end, describe=lambda: f"half of the cluster, not {count()} pods", pause=1.0)
    wait_for(lambda: count() == (16, HALF), describe=lambda: f"the rest to be used by the small pods, not {count()}")
