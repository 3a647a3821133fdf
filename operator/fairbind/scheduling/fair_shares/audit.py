"""The audit: who envies whom, and who would do better in a cluster of their own, as things stand now.

Two questions of the papers, asked of whole tasks that run:

* *Envy-freeness* (Wang, Liang, Li, TPDS 2015, in the form that compares server by server): could tenant i run more than
  it does with what tenant j holds, server class by server class, scaled by their weights?
* *Sharing incentive* (Khamse-Ashari et al., section 2.1): could it run more on a cluster of its own, its weight's part
  of every server that it may use?

In a tree of tenants the first question is asked among siblings, of leaves: an inner tenant has no tasks of its own, and
the average of its leaves' tasks is one that none of them has. The second one is asked of each leaf, with the product
along its path of weight over the siblings' sum of weights, so a leaf of a subtree that is behind has it too.

What a tenant could run is counted in average tasks of what it wants, and told as a dominant share of the cluster. Where
its tasks differ, that is a lower bound, and what it has now is counted at its best: the audit rather misses a finding
than makes one up. On a cluster of its own tasks are whole, on each server class.

Each finding has a cause, the first of these that holds:

* *missing demand*: the tenant has nothing waiting that could be placed, so it asks for no more;
* *indivisible tasks*: it is less than one task of either;
* *other pods*: the capacity is there, and what waits has rules about the tasks in its topology domains, which the exact
  mechanism leaves out;
* *indivisible tasks* again: the capacity is there, and no server has enough of it;
* *mechanism*: the tenant has what the policy's exact mechanism gives it, so this is what the policy means by fair;
* *history*: something runs on that today would not be given to whom holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fairbind.model import Snapshot, Tenant
from fairbind.model.overview import AuditCounts
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.fair_shares.demand_groups import (
    DemandGroup,
    ServerGroups,
    find_demand_groups,
    group_servers,
    merge_demand_groups,
)
from fairbind.scheduling.fair_shares.flat_weights import compute_flat_weights

NOTICEABLE = 1e-6
"""Differences of dominant shares below this are rounding."""


class Cause(StrEnum):
    """Where a finding comes from."""

    MISSING_DEMAND = "missing_demand"
    INDIVISIBLE = "indivisible_tasks"
    OTHER_PODS = "other_pods"
    MECHANISM = "mechanism"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Finding:
    """A tenant that could have more. envied: with what that tenant holds; None: in a cluster of its own.

    has, could_have: dominant shares of the whole cluster, in the tenant's average tasks.
    """

    tenant: str
    envied: str | None
    has: float
    could_have: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All findings, the largest differences first. compared: how many tenants want something and were compared."""

    envies: tuple[Finding, ...]
    sharing_incentive_violations: tuple[Finding, ...]
    compared: int

    def count(self) -> AuditCounts:
        """Return how many findings come from what; causes of none are there with 0."""
        return AuditCounts(_count_causes(self.envies), _count_causes(self.sharing_incentive_violations))


@dataclass(frozen=True, slots=True, eq=False)
class AuditScene:
    """What is compared, N tenants that want something, P server classes, R resources that count. All base units.

    demand_groups: each tenant's average task. capacity_pr, free_pr: of the classes. bundle_npr: what each tenant
    holds there. weight_n: of the tenant, as if all were siblings. weight_nr: times that of the resource in it.
    parents: the inner tenants above them, None for the root; who has the same one is a sibling. share_n: dominant share
    of one average task. largest_n: dominant share of a tenant's largest task. has_n: dominant share now. waits_n: it
    has placeable tasks. ruled_n: some of its tasks that wait have rules about other tasks in topology domains.
    """

    names: tuple[str, ...]
    demand_groups: Sequence[DemandGroup]
    capacity_pr: FloatArray
    free_pr: FloatArray
    bundle_npr: FloatArray
    weight_n: FloatArray
    weight_nr: FloatArray
    share_n: FloatArray
    largest_n: FloatArray
    has_n: FloatArray
    waits_n: BoolArray
    ruled_n: BoolArray
    parents: tuple[str | None, ...] = ()


