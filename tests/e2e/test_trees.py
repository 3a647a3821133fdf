"""Trees of Tenants on a real API server: their place is told in their status, whatever becomes of their parents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

CPU = {"cpu": "1", "memory": "128Mi"}
LARGE = {"cpu": "12", "memory": "64Gi", "pods": "110"}
EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "department.yaml"
MODEL, GPU = "nvidia.com/gpu.product", "nvidia.com/gpu"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


def read_status(api: Api, name: str) -> Json:
    status: Json = api.get(f"{TENANTS}/{name}").get("status", {})
    return status


def find_condition(api: Api, name: str, kind: str) -> tuple[str, str, str]:
    found = [each for each in read_status(api, name).get("conditions", []) if each["type"] == kind]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def wait_for_condition(api: Api, name: str, kind: str, status: str, reason: str) -> str:
    """Wait for a condition, and return its message."""
    wait_for(lambda: find_condition(api, name, kind)[:2] == (status, reason), describe=f"{kind} {reason} of {name}")
    return find_condition(api, name, kind)[2]


def test_the_place_of_a_tenant_is_told_in_its_status(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=LARGE)])
    mine, theirs = namespace(), namespace()
    top, missing = tenant(), make_name("parent")
    guarantee: list[Any] = [{"resources": {"cpu": "9"}}]
    a = tenant(parent=top, namespaces=[mine], guarantee=guarantee, lending="Never")
    b = tenant(parent=missing, namespaces=[theirs], guarantee=guarantee)
    operator()
    create_pods(api, mine, [make_pod(CPU) for _ in range(2)])
    create_pods(api, theirs, [make_pod(CPU)])
    wait_for(lambda: count_bound(api, mine) == 2, describe="pods to be bound")

    assert f"{top}/{a}" in wait_for_condition(api, a, "ParentValid", "True", "ParentCounts")
    assert f"{missing}/{b}" in wait_for_condition(api, b, "ParentValid", "False", "MissingParent")
    wait_for_condition(api, a, "GuaranteeOvercommitted", "False", "NodesHaveEnough")
    wait_for_condition(api, top, "Ready", "True", "AsWritten")
    wait_for(lambda: read_status(api, top)["pods"] == {"running": 2, "pending": 0}, describe="pods of the subtree")
    wait_for(lambda: read_status(api, a).get("keptBack") == {"cpu": "7"}, describe="what is kept back")
    assert (read_status(api, a)["path"], read_status(api, a)["guaranteed"]) == (f"{top}/{a}", {"cpu": "9"})

    api.patch(f"{TENANTS}/{b}", {"spec": {"parent": top}})
    wait_for_condition(api, b, "ParentValid", "True", "ParentCounts")
    message = wait_for_condition(api, a, "GuaranteeOvercommitted", "True", "MoreThanNodesHave")
    assert "of cpu 18 are guaranteed, and all nodes have 12" in message
    wait_for(lambda: read_status(api, a)["guaranteed"] == {"cpu": "6"}, describe="the guarantee to be scaled")
    wait_for(lambda: read_status(api, top)["pods"]["running"] == 3, describe="the pod to move with the child")

    api.patch(f"{TENANTS}/{top}", {"spec": {"parent": a}})
    message = wait_for_condition(api, a, "ParentValid", "False", "Circle")
    assert f"{a}/{top}/{a}" in message
    wait_for_condition(api, top, "ParentValid", "False", "Circle")
    wait_for_condition(api, b, "ParentValid", "True", "ParentCounts")


def test_a_parent_that_is_being_deleted_does_not_count(
    api: Api, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    top = tenant()
    a = tenant(parent=top, namespaces=[namespace()])
    operator()
    wait_for_condition(api, a, "ParentValid", "True", "ParentCounts")

    api.patch(f"{TENANTS}/{top}", {"metadata": {"finalizers": ["fairbind.io/test"]}})
    api.delete(f"{TENANTS}/{top}")
    assert f"{top}/{a}" in wait_for_condition(api, a, "ParentValid", "False", "ParentDeleted")
    assert read_status(api, a)["path"] == a

    api.patch(f"{TENANTS}/{top}", {"metadata": {"finalizers": None}})
    wait_for_condition(api, a, "ParentValid", "False", "MissingParent")
    tenant(top)
    wait_for_condition(api, a, "ParentValid", "True", "ParentCounts")


@pytest.fixture
def department(cluster: Cluster) -> Iterator[None]:
    """The Tenants of deploy/examples/department.yaml."""
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    yield
    cluster.kubectl("delete", "-f", str(EXAMPLE))


def test_the_department_of_the_examples_counts_as_it_is_written(
    api: Api, nodes: MakeNodes, department: None, operator: StartOperator
) -> None:
    del department
    models = [H100] * 3 + [A100] * 2
    nodes([make_node(make_name("n"), allocatable=LARGE | {GPU: "8"}, labels={MODEL: model}) for model in models])
    operator()

    for name in ("vision", "language"):
        assert f"science/{name}" in wait_for_condition(api, name, "ParentValid", "True", "ParentCounts")
        wait_for_condition(api, name, "Ready", "True", "AsWritten")
        wait_for_condition(api, name, "GuaranteeOvercommitted", "False", "NodesHaveEnough")
    wait_for(lambda: read_status(api, "vision").get("keptBack") == {GPU: "8"}, describe="what vision keeps back")
    found = {name: read_status(api, name) for name in ("science", "vision", "language")}
    assert {name: status["guaranteed"] for name, status in found.items()} == {
        "science": {GPU: "24"},
        "vision": {GPU: "8"},
        "language": {GPU: "8"},
    }
    assert found["language"]["path"] == "science/language"
