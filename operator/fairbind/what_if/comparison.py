"""What the operator would do now: who starts, who waits and why, shares, and what each tenant could run more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from fairbind.cluster.cache.tenant_paths import list_inner, name_path
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import belongs_to_node
from fairbind.cluster.objects.convert import convert_pod
from fairbind.cluster.objects.facts import Constraints, Demand
from fairbind.cluster.objects.group_marks import GROUP_LABEL
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.model import Bind, Snapshot, Task, TaskClass
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.scheduling import run_cycle
from fairbind.what_if.changes import release
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.trial import Trial, WaitingPod

MOST_MORE = 100_000
ONE_MORE = "one-more"


@dataclass(frozen=True, slots=True)
class TenantState:
    """One tenant. running, pending: pods before any decision. dominant_share, fair_share: after the decisions.

    fair_share: None where the policy has no exact mechanism. could_run_more: pods of the kind of which it has most that
    would still fit after the decisions; None when it has no pods. path: the names from the top down to it.
    """

    weight: float
    dominant_share: float
    fair_share: float | None
    running: int
    pending: int
    could_run_more: int | None
    path: str

    def describe(self) -> dict[str, Any]:
        """Return it as plain values; the path of a tenant below another one only."""
        return {
            **({"path": self.path} if "/" in self.path else {}),
            "weight": self.weight,
            "dominant_share": self.dominant_share,
            "fair_share": self.fair_share,
            "running": self.running,
            "pending": self.pending,
            "could_run_more": self.could_run_more,
        }


@dataclass(frozen=True, slots=True)
class State:
    """What happens now.

    starts: in the order of the decisions. tenants: by name. inner: those with others below them, with all that is
    below; a leaf may have the name of one. kinds: equal for pods that differ by name only, by UID.
    """

    policy: str
    starts: tuple[Bind, ...]
    waits: tuple[WaitingPod, ...]
    tenants: Mapping[str, TenantState]
    kinds: Mapping[str, Hashable]
    inner: Mapping[str, TenantState] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        starts = [(*split_task_name(bind.task), bind) for bind in self.starts]
        return {
            "starts": [
                {"namespace": namespace, "pod": name, "tenant": bind.tenant, "node": bind.server}
                for namespace, name, bind in starts
            ],
            "waits": [
                {"namespace": pod.namespace, "pod": pod.name, "tenant": pod.tenant, "reason": pod.reason}
                for pod in self.waits
            ],
            "tenants": {name: tenant.describe() for name, tenant in self.tenants.items()},
            **({"inner_tenants": {name: one.describe() for name, one in self.inner.items()}} if self.inner else {}),
        }


def compute_state(trial: Trial, listed: ListedObjects) -> State:
    """Let the operator decide, and return what it does. listed: what the trial was made of."""
    before = trial.cache.queries.build_overview()
    trial.decide()
    more = count_more(trial, listed)
    after = trial.compute_overview()
    tenants = _compute_tenants(before.tenants, after.tenants, after, more)
    inner = _compute_tenants(list_inner(before), list_inner(after), after, {})
    waits = tuple(trial.list_waiting())
    uids = (*(bind.task.uid for bind in trial.binds), *(pod.uid for pod in waits))
    kinds = {uid: trial.find_kind(uid) for uid in uids}
    return State(trial.cache.settings.policy, tuple(trial.binds), waits, tenants, kinds, inner)


def _compute_tenants(
    before: Iterable[TenantOverview],
    after: Iterable[TenantOverview],
    overview: ClusterOverview,
    more: Mapping[str, int],
) -> dict[str, TenantState]:
    """Return tenants before and after the decisions. overview: after them. more: what each could run more."""
    first_of = {tenant.name: tenant for tenant in before}
    return {
        tenant.name: TenantState(
            weight=tenant.weight,
            dominant_share=tenant.dominant_share,
            fair_share=tenant.fair_share,
            running=first_of[tenant.name].running,
            pending=sum(first_of[tenant.name].pending.values()),
            could_run_more=more.get(tenant.name),
            path=name_path(tenant, overview),
        )
        for tenant in after
    }


def count_more(trial: Trial, listed: ListedObjects) -> dict[str, int]:
    """Return for each tenant that has pods how many more of its most frequent kind the operator would place now."""
    return {tenant: _count_fitting(trial, pod) for tenant, pod in sorted(_find_most_frequent(trial, listed).items())}


def _find_most_frequent(trial: Trial, listed: ListedObjects) -> dict[str, wire.Pod]:
    """Return a pod of the most frequent kind of each tenant, as it waits."""
    counts: dict[str, Counter[tuple[Demand, Constraints]]] = {}
    samples: dict[tuple[str, Demand, Constraints], wire.Pod] = {}
    for pod in listed.pods:
        record = trial.cache.find_pod(pod.metadata.uid)
        is_ours = listed.is_ours(pod)
        if record is None or not record.tenant or not (is_ours or record.node) or belongs_to_node(pod):
            continue
        waiting = release(pod)
        facts = convert_pod(waiting)
        counts.setdefault(record.tenant, Counter())[facts.demand, facts.constraints] += 1
        samples.setdefault((record.tenant, facts.demand, facts.constraints), waiting)
    return {tenant: samples[tenant, *kinds.most_common(1)[0][0]] for tenant, kinds in counts.items()}


def _count_fitting(trial: Trial, pod: wire.Pod) -> int:
    """Return how many pods like this one the operator's cycle would place beside what runs, if none else waited."""
    uid = f"{ONE_MORE}/{pod.metadata.uid}"
    spec = make_like(pod.spec, trial.cache.state.schedulers.own)
    facts = convert_pod(wire.Pod(metadata=_rename(pod.metadata, uid), spec=spec, status=pod.status))
    trial.cache.pods.apply(facts)
    snapshot = trial.cache.build_snapshot()
    trial.cache.pods.delete(facts)
    for task_class in snapshot.task_classes:
        task = next((task for task in task_class.tasks if task.uid == uid), None)
        if task is not None and task_class.blocked is None:
            most = _count_free(snapshot, task_class)
            tasks = tuple(Task(f"{uid}/{number}", task.name, task.priority, 0.0) for number in range(most))
            if not tasks:
                return 0
            alone = replace(snapshot, task_classes=(replace(task_class, tasks=tasks),))
            return len(run_cycle(alone, trial.cache.settings, 0.0).bindings)
    return 0


