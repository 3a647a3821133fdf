"""How long a submission would wait, estimated from run times that are known.

Pods that run end after a drawn run time, the operator decides at each end, and what it starts runs and ends too; that
is played many times. A run time is drawn from the known ones of the pod's namespace, or else of its tenant, those of
pods that succeeded and those that the admin gave. Of a pod that has run for a while only the longer ones count. Has it
run longer than all, then as much as a drawn run time is still ahead of it. A pod of which nothing is known never ends,
and nothing else arrives. So the estimate is of the cluster as it is, and of its past.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import numpy as np

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import parse_time
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.cluster.tenancy.tenants import Directory
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.reading import NANOSECONDS
from fairbind.what_if.trial import Trial

MOST_DRAWS: Final = 100
LEAST_DRAWS: Final = 20
MOST_EVENTS: Final = 2000
"""Ends of pods in all draws together, about: fewer draws where each needs more of them."""
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """Seconds from now until all pods of the submission run. p10, p90: infinite where so many draws never get there."""

    median: float
    p10: float
    p90: float

    def describe(self) -> dict[str, float | None]:
        """Return it as plain values; None for what never comes."""
        numbers = {"median": self.median, "p10": self.p10, "p90": self.p90}
        return {name: seconds if isfinite(seconds) else None for name, seconds in numbers.items()}


AT_ONCE = WaitEstimate(0.0, 0.0, 0.0)


class RunTimes:
    """What is known of how long pods run. by_namespace, by_tenant: seconds, sorted."""

    def __init__(self, listed: ListedObjects, directory: Directory, given: Mapping[str, Sequence[float]]) -> None:
        """directory: whose namespace is whose. given: seconds, by tenant; they replace what the objects say."""
        self._by_namespace: dict[str, list[float]] = {}
        self._by_tenant: dict[str, list[float]] = {tenant: list(seconds) for tenant, seconds in given.items()}
        for one in listed.run_times:
            self._by_namespace.setdefault(one.namespace, []).append(one.seconds)
            self._by_tenant.setdefault(directory.tenant_of(one.namespace), []).append(one.seconds)
        for tenant in given:  # what an admin says counts more than the past
            for namespace in [name for name in self._by_namespace if directory.tenant_of(name) == tenant]:
                del self._by_namespace[namespace]
            self._by_tenant[tenant] = list(given[tenant])
        for seconds in (*self._by_namespace.values(), *self._by_tenant.values()):
            seconds.sort()

    @property
    def counts(self) -> dict[str, int]:
        """How many are known, by tenant."""
        return {tenant: len(seconds) for tenant, seconds in sorted(self._by_tenant.items())}

    def draw(self, namespace: str, tenant: str, age: float, stream: np.random.Generator) -> float:
        """Return how long a pod of this age runs on; infinite when nothing is known."""
        known = self._by_namespace.get(namespace) or self._by_tenant.get(tenant)
        if not known:
            return inf
        first = bisect_right(known, age)
        if first == len(known):
            return known[int(stream.integers(len(known)))]
        return known[first + int(stream.integers(len(known) - first))] - age


def estimate_wait(
    trial: Trial, listed: ListedObjects, submitted: Sequence[wire.Pod], run_times: RunTimes
) -> WaitEstimate | None:
    """Return the estimate; None when in half of the draws the submission never starts. trial: before the decisions."""
    estimator = _Estimator(trial, listed, {pod.metadata.uid for pod in submitted}, run_times)
    waits: list[float] = []
    while len(waits) < LEAST_DRAWS or (len(waits) < MOST_DRAWS and estimator.events < MOST_EVENTS):
        waits.append(estimator.draw())
        if len(waits) == LEAST_DRAWS // 2 and all(wait == inf for wait in waits):
            return None
    p10, median, p90 = (float(np.quantile(waits, q, method="inverted_cdf")) for q in (0.1, 0.5, 0.9))
    return WaitEstimate(median, p10, p90) if isfinite(median) else None


class _Estimator:
    """events: how many pods have ended in all draws."""

    def __init__(self, trial: Trial, listed: ListedObjects, submitted: set[str], run_times: RunTimes) -> None:
        self._trial = trial
        self._submitted = submitted
        self._run_times = run_times
        self._stream = np.random.default_rng(SEED)
        self._now = 0
        self.events = 0
        self._running = [
            (pod, listed.time - (parse_time(pod.status.start_time) or listed.time))
            for pod in listed.pods
            if pod.spec.node_name and trial.cache.find_pod(pod.metadata.uid) is not None
        ]

    def draw(self) -> float:
        """Play once; return when the last pod of the submission starts, infinite for never."""
        trial, start = self._trial, self._now
        ends: list[tuple[float, int, str]] = []
        for pod, age in self._running:
            self._push(ends, pod.metadata.uid, pod.metadata.namespace, max(age, 0.0), 0.0)
        ended: list[str] = []
        elapsed, seen = 0.0, 0
        trial.decide(self._now)
        while True:
            for bind in trial.binds[seen:]:
                self._push(ends, bind.task.uid, split_task_name(bind.task)[0], 0.0, elapsed)
            seen = len(trial.binds)
            if self._submitted <= {bind.task.uid for bind in trial.binds} or not ends:
                break
            elapsed = ends[0][0]
            while ends and ends[0][0] <= elapsed:
                uid = heapq.heappop(ends)[2]
                trial.remove_pod(uid)
                ended.append(uid)
            self.events += 1
            self._now = start + round(elapsed * NANOSECONDS)
            trial.decide(self._now)
        wait = elapsed if self._submitted <= {bind.task.uid for bind in trial.binds} else inf
        for uid in ended:
            trial.cache.pods.apply(trial.make_facts(uid))
        trial.undo()
        return wait

    def _push(self, ends: list[tuple[float, int, str]], uid: str, namespace: str, age: float, now: float) -> None:
        tenant = self._trial.cache.state.directory.tenant_of(namespace)
        seconds = self._run_times.draw(namespace, tenant, age, self._stream)
        if isfinite(seconds):
            heapq.heappush(ends, (now + seconds, len(ends), uid))
