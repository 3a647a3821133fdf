"""What nodes and pods cost of memory beyond the base, counted by Python itself: the same on any machine.

The objects are as real clusters have them: long names, UIDs, a dozen labels a node of which three are its own. Each
figure is that of the second thousand, so what is shared by all of them, and what is kept once, is not in it.
"""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections.abc import Callable
from random import Random

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle

COUNT = 1_000
MOST_OF_A_NODE = 1_400
MOST_OF_A_LABEL = 200
MOST_OF_TEN_IMAGES = 400
MOST_OF_A_POD = 1_250
"""Bytes, with a seventh of room for other versions of Python. The figures are in docs/reliability/fuzz-cost.md."""


def name_node(number: int) -> str:
    return f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}.eu-central-1.compute.internal"


def make_some_node(number: int, labels: int = 0, images: int = 0) -> Json:
    shared = {f"example.com/fact-{n}": f"value-{n}-{number % 4}" for n in range(9)}
    own = {f"example.com/own-{n}": f"i-{number:08}{n}" for n in range(2 + labels)}
    amounts = {"cpu": "15890m", "memory": "63Gi", "ephemeral-storage": "95Gi", "pods": "110"}
    labelled = {"kubernetes.io/hostname": name_node(number), **shared, **own}
    node = make_node(name_node(number), allocatable=amounts, labels=labelled)
    names = [f"registry.example.com/team/service-{number % 20 + n}" for n in range(images)]
    node["status"]["images"] = [{"names": [f"{name}:1", f"{name}@sha256:{7:064}"], "sizeBytes": 9**9} for name in names]
    return node


def make_some_pod(number: int, node: str | None = None) -> Json:
    return make_pod(
        f"learner-{number // 50:05}-6d4cf56db6-{number:05}",
        namespace=f"team-{number % 20}",
        uid=str(uuid.UUID(int=Random(number).getrandbits(128))),
        requests={"cpu": "100" if node is None else "100m", "memory": "64Mi"},
        labels={"app": "learner", "pod-template-hash": f"6d4cf56db6-{number // 50}", "tier": "batch"},
        node=node,
        phase="Pending" if node is None else "Running",
    )


def measure(add: Callable[[range], None]) -> float:
    """Bytes that one of the second thousand costs."""
    tracemalloc.start()
    try:
        sizes = []
        for numbers in (range(COUNT), range(COUNT, 2 * COUNT)):
            add(numbers)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return (sizes[1] - sizes[0]) / COUNT
    finally:
        tracemalloc.stop()


def measure_nodes(labels: int = 0, images: int = 0) -> float:
    cluster = Cluster()

    def add(numbers: range) -> None:
        cluster.add_nodes(*(make_some_node(number, labels, images) for number in numbers))
        cluster.cache.build_snapshot()

    return measure(add)


@pytest.mark.slow
def test_a_node_costs_its_name_its_own_labels_and_its_rows() -> None:
    plain = measure_nodes()
    assert plain < MOST_OF_A_NODE
    assert measure_nodes(labels=4) < plain + 4 * MOST_OF_A_LABEL
    assert measure_nodes(images=10) < plain + MOST_OF_TEN_IMAGES


def test_nodes_that_hold_nothing_share_what_says_so() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"), make_node("b"))
    pod = make_pod("p", node="a", requests={"cpu": "1"}, containers=[{"ports": [{"hostPort": 80}]}])
    cluster.add_pods(pod)
    used, unused = (cluster.cache.state.servers.states[name] for name in "ab")
    assert (used.held, used.ports) != (unused.held, unused.ports)
    cluster.delete_pod(pod)
    assert used.held is unused.held
    assert used.ports is unused.ports
    assert used.system is unused.held


@pytest.mark.slow
def test_a_pod_costs_less_than_its_budget() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_some_node(number) for number in range(100)))

    def add_placed(numbers: range) -> None:
        cluster.add_pods(*(make_some_pod(number, name_node(number % 100)) for number in numbers))
        cluster.cache.build_snapshot()

    def add_waiting(numbers: range) -> None:
        cluster.add_pods(*(make_some_pod(9 * COUNT + number) for number in numbers))
        cluster.cache.note_waits(run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0).waits)

    assert measure(add_placed) < MOST_OF_A_POD
    assert measure(add_waiting) < MOST_OF_A_POD
    cluster.cache.check_consistent()
