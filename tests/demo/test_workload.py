from __future__ import annotations

from collections import Counter

import pytest

from demo import workload
from demo.workload import CAST, GPU, KIND_LABEL, RUN_SECONDS, DemoTenant, PodStream
from localplane.nodes import mixed_nodes


def count_kinds(pods: list[workload.Json]) -> Counter[str]:
    return Counter(pod["metadata"]["labels"][KIND_LABEL] for pod in pods)


@pytest.mark.parametrize("tenant", [each for each in CAST.tenants if each.has_pods], ids=lambda tenant: tenant.name)
def test_backlog_is_filled_up_and_no_further(tenant: DemoTenant) -> None:
    stream = PodStream(60.0)
    pods = stream.make_missing(tenant, {})
    assert count_kinds(pods) == {kind.name: kind.backlog for kind in tenant.kinds}
    waiting = {(tenant.namespace, kind.name): kind.backlog for kind in tenant.kinds}
    assert stream.make_missing(tenant, waiting) == []
    first = tenant.kinds[0]
    waiting[tenant.namespace, first.name] -= 3
    assert count_kinds(stream.make_missing(tenant, waiting)) == {first.name: 3}


def test_more_waiting_than_wanted_is_not_made_up_for() -> None:
    waiting = {(workload.SHOP.namespace, "small"): 10_000}
    assert count_kinds(PodStream(60.0).make_missing(workload.SHOP, waiting)) == {"large": 18}


def test_names_are_never_used_twice() -> None:
    stream = PodStream(60.0)
    names = [pod["metadata"]["name"] for _ in range(3) for pod in stream.make_missing(workload.SHOP, {})]
    assert len(set(names)) == len(names) > 100


def test_kinds_are_spread_over_the_queue() -> None:
    pods = PodStream(60.0).make_missing(workload.SHOP, {})
    half = count_kinds(pods[: len(pods) // 2])
    assert half["small"] == pytest.approx(18, abs=1)
    assert half["large"] == pytest.approx(9, abs=1)


def test_same_pods_in_each_run() -> None:
    assert PodStream(60.0).make_missing(workload.RESEARCH, {}) == PodStream(60.0).make_missing(workload.RESEARCH, {})


@pytest.mark.parametrize("nodes", [6, 12, 60, 300])
def test_backlog_goes_with_the_cluster(nodes: int) -> None:
    counts = count_kinds(PodStream(60.0, nodes).make_missing(workload.SHOP, {}))
    assert counts == {"small": max(1, round(36 * nodes / 60)), "large": max(1, round(18 * nodes / 60))}


@pytest.mark.parametrize(("duration", "small"), [(10.0, 180), (25.0, 72), (50.0, 36), (600.0, 36)])
def test_the_faster_pods_end_the_more_of_them_wait(duration: float, small: int) -> None:
    assert count_kinds(PodStream(duration).make_missing(workload.SHOP, {}))["small"] == small
    assert count_kinds(PodStream(duration).make_first(workload.SHOP, 7))["small"] == 7 * 36


@pytest.mark.parametrize("duration", [10.0, 60.0, 600.0])
def test_pods_end_soon_enough_to_see_shares_move(duration: float) -> None:
    pods = PodStream(duration).make_missing(workload.SHOP, {})
    seconds = {int(pod["metadata"]["annotations"][RUN_SECONDS]) for pod in pods}
    assert min(seconds) >= 2
    assert max(seconds) <= duration * 0.4
    assert len(seconds) > 1


def test_lasting_pods_never_end() -> None:
    stream = PodStream(60.0)
    stream.is_lasting = True
    assert all(RUN_SECONDS not in pod["metadata"]["annotations"] for pod in stream.make_missing(workload.SHOP, {}))


def test_every_pod_of_the_limited_tenant_needs_a_gpu() -> None:
    pods = PodStream(60.0).make_missing(CAST.limited, {})
    assert all(GPU in pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods)


@pytest.mark.parametrize(("nodes", "guaranteed", "limit"), [(6, 3, 1), (12, 3, 1), (60, 12, 4), (300, 60, 20)])
def test_what_is_promised_goes_with_the_gpus_that_there_are(nodes: int, guaranteed: int, limit: int) -> None:
    cast = workload.promise(CAST, mixed_nodes(nodes))
    assert cast.limited in cast.first
    assert [tenant.name for tenant in cast.tenants if tenant.guarantee or tenant.limit] == [cast.limited.name]
    spec = workload.make_tenant(cast.limited)["spec"]
    for name, model, count in (("guarantee", "T4", guaranteed), ("limit", "A100", limit)):
        nodes_of_model = {"matchLabels": {"nvidia.com/gpu.product": model}}
        assert spec[name] == [{"nodes": nodes_of_model, "resources": {GPU: str(count)}}]


def test_without_gpus_nothing_is_promised() -> None:
    assert workload.promise(CAST, []) == CAST


def test_children_have_the_pods_and_a_parent_that_is_made_first() -> None:
    children = [tenant for tenant in CAST.tenants if tenant.parent]
    assert [child.name for child in children] == ["shop", "search"]
    for child in children:
        parent = next(tenant for tenant in CAST.first if tenant.name == child.parent)
        assert CAST.first.index(parent) < CAST.first.index(child)
        assert workload.make_tenant(parent)["spec"] == {"weight": 2}
        spec = {"weight": child.weight, "namespaces": [child.namespace], "parent": parent.name}
        assert workload.make_tenant(child)["spec"] == spec
        assert PodStream(60.0).make_missing(parent, {}) == []
    assert len(CAST.top) == 4


def test_gpus_are_limits_too() -> None:
    for tenant in CAST.tenants:
        for pod in PodStream(60.0).make_missing(tenant, {}):
            resources = pod["spec"]["containers"][0]["resources"]
            assert resources["limits"].get(GPU) == resources["requests"].get(GPU)


def test_weights_are_those_that_were_promised() -> None:
    assert sorted(tenant.weight for tenant in CAST.first if not tenant.parent) == [1, 2, 3]
    assert workload.make_tenant(workload.VISION)["spec"] == {"weight": 3, "namespaces": ["team-vision"]}
    assert workload.make_namespace(workload.VISION)["metadata"]["name"] == "team-vision"


def test_behind_a_gate_the_same_pods_are_for_another_scheduler() -> None:
    for tenant, gated in zip(CAST.tenants, workload.GATED_CAST.tenants, strict=True):
        assert not tenant.is_gated
        assert gated.is_gated
        if not tenant.has_pods:
            continue
        (pod, *_), (gated_pod, *_) = (PodStream(60.0).make_missing(each, {}) for each in (tenant, gated))
        assert (pod["spec"].pop("schedulerName"), gated_pod["spec"].pop("schedulerName")) == (
            "fairbind",
            "default-scheduler",
        )
        assert pod == gated_pod
        assert workload.make_namespace(gated)["metadata"]["labels"] == {"fairbind.io/enforce": "true"}
    assert workload.GATED_CAST.limited in workload.GATED_CAST.first
