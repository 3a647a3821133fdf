"""Why pods of a cluster wait: which nodes refuse them, which tenants and pods come first, and what would help.

The operator decides once about the cluster as it is. Pods that are equal in all that is said of them are one group.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fairbind.cluster.cache.tenant_ranking import Standing, TenantRanking
from fairbind.cluster.messages import compute_condition_reason, word_rejection
from fairbind.cluster.objects.facts import PODS, Demand
from fairbind.cluster.objects.quantity import format_quantity
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.model import FairnessReason, Snapshot, Task, Wait
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key
from fairbind.scheduling.policies.registry import get_policy
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.remedies import Change, find_change
from fairbind.what_if.trial import Trial
from fairbind.what_if.wait_estimate import RunTimes, WaitEstimate, estimate_wait


@dataclass(frozen=True, slots=True)
class Explained:
    """Equal pods that wait.

    pods: their names, in their tenant's order. requests: of one of them, as quantities. node: where the first of them
    starts now; None: they wait. reason: in the words of the pods' condition. wait: what the cycle said; None: nothing,
    as other pods come first or there are gates. node_count: all nodes. own_before: how many pods of the tenant come
    first. share: of the tenant, weighted. tenants_before: those that come first, the first one first. Both are as
    they will be once what starts now has started. change: the smallest one that would let all start now. estimate: of
    the time until all run; None where none was asked for, or none is possible.
    """

    namespace: str
    tenant: str
    pods: tuple[str, ...]
    requests: Mapping[str, str]
    node: str | None
    reason: str
    wait: Wait | None
    node_count: int
    own_before: int
    share: float
    tenants_before: tuple[Standing, ...]
    change: Change | None = None
    estimate: WaitEstimate | None = None

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        wait = self.wait
        fairness = None if wait is None else wait.fairness
        return {
            "namespace": self.namespace,
            "tenant": self.tenant,
            "pods": list(self.pods),
            "requests": dict(self.requests),
            "startsNowOn": self.node,
            "reason": None if wait is None else compute_condition_reason(wait),
            "message": self.reason,
            "nodes": self.node_count,
            "nodesByReason": [{"nodes": count, "reason": words} for count, words in list_refusals(self)],
            "next": None if fairness is None else _describe_next(fairness),
            "weightedShare": self.share,
            "tenantsBefore": [_describe_standing(one) for one in self.tenants_before],
            "ownPodsBefore": self.own_before,
            "change": None if self.change is None else self.change.describe(),
            "waitSeconds": None if self.estimate is None else self.estimate.describe(),
        }


def _describe_next(fairness: FairnessReason) -> dict[str, Any]:
    described = {"tenant": fairness.next_tenant, "share": fairness.next_share}
    if fairness.compared is None:
        return described
    own, other = fairness.compared
    return {**described, "compared": {"tenant": other, "with": own, "ownShare": fairness.share}}


def _describe_standing(standing: Standing) -> dict[str, Any]:
    described = {"tenant": standing.tenant, "weightedShare": standing.share}
    if standing.compared is None:
        return described
    other, own, own_share = standing.compared
    return {**described, "compared": {"tenant": other, "with": own, "ownShare": own_share}}


def list_refusals(explained: Explained) -> list[tuple[int, str]]:
    """Return how many nodes refuse pods for what, those of most nodes first; a node may count for several reasons."""
    rejections = () if explained.wait is None else explained.wait.rejections
    pairs = [(count, word_rejection(rejection)) for rejection, count in rejections]
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def explain_pods(
    listed: ListedObjects,
    uids: Collection[str],
    *,
    most_changes: int,
    given_run_times: Mapping[str, Sequence[float]] | None = None,
) -> list[Explained]:
    """Return why these of the waiting pods wait, in groups, those that come first in their tenant's order first.

    Pods that wait for another scheduler are in none. most_changes: for so many groups at most it is sought what would
    help. given_run_times: in seconds, by tenant; None: no wait is estimated.
    """
    trial = Trial(listed)
    trial.decide()
    groups = _list_groups(trial, frozenset(uids))
    starting = {bind.tenant for bind in trial.binds}
    trial.undo()
    pods = {pod.metadata.uid: pod for pod in listed.pods}
    explained = []
    for place, (group, members) in enumerate(groups):
        waiting, change, estimate = [pods[uid] for uid in members], None, None
        if group.wait is not None and group.wait.blocked is None:
            if place < most_changes:
                others_start = bool(starting - {group.tenant})
                change = find_change(trial, listed, waiting, group.wait, others_start=others_start)
            if given_run_times is not None:
                run_times = RunTimes(listed, trial.cache.state.directory, given_run_times)
                estimate = estimate_wait(trial, listed, waiting, run_times)
        explained.append(replace(group, change=change, estimate=estimate))
    return explained


def _list_groups(trial: Trial, uids: AbstractSet[str]) -> list[tuple[Explained, list[str]]]:
    """Return the groups after the decisions, with the UIDs of their pods."""
    snapshot = trial.cache.build_snapshot(whole=True)
    places = _find_places(snapshot)
    overview = trial.cache.queries.build_overview()
    tenants, ranking = {tenant.name: tenant for tenant in overview.tenants}, TenantRanking(overview)
    is_fair = get_policy(trial.cache.settings.policy).is_fair
    rows = [_Row(*split_task_name(one.task), one.task.uid, one.tenant, one.server, "", None) for one in trial.binds]
    waiting = trial.list_waiting()
    rows += [_Row(each.namespace, each.name, each.uid, each.tenant, None, each.reason, each.wait) for each in waiting]
    groups: dict[Hashable, list[_Row]] = {}
    for row in rows:
        if row.uid in uids:
            groups.setdefault((trial.find_kind(row.uid), row.node is None, row.reason), []).append(row)
    found = []
    for members in groups.values():
        members.sort(key=lambda row: (places.get(row.uid, 0), row.name))
        first = members[0]
        before = ranking.list_before(tenants[first.tenant]) if is_fair and first.node is None else ()
        explained = Explained(
            namespace=first.namespace,
            tenant=first.tenant,
            pods=tuple(row.name for row in members),
            requests=format_requests(trial.make_facts(first.uid).demand),
            node=first.node,
            reason=first.reason,
            wait=first.wait,
            node_count=len(snapshot.servers.names),
            own_before=places.get(first.uid, 0),
            share=tenants[first.tenant].weighted_share,
            tenants_before=before,
        )
        found.append((explained, [row.uid for row in members]))
    return sorted(found, key=lambda pair: (pair[0].tenant, pair[0].own_before, pair[0].namespace, pair[0].pods[0]))


class _Row(NamedTuple):
    namespace: str
    name: str
    uid: str
    tenant: str
    node: str | None
    reason: str
    wait: Wait | None


def _find_places(snapshot: Snapshot) -> dict[str, int]:
    """Return how many waiting tasks of its tenant come before each."""
    lines: dict[str, list[Task]] = {}
    for task_class in snapshot.task_classes:
        lines.setdefault(task_class.tenant, []).extend(task_class.tasks)
    places: dict[str, int] = {}
    for tasks in lines.values():
        tasks.sort(key=compute_sort_key)
        places.update((task.uid, place) for place, task in enumerate(tasks))
    return places


def format_requests(demand: Demand) -> dict[str, str]:
    """Return what a pod asks for, as quantities, without the one of `pods`."""
    return {resource: format_quantity(resource, amount) for resource, amount in demand.real if resource != PODS}
