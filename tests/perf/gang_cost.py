"""What do groups cost a cycle? `make bench-gangs`; no API, nothing to set up.

Written: a line of JSON for each policy, and docs/benchmarks/gangs.md.

Three questions: how long the decision about one group of 1,000 takes; how a backlog in groups of 100 compares with the
same backlog without groups; and how a cycle in which one server gains a little compares beside 500 groups that wait
and beside 500 classes. What is compared takes turns, and the ratio of the medians of processor times is told.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, TaskGroup, Tenant
from fairbind.scheduling import CycleState, UnschedulableCache, compute_server_classes, run_cycle
from perf.report import compute_foreign
from perf.tree_cost import take_turns

Json = dict[str, Any]

BENCHMARKS = Path(__file__).parents[2] / "docs" / "benchmarks"
RESULTS, PAGE = BENCHMARKS / "results" / "gangs.jsonl", BENCHMARKS / "gangs.md"
BACKLOGS = BENCHMARKS / "results" / "gangs-backlog.json"
BESIDE_VOLCANO = BENCHMARKS / "results" / "gangs-volcano.json"
"""Both recorded by `make bench`, through an API server."""
TEMPLATE = Path(__file__).with_name("gangs.template")

RESOURCES = ("cpu", "memory", "gpu")
GIB = 2**30
SERVER = (64_000, 512 * GIB, 8)
DEMAND = (4_000, 32 * GIB, 1)
TENANTS = 40
GROUPS_WAITING = 500


class Cost(NamedTuple):
    """Median seconds of both."""

    plain: float
    groups: float

    @property
    def ratio(self) -> float:
        """How much more groups cost."""
        return self.groups / self.plain


def build_table(servers: int, *, free_every: int = 1) -> ServerTable:
    """Return equal servers. free_every: on one in so many a device is free; 1: all of each."""
    names = tuple(f"server-{n:05}" for n in range(servers))
    capacity_kr = np.array([SERVER] * servers, dtype=np.int64)
    free_kr = capacity_kr.copy()
    if free_every > 1:
        free_kr[:, 2] = [n % free_every == 0 for n in range(servers)]
    class_k, class_names = compute_server_classes(capacity_kr, [0] * servers, names, 0.02)
    return ServerTable(names, capacity_kr, free_kr, np.ones(servers, dtype=np.bool_), class_k, class_names)


def build_class(tenant: int, number: int, tasks: int, placement: Placement, *, extra: int = 0) -> TaskClass:
    """Return tasks of one device each. extra: so much more CPU, so that the classes differ."""
    demand = DEMAND[0] + extra, *DEMAND[1:]
    waiting = tuple(
        Task(f"{number:04}-{n:05}", f"t{tenant}/{number:04}-{n:05}", 0, float(number)) for n in range(tasks)
    )
    return TaskClass(f"t{tenant:02}", demand, demand, placement, waiting)


def join(task_class: TaskClass) -> TaskClass:
    """Return the class as a group all of whose tasks are its minimum."""
    return replace(task_class, group=TaskGroup(task_class.tasks[0].name, len(task_class.tasks)))


def build_snapshot(table: ServerTable, task_classes: Sequence[TaskClass]) -> Snapshot:
    tenants = tuple(Tenant(f"t{n:02}", allocated_r=(0, 0, 0)) for n in range(TENANTS))
    total_r = tuple(int(total) for total in table.capacity_kr.sum(axis=0))
    return Snapshot(RESOURCES, (True, True, True), total_r, table, tenants, tuple(task_classes))


def measure_one(policy: str, *, servers: int, tasks: int, repeats: int) -> float:
    """Return the median seconds of a cycle that places one group."""
    table = build_table(servers)
    snapshot = build_snapshot(table, [join(build_class(0, 0, tasks, Placement(table.usable_k)))])
    return take_turns([lambda: decide(snapshot, policy, tasks)], repeats)[0]


def measure_backlog(policy: str, *, servers: int, groups: int, repeats: int) -> Cost:
    """Compare a backlog in groups of 100 with one without groups."""
    table = build_table(servers)
    placement = Placement(table.usable_k)
    plain = [build_class(n % TENANTS, n, 100, placement) for n in range(groups)]
    both = build_snapshot(table, plain), build_snapshot(table, list(map(join, plain)))
    return Cost(
        *take_turns(
            [lambda: decide(both[0], policy, 100 * groups), lambda: decide(both[1], policy, 100 * groups)], repeats
        )
    )


def decide(snapshot: Snapshot, policy: str, placed: int) -> float:
    begin = time.process_time()
    report = run_cycle(snapshot, PolicySettings(policy), 0.0)
    seconds = time.process_time() - begin
    assert len(report.bindings) == placed
    return seconds


class Changes:
    """A full cluster in which one device after another comes free, and nothing that waits fits."""

    def __init__(self, policy: str, *, servers: int, waiting: int, is_groups: bool) -> None:
        table = build_table(servers, free_every=100)
        placement = Placement(table.usable_k)
        classes = [build_class(n % TENANTS, n, 200, placement, extra=n) for n in range(waiting)]
        if is_groups:
            classes = list(map(join, classes))
        else:  # of two devices each, which no server has
            classes = [replace(each, demand_r=(*each.demand_r[:2], 2)) for each in classes]
        self.snapshot = build_snapshot(table, classes)
        self.policy, self.number = policy, 0
        self.state, self.memory = CycleState(), UnschedulableCache()
        self.measure()

    def measure(self) -> float:
        """Return the seconds of a cycle in which one server has a device more."""
        self.number += 1
        table = self.snapshot.servers
        free_kr = table.free_kr.copy()
        free_kr[self.number * 50 % len(table.names) + 1, 2] = 1
        self.snapshot = replace(self.snapshot, servers=replace(table, free_kr=free_kr))
        begin = time.process_time()
        report = run_cycle(
            self.snapshot,
            PolicySettings(self.policy),
            0.0,
            unschedulable=self.memory,
            state=self.state,
            explains=self.number == 1,
        )
        seconds = time.process_time() - begin
        assert not report.bindings
        return seconds


def measure_changes(policy: str, *, servers: int, waiting: int, repeats: int) -> Cost:
    """Compare cycles in which one server gains a little."""
    both = [Changes(policy, servers=servers, waiting=waiting, is_groups=each) for each in (False, True)]
    return Cost(*take_turns([each.measure for each in both], repeats))


def measure(policy: str, arguments: argparse.Namespace) -> Json:
    """Return a line of the results. Seconds are of processor time."""
    servers, repeats = arguments.servers, arguments.repeats
    return {
        "policy": policy,
        "date": time.strftime("%Y-%m-%d"),
        "servers": servers,
        "repeats": repeats,
        "one": measure_one(policy, servers=servers, tasks=1_000, repeats=repeats),
        "backlog": measure_backlog(policy, servers=servers, groups=100, repeats=repeats)._asdict(),
        "change": measure_changes(policy, servers=servers, waiting=GROUPS_WAITING, repeats=20 * repeats)._asdict(),
    }


def render_page(lines: Sequence[Json]) -> str:
    """Return the page that says what was measured."""
    rows = []
    for line in lines:
        backlog, change = (Cost(**line[part]) for part in ("backlog", "change"))
        cells = [
            f"`{line['policy']}`",
            f"{1e3 * line['one']:.0f} ms",
            f"{backlog.plain:.2f} s",
            f"{backlog.ratio:.2f}",
            f"{1e3 * change.plain:.2f} ms",
            f"{change.ratio:.2f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    first = lines[0]
    return TEMPLATE.read_text(encoding="utf-8").format(
        rows="\n".join(rows),
        date=first["date"],
        servers=first["servers"],
        waiting=GROUPS_WAITING,
        beside=read_beside_volcano(),
        **read_backlogs(),
    )


def read_backlogs() -> Json:
    """Return what the page says of backlogs through an API server: pods a second, in the order of the rounds."""
    recorded = json.loads(BACKLOGS.read_text(encoding="utf-8"))
    (nodes,) = recorded["plan"]["nodes"]
    plain, grouped = (
        [each["rate"] for each in recorded["backlogs"] if each["contender"] == name]
        for name in recorded["plan"]["contenders"]
    )
    return {
        "nodes": nodes,
        "pods": recorded["plan"]["pods"],
        "day": recorded["date"].partition("T")[0],
        "plain": plain,
        "grouped": grouped,
        "ratio": sum(grouped) / sum(plain),
    }


def read_beside_volcano() -> Json:
    """Return what the page says of fairbind and Volcano in one run, of as many rounds as it has."""
    recorded = json.loads(BESIDE_VOLCANO.read_text(encoding="utf-8"))
    (nodes,) = recorded["plan"]["nodes"]
    plain, grouped, volcano = (
        [each for each in recorded["backlogs"] if each["contender"] == name] for name in recorded["plan"]["contenders"]
    )
    phases = {"fairbind, without groups": plain, "fairbind, in groups": grouped, "Volcano, in groups": volcano}
    return {
        "nodes": nodes,
        "pods": recorded["plan"]["pods"],
        "version": recorded["versions"]["Volcano"],
        "day": recorded["date"].partition("T")[0],
        "rounds": {1: "once", 2: "twice"}[len(volcano)],
        "rows": "\n".join(render_rounds(name, rounds) for name, rounds in phases.items()),
        "ratio": fmean(each["rate"] for each in grouped) / fmean(each["rate"] for each in volcano),
        "cores": recorded["machine"]["cores"],
        "foreign": [
            fmean(compute_foreign(recorded, each["cpu"]) for each in rounds) for rounds in (plain, grouped, volcano)
        ],
    }


def render_rounds(name: str, rounds: Sequence[Json]) -> str:
    """Return a row of backlogs through an API server, with the figures of each round."""
    columns = zip(*map(list_cells, rounds), strict=True)
    return f"| {' | '.join([name, *map(', '.join, columns)])} |"


def list_cells(phase: Json) -> list[str]:
    """Return what a row says of one round."""
    (own,) = {"fairbind", "volcano"} & set(phase["cpu"]["by_process"])
    seconds = phase["cpu"]["by_process"][own]
    return [f"{phase['bound']:,}", f"{phase['rate']:.0f}", f"{seconds:.0f} s", f"{phase['memory_mib']:,.0f} MiB"]


def main() -> None:
    """Measure, write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policies", nargs="+", default=["best-fit-drfh", "ps-dsf", "tsf"])
    parser.add_argument("--servers", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    lines = []
    for policy in arguments.policies:
        lines.append(measure(policy, arguments))
        print(json.dumps(lines[-1]), flush=True)
    if not arguments.show:
        RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        PAGE.write_text(render_page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