def audit(scene: AuditScene, fair_shares: Mapping[str, float] | None = None) -> AuditReport:
    """Return what is not as fair as it could be. Complexity: O(tenants * siblings * server classes * resources).

    fair_shares: what the policy's exact mechanism gives; without it no finding is the mechanism's.
    """
    envies, violations = [], []
    siblings = _find_siblings(scene)
    for i, name in enumerate(scene.names):
        fair_share = (fair_shares or {}).get(name)
        among = siblings[i]
        part_r = scene.weight_nr[i] / scene.weight_nr[among]
        tasks_j = _count_tasks(scene.bundle_npr[among] * part_r[:, None, :], scene.demand_groups[i]).sum(axis=1)
        wanted = (
            scene.demand_groups[i].count if scene.waits_n[i] else np.inf
        )  # who asks for no more might run more, too
        with_j = np.minimum(tasks_j, wanted) * scene.share_n[i]
        for place in np.flatnonzero(with_j > scene.has_n[i] + NOTICEABLE):
            j, could_have = among[place], float(with_j[place])
            if j != i:
                one_task = max(scene.largest_n[i], float(part_r[place].max()) * scene.largest_n[j])
                cause = _find_cause(scene, i, could_have, one_task, fair_share)
                envies.append(Finding(name, scene.names[j], float(scene.has_n[i]), could_have, cause))
        alone = _compute_share_alone(scene, i, float(scene.weight_n[i] / scene.weight_n.sum()))
        if alone > scene.has_n[i] + NOTICEABLE:
            cause = _find_cause(scene, i, alone, float(scene.largest_n[i]), fair_share)
            violations.append(Finding(name, None, float(scene.has_n[i]), alone, cause))
    return AuditReport(_sort(envies), _sort(violations), len(scene.names))


def _find_siblings(scene: AuditScene) -> list[IndexArray]:
    """Return for each tenant the places of those below the same parent, itself among them."""
    if len(set(scene.parents)) <= 1:
        return [np.arange(len(scene.names))] * len(scene.names)
    below: dict[str | None, list[int]] = {}
    for n, parent in enumerate(scene.parents):
        below.setdefault(parent, []).append(n)
    places = {parent: np.array(found, dtype=np.intp) for parent, found in below.items()}
    return [places[parent] for parent in scene.parents]


def make_audit_scene(snapshot: Snapshot) -> AuditScene:
    """Return what an audit needs to know, small enough to be sent elsewhere.

    snapshot: with what tenants hold, task by task and server by server.
    """
    axes = [r for r, total in enumerate(snapshot.total_r) if total > 0 and snapshot.counts_r[r]]
    groups = group_servers(snapshot)
    total_r = groups.capacity_pr[:, axes].sum(axis=0)
    every = find_demand_groups(snapshot, groups, axes)
    demand_groups = sorted(
        merge_demand_groups(every, total_r, is_one=True), key=lambda demand_group: demand_group.tenant
    )
    tenants = [snapshot.tenants[demand_group.tenant] for demand_group in demand_groups]
    weights = compute_flat_weights(snapshot, [tenant.name for tenant in tenants])
    largest = dict.fromkeys((demand_group.tenant for demand_group in demand_groups), 0.0)
    for demand_group in every:
        largest[demand_group.tenant] = max(largest[demand_group.tenant], float((demand_group.demand_r / total_r).max()))
    waiting = {c.tenant for c in snapshot.task_classes if c.blocked is None and c.is_eligible}
    ruled = {c.tenant for c in snapshot.task_classes if c.rules is not None and not c.rules.are_limits}
    return AuditScene(
        names=tuple(tenant.name for tenant in tenants),
        demand_groups=demand_groups,
        capacity_pr=groups.capacity_pr[:, axes],
        free_pr=_sum_free(snapshot, groups)[:, axes],
        bundle_npr=_sum_bundles(snapshot, groups, [demand_group.tenant for demand_group in demand_groups])[:, :, axes],
        weight_n=np.array([weights[tenant.name] for tenant in tenants]),
        weight_nr=np.array(
            [[float(t.weight * t.resource_weights.get(snapshot.resources[r], 1)) for r in axes] for t in tenants]
        ).reshape(len(tenants), len(axes))
        * np.array([weights[tenant.name] / float(tenant.weight) for tenant in tenants]).reshape(-1, 1),
        share_n=np.array([float((demand_group.demand_r / total_r).max()) for demand_group in demand_groups]),
        largest_n=np.array([largest[demand_group.tenant] for demand_group in demand_groups]),
        has_n=np.array([_find_share(tenant, axes, total_r) for tenant in tenants]),
        waits_n=np.array([tenant.name in waiting for tenant in tenants], dtype=np.bool_),
        ruled_n=np.array([tenant.name in ruled for tenant in tenants], dtype=np.bool_),
        parents=tuple(snapshot.hierarchy.get_place(tenant.name).parent for tenant in tenants),
    )


