from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairbind.cluster.tenancy.tenants import TenantState
from fairbind.kube.writers.status import (
    MAX_UNCLAIMED,
    compute_merge_patch,
    compute_policy_status,
    compute_tenant_status,
    compute_unclaimed,
    keep_transition_times,
)
from fairbind.model.overview import ClusterOverview, TenantOverview

TENANT: dict[str, Any] = {"metadata": {"name": "a", "uid": "u", "generation": 3}}
OVERVIEW = TenantOverview(
    name="a",
    weight=2.0,
    dominant_share=1 / 3,
    dominant_resource="memory",
    weighted_share=1 / 6,
    allocated={"cpu": 1.5, "memory": 3 * 2.0**29, "nvidia.com/gpu": 0.0, "pods": 4.0},
    running=4,
    pending={"queued": 1, "gated": 2},
    virtual_dominant_shares={"node-b": 2 / 3, "node-a": 0.1},
    reserved={"cpu": 0.5, "memory": 0.0},
    reserved_nodes=1,
    guaranteed={"cpu": 2.5},
    kept_back={"nvidia.com/gpu": 1.0},
)


def make_state(
    *,
    conflicts: dict[str, str] | None = None,
    missing: tuple[str, ...] = (),
    claims_nothing: bool = False,
    unknown: tuple[str, ...] = (),
) -> TenantState:
    return TenantState("a", conflicts or {}, missing, claims_nothing, unknown, 3, path="top/a")


def find_condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (condition,) = [condition for condition in status["conditions"] if condition["type"] == kind]
    assert isinstance(condition, dict)
    return condition


def test_numbers_are_rounded_and_quantities_are_kubernetes_own() -> None:
    status = compute_tenant_status(TENANT, OVERVIEW, make_state(), None)
    del status["conditions"]
    assert status == {
        "observedGeneration": 3,
        "path": "top/a",
        "dominantShare": "0.333",
        "dominantResource": "memory",
        "weightedShare": "0.167",
        "allocated": {"cpu": "1500m", "memory": "1536Mi", "pods": "4"},
        "guaranteed": {"cpu": "2500m"},
        "keptBack": {"nvidia.com/gpu": "1"},
        "reserved": {"cpu": "500m"},
        "reservedNodes": 1,
        "pods": {"running": 4, "pending": 3},
        "virtualDominantShares": [
            {"serverClass": "node-a", "share": "0.100"},
            {"serverClass": "node-b", "share": "0.667"},
        ],
    }


def test_the_observed_generation_is_that_of_the_spec_which_the_numbers_come_from() -> None:
    newer: dict[str, Any] = {"metadata": {**TENANT["metadata"], "generation": 4}}
    status = compute_tenant_status(newer, OVERVIEW, make_state(), None)
    assert status["observedGeneration"] == 3
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {3}
    assert compute_tenant_status(newer, None, None, None)["observedGeneration"] == 0
    invalid = compute_tenant_status(newer, OVERVIEW, make_state(), "spec.weight must be a number")
    assert invalid["observedGeneration"] == 4
    assert invalid["allocated"] == {}


def test_a_tenant_as_it_is_written_is_ready() -> None:
    status = compute_tenant_status(TENANT, OVERVIEW, make_state(), None)
    ready, conflict = find_condition(status, "Ready"), find_condition(status, "NamespacesConflict")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("True", "AsWritten", 3)
    assert (conflict["status"], conflict["reason"]) == ("False", "NoConflict")


