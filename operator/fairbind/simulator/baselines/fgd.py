"""Fragmentation gradient descent: the server on which a placement leaves the fewest GPUs that typical tasks cannot use.

A server's fragmentation for a typical task are its free GPUs, if the task does not fit there or needs no GPU, and
otherwise those of which too little is left for it. The fragmentation of a server is the mean over the typical tasks, by
how frequent they are. A task goes where this grows least; of equal servers the first by name.

GPUs are whole here, so each has enough left or is not free, and the second case is nothing. In tests the published
formula, written apart and with parts of GPUs, says the same of whole ones. docs/fairness-table.md has both on openb.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023 (https://www.usenix.org/conference/atc23/presentation/weng). The typical tasks are those of the whole
workload; its artifact takes the most frequent shapes, up to 95 % of the tasks, looks at cpu and GPUs only, and rounds
scores. Not kept: parts of one GPU, because nodes do not say which device a part is of; what types of GPUs a typical
task accepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fairbind.cluster.objects.facts import Amounts
from fairbind.model import Snapshot
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.scheduling.policies.fit import Score
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.workload import Workload

GPU_SUFFIX: Final = "/gpu"
"""How the names of resources end that are whole GPUs."""

Typical = Mapping[Amounts, int]
"""How many tasks of each demand there are, in base units by resource."""


def find_typical_tasks(scenario: Scenario, workload: Workload) -> Typical:
    """Return the demands of all tasks of a scenario."""
    counts: Counter[Amounts] = Counter()
    for entry, index in zip(workload.entry_t.tolist(), workload.index_t.tolist(), strict=True):
        pods = scenario.workload[entry].pods
        pod = pods[index].waiting if pods else scenario.workload[entry].waiting
        counts[pod.demand.real] += 1
    return counts


class FragmentationGradient:
    """Makes the scores of one snapshot."""

    __slots__ = ("_gpus", "_tasks")

    def __init__(self, snapshot: Snapshot, typical: Typical) -> None:
        axis_of = {name: r for r, name in enumerate(snapshot.resources)}
        self._gpus = tuple(r for name, r in axis_of.items() if name.endswith(GPU_SUFFIX))
        # A task that asks for what no server has fits nowhere, as on a server without it.
        self._tasks: list[tuple[int, tuple[tuple[int, int], ...] | None]] = []
        for amounts, count in typical.items():
            needs = tuple((axis_of.get(name), amount) for name, amount in amounts if amount > 0)
            known = tuple((r, amount) for r, amount in needs if r is not None)
            is_useful = len(known) == len(needs) and any(r in self._gpus for r, _ in known)
            self._tasks.append((count, known if is_useful else None))

    def build_score(self, demand_r: Sequence[int]) -> Score:
        """Return the score for tasks of this demand."""
        return _Growth(self._gpus, self._tasks, demand_r)


class _Growth:
    """By how much fragmentation grows, times the number of typical tasks: whole numbers, so exact in float64."""

    __slots__ = ("_demand_r", "_gpus", "_tasks")

    def __init__(
        self,
        gpus: Sequence[int],
        tasks: Sequence[tuple[int, tuple[tuple[int, int], ...] | None]],
        demand_r: Sequence[int],
    ) -> None:
        self._gpus = gpus
        self._tasks = tasks
        self._demand_r = demand_r

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        after_rn = left_rn - np.array(self._demand_r, dtype=np.float64)[:, None]
        growth: FloatArray = np.zeros(len(servers))
        before_n, then_n = (sum((rn[r] for r in self._gpus), np.zeros(len(servers))) for rn in (left_rn, after_rn))
        for count, needs in self._tasks:
            for sign, rn, gpus_n in ((-count, left_rn, before_n), (count, after_rn, then_n)):
                if needs is None:
                    growth += sign * gpus_n
                else:
                    fits_n = np.ones(len(servers), dtype=np.bool_)
                    for r, amount in needs:
                        fits_n &= rn[r] >= amount
                    growth += np.where(fits_n, 0.0, sign * gpus_n)
        return growth

    def score_one(self, server: int, free_r: Sequence[int]) -> float:  # noqa: ARG002 (what is free says all)
        before_r = [max(free, 0) for free in free_r]
        after_r = [free - demand for free, demand in zip(before_r, self._demand_r, strict=True)]
        growth = 0
        for sign, some_r in ((-1, before_r), (1, after_r)):
            gpus = sum(some_r[r] for r in self._gpus)
            for count, needs in self._tasks if gpus else ():
                if needs is None or any(some_r[r] < amount for r, amount in needs):
                    growth += sign * count * gpus
        return float(growth)
