"""What tenants want now, as the exact mechanisms see it: shapes of tasks, how many of each, and where they could run.

A tenant wants what it holds and what of it waits and may be placed, as if everything could be moved. The mechanisms
know one demand vector a tenant, so a tenant whose tasks differ becomes several *parts*, each with a vector of its own:

* Tasks that may run on the same server classes and have nearly the same proportions are one part, whose vector is their
  average.
* Others are not averaged: of a task for CPU servers and one for memory servers it would be a task that fits neither, of
  a task with a GPU and one without it would be one that needs a GPU, and of CPU tasks and memory tasks it would be one
  that stops when the CPUs are used up. Only mechanisms to which a tenant is one bidder take one average of all.

Server classes are those of the snapshot, split further where a task that runs now could use only some of their servers.
What is held on servers that take no tasks now, and how much of them counts in the totals, is a class by itself.
A class counts for a task when one server of it could run the task if it was empty. A task that is pinned to one server,
as a DaemonSet's are, counts as it would without that: each would have a server class of its own, and what is asked is
how much of such work there is and where its template lets it run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairbind.fairness.problems.instance import compute_gamma
from fairbind.model import Placement, Snapshot, TaskClass, Tenant
from fairbind.model.servers import BoolArray, FloatArray, sum_exactly
from fairbind.scheduling.fair_shares.within_limits import count_within_limits

MAX_PARTS = 2_000

BLOCK = 4_096
"""For so many groups at a time it is computed how many tasks the servers would run."""

GRIDS = (64, 16, 4, 1)
"""Proportions are compared on the finest of these grids on which there are not too many parts."""


@dataclass(frozen=True, slots=True, eq=False)
class ServerGroups:
    """The server classes, P of them, in the order of their first servers' names.

    Where something is held on servers that are not usable, there is one class more, the last one: all of these
    together, with what is held there for their capacity. Only tenants that hold it can run tasks there.

    names: of the classes, after their first server. group_k: class of each server, -1 for one that is not usable.
    group_of: the class of each server by its name. count_p: servers in each. capacity_pr: of all its servers, base
    units, shape (P, R). most_pr: of its largest one. resting: the class of what is not usable; None: there is none.
    """

    names: tuple[str, ...]
    group_k: NDArray[np.intp]
    group_of: Mapping[str, int]
    count_p: FloatArray
    capacity_pr: FloatArray
    most_pr: FloatArray
    resting: int | None = None

    def find_reached(self, eligible_k: BoolArray) -> BoolArray:
        """Return which classes have an eligible server, shape (P,)."""
        reached_p = np.zeros(len(self.names), dtype=np.bool_)
        reached_p[self.group_k[eligible_k & (self.group_k >= 0)]] = True
        return reached_p

    def find_within(self, on_k: BoolArray) -> BoolArray:
        """Return which classes have some of these servers only, which divide no class, shape (P,)."""
        within_p = self.find_reached(on_k)
        if self.resting is not None:
            within_p[self.resting] = on_k[self.group_k < 0].all()
        return within_p


@dataclass(slots=True, eq=False)
class DemandGroup:
    """Tasks of one tenant with equal demand and placement, or a part of several such groups.

    demand_r: what one task takes, along the resources that count. counted_r: what it counts in shares, which differs
    where a request is small or left out. count: how many the tenant wants. usable_p: where they could run. limit: how
    many of them could run there at most, if nothing else did.
    """

    tenant: int
    demand_r: FloatArray
    counted_r: FloatArray
    count: float
    usable_p: BoolArray
    limit: float = 0.0


def group_servers(snapshot: Snapshot, dividers: Sequence[BoolArray] = ()) -> ServerGroups:
    """Return the classes of usable servers that no placement of a task divides. dividers: nor any of these sets."""
    servers = snapshot.servers
    usable = np.flatnonzero(servers.usable_k)
    arrays = {each.eligible_k.tobytes(): each.eligible_k for each in dict.fromkeys(_find_placements(snapshot))}
    column = servers.class_k[usable].astype(np.int64)
    columns = [column, *(some_k[usable].astype(np.int64) for some_k in (*arrays.values(), *dividers))]
    label = np.zeros(len(usable), dtype=np.int64)
    for values in columns:
        _, label = np.unique(label * (int(values.max(initial=0)) + 1) + values, return_inverse=True)
    _, first, label = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    group_k = np.full(len(servers.names), -1, dtype=np.intp)
    group_k[usable] = rank[label]
    capacity_kr = servers.capacity_kr[usable].astype(np.float64)
    capacity_pr = np.zeros((len(first), capacity_kr.shape[1]))
    most_pr = np.zeros_like(capacity_pr)
    np.add.at(capacity_pr, group_k[usable], capacity_kr)
    np.maximum.at(most_pr, group_k[usable], capacity_kr)
    names = tuple(servers.names[usable[n]] for n in np.sort(first).tolist())
    count_p = np.bincount(group_k[usable], minlength=len(first)).astype(np.float64)
    group_of = {servers.names[k]: p for k, p in zip(usable.tolist(), group_k[usable].tolist(), strict=True)}
    groups = ServerGroups(names, group_k, group_of, count_p, capacity_pr, most_pr)
    resting = [servers.names[k] for k in np.flatnonzero(group_k < 0).tolist()]
    if not resting:
        return groups
    usable_r = sum_exactly(servers.capacity_kr[usable])
    held_r = [max(total - amount, 0) for total, amount in zip(snapshot.total_r, usable_r, strict=True)]
    return _add_resting(groups, resting, np.array(held_r, dtype=np.float64)) if any(held_r) else groups


def _add_resting(groups: ServerGroups, servers: Sequence[str], held_r: FloatArray) -> ServerGroups:
    """Return the classes with one more. servers: that are not usable. held_r: what is held on all of them."""
    resting = len(groups.names)
    return ServerGroups(
        names=(*groups.names, servers[0]),
        group_k=groups.group_k,
        group_of={**groups.group_of, **dict.fromkeys(servers, resting)},
        count_p=np.append(groups.count_p, 1.0),
        capacity_pr=np.vstack([groups.capacity_pr, held_r]),
        most_pr=np.vstack([groups.most_pr, held_r]),
        resting=resting,
    )


def _find_placements(snapshot: Snapshot) -> Iterator[Placement]:
    for task_class in snapshot.task_classes:
        if task_class.blocked is None:
            yield task_class.placement
    for tenant in snapshot.tenants:
        for holding in tenant.holdings:
            if holding.placement is not None:
                yield holding.placement


def find_demand_groups(
    snapshot: Snapshot, groups: ServerGroups, axes: Sequence[int], *, unlimited: Collection[str] = ()
) -> list[DemandGroup]:
    """Return what each tenant wants, by tenant. axes: the resources that count and exist; demands are along these.

    Tasks that ask for none of them are left out, those that no server could run, and those that limits end.
    unlimited: resources whose limits end nothing here.
    """
    by_tenant: dict[str, list[DemandGroup]] = {}
    index_of = {tenant.name: i for i, tenant in enumerate(snapshot.tenants)}
    answers = _Answers(groups, axes, snapshot.total_r)
    for task_class, count in _count_alike(snapshot, unlimited):
        usable_p = answers.find_usable(task_class.placement, task_class.demand_r)
        demand_r = answers.pick_counting(task_class.demand_r, task_class.share_demand_r)
        counted_r = answers.pick(task_class.share_demand_r)
        demand_group = DemandGroup(index_of[task_class.tenant], demand_r, counted_r, float(count), usable_p)
        by_tenant.setdefault(task_class.tenant, []).append(demand_group)
    for i, tenant in enumerate(snapshot.tenants):
        demand_groups = by_tenant.setdefault(tenant.name, [])
        rest_r = _compute_rest(tenant)
        has_rest = any(rest_r)
        anywhere_p: BoolArray = np.zeros(0, dtype=np.bool_)
        if has_rest or any(holding.placement is None for holding in tenant.holdings):
            anywhere_p = _find_known_places(tenant, demand_groups, groups)
        rests = groups.resting is not None and groups.resting in map(groups.group_of.get, tenant.allocated_by_server)
        for holding in tenant.holdings:
            usable_p = anywhere_p
            if holding.placement is not None:
                usable_p = answers.find_usable(holding.placement, holding.demand_r, rests=rests)
            demand_r = answers.pick_counting(holding.demand_r, holding.share_demand_r)
            counted_r = answers.pick(holding.share_demand_r)
            demand_groups.append(DemandGroup(i, demand_r, counted_r, float(holding.count), usable_p))
        if has_rest:
            demand_groups.append(DemandGroup(i, answers.pick(rest_r), answers.pick(rest_r), 1.0, anywhere_p))
    found = [
        demand_group
        for tenant in snapshot.tenants
        for demand_group in by_tenant[tenant.name]
        if demand_group.demand_r.any()
    ]
    for demand_group, alone in zip(found, _count_alone(groups, found, axes), strict=True):
        demand_group.limit = min(demand_group.count, alone)
    return sorted((demand_group for demand_group in found if demand_group.limit > 0), key=_compute_sort_key)


def _compute_sort_key(demand_group: DemandGroup) -> tuple[int, bytes, bytes, bytes, float]:
    """Return what tells groups apart, so that their order does not depend on how they came.

    A mechanism may have several solutions: which one comes out depends on the order.
    """
    return (
        demand_group.tenant,
        demand_group.demand_r.tobytes(),
        demand_group.counted_r.tobytes(),
        demand_group.usable_p.tobytes(),
        demand_group.count,
    )


class _Answers:
    """Answers about demands. Equal questions get the same object, so later steps can compare by identity."""

    def __init__(self, groups: ServerGroups, axes: Sequence[int], total_r: Sequence[int]) -> None:
        self._groups = groups
        self._axes = axes
        self._total_r = total_r
        self._reached: dict[Placement, BoolArray] = {}
        self._usable: dict[tuple[Placement, tuple[int, ...], bool], BoolArray] = {}
        self._picked: dict[tuple[int, ...], FloatArray] = {}

    def find_usable(self, placement: Placement, demand_r: tuple[int, ...], *, rests: bool = False) -> BoolArray:
        """Return which classes have an eligible server and one that is large enough, shape (P,).

        rests: whether some of the tasks may be on servers that are not usable.
        """
        key = placement, demand_r, rests
        known = self._usable.get(key)
        if known is None:
            reached_p = self._reached.get(placement)
            if reached_p is None:
                reached_p = self._reached[placement] = self._groups.find_reached(placement.eligible_k)
            fits_p: BoolArray = np.all(np.array(demand_r, dtype=np.float64) <= self._groups.most_pr, axis=1)
            usable_p = reached_p & fits_p
            if rests and self._groups.resting is not None:
                usable_p[self._groups.resting] = fits_p[self._groups.resting]
            known = self._usable[key] = usable_p
        return known

    def pick(self, amount_r: Sequence[int]) -> FloatArray:
        """Return amounts along the axes."""
        key = tuple(amount_r)
        known = self._picked.get(key)
        if known is None:
            known = self._picked[key] = np.array([amount_r[r] for r in self._axes], dtype=np.float64)
        return known

    def pick_counting(self, demand_r: Sequence[int], share_demand_r: Sequence[int]) -> FloatArray:
        """Return what a task counts along the axes: what it takes, unless a request that is left out is dominant.

        A request that is left out counts as a small one in shares, and takes nothing of a server. An answer that took
        it from servers would leave free what others could have.
        """
        if demand_r is not share_demand_r and self._find_dominant(demand_r) == self._find_dominant(share_demand_r):
            return self.pick(demand_r)
        return self.pick(share_demand_r)

    def _find_dominant(self, amount_r: Sequence[int]) -> float:
        return max((amount_r[r] / self._total_r[r] for r in self._axes), default=0.0)


def _count_alike(snapshot: Snapshot, unlimited: Collection[str]) -> Iterator[tuple[TaskClass, float]]:
    """Yield what may be placed, and how many tasks: classes that only differ in the server they are pinned to once."""
    within_limits = count_within_limits(snapshot, except_of=unlimited)
    counts: defaultdict[tuple[str, tuple[int, ...], tuple[int, ...], Placement], float] = defaultdict(float)
    pinned: dict[tuple[str, tuple[int, ...], tuple[int, ...], Placement], TaskClass] = {}
    for each in snapshot.task_classes:
        if each.blocked is None and each.pin is None:
            yield each, within_limits.get(each, len(each.tasks))
        elif each.blocked is None and each.is_eligible:
            key = each.tenant, each.demand_r, each.share_demand_r, each.placement
            pinned.setdefault(key, each)
            counts[key] += within_limits.get(each, len(each.tasks))
    for key, task_class in pinned.items():
        yield task_class, counts[key]


def _compute_rest(tenant: Tenant) -> list[int]:
    """Return what the tenant holds and what is not told task by task."""
    rest_r = list(tenant.allocated_r)
    for holding in tenant.holdings:
        rest_r = [max(a - holding.count * b, 0) for a, b in zip(rest_r, holding.share_demand_r, strict=False)]
    return rest_r


def _find_known_places(tenant: Tenant, demand_groups: Sequence[DemandGroup], groups: ServerGroups) -> BoolArray:
    """Return where a task of the tenant could run of unknown place: where it has tasks or may place some."""
    known_p = np.zeros(len(groups.names), dtype=np.bool_)
    for demand_group in demand_groups:
        known_p |= demand_group.usable_p
    held = set(map(groups.group_of.get, tenant.allocated_by_server))
    known_p[[group for group in held if group is not None]] = True
    return known_p if known_p.any() else ~known_p


def _count_alone(groups: ServerGroups, demand_groups: Sequence[DemandGroup], axes: Sequence[int]) -> list[float]:
    """Return for each group how many of its tasks would run if nothing else did."""
    capacity_pr, counts = groups.capacity_pr[:, axes], list[float]()
    for start in range(0, len(demand_groups), BLOCK):
        some = demand_groups[start : start + BLOCK]
        tasks_np = compute_gamma(capacity_pr, np.array([each.demand_r for each in some]))
        counts += np.where([each.usable_p for each in some], tasks_np, 0.0).sum(axis=1).tolist()
    return counts


def limit_parts(parts: Sequence[DemandGroup], groups: ServerGroups, axes: Sequence[int]) -> None:
    """Let no part be of more tasks than could run, however many groups it was made of.

    So a problem stays the same while tasks of a long backlog are placed and end.
    """
    for part, alone in zip(parts, _count_alone(groups, parts, axes), strict=True):
        part.limit = min(part.limit, alone)


def merge_demand_groups(
    demand_groups: Sequence[DemandGroup], total_r: FloatArray, *, is_one: bool
) -> list[DemandGroup]:
    """Return the parts, at most MAX_PARTS as far as that can be had. See the module's story.

    A part is those groups of a tenant that the mechanism need not tell apart.
    total_r: of the resources that count, base units. is_one: each tenant is one part.
    """
    if not demand_groups:
        return []
    tenant_n = np.array([each.tenant for each in demand_groups])
    if is_one:
        return _merge(demand_groups, np.unique(tenant_n, return_inverse=True)[1])
    _, place_n = np.unique([each.usable_p.tobytes() for each in demand_groups], return_inverse=True)
    share_nr = np.array([each.demand_r for each in demand_groups]) / total_r
    share_nr /= share_nr.max(axis=1, keepdims=True)
    label_n = tenant_n
    for grid in GRIDS:
        # A demand of 0 stays apart from a tiny one.
        rounded_nr = np.where(share_nr > 0, 1 + np.round(grid * share_nr), 0).astype(np.intp)
        rows_nc = np.column_stack([tenant_n, place_n, rounded_nr])
        label_n = np.unique(rows_nc, axis=0, return_inverse=True)[1].reshape(-1)
        if label_n.max() < MAX_PARTS:
            break
    return _merge(demand_groups, label_n)


def _merge(demand_groups: Sequence[DemandGroup], label_n: NDArray[np.intp]) -> list[DemandGroup]:
    """Return a part for each label, in their order."""
    demand_nr = np.array([each.demand_r for each in demand_groups])
    count_n = np.array([each.count for each in demand_groups])
    count_m = np.bincount(label_n, weights=count_n)
    limit_m = np.bincount(label_n, weights=[each.limit for each in demand_groups])
    demand_mr, counted_mr = (
        np.column_stack([np.bincount(label_n, weights=count_n * column_n) for column_n in rows_nr.T]) / count_m[:, None]
        for rows_nr in (demand_nr, np.array([each.counted_r for each in demand_groups]))
    )
    usable_mp = np.zeros((len(count_m), len(demand_groups[0].usable_p)), dtype=np.bool_)
    np.logical_or.at(usable_mp, label_n, [each.usable_p for each in demand_groups])
    _, first_m = np.unique(label_n, return_index=True)
    return [
        DemandGroup(
            demand_groups[n].tenant, demand_mr[m], counted_mr[m], float(count_m[m]), usable_mp[m], float(limit_m[m])
        )
        for m, n in enumerate(first_m.tolist())
    ]
