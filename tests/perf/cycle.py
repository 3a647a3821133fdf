"""How fast is the pure cycle? `python tests/perf/cycle.py [--json FILE]`; no API, no network, nothing to set up.

A cluster of mixed servers, 45 tenants with weights and 20 task classes each, and more tasks than fit. Two kinds of
demand: 20 shapes that all tenants share (as with templates), and 900 shapes of which no two are equal. Wanted: at
5,000 servers 20,000 decisions a second, and a decision that costs at most twice what it costs at 100 servers.

Two more figures: `batch` is a cycle that ends after 192 decisions, as the operator's do; `full` is a cycle on the full
cluster, where everything waits and nothing fits: what each small change of a busy cluster costs.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from fairbind.model import CycleReport, Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling import POLICIES, compute_server_classes, run_cycle

RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods", "example.com/gpu")
COUNTS = (True, True, False, False, True)
GIB = 2**30
# milli-CPU, bytes, bytes, pods, devices
SERVER_KINDS = (
    (32_000, 128 * GIB, 200 * GIB, 110, 0),
    (64_000, 256 * GIB, 200 * GIB, 110, 0),
    (16_000, 32 * GIB, 100 * GIB, 110, 0),
    (32_000, 512 * GIB, 400 * GIB, 110, 0),
    (48_000, 192 * GIB, 400 * GIB, 110, 8),
    (8_000, 16 * GIB, 50 * GIB, 60, 0),
)
TENANTS, CLASSES_EACH = 45, 20
BATCH = 192


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement, by processor time.

    batch_ms: a cycle that ends after BATCH decisions, as the operator's do, from the empty cluster. full_cycle_ms: a
    cycle on the cluster after the filling.
    """

    policy: str
    shapes: str
    servers: int
    server_classes: int
    decisions: int
    seconds: float
    decisions_per_second: float
    batch_ms: float
    full_cycle_ms: float


