"""The overview: shares and counts that people read, made from the cache's state.

Shares are the ones that decide: they count a small default where a request is missing, and their totals are the
capacities of usable nodes and what is held on others. They count a pod from the decision about it on. One that another
scheduler places counts as running, and as allocated, once it has a node, and as pending before. What is shown as
allocated is the requests and the devices themselves, on the same nodes; a resource that no node offers is left out, for
its name is a pod author's free text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairbind.cluster.cache.tenant_overviews import NO_FAIR_SHARES, describe_tenants, to_people
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.usage import Usage
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Snapshot, Task, Wait
from fairbind.model.overview import (
    AT_LIMIT,
    INELIGIBLE,
    OTHER_CLASSES,
    PENDING_REASON_OF,
    QUEUED,
    ClusterOverview,
    ServerClassOverview,
    TenantOverview,
    compute_jain_index,
    compute_share_error,
    find_pending_reason,
    find_share_gap,
)
from fairbind.model.reservations import Reserved
from fairbind.model.servers import IndexArray, IntArray
from fairbind.scheduling.cycle.waits.reaches import Reaches

SHOWN_CLASSES = 32
"""Of so many server classes, the largest, capacity and allocation are shown each by itself."""


def compute_pending_reasons(
    queues: Iterable[TaskQueue],
    waits: Iterable[Wait],
    find_queue: Callable[[str], QueueKey | None],
    snapshot: Snapshot,
) -> dict[QueueKey, str]:
    """Return what the tasks of each queue count as.

    waits: as a cycle saw them; its tasks may have gone or moved since. A queue that they do not mention has not had its
    turn yet. find_queue: by a task's UID; None for one that does not wait any more. snapshot: of now.
    """
    reasons = {queue.key: _find_lasting_reason(queue.key) for queue in queues}
    for wait in waits:
        if wait.blocked is None:
            key = find_queue(wait.first.uid) or _find_queue_of_any(wait.task_class.tasks, find_queue)
            if key is not None and key.unsupported is None:
                reasons[key] = find_pending_reason(wait.rejections) if wait.at_limit is None else AT_LIMIT
    for key in _find_too_large(snapshot, find_queue):
        reasons[key] = INELIGIBLE
    return reasons


def _find_too_large(snapshot: Snapshot, find_queue: Callable[[str], QueueKey | None]) -> set[QueueKey]:
    """Return the queues whose tasks no server could hold when it is empty. A class may have tasks of several queues."""
    reaches = Reaches(snapshot.servers)
    too_large = [each for each in snapshot.task_classes if each.blocked is None and reaches.is_too_large(each)]
    keys = (find_queue(task.uid) for task_class in too_large for task in task_class.tasks)
    return {key for key in keys if key is not None}


def _find_lasting_reason(key: QueueKey) -> str:
    return QUEUED if key.unsupported is None else PENDING_REASON_OF[key.unsupported.kind]


def _find_queue_of_any(tasks: Iterable[Task], find_queue: Callable[[str], QueueKey | None]) -> QueueKey | None:
    """Return where the first of the tasks is that still wait."""
    keys = (find_queue(task.uid) for task in tasks)
    return next((key for key in keys if key is not None), None)


def build_overview(
    snapshot: Snapshot,
    usage: Usage,
    specs: Mapping[str, TenantSpec],
    queues: Iterable[TaskQueue],
    reasons: Mapping[QueueKey, str],
    fair_shares: tuple[Mapping[str, float], Mapping[str, float]] = NO_FAIR_SHARES,
    unclaimed_kr: IntArray | None = None,
    counted_kr: IntArray | None = None,
) -> ClusterOverview:
    """Return the overview of a snapshot and the state that it was made from.

    specs: the declared tenants. reasons: what the tasks of each queue count as.
    fair_shares: of leaves and of inner tenants, as of the last exact solve. unclaimed_kr: devices that no pod
    holds, shape (K, R), or None. counted_kr: what of each server is in the totals; None: what usable ones have.
    """
    described = describe_tenants(snapshot, usage, specs, queues, reasons, fair_shares)
    tenants = described.leaves
    allocated = {
        resource: sum(each.real.get(resource, 0) for each in usage.by_name.values())
        - sum(each.real.get(resource, 0) for each in usage.sum_unplaced().values())
        for resource in snapshot.resources
    }
    return ClusterOverview(
        capacity=to_people(dict(zip(snapshot.resources, snapshot.total_r, strict=True))),
        allocated=to_people(allocated),
        counting=frozenset(find_counting(snapshot)),
        server_classes=len(snapshot.servers.class_names),
        tenants=tenants,
        shown=described.shown,
        jain_index=compute_jain_index(
            tuple(each.weighted_share for each in described.shown if each.backlogged and each.parent is None)
        ),
        share_error=compute_share_error(tenants),
        classes=describe_classes(snapshot, unclaimed_kr, counted_kr),
    )


def find_scattered(waits: Iterable[Wait], resources: Sequence[str]) -> Mapping[str, float]:
    """Return what is free and too scattered for some group, by resource; of several groups the most."""
    most: dict[str, int] = {}
    for wait in waits:
        scattered_r = () if wait.group is None else wait.group.scattered_r
        if len(scattered_r) != len(resources):
            continue  # nothing is, or nodes offer other resources since
        for resource, amount in zip(resources, scattered_r, strict=True):
            if amount:
                most[resource] = max(amount, most.get(resource, 0))
    return to_people(most)


def complete_overview(
    overview: ClusterOverview, reserved: Mapping[str, Reserved], refused: Collection[str]
) -> ClusterOverview:
    """Return the overview with what only the scheduling loop knows.

    reserved: by leaf. refused: tenants whose bindings fail.
    """

    def complete(tenant: TenantOverview) -> TenantOverview:
        known = _add_reserved(tenant, reserved.get(tenant.name))
        gap = find_share_gap(known, is_refused=find_tenant_of_leaf(tenant.name) in refused)
        return known if gap is None else replace(known, share_gap=gap)

    leaves = {tenant.name: complete(tenant) for tenant in overview.tenants}
    before = {tenant.name: tenant for tenant in overview.tenants}
    below = _sum_reserved(overview, reserved)

    def complete_shown(tenant: TenantOverview) -> TenantOverview:
        if tenant is before.get(tenant.name):
            return leaves[tenant.name]
        return _add_reserved(tenant, below.get(tenant.name))

    shown = map(complete_shown, overview.shown)
    return replace(overview, tenants=tuple(leaves.values()), shown=tuple(shown))


def _add_reserved(tenant: TenantOverview, reserved: Reserved | None) -> TenantOverview:
    if reserved is None:
        return tenant
    return replace(tenant, reserved_nodes=len(reserved.servers), reserved=to_people(reserved.amounts))


def _sum_reserved(overview: ClusterOverview, reserved: Mapping[str, Reserved]) -> dict[str, Reserved]:
    """Return what is reserved for all leaves below each inner tenant."""
    parents = {tenant.parent for tenant in overview.shown}
    parent_of = {tenant.name: tenant.parent for tenant in overview.shown if tenant.name in parents}
    sums: dict[str, Reserved] = {}
    for leaf in overview.tenants if reserved else ():
        of_leaf = reserved.get(leaf.name)
        above = None if of_leaf is None else leaf.parent
        while of_leaf is not None and above is not None:
            sums.setdefault(above, Reserved()).add(of_leaf)
            above = parent_of[above]
    return sums


def describe_classes(
    snapshot: Snapshot, unclaimed_kr: IntArray | None = None, counted_kr: IntArray | None = None
) -> tuple[ServerClassOverview, ...]:
    """Return what the largest server classes have and what is held there; the others together are one.

    Which classes there are follows from who waits, so there may be as many as servers for a while.
    unclaimed_kr, counted_kr: see `build_overview`.
    """
    servers, class_count = snapshot.servers, len(snapshot.servers.class_names)
    servers_c = np.bincount(servers.class_k, minlength=class_count)
    largest = np.sort(np.argsort(-servers_c, kind="stable")[:SHOWN_CLASSES])  # names ascend, so they decide ties
    place_c = np.full(class_count, len(largest))
    place_c[largest] = np.arange(len(largest))
    place_k = place_c[servers.class_k]
    names = [servers.class_names[number] for number in largest.tolist()]
    if class_count > len(names):
        names.append(OTHER_CLASSES)
    if counted_kr is None:
        counted_kr = np.where(servers.usable_k[:, None], servers.capacity_kr, 0)
    capacity_cr = _sum_rows(counted_kr, place_k, len(names))
    held_kr = servers.capacity_kr - servers.free_kr
    if unclaimed_kr is not None:
        held_kr -= unclaimed_kr
    held_kr = np.where(servers.usable_k[:, None], held_kr, counted_kr)
    allocated_cr = _sum_rows(held_kr, place_k, len(names))
    counts = np.bincount(place_k, minlength=len(names)).tolist()
    described = []
    for name, count, capacity_r, allocated_r in zip(names, counts, capacity_cr, allocated_cr, strict=True):
        rows = list(zip(snapshot.resources, capacity_r, allocated_r, strict=True))
        capacity = to_people({resource: amount for resource, amount, held in rows if amount or held})
        allocated = to_people({resource: held for resource, amount, held in rows if amount or held})
        described.append(ServerClassOverview(name, count, capacity, allocated))
    return tuple(described)


def _sum_rows(amount_kr: IntArray, group_k: IndexArray, group_count: int) -> list[list[float]]:
    """Return the sums of the rows of each group, shape (group_count, R); as floats, which do not overflow."""
    sum_rg = [np.bincount(group_k, weights=amount_k, minlength=group_count) for amount_k in amount_kr.T]
    return [list(sum_r) for sum_r in zip(*(sum_g.tolist() for sum_g in sum_rg), strict=True)]


def find_counting(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the resources that count for shares now."""
    return tuple(r for r, counts in zip(snapshot.resources, snapshot.counts_r, strict=True) if counts)