@pytest.mark.parametrize(
    ("state", "problem", "reason", "named"),
    [
        (make_state(claims_nothing=True), None, "ClaimsNothing", "spec.namespaces"),
        (make_state(missing=("nowhere",)), None, "NamespaceNotFound", "nowhere"),
        (make_state(conflicts={"shared": "older"}), None, "NamespacesConflict", "shared"),
        (make_state(unknown=("example.com/x",)), None, "UnknownResource", "example.com/x"),
        (replace(make_state(), parent="b", parent_trouble=("Circle", "x")), None, "ParentNotValid", "spec.parent b"),
        (replace(make_state(), overcommitted=("x",)), None, "GuaranteeOvercommitted", "spec.guarantee"),
        (None, "spec.weight must be a number", "InvalidSpec", "spec.weight must be a number"),
        (None, None, "NotSeenYet", "yet"),
    ],
)
def test_what_of_a_tenant_has_no_effect_is_said(
    state: TenantState | None, problem: str | None, reason: str, named: str
) -> None:
    ready = find_condition(compute_tenant_status(TENANT, None, state, problem), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert named in ready["message"]


def test_a_conflict_names_the_namespace_and_who_keeps_it() -> None:
    status = compute_tenant_status(TENANT, OVERVIEW, make_state(conflicts={"shared": "older"}), None)
    conflict = find_condition(status, "NamespacesConflict")
    assert (conflict["status"], conflict["reason"]) == ("True", "ClaimedByOlderTenant")
    assert "shared (Tenant older)" in conflict["message"]


def list_conditions(state: TenantState) -> dict[str, tuple[str, str, str]]:
    status = compute_tenant_status(TENANT, OVERVIEW, state, None)
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}


def test_a_parent_that_counts_is_told_with_the_path() -> None:
    conditions = list_conditions(replace(make_state(), parent="top"))
    assert conditions["ParentValid"] == ("True", "ParentCounts", "The path of the tenant is top/a.")
    assert conditions["Ready"][0] == "True"


def test_a_parent_that_does_not_count_is_told_with_the_reason() -> None:
    trouble = "MissingParent", "there is no valid Tenant top: top/a; the tenant is a child of the root"
    conditions = list_conditions(replace(make_state(), parent="top", parent_trouble=trouble))
    message = "There is no valid Tenant top: top/a; the tenant is a child of the root."
    assert conditions["ParentValid"] == ("False", "MissingParent", message)


def test_guarantees_above_what_nodes_have_are_told_with_the_amounts() -> None:
    fits, more = replace(make_state(), overcommitted=()), replace(make_state(), overcommitted=("first", "second"))
    assert list_conditions(fits)["GuaranteeOvercommitted"][:2] == ("False", "NodesHaveEnough")
    assert list_conditions(more)["GuaranteeOvercommitted"] == (
        "True",
        "MoreThanNodesHave",
        "Guarantees of siblings are scaled by weight: first; second.",
    )


def test_without_parent_and_guarantee_nothing_is_told_of_them() -> None:
    assert list_conditions(make_state()).keys() == {"NamespacesConflict", "Ready"}


def test_long_lists_are_cut_and_counted() -> None:
    missing = tuple(f"n{number:03}" for number in range(200))
    message = find_condition(compute_tenant_status(TENANT, None, make_state(missing=missing), None), "Ready")["message"]
    assert "n009 and 190 more" in message
    assert "n010" not in message


@pytest.mark.parametrize(
    ("problem", "ready", "reason"),
    [(None, "True", "Applied"), ("spec.policy must be one of", "False", "InvalidSpec")],
)
def test_an_invalid_policy_says_what_is_wrong(problem: str | None, ready: str, reason: str) -> None:
    status = compute_policy_status({"metadata": {"name": "default", "generation": 2}}, problem)
    found = find_condition(status, "Ready")
    assert (found["status"], found["reason"]) == (ready, reason)
    assert status["observedGeneration"] == 2
    if problem:
        assert problem in found["message"]


def test_fairness_resources_that_no_node_has_are_named() -> None:
    status = compute_policy_status({"metadata": {"name": "default", "generation": 1}}, None, ["example.com/x"])
    ready = find_condition(status, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "UnknownResource")
    assert "example.com/x" in ready["message"]


def test_whether_the_fair_shares_are_known_is_a_condition() -> None:
    told = ("False", "SolveFailed", "The last fair shares stay: no answer")
    status = compute_policy_status({"metadata": {"name": "default", "generation": 1}}, None, (), told)
    found = find_condition(status, "FairSharesKnown")
    assert (found["status"], found["reason"], found["message"]) == told


