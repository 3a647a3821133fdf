"""The one place where the recording touches what may be renamed: building what a cycle reads, and running it.

Everything else of the recording knows only these functions, and the names of types that stand in `__all__`. Whoever
renames a type, a field or a parameter follows here (and in `render`, which reads what a cycle says), and the recorded
decisions must stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fairbind.model import (
    MAX_AMOUNT,
    CycleReport,
    ExclusiveKeys,
    Holding,
    Placement,
    PolicySettings,
    Rejection,
    RejectionKind,
    ServerTable,
    Snapshot,
    Targets,
    Task,
    TaskClass,
    Tenant,
    Wait,
    plan_each,
)
from fairbind.scheduling import POLICIES, CycleState, UnschedulableCache, compute_server_classes, run_cycle

__all__ = [
    "MAX_AMOUNT",
    "CycleReport",
    "Decider",
    "Holding",
    "Placement",
    "ServerTable",
    "Snapshot",
    "Targets",
    "Task",
    "TaskClass",
    "Tenant",
    "build_holding",
    "build_placement",
    "build_servers",
    "build_snapshot",
    "build_targets",
    "build_task",
    "build_task_class",
    "build_tenant",
    "classify_servers",
    "find_bindings",
    "find_policies",
    "has_classes",
    "move_first_binding",
]

Amounts = tuple[int, ...]

REJECTIONS = {
    "node(s) didn't match Pod's node affinity/selector": Rejection(RejectionKind.SELECTOR),
    "node(s) had untolerated taint {gpu: true}": Rejection(RejectionKind.TAINT, "gpu: true"),
    "node(s) didn't satisfy existing pods anti-affinity rules": Rejection(RejectionKind.ANTI_AFFINITY),
    "node(s) were unschedulable": Rejection(RejectionKind.CORDONED),
    "required pod affinity": Rejection(RejectionKind.NOT_SUPPORTED, "required pod affinity"),
    "unreadable fields": Rejection(RejectionKind.UNREADABLE),
}
"""By the words of the day of the recording."""


def find_policies() -> list[str]:
    return list(POLICIES)


def build_task(uid: str, name: str, priority: int, queue_time: float) -> Task:
    return Task(uid=uid, name=name, priority=priority, queue_time=queue_time)


def build_placement(
    eligible: Sequence[bool],
    preference: Sequence[int] | None,
    rejections: Mapping[str, int],
    taken: frozenset[str],
    conflicting: frozenset[str],
) -> Placement:
    """rejections: how many servers, by the reason's words."""
    return Placement(
        eligible_k=np.array(eligible, dtype=np.bool_),
        preference_k=None if preference is None else np.array(preference, dtype=np.int64),
        rejections=tuple(sorted((REJECTIONS[words], count) for words, count in rejections.items())),
        exclusive_keys=ExclusiveKeys(taken, conflicting),
    )


def build_task_class(
    tenant: str,
    demand: Amounts,
    share_demand: Amounts,
    placement: Placement,
    tasks: Sequence[Task],
    blocked: str | None,
) -> TaskClass:
    return TaskClass(
        tenant=tenant,
        demand_r=demand,
        share_demand_r=share_demand,
        placement=placement,
        tasks=tuple(tasks),
        blocked=None if blocked is None else REJECTIONS[blocked],
    )


def build_holding(demand: Amounts, share_demand: Amounts, count: int, placement: Placement | None) -> Holding:
    return Holding(demand_r=demand, share_demand_r=share_demand, count=count, placement=placement)


def build_tenant(
    name: str,
    weight: Fraction,
    resource_weights: Mapping[str, Fraction],
    allocated: Amounts,
    holdings: Sequence[Holding],
    by_server: Mapping[str, Amounts],
    since: float,
) -> Tenant:
    return Tenant(
        name=name,
        weight=weight,
        resource_weights=resource_weights,
        allocated_r=allocated,
        holdings=tuple(holdings),
        allocated_by_server=by_server,
        since=since,
    )


def classify_servers(
    capacity: Sequence[Sequence[int]], signatures: Sequence[int], names: Sequence[str], tolerance: float
) -> tuple[list[int], tuple[str, ...]]:
    """The class of each server, and the classes' names."""
    class_k, class_names = compute_server_classes(np.array(capacity, dtype=np.int64), signatures, names, tolerance)
    return class_k.tolist(), class_names


def build_servers(
    names: Sequence[str],
    capacity: Sequence[Sequence[int]],
    free: Sequence[Sequence[int]],
    usable: Sequence[bool],
    classes: Sequence[int],
    class_names: Sequence[str],
    taken_keys: Mapping[int, frozenset[str]],
) -> ServerTable:
    return ServerTable(
        names=tuple(names),
        capacity_kr=np.array(capacity, dtype=np.int64),
        free_kr=np.array(free, dtype=np.int64),
        usable_k=np.array(usable, dtype=np.bool_),
        class_k=np.array(classes, dtype=np.int32),
        class_names=tuple(class_names),
        taken_keys=taken_keys,
    )


def build_targets(
    mechanism: str,
    resources: Sequence[str],
    shares: Mapping[str, tuple[float, ...]],
    class_names: Sequence[str],
    class_of: Mapping[str, int],
    shares_by_class: Mapping[str, tuple[float, ...]],
) -> Targets:
    return Targets(
        mechanism=mechanism,
        resources=tuple(resources),
        shares=shares,
        class_names=tuple(class_names),
        class_of=class_of,
        shares_by_class=shares_by_class,
    )


def has_classes(targets: Targets) -> bool:
    return bool(targets.class_names)


def build_snapshot(
    resources: Sequence[str],
    counts: Sequence[bool],
    total: Sequence[int],
    servers: ServerTable,
    tenants: Sequence[Tenant],
    task_classes: Sequence[TaskClass],
    targets: Targets | None,
) -> Snapshot:
    return Snapshot(
        resources=tuple(resources),
        counts_r=tuple(counts),
        total_r=tuple(total),
        servers=servers,
        tenants=tuple(tenants),
        task_classes=tuple(task_classes),
        targets=targets,
    )


class Decider:
    """Runs cycles, with a memory of its own or without one.

    recalled: how many waits of all cycles were not explained anew but taken from the cycle before.
    """

    def __init__(self, *, has_memory: bool) -> None:
        self._unschedulable = UnschedulableCache() if has_memory else None
        self._state = CycleState() if has_memory else None
        self._waits: tuple[Wait, ...] = ()
        self.recalled = 0

    def decide(self, snapshot: Snapshot, policy: str, seed: int, now: float, limit: int | None) -> CycleReport:
        settings = PolicySettings(policy=policy, seed=seed)
        report = run_cycle(snapshot, settings, now, limit=limit, unschedulable=self._unschedulable, state=self._state)
        before = {id(wait) for wait in self._waits}
        self.recalled += sum(id(wait) in before for wait in report.waits)
        self._waits = report.waits
        return report

    def forget(self) -> None:
        """Have the next cycle look at everything."""
        if self._unschedulable is not None:
            self._unschedulable.forget()


def find_bindings(report: CycleReport) -> list[tuple[str, str]]:
    """Which task goes to which server, by uid and name."""
    return [(bind.task.uid, bind.server) for bind in report.bindings]


def move_first_binding(report: CycleReport) -> CycleReport:
    """The same decisions, but the first task goes elsewhere."""
    first, *others = report.bindings
    return replace(report, plans=plan_each((replace(first, server=f"{first.server}-not"), *others)))
