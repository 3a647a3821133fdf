"""fgd beside its published result: openb is filled until nothing more fits, by the published rule and by fairbind's."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import TaskRow
from fairbind.simulator.workload import draw_workload
from fairness_table.fragmentation import (
    INFLATION,
    Fragmentation,
    Openb,
    Rule,
    Shape,
    State,
    descend,
    fill,
    find_allocated,
    fit_best,
    inflate,
    place,
)

SEEDS: Final = (42,)
ARRIVED: Final = (1.0, INFLATION)
"""When is looked: tasks have arrived that ask for so many times all GPUs."""
PUBLISHED: Final[Mapping[str, Sequence[float]]] = {"FGD": (0.952, 0.954), "BestFit": (0.929, 0.931)}
"""Medians of the ten seeds in analysis_allo_discrete.csv of the artifact, workload openb_pod_list_default."""
TYPICAL_PART: Final = 0.95
WHOLE: Final = {
    "fgd-fifo": "fairbind's fgd",
    "fifo": "fairbind's best fit",
    "first-fit-drfh": "first fit",
    "kube-scheduler-rule": "the node with the most left",
}
"""By policy: which fit rule it shows. There is one tenant, so all take tasks as they arrive."""

Json = dict[str, Any]


def measure_inflation(openb: Openb) -> list[Json]:
    """Return a row for each rule: gpus (parts or whole), and which part of the GPUs is allocated at each of ARRIVED."""
    largest = max(openb.nodes, key=lambda node: (len(node.free), node.cpu_milli))
    rules: dict[str, Callable[[Counter[Shape]], Rule]] = {
        "the published formula": descend,
        "the same, scores rounded as in the artifact": round_scores,
        "the paper's best fit": lambda _typical: fit_best(largest),
    }
    seeds = {seed: inflate(openb.pods, _find_milli(openb), seed) for seed in SEEDS}
    rows = [
        _describe(
            name, "parts", [_look(tasks, fill(openb.nodes, tasks, make(Counter(tasks))), openb) for tasks in each]
        )
        for name, make in rules.items()
        for each in [list(seeds.values())]
    ]
    whole = inflate([pod.round_up() for pod in openb.pods], _find_milli(openb), SEEDS[0])
    rows += [_describe(name, "whole", [simulate_whole(openb, whole, policy)]) for policy, name in WHOLE.items()]
    return rows


def _find_milli(openb: Openb) -> int:
    return math.ceil(INFLATION * _find_capacity(openb))


def _find_capacity(openb: Openb) -> int:
    return sum(sum(node.free) for node in openb.nodes)


def _look(tasks: Sequence[Shape], allocated: Sequence[int], openb: Openb) -> list[float]:
    return [find_allocated(tasks, allocated, _find_capacity(openb), arrived) for arrived in ARRIVED]


def _describe(name: str, gpus: str, found: Sequence[Sequence[float]]) -> Json:
    medians = [statistics.median(values) for values in zip(*found, strict=True)]
    return {"rule": name, "gpus": gpus, "seeds": len(found), "allocated": medians}


def round_scores(typical: Counter[Shape]) -> Rule:
    """Return the rule as the artifact computes it, as far as that matters.

    Typical are the most frequent shapes, up to 95 % of all tasks. The growth of fragmentation in GPUs is squeezed
    between 0 and 100 by the logistic function and cut to a whole number, so nodes that differ little are equal.
    """
    kept: Counter[Shape] = Counter()
    for shape, count in typical.most_common():
        if kept.total() < TYPICAL_PART * typical.total():
            kept[shape] = count
    fragmentation = Fragmentation(kept)

    def score(state: State, task: Shape) -> tuple[float, State] | None:
        before = fragmentation.compute(state)
        found = []
        for left in place(state, task):
            growth = (fragmentation.compute(left) - before) / kept.total() / 1000
            found.append((-int(100 / (1 + math.exp(growth))), left))
        return min(found, default=None, key=lambda each: each[0])

    return score


def simulate_whole(openb: Openb, tasks: Sequence[Shape], policy: str) -> list[float]:
    """Return the allocated parts when fairbind's simulator places the tasks, one a second."""
    scenario = parse_scenario(make_whole(openb, tasks))
    rows = simulate(scenario, draw_workload(scenario), policy).tasks
    return _look(tasks, _follow(tasks, rows), openb)


def make_whole(openb: Openb, tasks: Sequence[Shape]) -> Json:
    """Return the scenario: one tenant, a workload entry for each shape of tasks. The fit rules alone decide."""
    times: dict[Shape, list[int]] = defaultdict(list)
    for second, task in enumerate(tasks):
        times[task].append(second)
    return {
        "name": "openb, filled",
        "measureEvery": 1e6,
        "guided": False,
        "cluster": [
            {"shape": f"n{place}", "count": count, "capacity": _write(node.cpu_milli, node.memory_mib, len(node.free))}
            for place, (node, count) in enumerate(Counter(openb.nodes).items())
        ],
        "tenants": [{"name": "all"}],
        "workload": [
            {
                "tenant": "all",
                "name": f"t{place}",
                "arrival": {"times": seconds},
                "duration": "forever",
                "pod": {"requests": _write(shape.cpu_milli, shape.memory_mib, shape.gpus)},
            }
            for place, (shape, seconds) in enumerate(times.items())
        ],
    }


def _write(cpu_milli: int, memory_mib: int, gpus: int) -> Json:
    return {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"} | ({"nvidia.com/gpu": gpus} if gpus else {})


def _follow(tasks: Sequence[Shape], rows: Sequence[TaskRow]) -> list[int]:
    """Return how much is allocated after each task. rows: in the order of arrival."""
    allocated, after = 0, []
    for task, row in zip(tasks, rows, strict=True):
        allocated += task.gpu_milli if row.start is not None else 0
        after.append(allocated)
    return after
