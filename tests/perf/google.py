"""How does the cycle do on a cluster of Google's size? `python tests/perf/google.py [--json FILE]`; no API needed.

Servers are as in table 1 of the DRFH paper (Wang, Liang, Li, TPDS 2015): 12,583 of ten configurations, and other
numbers of them in the same proportions. 900 tenants of different weight, as many as that trace has users.

Two questions. `backlogs`: every tenant has tasks of the same 20 shapes, more than are placed; how many decisions a
second? `arrivals`: all is quiet and one pod arrives; what do its snapshot and its cycle cost, with 9,000 pods running?
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.facts import Constraints, NodeFacts, PodFacts
from fairbind.cluster.objects.requests import make_demand
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling import CycleState, compute_server_classes, run_cycle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perf.google_servers import GOOGLE_SERVERS, GOOGLE_SHAPES

GIB = 2**30
LARGEST = (64_000, 256 * GIB)
"""Milli-CPU and bytes of the largest server, which the paper's table counts as 1."""
RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
TENANTS, SHAPES, TASKS_EACH = 900, 20, 4
FEWEST_TASKS = 20
"""No server has room for fewer tasks on average, so that all of so many decisions are placements."""
RUNNING, ARRIVALS = 9_000, 40
ANYWHERE = Constraints()
POLICIES = ("best-fit-drfh", "ps-dsf")


@dataclass(frozen=True, slots=True)
class Backlog:
    """The best of a few cycles, by processor time."""

    policy: str
    servers: int
    server_classes: int
    decisions: int
    seconds: float
    decisions_per_second: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """The median over pods that arrived one by one, milliseconds of processor time."""

    policy: str
    servers: int
    tenants: int
    snapshot_ms: float
    cycle_ms: float
    total_ms: float


def draw_capacities(servers: int, draw: random.Random) -> list[tuple[int, int]]:
    """Return milli-CPU and bytes of each server: all of the table in a random order, again and again."""
    cpu, memory = LARGEST
    table = [(int(c * cpu), int(m * memory)) for count, c, m in GOOGLE_SHAPES for _ in range(count)]
    draw.shuffle(table)
    return [table[n % len(table)] for n in range(servers)]


def draw_demand(draw: random.Random) -> tuple[int, int, int, int]:
    """Draw a shape: small, middle or large, with more or less memory for a CPU."""
    cpu = draw.choice((250, 500, 1_000, 2_000, 4_000)) + draw.randrange(0, 200, 5)
    memory = cpu * draw.choice((1, 2, 4, 8)) * GIB // 1_000 + draw.randrange(0, GIB // 4, 2**20)
    return cpu, memory, draw.choice((0, GIB)), 1


def build_backlog(servers: int) -> Snapshot:
    """Make the empty cluster, and the tasks that wait."""
    draw = random.Random(1)
    rows = [(*capacity, 200 * GIB, 110) for capacity in draw_capacities(servers, draw)]
    capacity_kr = np.array(rows, dtype=np.int64)
    names = tuple(f"server-{n:06}" for n in range(servers))
    class_k, class_names = compute_server_classes(capacity_kr, [0] * servers, names, 0.02)
    usable_k = np.ones(servers, dtype=np.bool_)
    table = ServerTable(names, capacity_kr, capacity_kr.copy(), usable_k, class_k, class_names)
    shapes, everywhere = [draw_demand(draw) for _ in range(SHAPES)], Placement(usable_k)
    task_classes = [
        TaskClass(
            f"tenant-{tenant:03}",
            demand_r,
            demand_r,
            everywhere,
            tuple(
                Task(f"{tenant}-{n}-{t}", f"ns{tenant}/task-{n}-{t}", 0, float(t * SHAPES + n))
                for t in range(TASKS_EACH)
            ),
        )
        for tenant in range(TENANTS)
        for n, demand_r in enumerate(shapes)
    ]
    tenants = tuple(Tenant(f"tenant-{n:03}", Fraction(1 + n % 3)) for n in range(TENANTS))
    total_r = tuple(int(total) for total in capacity_kr.sum(axis=0))
    return Snapshot(RESOURCES, (True, True, False, False), total_r, table, tenants, tuple(task_classes))


