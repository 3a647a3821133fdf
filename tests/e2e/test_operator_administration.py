"""Administrators change weights, claims and policies, also wrongly: the next cycle follows, without a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.checks import check_metrics
from e2e.conftest import remove
from e2e.objects import POLICIES, TENANTS, make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bound, create_pods, delete_pods, find_bound
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

pytestmark = pytest.mark.oldest_kubernetes

FOUR_CORES = {"cpu": "4", "memory": "32Gi", "pods": "110"}


def get_status(api: Api, name: str) -> Json:
    status: Json = api.get(f"{TENANTS}/{name}").get("status") or {}
    return status


def find_condition(item: Json, kind: str) -> Json:
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def wait_for_reason(api: Api, path: str, reason: str, *, kind: str = "Ready") -> Json:
    return wait_for(
        lambda: found if (found := find_condition(api.get(path), kind)).get("reason") == reason else {},
        describe=lambda: f"{kind} with reason {reason} in {api.get(path).get('status')}",
    )


def free_one(api: Api, namespace: str) -> None:
    """Make room by deleting a bound pod."""
    delete_pods(api, namespace, [find_bound(api, namespace)[0]["metadata"]["name"]])


def test_a_new_weight_acts_on_the_next_cycle(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=FOUR_CORES)])
    one, other = namespace(), namespace()
    tenant(namespaces=[one])
    second = tenant(namespaces=[other])
    for name in (one, other):
        create_pods(api, name, [make_pod(SMALL) for _ in range(4)])
    running = operator()
    wait_for(lambda: (count_bound(api, one), count_bound(api, other)) == (2, 2), describe="equal shares")
    api.patch(f"{TENANTS}/{second}", {"spec": {"weight": 3}})
    wait_for(
        lambda: running.metrics().value("fairbind_tenant_weight", tenant=second) == 3.0,
        describe="the weight to be seen",
    )
    free_one(api, one)
    wait_for(lambda: count_bound(api, other) == 3, describe="the free room to go to the heavier tenant")
    check_metrics(api, running, [one, other])
    wait_for(lambda: get_status(api, second).get("pods") == {"running": 3, "pending": 1}, describe="its status")
    status = get_status(api, second)
    assert status["dominantShare"] == "0.750"
    assert status["weightedShare"] == "0.250"
    assert status["dominantResource"] == "cpu"
    assert status["allocated"]["cpu"] == "3"
    assert status["observedGeneration"] == 2


def test_a_change_of_claims_moves_what_is_held(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=FOUR_CORES)])
    name = namespace(labels={"team": "moving"})
    running = operator()
    create_pods(api, name, [make_pod(SMALL) for _ in range(2)])
    wait_for(lambda: count_bound(api, name) == 2, describe="both pods to be bound")

    def count_running(tenant_name: str) -> float | None:
        return running.metrics().value("fairbind_tenant_running_pods", tenant=tenant_name)

    wait_for(lambda: count_running(f"ns/{name}") == 2.0, describe="the implicit tenant to hold them")
    claimer = tenant(namespaceSelector={"matchLabels": {"team": "moving"}})
    wait_for(lambda: count_running(claimer) == 2.0, describe="the Tenant to hold them")
    assert count_running(f"ns/{name}") is None
    api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"team": "moved"}}})
    wait_for(lambda: count_running(f"ns/{name}") == 2.0, describe="the implicit tenant to hold them again")
    assert count_running(claimer) == 0.0
    api.delete(f"{TENANTS}/{claimer}")
    wait_for(lambda: count_running(claimer) is None, describe="the deleted Tenant's series to go away")
    assert f'tenant="{claimer}"' not in running.metrics().text


def test_unclaimed_namespaces_count_as_the_policy_says(
    api: Api,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
) -> None:
    """Refused, then one tenant, then a tenant each: a change moves what waits and what runs, without a restart."""
    nodes([make_node(make_name("n"), allocatable=FOUR_CORES)])
    claimed, one, other = namespace(), namespace(), namespace()
    declared = tenant(namespaces=[claimed])
    policy(unclaimedNamespaces="refuse")
    running = operator()
    for name in (claimed, one, other):
        create_pods(api, name, [make_pod(SMALL)])

    def count_running(*tenants: str) -> list[float | None]:
        return [running.metrics().value("fairbind_tenant_running_pods", tenant=name) for name in tenants]

    def read_message(name: str) -> str:
        (pod,) = api.items(f"/api/v1/namespaces/{name}/pods")
        return str(find_condition(pod, "PodScheduled").get("message", ""))

    wait_for(lambda: count_bound(api, claimed) == 1, describe="the Tenant's pod to be bound")
    said = "pod has a namespace that no Tenant claims"
    wait_for(lambda: all(said in read_message(name) for name in (one, other)), describe="the others to be told why")
    assert (count_bound(api, one), count_bound(api, other)) == (0, 0)

    policy(unclaimedNamespaces="together")
    wait_for(lambda: count_running(declared, "ns/*") == [1.0, 2.0], describe="one tenant to hold both")
    policy(unclaimedNamespaces="tenant")
    own = [f"ns/{one}", f"ns/{other}"]
    wait_for(lambda: count_running(*own) == [1.0, 1.0], describe="each namespace to be a tenant of its own")
    assert count_running("ns/*") == [None]

    def find_unclaimed() -> dict[str, int]:
        """Return how many pods run in each namespace that the policy's status names."""
        unclaimed = api.get(f"{POLICIES}/default")["status"].get("unclaimed", {})
        return {entry["namespace"]: entry["running"] for entry in unclaimed.get("largest", [])}

    wait_for(lambda: find_unclaimed() == {one: 1, other: 1}, describe="the policy to say what they hold")


