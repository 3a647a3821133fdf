from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairbind.cluster.tenancy.tenants import TenantState
from fairbind.kube.writers.status import (
    compute_merge_patch,
    compute_policy_status,
    compute_tenant_status,
    keep_transition_times,
)
from fairbind.model.overview import TenantOverview

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
)


def make_state(
    *,
    conflicts: dict[str, str] | None = None,
    missing: tuple[str, ...] = (),
    claims_nothing: bool = False,
    unknown: tuple[str, ...] = (),
) -> TenantState:
    return TenantState("a", conflicts or {}, missing, claims_nothing, unknown, 3)


def find_condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (condition,) = [condition for condition in status["conditions"] if condition["type"] == kind]
    assert isinstance(condition, dict)
    return condition


def test_numbers_are_rounded_and_quantities_are_kubernetes_own() -> None:
    status = compute_tenant_status(TENANT, OVERVIEW, make_state(), None)
    del status["conditions"]
    assert status == {
        "observedGeneration": 3,
        "dominantShare": "0.333",
        "dominantResource": "memory",
        "weightedShare": "0.167",
        "allocated": {"cpu": "1500m", "memory": "1536Mi", "pods": "4"},
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
