from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod, read_node
from cluster.counting import count_calls
from cluster.devices import CLASS, DRIVER, GPU, IMPLICIT, DeviceCluster
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.cluster.state.devices import Devices
from fairbind.cluster.state.forecast import find_opened
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle

GPUS = {"cpu": "4", "memory": "8Gi", "pods": "110", GPU: "8"}


@pytest.fixture
def cluster() -> DeviceCluster:
    return DeviceCluster()


def overview_of(cluster: DeviceCluster, tenant: str = "ns/team") -> Any:
    return next(t for t in cluster.cache.queries.build_overview().tenants if t.name == tenant)


def test_what_a_placed_pod_holds_through_a_claim_counts_in_the_share_and_takes_nothing_that_is_free(
    cluster: DeviceCluster,
) -> None:
    cluster.put_class()
    cluster.put_slice("a", 4)
    cluster.put_slice("b", 4, node="b")
    assert cluster.find_total(IMPLICIT) is None  # no device of any class is held

    cluster.put_claim("claim", ["gpu-0", "gpu-1"], ["uid-p"])
    assert cluster.find_held() == {}
    cluster.place("p")

    assert cluster.find_held() == {IMPLICIT: 2}
    assert cluster.find_total(IMPLICIT) == 8
    assert cluster.find_free("a", IMPLICIT) == 0
    tenant = overview_of(cluster)
    assert (tenant.dominant_resource, tenant.dominant_share) == (IMPLICIT, pytest.approx(2 / 8))
    assert tenant.allocated[IMPLICIT] == 2
    overview = cluster.cache.queries.build_overview()
    assert (overview.capacity[IMPLICIT], overview.allocated[IMPLICIT]) == (8, 2)
    assert sum(each.allocated.get(IMPLICIT, 0) for each in overview.classes) == 2
    cluster.cache.check_consistent()

    cluster.put_claim("claim", ["gpu-0", "gpu-1"], ["uid-p"], is_gone=True)
    assert cluster.find_held() == {}
    assert cluster.find_total(IMPLICIT) is None
    assert "deviceclass" not in str(cluster.cache.state.servers.states)


def test_a_device_counts_the_same_whether_a_claim_or_a_device_plugin_gave_it(cluster: DeviceCluster) -> None:
    cluster.add_nodes(make_node("c", allocatable=GPUS))
    cluster.put_class(resource=GPU)
    cluster.put_slice("a", 4)
    cluster.put_claim("claim", ["gpu-0"], ["uid-p"])
    cluster.place("p")
    cluster.place("q", "c", requests={"cpu": "1m", GPU: "2"})

    assert cluster.find_held() == {GPU: 3}
    assert cluster.find_total(GPU) == 12
    assert [cluster.find_free(node, GPU) for node in "abc"] == [0, 0, 6]
    cluster.add_pods(make_pod("waits", requests={"cpu": "1", GPU: "1"}))
    assert cluster.find_eligible("uid-waits") == {"b", "c"}  # no fair share is of what only a claim could give
    cluster.put_class(resource=None)
    assert cluster.find_held() == {GPU: 2, IMPLICIT: 1}
    cluster.cache.check_consistent()


def test_claims_take_nothing_from_what_a_device_plugin_offers_on_the_same_node(cluster: DeviceCluster) -> None:
    cluster.add_nodes(make_node("a", allocatable=GPUS))
    cluster.put_class(resource=GPU)
    cluster.put_slice("a", 4)
    cluster.put_claim("claim", ["gpu-0", "gpu-1", "gpu-2"], ["uid-p"])
    cluster.place("p")
    cluster.add_pods(make_pod("waits", requests={GPU: "8"}), make_pod("large", requests={GPU: "9"}))

    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)

    assert [(bind.task.uid, bind.server) for bind in report.bindings] == [("uid-waits", "a")]
    assert cluster.cache.assume("uid-waits", "a")
    assert cluster.cache.queries.has_capacity("uid-waits", "a")
    assert cluster.find_free("a", GPU) == 0
    assert cluster.find_held() == {GPU: 11}
    cluster.cache.check_consistent()