def _find_share(tenant: Tenant, axes: Sequence[int], total_r: FloatArray) -> float:
    """Return the dominant share of what a tenant holds; 0 where it holds nothing that counts. total_r: of the axes."""
    allocated_r = tenant.allocated_r
    return max((allocated_r[r] / total_r[a] for a, r in enumerate(axes)), default=0.0) if allocated_r else 0.0


def _sum_free(snapshot: Snapshot, groups: ServerGroups) -> FloatArray:
    free_pr = np.zeros_like(groups.capacity_pr)
    usable = groups.group_k >= 0
    np.add.at(free_pr, groups.group_k[usable], np.maximum(snapshot.servers.free_kr[usable], 0).astype(np.float64))
    return free_pr


def _sum_bundles(snapshot: Snapshot, groups: ServerGroups, tenants: Sequence[int]) -> FloatArray:
    bundle_npr = np.zeros((len(tenants), *groups.capacity_pr.shape))
    for n, tenant in enumerate(tenants):
        held = snapshot.tenants[tenant].allocated_by_server
        # Servers of a class on which as much is held are counted together: thousands differ in their names only.
        alike = Counter(zip(map(groups.group_of.get, held), held.values(), strict=True))
        for (group, amount_r), servers in alike.items():
            if group is not None:
                bundle_npr[n, group] += [servers * amount for amount in amount_r]
    return bundle_npr


def _count_tasks(amount_pr: FloatArray, demand_group: DemandGroup) -> FloatArray:
    """Return how many tasks of this group each class's amounts would run; the last axes are classes and resources."""
    needed = demand_group.demand_r > 0
    tasks_p: FloatArray = (amount_pr[..., needed] / demand_group.demand_r[needed]).min(axis=-1) * demand_group.usable_p
    return tasks_p


def _compute_share_alone(scene: AuditScene, i: int, part: float) -> float:
    """Return the dominant share that the tenant would have with its part of every server class, in whole tasks."""
    whole_p = np.floor(_count_tasks(scene.capacity_pr * part, scene.demand_groups[i]) * (1 + NOTICEABLE))
    return float(min(whole_p.sum(), scene.demand_groups[i].count) * scene.share_n[i])


def _find_cause(scene: AuditScene, i: int, could_have: float, one_task: float, fair_share: float | None) -> Cause:
    lacking = could_have - float(scene.has_n[i])
    if not scene.waits_n[i]:
        return Cause.MISSING_DEMAND
    free = float(_count_tasks(scene.free_pr, scene.demand_groups[i]).sum() * scene.share_n[i])
    if lacking <= one_task + NOTICEABLE:
        return Cause.INDIVISIBLE
    if free >= lacking:
        return Cause.OTHER_PODS if scene.ruled_n[i] else Cause.INDIVISIBLE
    if fair_share is not None and float(scene.has_n[i]) >= fair_share - one_task:
        return Cause.MECHANISM
    return Cause.HISTORY


def _count_causes(findings: Sequence[Finding]) -> dict[str, int]:
    counts = Counter(finding.cause for finding in findings)
    return {cause.value: counts[cause] for cause in Cause}


def _sort(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (f.has - f.could_have, f.tenant, f.envied or "")))
