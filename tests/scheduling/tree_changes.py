"""A tree of tenants as plain loops see it, and what becomes of it when tasks come and go."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from fairbind.model import RunningTask, Snapshot, TaskClass
from fairbind.model.hierarchy import Hierarchy, Place


def is_below(hierarchy: Hierarchy, leaf: str, inner: str) -> bool:
    parent = hierarchy.get_place(leaf).parent
    while parent is not None and parent != inner:
        parent = hierarchy.inner[parent].place.parent
    return parent == inner


def list_path(hierarchy: Hierarchy, leaf: str) -> list[Place]:
    """The place of a leaf, and those of the tenants above it."""
    found = [hierarchy.get_place(leaf)]
    while found[-1].parent is not None:
        found.append(hierarchy.inner[found[-1].parent].place)
    return found


def sum_up(snapshot: Snapshot) -> Snapshot:
    """Let inner tenants hold what their leaves hold."""
    hierarchy, nothing = snapshot.hierarchy, (0,) * len(snapshot.resources)
    inner = {}
    for name, each in hierarchy.inner.items():
        held = [t.allocated_r or nothing for t in snapshot.tenants if is_below(hierarchy, t.name, name)]
        total_r = tuple(sum(amounts) for amounts in zip(nothing, *held, strict=True))
        inner[name] = replace(each, tenant=replace(each.tenant, allocated_r=total_r))
    return replace(snapshot, hierarchy=replace(hierarchy, inner=inner))


def follow(
    snapshot: Snapshot, placed: Iterable[tuple[TaskClass, int]], evicted: Iterable[RunningTask] = ()
) -> Snapshot:
    """Let the tree follow a snapshot into which was written what was placed and what went."""
    held: dict[Hashable, int] = dict(snapshot.held)
    names = snapshot.servers.names
    changes = [(c.tenant, c.demand_r, k, 1) for c, k in placed]
    changes += [(t.tenant, t.demand_r, names.index(t.server), -1) for t in evicted if t.server in names]
    for tenant, demand_r, k, sign in changes:
        for place in list_path(snapshot.hierarchy, tenant):
            for each in place.guarantees:
                if each.servers.domain_k[k] == 0 and each.resource in snapshot.resources:
                    held[each.subject] += sign * demand_r[snapshot.resources.index(each.resource)]
    return sum_up(replace(snapshot, held=held))
