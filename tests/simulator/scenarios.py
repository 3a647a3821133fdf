"""Small scenarios, and a checker of tables that shares no code with the simulator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import Run
from fairbind.simulator.workload import draw_workload

Json = dict[str, Any]
SECOND = 10**9


def make_entry(
    name: str = "w", *, tenant: str = "a", tasks: int | None = 1, duration: Any = 10, cpu: float = 1, **more: Any
) -> Json:
    """Some tasks of a tenant; what is left goes into the entry."""
    entry = {"tenant": tenant, "name": name, "duration": duration, "pod": {"requests": {"cpu": cpu}}, **more}
    return entry if tasks is None else {**entry, "tasks": tasks}


def make_scenario(*workload: Json, cpu: float = 4, count: int = 1, tenants: str = "a", **more: Any) -> Json:
    """A cluster of nodes n-0, n-1 and so on. tenants: their names, one letter each."""
    return {
        "cluster": [{"shape": "n", "count": count, "capacity": {"cpu": cpu, "memory": "16Gi", "pods": 110}}],
        "tenants": [{"name": name} for name in tenants],
        "workload": list(workload) or [make_entry()],
        **more,
    }


def run(document: Json, policy: str = "best-fit-drfh") -> Run:
    """Simulate one policy."""
    scenario = parse_scenario(document)
    return simulate(scenario, draw_workload(scenario), policy)


def find_attempts(result: Run) -> dict[str, list[tuple[float, float | None, float | None, str | None]]]:
    """Return (arrival, start, end, server) in seconds of each attempt, by task."""
    found: dict[str, list[tuple[float, float | None, float | None, str | None]]] = defaultdict(list)
    for row in result.tasks:
        assert row.attempts == (len(found[row.task]) + 1 if row.start is not None else 0)
        start, end = (None if time is None else time / SECOND for time in (row.start, row.end))
        found[row.task].append((row.arrival / SECOND, start, end, row.server))
    return dict(found)


def find_starts(result: Run) -> dict[str, float | None]:
    """Return when each task started first, in seconds."""
    return {task: attempts[0][1] for task, attempts in find_attempts(result).items()}


def check_capacity(result: Run, cpu_of_node: float, cpu_of_task: Mapping[str, float], horizon: float) -> None:
    """Judge from the table of tasks alone that no node ever runs more than it has."""
    changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task, attempts in find_attempts(result).items():
        for _, start, end, server in attempts:
            if start is not None and server is not None:
                cpu = cpu_of_task[task.rpartition("-")[0]]
                changes[server] += [(start, cpu), (horizon + 1 if end is None else end, -cpu)]
    for server, steps in changes.items():
        used = 0.0
        for _, step in sorted(steps):  # what ends at a time comes before what starts then
            used += step
            assert used <= cpu_of_node + 1e-9, server
