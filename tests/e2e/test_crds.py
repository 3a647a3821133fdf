"""What the API server accepts, refuses, fills in and drops of Tenants and SchedulingPolicies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import POLICIES, TENANTS, make_name, make_tenant
from fairbind.scheduling import POLICIES as KNOWN_POLICIES
from localplane.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeTenant

pytestmark = pytest.mark.oldest_kubernetes

ROOT = Path(__file__).parents[2]
API_VERSION = {"apiVersion": "fairbind.io/v1alpha1"}

Spec = dict[str, Any]


def select(**requirement: Any) -> Spec:
    return {"namespaceSelector": {"matchExpressions": [requirement]}}


TENANT_DEFAULTS: Spec = {"weight": 1, "priority": 0, "lending": "Always"}

VALID_TENANTS: list[Spec] = [
    {},
    {"weight": 1},
    {"weight": 2},
    {"weight": "0.5"},
    {"weight": "500m"},
    {"weight": "2"},
    {"weight": "0.001"},
    {"weight": "1m"},
    {"weight": 1000},
    {"weight": "1000"},
    {"weight": "1000000m"},
    {"weight": "1k"},
    {"weight": "999.999"},
    {"resourceWeights": {"cpu": "0.5", "nvidia.com/gpu": "1500m", "memory": 3}},
    {"resourceWeights": {f"example.com/r{number}": 1 for number in range(64)}},
    {"namespaces": []},
    {"namespaces": ["a", "team-a", "1st", "x" * 63]},
    {"namespaces": [f"n{number}" for number in range(1000)]},
    {"namespaceSelector": {"matchLabels": {"team": "a", "example.com/tier": ""}}},
    {"limit": [{"resources": {"cpu": 10, "memory": "64Gi", "pods": 0, "nvidia.com/gpu": "16"}}]},
    {"limit": [{"nodes": {"matchLabels": {"gpu": "h100"}}, "resources": {"nvidia.com/gpu": 16}}]},
    {"limit": [{"nodes": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, "resources": {"cpu": "500m"}}]},
    {"guarantee": [{"nodes": {"matchLabels": {"gpu": "h100"}}, "resources": {"nvidia.com/gpu": 8, "cpu": "0"}}]},
    {"guarantee": [{"resources": {"cpu": "100"}}], "lending": "Never"},
    {"lending": "Always"},
    {"parent": "research", "priority": 10},
    {"parent": "research.vis"},
    {"priority": -1000},
    {"priority": 1000, "minRuntimeSeconds": 0},
    {"minRuntimeSeconds": 600, "users": {"label": "fairbind.io/user"}},
    {"users": {"label": "user"}},
    select(key="team", operator="In", values=["a", "b"]),
    select(key="team", operator="NotIn", values=["a"]),
    select(key="example.com/team", operator="Exists"),
    select(key="team", operator="DoesNotExist", values=[]),
    {
        "weight": 3,
        "resourceWeights": {"cpu": 2},
        "namespaces": ["a"],
        "namespaceSelector": {
            "matchLabels": {"team": "a"},
            "matchExpressions": [{"key": "archived", "operator": "DoesNotExist"}],
        },
    },
]

# the field that the refusal must name, and the spec
INVALID_TENANTS: list[tuple[str, Spec]] = [
    ("spec.weight", {"weight": 0}),
    ("spec.weight", {"weight": 0.5}),
    ("spec.weight", {"weight": -1}),
    ("spec.weight", {"weight": 1001}),
    ("spec.weight", {"weight": 10**30}),
    ("spec.weight", {"weight": ""}),
    ("spec.weight", {"weight": "0"}),
    ("spec.weight", {"weight": "0.000"}),
    ("spec.weight", {"weight": "0.0005"}),
    ("spec.weight", {"weight": "1000.5"}),
    ("spec.weight", {"weight": "1000001m"}),
    ("spec.weight", {"weight": "0m"}),
    ("spec.weight", {"weight": "-1"}),
    ("spec.weight", {"weight": "1Gi"}),
    ("spec.weight", {"weight": "1 "}),
    ("spec.weight", {"weight": "two"}),
    ("spec.weight", {"weight": "NaN"}),
    ("spec.weight", {"weight": "1." + "0" * 40}),
    ("spec.weight", {"weight": True}),
    ("spec.weight", {"weight": False}),
    ("spec.weight", {"weight": []}),
    ("spec.weight", {"weight": [1]}),
    ("spec.weight", {"weight": {}}),
    ("spec.weight", {"weight": {"cpu": 1}}),
    ("spec.resourceWeights[cpu]", {"resourceWeights": {"cpu": 0}}),
    ("spec.resourceWeights.memory", {"resourceWeights": {"cpu": 1, "memory": "much"}}),
    ("spec.resourceWeights.cpu", {"resourceWeights": {"cpu": {"a": 1}}}),
    ("spec.resourceWeights.cpu", {"resourceWeights": {"cpu": True}}),
    ("spec.resourceWeights", {"resourceWeights": {f"example.com/r{number}": 1 for number in range(65)}}),
    ("spec.resourceWeights.cpu", {"resourceWeights": {"cpu": 0.5}}),
    ("spec.resourceWeights", {"resourceWeights": {"a b": 1}}),
    ("spec.resourceWeights", {"resourceWeights": 2}),
    ("spec.namespaces", {"namespaces": "team-a"}),
    ("spec.namespaces[1]", {"namespaces": ["a", "a"]}),
    ("spec.namespaces[0]", {"namespaces": [""]}),
    ("spec.namespaces[1]", {"namespaces": ["a", "Team_A"]}),
    ("spec.namespaces[0]", {"namespaces": ["a.b"]}),
    ("spec.namespaces[0]", {"namespaces": ["x" * 64]}),
    ("spec.namespaces[0]", {"namespaces": [7]}),
    ("spec.namespaces", {"namespaces": [f"n{number}" for number in range(1001)]}),
    ("spec.namespaceSelector", {"namespaceSelector": {}}),
    ("spec.namespaceSelector", {"namespaceSelector": {"matchLabels": {}, "matchExpressions": []}}),
    ("spec.namespaceSelector.matchLabels", {"namespaceSelector": {"matchLabels": {"a b": "c"}}}),
    ("spec.namespaceSelector.matchLabels", {"namespaceSelector": {"matchLabels": {"a": "no blanks"}}}),
    ("spec.namespaceSelector.matchLabels", {"namespaceSelector": {"matchLabels": {"a": "x" * 64}}}),
    ("spec.namespaceSelector.matchExpressions[0].operator", select(key="a", operator="Gt", values=["1"])),
    ("spec.namespaceSelector.matchExpressions[0].operator", select(key="a")),
    ("spec.namespaceSelector.matchExpressions[0].key", select(operator="Exists")),
    ("spec.namespaceSelector.matchExpressions[0].key", select(key="-a", operator="Exists")),
    ("spec.namespaceSelector.matchExpressions[0].values", select(key="a", operator="In")),
    ("spec.namespaceSelector.matchExpressions[0].values", select(key="a", operator="NotIn", values=[])),
    ("spec.namespaceSelector.matchExpressions[0].values", select(key="a", operator="Exists", values=["b"])),
    ("spec.namespaceSelector.matchExpressions[0].values[0]", select(key="a", operator="In", values=["b c"])),
    # unknown fields, also those that are to come
    ("spec.wieght", {"wieght": 2}),
    ("spec.parent", {"parent": ""}),
    ("spec.parent", {"parent": "Research"}),
    ("spec.parent", {"parent": "ns/a"}),
    ("spec.parent", {"parent": ["a"]}),
    ("spec.priority", {"priority": 1001}),
    ("spec.priority", {"priority": -1001}),
    ("spec.priority", {"priority": "high"}),
    ("spec.priority", {"priority": 0.5}),
    ("spec.guarantee", {"guarantee": {"cpu": "1"}}),
    ("spec.guarantee[0].resources", {"guarantee": [{"nodes": {"matchLabels": {"gpu": "h100"}}}]}),
    ("spec.guarantee[0].resources", {"guarantee": [{"resources": {}}]}),
    ("spec.guarantee[0].resources[cpu]", {"guarantee": [{"resources": {"cpu": "-100m"}}]}),
    ("spec.guarantee[0].lending", {"guarantee": [{"resources": {"cpu": 1}, "lending": "Never"}]}),
    ("spec.guarantee", {"guarantee": [{"resources": {"cpu": 1}}] * 17}),
    ("spec.lending", {"lending": "Sometimes"}),
    ("spec.lending", {"lending": False}),
    ("spec.minRuntimeSeconds", {"minRuntimeSeconds": -1}),
    ("spec.minRuntimeSeconds", {"minRuntimeSeconds": "10m"}),
    ("spec.minRuntimeSeconds", {"minRuntimeSeconds": 2**31}),
    ("spec.users.label", {"users": {}}),
    ("spec.users.label", {"users": {"label": ""}}),
    ("spec.users.label", {"users": {"label": "a b"}}),
    ("spec.users", {"users": "fairbind.io/user"}),
    ("spec.users.weight", {"users": {"label": "user", "weight": 2}}),
    ("spec.limit", {"limit": {"cpu": "1"}}),
    ("spec.limit[0].resources", {"limit": [{"nodes": {"matchLabels": {"gpu": "h100"}}}]}),
    ("spec.limit[0].resources", {"limit": [{"resources": {}}]}),
    ("spec.limit[0].resources[cpu]", {"limit": [{"resources": {"cpu": -1}}]}),
    ("spec.limit[0].resources[cpu]", {"limit": [{"resources": {"cpu": "much"}}]}),
    ("spec.limit[0].node", {"limit": [{"node": {}, "resources": {"cpu": 1}}]}),
    (
        "spec.limit[0].nodes.matchExpressions[0].values",
        {"limit": [{"nodes": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "resources": {"cpu": 1}}]},
    ),
    ("spec.limit", {"limit": [{"resources": {"cpu": 1}}] * 17}),
    ("spec.reclaim", {"reclaim": True}),
    ("spec.namespaceSelector.matchFields", {"namespaceSelector": {"matchLabels": {"a": "b"}, "matchFields": []}}),
    ("spec.namespaceSelector.matchExpressions[0].value", select(key="a", operator="Exists", value="b")),
]

VALID_POLICIES: list[Spec] = [
    {},
    *({"policy": policy} for policy in sorted(KNOWN_POLICIES)),
    {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": "0.01"}},
    {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": "500m"}},
    {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": 100}},
    {"policy": "alpha-pf-vds", "alphaPfVds": {}},
    {"policy": "dynamic-drf", "dynamicDrf": {"expectedTenants": 1}},
    {"policy": "two-choices-drfh", "twoChoicesDrfh": {"seed": -7}},
    {"fairnessResources": ["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi"]},
    {"serverClassTolerance": 0},
    {"serverClassTolerance": "0.5"},
    {"serverClassTolerance": "500m"},
    {"unclaimedNamespaces": "tenant"},
    {"fit": "cosine"},
    {"unclaimedNamespaces": "together"},
    {"unclaimedNamespaces": "refuse"},
    {"nodeSelector": {"pool": "shared", "example.com/tier": ""}},
]

INVALID_POLICIES: list[tuple[str, Spec]] = [
    ("spec.policy", {"policy": "drx"}),
    ("spec.policy", {"policy": "Best-Fit-DRFH"}),
    ("spec.policy", {"policy": ""}),
    ("spec.policy", {"policy": 1}),
    ("spec.fairnessResources", {"fairnessResources": []}),
    ("spec.fairnessResources", {"fairnessResources": "cpu"}),
    ("spec.fairnessResources[1]", {"fairnessResources": ["cpu", "cpu"]}),
    ("spec.fairnessResources[0]", {"fairnessResources": ["a b"]}),
    ("spec.fairnessResources[0]", {"fairnessResources": [""]}),
    ("spec.serverClassTolerance", {"serverClassTolerance": -1}),
    ("spec.serverClassTolerance", {"serverClassTolerance": "0.51"}),
    ("spec.serverClassTolerance", {"serverClassTolerance": 0.02}),
    ("spec.serverClassTolerance", {"serverClassTolerance": "2%"}),
    ("spec.unclaimedNamespaces", {"unclaimedNamespaces": "Refuse"}),
    ("spec.fit", {"fit": "Cosine"}),
    ("spec.nodeSelector", {"nodeSelector": {"a b": "c"}}),
    ("spec.nodeSelector", {"nodeSelector": {"a": "b c"}}),
    ("spec.nodeSelector", {"nodeSelector": {"a": 1}}),
    ("spec.alphaPfVds", {"alphaPfVds": {"alpha": 1}}),
    ("spec.alphaPfVds", {"policy": "ps-dsf", "alphaPfVds": {}}),
    *(
        ("spec.alphaPfVds.alpha", {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": alpha}})
        for alpha in (0, "9m", 0.5, 101, "two", True)
    ),
    ("spec.dynamicDrf", {"dynamicDrf": {"expectedTenants": 3}}),
    ("spec.dynamicDrf.expectedTenants", {"policy": "dynamic-drf", "dynamicDrf": {"expectedTenants": 0}}),
    ("spec.dynamicDrf.expectedTenants", {"policy": "dynamic-drf", "dynamicDrf": {"expectedTenants": 2.5}}),
    ("spec.twoChoicesDrfh", {"policy": "first-fit-drfh", "twoChoicesDrfh": {"seed": 1}}),
    ("spec.twoChoicesDrfh.seed", {"policy": "two-choices-drfh", "twoChoicesDrfh": {"seed": "x"}}),
    ("spec.alpha", {"policy": "alpha-pf-vds", "alpha": 1}),
    ("spec.reclaim", {"reclaim": {"enabled": True}}),
]


def try_to_make(api: Api, path: str, kind: str, spec: Any, **query: str) -> Json:
    """Ask the API server what it would make of an object, without keeping it.

    The only name that a SchedulingPolicy can have is taken: the one that is there is asked to change.
    """
    body: Json = {"apiVersion": "fairbind.io/v1alpha1", "kind": kind, "spec": spec}
    query = {"dryRun": "All", "fieldValidation": "Strict", **query}
    if kind == "SchedulingPolicy":
        now = api.get(f"{path}/default")
        made: Json = api.put(f"{path}/default", {**body, "metadata": now["metadata"]}, **query)
    else:
        made = api.post(path, {**body, "metadata": {"name": make_name("try")}}, **query)
    return made


@pytest.mark.parametrize("spec", VALID_TENANTS, ids=lambda spec: json.dumps(spec)[:60])
def test_valid_tenants_are_kept_as_they_were_written(api: Api, spec: Spec) -> None:
    made = try_to_make(api, TENANTS, "Tenant", spec)

    assert made["spec"] == {**TENANT_DEFAULTS, **spec}


@pytest.mark.parametrize(("field", "spec"), INVALID_TENANTS, ids=lambda part: json.dumps(part)[:60])
def test_invalid_tenants_are_refused_by_field(api: Api, field: str, spec: Spec) -> None:
    with pytest.raises(ApiError) as refusal:
        try_to_make(api, TENANTS, "Tenant", spec)

    assert refusal.value.status in {400, 422}
    assert field in refusal.value.message


@pytest.mark.parametrize("spec", VALID_POLICIES, ids=lambda spec: json.dumps(spec)[:60])
def test_valid_policies_are_kept_as_they_were_written(api: Api, spec: Spec) -> None:
    made = try_to_make(api, POLICIES, "SchedulingPolicy", spec)

    defaults = {"policy": "best-fit-drfh", "serverClassTolerance": "0.02", "unclaimedNamespaces": "tenant"}
    assert made["spec"] == {**defaults, "guided": True, "fit": "dominant-resource", **spec}


@pytest.mark.parametrize(("field", "spec"), INVALID_POLICIES, ids=lambda part: json.dumps(part)[:60])
def test_invalid_policies_are_refused_by_field(api: Api, field: str, spec: Spec) -> None:
    with pytest.raises(ApiError) as refusal:
        try_to_make(api, POLICIES, "SchedulingPolicy", spec)

    assert refusal.value.status in {400, 422}
    assert field in refusal.value.message


def test_rules_speak_of_the_field_and_say_what_to_write(api: Api) -> None:
    with pytest.raises(ApiError, match="lower-case letters, digits and '-'"):
        try_to_make(api, TENANTS, "Tenant", {"namespaces": ["Team_A"]})
    with pytest.raises(ApiError, match=r"kubernetes\.io/metadata\.name, operator: Exists"):
        try_to_make(api, TENANTS, "Tenant", {"namespaceSelector": {}})
    with pytest.raises(ApiError, match=r'spec\.weight.*from 0\.001 to 1000, such as 2, "0\.5" or 500m, not two'):
        try_to_make(api, TENANTS, "Tenant", {"weight": "two"})
    with pytest.raises(ApiError, match=r"spec\.weight.*from 0\.001 to 1000, .*, not 1001"):
        try_to_make(api, TENANTS, "Tenant", {"weight": 1001})
    with pytest.raises(ApiError, match=r"spec\.weight.*must be of type integer,string"):
        try_to_make(api, TENANTS, "Tenant", {"weight": 0.5})
    with pytest.raises(ApiError, match=r"is read by spec\.policy alpha-pf-vds only, not by ps-dsf"):
        try_to_make(api, POLICIES, "SchedulingPolicy", {"policy": "ps-dsf", "alphaPfVds": {}})
    with pytest.raises(ApiError, match=r'from 0 to 0\.5, such as 0, "0\.05" or 50m, not 1'):
        try_to_make(api, POLICIES, "SchedulingPolicy", {"serverClassTolerance": 1})
    with pytest.raises(ApiError, match='supported values: "best-fit-drfh"'):
        try_to_make(api, POLICIES, "SchedulingPolicy", {"policy": "drx"})


@pytest.mark.parametrize("value", [2.5, True, [1]], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("path", "kind", "field", "spec"),
    [
        (TENANTS, "Tenant", "spec.weight", lambda value: {"weight": value}),
        (TENANTS, "Tenant", "spec.resourceWeights.cpu", lambda value: {"resourceWeights": {"cpu": value}}),
        (
            POLICIES,
            "SchedulingPolicy",
            "spec.alphaPfVds.alpha",
            lambda value: {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": value}},
        ),
        (POLICIES, "SchedulingPolicy", "spec.serverClassTolerance", lambda value: {"serverClassTolerance": value}),
    ],
    ids=lambda part: part if isinstance(part, str) and part.startswith("spec") else "",
)
def test_a_quantity_of_another_type_is_one_error(
    api: Api, path: str, kind: str, field: str, spec: Callable[[object], Spec], value: object
) -> None:
    with pytest.raises(ApiError) as refusal:
        try_to_make(api, path, kind, spec(value))

    errors = [line for line in refusal.value.message.split(", ") if "some validation rules were not" not in line]
    assert refusal.value.message.count("in body must be of type integer,string") == 1
    assert f"{field} in body must be of type integer,string" in refusal.value.message
    assert "anyOf" not in refusal.value.message
    assert "Checked value" not in refusal.value.message
    assert len(errors) == 1


def test_a_tenant_without_a_spec_has_weight_one(api: Api) -> None:
    name = make_name("try")
    made = api.post(TENANTS, {"kind": "Tenant", "metadata": {"name": name}, **API_VERSION}, dryRun="All")

    assert made["spec"] == TENANT_DEFAULTS


def test_null_means_the_default(api: Api) -> None:
    nothing = {"weight": None, "priority": None, "lending": None}
    assert try_to_make(api, TENANTS, "Tenant", nothing)["spec"] == TENANT_DEFAULTS


def test_a_tenant_is_not_its_own_parent(api: Api) -> None:
    body = {**API_VERSION, "kind": "Tenant", "metadata": {"name": "own"}, "spec": {"parent": "own"}}
    with pytest.raises(ApiError, match=r"spec\.parent.*must be another Tenant"):
        api.post(TENANTS, body, dryRun="All")


def test_unknown_fields_are_dropped_where_they_are_not_refused(api: Api) -> None:
    spec = {"weight": 2, "colour": "red", "namespaceSelector": {"matchLabels": {"a": "b"}, "also": 1}}
    made = try_to_make(api, TENANTS, "Tenant", spec, fieldValidation="Ignore")

    assert made["spec"] == {**TENANT_DEFAULTS, "weight": 2, "namespaceSelector": {"matchLabels": {"a": "b"}}}


def test_a_weight_may_change_its_way_of_writing_under_server_side_apply(api: Api, tenant: MakeTenant) -> None:
    path = f"{TENANTS}/{tenant(weight=2)}"

    for weight in ("0.5", "500m", 3, "3"):
        body = {"apiVersion": "fairbind.io/v1alpha1", "kind": "Tenant", "spec": {"weight": weight}}
        applied = api.patch(path, body, kind="apply", fieldManager="test", force="true")
        assert applied["spec"]["weight"] == weight


STATUS: Json = {
    "observedGeneration": 1,
    "path": "research/vis/va",
    "guaranteed": {"nvidia.com/gpu": "8"},
    "keptBack": {"nvidia.com/gpu": "2"},
    "dominantShare": "0.312",
    "dominantResource": "nvidia.com/gpu",
    "weightedShare": "0.156",
    "fairShare": "0.375",
    "allocated": {"cpu": "1500m", "memory": "12Gi", "nvidia.com/gpu": "5"},
    "pods": {"running": 7, "pending": 3},
    "virtualDominantShares": [{"serverClass": "a", "share": "1.500"}, {"serverClass": "b", "share": "0.000"}],
    "conditions": [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
        for kind, status, reason in [("NamespacesConflict", "False", "NoConflict"), ("Ready", "True", "Accepted")]
    ],
}


def test_status_is_written_through_its_subresource_only(api: Api, tenant: MakeTenant) -> None:
    path = f"{TENANTS}/{tenant(weight=2)}"

    api.patch(path, {"status": STATUS})
    assert "status" not in api.get(path)

    api.patch(f"{path}/status", {"status": STATUS, "spec": {"weight": 5}}, fieldValidation="Strict")
    assert api.get(path)["status"] == STATUS
    assert api.get(path)["spec"] == {**TENANT_DEFAULTS, "weight": 2}


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ("status.dominantShare", {"dominantShare": "a lot"}),
        ("status.pods.running", {"pods": {"running": 1.5}}),
        ("status.allocated.cpu", {"allocated": {"cpu": 1}}),
        ("status.virtualDominantShares[0].share", {"virtualDominantShares": [{"serverClass": "a"}]}),
        ("status.virtualDominantShares[1]", {"virtualDominantShares": [{"serverClass": "a", "share": "1.000"}] * 2}),
        ("status.conditions[0].reason", {"conditions": [{**STATUS["conditions"][0], "reason": "two words"}]}),
        ("status.conditions[0].status", {"conditions": [{**STATUS["conditions"][0], "status": True}]}),
        ("status.dominantShare", {"dominantShare": 0.5}),
        ("status.fairShare", {"fairShare": "much"}),
    ],
    ids=lambda part: json.dumps(part)[:60],
)
def test_invalid_status_is_refused_by_field(api: Api, tenant: MakeTenant, field: str, status: Json) -> None:
    path = f"{TENANTS}/{tenant()}/status"

    with pytest.raises(ApiError) as refusal:
        api.patch(path, {"status": status}, fieldValidation="Strict")

    assert field in refusal.value.message


def test_a_policy_takes_conditions(api: Api) -> None:
    status = {"observedGeneration": 1, "conditions": STATUS["conditions"][1:]}

    patch: Json = {"status": status}
    made = api.patch(f"{POLICIES}/default/status", patch, fieldValidation="Strict", dryRun="All")

    assert {name: made["status"][name] for name in status} == status


def test_a_policy_is_called_default(api: Api) -> None:
    body = {**API_VERSION, "kind": "SchedulingPolicy", "metadata": {"name": "other"}}

    with pytest.raises(ApiError, match=r"metadata\.name must be default, not other"):
        api.post(POLICIES, body, dryRun="All")


def test_kubectl_shows_shares_and_the_weight_as_it_was_written(cluster: Cluster, api: Api, tenant: MakeTenant) -> None:
    name = tenant(weight="500m")
    api.patch(f"{TENANTS}/{name}/status", {"status": STATUS})

    header, row = cluster.kubectl("get", "tenants.fairbind.io", name).splitlines()

    columns = ["NAME", "WEIGHT", "DOMINANT SHARE", "FAIR SHARE", "DOMINANT RESOURCE", "RUNNING", "PENDING"]
    columns += ["READY", "AGE"]
    assert header.split() == " ".join(columns).split()
    assert row.split()[:-1] == [name, "500m", "0.312", "0.375", "nvidia.com/gpu", "7", "3", "True"]
    wide_header, wide = cluster.kubectl("get", "fbtenant", name, "--output=wide").splitlines()
    assert {"PARENT", "GUARANTEED"} < set(wide_header.split())
    assert '{"nvidia.com/gpu":"8"}' in wide
    assert "0.156" in wide
    assert "Accepted" in wide


@pytest.mark.parametrize("name", ["fbpolicy", "schedulingpolicy", "schedulingpolicies.fairbind.io"])
def test_policies_have_short_names(cluster: Cluster, name: str) -> None:
    header, row = cluster.kubectl("get", name, "default").splitlines()

    assert header.split() == ["NAME", "POLICY", "READY", "UNCLAIMED", "SHARE", "AGE"]
    assert row.split()[:2] == ["default", "best-fit-drfh"]


def find_field_paths(schema: Json, path: str) -> list[str]:
    """Return the path of every field below a schema, as kubectl explain wants it."""
    paths = []
    for name, field in schema.get("properties", {}).items():
        paths.append(f"{path}.{name}")
        paths += find_field_paths(field, f"{path}.{name}") + find_field_paths(field.get("items", {}), f"{path}.{name}")
    return paths


@pytest.mark.parametrize("kind", ["tenant", "schedulingpolicy", "sharereport"])
def test_kubectl_explains_every_field(cluster: Cluster, api: Api, kind: str) -> None:
    plural = {"tenant": "tenants", "schedulingpolicy": "schedulingpolicies", "sharereport": "sharereports"}[kind]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.fairbind.io"
    schema = api.get(path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = [field for field in find_field_paths(schema, kind) if not field.startswith(f"{kind}.metadata")]

    assert len(fields) > 10
    # One call shows the descriptions of all fields of one object.
    for parent in sorted({field.rpartition(".")[0] for field in fields}):
        explained = cluster.kubectl("explain", parent)
        children = [field.rpartition(".")[2] for field in fields if field.rpartition(".")[0] == parent]
        assert "<no description>" not in explained, parent
        assert [name for name in children if f"  {name}\t" not in explained] == [], parent


def test_weight_is_explained_with_its_range(cluster: Cluster) -> None:
    explained = " ".join(cluster.kubectl("explain", "tenant.spec.weight").split())

    assert "from 0.001 to 1000" in explained


def test_examples_are_valid(cluster: Cluster) -> None:
    for name in ("tenants", "policy"):
        file = ROOT / "deploy" / "examples" / f"{name}.yaml"
        assert (
            "created" in (out := cluster.kubectl("apply", "--dry-run=server", "-f", str(file))) or "configured" in out
        )


def test_the_workload_of_the_examples_is_valid(cluster: Cluster, tmp_path: Path) -> None:
    file = ROOT / "deploy" / "examples" / "workload.yaml"
    # A dry run makes no namespace for the Deployment to be in.
    moved = tmp_path / "workload.yaml"
    moved.write_text(file.read_text(encoding="utf-8").replace("namespace: web", "namespace: default"), encoding="utf-8")

    assert "deployment.apps/shop" in cluster.kubectl("apply", "--dry-run=server", "-f", str(moved))


@pytest.mark.parametrize("plural", ["tenants", "schedulingpolicies", "sharereports"])
def test_crds_are_established_without_complaints(api: Api, plural: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.fairbind.io"
    states = {condition["type"]: condition["status"] for condition in api.get(path)["status"]["conditions"]}

    assert states["Established"] == "True"
    assert states["NamesAccepted"] == "True"
    assert states.get("NonStructuralSchema", "False") == "False"


def test_tenants_belong_to_the_cluster(api: Api) -> None:
    with pytest.raises(ApiError) as refusal:
        api.post("/apis/fairbind.io/v1alpha1/namespaces/default/tenants", make_tenant(make_name("try")))

    assert refusal.value.status == 404
