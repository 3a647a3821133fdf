from __future__ import annotations

import platform
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from fairbind import __version__
from fairbind.model.overview import (
    PENDING_REASONS,
    AuditCounts,
    ClusterOverview,
    ServerClassOverview,
    ShareGap,
    TenantOverview,
)
from fairbind.scheduling.fair_shares.audit import Cause
from fairbind.web.metric_specs import METRICS
from fairbind.web.metrics import Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
FULL_NAMES = {
    "fairbind_tenant_dominant_share": {"tenant"},
    "fairbind_tenant_weighted_dominant_share": {"tenant"},
    "fairbind_tenant_dominant_resource": {"tenant", "resource"},
    "fairbind_tenant_weight": {"tenant"},
    "fairbind_tenant_fair_share": {"tenant"},
    "fairbind_tenant_allocated": {"tenant", "resource", "unit"},
    "fairbind_tenant_limit": {"tenant", "resource", "unit"},
    "fairbind_tenant_guarantee": {"tenant", "resource", "unit"},
    "fairbind_tenant_kept_back": {"tenant", "resource", "unit"},
    "fairbind_tenant_parent_info": {"tenant", "parent"},
    "fairbind_reserved": {"tenant", "resource", "unit"},
    "fairbind_scattered": {"resource", "unit"},
    "fairbind_tenant_share_gap": {"tenant", "cause"},
    "fairbind_tenant_resource_seconds_total": {"tenant", "resource", "unit"},
    "fairbind_tenant_oldest_pending_seconds": {"tenant"},
    "fairbind_tenant_virtual_dominant_share": {"tenant", "server_class"},
    "fairbind_tenant_running_pods": {"tenant"},
    "fairbind_tenant_pending_pods": {"tenant", "reason"},
    "fairbind_namespace_tenant_info": {"namespace", "tenant"},
    "fairbind_cluster_capacity": {"resource", "unit"},
    "fairbind_cluster_allocated": {"resource", "unit"},
    "fairbind_server_class_nodes": {"server_class"},
    "fairbind_server_class_capacity": {"server_class", "resource", "unit"},
    "fairbind_server_class_allocated": {"server_class", "resource", "unit"},
    "fairbind_fairness_resource": {"resource"},
    "fairbind_server_classes": set(),
    "fairbind_nodes_with_faults": set(),
    "fairbind_refusing_nodes": set(),
    "fairbind_left_out_resources": set(),
    "fairbind_fairness_jain_index": set(),
    "fairbind_fairness_share_error": set(),
    "fairbind_fairness_envy_pairs": {"cause"},
    "fairbind_fairness_sharing_incentive_violations": {"cause"},
    "fairbind_leader": set(),
    "fairbind_build_info": {"version", "revision", "python_version"},
    "fairbind_scheduling_cycle_duration_seconds": set(),
    "fairbind_pod_scheduling_duration_seconds": {"tenant"},
    "fairbind_bindings_total": {"result"},
    "fairbind_rejected_pods_total": {"reason"},
    "fairbind_group_evictions_total": {"result"},
    "fairbind_watch_restarts_total": {"resource", "reason"},
    "fairbind_watch_age_seconds": {"resource"},
    "fairbind_loop_lag_seconds": set(),
    "fairbind_part_failures_total": {"part"},
    "fairbind_cycle_errors_total": set(),
    "fairbind_exact_solve_duration_seconds": set(),
    "fairbind_exact_solves_total": {"result"},
}


AUDIT = AuditCounts({"history": 3, "mechanism": 0}, {"history": 1, "mechanism": 2})


