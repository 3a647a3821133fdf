"""Clusters of several shapes and tenants with more tasks than fit, and how far a run is from the exact mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf
from typing import Any

import numpy as np

from fairbind.fairness import make_problem
from fairbind.fairness.problems.problem import Problem
from fairbind.simulator.results import Run
from simulator.scenarios import SECOND

GPU = "example.com/gpu"
Amounts = Mapping[str, float]
Counts = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Shape:
    """Nodes of one shape."""

    name: str
    count: int
    capacity: Amounts
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Backlog:
    """A tenant and one pod of it. tasks: None: more than the whole cluster runs."""

    tenant: str
    weight: int
    demand: Amounts
    selector: Mapping[str, str]
    tasks: int | None = None

    def may_use(self, shape: Shape) -> bool:
        return all(shape.labels.get(key) == value for key, value in self.selector.items())


@dataclass(frozen=True)
class Scene:
    """Shapes and backlogs. coarse: by how much larger pods of cpu and memory are where they come and go."""

    shapes: Sequence[Shape]
    backlogs: Sequence[Backlog]
    coarse: float

    @property
    def resources(self) -> list[str]:
        return sorted({name for shape in self.shapes for name in shape.capacity})

    def enlarge(self) -> Scene:
        """The same with larger pods, so that fewer come and go, and none is limited."""
        backlogs = [
            Backlog(
                one.tenant,
                one.weight,
                {name: amount if name == GPU else amount * self.coarse for name, amount in one.demand.items()},
                one.selector,
            )
            for one in self.backlogs
        ]
        return Scene(self.shapes, backlogs, 1.0)

    def count_alone(self, backlog: Backlog) -> float:
        """How many of its pods the whole cluster would run."""
        totals = {name: sum(s.count * s.capacity.get(name, 0) for s in self.shapes) for name in self.resources}
        return min(totals[name] / amount for name, amount in backlog.demand.items())

    def make_problem(self) -> Problem:
        return make_problem(
            [[shape.capacity.get(name, 0) for name in self.resources] for shape in self.shapes],
            [[one.demand.get(name, 0) for name in self.resources] for one in self.backlogs],
            count_k=[shape.count for shape in self.shapes],
            weight_i=[one.weight for one in self.backlogs],
            tasks_i=[inf if one.tasks is None else one.tasks for one in self.backlogs],
            eligible_ik=[[one.may_use(shape) for shape in self.shapes] for one in self.backlogs],
            resources=self.resources,
        )

    def write(self, *, mean: float | None = None, horizon: float = 10) -> dict[str, Any]:
        """The document of a scenario. mean: of run times in seconds; None: they run for ever."""
        workload = []
        for one in self.backlogs:
            turns = 1.0 if mean is None else 1.3 * horizon / mean
            tasks = floor(self.count_alone(one) * turns) + 1 if one.tasks is None else one.tasks
            workload.append(
                {
                    "tenant": one.tenant,
                    "name": "w",
                    "tasks": tasks,
                    "duration": "forever" if mean is None else {"exponential": mean},
                    "pod": {"requests": write_amounts(one.demand), "nodeSelector": dict(one.selector)},
                }
            )
        return {
            "seed": 1,
            "horizon": horizon,
            "measureEvery": horizon,
            "cluster": [
                {"shape": s.name, "count": s.count, "capacity": write_amounts(s.capacity), "labels": dict(s.labels)}
                for s in self.shapes
            ],
            "tenants": [{"name": one.tenant, "weight": one.weight} for one in self.backlogs],
            "workload": workload,
        }

    def count(self, run: Run, times: Sequence[float]) -> Counts:
        """How many tasks of each backlog run on each shape, on average of these times."""
        rows = {one.tenant: i for i, one in enumerate(self.backlogs)}
        columns = {shape.name: k for k, shape in enumerate(self.shapes)}
        held_ik = np.zeros((len(rows), len(columns)))
        for task in run.tasks:
            if task.start is not None and task.server is not None:
                end = inf if task.end is None else task.end / SECOND
                part = sum(task.start / SECOND <= time < end for time in times) / len(times)
                held_ik[rows[task.tenant], columns[task.server.rpartition("-")[0]]] += part
        return held_ik


def write_amounts(amounts: Amounts) -> dict[str, str]:
    units = {"cpu": (1000, "m"), "memory": (1024, "Mi")}
    return {
        name: f"{round(amount * units[name][0])}{units[name][1]}" if name in units else str(round(amount))
        for name, amount in amounts.items()
    }


def find_gains(scene: Scene, held_ik: Counts, pods: int) -> list[tuple[str, str, int]]:
    """Return where Definition 4 of PS-DSF is violated by more than so many pods: (tenant, shape, how many).

    For each tenant and shape, exactly: how many pods more could the tenant run on these nodes in place of tenants that
    would still be above it there, so that each gives up no more than what it has above?
    """
    demand_ir = [{r: Fraction(str(a)) for r, a in one.demand.items()} for one in scene.backlogs]
    count_ik = [[Fraction(round(held)) for held in row] for row in held_ik.tolist()]
    total_i = [sum(row, Fraction(0)) for row in count_ik]
    found = []
    for k, shape in enumerate(scene.shapes):
        capacity_r = {r: Fraction(str(a)) * shape.count for r, a in shape.capacity.items()}
        able = [
            i for i, one in enumerate(scene.backlogs) if one.may_use(shape) and one.demand.keys() <= capacity_r.keys()
        ]
        unit = {
            i: scene.backlogs[i].weight * min(capacity_r[r] / a for r, a in demand_ir[i].items()) for i in able
        }  # pods for a level of 1
        free_r = {r: c - sum(count_ik[i][k] * demand_ir[i].get(r, 0) for i in able) for r, c in capacity_r.items()}
        for i in able:
            tasks = scene.backlogs[i].tasks
            more = pods + 1
            if tasks is not None and total_i[i] + more > tasks:
                continue
            level = (total_i[i] + more) / unit[i]
            given = {m: min(count_ik[m][k], max(total_i[m] - level * unit[m], Fraction(0))) for m in able if m != i}
            free = min(floor(free_r[r] / a) for r, a in demand_ir[i].items())  # on several nodes: no pod fits there
            gained_r = {r: free_r[r] + sum(x * demand_ir[m].get(r, 0) for m, x in given.items()) for r in capacity_r}
            gained = min(floor(gained_r[r] / a) for r, a in demand_ir[i].items())
            if gained - max(free, 0) >= more:
                found.append((scene.backlogs[i].tenant, shape.name, gained))
    return found


PLAIN = Scene(
    [
        Shape("a", 6, {"cpu": 16, "memory": 64}, {}),
        Shape("b", 4, {"cpu": 32, "memory": 64}, {}),
        Shape("c", 2, {"cpu": 8, "memory": 128}, {}),
    ],
    [
        Backlog("t0", 1, {"cpu": 0.05, "memory": 0.4}, {}),
        Backlog("t1", 2, {"cpu": 0.2, "memory": 0.1}, {}),
        Backlog("t2", 1, {"cpu": 0.1, "memory": 0.25}, {}),
        Backlog("t3", 3, {"cpu": 0.1, "memory": 0.1}, {}),
    ],
    4.0,
)
CONSTRAINED = Scene(
    [
        Shape("a", 6, {"cpu": 16, "memory": 64}, {"zone": "1", "disk": "x"}),
        Shape("b", 4, {"cpu": 32, "memory": 64}, {"zone": "2", "disk": "x"}),
        Shape("c", 2, {"cpu": 8, "memory": 128}, {"zone": "1", "disk": "y"}),
    ],
    [
        Backlog("t0", 1, {"cpu": 0.05, "memory": 0.4}, {"zone": "1"}),
        Backlog("t1", 2, {"cpu": 0.2, "memory": 0.1}, {}),
        Backlog("t2", 1, {"cpu": 0.1, "memory": 0.25}, {"disk": "y"}),
        Backlog("t3", 1, {"cpu": 0.1, "memory": 0.1}, {"zone": "2"}, 150),
    ],
    4.0,
)
GPUS = Scene(
    [
        Shape("cpu", 6, {"cpu": 32, "memory": 128}, {}),
        Shape("g8", 12, {"cpu": 32, "memory": 256, GPU: 8}, {}),
        Shape("g4", 6, {"cpu": 16, "memory": 64, GPU: 4}, {}),
    ],
    [
        Backlog("t0", 1, {"cpu": 0.2, "memory": 0.5}, {}),
        Backlog("t1", 1, {"cpu": 2, "memory": 8, GPU: 1}, {}),
        Backlog("t2", 2, {"cpu": 0.5, "memory": 16, GPU: 1}, {}),
        Backlog("t3", 1, {"cpu": 0.1, "memory": 2}, {}),
    ],
    2.0,
)
MANY = Scene(
    [
        Shape("n", 10, {"cpu": 16, "memory": 64, "example.com/a": 40, "example.com/b": 80}, {}),
        Shape("m", 5, {"cpu": 32, "memory": 64, "example.com/a": 10, "example.com/b": 300}, {}),
    ],
    [
        Backlog("t0", 1, {"cpu": 0.25, "memory": 0.5, "example.com/a": 1}, {}),
        Backlog("t1", 1, {"cpu": 0.1, "memory": 0.25, "example.com/b": 2}, {}),
        Backlog("t2", 1, {"memory": 0.4, "example.com/a": 1, "example.com/b": 1}, {}),
        Backlog("t3", 2, {"cpu": 0.2}, {}),
    ],
    1.0,
)
SCENES = {"plain": PLAIN, "constrained": CONSTRAINED, "gpus": GPUS, "many": MANY}
