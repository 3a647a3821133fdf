"""The overview: shares and counts that people read, made from the cache's state.

Shares are the ones that decide: they count a small default where a request is missing, and their totals are the
capacities of usable nodes and what is held on others. They count a pod from the decision about it on. One that another
scheduler places counts as running, and as allocated, once it has a node, and as pending before. What is shown as
allocated is the requests and the devices themselves, on the same nodes; a resource that no node offers is left out, for
its name is a pod author's free text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.objects.facts import CPU
from fairbind.cluster.objects.quantity import MILLI
from fairbind.cluster.state.node_state import add_amounts
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.usage import TenantUsage, Unplaced
from fairbind.model import Snapshot, Task, Tenant, Wait, compute_dominant_share, compute_weighted_share
from fairbind.model.overview import (
    GATED,
    INELIGIBLE,
    OTHER_CLASSES,
    PENDING_REASON_OF,
    PLACING,
    QUEUED,
    ClusterOverview,
    ServerClassOverview,
    TenantOverview,
    compute_jain_index,
    compute_share_error,
    find_pending_reason,
    find_share_gap,
)
from fairbind.model.servers import IndexArray, IntArray
from fairbind.scheduling import compute_virtual_dominant_shares
from fairbind.scheduling.cycle.waits.reaches import Reaches

SHOWN_CLASSES = 32
"""Of so many server classes, the largest, capacity and allocation are shown each by itself."""
MOST_CLASSES = 8
"""Virtual dominant shares are shown on at most so many classes a tenant: those that hold most of its pods."""


def to_people_units(resource: str, amount: float) -> float:
    """Return base units as cores, bytes or counts.

    >>> to_people_units("cpu", 1500), to_people_units("memory", 1024)
    (1.5, 1024.0)
    """
    return amount / MILLI if resource == CPU else float(amount)


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
                reasons[key] = find_pending_reason(wait.rejections)
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
    usage: Mapping[str, TenantUsage],
    unplaced: Mapping[str, Unplaced],
    queues: Iterable[TaskQueue],
    reasons: Mapping[QueueKey, str],
    fair_shares: Mapping[str, float] | None = None,
    unclaimed_kr: IntArray | None = None,
    counted_kr: IntArray | None = None,
) -> ClusterOverview:
    """Return the overview of a snapshot and the state that it was made from.

    unplaced: by tenant, what usage has of pods that are on no node. reasons: what the tasks of each queue count as.
    fair_shares: by tenant, as of the last exact solve; None when there is none. unclaimed_kr: devices that no pod
    holds, shape (K, R), or None. counted_kr: what of each server is in the totals; None: what usable ones have.
    """
    pending: dict[str, Counter[str]] = {name: Counter() for name in usage}
    oldest: dict[str, float] = {}
    for queue in queues:
        reason = reasons[queue.key]
        pending[queue.key.tenant][reason] += len(queue.tasks)
        if queue.is_placeable and reason != INELIGIBLE:
            oldest[queue.key.tenant] = min(queue.oldest, oldest.get(queue.key.tenant, inf))
    virtual = _compute_virtual_shares(snapshot, usage)
    tenants = []
    for tenant in snapshot.tenants:
        tenant_usage, its_unplaced = usage[tenant.name], unplaced.get(tenant.name, Unplaced())
        pending[tenant.name][PLACING] += its_unplaced.pods
        pending[tenant.name][QUEUED] += tenant_usage.postponed
        pending[tenant.name][GATED] += tenant_usage.gated
        tenants.append(
            _describe_tenant(
                tenant,
                tenant_usage,
                its_unplaced,
                snapshot,
                pending[tenant.name],
                virtual[tenant.name],
                oldest.get(tenant.name),
            )
        )
    if fair_shares is not None:
        tenants = [replace(tenant, fair_share=fair_shares.get(tenant.name)) for tenant in tenants]
    allocated = {
        resource: sum(each.real.get(resource, 0) for each in usage.values())
        - sum(each.real.get(resource, 0) for each in unplaced.values())
        for resource in snapshot.resources
    }
    return ClusterOverview(
        capacity=_to_people(dict(zip(snapshot.resources, snapshot.total_r, strict=True))),
        allocated=_to_people(allocated),
        counting=frozenset(find_counting(snapshot)),
        server_classes=len(snapshot.servers.class_names),
        tenants=tuple(tenants),
        jain_index=compute_jain_index(tuple(t.weighted_share for t in tenants if t.backlogged)),
        share_error=compute_share_error(tenants),
        classes=describe_classes(snapshot, unclaimed_kr, counted_kr),
    )


def complete_overview(
    overview: ClusterOverview, reserved: Mapping[str, tuple[int, Mapping[str, int]]], refused: Collection[str]
) -> ClusterOverview:
    """Return the overview with what only the scheduling loop knows.

    reserved: by tenant, on how many nodes something is reserved for it, and what. refused: tenants whose bindings fail.
    """
    tenants = []
    for tenant in overview.tenants:
        nodes, amounts = reserved.get(tenant.name, (0, {}))
        known = replace(tenant, reserved_nodes=nodes, reserved=_to_people(amounts)) if nodes else tenant
        gap = find_share_gap(known, is_refused=tenant.name in refused)
        tenants.append(known if gap is None else replace(known, share_gap=gap))
    return replace(overview, tenants=tuple(tenants))


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
        capacity = _to_people({resource: amount for resource, amount, held in rows if amount or held})
        allocated = _to_people({resource: held for resource, amount, held in rows if amount or held})
        described.append(ServerClassOverview(name, count, capacity, allocated))
    return tuple(described)


def _sum_rows(amount_kr: IntArray, group_k: IndexArray, group_count: int) -> list[list[float]]:
    """Return the sums of the rows of each group, shape (group_count, R); as floats, which do not overflow."""
    sum_rg = [np.bincount(group_k, weights=amount_k, minlength=group_count) for amount_k in amount_kr.T]
    return [list(sum_r) for sum_r in zip(*(sum_g.tolist() for sum_g in sum_rg), strict=True)]


def find_counting(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the resources that count for shares now."""
    return tuple(r for r, counts in zip(snapshot.resources, snapshot.counts_r, strict=True) if counts)


