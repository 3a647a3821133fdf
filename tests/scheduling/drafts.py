"""What a draft must be the same as: the snapshot with everything that was done written into it by plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from fairbind.model import (
    AffinityRule,
    DomainCounter,
    DomainRules,
    Holding,
    Placement,
    RunningTask,
    Snapshot,
    Task,
    TaskClass,
    Tenant,
)
from fairbind.scheduling import POLICIES
from fairbind.scheduling.cycle.draft import Draft
from scheduling.reference import count_in
from scheduling.strategies import KEYS, snapshots
from scheduling.tree_changes import follow

Vector = tuple[int, ...]


def subtract(amount_r: Vector, less_r: Vector) -> Vector:
    return tuple(a - b for a, b in zip(amount_r, less_r, strict=True))


def add(amount_r: Vector, more_r: Vector) -> Vector:
    return tuple(a + b for a, b in zip(amount_r, more_r, strict=True))


@dataclass
class Story:
    """What was done since the snapshot, and not taken back; placed and restricted go with a server's index."""

    placed: list[tuple[TaskClass, int]] = field(default_factory=list)
    evicted: list[RunningTask] = field(default_factory=list)
    restricted: list[tuple[Placement, int]] = field(default_factory=list)

    def copy(self) -> Story:
        return Story(list(self.placed), list(self.evicted), list(self.restricted))

    def start_anew(self, snapshot: Snapshot, policy: str) -> Draft:
        """Return a draft of the world in which all this is so from the start."""
        draft = Draft(self.write_into(snapshot, policy), POLICIES[policy])
        for placement, server in self.restricted:
            draft.restrict(placement, [server])
        return draft

    def write_into(self, snapshot: Snapshot, policy: str) -> Snapshot:
        servers = snapshot.servers
        free_kr = np.array(servers.free_kr)
        for task_class, k in self.placed:
            free_kr[k] -= np.array(task_class.demand_r, dtype=np.int64)
        for running in self.evicted:
            if running.server in servers.names:
                free_kr[servers.names.index(running.server)] += np.array(running.demand_r, dtype=np.int64)
        gone = {running.uid for running in self.evicted}
        left = {name: tuple(t for t in tasks if t.uid not in gone) for name, tasks in snapshot.running.items()}
        taken_keys = {k: self.find_keys(snapshot, left, k) for k in range(len(servers.names))}
        counts = [sum(c.tasks is task_class.tasks for c, _ in self.placed) for task_class in snapshot.task_classes]
        waiting = [sort_tasks(c, policy)[n:] for c, n in zip(snapshot.task_classes, counts, strict=True)]
        waiting_classes = [
            replace(c, tasks=tasks) for c, tasks in zip(snapshot.task_classes, waiting, strict=True) if tasks
        ]
        after = replace(
            snapshot,
            servers=replace(servers, free_kr=free_kr, taken_keys=taken_keys),
            tenants=tuple(self.rewrite(tenant, snapshot) for tenant in snapshot.tenants),
            task_classes=tuple(count_placed(waiting_classes, self.placed)),
            running=left,
        )
        return follow(after, self.placed, self.evicted)

    def find_keys(self, snapshot: Snapshot, left: dict[str, tuple[RunningTask, ...]], k: int) -> frozenset[str]:
        servers = snapshot.servers
        before = [task.keys for task in snapshot.running.get(servers.names[k], ())]
        # Keys that no running task explains are nobody's to give back.
        keys = servers.taken_keys.get(k, frozenset()).difference(*before) | servers.fixed_keys.get(k, frozenset())
        placed = [c.placement.exclusive_keys.taken for c, server in self.placed if server == k]
        return keys.union(*(task.keys for task in left.get(servers.names[k], ())), *placed)

    def rewrite(self, tenant: Tenant, snapshot: Snapshot) -> Tenant:
        nothing = (0,) * len(snapshot.resources)
        allocated_r = tenant.allocated_r or nothing
        holdings, on_server = list(tenant.holdings), dict(tenant.allocated_by_server)
        for task_class, k in self.placed:
            if task_class.tenant == tenant.name:
                allocated_r = add(allocated_r, task_class.share_demand_r)
                holdings.append(Holding(task_class.demand_r, task_class.share_demand_r, 1))
                name = snapshot.servers.names[k]
                on_server[name] = add(on_server.get(name, nothing), task_class.share_demand_r)
        for running in self.evicted:
            if running.tenant == tenant.name:
                allocated_r = subtract(allocated_r, running.share_demand_r)
                if running.server in tenant.allocated_by_server:
                    on_server[running.server] = subtract(on_server[running.server], running.share_demand_r)
                for n, holding in enumerate(holdings[: len(tenant.holdings)]):
                    if holding.share_demand_r == running.share_demand_r and holding.count > 0:
                        holdings[n] = replace(holding, count=holding.count - 1)
                        break
        return replace(tenant, allocated_r=allocated_r, holdings=tuple(holdings), allocated_by_server=on_server)


