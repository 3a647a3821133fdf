from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.builders import Json, make_pod, read_pod
from fairbind.cluster.objects import requests
from fairbind.cluster.objects.quantity import to_base_units
from fairbind.cluster.objects.requests import DEFAULT_SHARE, MAX_RESOURCES, add_claimed, leave_out_growth
from fairbind.model import MAX_AMOUNT, Rejection, RejectionKind

MI = 2**20


def container(name: str = "main", limits: Mapping[str, str] | None = None, **rest: Any) -> Json:
    requests = rest.pop("requests", {})
    return {"name": name, "resources": {"requests": dict(requests), "limits": dict(limits or {})}, **rest}


def sidecar(name: str, **requests: str) -> Json:
    return container(name, requests=requests, restartPolicy="Always")


def get_real(**pod: Any) -> dict[str, int]:
    return dict(read_pod(make_pod(**pod)).demand.real)


def test_containers_are_added_up_and_every_pod_is_one_pod() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "100m"}), container("b", requests={"cpu": "1", "memory": "1Mi"})]
    )
    assert pod == {"cpu": 1100, "memory": MI, "pods": 1}


def test_the_overhead_of_the_runtime_comes_on_top() -> None:
    assert get_real(requests={"cpu": "1"}) == {"cpu": 1000, "pods": 1}
    assert get_real(requests={"cpu": "1"}, overhead={"cpu": "250m"}) == {"cpu": 1250, "pods": 1}


def test_a_pod_without_requests_is_one_pod() -> None:
    assert get_real() == {"pods": 1}


def test_the_largest_init_container_counts_when_it_is_larger_than_all_containers() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "1", "memory": "4Mi"})],
        initContainers=[
            container("i1", requests={"cpu": "3", "memory": "1Mi"}),
            container("i2", requests={"cpu": "2", "memory": "2Mi"}),
        ],
    )
    assert pod == {"cpu": 3000, "memory": 4 * MI, "pods": 1}


def test_an_init_container_runs_beside_the_sidecars_that_started_before_it_and_not_beside_later_ones() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "100m"})],
        initContainers=[
            sidecar("s1", cpu="1"),
            container("init", requests={"cpu": "5"}),
            sidecar("s2", cpu="3"),
        ],
    )
    assert pod["cpu"] == max(100 + 1000 + 3000, 1000 + 5000)


def test_sidecars_run_beside_all_containers() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "2"})],
        initContainers=[container("init", requests={"cpu": "1"}), sidecar("s1", cpu="1"), sidecar("s2", cpu="1")],
    )
    assert pod["cpu"] == 4000


def test_overhead_is_added_to_the_larger_moment() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "1"})],
        initContainers=[container("init", requests={"cpu": "2"})],
        overhead={"cpu": "250m", "memory": "64Mi"},
    )
    assert pod == {"cpu": 2250, "memory": 64 * MI, "pods": 1}


def test_pod_level_requests_replace_the_sum_for_cpu_memory_and_huge_pages_only() -> None:
    pod = get_real(
        containers=[container(requests={"cpu": "3", "memory": "1Mi", "example.com/dongle": "1"})],
        resources={"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/dongle": "7"}},
        overhead={"cpu": "1"},
    )
    assert pod == {"cpu": 3000, "memory": MI, "hugepages-2Mi": 4 * MI, "example.com/dongle": 1, "pods": 1}


def test_a_limit_stands_in_for_a_missing_request_and_not_for_a_stated_one() -> None:
    pod = get_real(containers=[container(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "8Mi"})])
    assert pod == {"cpu": 1000, "memory": 8 * MI, "pods": 1}


def test_zero_requests_hold_nothing() -> None:
    assert get_real(requests={"cpu": "0", "nvidia.com/gpu": "0"}) == {"pods": 1}


def resized(*, spec: str, allocated: str | None, running: str | None, infeasible: bool = False) -> int:
    status: Json = {"name": "main"}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    if running:
        status["resources"] = {"requests": {"cpu": running}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] if infeasible else []
    return get_real(
        requests={"cpu": spec},
        node="n",
        phase="Running",
        status={"containerStatuses": [status], "conditions": conditions},
    )["cpu"]


@pytest.mark.parametrize(
    ("spec", "allocated", "running", "milli"),
    [
        ("1", None, None, 1000),
        ("1", "2", "3", 3000),
        ("1", "4", "3", 4000),
        ("5", "1", "1", 5000),
        ("1", "2", None, 2000),
    ],
)
def test_a_pod_that_is_resized_holds_the_largest_of_spec_allocated_and_running(
    spec: str, allocated: str | None, running: str | None, milli: int
) -> None:
    assert resized(spec=spec, allocated=allocated, running=running) == milli


def test_what_an_infeasible_resize_asks_for_does_not_count() -> None:
    assert resized(spec="50", allocated="1", running="2", infeasible=True) == 2000


