from __future__ import annotations

from typing import Any, cast

import pytest

from demo.observe import NO_REASON_YET, Observer, Use, compute_rate, compute_sample, find_first_reasons, parse_metrics
from demo.scenes import make_sample
from demo.workload import CAST, GATED_CAST, KIND_LABEL

PAGE = """\
# TYPE fairbind_tenant_dominant_share gauge
fairbind_tenant_dominant_share{tenant="shop"} 0.4
fairbind_tenant_dominant_share{tenant="ns/default"} 0.9
# TYPE fairbind_tenant_weighted_dominant_share gauge
fairbind_tenant_weighted_dominant_share{tenant="shop"} 0.2
# TYPE fairbind_tenant_dominant_resource gauge
fairbind_tenant_dominant_resource{resource="cpu",tenant="shop"} 1
# TYPE fairbind_tenant_weight gauge
fairbind_tenant_weight{tenant="shop"} 5
# TYPE fairbind_tenant_allocated gauge
fairbind_tenant_allocated{resource="cpu",tenant="shop"} 720
# TYPE fairbind_tenant_running_pods gauge
fairbind_tenant_running_pods{tenant="shop"} 33
# TYPE fairbind_tenant_pending_pods gauge
fairbind_tenant_pending_pods{reason="queued",tenant="shop"} 7
fairbind_tenant_pending_pods{reason="insufficient",tenant="shop"} 4
# TYPE fairbind_cluster_capacity gauge
fairbind_cluster_capacity{resource="cpu"} 1800
# TYPE fairbind_cluster_allocated gauge
fairbind_cluster_allocated{resource="cpu"} 900
# TYPE fairbind_fairness_jain_index gauge
fairbind_fairness_jain_index 0.75
# TYPE fairbind_tenant_fair_share gauge
fairbind_tenant_fair_share{tenant="shop"} 0.5
# TYPE fairbind_fairness_share_error gauge
fairbind_fairness_share_error 0.1
# TYPE fairbind_fairness_envy_pairs gauge
fairbind_fairness_envy_pairs{cause="history"} 2
# TYPE fairbind_bindings counter
fairbind_bindings_total{result="bound"} 500
fairbind_bindings_total{result="conflict"} 9
"""


def make_pod(name: str, created: str, message: str | None = None, namespace: str = "team-shop") -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}] if message else None
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": f"2030-01-01T00:00:{created}Z",
            "labels": {KIND_LABEL: "small"},
        },
        "status": {"phase": "Pending", "conditions": conditions},
    }


def test_sample_holds_what_the_operator_says() -> None:
    pods = [make_pod("shop-1", "01", "no room")]
    sample = compute_sample(12.0, parse_metrics(PAGE), pods, CAST.first, find_first_reasons(pods))
    shop = next(tenant for tenant in sample.tenants if tenant.name == "shop")
    assert (shop.weight, shop.share, shop.weighted_share, shop.dominant_resource) == (5.0, 0.4, 0.2, "cpu")
    assert (shop.running, shop.waiting, shop.why, shop.allocated) == (33, 11, "no room", {"cpu": 720.0})
    assert (sample.seconds, sample.bound, sample.jain_index) == (12.0, 500, 0.75)
    assert (shop.fair_share, sample.share_error, sample.envy) == (0.5, 0.1, {"history": 2})
    assert sample.uses[0] == Use("cpu", 900.0, 1800.0)
    assert sample.uses[0].fraction == 0.5
    assert sample.waiting == {("team-shop", "small"): 1}


def test_a_parent_is_shown_with_the_pods_of_its_children() -> None:
    page = PAGE + 'fairbind_tenant_dominant_share{tenant="web"} 0.4\n'
    sample = compute_sample(0.0, parse_metrics(page), [], CAST.first, {})
    sights = {tenant.name: tenant for tenant in sample.tenants}
    assert {name: sight.parent for name, sight in sights.items() if sight.parent} == {"shop": "web", "search": "web"}
    assert (sights["web"].running, sights["web"].waiting, sights["web"].share) == (33, 11, 0.4)


def test_tenants_that_the_operator_does_not_know_yet_hold_nothing() -> None:
    sample = compute_sample(0.0, parse_metrics(""), [], CAST.first, {})
    assert [tenant.name for tenant in sample.tenants] == [tenant.name for tenant in CAST.first]
    assert {(tenant.share, tenant.running, tenant.dominant_resource) for tenant in sample.tenants} == {(0.0, 0, None)}
    assert [tenant.weight for tenant in sample.tenants] == [tenant.weight for tenant in CAST.first]
    assert {use.fraction for use in sample.uses} == {0.0}
    assert {tenant.fair_share for tenant in sample.tenants} == {sample.share_error} == {None}


def test_first_reason_is_the_oldest_pods() -> None:
    pods = [
        make_pod("shop-3", "02", "young"),
        make_pod("shop-2", "01", "second by name"),
        make_pod("shop-1", "01", "oldest with a reason"),
        make_pod("shop-0", "00"),
        make_pod("vision-1", "05", namespace="team-vision"),
    ]
    assert find_first_reasons(pods) == {"team-shop": "oldest with a reason", "team-vision": NO_REASON_YET}


class EventApi:
    """Has waiting pods, and an event about each of some of them."""

    def __init__(self, pods: list[dict[str, Any]], events: dict[str, str]) -> None:
        self._pods = pods
        self._events = events

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        if not path.endswith("/events"):
            return self._pods
        name = query["fieldSelector"].removeprefix("reason=FailedScheduling,involvedObject.name=")
        return [{"message": self._events[name]}] if name in self._events else []


def test_behind_a_gate_the_oldest_pods_event_says_why_it_waits() -> None:
    gated = {"schedulingGates": [{"name": "fairbind.io/turn"}]}
    pods = [
        make_pod("shop-2", "02", "blocked by gates") | {"spec": gated},
        make_pod("shop-1", "01", "blocked by gates") | {"spec": gated},
        make_pod("shop-0", "00", "not seen yet") | {"spec": {}},
        make_pod("vision-1", "01", "blocked by gates", namespace="team-vision") | {"spec": gated},
        make_pod("analytics-1", "01", "blocked by gates", namespace="team-analytics") | {"spec": {}},
    ]
    api = EventApi(pods, {"shop-1": "no room", "shop-2": "another"})
    sample = Observer(cast("Any", api), lambda: PAGE, lambda: 0.0).take_sample(GATED_CAST.first)
    whys = {tenant.name: tenant.why for tenant in sample.tenants}
    assert {name: why for name, why in whys.items() if why} == {"shop": "no room"}, "of others no pods are known"


def test_rate_is_over_the_last_seconds() -> None:
    samples = [make_sample(seconds=second, bound=bound) for second, bound in [(0, 0), (1, 800), (6, 900), (11, 1000)]]
    assert compute_rate(samples) == pytest.approx(20.0)
    assert compute_rate(samples[:1]) == 0.0
    assert compute_rate([samples[0], samples[3]]) == pytest.approx(1000 / 11)
