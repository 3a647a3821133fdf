"""What a snapshot must be before a cycle may decide about it: cheap questions, so that a fault names its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from typing import NamedTuple

import numpy as np

from fairbind.model import MAX_AMOUNT, InvalidProblemError, ServerPreference, Snapshot, Targets, TaskClass, Tenant
from fairbind.model.hierarchy import FLAT, Hierarchy, Place


class CheckedTenants(NamedTuple):
    """What is known of a snapshot's tenants before they are looked at.

    names: all of them, where the last snapshot with just these resources had the same; None: not known. changed: those
    that are other objects than in it.
    """

    names: AbstractSet[str] | None
    changed: Sequence[Tenant]


def check_snapshot(
    snapshot: Snapshot,
    fresh: Sequence[TaskClass] | None = None,
    checked_tenants: CheckedTenants | None = None,
    checked_targets: Targets | None = None,
    checked_hierarchy: Hierarchy = FLAT,
) -> None:
    """Raise InvalidProblemError, naming field and value, when the parts of the snapshot do not belong together.

    fresh: the task classes that did not go with just so many servers and resources before; None: all.
    checked_tenants: what is known of the tenants; None: nothing. checked_targets, checked_hierarchy: those that were
    checked before.
    """
    axes, count = len(snapshot.resources), len(snapshot.servers.names)
    if len(snapshot.counts_r) != axes or len(snapshot.total_r) != axes:
        raise InvalidProblemError(
            f"counts_r and total_r must have {axes} entries, one for each of {snapshot.resources}"
        )
    if snapshot.fits_r is not None and len(snapshot.fits_r) != axes:
        raise InvalidProblemError(f"fits_r must have {axes} entries, one for each of {snapshot.resources}")
    if snapshot.servers.free_kr.shape != (count, axes) or snapshot.servers.capacity_kr.shape != (count, axes):
        raise InvalidProblemError(f"free_kr and capacity_kr must have the shape {(count, axes)}")
    if any(np.count_nonzero(each > MAX_AMOUNT) for each in (snapshot.servers.free_kr, snapshot.servers.capacity_kr)):
        raise InvalidProblemError(f"free_kr and capacity_kr must not exceed {MAX_AMOUNT}")
    tenants = checked_tenants or CheckedTenants(None, snapshot.tenants)
    known = check_tenants(snapshot.tenants, axes, tenants)
    fresh = snapshot.task_classes if fresh is None else fresh
    for task_class in fresh if tenants.names is not None else snapshot.task_classes:
        if task_class.tenant not in known:
            raise InvalidProblemError(f"task_classes: {task_class.tenant!r} is not one of the tenants")
    for task_class in fresh:
        check_task_class(task_class, axes, count)
    if snapshot.targets is not None and snapshot.targets is not checked_targets:
        check_targets(snapshot.targets)
    if snapshot.hierarchy is not checked_hierarchy or tenants.names is None:
        check_hierarchy(snapshot.hierarchy, known, axes, count, checked_hierarchy)


def check_hierarchy(
    hierarchy: Hierarchy, tenants: AbstractSet[str], axes: int, count: int, checked: Hierarchy = FLAT
) -> None:
    """Raise InvalidProblemError when a tree has an unknown leaf or parent, or a circle, or does not go with the rest.

    tenants: their names. axes, count: so many resources and servers. checked: a tree that was checked before; tenants
    and places that are the same objects in it are not looked at again.
    """
    for name in hierarchy.leaves.keys() - tenants:
        raise InvalidProblemError(f"hierarchy: leaf {name!r} is not one of the tenants")
    is_same_shape = True
    for name, inner in hierarchy.inner.items():
        before = checked.inner.get(name)
        if before is None or before.tenant is not inner.tenant:
            if inner.tenant.name != name:
                raise InvalidProblemError(f"hierarchy: inner tenant {name!r} is named {inner.tenant.name!r}")
            check_tenant(inner.tenant, axes)
        if before is None or before.place is not inner.place:
            is_same_shape = False
            check_place(f"inner tenant {name!r}", inner.place, hierarchy, count)
    is_same_shape = is_same_shape and len(hierarchy.inner) == len(checked.inner)
    known = checked.leaves if is_same_shape else {}
    if hierarchy.leaves is not known:
        for name, place in hierarchy.leaves.items():
            if known.get(name) is not place:
                check_place(f"leaf {name!r}", place, hierarchy, count)
    if not is_same_shape:
        check_depth(hierarchy)


def check_place(where: str, place: Place, hierarchy: Hierarchy, count: int) -> None:
    """Raise InvalidProblemError when a place has an unknown parent or guarantees that mean nothing."""
    if place.parent is not None and place.parent not in hierarchy.inner:
        raise InvalidProblemError(f"hierarchy: {where}: parent {place.parent!r} is not one of the inner tenants")
    for guarantee in place.guarantees:
        if guarantee.amount <= 0:
            raise InvalidProblemError(f"hierarchy: {where}: a guarantee is {guarantee.amount}; it must be above 0")
        if guarantee.servers.domain_k.shape != (count,):
            raise InvalidProblemError(f"hierarchy: {where}: a guarantee's servers must have the shape {(count,)}")


def check_depth(hierarchy: Hierarchy) -> None:
    """Raise InvalidProblemError when inner tenants are below themselves. Their parents must be known."""
    rooted: set[str | None] = {None}
    for name in hierarchy.inner:
        path: dict[str, None] = {}
        parent: str | None = name
        while parent not in rooted:
            if parent is None or parent in path:
                raise InvalidProblemError(f"hierarchy: inner tenant {parent!r} is below itself")
            path[parent] = None
            parent = hierarchy.inner[parent].place.parent
        rooted.update(path)


def check_tenants(tenants: Sequence[Tenant], axes: int, checked: CheckedTenants) -> AbstractSet[str]:
    """Return the tenants' names; raise InvalidProblemError when one is there twice or its vectors do not fit."""
    known = checked.names if checked.names is not None else _check_names(tenants)
    for tenant in checked.changed:
        check_tenant(tenant, axes)
    return known


