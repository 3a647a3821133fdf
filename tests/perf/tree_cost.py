"""What does a tree of tenants cost a cycle? `make bench-trees`; no API, nothing to set up.

Written: a line of JSON for each policy, and docs/benchmarks/trees.md.

The same 900 tenants without a tree, and in one of 4 levels: departments, groups, teams, tenants. Compared are a cycle
in which one task is new and nothing else waits, and the filling of a backlog. Both kinds take turns, and the ratio of
the medians of their processor times is told. Wanted: at most 1.5.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fairbind.model import Domains, Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.model.hierarchy import FLAT, Guarantee, Hierarchy, InnerTenant, Place
from fairbind.scheduling import CycleState, UnschedulableCache, compute_server_classes, run_cycle

Json = dict[str, Any]

BENCHMARKS = Path(__file__).parents[2] / "docs" / "benchmarks"
RESULTS, PAGE = BENCHMARKS / "results" / "trees.jsonl", BENCHMARKS / "trees.md"
TEMPLATE = Path(__file__).with_name("trees.template")

RESOURCES = ("cpu", "memory", "pods")
GIB = 2**30
KINDS = ((64_000, 256 * GIB, 110), (32_000, 256 * GIB, 110), (96_000, 192 * GIB, 110))
DEMANDS = ((1_000, 2 * GIB, 1), (500, 4 * GIB, 1), (2_000, 2 * GIB, 1), (250, GIB, 1))


class Cost(NamedTuple):
    """Median seconds of both, and how many tasks were placed."""

    flat: float
    tree: float
    placed: int

    @property
    def ratio(self) -> float:
        """How much more the tree costs."""
        return self.tree / self.flat


def build_world(*, servers: int, tenants: int, tasks: int) -> Snapshot:
    """Return tenants with so many tasks each, of two kinds."""
    names = tuple(f"server-{n:05}" for n in range(servers))
    capacity_kr = np.array([KINDS[n % len(KINDS)] for n in range(servers)], dtype=np.int64)
    class_k, class_names = compute_server_classes(capacity_kr, [0] * servers, names, 0.02)
    usable_k = np.ones(servers, dtype=np.bool_)
    table = ServerTable(names, capacity_kr, capacity_kr.copy(), usable_k, class_k, class_names)
    everywhere = Placement(usable_k)
    classes = [
        build_class(f"tenant-{n:03}", everywhere, tasks // 2, n + kind, kind) for n in range(tenants) for kind in (0, 1)
    ]
    sharing = tuple(Tenant(f"tenant-{n:03}", Fraction(1 + n % 3), allocated_r=(0, 0, 0)) for n in range(tenants))
    total_r = tuple(int(total) for total in capacity_kr.sum(axis=0))
    waiting = tuple(each for each in classes if each.tasks)
    return Snapshot(RESOURCES, (True, True, False), total_r, table, sharing, waiting)


def build_class(tenant: str, placement: Placement, tasks: int, kind: int, number: int = 0) -> TaskClass:
    demand = DEMANDS[kind % len(DEMANDS)]
    waiting = tuple(Task(f"{tenant}-{number}-{n:05}", f"{tenant}/{number}-{n:05}", 0, float(n)) for n in range(tasks))
    return TaskClass(tenant, demand, demand, placement, waiting)


def build_tree(snapshot: Snapshot, *, promises: bool = False) -> Hierarchy:
    """Return 6 departments of 5 groups of 6 teams; the tenants are below these. promises: each team has a guarantee."""
    servers = Domains(np.zeros(len(snapshot.servers.names), dtype=np.int32), 1)
    inner: dict[str, InnerTenant] = {}

    def add(name: str, parent: str | None, amount: int) -> None:
        guarantees = (Guarantee(name, "cpu", amount, servers),) if promises and amount else ()
        inner[name] = InnerTenant(Tenant(name, allocated_r=(0, 0, 0)), Place(parent, guarantees=guarantees))

    teams = []
    for department in range(6):
        add(f"d{department}", None, 0)
        for group in range(5):
            add(f"d{department}-g{group}", f"d{department}", 0)
            for team in range(6):
                teams.append(f"d{department}-g{group}-t{team}")
                add(teams[-1], f"d{department}-g{group}", snapshot.total_r[0] // 400)
    leaves = {tenant.name: Place(teams[n % len(teams)]) for n, tenant in enumerate(snapshot.tenants)}
    return Hierarchy(leaves, inner)


class Changes:
    """A cluster in which one task after another comes."""

    def __init__(self, world: Snapshot, policy: str, hierarchy: Hierarchy) -> None:
        self.world = world
        self.settings = PolicySettings(policy)
        self.hierarchy = hierarchy
        self.state, self.memory = CycleState(), UnschedulableCache()
        self.everywhere = Placement(world.servers.usable_k)
        self.number = 0

    def measure(self) -> float:
        """Return the seconds of a cycle with one new task. Its tenant is other than before, and so are those above."""
        self.number += 1
        place = self.number * 7 % len(self.world.tenants)
        tenants = list(self.world.tenants)
        tenants[place] = replace(tenants[place], allocated_r=(self.number, 0, 0))
        inner, parent = dict(self.hierarchy.inner), self.hierarchy.get_place(tenants[place].name).parent
        while parent is not None:
            known = inner[parent]
            inner[parent] = replace(known, tenant=replace(known.tenant, allocated_r=(self.number, 0, 0)))
            parent = known.place.parent
        task_class = build_class(tenants[place].name, self.everywhere, 1, self.number)
        hierarchy = self.hierarchy if self.hierarchy is FLAT else Hierarchy(self.hierarchy.leaves, inner)
        snapshot = replace(self.world, tenants=tuple(tenants), task_classes=(task_class,), hierarchy=hierarchy)
        begin = time.process_time()
        report = run_cycle(snapshot, self.settings, 0.0, unschedulable=self.memory, state=self.state)
        seconds = time.process_time() - begin
        assert len(report.bindings) == 1
        self.world = replace(self.world, tenants=tuple(tenants))
        return seconds


def measure_changes(policy: str, *, servers: int, tenants: int, repeats: int, promises: bool = False) -> Cost:
    """Compare cycles with one new task."""
    world = build_world(servers=servers, tenants=tenants, tasks=0)
    both = [Changes(world, policy, hierarchy) for hierarchy in (FLAT, build_tree(world, promises=promises))]
    flat, tree = take_turns([each.measure for each in both], repeats)
    return Cost(flat, tree, 1)


def measure_backlog(
    policy: str, *, servers: int, tenants: int, tasks: int, repeats: int, promises: bool = False
) -> Cost:
    """Compare the filling of a backlog."""
    world = build_world(servers=servers, tenants=tenants, tasks=tasks)
    placed: list[int] = []

    def fill(hierarchy: Hierarchy) -> float:
        snapshot = replace(world, hierarchy=hierarchy)
        begin = time.process_time()
        placed.append(len(run_cycle(snapshot, PolicySettings(policy), 0.0).plans))
        return time.process_time() - begin

    tree = build_tree(world, promises=promises)
    flat, other = take_turns([lambda: fill(FLAT), lambda: fill(tree)], repeats)
    return Cost(flat, other, placed[0])


def take_turns(contenders: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    """Return the median seconds of each; each has the processor in turn."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for _ in range(repeats):
        for contender, taken in zip(contenders, seconds, strict=True):
            gc.collect()
            taken.append(contender())
    return [median(taken) for taken in seconds]


