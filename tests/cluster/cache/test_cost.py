"""What thousands of pods with different constraints cost: little more than thousands of equal ones."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_node, read_pod
from cluster.counting import count_calls
from fairbind.cluster.classes import window
from fairbind.cluster.classes.snapshot import SnapshotBuilder
from fairbind.cluster.classes.window import MAX_TENANT_PLACEMENTS
from fairbind.cluster.filters.relevance import NodeFeatures
from fairbind.cluster.objects.requests import MAX_RESOURCES
from fairbind.cluster.state import offered_resources
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import PolicySettings
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle import checks

PODS, NODES = 2_000, 1_000
Spec = Callable[[int], Json]


def same(_: int) -> Json:
    return {}


def tolerate(n: int) -> Json:
    return {"tolerations": [{"key": f"k{n}", "operator": "Exists"}]}


def avoid(n: int) -> Json:
    expression = {"key": "host", "operator": "NotIn", "values": [f"n{n % NODES}", f"n{n // NODES}"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def pin(n: int) -> Json:
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{n}"]}]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


class Scene:
    """A cluster with pods that fit nowhere, and the loop's way to decide."""

    def __init__(self, spec: Spec) -> None:
        self.cluster = Cluster()
        self.cluster.add_nodes(*(make_node(f"n{k}", labels={"host": f"n{k}"}) for k in range(NODES)))
        self.cluster.cache.build_snapshot()
        self.state, self.unschedulable = CycleState(), UnschedulableCache()
        self.pods = [make_pod(f"p{n}", requests={"cpu": "9"}, **spec(n)) for n in range(PODS)]

    def add_pods(self) -> None:
        self.cluster.add_pods(*self.pods)

    def decide(self) -> None:
        snapshot = self.cluster.cache.build_snapshot()
        run_cycle(snapshot, PolicySettings(), 0.0, state=self.state, unschedulable=self.unschedulable)


@functools.cache
def measure_memory(spec: Spec) -> int:
    """Bytes that the pods cost for as long as they wait."""
    scene = Scene(spec)
    gc.collect()
    tracemalloc.start()
    try:
        scene.add_pods()
        scene.decide()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "most_kib_a_pod"), [(tolerate, 3), (avoid, 12), (pin, 12)])
def test_pods_that_differ_cost_little_more_memory_than_equal_ones(spec: Spec, most_kib_a_pod: int) -> None:
    """An array for each pod and node alone is 5 KiB at 1,000 nodes, and a pod with a verdict of its own has eight."""
    assert measure_memory(spec) - measure_memory(same) < PODS * most_kib_a_pod * 1024


