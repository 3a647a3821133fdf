"""At every instant, from the files alone: capacity, eligibility, work conservation, one server a task.

The checker knows the scenario and the table of tasks, and shares no code with the simulator.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairbind.scheduling import POLICIES
from fairbind.simulator.baselines.registry import RULES
from fairbind.simulator.tables import write_results
from simulator.scenarios import Json, run

DIRECT = sorted(name for name, policy in POLICIES.items() if not policy.follows_targets)
SHAPES: list[Json] = [
    {"shape": "fast", "count": 2, "capacity": {"cpu": 8, "memory": 16, "pods": 4}, "labels": {"disk": "ssd"}},
    {"shape": "wide", "count": 2, "capacity": {"cpu": 4, "memory": 64, "pods": 9}},
    {
        "shape": "gpu",
        "count": 1,
        "capacity": {"cpu": 8, "memory": 32, "pods": 9, "example.com/gpu": 2},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    },
]
PODS: dict[str, Json] = {
    "plain": {"requests": {"cpu": 1, "memory": 3}},
    "disk": {"requests": {"cpu": 3, "memory": 2}, "nodeSelector": {"disk": "ssd"}},
    "heavy": {"requests": {"cpu": 1, "memory": 20}, "priority": 3},
    "training": {
        "requests": {"cpu": 2, "memory": 8, "example.com/gpu": 1},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
}
EVENTS: list[Json] = [
    {"at": 20, "cordon": ["wide-1"]},
    {"at": 30, "removeNodes": ["fast-0", "wide-0"]},
    {"at": 40, "addNodes": {"shape": "fast", "count": 2}},
    {"at": 45, "uncordon": ["wide-1"]},
    {"at": 60, "tenant": {"name": "b", "weight": 3}},
    {"at": 70, "removeNodes": ["gpu-0"]},
    {"at": 80, "addNodes": {"shape": "gpu"}},
]
SCENARIO: Json = {
    "seed": 11,
    "horizon": 120,
    "cluster": SHAPES,
    "tenants": [{"name": "a", "weight": 2}, {"name": "b"}, {"name": "c"}],
    "workload": [
        {
            "tenant": "abcab"[place % 5],
            "name": f"{kind}{place}",
            "arrival": {"poisson": 0.12},
            "duration": {"lognormal": {"median": 12, "sigma": 1}},
            "pod": PODS[kind],
        }
        for place, kind in enumerate([*PODS, *PODS])
    ],
    "events": EVENTS,
    "measureEvery": 1000,
}


@dataclass
class Node:
    """A node from `since` until `until`. closed: the times from which it is cordoned, and those from which not."""

    shape: Json
    since: float
    until: float = 1e9
    closed: list[tuple[float, bool]] = field(default_factory=list)

    def is_there(self, now: float) -> bool:
        return self.since <= now < self.until

    def is_open(self, now: float) -> bool:
        changes = [is_closed for at, is_closed in self.closed if at <= now]
        return self.is_there(now) and not (changes and changes[-1])


@dataclass(frozen=True)
class Attempt:
    task: str
    number: int
    arrival: float
    start: float | None
    end: float | None
    server: str | None


def read_nodes() -> dict[str, Node]:
    nodes = {f"{shape['shape']}-{n}": Node(shape, 0) for shape in SHAPES for n in range(shape["count"])}
    counts = {shape["shape"]: shape["count"] for shape in SHAPES}
    shapes = {shape["shape"]: shape for shape in SHAPES}
    for event in EVENTS:
        for name in event.get("removeNodes", []):
            nodes[name].until = event["at"]
        for name in event.get("cordon", []):
            nodes[name].closed.append((event["at"], True))
        for name in event.get("uncordon", []):
            nodes[name].closed.append((event["at"], False))
        if "addNodes" in event:
            name = event["addNodes"]["shape"]
            for _ in range(event["addNodes"].get("count", 1)):
                nodes[f"{name}-{counts[name]}"] = Node(shapes[name], event["at"])
                counts[name] += 1
    return nodes


def read_attempts(path: Path) -> list[Attempt]:
    def read(text: str) -> float | None:
        return float(text) if text else None

    with path.open(encoding="utf-8", newline="") as file:
        return [
            Attempt(
                row["task"],
                int(row["attempts"]),
                float(row["arrival"]),
                read(row["start"]),
                read(row["end"]),
                row["server"] or None,
            )
            for row in csv.DictReader(file)
        ]


def get_pod(task: str) -> Json:
    return PODS[task.rpartition("-")[0].rstrip("0123456789")]


def may_use(pod: Json, shape: Json) -> bool:
    labels = shape.get("labels", {})
    if any(labels.get(key) != value for key, value in pod.get("nodeSelector", {}).items()):
        return False
    tolerated = {toleration["key"] for toleration in pod.get("tolerations", [])}
    return all(taint["key"] in tolerated for taint in shape.get("taints", []))


def is_running(attempt: Attempt, now: float, nodes: dict[str, Node]) -> bool:
    """Whether it runs after what happened at this time."""
    if attempt.start is None or attempt.server is None or now < attempt.start:
        return False
    return now < (nodes[attempt.server].until if attempt.end is None else attempt.end)


def find_free(now: float, nodes: dict[str, Node], running: list[Attempt]) -> dict[str, dict[str, float]]:
    free: dict[str, dict[str, float]] = {
        name: dict(node.shape["capacity"]) for name, node in nodes.items() if node.is_there(now)
    }
    for attempt in running:
        assert attempt.server in free, f"{attempt} is on no node at {now}"
        for resource, amount in (get_pod(attempt.task)["requests"] | {"pods": 1}).items():
            free[attempt.server][resource] = free[attempt.server].get(resource, 0) - amount
    return free


@pytest.mark.parametrize("policy", [*DIRECT, *RULES, "fgd-fifo"])
def test_every_instant_is_sound(tmp_path: Path, policy: str) -> None:
    """Without reservations, which keep capacity free: `tests/scheduling/test_reservations.py` is about these."""
    document: dict[str, Any] = SCENARIO | {"reservations": {"mode": "Off"}}
    write_results(tmp_path, [run(document, policy)], "csv")
    attempts, nodes = read_attempts(tmp_path / "tasks.csv"), read_nodes()
    times = {time for each in attempts for time in (each.arrival, each.start, each.end) if time is not None}
    tasks = {each.task: each.arrival for each in attempts}
    ended = {each.task: each.end for each in attempts if each.end is not None}

    assert len(tasks) > 60
    assert max(each.number for each in attempts) > 1, "some must have lost their node"
    waited = 0
    for now in sorted(times | {event["at"] for event in EVENTS}):
        running = [each for each in attempts if is_running(each, now, nodes)]
        assert len({each.task for each in running}) == len(running), "one server a task"
        free = find_free(now, nodes, running)
        assert all(amount >= 0 for amounts in free.values() for amount in amounts.values()), (now, free)
        for each in running:
            assert each.server is not None
            assert may_use(get_pod(each.task), nodes[each.server].shape)
            assert each.start != now or nodes[each.server].is_open(now)
        names = {each.task for each in running}
        for task, arrival in tasks.items():
            if arrival <= now and task not in names and not ended.get(task, 1e9) <= now:
                waited += 1
                wants = get_pod(task)["requests"] | {"pods": 1}
                for name, amounts in free.items():
                    fits = all(amounts.get(resource, 0) >= amount for resource, amount in wants.items())
                    can = fits and nodes[name].is_open(now) and may_use(get_pod(task), nodes[name].shape)
                    assert not can, f"{task} waits at {now} although {name} has room"
    assert waited > 100