def test_a_resized_sidecar_counts_as_a_resized_container() -> None:
    real = get_real(
        requests={"cpu": "1"},
        initContainers=[sidecar("s", cpu="1")],
        node="n",
        status={"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "4"}}]},
    )
    assert real["cpu"] == 5000


def test_a_resize_of_the_whole_pod_counts_the_largest_too() -> None:
    status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
    real = get_real(requests={"cpu": "1"}, resources={"requests": {"cpu": "2"}}, node="n", status=status)
    assert real["cpu"] == 3000


def test_missing_requests_count_a_little_in_shares_and_nothing_in_feasibility() -> None:
    facts = read_pod(make_pod(requests={"cpu": "2"}))
    assert dict(facts.demand.real) == {"cpu": 2000, "pods": 1}
    assert dict(facts.demand.share) == {"cpu": 2000, "memory": DEFAULT_SHARE["memory"], "pods": 1}


@pytest.mark.parametrize("asked", [{}, {"cpu": "1m", "memory": "1"}, {"cpu": "9m", "memory": "15Mi"}])
def test_to_ask_for_little_never_counts_less_in_shares_than_to_ask_for_nothing(asked: dict[str, str]) -> None:
    assert dict(read_pod(make_pod(requests=asked)).demand.share) == {**DEFAULT_SHARE, "pods": 1}


def test_a_deferred_resize_counts_in_the_share_of_who_asks_for_it() -> None:
    """Its room is kept from others: kube-scheduler keeps it too, and the kubelet takes it as soon as it is there."""
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
    running = {"name": "main", "allocatedResources": {"cpu": "1m"}, "resources": {"requests": {"cpu": "1m"}}}
    status = {"containerStatuses": [running], "conditions": conditions}
    demand = read_pod(make_pod(requests={"cpu": "32"}, node="n", phase="Running", status=status)).demand
    assert dict(demand.real)["cpu"] == dict(demand.share)["cpu"] == 32_000
    assert demand.growth == (("cpu", 31_999),)
    allocated = leave_out_growth(demand)
    assert (dict(allocated.real), allocated.share) == ({"cpu": 1, "pods": 1}, demand.share)
    devices = {"gpu.example.com/devices": 1}
    assert add_claimed(demand, devices).growth == demand.growth


def test_a_deferred_resize_of_the_whole_pod_says_how_much_it_would_grow() -> None:
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
    status = {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}, "conditions": conditions}
    pod = make_pod(requests={"cpu": "1"}, resources={"requests": {"cpu": "5"}}, node="n", status=status)
    demand = read_pod(pod).demand
    assert (dict(demand.real)["cpu"], dict(demand.growth)) == (5000, {"cpu": 3000})


def test_a_pod_that_asks_for_thousands_of_resources_waits_and_little_of_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def note(resource: str, text: str) -> int:
        read.append(resource)
        return to_base_units(resource, text)

    monkeypatch.setattr(requests, "to_base_units", note)
    many = {f"a{n}.io/x": "1" for n in range(5_000)}
    facts = read_pod(make_pod(requests={**many, "cpu": "2", "memory": "1Gi"}))
    assert facts.unsupported == Rejection(RejectionKind.NOT_SUPPORTED, "requests for more than 64 resources")
    real = dict(facts.demand.real)
    assert len(real) == MAX_RESOURCES
    assert (real["cpu"], real["memory"], real["pods"]) == (2000, 2**30, 1)
    assert len(read) == MAX_RESOURCES


def test_resources_are_counted_over_all_containers() -> None:
    containers = [container(f"c{n}", requests={f"a{n}.io/x": "1"}) for n in range(MAX_RESOURCES)]
    assert read_pod(make_pod(containers=containers)).unsupported is not None
    assert read_pod(make_pod(containers=containers[1:])).unsupported is None


def test_equal_demands_are_one_object() -> None:
    one = read_pod(make_pod("a", requests={"cpu": "1", "memory": "1Gi"}))
    other = read_pod(make_pod("b", requests={"memory": "1024Mi", "cpu": "1000m"}))
    assert one.demand is other.demand


def test_two_hundred_containers_are_added_up() -> None:
    containers = [container(f"c{i}", requests={"cpu": "7m"}) for i in range(200)]
    assert get_real(containers=containers)["cpu"] == 1400


def test_amounts_beyond_64_bits_saturate() -> None:
    huge = [container(f"c{i}", requests={"memory": "100000000000000000000"}) for i in range(3)]
    assert get_real(containers=huge)["memory"] == MAX_AMOUNT


@pytest.mark.parametrize("text", ["-1", "lots", "1K"])
def test_a_quantity_that_makes_no_sense_is_named_and_the_rest_counts(text: str) -> None:
    facts = read_pod(make_pod(requests={"cpu": "1", "memory": text}))
    assert dict(facts.demand.real) == {"cpu": 1000, "pods": 1}
    assert facts.unsupported_detail is not None
    assert "spec.containers[0].resources.requests[memory]" in facts.unsupported_detail