def _check_names(tenants: Sequence[Tenant]) -> AbstractSet[str]:
    known = {tenant.name for tenant in tenants}
    if len(known) < len(tenants):
        ((name, _),) = Counter(tenant.name for tenant in tenants).most_common(1)
        raise InvalidProblemError(f"tenants: {name!r} is there twice")
    return known


def check_tenant(tenant: Tenant, axes: int) -> None:
    """Raise InvalidProblemError when a tenant does not go with so many resources."""
    where = f"tenant {tenant.name!r}"
    if tenant.allocated_r and len(tenant.allocated_r) != axes:
        raise InvalidProblemError(f"{where}: allocated_r must have {axes} entries")
    if tenant.weight <= 0 or any(weight <= 0 for weight in tenant.resource_weights.values()):
        raise InvalidProblemError(f"{where}: weights must be above 0")
    for holding in tenant.holdings:
        if len(holding.demand_r) != axes or len(holding.share_demand_r) != axes:
            raise InvalidProblemError(f"{where}: demands of holdings must have {axes} entries")
        if holding.count < 0:
            raise InvalidProblemError(f"{where}: a holding has the count {holding.count}; it must be 0 or more")


def check_targets(targets: Targets) -> None:
    """Raise InvalidProblemError when targets contradict themselves."""
    width = len(targets.class_names)
    for shares, count in ((targets.shares, len(targets.resources)), (targets.shares_by_class, width)):
        for name, row in shares.items():
            if len(row) != count or not all(isfinite(share) and share >= 0 for share in row):
                raise InvalidProblemError(f"targets: {name!r} has {row}; it needs {count} shares of 0 or more")
    for server, index in targets.class_of.items():
        if not 0 <= index < width:
            raise InvalidProblemError(f"targets: server {server!r} is in class {index} of {width}")


def check_task_class(task_class: TaskClass, axes: int, count: int) -> None:
    """Raise InvalidProblemError when a class does not go with so many resources and servers."""
    where = f"a task class of {task_class.tenant!r}"
    if not task_class.tasks:
        raise InvalidProblemError(f"{where} has no tasks")
    for field, demand_r in (("demand_r", task_class.demand_r), ("share_demand_r", task_class.share_demand_r)):
        if len(demand_r) != axes or min(demand_r, default=0) < 0 or max(demand_r, default=0) > MAX_AMOUNT:
            raise InvalidProblemError(f"{where}: {field} is {demand_r}; it needs {axes} entries from 0 to {MAX_AMOUNT}")
    placement, pin = task_class.placement, task_class.pin
    if placement.eligible_k.shape != (count,):
        raise InvalidProblemError(f"{where}: eligible_k must have the shape {(count,)}")
    if placement.preference_k is not None and placement.preference_k.shape != (count,):
        raise InvalidProblemError(f"{where}: preference_k must have the shape {(count,)}")
    for preference in () if task_class.preferences is None else task_class.preferences.preferences:
        if isinstance(preference, ServerPreference) and preference.amount_k.shape != (count,):
            raise InvalidProblemError(f"{where}: amount_k of a wish must have the shape {(count,)}")
    server = None if pin is None else pin.server
    if pin is not None and server is not None and not (0 <= server < count and placement.eligible_k[server]):
        raise InvalidProblemError(f"{where}: it is pinned to {pin.name!r}, which is no eligible server")