def test_a_new_policy_acts_on_the_next_cycle(
    api: Api,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    policy: Callable[..., None],
    operator: StartOperator,
) -> None:
    """Best fit puts a pod without memory where memory is scarce; first fit goes by the node's name."""
    stem = make_name("n")
    big, small = f"{stem}-a-big", f"{stem}-b-small"
    nodes(
        [
            make_node(big, allocatable={"cpu": "4", "memory": "512Gi", "pods": "110"}),
            make_node(small, allocatable={"cpu": "4", "memory": "4Gi", "pods": "110"}),
        ]
    )
    name = namespace()
    operator()

    def bind_one() -> str:
        (pod,) = create_pods(api, name, [make_pod({"cpu": "1", "memory": "64Mi"})])
        path = f"/api/v1/namespaces/{name}/pods/{pod}"
        return str(wait_for(lambda: api.get(path)["spec"].get("nodeName"), describe="the pod to be bound"))

    assert bind_one() == small
    policy(policy="first-fit-drfh")
    wait_for(
        lambda: (
            find_condition(found := api.get(f"{POLICIES}/default"), "Ready").get("observedGeneration")
            == found["metadata"]["generation"]
        ),
        describe="the policy to be seen",
    )
    assert bind_one() == big
    ready = find_condition(api.get(f"{POLICIES}/default"), "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "Applied")


def test_of_two_that_claim_the_same_the_older_keeps_it(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=FOUR_CORES)])
    name = namespace()
    running = operator()
    stem = make_name("claim")
    older = tenant(f"{stem}-z", namespaces=[name])  # its name comes last, so it is the age that decides
    created = api.get(f"{TENANTS}/{older}")["metadata"]["creationTimestamp"]
    younger = f"{stem}-a"

    def make_younger() -> bool:
        """Creation times are whole seconds. An earlier try may have made it although nobody said so."""
        remove(api, f"{TENANTS}/{younger}")
        tenant(younger, namespaces=[name])
        return bool(api.get(f"{TENANTS}/{younger}")["metadata"]["creationTimestamp"] > created)

    wait_for(make_younger, describe="a Tenant that is younger by a second", pause=0.3)
    create_pods(api, name, [make_pod(SMALL)])
    wait_for(
        lambda: running.metrics().value("fairbind_tenant_running_pods", tenant=older) == 1.0,
        describe="the older to hold it",
    )
    conflict = wait_for_reason(api, f"{TENANTS}/{younger}", "ClaimedByOlderTenant", kind="NamespacesConflict")
    assert conflict["status"] == "True"
    assert name in conflict["message"]
    assert older in conflict["message"]
    assert wait_for_reason(api, f"{TENANTS}/{older}", "AsWritten")["status"] == "True"
    assert running.metrics().value("fairbind_tenant_running_pods", tenant=younger) == 0.0
    api.delete(f"{TENANTS}/{older}")
    wait_for_reason(api, f"{TENANTS}/{younger}", "NoConflict", kind="NamespacesConflict")
    wait_for(
        lambda: running.metrics().value("fairbind_tenant_running_pods", tenant=younger) == 1.0,
        describe="the younger to inherit it",
    )


def test_tenants_that_cannot_have_an_effect_say_why_and_disturb_nobody(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=FOUR_CORES)])
    name = namespace()
    nothing = tenant()
    missing = make_name("nowhere")
    nowhere = tenant(namespaces=[missing])
    odd = tenant(namespaces=[name], resourceWeights={"example.com/unknown": 2})
    running = operator()
    create_pods(api, name, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, name) == 1, describe="the pod to be bound")
    assert wait_for_reason(api, f"{TENANTS}/{nothing}", "ClaimsNothing")["status"] == "False"
    assert missing in wait_for_reason(api, f"{TENANTS}/{nowhere}", "NamespaceNotFound")["message"]
    assert "example.com/unknown" in wait_for_reason(api, f"{TENANTS}/{odd}", "UnknownResource")["message"]
    check_metrics(api, running, [name])
    for name in (nothing, nowhere):
        assert running.metrics().value("fairbind_tenant_dominant_share", tenant=name) == 0.0


def test_a_status_is_written_once_and_put_right_when_somebody_edits_it(
    api: Api, tenant: MakeTenant, operator: StartOperator
) -> None:
    name = tenant()
    path = f"{TENANTS}/{name}"
    first = operator()
    wait_for_reason(api, path, "ClaimsNothing")
    assert first.stop() == 0
    version = api.get(path)["metadata"]["resourceVersion"]
    second = operator()
    wait_for(second.is_leader, describe="the next one to lead")
    never(lambda: api.get(path)["metadata"]["resourceVersion"] != version, 3.0, "the same status was written again")
    api.patch(f"{path}/status", {"status": {"dominantShare": "0.900"}})
    wait_for(lambda: get_status(api, name)["dominantShare"] == "0.000", describe="the status to be put right")
    assert "annotations" not in api.get(path)["metadata"]
    assert "finalizers" not in api.get(path)["metadata"]