def measure_event(scene: Scene, happen: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        happen()
        scene.cluster.cache.build_snapshot()
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("spec", [tolerate, avoid, pin])
def test_a_change_of_a_node_costs_little_however_many_constraints_wait(spec: Spec) -> None:
    scene = Scene(spec)
    started = time.process_time()
    scene.add_pods()
    reading = time.process_time() - started
    scene.decide()
    turns = itertools.count(1)

    def change_node() -> None:
        amounts = {"cpu": str(next(turns)), "pods": "110"}
        scene.cluster.cache.nodes.apply(read_node(make_node("n7", labels={"host": "n7"}, allocatable=amounts)))

    def cordon_node() -> None:
        cordoned = bool(next(turns) % 2)
        scene.cluster.cache.nodes.apply(read_node(make_node("n7", labels={"host": "n7"}, unschedulable=cordoned)))

    assert measure_event(scene, change_node) < reading / 2
    assert measure_event(scene, cordon_node) < reading


def test_a_new_pod_costs_little_however_many_constraints_wait() -> None:
    scene = Scene(avoid)
    started = time.process_time()
    scene.add_pods()
    reading = time.process_time() - started
    scene.decide()
    numbers = itertools.count(PODS)

    def add_pod() -> None:
        number = next(numbers)
        scene.cluster.cache.pods.apply(read_pod(make_pod(f"p{number}", requests={"cpu": "9"}, **avoid(number))))

    assert measure_event(scene, add_pod) < reading / 4


@pytest.mark.slow
def test_pods_that_are_pinned_to_one_node_each_have_one_placement() -> None:
    scene = Scene(pin)
    scene.add_pods()
    snapshot = scene.cluster.cache.build_snapshot()

    assert len({id(each.placement) for each in snapshot.task_classes}) == 1
    assert sum(len(each.tasks) for each in snapshot.task_classes) == PODS
    assert len(scene.cluster.cache.state.filters.eligibility) == 1


@pytest.mark.parametrize("spec", [tolerate, avoid])
def test_verdicts_and_classes_are_no_more_than_a_tenant_may_have(spec: Spec) -> None:
    scene = Scene(spec)
    scene.add_pods()
    snapshot = scene.cluster.cache.build_snapshot()

    assert len(snapshot.task_classes) <= MAX_TENANT_PLACEMENTS + 1
    assert len({id(each.placement) for each in snapshot.task_classes}) <= MAX_TENANT_PLACEMENTS + 1
    assert sum(len(each.tasks) for each in snapshot.task_classes) == PODS
    assert len(scene.cluster.cache.state.filters.eligibility) <= MAX_TENANT_PLACEMENTS + 1


def tell(n: int) -> Json:
    return {"nodeSelector": {"host": f"n{n}"}}


@pytest.mark.slow
@pytest.mark.parametrize("spec", [tolerate, avoid, tell])
def test_a_change_of_a_node_looks_at_those_constraints_only_that_it_concerns(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A taint or a label that comes or goes sets few constraints apart, of thousands that wait."""
    scene = Scene(spec)
    scene.add_pods()
    scene.decide()
    counts = count_calls(monkeypatch, (NodeFeatures, "simplify"), (SnapshotBuilder, "_count_wanted"))

    def change(**options: Any) -> Counter[str]:
        counts.clear()
        scene.cluster.cache.nodes.apply(read_node(make_node("n7", **{"labels": {"host": "n7"}, **options})))
        scene.cluster.cache.build_snapshot()
        return Counter(counts)

    def expect(asked: int) -> Counter[str]:
        return Counter({"simplify": asked} if asked else {})

    taints = [{"key": key, "effect": "NoSchedule"} for key in ("other", "k7")]
    assert change(unschedulable=True) == change() == expect(0)
    assert change(taints=taints[:1]) == change() == expect(0)
    assert change(labels={"host": "n7", "new": "x"}) == change() == expect(0)
    assert change(taints=taints[1:]) == change() == expect(1 if spec is tolerate else 0)
    who_names_it: dict[Spec, int] = {tolerate: 0, tell: 1, avoid: 2}
    assert change(labels={"host": "none"}) == change() == expect(who_names_it[spec])
    scene.cluster.cache.check_consistent()


def test_to_place_a_daemonset_costs_what_its_pods_cost_and_not_pods_times_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is done for each waiting pod in each cycle of 25 decisions would be done 20,000 times."""
    counts = count_calls(
        monkeypatch,
        (window, "compute_sort_key"),
        (SnapshotBuilder, "_build_task_class"),
        (checks, "check_task_class"),
    )
    scene = Scene(pin)
    scene.pods = [make_pod(f"p{n}", requests={"cpu": "1"}, **pin(n)) for n in range(NODES)]
    scene.add_pods()
    while scene.cluster.cache.queries.has_waiting:
        snapshot = scene.cluster.cache.build_snapshot()
        for bind in run_cycle(snapshot, PolicySettings(), 0.0, limit=25, state=scene.state).bindings:
            assert bind.server == f"n{bind.task.uid.removeprefix('uid-p')}"
            assert scene.cluster.cache.assume(bind.task.uid, bind.server)

    # Twice the number of pods is what it takes, and as many again those of them that are fewer than a tenant may have.
    assert 2 * NODES <= counts["compute_sort_key"] <= 5 * NODES
    assert NODES <= counts["_build_task_class"] <= 2 * NODES
    assert NODES <= counts["check_task_class"] <= 2 * NODES


def time_snapshot(cluster: Cluster) -> float:
    started = time.process_time()
    cluster.cache.build_snapshot()
    return time.process_time() - started


def test_a_node_with_thousands_of_resources_costs_a_snapshot_little() -> None:
    """With a column of all nodes for each of them it takes 200 times as long as without them."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{k}") for k in range(NODES)))
    plain = time_snapshot(cluster)
    resources = {"cpu": "4", "pods": "110"} | {f"example.com/r{n:04}": "4" for n in range(3_000)}
    node = read_node(make_node("n7", allocatable=resources))
    cluster.cache.nodes.apply(node)

    assert time_snapshot(cluster) < 20 * plain
    offered = cluster.cache.build_snapshot().resources
    assert {"cpu", "pods", "example.com/r0000", "example.com/r0061"} <= set(offered)
    assert len(node.allocatable) == MAX_RESOURCES
    assert "example.com/r0062" not in offered
    faults = {"n7": "status.allocatable: more than 64 resources; the first ones by name count"}
    assert cluster.cache.queries.build_overview().node_faults == faults
    cluster.cache.nodes.apply(read_node(make_node("n7")))
    assert cluster.cache.queries.build_overview().node_faults == {}
    cluster.cache.nodes.apply(node)
    cluster.cache.nodes.delete(read_node(make_node("n7")))
    assert cluster.cache.queries.build_overview().node_faults == {}


def test_of_all_nodes_resources_those_count_that_most_nodes_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered_resources, "MAX_AXES", 6)
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"m{n}", allocatable={"cpu": "4", f"aa.com/r{n}": "2"}) for n in range(9)))
    cluster.add_nodes(*(make_node(f"n{n}", allocatable={"cpu": "4", "zz.com/gpu": "2"}) for n in range(2)))
    cluster.add_pods(make_pod("gpu", requests={"zz.com/gpu": "1"}), make_pod("rare", requests={"aa.com/r5": "1"}))

    assert cluster.cache.build_snapshot().resources[4:] == ("aa.com/r0", "zz.com/gpu")
    assert cluster.cache.queries.build_overview().left_out == tuple(f"aa.com/r{n}" for n in range(1, 9))
    assert cluster.find_eligible("uid-gpu") != set()
    assert cluster.find_eligible("uid-rare") == set()
    cluster.add_nodes(*(make_node(f"m{n}", allocatable={"cpu": "4"}) for n in range(5)))
    assert cluster.cache.build_snapshot().resources[4:] == ("aa.com/r5", "zz.com/gpu")
    assert cluster.find_eligible("uid-rare") != set()
    cluster.cache.check_consistent()


def count_all_calls(happen: Callable[[], None]) -> int:
    """How many functions are called, which no other work on the machine changes."""
    calls = Counter[str]()
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        happen()
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def count_steps_of_tenants(count: int, *, are_users: bool) -> int:
    """Calls for a pod that comes and goes where so many tenants, or users of one tenant, have pods."""
    cluster = Cluster()
    user: Json = {"users": {"label": "user"}}
    names = ["all"] if are_users else [f"t{n}" for n in range(count)]
    specs: list[Json] = [{"namespaces": [name], **(user if are_users else {})} for name in names]
    cluster.cache.replace_tenants(
        parse_tenant({"metadata": {"name": name}, "spec": spec}) for name, spec in zip(names, specs, strict=True)
    )
    cluster.add_nodes(*(make_node(f"n{k}") for k in range(8)))

    def make(n: int, **more: Any) -> Json:
        return make_pod(f"p{n}", namespace=names[n % len(names)], labels={"user": f"u{n % count}"}, **more)

    cluster.add_pods(*(make(n, node=f"n{n % 8}") for n in range(2 * count)))
    cluster.cache.build_snapshot()

    def come_and_go() -> None:
        pod = make(2 * count + 1)
        cluster.add_pods(pod)
        cluster.cache.build_snapshot()
        cluster.delete_pod(pod)
        cluster.cache.build_snapshot()

    come_and_go()
    return count_all_calls(come_and_go)


def test_users_of_a_tenant_cost_what_as_many_tenants_cost() -> None:
    users, tenants = (count_steps_of_tenants(500, are_users=are_users) for are_users in (True, False))
    assert users < 1.2 * tenants
