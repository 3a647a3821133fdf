"""The example of docs/policies.md on a real API server: `edge` can use the two small nodes only, `batch` all five."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.leases import hold_lease, renew_lease
from e2e.objects import SCHEDULER_NAME, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import create_pods, wait_full
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.api import Api, Json
    from e2e.operators import Operator

SIZE, HOSTNAME = "example.com/size", "kubernetes.io/hostname"
LARGE, SMALL = ({"cpu": cpu, "memory": memory, "pods": "110"} for cpu, memory in (("32", "128Gi"), ("8", "16Gi")))
CORES, SMALL_CORES = 3 * 32 + 2 * 8, 2 * 8
REQUESTS = {"cpu": "1", "memory": "2Gi"}


def make_nodes() -> list[Json]:
    """Return the five nodes. By name alone, the large ones come last."""
    sizes = [("small", SMALL)] * 2 + [("z-large", LARGE)] * 3
    named = [(make_name(size), size, amounts) for size, amounts in sizes]
    return [
        make_node(name, allocatable=amounts, labels={HOSTNAME: name, SIZE: size.rpartition("-")[2]})
        for name, size, amounts in named
    ]


def create_backlog(api: Api, edge: str, batch: str, scheduler: str = SCHEDULER_NAME) -> None:
    """Create more pods of both than fit."""
    create_pods(
        api,
        edge,
        [make_pod(REQUESTS, scheduler_name=scheduler, nodeSelector={SIZE: "small"}) for _ in range(SMALL_CORES + 4)],
    )
    create_pods(api, batch, [make_pod(REQUESTS, scheduler_name=scheduler) for _ in range(CORES + 3)])


def place_guided(
    api: Api, start: Callable[[], Operator], spaces: tuple[str, str], tenants: tuple[str, str]
) -> tuple[int, ...]:
    """Let an operator lead once it knows the exact answer; return how many pods of `edge` and `batch` were placed."""
    parts = (SMALL_CORES / CORES, 1 - SMALL_CORES / CORES)
    with hold_lease(api) as let_go:
        running = start()

        def knows_the_answer() -> bool:
            renew_lease(api)
            metrics = running.metrics()
            found = tuple(metrics.value("fairbind_tenant_fair_share", tenant=tenant) for tenant in tenants)
            return found == pytest.approx(parts)

        wait_for(knows_the_answer, describe=f"fair shares of {parts}")
        let_go()
        return wait_full(api, CORES, *spaces)
