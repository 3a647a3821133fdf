"""A tree of Tenants on real nodes, with resources that only one of them has: docs/limits.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.objects import TENANTS
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, find_bound, find_condition, find_waiting
from kind.judge import find_refusals, is_running
from kind.owners import RESEARCH, make_kind_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kindcluster.cluster import Cluster

pytestmark = pytest.mark.usefixtures("calm_nodes")

C, M = "test.fairbind.io/c", "test.fairbind.io/m"
PLAY_SECONDS = 300.0


@pytest.fixture
def give(kind_cluster: Cluster) -> Iterator[Callable[[int], None]]:
    """What gives one worker so much of both resources; it has none afterwards."""
    worker = kind_cluster.workers()[0]

    def patch(operation: str, value: str) -> None:
        changes = [
            f'{{"op": "{operation}", "path": "/status/capacity/{resource.replace("/", "~1")}"{value}}}'
            for resource in (C, M)
        ]
        kind_cluster.kubectl(
            "patch", "node", worker, "--subresource=status", "--type=json", f"--patch=[{','.join(changes)}]"
        )

    yield lambda amount: patch("add", f', "value": "{amount}"')
    patch("add", ', "value": "0"')  # the kubelet would not forget what it has allocated
    patch("remove", "")


def make_counted_pod(*resources: str) -> Json:
    """Return a pod that asks for one of each of these."""
    counted = dict.fromkeys(resources, "1")
    pod = make_kind_pod({"cpu": "5m", "memory": "8Mi", **counted}, tolerations=[RESEARCH])
    pod["spec"]["containers"][0]["resources"]["limits"] = counted  # Kubernetes wants them equal
    return pod


def test_departments_share_and_their_limits_follow(
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    give: Callable[[int], None],
) -> None:
    policy(fairnessResources=[C, M])
    sci, dev, prod = spaces = [namespace() for _ in range(3)]
    eng = tenant(weight=50)
    tenant(weight=50, namespaces=[sci])
    for project in (dev, prod):
        tenant(parent=eng, namespaces=[project])
    for place, resources in ((sci, (C, M)), (dev, (C,)), (prod, (M,))):
        create_pods(api, place, [make_counted_pod(*resources) for _ in range(10)])

    def wait_for_counts(*counts: int, reason: str = "Unschedulable") -> None:
        """Wait until so many pods run. reason: why those of `dev` wait that do."""

        def look() -> bool:
            running = [[pod for pod in find_bound(api, place) if is_running(pod)] for place in spaces]
            assert [len(pods) for pods in running] == list(counts)
            return {find_condition(pod).get("reason") for pod in find_waiting(api, dev)} == {reason}

        wait_for(look, PLAY_SECONDS, f"{counts} pods to run", pause=0.5)

    give(10)
    wait_for_counts(5, 5, 5)

    api.patch(f"{TENANTS}/{eng}", {"spec": {"limit": [{"resources": {C: "2"}}]}})
    delete_pods(api, dev, [pod["metadata"]["name"] for pod in find_bound(api, dev)])
    wait_for_counts(5, 2, 5, reason="AtLimit")

    api.patch(f"{TENANTS}/{eng}", {"spec": {"limit": [{"resources": {C: "3"}}]}})
    wait_for_counts(5, 3, 5, reason="AtLimit")
    assert find_refusals(api, *spaces) == []