def count_placed(task_classes: list[TaskClass], placed: list[tuple[TaskClass, int]]) -> Iterator[TaskClass]:
    """Yield the classes with what was placed in their counters; what they shared before is one object again."""
    counters: dict[DomainCounter, DomainCounter] = {}
    known: dict[DomainRules, DomainRules] = {}

    def count(counter: DomainCounter) -> DomainCounter:
        if counter not in counters:
            count_d = counter.count_d.copy()
            for task_class, k in placed:
                domain = counter.domains.domain_k[k]
                if domain >= 0:
                    count_d[domain] += count_in(counter, task_class)
            counters[counter] = replace(counter, count_d=count_d)
        return counters[counter]

    for task_class in task_classes:
        rules = task_class.rules
        if rules is not None and rules not in known:
            known[rules] = DomainRules(
                tuple(
                    replace(rule, counters=tuple(map(count, rule.counters)))
                    if isinstance(rule, AffinityRule)
                    else replace(rule, counter=count(rule.counter))
                    for rule in rules.rules
                )
            )
        yield task_class if rules is None else replace(task_class, rules=known[rules])


def sort_tasks(task_class: TaskClass, policy: str) -> tuple[Task, ...]:
    if policy == "fifo":
        return tuple(sorted(task_class.tasks, key=lambda task: (-task.priority, task.queue_time, task.name, task.uid)))
    return task_class.tasks


@st.composite
def busy_snapshots(draw: st.DrawFn) -> Snapshot:
    """Worlds in which tasks run: some are told by holding or by server and some are not, and some servers are gone."""
    snapshot = draw(snapshots())
    servers, axes = snapshot.servers, len(snapshot.resources)
    free_kr, taken_keys = np.array(servers.free_kr), dict(servers.taken_keys)
    tenants = {tenant.name: tenant for tenant in snapshot.tenants}
    running: dict[str, tuple[RunningTask, ...]] = {}
    for n in range(draw(st.integers(0, 5))):
        tenant = tenants[draw(st.sampled_from(sorted(tenants)))]
        server = draw(st.sampled_from([*servers.names, *servers.names, "gone"]))
        demand_r, share_r = draw(st.sampled_from([(c.demand_r, c.share_demand_r) for c in snapshot.task_classes]))
        keys = draw(st.frozensets(st.sampled_from(KEYS)))
        task = RunningTask(f"r{n}", tenant.name, server, 0, float(n), None, demand_r, share_r, keys)
        running[server] = (*running.get(server, ()), task)
        if server in servers.names:
            k = servers.names.index(server)
            free_kr[k] -= np.array(demand_r, dtype=np.int64)
            taken_keys[k] = taken_keys.get(k, frozenset()) | keys
        tenants[tenant.name] = hold(tenant, task, axes, is_told=draw(st.booleans()), has_place=draw(st.booleans()))
    fixed = {k: keys for k, keys in taken_keys.items() if draw(st.booleans())}
    table = replace(servers, free_kr=free_kr, taken_keys=taken_keys, fixed_keys=fixed)
    sharing = tuple(tenants[name] for name in sorted(tenants))
    return replace(snapshot, servers=table, tenants=sharing, running=running)


def hold(tenant: Tenant, task: RunningTask, axes: int, *, is_told: bool, has_place: bool) -> Tenant:
    nothing = (0,) * axes
    holdings, on_server = tenant.holdings, dict(tenant.allocated_by_server)
    if is_told:
        holdings = (*holdings, Holding(task.demand_r, task.share_demand_r, 1))
    if has_place or task.server in on_server:
        on_server[task.server] = add(on_server.get(task.server, nothing), task.share_demand_r)
    allocated_r = add(tenant.allocated_r or nothing, task.share_demand_r)
    return replace(tenant, allocated_r=allocated_r, holdings=holdings, allocated_by_server=on_server)
