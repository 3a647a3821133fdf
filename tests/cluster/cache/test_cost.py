"""What thousands of pods with different constraints cost: little more than thousands of equal ones."""

from __future__ import annotations

import functools
import gc
import itertools
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_node, read_pod
from fairbind.cluster.cache import window
from fairbind.cluster.cache.snapshot import SnapshotBuilder
from fairbind.cluster.cache.window import MAX_TENANT_PLACEMENTS
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


def test_pods_that_are_pinned_to_one_node_each_have_one_placement() -> None:
    scene = Scene(pin)
    scene.add_pods()
    snapshot = scene.cluster.cache.build_snapshot()

    assert len({id(each.placement) for each in snapshot.task_classes}) == 1
    assert sum(len(each.tasks) for each in snapshot.task_classes) == PODS
    assert len(scene.cluster.cache.books.eligibility) == 1


@pytest.mark.parametrize("spec", [tolerate, avoid])
def test_verdicts_and_classes_are_no_more_than_a_tenant_may_have(spec: Spec) -> None:
    scene = Scene(spec)
    scene.add_pods()
    snapshot = scene.cluster.cache.build_snapshot()

    assert len(snapshot.task_classes) <= MAX_TENANT_PLACEMENTS + 1
    assert len({id(each.placement) for each in snapshot.task_classes}) <= MAX_TENANT_PLACEMENTS + 1
    assert sum(len(each.tasks) for each in snapshot.task_classes) == PODS
    assert len(scene.cluster.cache.books.eligibility) <= MAX_TENANT_PLACEMENTS + 1


def test_to_place_a_daemonset_costs_what_its_pods_cost_and_not_pods_times_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is done for each waiting pod in each cycle of 25 decisions would be done 20,000 times."""
    counts: Counter[str] = Counter()

    def count(where: object, name: str) -> None:
        counted = getattr(where, name)

        def call(*args: Any) -> Any:
            counts[name] += 1
            return counted(*args)

        monkeypatch.setattr(where, name, call)

    count(window, "compute_turn")
    count(SnapshotBuilder, "_build_task_class")
    count(checks, "check_task_class")
    scene = Scene(pin)
    scene.pods = [make_pod(f"p{n}", requests={"cpu": "1"}, **pin(n)) for n in range(NODES)]
    scene.add_pods()
    while scene.cluster.cache.queries.has_waiting:
        snapshot = scene.cluster.cache.build_snapshot()
        for bind in run_cycle(snapshot, PolicySettings(), 0.0, limit=25, state=scene.state).bindings:
            assert bind.server == f"n{bind.task.uid.removeprefix('uid-p')}"
            assert scene.cluster.cache.assume(bind.task.uid, bind.server)

    # Twice the number of pods is what it takes, and as many again those of them that are fewer than a tenant may have.
    assert 2 * NODES <= counts["compute_turn"] <= 5 * NODES
    assert NODES <= counts["_build_task_class"] <= 2 * NODES
    assert NODES <= counts["check_task_class"] <= 2 * NODES
