"""What Prometheus sees of a running operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from e2e.checks import check_metrics
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GPU = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}


def test_shares_follow_the_dominant_resource_and_nobody_is_missing(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    stem = make_name("m")
    gpus = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
    nodes(
        [
            make_node(f"{stem}-gpu", allocatable=gpus),
            make_node(f"{stem}-cpu", allocatable={"cpu": "16", "memory": "64Gi", "pods": "110"}),
        ]
    )
    own, other = namespace(), namespace()
    learner, idle = tenant(namespaces=[own], weight=2), tenant(namespaces=[other])
    running = operator()
    create_pods(api, own, [make_pod(GPU) for _ in range(6)])
    wait_for(lambda: count_bound(api, own) == 4, describe="every GPU to be taken")
    check_metrics(api, running, [own, other])

    def scrape_what_is_settled() -> Metrics:
        metrics = running.metrics()
        assert metrics.value("fairbind_tenant_pending_pods", tenant=learner, reason="insufficient") == 2.0
        assert metrics.value("fairbind_leader") == 1.0
        # an answer that came when it led no more is not known to be of a bound pod
        bound, fenced = (metrics.total("fairbind_bindings_total", result=result) for result in ("bound", "fenced"))
        assert bound <= 4.0 <= bound + fenced
        assert metrics.total("fairbind_pod_scheduling_duration_seconds_count") == bound
        return metrics

    metrics = wait_for(scrape_what_is_settled, describe="everything to be counted")
    assert metrics.value("fairbind_tenant_dominant_share", tenant=learner) == 1.0
    assert metrics.value("fairbind_tenant_weighted_dominant_share", tenant=learner) == 0.5
    assert metrics.value("fairbind_tenant_dominant_resource", tenant=learner, resource="nvidia.com/gpu") == 1.0
    assert metrics.value("fairbind_tenant_dominant_resource", tenant=learner, resource="cpu") == 0.0
    assert metrics.value("fairbind_tenant_virtual_dominant_share", tenant=learner, server_class=f"{stem}-gpu") == 1.0
    assert metrics.value("fairbind_tenant_dominant_share", tenant=idle) == 0.0
    assert metrics.value("fairbind_cluster_capacity", resource="nvidia.com/gpu") == 4.0
    assert metrics.value("fairbind_cluster_allocated", resource="nvidia.com/gpu") == 4.0
    assert metrics.value("fairbind_cluster_capacity", resource="memory", unit="byte") is not None
    assert metrics.value("fairbind_server_class_capacity", server_class=f"{stem}-cpu", resource="cpu") == 16.0
    assert (
        metrics.value(
            "fairbind_server_class_allocated", server_class=f"{stem}-gpu", unit="integer", resource="nvidia.com/gpu"
        )
        == 4.0
    )
    assert metrics.value("fairbind_namespace_tenant_info", namespace=own, tenant=learner) == 1.0
    assert (metrics.value("fairbind_tenant_oldest_pending_seconds", tenant=learner) or 0.0) > 0.0
    assert metrics.value("fairbind_tenant_oldest_pending_seconds", tenant=idle) == 0.0
    held = metrics.value("fairbind_tenant_resource_seconds_total", tenant=learner, resource="nvidia.com/gpu") or 0.0
    wait_for(
        lambda: (
            (
                running.metrics().value(
                    "fairbind_tenant_resource_seconds_total", tenant=learner, resource="nvidia.com/gpu"
                )
                or 0.0
            )
            > held
        ),
        describe="GPU-seconds to be counted",
    )
    assert metrics.value("fairbind_loop_lag_seconds") is not None
    assert metrics.value("fairbind_server_classes") == 2.0
    cycles = metrics.value("fairbind_scheduling_cycle_duration_seconds_count")
    assert cycles is not None
    assert cycles >= 1.0


def test_both_formats_are_served_and_mean_the_same(operator: StartOperator) -> None:
    running = operator()

    def says_in_openmetrics_that_it_leads() -> bool:
        status, text = running.fetch("/metrics", Accept=OPENMETRICS)
        assert status == 200
        parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        families = {family.name: family for family in parsed}
        assert families["fairbind_bindings"].type == "counter"
        return bool(families["fairbind_leader"].samples[0].value == 1.0)

    wait_for(says_in_openmetrics_that_it_leads, describe="it to lead, as OpenMetrics")
    wait_for(running.is_leader, describe="it to lead, as Prometheus' text")
    assert running.metrics().select("fairbind_build_info")[0].value == 1.0
