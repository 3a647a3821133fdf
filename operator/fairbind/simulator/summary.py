"""The numbers of a run: how long tasks waited and took, and how much each tenant had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fairbind.simulator.measuring import Measures, TenantMeasures
from fairbind.simulator.reading import NANOSECONDS
from fairbind.simulator.results import TaskRow

TAIL_PERCENT = 95.0


class TaskTimes:
    """Waiting times and slowdowns by tenant, in nanoseconds and as ratios. durations: of the tasks, in their order."""

    def __init__(self, tenants: Iterable[str]) -> None:
        self.waits: dict[str, list[int]] = {tenant: [] for tenant in tenants}
        self.slowdowns: dict[str, list[float]] = {tenant: [] for tenant in self.waits}
        self.completed = 0
        self.starts = 0
        self.first_arrival: int | None = None
        self.last_end: int | None = None

    def add(self, row: TaskRow, duration: int) -> None:
        """Take a row of the table of tasks."""
        if self.first_arrival is None or row.arrival < self.first_arrival:
            self.first_arrival = row.arrival
        if row.start is None:
            return
        self.starts += 1
        if row.attempts == 1:
            self.waits[row.tenant].append(row.start - row.arrival)
        if row.end is not None:
            self.completed += 1
            self.slowdowns[row.tenant].append((row.end - row.arrival) / duration)
            self.last_end = row.end if self.last_end is None else max(self.last_end, row.end)


def compute_summary(measures: Measures, times: TaskTimes, end: int) -> dict[str, Any]:
    """Return the summary of one policy's run."""
    arrived = sum(tenant.arrived for tenant in measures.tenants.values())
    makespan = None
    if times.last_end is not None and times.first_arrival is not None:
        makespan = (times.last_end - times.first_arrival) / NANOSECONDS
    return {
        "decisions": times.starts,
        "completed": times.completed,
        "unfinished": arrived - times.completed,
        "makespan_seconds": makespan,
        **measures.compute_means(end),
        "tenants": {name: _describe(name, tenant, times, end) for name, tenant in measures.tenants.items()},
    }


def _describe(name: str, tenant: TenantMeasures, times: TaskTimes, end: int) -> Mapping[str, Any]:
    waits = [wait / NANOSECONDS for wait in times.waits[name]]
    return {
        "arrived": tenant.arrived,
        "completed": len(times.slowdowns[name]),
        "wait_seconds": {"mean": _mean(waits), "p95": float(np.percentile(waits, TAIL_PERCENT)) if waits else None},
        "slowdown": {"mean": _mean(times.slowdowns[name])},
        "dominant_share": {"mean": tenant.mean_share.compute(end)},
        "fair_share": {"worst_part": tenant.worst_part},
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