def test_a_claim_counts_once_for_the_first_of_the_placed_pods_that_reserve_it(cluster: DeviceCluster) -> None:
    cluster.put_slice("a", 4)
    cluster.put_claim("claim", ["gpu-0"], ["uid-p", "uid-q", "uid-waits"])
    cluster.add_pods(make_pod("waits"))
    assert cluster.find_held() == {}
    q, p = cluster.place("q"), cluster.place("p")
    assert cluster.find_held() == {IMPLICIT: 1}
    held = {t.uid: t.share_demand_r for t in cluster.cache.build_snapshot().running["a"]}
    assert held["uid-p"][-1] == 1
    assert held["uid-q"][-1] == 0

    cluster.delete_pod(p)
    assert cluster.find_held() == {IMPLICIT: 1}
    cluster.cache.check_consistent()
    cluster.delete_pod(q)
    assert cluster.find_held() == {}
    cluster.cache.check_consistent()


def test_an_eviction_gives_back_no_device_that_another_pod_could_be_given(cluster: DeviceCluster) -> None:
    cluster.put_slice("a", 4)
    cluster.put_claim("claim", ["gpu-0"], ["uid-p"])
    pod = cluster.place("p")
    for change in (lambda _: None, lambda pod: pod["spec"].update(priority=5)):
        cluster.change_pod(pod, change)
        (task,) = cluster.cache.build_snapshot().running["a"]
        assert (task.demand_r[-1], task.share_demand_r[-1]) == (0, 1)
    cluster.change_pod(pod, lambda pod: pod["status"].update(startTime="2026-02-01T00:00:00Z"))
    (task,) = cluster.cache.build_snapshot().running["a"]
    assert task.share_demand_r[-1] == 1


@pytest.mark.parametrize(
    "claim",
    [
        {"adminAccess": True},
        {"shareID": "0b8e"},
        {"request": "other"},
        {"namespace": "elsewhere"},
        {"pool": "unknown"},
        {"pool": "all"},
        {"device_class": CLASS, "driver": "other.example.com"},
    ],
    ids=["admin access", "a part of a device", "no such request", "namespace", "no slice", "all nodes", "driver"],
)
def test_what_is_no_whole_device_of_a_node_counts_nothing(cluster: DeviceCluster, claim: dict[str, Any]) -> None:
    cluster.put_slice("a", 4)
    cluster.put_slice("all", 100, node=None)
    cluster.put_claim("claim", ["gpu-0"], ["uid-p"], **claim)
    cluster.place("p")

    assert cluster.find_held() == {}
    assert cluster.find_held("ns/elsewhere") == {}
    cluster.cache.check_consistent()


def test_a_device_that_is_listed_twice_counts_once(cluster: DeviceCluster) -> None:
    cluster.put_slice("a", 4)
    cluster.put_claim("claim", ["gpu-0", "gpu-0"], ["uid-p"])
    cluster.place("p")
    assert cluster.find_held() == {IMPLICIT: 1}


def test_one_of_several_ways_to_serve_a_request_counts_for_its_own_class(cluster: DeviceCluster) -> None:
    cluster.put_slice("a", 4)
    results = [{"request": f"main/{name}", "driver": DRIVER, "pool": "a", "device": name} for name in ("big", "small")]
    ways = [{"name": "big", "deviceClassName": "large"}, {"name": "small", "deviceClassName": CLASS}]
    cluster.put(
        "resourceclaims",
        {
            "metadata": {"name": "c", "namespace": "team"},
            "spec": {"devices": {"requests": [{"name": "main", "firstAvailable": ways}]}},
            "status": {
                "allocation": {"devices": {"results": results[1:]}},
                "reservedFor": [{"resource": "pods", "uid": "uid-p"}, {"resource": "jobs", "uid": "uid-q"}],
            },
        },
    )
    cluster.place("p")
    assert cluster.find_held() == {IMPLICIT: 1}


def test_a_system_pods_devices_make_its_node_smaller(cluster: DeviceCluster) -> None:
    cluster.put_slice("a", 4)
    cluster.put_claim("own", ["gpu-0"], ["uid-s"], namespace="kube-system")
    cluster.put_claim("claim", ["gpu-1"], ["uid-p"])
    cluster.place("s", namespace="kube-system", scheduler="default-scheduler")
    cluster.place("p")

    assert cluster.find_total(IMPLICIT) == 3
    assert overview_of(cluster).dominant_share == pytest.approx(1 / 3)
    cluster.cache.check_consistent()


