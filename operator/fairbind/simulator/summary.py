"""The numbers of a run: how long tasks waited and took, and how much each tenant had.

Means of waits and slowdowns are over all tasks that arrived: without those that never start, a policy would look better
that lets tasks starve. What the end of the run hides counts as little as it can: such a task has waited until then, and
ends as early as it still may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fairbind.simulator.gang_log import GangLog
from fairbind.simulator.measuring import Measures, TenantMeasures
from fairbind.simulator.results import TaskRow
from fairbind.simulator.workload import FOREVER
from fairbind.what_if.reading import NANOSECONDS

TAIL_PERCENT = 95.0


class TaskTimes:
    """Waiting times and slowdowns by tenant, in nanoseconds and as ratios, censored at the end of the run.

    end: of the run. completed, never_started: tasks, by tenant. starts: of tasks, each attempt counts.
    """

    def __init__(self, tenants: Iterable[str], end: int) -> None:
        self.end = end
        self.waits: dict[str, list[int]] = {tenant: [] for tenant in tenants}
        self.slowdowns: dict[str, list[float]] = {tenant: [] for tenant in self.waits}
        self.completed: dict[str, int] = dict.fromkeys(self.waits, 0)
        self.never_started: dict[str, int] = dict.fromkeys(self.waits, 0)
        self.starts = 0
        self.first_arrival: int | None = None
        self.last_end: int | None = None

    def add(self, attempts: Sequence[TaskRow], duration: int, *, is_running: bool) -> None:
        """Take a task: its rows of the table of tasks. duration: FOREVER for one that has no slowdown."""
        first, last = attempts[0], attempts[-1]
        if self.first_arrival is None or first.arrival < self.first_arrival:
            self.first_arrival = first.arrival
        self.starts += last.attempts
        self.never_started[first.tenant] += first.start is None
        self.waits[first.tenant].append((self.end if first.start is None else first.start) - first.arrival)
        if last.end is not None:
            self.completed[last.tenant] += 1
            self.last_end = last.end if self.last_end is None else max(self.last_end, last.end)
        if duration != FOREVER:
            until = last.end
            if until is None:
                until = (last.start if is_running and last.start is not None else self.end) + duration
            self.slowdowns[last.tenant].append((until - last.arrival) / duration)


def compute_summary(measures: Measures, times: TaskTimes, gangs: GangLog, *, is_cut: bool) -> dict[str, Any]:
    """Return the summary of one policy's run. is_cut: it ended while something was still to come."""
    of_all = gangs.describe_all(times.end)
    of_tenants = {} if of_all is None else gangs.describe(measures.tenants, times.end)
    arrived = sum(tenant.arrived for tenant in measures.tenants.values())
    completed = sum(times.completed.values())
    makespan = None
    if times.last_end is not None and times.first_arrival is not None and not is_cut:
        makespan = (times.last_end - times.first_arrival) / NANOSECONDS
    return {
        "decisions": times.starts,
        "completed": completed,
        "unfinished": arrived - completed,
        "never_started": sum(times.never_started.values()),
        "makespan_seconds": makespan,
        "wait_seconds": _describe_waits([wait for waits in times.waits.values() for wait in waits]),
        "slowdown": {"mean": _mean([slowdown for some in times.slowdowns.values() for slowdown in some])},
        **measures.compute_means(times.end),
        **({} if of_all is None else {"gangs": of_all}),
        "tenants": {
            name: {
                **_describe(name, tenant, times),
                **({"gangs": of_tenants[name]} if name in of_tenants else {}),
            }
            for name, tenant in measures.tenants.items()
        },
    }


def _describe(name: str, tenant: TenantMeasures, times: TaskTimes) -> Mapping[str, Any]:
    return {
        "arrived": tenant.arrived,
        "completed": times.completed[name],
        "never_started": times.never_started[name],
        "wait_seconds": _describe_waits(times.waits[name]),
        "slowdown": {"mean": _mean(times.slowdowns[name])},
        "dominant_share": {"mean": tenant.mean_share.compute(times.end)},
        "fair_share": {"mean_part": tenant.part.compute(times.end), "worst_part": tenant.worst_part},
    }


def _describe_waits(nanoseconds: Sequence[int]) -> Mapping[str, float | None]:
    waits = [wait / NANOSECONDS for wait in nanoseconds]
    return {"mean": _mean(waits), "p95": float(np.percentile(waits, TAIL_PERCENT)) if waits else None}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