def make_tenant(name: str, **changes: object) -> TenantOverview:
    values: dict[str, object] = {
        "weight": 2.0,
        "dominant_share": 0.5,
        "dominant_resource": "cpu",
        "weighted_share": 0.25,
        "allocated": {"cpu": 1.5, "memory": 1024.0},
        "limit": {"cpu": 4.0},
        "guaranteed": {"cpu": 2.0},
        "kept_back": {"cpu": 0.5},
        "parent": "top",
        "running": 3,
        "pending": {"insufficient": 4},
        "virtual_dominant_shares": {"node-a": 0.75},
        "backlogged": True,
        "fair_share": 0.75,
        "oldest_pending": 1_000.0,
        "reserved": {"cpu": 4.0},
        "reserved_nodes": 2,
        "share_gap": ShareGap(0.25, "reserved"),
        **changes,
    }
    return TenantOverview(name=name, **values)  # type: ignore[arg-type]


def make_overview(*tenants: TenantOverview) -> ClusterOverview:
    return ClusterOverview(
        {"cpu": 8.0, "memory": 4096.0, "pods": 110.0},
        {"cpu": 1.5},
        2,
        tenants,
        0.9,
        share_error=0.25,
        audit=AUDIT,
        counting=frozenset({"cpu"}),
        classes=(ServerClassOverview("node-a", 3, {"cpu": 8.0}, {"cpu": 1.5}),),
        namespaces={"shop": "a", "lab": "ns/lab"},
        scattered={"cpu": 3.0},
        node_faults={"node-a": "status.allocatable: more than 64 resources"},
        refusing_nodes=("node-b", "node-c"),
        left_out=("example.com/one", "example.com/other"),
    )


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    value: float | None = metrics.registry.get_sample_value(name, labels)
    return value


def test_names_and_labels_are_those_that_were_promised() -> None:
    assert {spec.name: set(spec.labels) for spec in METRICS} == FULL_NAMES


def test_every_promised_metric_is_served_with_its_type_and_help() -> None:
    metrics = Metrics()
    metrics.overview_changed(make_overview(make_tenant("a")))
    page, _ = metrics.render("")
    families = {family.name: family for family in parse_text(page.decode())}
    for spec in METRICS:
        family = families[spec.name.removesuffix("_total") if spec.kind == "counter" else spec.name]
        assert (family.type, family.documentation) == (spec.kind, spec.description)
    own = {name for name in families if name.startswith("fairbind_")}
    assert own == {spec.name.removesuffix("_total") for spec in METRICS}


def test_what_is_scattered() -> None:
    metrics = Metrics()
    metrics.overview_changed(make_overview())
    assert sample(metrics, "fairbind_scattered", resource="cpu", unit="core") == 3.0


def test_a_tenants_numbers() -> None:
    metrics = Metrics()
    metrics.overview_changed(make_overview(make_tenant("a")))
    assert sample(metrics, "fairbind_tenant_dominant_share", tenant="a") == 0.5
    assert sample(metrics, "fairbind_tenant_weighted_dominant_share", tenant="a") == 0.25
    assert sample(metrics, "fairbind_tenant_weight", tenant="a") == 2.0
    assert sample(metrics, "fairbind_tenant_fair_share", tenant="a") == 0.75
    assert sample(metrics, "fairbind_tenant_dominant_resource", tenant="a", resource="cpu") == 1.0
    assert sample(metrics, "fairbind_tenant_dominant_resource", tenant="a", resource="memory") == 0.0
    assert sample(metrics, "fairbind_tenant_allocated", tenant="a", resource="memory", unit="byte") == 1024.0
    assert sample(metrics, "fairbind_tenant_limit", tenant="a", resource="cpu", unit="core") == 4.0
    assert sample(metrics, "fairbind_tenant_guarantee", tenant="a", resource="cpu", unit="core") == 2.0
    assert sample(metrics, "fairbind_tenant_kept_back", tenant="a", resource="cpu", unit="core") == 0.5
    assert sample(metrics, "fairbind_tenant_parent_info", tenant="a", parent="top") == 1.0
    assert sample(metrics, "fairbind_tenant_share_gap", tenant="a", cause="reserved") == 0.25
    assert sample(metrics, "fairbind_reserved", tenant="a", resource="cpu", unit="core") == 4.0
    assert sample(metrics, "fairbind_tenant_virtual_dominant_share", tenant="a", server_class="node-a") == 0.75
    assert sample(metrics, "fairbind_tenant_running_pods", tenant="a") == 3.0
    assert sample(metrics, "fairbind_tenant_pending_pods", tenant="a", reason="insufficient") == 4.0
    assert sample(metrics, "fairbind_tenant_pending_pods", tenant="a", reason="gated") == 0.0


