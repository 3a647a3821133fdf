"""Soft wishes against kube-scheduler's own scores: what each node is worth, and which one a cycle takes.

The worlds have no nominated pods, no resized containers and no node that is quietly not ready: there the two differ on
purpose in which nodes take a pod, and scores are relative to these.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from differential.compare import is_quietly_unready
from differential.generate import Features, Generator
from differential.oracle import Oracle, Scores, run_oracle
from differential.ours import Ours
from fairbind.model import TaskClass
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.servers.preferences import PreferenceScores
from fairbind.scheduling.cycle.servers.topology import TopologyState

Json = dict[str, Any]

WORLDS = 70
FIRST_SEED = 20_000_000
WISHES = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity", "ImageLocality")
FEATURES = Features(wishes=True), Features(spread=True, affinity=True, wishes=True)
"""Hard constraints leave few nodes to choose from, so every other world has none about other pods."""


@dataclass(frozen=True, slots=True)
class Case:
    """A world, the pods that wait in it, and what kube-scheduler says of each by itself."""

    cluster: Json
    waiting: list[Json]
    scores: list[Scores]

    def build_ours(self) -> Ours:
        return Ours(self.cluster["nodes"], self.cluster["namespaces"], self.cluster["pods"], {})


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """kube-scheduler's scores."""
    with run_oracle() as running:
        yield running


@pytest.fixture(scope="module")
def cases(oracle: Oracle) -> list[Case]:
    return [draw_case(oracle, FIRST_SEED + number) for number in range(WORLDS)]


def draw_case(oracle: Oracle, seed: int) -> Case:
    world = Generator(seed, FEATURES[seed % len(FEATURES)]).draw_world(seed, most_nodes=30, asked=10)
    nodes = [node for node in world.nodes if not is_quietly_unready(node, {"spec": {}})]
    pods = oracle.create([pod for pod in world.pods if pod["spec"].get("nodeName")])
    for pod in pods:
        pod["status"].pop("containerStatuses", None)
    cluster = {"nodes": nodes, "pods": pods, "namespaces": list(world.namespaces)}
    for pod in world.asked:
        pod["spec"].pop("nodeSelector", None)  # more nodes to choose from
    # kube-scheduler's scores fail where a preferred term compares with what is no number, and place no such pod.
    waiting = oracle.create([pod for pod in world.asked if '"x1"' not in json.dumps(pod["spec"].get("affinity"))])
    return Case(cluster, waiting, oracle.score(cluster, waiting))


def sum_up(scores: Scores) -> dict[str, int]:
    """What soft wishes are worth, above the node where they are worth least."""
    worth = {node: sum(by_plugin.get(name, 0) for name in WISHES) for node, by_plugin in scores.items()}
    return {node: score - min(worth.values()) for node, score in worth.items()}


def compute_ours(task_class: TaskClass, names: tuple[str, ...], feasible: set[str]) -> dict[str, int] | None:
    """The same by fairbind, of these nodes; None: it scores the nodes that a pod may use, full or not."""
    fits_n = np.array([name in feasible for name in names])
    if task_class.preferences is not None:
        score_n = PreferenceScores(task_class.preferences, TopologyState([task_class]), np.arange(len(names))).compute(
            fits_n
        )
    elif np.array_equal(fits_n, task_class.placement.eligible_k):
        wished = task_class.placement.preference_k
        score_n = np.zeros(len(names), dtype=np.int64) if wished is None else wished
    else:
        return None
    worth = {name: int(score_n[n]) for n, name in enumerate(names) if name in feasible}
    return {name: score - min(worth.values()) for name, score in worth.items()}


def test_nodes_are_worth_what_kube_scheduler_says(cases: list[Case]) -> None:
    seen = Counter[str]()
    for case in cases:
        ours = case.build_ours()
        for pod, scores in zip(case.waiting, case.scores, strict=True):
            task_class, names = ours.find_class(pod)
            if task_class.pin is not None or not scores:
                continue
            found = compute_ours(task_class, names, set(scores))
            if found is not None:
                assert found == sum_up(scores), (pod, scores)
                differs = {name for name in WISHES if len({each.get(name, 0) for each in scores.values()}) > 1}
                seen.update({*differs, "dynamic" if task_class.preferences else "static"})

    assert seen["dynamic"] > 150, seen
    assert seen["static"] > 10, seen
    for name in WISHES:
        assert seen[name] > 20, seen


def test_each_placement_of_a_cycle_takes_a_node_that_kube_scheduler_would_take(
    oracle: Oracle, cases: list[Case]
) -> None:
    """Placed in one cycle of fairbind, and one after the other here: the wishes of each see all before it."""
    checked = choices = 0
    for case in cases:
        ours, by_uid = case.build_ours(), {pod["metadata"]["uid"]: pod for pod in case.waiting}
        for pod in case.waiting:
            ours.wait(pod)
        snapshot = ours.cache.build_snapshot()
        class_of = {task.uid: each for each in snapshot.task_classes for task in each.tasks}
        oracle.score(case.cluster, [])
        placed: list[Json] = []
        for bind in run_cycle(snapshot, ours.cache.settings, 0.0).bindings:
            pod = by_uid[bind.task.uid]
            (scores,) = oracle.score_next(placed, [pod])
            worth = sum_up(scores)
            if class_of[bind.task.uid].preferences is not None:
                assert worth[bind.server] == max(worth.values()), (pod, worth, bind.server)
                checked += 1
                choices += min(worth.values()) < max(worth.values())
            placed = [{**pod, "spec": {**pod["spec"], "nodeName": bind.server}}]

    assert checked > 100
    assert choices > 80