def _to_people(amounts: Mapping[str, float]) -> dict[str, float]:
    return {resource: to_people_units(resource, amount) for resource, amount in amounts.items()}


def _describe_tenant(
    tenant: Tenant,
    tenant_usage: TenantUsage,
    unplaced: Unplaced,
    snapshot: Snapshot,
    pending: Mapping[str, int],
    virtual: Mapping[str, float],
    oldest_pending: float | None,
) -> TenantOverview:
    share, dominant = compute_dominant_share(tenant.allocated_r, snapshot.total_r, snapshot.counts_r)
    allocated = dict(tenant_usage.real)
    add_amounts(allocated, unplaced.real.items(), -1)
    return TenantOverview(
        name=tenant.name,
        weight=float(tenant.weight),
        dominant_share=min(share, 1.0),
        dominant_resource=None if dominant is None else snapshot.resources[dominant],
        weighted_share=compute_weighted_share(tenant.allocated_r, _compute_denominators(tenant, snapshot)),
        allocated=_to_people({r: allocated[r] for r in snapshot.resources if r in allocated}),
        running=tenant_usage.running - unplaced.pods,
        pending={reason: count for reason, count in pending.items() if count},
        virtual_dominant_shares=virtual,
        backlogged=oldest_pending is not None,
        oldest_pending=oldest_pending,
    )


def _compute_denominators(tenant: Tenant, snapshot: Snapshot) -> list[Fraction | None]:
    """Return C_r times the tenant's weights; None where a resource does not count."""
    return [
        total * tenant.weight * tenant.resource_weights.get(resource, 1) if counts and total > 0 else None
        for resource, total, counts in zip(snapshot.resources, snapshot.total_r, snapshot.counts_r, strict=True)
    ]


def _compute_virtual_shares(snapshot: Snapshot, usage: Mapping[str, TenantUsage]) -> dict[str, dict[str, float]]:
    """Return the virtual dominant shares, without weights, on the classes where each tenant holds most."""
    class_of = dict(zip(snapshot.servers.names, snapshot.servers.class_k.tolist(), strict=True))
    names = snapshot.servers.class_names
    classes = {name: [names[number] for number in _find_classes(a, class_of)] for name, a in usage.items()}
    unweighted = tuple(Tenant(tenant.name, allocated_r=tenant.allocated_r) for tenant in snapshot.tenants)
    return compute_virtual_dominant_shares(replace(snapshot, tenants=unweighted), classes)


def _find_classes(tenant_usage: TenantUsage, class_of: Mapping[str, int]) -> list[int]:
    """Return the numbers of the classes on which a tenant has most of its pods."""
    # Nodes with as many pods of the tenant are counted together: a DaemonSet has a pod on each of thousands.
    alike = Counter(zip(map(class_of.get, tenant_usage.nodes), tenant_usage.nodes.values(), strict=True))
    counts: Counter[int] = Counter()
    for (number, pods), nodes in alike.items():
        if number is not None:
            counts[number] += pods * nodes
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_CLASSES]
    return [number for number, _ in most]