def test_amounts_are_of_leaves_and_shares_of_all_below() -> None:
    """`top` has namespaces of its own beside `a`; of the users of `u` one is shown, and the rest together."""
    metrics, now = Metrics(clock=lambda: now[0]), [0.0]
    own, top = make_tenant("top", parent="top", running=1), make_tenant("top", parent=None, running=4, weight=3.0)
    a, inner = make_tenant("a", parent="top"), make_tenant("u", parent=None)
    users = [make_tenant(f"{name}@u", parent="u") for name in ("x", "y", "z")]
    shown = (make_tenant("*@u", parent="u", running=6), a, top, inner, users[0])
    metrics.overview_changed(replace(make_overview(own, a, *users), shown=shown))
    for user in ("x@u", "y@u"):
        metrics.pod_scheduled(user, 1.0)

    assert sample(metrics, "fairbind_tenant_running_pods", tenant="top") == 1.0
    assert sample(metrics, "fairbind_tenant_weight", tenant="top") == 3.0
    assert sample(metrics, "fairbind_tenant_running_pods", tenant="u") is None
    assert [sample(metrics, "fairbind_tenant_running_pods", tenant=f"{name}@u") for name in "x*y"] == [3.0, 6.0, None]
    assert sample(metrics, "fairbind_tenant_parent_info", tenant="x@u", parent="u") == 1.0
    assert sample(metrics, "fairbind_tenant_parent_info", tenant="top", parent="top") is None
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_count", tenant="u") == 2.0
    now[0] = 10.0
    seconds = {"resource": "cpu", "unit": "core"}
    assert sample(metrics, "fairbind_tenant_resource_seconds_total", tenant="u", **seconds) == 45.0
    metrics.overview_changed(replace(make_overview(own), shown=(top,)))
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_count", tenant="u") is None


def test_the_clusters_numbers() -> None:
    metrics = Metrics()
    metrics.overview_changed(make_overview())
    assert sample(metrics, "fairbind_cluster_capacity", resource="cpu", unit="core") == 8.0
    assert sample(metrics, "fairbind_cluster_allocated", resource="cpu", unit="core") == 1.5
    assert sample(metrics, "fairbind_cluster_capacity", resource="pods", unit="integer") == 110.0
    assert sample(metrics, "fairbind_namespace_tenant_info", namespace="shop", tenant="a") == 1.0
    assert sample(metrics, "fairbind_namespace_tenant_info", namespace="lab", tenant="ns/lab") == 1.0
    assert sample(metrics, "fairbind_server_class_nodes", server_class="node-a") == 3.0
    of_class = {"server_class": "node-a", "resource": "cpu", "unit": "core"}
    assert sample(metrics, "fairbind_server_class_capacity", **of_class) == 8.0
    assert sample(metrics, "fairbind_server_class_allocated", **of_class) == 1.5
    assert sample(metrics, "fairbind_server_classes") == 2.0
    assert sample(metrics, "fairbind_fairness_resource", resource="cpu") == 1.0
    assert sample(metrics, "fairbind_fairness_resource", resource="pods") == 0.0
    assert sample(metrics, "fairbind_fairness_jain_index") == 0.9
    assert sample(metrics, "fairbind_nodes_with_faults") == 1.0
    assert sample(metrics, "fairbind_refusing_nodes") == 2.0
    assert sample(metrics, "fairbind_left_out_resources") == 2.0
    assert sample(metrics, "fairbind_fairness_share_error") == 0.25
    assert sample(metrics, "fairbind_fairness_envy_pairs", cause="history") == 3.0
    assert sample(metrics, "fairbind_fairness_sharing_incentive_violations", cause="mechanism") == 2.0


