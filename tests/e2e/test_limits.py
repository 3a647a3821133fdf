"""Limits of Tenants on a real API server: raised and lowered live, on a kind of node, and kept after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.objects import TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, delete_pods, find_bound, find_condition, find_waiting
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

CPU = {"cpu": "1", "memory": "128Mi"}
LARGE = {"cpu": "12", "memory": "64Gi", "pods": "110"}


def wait_for_bound(api: Api, namespace: str, count: int) -> None:
    """Wait until so many pods are bound and all others of the namespace wait for the limit."""

    def look() -> bool:
        waiting = [find_condition(pod).get("reason") for pod in find_waiting(api, namespace)]
        return count_bound(api, namespace) == count and all(reason == "AtLimit" for reason in waiting)

    wait_for(look, describe=f"{count} bound pods in {namespace} and the others AtLimit")


def test_a_limit_is_kept_raised_and_lowered_live(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=LARGE)])
    mine, theirs = namespace(), namespace()
    name = tenant(namespaces=[mine], limit=[{"resources": {"cpu": "3"}}])
    running = operator()
    pods = create_pods(api, mine, [make_pod(CPU) for _ in range(9)])
    wait_for_bound(api, mine, 3)
    (message, *_) = [find_condition(pod)["message"] for pod in find_waiting(api, mine)]
    assert f"The limit for cpu of tenant {name} is reached." in message
    create_pods(api, theirs, [make_pod(CPU) for _ in range(4)])
    wait_for(lambda: count_bound(api, theirs) == 4, describe="the pods of another tenant to be bound")

    api.patch(f"{TENANTS}/{name}", {"spec": {"limit": [{"resources": {"cpu": "5"}}]}})
    wait_for_bound(api, mine, 5)

    api.patch(f"{TENANTS}/{name}", {"spec": {"limit": [{"resources": {"cpu": "2"}}]}})
    running.stop()
    operator()
    bound = [pod["metadata"]["name"] for pod in find_bound(api, mine)]
    delete_pods(api, mine, bound[:4])
    wait_for_bound(api, mine, 2)
    assert len(find_waiting(api, mine)) == len(pods) - 4 - 2

    api.patch(f"{TENANTS}/{name}", {"spec": {"limit": None}})
    wait_for(lambda: not find_waiting(api, mine), describe="all pods to be bound without a limit")


def test_a_limit_of_one_kind_of_node_leaves_the_others(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    kinds = [make_name("n"), make_name("n")]
    nodes([make_node(name, allocatable=LARGE, labels={"gpu": f"model-{n}"}) for n, name in enumerate(kinds)])
    mine = namespace()
    tenant(namespaces=[mine], limit=[{"nodes": {"matchLabels": {"gpu": "model-1"}}, "resources": {"cpu": "2"}}])
    operator()
    create_pods(api, mine, [make_pod(CPU) for _ in range(20)])

    wait_for(lambda: count_bound(api, mine) == 14, describe="twelve pods on one node and two on the other")
    servers = [pod["spec"]["nodeName"] for pod in find_bound(api, mine)]
    assert [servers.count(name) for name in kinds] == [12, 2]
    wait_for(
        lambda: {find_condition(pod).get("reason") for pod in find_waiting(api, mine)} == {"Unschedulable"},
        describe="the others to wait for a node like the full one",
    )