def make_like(spec: wire.PodSpec, scheduler_name: str) -> wire.PodSpec:
    """Return the spec of one pod more that asks for this scheduler. It would have claims of its own, not those."""
    volumes = [one for one in spec.volumes or () if one.persistent_volume_claim is None and one.ephemeral is None]
    return msgspec.structs.replace(
        spec, scheduler_name=scheduler_name, scheduling_gates=None, scheduling_group=None, volumes=volumes or None
    )


def _rename(meta: wire.ObjectMeta, uid: str) -> wire.PodMeta:
    """Return the metadata of one pod more, which is in no group."""
    labels = {key: value for key, value in (meta.labels or {}).items() if key != GROUP_LABEL}
    return wire.PodMeta(name=ONE_MORE, namespace=meta.namespace, uid=uid, labels=labels or None)


def _count_free(snapshot: Snapshot, task_class: TaskClass) -> int:
    """Return a number of tasks beyond which the capacity does not go, so that no more of them need be asked about."""
    demand_r = np.array(task_class.demand_r)
    asked = demand_r > 0
    free_kr = np.maximum(snapshot.servers.free_kr[task_class.placement.eligible_k][:, asked], 0)
    return min(int((free_kr // demand_r[asked]).min(axis=1).sum()), MOST_MORE) if len(free_kr) else 0