def test_without_fair_shares_nothing_is_said_about_them() -> None:
    metrics = Metrics()
    metrics.overview_changed(replace(make_overview(make_tenant("a", fair_share=None)), share_error=None))
    assert sample(metrics, "fairbind_tenant_fair_share", tenant="a") is None
    assert sample(metrics, "fairbind_fairness_share_error") is None


def test_a_tenant_that_holds_nothing_still_has_its_shares() -> None:
    metrics = Metrics()
    idle = make_tenant("idle", dominant_share=0.0, weighted_share=0.0, dominant_resource=None, allocated={}, pending={})
    metrics.overview_changed(make_overview(idle))
    assert sample(metrics, "fairbind_tenant_dominant_share", tenant="idle") == 0.0
    assert sample(metrics, "fairbind_tenant_weighted_dominant_share", tenant="idle") == 0.0
    for reason in PENDING_REASONS:
        assert sample(metrics, "fairbind_tenant_pending_pods", tenant="idle", reason=reason) == 0.0


def test_a_deleted_tenants_series_go_away() -> None:
    metrics = Metrics()
    both, one = make_overview(make_tenant("a"), make_tenant("b")), make_overview(make_tenant("b"))
    metrics.overview_changed(both)
    before = metrics.render("")[0].decode()
    metrics.pod_scheduled("a", 1.0)
    metrics.overview_changed(replace(one, namespaces={}, classes=()))
    page = metrics.render("")[0].decode()
    assert 'tenant="a"' in before
    assert 'tenant="a"' not in page
    assert "namespace=" in before
    assert "namespace=" not in page
    assert "fairbind_server_class_nodes{" in before
    assert "fairbind_server_class_nodes{" not in page
    assert 'tenant="b"' in page


def test_what_happened_is_counted() -> None:
    metrics = Metrics()
    metrics.binding_finished("bound")
    metrics.binding_finished("bound")
    metrics.binding_finished("conflict")
    metrics.cycle_failed()
    metrics.watch_restarted("pods", "expired")
    metrics.pod_scheduled("a", 0.2)
    metrics.pod_scheduled("a", -3.0)
    metrics.pod_scheduled("b", 7.0)
    metrics.loop_lagged(0.03)
    metrics.pod_rejected("resources")
    metrics.cycle_finished(0.004)
    metrics.exact_solve_finished("solved", 0.02)
    assert sample(metrics, "fairbind_exact_solves_total", result="solved") == 1.0
    assert sample(metrics, "fairbind_exact_solves_total", result="timeout") == 0.0
    assert sample(metrics, "fairbind_exact_solve_duration_seconds_sum") == 0.02
    assert sample(metrics, "fairbind_bindings_total", result="bound") == 2.0
    assert sample(metrics, "fairbind_bindings_total", result="conflict") == 1.0
    assert sample(metrics, "fairbind_bindings_total", result="gone") == 0.0
    assert sample(metrics, "fairbind_rejected_pods_total", reason="resources") == 1.0
    assert sample(metrics, "fairbind_rejected_pods_total", reason="ports") == 0.0
    assert sample(metrics, "fairbind_cycle_errors_total") == 1.0
    assert sample(metrics, "fairbind_watch_restarts_total", resource="pods", reason="expired") == 1.0
    assert sample(metrics, "fairbind_watch_restarts_total", resource="nodes", reason="expired") == 0.0
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_count", tenant="a") == 2.0
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_sum", tenant="a") == pytest.approx(0.2)
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_bucket", tenant="b", le="5.0") == 0.0
    assert sample(metrics, "fairbind_pod_scheduling_duration_seconds_bucket", tenant="b", le="10.0") == 1.0
    assert sample(metrics, "fairbind_loop_lag_seconds") == 0.03
    assert sample(metrics, "fairbind_scheduling_cycle_duration_seconds_bucket", le="0.005") == 1.0
    assert sample(metrics, "fairbind_scheduling_cycle_duration_seconds_bucket", le="0.0025") == 0.0


