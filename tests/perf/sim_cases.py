"""The workloads of the simulator's benchmark: two from published traces, which lie outside the project, and a made one.

Of Google's trace 84 of 933 users are read. So its 29 days are folded into one: a job arrives at its time of day, and
each user of each quarter of a day is a tenant of its own. 22,000 of these jobs are drawn. What jobs ask for is drawn
from the DLRM trace, because Google's does not say; only cpu and memory count.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairbind.simulator.traces import dlrm, google2011, openb
from fairbind.simulator.traces.compose import Description, compose_scenario, draw_pods
from fairbind.simulator.traces.rows import LeftOut
from fairbind.simulator.traces.tasks import TRACE_END, Assumptions, Shape, TraceTask
from fairbind.what_if.reading import NANOSECONDS
from perf.google_servers import GOOGLE_SHAPES

GOOGLE_JOBS = "google2011-job-events/job_events_users9pct_seed0.csv.gz"
DLRM_PODS = "alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv.gz"
OPENB_PODS = "openb-v2023/openb_pod_list_default.csv.gz"
OPENB_NODES = "openb-v2023/openb_node_list_all_node.csv"
DAY, HOUR = 86_400, 3_600
PART_OF_DAY = 6 * HOUR
JOBS = 22_000
CROWDED = 1 / 12
LARGEST_CPU, LARGEST_GIB = 192, 1_000
"""Of the largest of Google's servers, which the paper's table counts as 1. All that DLRM's tasks ask for fits on it."""
MILLION = 1_000_000
CORES, GIBIBYTES = 32, 128
SIZES = (1, 2, 3, 4)
LOAD = 0.9
MEAN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload. needs_traces: whether it is made of traces. most_seconds, most_gib: what is wanted; None: nothing."""

    name: str
    make: Callable[[Path, float], dict[str, Any]]
    most_seconds: float | None = None
    most_gib: float | None = None
    needs_traces: bool = True


def make_google_day(traces: Path, part: float, servers: float = 1.0) -> dict[str, Any]:
    """Return the scenario of a day. part: of the jobs and of the servers. servers: the part of them that is there."""
    jobs = list(google2011.read_tasks(traces / GOOGLE_JOBS, LeftOut(traces / GOOGLE_JOBS)))
    chosen = sorted(random.Random(0).sample(range(len(jobs)), round(JOBS * part)))
    pods = [
        task.pod.without(_find_others(task))
        for task in dlrm.read_tasks(traces / DLRM_PODS, LeftOut(traces / DLRM_PODS))
    ]
    tasks = draw_pods((_fold(jobs[place]) for place in chosen), pods, seed=0)
    shapes = {
        Shape((("cpu", f"{cpu * LARGEST_CPU * 1000:.0f}m"), ("memory", f"{memory * LARGEST_GIB:.0f}Gi"))): max(
            1, round(count * part * servers)
        )
        for count, cpu, memory in GOOGLE_SHAPES
    }
    description = Description(
        "a Google day",
        "arrivals and run times of google2011 folded into one day, requests of dlrm, servers of DRFH's table 1",
        ["each user of each quarter of a day is a tenant of its own", "of what dlrm asks for, cpu and memory count"],
    )
    assumptions = Assumptions(outliving=TRACE_END, last=DAY * NANOSECONDS)
    return {**compose_scenario(tasks, shapes, assumptions, description), "measureEvery": HOUR}


def make_crowded_day(traces: Path, part: float) -> dict[str, Any]:
    """Return the same day on so few servers that tasks wait."""
    return make_google_day(traces, part, CROWDED)


def _find_others(task: TraceTask) -> set[str]:
    return {resource for resource, _ in task.pod.requests} - {"cpu", "memory"}


def _fold(job: TraceTask) -> TraceTask:
    day = DAY * NANOSECONDS
    part = job.arrival // (PART_OF_DAY * NANOSECONDS)
    return job._replace(tenant=f"{job.tenant}-{part}", arrival=job.arrival % day)


def make_openb_month(traces: Path, part: float) -> dict[str, Any]:
    """Return the scenario of openb's trace. part: of the nodes and of the time."""
    pods, nodes = traces / OPENB_PODS, traces / OPENB_NODES
    shapes = openb.read_shapes(nodes, LeftOut(nodes), has_parts=False)
    tasks = list(openb.read_tasks(pods, LeftOut(pods), has_parts=False))
    tasks = tasks[: round(len(tasks) * part)]
    description = Description("openb", None, ["the class of service stands for the tenant, which openb does not name"])
    shapes = {shape: max(1, round(count * part)) for shape, count in shapes.items()}
    return {**compose_scenario(tasks, shapes, Assumptions(), description), "measureEvery": HOUR}


def make_million(_traces: Path, part: float) -> dict[str, Any]:
    """Return a scenario of a million tasks, which come one by one at random, on 1,000 servers. part: of both."""
    tenants, servers = 10, round(1_000 * part)
    tasks = round(MILLION * part / tenants / len(SIZES))
    mean_cores = sum(SIZES) / len(SIZES)
    rate = LOAD * servers * CORES / mean_cores / MEAN_SECONDS / tenants / len(SIZES)
    return {
        "name": "a million tasks",
        "cluster": [{"shape": "s", "count": servers, "capacity": {"cpu": CORES, "memory": f"{GIBIBYTES}Gi"}}],
        "tenants": [{"name": f"t{n}", "weight": 1 + n % 3} for n in range(tenants)],
        "workload": list(_list_million(tenants, tasks, rate)),
        "measureEvery": HOUR,
    }


def _list_million(tenants: int, tasks: int, rate: float) -> Iterator[dict[str, Any]]:
    for tenant in range(tenants):
        for size in SIZES:
            yield {
                "tenant": f"t{tenant}",
                "name": f"size-{size}",
                "tasks": tasks,
                "arrival": {"poisson": rate},
                "duration": {"exponential": MEAN_SECONDS},
                "pod": {"requests": {"cpu": size, "memory": f"{size * (2 + tenant % 3)}Gi"}},
            }


WORKLOADS: Mapping[str, Workload] = {
    each.name: each
    for each in (
        Workload("google day", make_google_day, most_seconds=300.0),
        Workload("crowded day", make_crowded_day),
        Workload("openb month", make_openb_month, most_seconds=120.0),
        Workload("million tasks", make_million, most_seconds=600.0, most_gib=2.0, needs_traces=False),
    )
}
