"""The order of a tree of Tenants, guarantees and users on a real API server: docs/limits.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, delete_pods, find_bound, find_condition, find_waiting
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

CPU, MEMORY, BOTH = {"cpu": "1"}, {"memory": "1G"}, {"cpu": "1", "memory": "1G"}


def make_server(cpu: int, memory: int | None = None, **labels: str) -> Json:
    """Return a node with so many cores and as many gigabytes."""
    amounts = {"cpu": str(cpu), "memory": f"{cpu if memory is None else memory}G", "pods": "400"}
    return make_node(make_name("n"), allocatable=amounts, labels=labels)


def count_all(api: Api, namespaces: Sequence[str]) -> list[int]:
    """Return how many pods of each namespace are bound."""
    return [count_bound(api, namespace) for namespace in namespaces]


def wait_for_counts(api: Api, namespaces: Sequence[str], *counts: int) -> None:
    """Wait until so many pods of each namespace are bound and all others were told that they wait."""

    def look() -> bool:
        others = (pod for namespace in namespaces for pod in find_waiting(api, namespace))
        return all(find_condition(pod) for pod in others) and count_all(api, namespaces) == list(counts)

    try:
        wait_for(look, describe=f"{counts} bound pods")
    except AssertionError as error:
        raise AssertionError(f"{count_all(api, namespaces)}, not {counts}") from error


def fetch_status(api: Api, name: str) -> Json:
    """Return a Tenant's status, empty while it has none."""
    status: Json = api.get(f"{TENANTS}/{name}").get("status", {})
    return status


@pytest.mark.parametrize("chosen", ["best-fit-drfh", "ps-dsf"])
def test_a_department_has_its_part_whatever_its_projects_need(
    api: Api,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
    chosen: str,
) -> None:
    policy(policy=chosen)
    sci, dev, prod = namespace(), namespace(), namespace()
    eng = tenant(weight=50)
    tenant(weight=50, namespaces=[sci])
    for project in (dev, prod):
        tenant(parent=eng, namespaces=[project])
    for place, requests in ((sci, BOTH), (dev, CPU), (prod, MEMORY)):
        create_pods(api, place, [make_pod(requests) for _ in range(10)])
    operator()
    nodes([make_server(10)])

    wait_for_counts(api, [sci, dev, prod], 5, 5, 5)

    wait_for(lambda: fetch_status(api, eng).get("pods", {}).get("running") == 10, describe="the parent's running pods")


@pytest.mark.parametrize("chosen", ["best-fit-drfh", "ps-dsf"])
def test_what_is_used_up_holds_no_project_back(
    api: Api,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
    chosen: str,
) -> None:
    """Four equal children of the root, one of which has two of its own."""
    policy(policy=chosen)
    spaces = [namespace() for _ in range(5)]
    inner = tenant()
    parents: list[dict[str, Any]] = [{}, {}, {"parent": inner}, {"parent": inner}, {}]
    for place, requests, parent in zip(spaces, (CPU, CPU, CPU, MEMORY, MEMORY), parents, strict=True):
        tenant(namespaces=[place], **parent)
        create_pods(api, place, [make_pod(requests) for _ in range(30)])
    operator()
    nodes([make_server(30)])

    wait_for_counts(api, spaces, 10, 10, 10, 15, 15)


