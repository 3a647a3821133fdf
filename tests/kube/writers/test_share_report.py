"""What a ShareReport says, made of caches that real cycles have decided about."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.builders import Cluster, make_namespace, make_node, make_pod
from fairbind.cluster.cache.tenant_ranking import TenantRanking
from fairbind.cluster.cache.tenant_view import TenantView, WaitingPods
from fairbind.cluster.classes.window import MAX_TENANT_CLASSES
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.kube.writers.share_report import (
    MAX_LISTED,
    Json,
    ReportScene,
    ReportWords,
    compute_share_report,
)
from fairbind.model import PolicySettings, Unclaimed
from fairbind.model.overview import TenantOverview
from fairbind.scheduling import run_cycle
from seeds import draw_seeds

NOW = 1_767_225_600.0
ROOT = Path(__file__).parents[3]
SECONDS = itertools.count()


def make_waiting(name: str, namespace: str, cpu: str, **changes: Any) -> Json:
    second = next(SECONDS)
    created = f"2025-12-31T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return make_pod(name, namespace=namespace, requests={"cpu": cpu}, created=created, **changes)


class Scene:
    """A cluster whose Tenants claim namespaces, and the reports about it."""

    def __init__(self, **claims: list[str]) -> None:
        self.cluster = Cluster()
        self.cache = self.cluster.cache
        self.cache.replace_tenants([TenantSpec(name, namespaces=frozenset(of)) for name, of in claims.items()])

    def add(self, *pods: Json) -> None:
        names = {pod["metadata"]["namespace"] for pod in pods}
        self.cluster.add_namespaces(*(make_namespace(name) for name in sorted(names)))
        self.cluster.add_pods(*pods)

    def decide(self) -> None:
        """Decide, and let each decided pod hold its node."""
        report = run_cycle(self.cache.build_snapshot(), self.cache.settings, NOW)
        for bind in report.bindings:
            self.cache.assume(bind.task.uid, bind.server)
        self.cache.note_waits(report.waits)

    def report(self, words: ReportWords = ReportWords()) -> dict[str, Json]:  # noqa: B008 - it is frozen
        """Return all reports, by namespace."""
        view = TenantView(self.cache.state)
        view.look()
        overview = self.cache.queries.build_overview()
        ranking = TenantRanking(overview) if view.has_order else None
        scene = ReportScene(view.policy, view.node_count, ranking, words, NOW)
        tenants = {tenant.name: tenant for tenant in (*overview.shown, *overview.tenants)}
        return {
            namespace: compute_share_report(
                scene, tenants[name], view.list_waiting(name, ranking).get(namespace, []), lambda: None
            )
            for name, namespace in view.list_namespaces()
        }


def make_contest() -> Scene:
    """Two tenants; the one that holds more waits for the other."""
    scene = Scene(alpha=["a-1", "a-2"], beta=["b"])
    scene.cluster.add_nodes(make_node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": "110"}))
    scene.add(
        make_pod("runs-1", namespace="a-1", node="n", requests={"cpu": "2"}),
        make_pod("runs-2", namespace="b", node="n", requests={"cpu": "1"}),
        make_waiting("first", "a-1", "2"),
        make_waiting("other", "a-2", "3"),
        make_waiting("again", "a-1", "2"),
        make_waiting("theirs", "b", "2"),
    )
    scene.decide()
    return scene


def test_a_report_says_what_the_tenant_holds_and_what_of_the_namespace_waits() -> None:
    report = make_contest().report()["a-1"]
    assert report["tenant"] == "alpha"
    assert report["claimed"] is True
    assert (report["weight"], report["policy"]) == ("1", "best-fit-drfh")
    assert report["held"] == {"cpu": "2", "pods": "1"}
    assert (report["dominantShare"], report["weightedShare"], report["dominantResource"]) == ("0.500", "0.500", "cpu")
    assert (report["running"], report["pending"], report["tenantsBefore"]) == (1, 3, 1)
    assert report["startsNext"] == {"pods": 2, "example": "first", "requests": {"cpu": "2"}}
    (waiting,) = report["waiting"]
    assert (waiting["pods"], waiting["example"], waiting["reason"], waiting["position"]) == (
        2,
        "first",
        "Unschedulable",
        1,
    )
    assert waiting["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. tenant alpha waits: its weighted share 0.50 is above 0.25 of "
        "another tenant, which takes the next free capacity."
    )
    assert report["waitingLeftOut"] == 0


def test_other_namespaces_of_the_tenant_count_in_the_order_and_are_not_shown() -> None:
    reports = make_contest().report()
    (waiting,) = reports["a-2"]["waiting"]
    assert (waiting["example"], waiting["position"]) == ("other", 2)
    assert reports["a-2"]["startsNext"]["example"] == "other"
    assert "first" not in json.dumps(reports["a-2"])
    assert "other" not in json.dumps(reports["a-1"]).replace("another", "")
    assert reports["b"]["tenantsBefore"] == 0


def test_a_namespace_that_no_tenant_claims_is_one_of_its_own() -> None:
    scene = Scene()
    scene.cluster.add_nodes(make_node("n"))
    scene.add(make_pod("runs", namespace="free", node="n", requests={"cpu": "1"}))
    report = scene.report()["free"]
    assert (report["tenant"], report["claimed"], report["waiting"]) == ("ns/free", False, [])
    assert "startsNext" not in report


def test_strangers_that_are_one_tenant_see_no_pods_of_each_other() -> None:
    scene = Scene()
    scene.cache.set_policy(PolicySettings(unclaimed=Unclaimed.TOGETHER))
    scene.cluster.add_nodes(make_node("n"))
    scene.add(make_waiting("mine", "x", "9"), make_waiting("theirs", "y", "9"))
    scene.decide()
    reports = scene.report()
    assert reports["x"]["tenant"] == "ns/*"
    assert [entry["example"] for entry in reports["x"]["waiting"]] == ["mine"]
    assert [entry["example"] for entry in reports["y"]["waiting"]] == ["theirs"]


def test_what_cannot_be_placed_is_told_and_keeps_nothing_from_being_next() -> None:
    scene = Scene()
    scene.cluster.add_nodes(make_node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": "110"}))
    scene.add(
        make_pod("runs", namespace="x", node="n", requests={"cpu": "4"}),
        make_waiting("too-large", "x", "5"),
        make_waiting("claims", "x", "1", resourceClaims=[{"name": "r", "resourceClaimName": "no-such"}]),
        make_waiting("fits", "x", "2"),
    )
    scene.decide()
    report = scene.report()["x"]
    large, blocked, fits = report["waiting"]
    assert [entry["position"] for entry in report["waiting"]] == [1, 1, 1]
    assert "no node is large enough" in large["message"]
    assert blocked["reason"] in {"ClaimNotReady", "NotSupported"}
    assert report["startsNext"]["example"] == fits["example"] == "fits"
    assert "cannot be placed" in large["expectedStartUnknown"]
    assert "reserved" in fits["expectedStartUnknown"]


def test_what_no_node_offers_is_told_in_the_message_alone() -> None:
    """A pod may name dozens of resources, each as long as its author likes."""
    scene = Scene()
    scene.cluster.add_nodes(make_node("n"))
    scene.add(make_pod("odd", namespace="x", requests={"cpu": "1", "example.com/no-such": "1"}))
    scene.decide()
    (waiting,) = scene.report()["x"]["waiting"]
    assert waiting["requests"] == {"cpu": "1"}
    assert "Insufficient example.com/no-such" in waiting["message"]


def test_pods_about_which_nothing_was_decided_are_queued() -> None:
    scene = Scene()
    scene.cluster.add_nodes(make_node("n"))
    scene.add(make_waiting("new", "x", "1"))
    scene.cache.build_snapshot()
    (waiting,) = scene.report()["x"]["waiting"]
    assert waiting["reason"] == "Queued"


def test_where_shares_do_not_decide_no_tenant_comes_before() -> None:
    scene = make_contest()
    scene.cache.set_policy(PolicySettings(policy="fifo"))
    assert "tenantsBefore" not in scene.report()["a-1"]


def test_users_of_a_tenant_have_a_line_each_and_are_one_tenant_to_others() -> None:
    scene = Scene(alpha=["a"], beta=["b"])
    scene.cache.replace_tenants(
        [
            TenantSpec("alpha", namespaces=frozenset(["a"]), users_label="user"),
            TenantSpec("beta", namespaces=frozenset(["b"])),
        ]
    )
    scene.cluster.add_nodes(make_node("n", allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"}))
    scene.add(
        make_pod("runs", namespace="a", node="n", requests={"cpu": "3"}, labels={"user": "va"}),
        make_pod("held", namespace="b", node="n", requests={"cpu": "5"}),
        make_waiting("va-1", "a", "1", labels={"user": "va"}),
        make_waiting("va-2", "a", "2", labels={"user": "va"}),
        make_waiting("vb-1", "a", "3", labels={"user": "vb"}),
        make_waiting("late", "b", "1"),
    )
    scene.decide()
    reports = scene.report()
    assert (reports["a"]["tenantsBefore"], reports["b"]["tenantsBefore"]) == (0, 1)
    waiting = reports["a"]["waiting"]
    assert [(each["example"], each["position"]) for each in waiting] == [("vb-1", 1), ("va-1", 1), ("va-2", 2)]
    assert reports["a"]["startsNext"]["example"] == "vb-1"

    scene.cache.set_policy(PolicySettings(policy="fifo"))
    waiting = scene.report()["a"]["waiting"]
    assert [(each["example"], each["position"]) for each in waiting] == [("va-1", 1), ("va-2", 2), ("vb-1", 3)]


def test_more_kinds_than_a_report_lists_are_counted() -> None:
    scene = Scene()
    scene.cluster.add_nodes(make_node("n", allocatable={"cpu": "1", "memory": "8Gi", "pods": "110"}))
    scene.add(*(make_waiting(f"p-{number}", "x", f"{900 + number}m") for number in range(MAX_LISTED + 4)))
    scene.decide()
    report = scene.report()["x"]
    assert len(report["waiting"]) == MAX_LISTED
    assert report["waitingLeftOut"] == 3  # one is decided


def test_pods_that_a_snapshot_leaves_out_are_told_why() -> None:
    """They are one class with many others, of many queues."""
    scene = Scene()
    scene.cluster.add_nodes(make_node("n", allocatable={"cpu": "1m", "memory": "8Gi", "pods": "110"}))
    scene.add(*(make_waiting(f"p-{n}", "x", f"{2 + n}m") for n in range(MAX_TENANT_CLASSES + 20)))
    scene.decide()
    view = TenantView(scene.cache.state)
    view.look()
    waits = [pods.wait for pods in view.list_waiting("ns/x", None)["x"]]
    assert len(waits) == MAX_TENANT_CLASSES + 20
    assert None not in waits
    assert waits[-1] is not None
    assert waits[-1].blocked is not None


TENANTS = ("violet", "crimson", "emerald", "ns/magenta", "ns/ochre")
HOMES = {"violet": ["v-one", "v-two"], "crimson": ["c-one"], "emerald": ["e-one"]}
SPACES = ("v-one", "v-two", "c-one", "e-one", "magenta", "ochre")


def play(seed: int) -> Scene:
    """A few tenants that compete on nodes with taints, with names by which each can be told."""
    draw = random.Random(seed)
    scene = Scene(**HOMES)
    taint = {"key": "for", "value": draw.choice(SPACES), "effect": "NoSchedule"}
    scene.cluster.add_nodes(
        *(make_node(f"n-{n}", allocatable={"cpu": str(draw.randint(2, 6)), "pods": "20"}) for n in range(3)),
        make_node("tainted", taints=[taint]),
    )
    scene.cache.set_policy(PolicySettings(policy=draw.choice(["best-fit-drfh", "ps-dsf", "tsf", "asset-fairness"])))
    pods = []
    for number in range(30):
        home = draw.choice(SPACES)
        odd: Json = draw.choice([{}, {}, {"nodeSelector": {"no": "such"}}, {"resourceClaims": [{"name": "r"}]}])
        pods.append(make_waiting(f"{home}-pod-{number}", home, str(draw.randint(1, 5)), **odd))
    scene.add(*pods)
    for _ in range(3):
        scene.decide()
    return scene


def list_foreign(namespace: str, tenant: str) -> list[str]:
    """Return what no report of a namespace may say: names of other tenants, of their namespaces, and of their pods."""
    return [
        name.removeprefix("ns/") for name in (*TENANTS, *SPACES) if name not in {namespace, tenant, f"ns/{namespace}"}
    ]


@pytest.mark.parametrize("seed", draw_seeds(20, nightly=200))
def test_no_report_names_another_tenant(seed: int) -> None:
    for namespace, report in play(seed).report().items():
        text = json.dumps(report)
        assert [name for name in list_foreign(namespace, report["tenant"]) if name in text] == []


def test_other_tenants_are_named_where_that_is_wanted() -> None:
    found = 0
    for seed in range(20):
        for namespace, report in play(seed).report(ReportWords(shows_others=True)).items():
            found += any(name in json.dumps(report) for name in list_foreign(namespace, report["tenant"]))
    assert found > 20


def make_reserved(expected: float | None) -> tuple[ReportScene, TenantOverview, list[WaitingPods]]:
    """A tenant whose first pods have capacity reserved for them."""
    scene = make_contest()
    view = TenantView(scene.cache.state)
    view.look()
    (pods,) = view.list_waiting("alpha", None)["a-1"]
    assert pods.wait is not None
    overview = scene.cache.queries.build_overview()
    tenant = next(t for t in overview.tenants if t.name == "alpha")
    wait = replace(pods.wait, reserved_on=1, expected=expected)
    return (
        ReportScene("best-fit-drfh", 1, TenantRanking(overview), ReportWords(), NOW),
        tenant,
        [replace(pods, wait=wait)],
    )


def test_a_start_is_foreseen_where_capacity_is_reserved_and_stays_while_it_holds() -> None:
    scene, tenant, waiting = make_reserved(NOW + 100.0)
    report = compute_share_report(scene, tenant, waiting, lambda: None)
    assert report["waiting"][0]["expectedStart"] == {"earliestSeconds": 10, "latestSeconds": 230}

    present = {**report, "updated": "2026-01-01T00:00:00Z"}  # which is NOW
    later = replace(scene, now=NOW + 60.0)
    assert compute_share_report(later, tenant, waiting, lambda: present) == report
    moved = [replace(waiting[0], wait=replace(waiting[0].wait, expected=NOW + 300.0))]  # type: ignore[type-var]
    again = compute_share_report(later, tenant, moved, lambda: present)
    assert again["waiting"][0]["expectedStart"] == {"earliestSeconds": 24, "latestSeconds": 552}


def test_a_start_is_unknown_and_capacity_reserved_once_the_expected_time_has_passed() -> None:
    scene, tenant, waiting = make_reserved(None)
    report = compute_share_report(scene, tenant, waiting, lambda: None)
    assert report["waiting"][0]["expectedStartUnknown"].startswith("Capacity is reserved for these pods")


def test_a_report_that_others_have_spoilt_keeps_no_range() -> None:
    scene, tenant, waiting = make_reserved(NOW + 100.0)
    report = compute_share_report(scene, tenant, waiting, dict)
    assert report["waiting"][0]["expectedStart"]["latestSeconds"] == 230


def find_unknown(schema: Json, value: Any, path: str) -> list[str]:
    """Return what the API server would take away because the schema does not know it."""
    if isinstance(value, list):
        return [name for entry in value for name in find_unknown(schema["items"], entry, f"{path}[]")]
    if not isinstance(value, dict):
        return []
    extra = schema.get("additionalProperties")
    known = {name: schema.get("properties", {}).get(name, extra) for name in value}
    missing = [f"{path}.{name}" for name, part in known.items() if part is None]
    return missing + [
        name for key, part in known.items() if part for name in find_unknown(part, value[key], f"{path}.{key}")
    ]


def test_the_schema_knows_every_field() -> None:
    """A field that the API server drops would be written again and again."""
    crd = yaml.safe_load((ROOT / "crds" / "sharereports.yaml").read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    scene, tenant, waiting = make_reserved(NOW + 100.0)
    tenant = replace(tenant, fair_share=0.5)
    report = compute_share_report(scene, tenant, waiting, lambda: None)
    seen = [report, *make_contest().report().values()]
    assert [name for each in seen for name in find_unknown(schema, each, "status")] == []
    fields = {name for each in seen for name in each} | {"updated"}
    assert fields == set(schema["properties"])
    assert find_unknown(schema, {"waiting": [{"nonsense": 1}]}, "status") == ["status.waiting[].nonsense"]
