"""What a snapshot must be before a cycle may decide about it: cheap questions, so that a fault names its place."""

from __future__ import annotations

from fairbind.model import MAX_AMOUNT, InvalidProblemError, Snapshot, TaskClass


def check_snapshot(snapshot: Snapshot) -> None:
    """Raise InvalidProblemError, naming field and value, when the parts of the snapshot do not belong together."""
    axes, count = len(snapshot.resources), len(snapshot.servers.names)
    if len(snapshot.counts_r) != axes or len(snapshot.total_r) != axes:
        raise InvalidProblemError(
            f"counts_r and total_r must have {axes} entries, one for each of {snapshot.resources}"
        )
    if snapshot.servers.free_kr.shape != (count, axes) or snapshot.servers.capacity_kr.shape != (count, axes):
        raise InvalidProblemError(f"free_kr and capacity_kr must have the shape {(count, axes)}")
    if max(snapshot.servers.free_kr.max(initial=0), snapshot.servers.capacity_kr.max(initial=0)) > MAX_AMOUNT:
        raise InvalidProblemError(f"free_kr and capacity_kr must not exceed {MAX_AMOUNT}")
    known: set[str] = set()
    for tenant in snapshot.tenants:
        if tenant.name in known:
            raise InvalidProblemError(f"tenants: {tenant.name!r} is there twice")
        known.add(tenant.name)
        if tenant.allocated_r and len(tenant.allocated_r) != axes:
            raise InvalidProblemError(f"tenant {tenant.name!r}: allocated_r must have {axes} entries")
        if tenant.weight <= 0 or any(weight <= 0 for weight in tenant.resource_weights.values()):
            raise InvalidProblemError(f"tenant {tenant.name!r}: weights must be above 0")
    for task_class in snapshot.task_classes:
        if task_class.tenant not in known:
            raise InvalidProblemError(f"task_classes: {task_class.tenant!r} is not one of the tenants")
        check_task_class(task_class, axes, count)


def check_task_class(task_class: TaskClass, axes: int, count: int) -> None:
    """Raise InvalidProblemError when a class does not go with so many resources and servers."""
    where = f"a task class of {task_class.tenant!r}"
    if not task_class.tasks:
        raise InvalidProblemError(f"{where} has no tasks")
    for field, demand_r in (("demand_r", task_class.demand_r), ("share_demand_r", task_class.share_demand_r)):
        if len(demand_r) != axes or min(demand_r, default=0) < 0 or max(demand_r, default=0) > MAX_AMOUNT:
            raise InvalidProblemError(f"{where}: {field} is {demand_r}; it needs {axes} entries from 0 to {MAX_AMOUNT}")
    placement = task_class.placement
    if placement.eligible_k.shape != (count,):
        raise InvalidProblemError(f"{where}: eligible_k must have the shape {(count,)}")
    if placement.preference_k is not None and placement.preference_k.shape != (count,):
        raise InvalidProblemError(f"{where}: preference_k must have the shape {(count,)}")