def test_a_guarantee_comes_first_and_its_unused_part_is_lent_or_not(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    mine, theirs = namespace(), namespace()
    guarantee: list[Any] = [{"nodes": {"matchLabels": {"gpu": "h100"}}, "resources": {"cpu": "6"}}]
    name = tenant(namespaces=[mine], guarantee=guarantee, lending="Never")
    tenant(namespaces=[theirs], weight=10)
    operator()
    nodes([make_server(8, gpu="h100"), make_server(4, gpu="a100")])
    create_pods(api, theirs, [make_pod(CPU) for _ in range(12)])

    wait_for_counts(api, [theirs], 6)
    messages = [find_condition(pod)["message"] for pod in find_waiting(api, theirs)]
    assert all(name in message for message in messages), messages
    wait_for(lambda: fetch_status(api, name).get("keptBack", {}).get("cpu") == "6", describe="keptBack in the status")

    on_h100: dict[str, Any] = {"nodeSelector": {"gpu": "h100"}}
    create_pods(api, mine, [make_pod(CPU, **on_h100) for _ in range(8)])
    wait_for_counts(api, [mine, theirs], 6, 6)

    api.patch(f"{TENANTS}/{name}", {"spec": {"lending": "Always"}})
    delete_pods(api, mine, [pod["metadata"]["name"] for pod in [*find_waiting(api, mine), *find_bound(api, mine)]])
    wait_for_counts(api, [theirs], 12)

    create_pods(api, mine, [make_pod(CPU, **on_h100) for _ in range(6)])
    create_pods(api, theirs, [make_pod(CPU) for _ in range(12)])
    ended = [pod["metadata"]["name"] for pod in find_bound(api, theirs)]
    delete_pods(api, theirs, ended)
    wait_for_counts(api, [mine, theirs], 6, 6)


def test_a_child_moves_with_what_it_holds_while_no_operator_runs(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    mine = namespace()
    narrow, wide = (tenant(limit=[{"resources": {"cpu": most}}]) for most in ("3", "5"))
    child = tenant(namespaces=[mine], parent=narrow)
    nodes([make_server(20)])
    running = operator()
    create_pods(api, mine, [make_pod(CPU) for _ in range(9)])
    wait_for_counts(api, [mine], 3)
    conditions = [find_condition(pod) for pod in find_waiting(api, mine)]
    assert {each["reason"] for each in conditions} == {"AtLimit"}
    assert all(f"tenant {narrow}" in each["message"] for each in conditions)

    running.stop()
    api.patch(f"{TENANTS}/{child}", {"spec": {"parent": wide}})
    operator()
    wait_for_counts(api, [mine], 5)

    def look() -> bool:
        held = [fetch_status(api, name).get("pods", {}).get("running") for name in (narrow, wide)]
        return held == [0, 5] and fetch_status(api, child).get("path") == f"{wide}/{child}"

    wait_for(look, describe="all pods to be told below the other parent")
    api.patch(f"{TENANTS}/{wide}", {"spec": {"limit": None}})
    wait_for_counts(api, [mine], 9)


def test_a_hundred_users_of_a_tenant_have_equal_parts(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    """The first of them wants all; so does a neighbour of the tenant, and has half."""
    mine, theirs = namespace(), namespace()
    tenant(namespaces=[mine], users={"label": "fairbind.io/user"})
    tenant(namespaces=[theirs])
    create_pods(api, theirs, [make_pod(CPU) for _ in range(200)])
    users = [0] * 100 + [user for user in range(1, 100) for _ in range(2)]
    create_pods(api, mine, [make_pod(CPU, labels={"fairbind.io/user": f"u{user}"}) for user in users])
    operator()
    nodes([make_server(200)])

    wait_for_counts(api, [mine, theirs], 100, 100)
    served = [pod["metadata"]["labels"]["fairbind.io/user"] for pod in find_bound(api, mine)]
    assert sorted(served) == sorted(f"u{user}" for user in range(100))


@pytest.mark.parametrize("reason", ["MissingParent", "Circle"])
def test_an_invalid_parent_is_told_and_harms_nobody(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator, reason: str
) -> None:
    mine = namespace()
    name = tenant(namespaces=[mine], parent="nothing-of-this-name")
    if reason == "Circle":
        api.patch(f"{TENANTS}/{name}", {"spec": {"parent": tenant(parent=name)}})
    nodes([make_server(4)])
    operator()
    create_pods(api, mine, [make_pod(CPU) for _ in range(4)])

    wait_for_counts(api, [mine], 4)

    def look() -> bool:
        conditions = fetch_status(api, name).get("conditions", [])
        return any(each["type"] == "ParentValid" and each["reason"] == reason for each in conditions)

    wait_for(look, describe=f"ParentValid with the reason {reason}")