def test_the_newest_generation_of_a_pool_counts_and_parts_of_a_device_as_many_as_can_be_held_at_once(
    cluster: DeviceCluster,
) -> None:
    parts = [
        {"name": f"{size}-{n}", "consumesCounters": [{"counterSet": "gpu0", "counters": {"memory": {"value": size}}}]}
        for size, number in (("40Gi", 1), ("20Gi", 4))
        for n in range(number)
    ]
    others = [{"name": "whole"}, {"name": "for several claims", "allowMultipleAllocations": True}]
    counter_sets = [{"name": "gpu0", "counters": {"memory": {"value": "40Gi"}}}]
    cluster.put_claim("claim", ["whole"], ["uid-p"])
    cluster.place("p")
    cluster.put_slice("old", 9)
    assert cluster.find_total(IMPLICIT) == 9
    cluster.put_slice("devices", [*parts, *others], generation=2)
    cluster.put_slice("counters", [], generation=2, sharedCounters=counter_sets)
    assert cluster.find_total(IMPLICIT) == 2 + 1
    cluster.cache.check_consistent()


def test_a_request_that_a_claim_of_kube_scheduler_serves_counts_once(cluster: DeviceCluster) -> None:
    cluster.add_nodes(make_node("c", allocatable=GPUS))
    cluster.put_class(resource=GPU)
    cluster.put_slice("a", 4)
    cluster.put_claim("p-extended-resources-x", ["gpu-0"], ["uid-p"])
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [mapping]}}
    cluster.place("p", requests={"cpu": "1", GPU: "1"}, scheduler="default-scheduler", status=status)

    assert cluster.find_held() == {GPU: 1}
    assert cluster.find_free("a", GPU) == 0
    assert overview_of(cluster).allocated == {"cpu": 1.0, "pods": 1.0, GPU: 1.0}
    cluster.cache.check_consistent()


def wait_of(cluster: DeviceCluster, uid: str) -> tuple[str, str] | None:
    """Return the reason and the message of a pod that waits."""
    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)
    found = [wait for wait in report.waits if wait.first.uid == uid]
    return (compute_condition_reason(found[0]), format_unschedulable(found[0], 2)) if found else None


def word_insufficient(resource: str) -> str:
    large = "no node is large enough, even when empty, among those that admit the pod"
    return f"0/2 nodes are available: 2 Insufficient {resource}. {large}."


@pytest.mark.parametrize("resource", [GPU, IMPLICIT])
@pytest.mark.parametrize("are_devices_held", [False, True])
def test_a_pod_that_asks_for_what_only_claims_serve_is_told_so(
    cluster: DeviceCluster, resource: str, *, are_devices_held: bool
) -> None:
    cluster.add_pods(make_pod("p", requests={"cpu": "1", resource: "1"}))
    if are_devices_held:
        cluster.put_slice("a", 4)
        cluster.put_claim("claim", ["gpu-0"], ["uid-q"])
        cluster.place("q")
    assert wait_of(cluster, "uid-p") == ("Unschedulable", word_insufficient(resource))

    cluster.put_class(resource=GPU)
    told = f"requests for {resource} that DeviceClass gpu serves by claims, which fairbind does not honour yet"
    assert wait_of(cluster, "uid-p") == ("NotSupported", f"0/2 nodes are available: pod has {told}.")
    cluster.cache.check_consistent()

    cluster.add_nodes(make_node("c", allocatable={**GPUS, IMPLICIT: "1"}))
    assert wait_of(cluster, "uid-p") is None
    cluster.cache.check_consistent()
    cluster.cache.nodes.delete(cluster.cache.state.servers.states["c"].node)  # type: ignore[arg-type]
    assert wait_of(cluster, "uid-p") is not None
    cluster.put_class(is_gone=True)
    answer = wait_of(cluster, "uid-p")
    assert answer is not None
    assert answer[0] == "Unschedulable"
    cluster.cache.check_consistent()


def test_of_classes_with_one_resource_the_youngest_serves_it_and_then_the_first_by_name(cluster: DeviceCluster) -> None:
    cluster.add_pods(make_pod("p", requests={GPU: "1"}))
    for name, created in (("old", "2025"), ("ab", "2026"), ("a", "2026"), ("b", "2026")):
        cluster.put_class(name, GPU, created=f"{created}-01-01T00:00:00Z")
    answer = wait_of(cluster, "uid-p")
    assert answer is not None
    assert "DeviceClass a serves" in answer[1]


