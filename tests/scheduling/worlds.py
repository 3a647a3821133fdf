"""Small worlds for tests, said in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from fractions import Fraction

import numpy as np

from fairbind.model import (
    NO_EXCLUSIVE_KEYS,
    CycleReport,
    ExclusiveKeys,
    Holding,
    Placement,
    PolicySettings,
    Rejection,
    Rejections,
    ServerTable,
    Snapshot,
    Task,
    TaskClass,
    Tenant,
)
from fairbind.scheduling import compute_server_classes, run_cycle
from scheduling.tree_changes import follow


def build_servers(
    capacities: Mapping[str, Sequence[int]],
    *,
    free: Mapping[str, Sequence[int]] | None = None,
    unusable: Sequence[str] = (),
    taken_keys: Mapping[str, Sequence[str]] | None = None,
    tolerance: float = 0.0,
) -> ServerTable:
    names = tuple(sorted(capacities))
    axes = len(next(iter(capacities.values()), ()))
    capacity_kr = np.array([capacities[name] for name in names], dtype=np.int64).reshape(len(names), axes)
    free_kr = np.array([(free or {}).get(name, capacities[name]) for name in names], dtype=np.int64)
    class_k, class_names = compute_server_classes(capacity_kr, [0] * len(names), names, tolerance)
    return ServerTable(
        names,
        capacity_kr,
        free_kr.reshape(len(names), axes),
        np.array([name not in unusable for name in names], dtype=np.bool_),
        class_k,
        class_names,
        {names.index(name): frozenset(keys) for name, keys in (taken_keys or {}).items()},
    )


def build_snapshot(
    servers: ServerTable,
    task_classes: Sequence[TaskClass],
    *,
    tenants: Sequence[Tenant] = (),
    resources: Sequence[str] = ("cpu", "memory"),
    counts_r: Sequence[bool] | None = None,
) -> Snapshot:
    """Tenants that are not given have weight 1."""
    known = {tenant.name: tenant for tenant in tenants}
    for task_class in task_classes:
        known.setdefault(task_class.tenant, Tenant(task_class.tenant))
    total_r = tuple(sum(column) for column in zip(*servers.capacity_kr[servers.usable_k].tolist(), strict=True))
    return Snapshot(
        resources=tuple(resources),
        counts_r=tuple(counts_r or [True] * len(resources)),
        total_r=total_r or (0,) * len(resources),
        servers=servers,
        tenants=tuple(known[name] for name in sorted(known)),
        task_classes=tuple(task_classes),
    )


def build_tasks(prefix: str, count: int, *, priority: int = 0, queue_time: float = 0.0) -> tuple[Task, ...]:
    return tuple(Task(f"{prefix}-{n:04}", f"{prefix}/{n:04}", priority, queue_time) for n in range(count))


def build_placement(
    servers: ServerTable,
    *,
    only: Sequence[str] | None = None,
    wishes: Mapping[str, int] | None = None,
    rejections: Rejections = (),
    exclusive_keys: ExclusiveKeys = NO_EXCLUSIVE_KEYS,
) -> Placement:
    eligible_k = np.array([only is None or name in only for name in servers.names], dtype=np.bool_)
    preference_k = None
    if wishes is not None:
        preference_k = np.array([wishes.get(name, 0) for name in servers.names], dtype=np.int64)
    return Placement(eligible_k & servers.usable_k, preference_k, rejections, exclusive_keys)


def build_class(
    tenant: str,
    demand_r: Sequence[int],
    placement: Placement,
    tasks: int | Sequence[Task] = 1,
    *,
    share_demand_r: Sequence[int] | None = None,
    blocked: Rejection | None = None,
) -> TaskClass:
    """Tasks given as a number are named after the tenant and the demand."""
    if isinstance(tasks, int):
        tasks = build_tasks("-".join([tenant, *map(str, demand_r)]), tasks)
    demand = tuple(demand_r)
    return TaskClass(tenant, demand, tuple(share_demand_r or demand), placement, tuple(tasks), blocked)


def decide(snapshot: Snapshot, policy: str = "best-fit-drfh", *, limit: int | None = None) -> CycleReport:
    return run_cycle(snapshot, PolicySettings(policy), 0.0, limit=limit)


def apply_report(snapshot: Snapshot, report: CycleReport) -> Snapshot:
    """The world after the report's decisions were executed."""
    servers = snapshot.servers
    free_kr, taken_keys = np.array(servers.free_kr), dict(servers.taken_keys)
    held = {tenant.name: list(tenant.allocated_r or [0] * len(snapshot.resources)) for tenant in snapshot.tenants}
    on_servers = {tenant.name: dict(tenant.allocated_by_server) for tenant in snapshot.tenants}
    holdings = {tenant.name: list(tenant.holdings) for tenant in snapshot.tenants}
    class_of = {task.uid: task_class for task_class in snapshot.task_classes for task in task_class.tasks}
    for bind in report.bindings:
        task_class, server = class_of[bind.task.uid], servers.names.index(bind.server)
        free_kr[server] -= np.array(task_class.demand_r, dtype=np.int64)
        taken_keys[server] = taken_keys.get(server, frozenset()) | task_class.placement.exclusive_keys.taken
        held[bind.tenant] = [a + b for a, b in zip(held[bind.tenant], task_class.share_demand_r, strict=True)]
        on_server = on_servers[bind.tenant]
        before = on_server.get(bind.server, (0,) * len(snapshot.resources))
        on_server[bind.server] = tuple(a + b for a, b in zip(before, task_class.share_demand_r, strict=True))
        holdings[bind.tenant].append(Holding(task_class.demand_r, task_class.share_demand_r, 1, task_class.placement))
    placed = {bind.task for bind in report.bindings}
    left = [replace(c, tasks=tuple(task for task in c.tasks if task not in placed)) for c in snapshot.task_classes]
    after = replace(
        snapshot,
        servers=replace(servers, free_kr=free_kr, taken_keys=taken_keys),
        tenants=tuple(
            replace(
                tenant,
                allocated_r=tuple(held[tenant.name]),
                allocated_by_server=on_servers[tenant.name],
                holdings=tuple(holdings[tenant.name]),
            )
            for tenant in snapshot.tenants
        ),
        task_classes=tuple(task_class for task_class in left if task_class.tasks),
    )
    return follow(after, [(class_of[bind.task.uid], servers.names.index(bind.server)) for bind in report.bindings])


def order_of(report: CycleReport) -> list[str]:
    """Whose task was placed, step by step."""
    return [bind.tenant for bind in report.bindings]


def places_of(report: CycleReport) -> list[str]:
    """Where, step by step."""
    return [bind.server for bind in report.bindings]


def count_by_tenant(report: CycleReport) -> dict[str, int]:
    return {name: order_of(report).count(name) for name, _ in report.weighted_shares}


def describe(report: CycleReport) -> str:
    """Everything in a report as text: equal text means equal byte for byte. Classes are told by their parts."""
    waits = [
        (
            wait.task_class.tenant,
            wait.task_class.demand_r,
            wait.task_class.share_demand_r,
            [task.uid for task in wait.task_class.tasks],
            astuple(wait.first),
            wait.waiting,
            wait.rejections,
            wait.blocked,
            wait.fairness and astuple(wait.fairness),
        )
        for wait in report.waits
    ]
    bindings = [astuple(bind) for bind in report.bindings]
    return repr((report.now, report.policy, bindings, waits, report.weighted_shares, report.complete))


def weigh(name: str, weight: str | int = 1, **resource_weights: str | int) -> Tenant:
    return Tenant(name, Fraction(weight), {key: Fraction(value) for key, value in resource_weights.items()})