def test_a_fair_share_is_shown_when_it_is_known() -> None:
    assert "fairShare" not in compute_tenant_status(TENANT, OVERVIEW, make_state(), None)
    known = compute_tenant_status(TENANT, replace(OVERVIEW, fair_share=2 / 3), make_state(), None)
    assert known["fairShare"] == "0.667"


def test_times_stay_while_a_condition_does_not_turn() -> None:
    status = compute_tenant_status(TENANT, OVERVIEW, make_state(), None)
    first = keep_transition_times(status, {}, "2026-01-01T00:00:00Z")
    assert {condition["lastTransitionTime"] for condition in first["conditions"]} == {"2026-01-01T00:00:00Z"}
    turned = compute_tenant_status(TENANT, OVERVIEW, make_state(missing=("x",)), None)
    second = keep_transition_times(turned, first, "2026-02-02T00:00:00Z")
    assert find_condition(second, "Ready")["lastTransitionTime"] == "2026-02-02T00:00:00Z"
    assert find_condition(second, "NamespacesConflict")["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_nothing_is_written_when_nothing_changed() -> None:
    status = keep_transition_times(compute_tenant_status(TENANT, OVERVIEW, make_state(), None), {}, "t")
    assert compute_merge_patch(status, keep_transition_times(status, status, "later")) == {}


def test_a_patch_takes_away_what_is_held_no_more() -> None:
    present = {"allocated": {"cpu": "1", "memory": "1Gi"}, "old": 1}
    assert compute_merge_patch(present, {"allocated": {"cpu": "2"}}) == {
        "old": None,
        "allocated": {"cpu": "2", "memory": None},
    }


def make_holder(name: str, gpus: float, pending: int = 0, cpu: float = 0.0) -> TenantOverview:
    resource = "nvidia.com/gpu" if gpus else None
    allocated = {"nvidia.com/gpu": gpus, "cpu": cpu}
    return TenantOverview(name, 1.0, gpus / 8, resource, gpus / 8, allocated, int(gpus), {"queued": pending})


def make_cluster(*tenants: TenantOverview) -> ClusterOverview:
    capacity = {"cpu": 100.0, "nvidia.com/gpu": 8.0, "pods": 110.0}
    return ClusterOverview(capacity, {}, 1, tenants, 1.0, counting=frozenset({"cpu", "nvidia.com/gpu"}))


def test_a_namespace_that_no_tenant_claims_is_seen_in_the_policy() -> None:
    cluster = make_cluster(make_holder("a", 2.0), make_holder("ns/small", 0.0, 3), make_holder("ns/large", 4.0, 1))
    status = compute_policy_status({"metadata": {"name": "default", "generation": 1}}, None, overview=cluster)
    large, small = status["unclaimed"].pop("largest")
    assert status["unclaimed"] == {
        "namespaces": 2,
        "dominantShare": "0.500",
        "dominantResource": "nvidia.com/gpu",
        "running": 4,
        "pending": 4,
    }
    assert large == {
        "namespace": "large",
        "dominantShare": "0.500",
        "dominantResource": "nvidia.com/gpu",
        "running": 4,
        "pending": 1,
    }
    assert (small["namespace"], small["pending"]) == ("small", 3)


def test_many_small_namespaces_are_seen_together() -> None:
    tenants = [make_holder(f"ns/x-{number:02}", 0.2) for number in range(30)]
    unclaimed = compute_unclaimed(make_cluster(*tenants))
    assert (unclaimed["namespaces"], unclaimed["dominantShare"]) == (30, "0.750")
    assert [entry["namespace"] for entry in unclaimed["largest"]] == [
        f"x-{number:02}" for number in range(MAX_UNCLAIMED)
    ]


def test_where_all_are_one_tenant_it_is_one_entry() -> None:
    (entry,) = compute_unclaimed(make_cluster(make_holder("ns/*", 4.0)))["largest"]
    assert entry["namespace"] == "*"


def test_where_every_namespace_is_claimed_nothing_is_held() -> None:
    unclaimed = compute_unclaimed(make_cluster(make_holder("a", 2.0)))
    assert (unclaimed["namespaces"], unclaimed["dominantShare"], unclaimed["dominantResource"]) == (0, "0.000", "")