def test_a_pod_that_another_scheduler_may_place_by_a_claim_is_not_refused() -> None:
    cluster = DeviceCluster(gated_scheduler="default-scheduler")
    cluster.put_class(resource=GPU)
    gates = [{"name": "fairbind.io/turn"}]
    cluster.add_pods(make_pod("p", requests={GPU: "1"}, scheduler="default-scheduler", schedulingGates=gates))

    assert wait_of(cluster, "uid-p") == ("Unschedulable", word_insufficient(GPU))
    assert find_opened(cluster.cache.state.pods.entries) == []


def change_something(cluster: DeviceCluster, dice: random.Random) -> None:
    """Change an object about devices, or a node."""
    is_gone = dice.random() < 0.3
    match dice.randrange(6):
        case 0 | 1:
            devices = [f"gpu-{n}" for n in range(dice.randrange(3))]
            pods = [f"uid-p{n}" for n in range(5) if dice.random() < 0.4]
            of = {"namespace": dice.choice(("team", "kube-system")), "device_class": dice.choice(("gpu", "nic"))}
            cluster.put_claim(f"c{dice.randrange(4)}", devices, pods, pool=dice.choice("ab"), is_gone=is_gone, **of)
        case 2 | 3:
            node, number = dice.choice(("a", "b", "c", None)), dice.randrange(4)
            cluster.put_slice(f"s{dice.randrange(3)}", number, node=node, pool=dice.choice("ab"), is_gone=is_gone)
        case 4:
            cluster.put_class(dice.choice(("gpu", "nic")), dice.choice((GPU, None)), is_gone=is_gone)
        case _:
            node_facts = read_node(make_node(dice.choice("abc"), allocatable=GPUS if dice.random() < 0.5 else None))
            cluster.cache.nodes.delete(node_facts) if is_gone else cluster.cache.nodes.apply(node_facts)


def make_random_pod(name: str, dice: random.Random) -> Json:
    namespace, scheduler = dice.choice((("team", "fairbind"), ("kube-system", "other")))
    requests = {"cpu": "1", **({GPU: "1"} if dice.random() < 0.4 else {})}
    node = dice.choice(("a", "b", "c", None))
    return make_pod(name, node=node, namespace=namespace, scheduler=scheduler, requests=requests)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_books_equal_those_that_are_made_anew(seed: int) -> None:
    cluster, dice = DeviceCluster(), random.Random(seed)
    pods: dict[str, Json] = {}
    counted = 0
    for step in range(240):
        name = f"p{dice.randrange(5)}"
        if dice.random() < 0.6:
            change_something(cluster, dice)
        elif name in pods:
            cluster.delete_pod(pods.pop(name))
        else:
            pods[name] = make_random_pod(name, dice)
            cluster.add_pods(pods[name])
        if step % 4 == 0:
            for bind in run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0).bindings:
                cluster.cache.assume(bind.task.uid, bind.server)
            cluster.cache.check_consistent()
            counted += bool(cluster.find_held())
    cluster.cache.check_consistent()
    assert counted > 5
    for pod in pods.values():
        cluster.delete_pod(pod)
    assert cluster.cache.build_snapshot().tenants == ()
    assert cluster.cache.state.devices._held == {}


def test_a_change_of_one_claim_costs_what_the_claim_holds_and_not_what_there_is(
    cluster: DeviceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put_slice("a", 200)
    for number in range(200):
        cluster.put_claim(f"c{number}", [f"gpu-{number}"], [f"uid-p{number}"])
        cluster.place(f"p{number}")
    assert cluster.find_held() == {IMPLICIT: 200}
    counts = count_calls(monkeypatch, (Devices, "_count"), (Devices, "find_capacity"), (ClusterState, "move"))

    cluster.put_claim("c7", ["gpu-7", "gpu-8"], ["uid-p7"])
    assert cluster.find_held() == {IMPLICIT: 201}
    assert counts["_count"] <= 3
    assert counts["move"] <= 3
    assert counts["find_capacity"] == 0