def measure_backlog(snapshot: Snapshot, policy: str, repeats: int) -> Backlog:
    """Decide about as much of the backlog as certainly fits; keep the best time (others use the machine, too)."""
    servers = len(snapshot.servers.names)
    limit = min(TENANTS * SHAPES * TASKS_EACH, FEWEST_TASKS * servers)
    seconds = []
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        report = run_cycle(snapshot, PolicySettings(policy), 0.0, limit=limit)
        seconds.append(time.process_time() - begin)
    best, decisions = min(seconds), len(report.bindings)
    classes = len(snapshot.servers.class_names)
    return Backlog(policy, servers, classes, decisions, round(best, 4), round(decisions / best))


def build_cache(servers: int, policy: str) -> ClusterCache:
    """Make a cache of the cluster in which pods of all tenants run and none waits."""
    draw = random.Random(1)
    cache = ClusterCache("fairbind", lambda: None)
    cache.set_policy(PolicySettings(policy))
    for n, (cpu, memory) in enumerate(draw_capacities(servers, draw)):
        allocatable = (("cpu", cpu), ("memory", memory), ("pods", 110))
        cache.nodes.apply(NodeFacts(f"n{n:06}", "1", (), (), ready=True, unschedulable=False, allocatable=allocatable))
    cache.replace_tenants(
        parse_tenant({"metadata": {"name": f"t{n:03}"}, "spec": {"weight": 1 + n % 3, "namespaces": [f"ns{n:03}"]}})
        for n in range(TENANTS)
    )
    for n in range(count_running(servers)):
        cache.pods.apply(make_pod(n, f"n{draw.randrange(servers):06}"))
    cache.build_snapshot()
    return cache


def count_running(servers: int) -> int:
    """Return how many pods run already: few enough that a small cluster has room for those that arrive."""
    return min(RUNNING, 9 * servers)


def make_pod(number: int, node: str | None) -> PodFacts:
    """Return a small pod; tenants and shapes in turn. node: where it is bound, or None."""
    return PodFacts(
        uid=f"u{number}",
        namespace=f"ns{number % TENANTS:03}",
        name=f"p{number}",
        version=str(number),
        created=float(number),
        priority=0,
        scheduler="fairbind",
        node=node,
        terminating=False,
        finished=False,
        gated=False,
        demand=make_demand({"cpu": 100 + 10 * (number % SHAPES), "memory": GIB // 4, "pods": 1}),
        constraints=ANYWHERE,
        unsupported=None,
        unsupported_detail=None,
        repels=(),
        labels=(),
        scheduled_message=None,
    )


def measure_arrivals(servers: int, policy: str) -> Arrival:
    """Let pods arrive one by one, each decided before the next one comes."""
    cache, state, settings = build_cache(servers, policy), CycleState(), PolicySettings(policy)
    snapshots, cycles = [], []
    gc.collect()
    running = count_running(servers)
    for number in range(running, running + ARRIVALS):
        cache.pods.apply(make_pod(number, None))
        begin = time.process_time()
        snapshot = cache.build_snapshot()
        between = time.process_time()
        (bind,) = run_cycle(snapshot, settings, 0.0, state=state).bindings
        end = time.process_time()
        cache.assume(bind.task.uid, bind.server)
        snapshots.append((between - begin) * 1e3)
        cycles.append((end - between) * 1e3)
    total = [a + b for a, b in zip(snapshots, cycles, strict=True)]
    middle = [round(sorted(values)[len(values) // 2], 2) for values in (snapshots, cycles, total)]
    return Arrival(policy, servers, TENANTS, *middle)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; with --json also write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--servers", type=int, nargs="+", default=[1_000, GOOGLE_SERVERS, 100_000], help="of the backlogs"
    )
    parser.add_argument("--arrival-servers", type=int, nargs="+", default=[1_000, GOOGLE_SERVERS])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    backlogs, arrivals = [], []
    for servers in options.servers:
        snapshot = build_backlog(servers)
        for policy in options.policies:
            backlog = measure_backlog(snapshot, policy, options.repeats)
            backlogs.append(backlog)
            rate, cost = backlog.decisions_per_second, 1e6 / backlog.decisions_per_second
            print(f"{policy:14} {servers:7} servers: {rate:8,.0f} decisions/s, {cost:5.1f} us each", flush=True)
    for servers in options.arrival_servers:
        for policy in options.policies:
            arrival = measure_arrivals(servers, policy)
            arrivals.append(arrival)
            print(f"{policy:14} {servers:7} servers: {arrival.total_ms:5.2f} ms for one pod", flush=True)
    if options.json:
        figures = {"backlogs": list(map(asdict, backlogs)), "arrivals": list(map(asdict, arrivals))}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