def measure(policy: str, *, promises: bool, arguments: argparse.Namespace) -> Json:
    """Return a line of the results. Seconds are of processor time."""
    world = {"servers": arguments.servers, "tenants": 900, "promises": promises}
    change = measure_changes(policy, repeats=300, **world)
    backlog = measure_backlog(policy, tasks=arguments.tasks, repeats=arguments.repeats, **world)
    return {
        "policy": policy,
        "guarantees": promises,
        "date": time.strftime("%Y-%m-%d"),
        "servers": arguments.servers,
        "repeats": arguments.repeats,
        "change": change._asdict(),
        "backlog": backlog._asdict(),
    }


def render_page(lines: Sequence[Json]) -> str:
    """Return the page that says what was measured."""
    rows = []
    for line in lines:
        change, backlog = (Cost(**line[part]) for part in ("change", "backlog"))
        cells = [
            f"`{line['policy']}`" + (", guarantees" if line["guarantees"] else ""),
            f"{1e3 * change.flat:.2f} ms",
            f"{change.ratio:.2f}",
            f"{backlog.flat:.1f} s",
            f"{backlog.ratio:.2f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    first = lines[0]
    return TEMPLATE.read_text(encoding="utf-8").format(
        rows="\n".join(rows), date=first["date"], servers=first["servers"], placed=first["backlog"]["placed"]
    )


def main() -> None:
    """Measure, write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policies", nargs="+", default=["best-fit-drfh", "ps-dsf", "tsf"])
    parser.add_argument("--servers", type=int, default=5_000)
    parser.add_argument("--tasks", type=int, default=80, help="of each of the 900 tenants")
    parser.add_argument("--repeats", type=int, default=3, help="of the backlog")
    parser.add_argument("--show", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    lines = []
    for promises in (False, True):
        for policy in arguments.policies:
            lines.append(measure(policy, promises=promises, arguments=arguments))
            print(json.dumps(lines[-1]), flush=True)
    if not arguments.show:
        RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        PAGE.write_text(render_page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