def test_no_value_of_a_label_has_a_blank() -> None:
    metrics = Metrics()
    audit = AuditCounts(dict.fromkeys(Cause, 1), dict.fromkeys(Cause, 0))
    metrics.overview_changed(replace(make_overview(make_tenant("a")), audit=audit))
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    assert len(samples) > 100
    own = [sample for sample in samples if sample.name.startswith("fairbind_")]
    assert [sample for sample in own if " " in "".join(sample.labels.values())] == []


class Clocks:
    """Both clocks of the metrics, which a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def make_metrics(self) -> Metrics:
        return Metrics(clock=lambda: self.now, wall_clock=lambda: 1_000.0 + self.now)


def test_what_a_tenant_holds_is_summed_over_time() -> None:
    clocks = Clocks()
    metrics = clocks.make_metrics()
    labels = {"tenant": "a", "resource": "cpu", "unit": "core"}

    def read(**changes: str) -> float | None:
        return sample(metrics, "fairbind_tenant_resource_seconds_total", **{**labels, **changes})

    metrics.overview_changed(make_overview(make_tenant("a")))
    assert read() == 0.0
    clocks.now = 10.0
    assert read() == 15.0  # although nothing changed that an overview would show
    metrics.overview_changed(make_overview(make_tenant("a", allocated={"cpu": 3.0})))
    clocks.now = 12.0
    assert read() == 21.0
    assert read(resource="memory", unit="byte") == 10_240.0  # it holds none any more, but it did
    metrics.overview_changed(replace(make_overview(make_tenant("a", allocated={})), capacity={"cpu": 8.0}))
    clocks.now = 100.0
    assert read() == 21.0
    assert read(resource="memory", unit="byte") is None  # no node offers it any more
    metrics.overview_changed(make_overview())
    assert read() is None


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    clocks = Clocks()
    metrics = clocks.make_metrics()
    metrics.overview_changed(make_overview(make_tenant("a")))
    clocks.now = -5.0
    labels = {"tenant": "a", "resource": "cpu", "unit": "core"}
    assert sample(metrics, "fairbind_tenant_resource_seconds_total", **labels) == 0.0


def test_the_oldest_pending_pod_ages_while_nothing_changes() -> None:
    clocks = Clocks()
    metrics = clocks.make_metrics()
    metrics.overview_changed(make_overview(make_tenant("a"), make_tenant("b", oldest_pending=None)))
    clocks.now = 30.0
    assert sample(metrics, "fairbind_tenant_oldest_pending_seconds", tenant="a") == 30.0
    assert sample(metrics, "fairbind_tenant_oldest_pending_seconds", tenant="b") == 0.0


def test_the_revision_is_shown() -> None:
    labels = {"version": __version__, "python_version": platform.python_version()}
    assert sample(Metrics(revision="abc"), "fairbind_build_info", revision="abc", **labels) == 1.0
    assert sample(Metrics(), "fairbind_build_info", revision="unknown", **labels) == 1.0


def test_leadership_is_0_until_it_is_told() -> None:
    metrics = Metrics()
    assert sample(metrics, "fairbind_leader") == 0.0
    metrics.leadership_changed(True)
    assert sample(metrics, "fairbind_leader") == 1.0
    metrics.leadership_changed(False)
    assert sample(metrics, "fairbind_leader") == 0.0


def test_openmetrics_is_served_to_those_who_ask() -> None:
    metrics = Metrics()
    metrics.overview_changed(make_overview(make_tenant('quote " and ü')))
    page, content_type = metrics.render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(page.decode())}  # type: ignore[no-untyped-call]
    assert "fairbind_tenant_dominant_share" in names
    assert page.endswith(b"# EOF\n")


def test_plain_text_is_served_to_all_others() -> None:
    page, content_type = Metrics().render("*/*")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"# EOF" not in page


def test_no_second_set_of_series_for_creation_times() -> None:
    assert b"_created" not in Metrics().render("")[0].replace(b"python_gc", b"")


def test_the_process_shows_its_memory() -> None:
    assert b"process_resident_memory_bytes" in Metrics().render("")[0]