def build_snapshot(*, servers: int, distinct: bool, seed: int = 1) -> Snapshot:
    """Make a cluster and more tasks than it can hold. Every third class may use only some servers."""
    draw = random.Random(seed)
    names = tuple(f"server-{n:05}" for n in range(servers))
    kind_k = [draw.randrange(len(SERVER_KINDS)) for _ in names]
    capacity_kr = np.array([SERVER_KINDS[kind] for kind in kind_k], dtype=np.int64)
    capacity_kr[:, 1] -= np.array([draw.randrange(GIB // 8) for _ in names])  # real machines differ a little
    class_k, class_names = compute_server_classes(capacity_kr, kind_k, names, 0.02)
    usable_k = np.ones(servers, dtype=np.bool_)
    table = ServerTable(names, capacity_kr, capacity_kr.copy(), usable_k, class_k, class_names)
    kinds = np.array(kind_k)
    placements = [Placement(usable_k)] * 2 + [Placement(kinds != kind) for kind in range(len(SERVER_KINDS))]
    waiting = servers * 30
    shapes = [build_demand(draw) for _ in range(CLASSES_EACH)]
    task_classes = []
    for tenant in range(TENANTS):
        for n in range(CLASSES_EACH):
            demand = build_demand(draw) if distinct else shapes[n]
            placement = placements[n % 2] if n % 3 or demand[4] else placements[2 + n % 6]
            count = 1 + waiting // (TENANTS * CLASSES_EACH)
            tasks = tuple(
                Task(f"{tenant}-{n}-{t}", f"ns{tenant}/task-{n}-{t}", 0, float(t * CLASSES_EACH + n))
                for t in range(count)
            )
            task_classes.append(TaskClass(f"tenant-{tenant:02}", demand, demand, placement, tasks))
    tenants = tuple(Tenant(f"tenant-{n:02}", Fraction(1 + n % 3)) for n in range(TENANTS))
    total_r = tuple(int(total) for total in capacity_kr.sum(axis=0))
    return Snapshot(RESOURCES, COUNTS, total_r, table, tenants, tuple(task_classes))


def build_demand(draw: random.Random) -> tuple[int, ...]:
    """Draw a demand: small, middle or large, with more or less memory for a CPU, now and then with a device."""
    cpu = draw.choice((250, 500, 1_000, 2_000, 4_000)) + draw.randrange(0, 200, 5)
    memory = cpu * draw.choice((1, 2, 4, 8)) * GIB // 1_000 + draw.randrange(0, GIB // 4, 2**20)
    return cpu, memory, draw.choice((0, GIB)), 1, int(draw.random() < 0.05)


def measure(policy: str, *, servers: int, distinct: bool, repeats: int) -> Figure:
    """Fill the cluster a few times and keep the best time (others use the machine, too)."""
    snapshot = build_snapshot(servers=servers, distinct=distinct)
    settings = PolicySettings(policy)
    seconds = []
    for _ in range(repeats):
        taken, report = measure_once(snapshot, settings)
        seconds.append(taken)
    batch = measure_once(snapshot, settings, limit=BATCH)[0]
    full = apply_bindings(snapshot, [(bind.task.uid, bind.server) for bind in report.bindings])
    full_cycle, after = measure_once(full, settings)
    assert not after.bindings
    best = min(seconds)
    return Figure(
        policy,
        "900 distinct" if distinct else "20 shared",
        servers,
        len(snapshot.servers.class_names),
        len(report.bindings),
        round(best, 4),
        round(len(report.bindings) / best),
        round(batch * 1e3, 1),
        round(full_cycle * 1e3, 1),
    )


def measure_once(
    snapshot: Snapshot, settings: PolicySettings, *, limit: int | None = None
) -> tuple[float, CycleReport]:
    """Return the seconds of processor time of one cycle, and its report."""
    gc.collect()
    begin = time.process_time()
    report = run_cycle(snapshot, settings, 0.0, limit=limit)
    return time.process_time() - begin, report


def apply_bindings(snapshot: Snapshot, placed: Sequence[tuple[str, str]]) -> Snapshot:
    """Return the snapshot after these placements."""
    server_of = dict(placed)
    index_of = {name: k for k, name in enumerate(snapshot.servers.names)}
    free_kr = np.array(snapshot.servers.free_kr)
    held = {tenant.name: [0] * len(RESOURCES) for tenant in snapshot.tenants}
    task_classes = []
    for task_class in snapshot.task_classes:
        left = tuple(task for task in task_class.tasks if task.uid not in server_of)
        for task in task_class.tasks:
            if task.uid in server_of:
                free_kr[index_of[server_of[task.uid]]] -= np.array(task_class.demand_r)
                held[task_class.tenant] = [
                    a + b for a, b in zip(held[task_class.tenant], task_class.demand_r, strict=True)
                ]
        if left:
            task_classes.append(replace(task_class, tasks=left))
    tenants = tuple(replace(tenant, allocated_r=tuple(held[tenant.name])) for tenant in snapshot.tenants)
    servers = replace(snapshot.servers, free_kr=free_kr)
    return replace(snapshot, servers=servers, tenants=tenants, task_classes=tuple(task_classes))


def main() -> None:
    """Measure and print a table; with --json also write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--servers", type=int, nargs="+", default=[100, 1_000, 5_000])
    parser.add_argument("--policies", nargs="+", choices=sorted(POLICIES), default=list(POLICIES))
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    figures = []
    print(f"{'policy':16} {'shapes':13} {'servers':>7} {'decisions':>9} {'per s':>8} {'batch':>9} {'full':>9}")
    for policy in arguments.policies:
        for distinct in (False, True):
            for servers in arguments.servers:
                figure = measure(policy, servers=servers, distinct=distinct, repeats=arguments.repeats)
                figures.append(figure)
                print(
                    f"{figure.policy:16} {figure.shapes:13} {figure.servers:7} {figure.decisions:9}"
                    f" {figure.decisions_per_second:8.0f} {figure.batch_ms:6.1f} ms {figure.full_cycle_ms:6.1f} ms",
                    flush=True,
                )
    if arguments.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
        report = {**machine, "figures": [asdict(figure) for figure in figures]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
