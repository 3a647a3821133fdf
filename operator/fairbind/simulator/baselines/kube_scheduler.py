"""The rule of kube-scheduler, by our reading: higher priority first, then who waits longest; tenants do not matter.

Its queue is sorted by priority and then by time
(https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/), and nodes are scored by
`NodeResourcesFit` with `LeastAllocated`: the more of cpu and memory is left after the pod, the better
(https://kubernetes.io/docs/reference/scheduling/config/). As it has no rule about tenants, its choice of nodes is part
of the baseline; with the best fit in its place it is `fifo`.

Left out: preemption, the pause before a pod is tried again, and all other scores (balance, spread, images).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairbind.cluster.objects.facts import CPU, MEMORY
from fairbind.model import Snapshot
from fairbind.model.servers import FloatArray, IndexArray, IntArray
from fairbind.scheduling.policies.fit import Score


class LeastAllocated:
    """Makes the scores: the part of cpu and memory in use with the task, added up; less is better."""

    __slots__ = ("_axes", "_capacity_kr")

    def __init__(self, snapshot: Snapshot) -> None:
        self._axes = tuple(r for r, name in enumerate(snapshot.resources) if name in {CPU, MEMORY})
        self._capacity_kr = np.maximum(snapshot.servers.capacity_kr, 1)

    def build_score(self, demand_r: Sequence[int]) -> Score:
        """Return the score for tasks of this demand."""
        return _PartInUse(tuple((r, demand_r[r]) for r in self._axes), self._capacity_kr)


class _PartInUse:
    __slots__ = ("_capacity_kr", "_demands")

    def __init__(self, demands: Sequence[tuple[int, int]], capacity_kr: IntArray) -> None:
        self._demands = demands
        self._capacity_kr = capacity_kr

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        score: FloatArray = np.zeros(len(servers))
        for r, demand in self._demands:
            score -= (left_rn[r] - demand) / self._capacity_kr[servers, r]
        return score

    def score_one(self, server: int, free_r: Sequence[int]) -> float:
        score = 0.0
        for r, demand in self._demands:
            score -= (max(free_r[r], 0) - demand) / int(self._capacity_kr[server, r])
        return score
