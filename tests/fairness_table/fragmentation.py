"""Fragmentation gradient descent as published, with parts of GPUs, and the experiment of its paper on openb.

Tasks arrive one by one until they ask for 130 % of the cluster's GPUs. None ends, and one that fits nowhere is lost.
The measure is how many GPUs are allocated then. A node is its free cpu, its free memory and what is free of each of its
GPUs, so a part of a GPU lies on one device. fairbind's own rule (`fairbind.simulator.baselines.fgd`) counts whole GPUs.
This module shares no code with it.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023, and its public artifact.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

GPU_MILLI: Final = 1000
INFLATION: Final = 1.3


class Shape(NamedTuple):
    """What a task asks for. milli: of each GPU, thousandths; less than 1,000 only where it is one."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int

    @property
    def gpu_milli(self) -> int:
        """All that it asks of GPUs, thousandths."""
        return self.gpus * self.milli

    def round_up(self) -> Shape:
        """Return the same with whole GPUs."""
        return self._replace(milli=GPU_MILLI) if self.gpus else self


class State(NamedTuple):
    """What a node has free. free: of each of its GPUs, thousandths, sorted."""

    cpu_milli: int
    memory_mib: int
    free: tuple[int, ...]


def place(state: State, task: Shape) -> list[State]:
    """Return what may be left of a node with the task on it: nothing where it does not fit, a state for each choice."""
    cpu, memory = state.cpu_milli - task.cpu_milli, state.memory_mib - task.memory_mib
    places = [place for place, free in enumerate(state.free) if free >= task.milli]
    if cpu < 0 or memory < 0 or len(places) < task.gpus:
        return []
    if not task.gpus:
        return [State(cpu, memory, state.free)]
    choices = [places[: task.gpus]] if task.milli == GPU_MILLI else [[place] for place in places]
    left = dict.fromkeys(
        tuple(sorted(free - task.milli * (place in chosen) for place, free in enumerate(state.free)))
        for chosen in choices
    )
    return [State(cpu, memory, free) for free in left]


class Fragmentation:
    """F_n(M) of the paper, times the number of typical tasks: how much of its free GPUs they cannot use.

    For a task that cannot run on the node, or needs no GPU, that is all; else what lies on GPUs with too little for it.
    """

    def __init__(self, typical: Counter[Shape]) -> None:
        self._count_m = np.array(list(typical.values()))
        self._cpu_m, self._memory_m, self._gpus_m, self._milli_m = np.array(list(typical)).T
        self._known: dict[State, int] = {}

    def compute(self, state: State) -> int:
        """Return it in thousandths of a GPU."""
        known = self._known.get(state)
        if known is None:
            free_g = np.array(state.free, dtype=np.int64)
            enough_mg = free_g >= self._milli_m[:, None]
            runs_m = (self._cpu_m <= state.cpu_milli) & (self._memory_m <= state.memory_mib) & (self._gpus_m > 0)
            runs_m &= enough_mg.sum(axis=1) >= self._gpus_m
            lost_m = np.where(runs_m, (free_g * ~enough_mg).sum(axis=1), free_g.sum())
            known = self._known[state] = int(self._count_m @ lost_m)
        return known


Rule = Callable[[State, Shape], tuple[float, State] | None]
"""The score of a task on a node, the less the better, and what is left then; None where it does not fit."""


def descend(typical: Counter[Shape]) -> Rule:
    """Return the published rule: where fragmentation grows least, also among the GPUs of a node."""
    fragmentation = Fragmentation(typical)

    def score(state: State, task: Shape) -> tuple[float, State] | None:
        before = fragmentation.compute(state)
        found = [(fragmentation.compute(left) - before, left) for left in place(state, task)]
        return min(found, default=None)

    return score


def fit_best(largest: State) -> Rule:
    """Return the paper's best fit: the least cpu and GPUs left in parts of the largest node; the fullest GPU."""

    def score(state: State, task: Shape) -> tuple[float, State] | None:
        found = place(state, task)
        if not found:
            return None
        left = min(found, key=lambda some: some.free)
        return left.cpu_milli / largest.cpu_milli + sum(left.free) / sum(largest.free), left

    return score


def fill(nodes: Sequence[State], tasks: Sequence[Shape], rule: Rule) -> list[int]:
    """Return how much of the GPUs is allocated after each task, thousandths. Of equal nodes the first is taken."""
    places: dict[State, list[int]] = {}
    for number, node in enumerate(nodes):
        places.setdefault(node, []).append(number)
    known: dict[tuple[State, Shape], tuple[float, State] | None] = {}
    allocated, after = 0, []
    for task in tasks:
        best: tuple[float, int, State, State] | None = None
        for state, numbers in places.items():
            key = state, task
            if key not in known:
                known[key] = rule(state, task)
            scored = known[key]
            if scored is not None and (best is None or (scored[0], numbers[0]) < best[:2]):
                best = scored[0], numbers[0], state, scored[1]
        if best is not None:
            _, number, state, left = best
            places[state].remove(number)
            if not places[state]:
                del places[state]
            places[left] = sorted([*places.get(left, []), number])
            allocated += task.gpu_milli
        after.append(allocated)
    return after


def inflate(shapes: Sequence[Shape], gpu_milli: int, seed: int) -> list[Shape]:
    """Return the tasks and more that are drawn from them until they ask for so much of GPUs, in a random order."""
    generator = np.random.default_rng(seed)
    tasks, asked = list(shapes), sum(shape.gpu_milli for shape in shapes)
    while asked < gpu_milli:
        drawn = shapes[int(generator.integers(len(shapes)))]
        tasks.append(drawn)
        asked += drawn.gpu_milli
    return [tasks[place] for place in generator.permutation(len(tasks)).tolist()]


@dataclass(frozen=True, slots=True)
class Openb:
    """openb as published. nodes: those with GPUs, as in the paper."""

    nodes: tuple[State, ...]
    pods: tuple[Shape, ...]


def read_openb(pods: Path, nodes: Path) -> Openb:
    """Read the publisher's two files."""
    with nodes.open(encoding="utf-8", newline="") as file:
        found = [
            State(int(row["cpu_milli"]), int(row["memory_mib"]), (GPU_MILLI,) * int(row["gpu"]))
            for row in csv.DictReader(file)
        ]
    with gzip.open(pods, "rt", encoding="utf-8", newline="") as file:
        shapes = [
            Shape(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]))
            for row in csv.DictReader(file)
        ]
    return Openb(tuple(node for node in found if node.free), tuple(shapes))


def find_allocated(tasks: Sequence[Shape], allocated: Sequence[int], capacity: int, arrived: float) -> float:
    """Return which part of the GPUs is allocated when tasks have arrived that ask for so many times all GPUs."""
    asked = 0
    for task, now in zip(tasks, allocated, strict=True):
        asked += task.gpu_milli
        if asked >= arrived * capacity:
            return now / capacity
    return allocated[-1] / capacity
