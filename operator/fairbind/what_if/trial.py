"""What the operator would decide now about the objects of a cluster, without anything being written anywhere."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import convert_pod
from fairbind.cluster.objects.facts import Demand, PodFacts
from fairbind.model import Bind, CycleReport, InvariantError, Snapshot, Wait
from fairbind.model.overview import ClusterOverview
from fairbind.scheduling.cycle.traced import Decision, trace_decisions
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.virtual_operator import VirtualOperator

QUEUED = "other pods of its tenant come first"
GATED = "pod has scheduling gates"


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits. reason: in the words of the pod's condition. wait: what the last cycle said; None: nothing."""

    uid: str
    namespace: str
    name: str
    tenant: str
    reason: str
    wait: Wait | None


class Trial:
    """One cluster, and the operator that decides about it.

    cache: what it looks like now. binds: the decisions that were not taken back, in their order.
    """

    def __init__(self, listed: ListedObjects, policy: str | None = None, *, traces: bool = False) -> None:
        """policy: in place of the one that the objects name. traces: whether to note how each decision came about."""
        self._listed = listed
        self._pods = {pod.metadata.uid: pod for pod in listed.pods}
        self._demands: dict[str, Demand] = {}
        self._traces = traces
        self.binds: list[Bind] = []
        self.decisions: list[Decision] = []
        chosen = policy or build_cache(listed).settings.policy

        def make_cache(on_change: Callable[[], None]) -> ClusterCache:
            cache = build_cache(listed, on_change)
            if policy is not None:
                cache.set_policy(replace(cache.settings, policy=policy))
            return cache

        self.operator = VirtualOperator(make_cache, chosen, self._start, self._follow, epoch=listed.time)
        self.cache = self.operator.cache

    def decide(self, now: int = 0) -> None:
        """Let the operator decide until nothing is left to decide. now: nanoseconds from the start."""
        self.operator.flush(now, lambda: False)

    def carry_out(self, report: CycleReport, *, rotates: bool = True) -> None:
        """Let the decisions of a cycle start that ran elsewhere. rotates: whether the next one may look at others."""
        for bind in report.bindings:
            self._start(bind)
        self.cache.note_waits(report.waits, rotates=rotates)

    def undo(self) -> None:
        """Take all decisions back."""
        for bind in self.binds:
            self.cache.pods.apply(self.make_facts(bind.task.uid))
        self.binds.clear()
        self.decisions.clear()
        self.operator.end_reservations()

    def add_pod(self, pod: wire.Pod) -> None:
        """Let a pod come, or change."""
        self._pods[pod.metadata.uid] = pod
        self.cache.pods.apply(convert_pod(pod))

    def change_demand(self, uid: str, demand: Demand | None) -> None:
        """Let a pod ask for something else; None: for what it was listed with."""
        if demand is None:
            self._demands.pop(uid, None)
        else:
            self._demands[uid] = demand
        self.cache.pods.apply(self.make_facts(uid))

    def remove_pod(self, uid: str) -> None:
        """Let a pod go."""
        self.cache.pods.delete(self.make_facts(uid))

    def make_facts(self, uid: str, node: str | None = None) -> PodFacts:
        """Return a pod as it was listed, or bound to a node."""
        pod = self._pods[uid]
        if node is not None:
            pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        facts = convert_pod(pod)
        demand = self._demands.get(uid)
        return facts if demand is None else msgspec.structs.replace(facts, demand=demand)

    def find_kind(self, uid: str) -> Hashable:
        """Return what a pod has in common with those of which the operator says the same."""
        facts = self.make_facts(uid)
        group = self.cache.state.groups.find_place(facts)[0]
        return facts.namespace, facts.priority, facts.demand, facts.constraints, facts.pod_terms, facts.gated, group

    def _start(self, bind: Bind) -> None:
        self.binds.append(bind)
        self.cache.pods.apply(self.make_facts(bind.task.uid, bind.server))

    def _follow(self, snapshot: Snapshot, report: CycleReport) -> None:
        if self._traces:
            decisions = trace_decisions(snapshot, self.cache.settings, len(report.bindings))
            if [decision.bind for decision in decisions] != list(report.bindings):
                raise InvariantError("a cycle's decisions differ when they are made again")
            self.decisions += decisions

    def list_waiting(self) -> list[WaitingPod]:
        """Return the pods that still wait, by namespace and name."""
        snapshot = self.cache.build_snapshot(whole=True)
        waits = {task.uid: wait for wait in self.operator.waits for task in wait.task_class.tasks}
        found = [
            self._describe_waiting(task.uid, waits.get(task.uid), len(snapshot.servers.names))
            for task_class in snapshot.task_classes
            for task in task_class.tasks
        ]
        return sorted([*found, *self._find_gated()], key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def _describe_waiting(self, uid: str, wait: Wait | None, node_count: int) -> WaitingPod:
        record = self.cache.find_pod(uid)
        assert record is not None
        reason = QUEUED
        if wait is not None:
            reason = format_unschedulable(wait, node_count, blocked_detail=record.unsupported)
        return WaitingPod(uid, record.namespace, record.name, record.tenant, reason, wait)

    def _find_gated(self) -> Iterator[WaitingPod]:
        for uid, pod in self._pods.items():
            record = self.cache.find_pod(uid) if pod.spec.scheduling_gates else None
            is_ours = self._listed.is_ours(pod)
            if record is not None and record.node is None and is_ours and pod.metadata.deletion_timestamp is None:
                gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates or ())
                yield WaitingPod(uid, record.namespace, record.name, record.tenant, f"{GATED}: {gates}", None)

    def compute_overview(self) -> ClusterOverview:
        """Return who holds what now, with the exact fair shares."""
        return self.cache.queries.build_overview(self.compute_fair_shares(), self.operator.fair_shares.compute_inner())

    def compute_fair_shares(self) -> Mapping[str, float] | None:
        """Return the fair share of each tenant; None when the policy has no mechanism or it gives no answer."""
        return self.operator.fair_shares.compute()


def explain_decision(decision: Decision) -> str:
    """Return why this task was next, in words."""
    if decision.share is None:
        return "it waits longest of those with the highest priority that fit somewhere"
    where = f" on nodes as {decision.bind.server}" if decision.has_classes else ""
    level = f"its {decision.label}{where} is {decision.share:.4g}"
    return f"{decision.bind.tenant} comes next: {level}, the least with a pod that fits"
