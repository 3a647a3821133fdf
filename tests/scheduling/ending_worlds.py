"""A cluster of nodes with one resource, whose tasks end when they are told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

from fairbind.model import (
    CycleReport,
    GroupTopology,
    PolicySettings,
    RunningTask,
    Snapshot,
    Task,
    TaskClass,
    TaskGroup,
    Tenant,
)
from fairbind.model.hierarchy import FLAT, Hierarchy
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.reservations.reservations import Reservations
from scheduling.reference import World
from scheduling.reference_reservations import check_reserved
from scheduling.tree_changes import sum_up
from scheduling.worlds import build_placement, build_servers, build_snapshot


@dataclass
class EndingWorld:
    """See the module. groups: by uid, the group of a waiting task."""

    sizes: dict[str, int]
    waiting: dict[tuple[str, int], list[Task]] = field(default_factory=dict)
    running: dict[str, RunningTask] = field(default_factory=dict)
    settings: PolicySettings = field(default_factory=PolicySettings)
    reservations: Reservations = field(default_factory=Reservations)
    closed: list[str] = field(default_factory=list)
    now: float = 0.0
    recalls: bool = False
    most_seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    hierarchy: Hierarchy = FLAT
    groups: dict[str, str] = field(default_factory=dict)
    topology: GroupTopology | None = None
    least_free: int = 0

    def __post_init__(self) -> None:
        self.numbers = count()
        self.state, self.unschedulable = CycleState(), UnschedulableCache()
        self.placement = build_placement(build_servers({name: (size,) for name, size in self.sizes.items()}))

    def submit(self, tenant: str, demand: int, tasks: int, group: str = "") -> None:
        queue = self.waiting.setdefault((tenant, demand), [])
        for _ in range(tasks):
            number = next(self.numbers)
            if group:
                self.groups[f"{number:05}"] = group
            queue.append(Task(f"{number:05}", f"{tenant}/{number:05}", 0, float(number)))

    def list_free(self) -> dict[str, int]:
        free = dict(self.sizes)
        for task in self.running.values():
            free[task.server] -= task.demand_r[0]
        return free

    def look(self) -> Snapshot:
        free = self.list_free()
        servers = build_servers(
            {name: (size,) for name, size in self.sizes.items()},
            free={name: (left,) for name, left in free.items()},
            unusable=self.closed,
        )
        held: Counter[str] = Counter()
        for task in self.running.values():
            held[task.tenant] += task.demand_r[0]
        names = sorted({tenant for tenant, _ in self.waiting} | set(held))
        placement = self.placement
        sizes = Counter(
            (tenant, self.groups[task.uid])
            for (tenant, _), tasks in self.waiting.items()
            for task in tasks
            if task.uid in self.groups
        )
        classes = [
            TaskClass(
                tenant,
                (demand,),
                (demand,),
                placement,
                tuple(some),
                most_seconds=self.most_seconds.get((tenant, demand), inf),
                group=self.make_group(group, sizes[tenant, group]) if group else None,
            )
            for (tenant, demand), tasks in self.waiting.items()
            for group in sorted({self.groups.get(task.uid, "") for task in tasks})
            if (some := [task for task in tasks if self.groups.get(task.uid, "") == group])
        ]
        tenants = [Tenant(name, allocated_r=(held[name],)) for name in names]
        snapshot = build_snapshot(servers, classes, tenants=tenants, resources=["cpu"])
        running = {
            name: tuple(sorted((each for each in self.running.values() if each.server == name), key=lambda t: t.uid))
            for name in self.sizes
        }
        leaves = {name: self.hierarchy.get_place(name) for name in names if self.hierarchy.leaves}
        return sum_up(replace(snapshot, running=running, hierarchy=replace(self.hierarchy, leaves=leaves)))

    def make_group(self, name: str, lacking: int) -> TaskGroup:
        least_free_r = (self.least_free,) if self.least_free else ()
        return TaskGroup(name, lacking, least_free_r=least_free_r, topology=self.topology)

    def decide(self, seconds: float = 1.0) -> CycleReport:
        self.now += seconds
        snapshot = self.look()
        report = run_cycle(
            snapshot,
            self.settings,
            self.now,
            reservations=self.reservations,
            state=self.state if self.recalls else None,
            unschedulable=self.unschedulable if self.recalls else None,
        )
        if not self.hierarchy.leaves:
            check_reserved(World(snapshot, self.settings.policy), report)
        demand_of = {task.uid: key for key, tasks in self.waiting.items() for task in tasks}
        for bind in report.bindings:
            key = demand_of[bind.task.uid]
            self.waiting[key].remove(bind.task)
            demand_r = (key[1],)
            self.running[bind.task.uid] = RunningTask(
                bind.task.uid,
                bind.tenant,
                bind.server,
                0,
                self.now,
                None,
                demand_r,
                demand_r,
                most_seconds=self.most_seconds.get(key, inf),
            )
        assert min(self.list_free().values()) >= 0, "no server is overcommitted"
        return report

    def end(self, uids: Sequence[str]) -> None:
        for uid in uids:
            del self.running[uid]

    def list_tasks(self, tenant: str, server: str | None = None) -> list[str]:
        tasks = sorted(self.running.values(), key=lambda task: task.uid)
        return [task.uid for task in tasks if task.tenant == tenant and server in (None, task.server)]

    def count_held(self, tenant: str) -> int:
        return sum(task.demand_r[0] for task in self.running.values() if task.tenant == tenant)

    def list_reserved(self) -> list[tuple[str, str, int]]:
        return [(each.tenant, each.server, each.count) for each in self.reservations.list_all()]
