"""What fairbind says of a pod, in the oracle's terms: where it may be placed, and what refuses it elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.builders import read_namespace, read_node, read_pod
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.messages import word_rejection
from fairbind.model import RejectionKind, Snapshot, TaskClass, Wait
from fairbind.scheduling import run_cycle

Json = dict[str, Any]

FIT = "NodeResourcesFit"
CLAIM_KINDS = (RejectionKind.CLAIM, RejectionKind.VOLUME_IN_USE)
OTHER_PODS = "PodTopologySpread or InterPodAffinity"
"""A node may be refused by both, of which fairbind tells the one that no placement can change."""
PLUGINS: Mapping[RejectionKind, str] = {
    RejectionKind.CORDONED: "NodeUnschedulable",
    RejectionKind.TAINT: "TaintToleration",
    RejectionKind.NOT_READY: "TaintToleration",
    RejectionKind.SELECTOR: "NodeAffinity",
    RejectionKind.ANTI_AFFINITY: OTHER_PODS,
    RejectionKind.OWN_ANTI_AFFINITY: OTHER_PODS,
    RejectionKind.AFFINITY: OTHER_PODS,
    RejectionKind.SPREAD: OTHER_PODS,
    RejectionKind.VOLUME_AFFINITY: "VolumeBinding",
    RejectionKind.VOLUME_BINDING: "VolumeBinding",
    RejectionKind.VOLUME_SPACE: "VolumeBinding",
    RejectionKind.FEATURE: "NodeDeclaredFeatures",
    RejectionKind.VOLUME_ZONE: "VolumeZone",
    RejectionKind.VOLUME_LIMIT: "NodeVolumeLimits",
    RejectionKind.VOLUME_DRIVER: "NodeVolumeLimits",
    RejectionKind.PORT_CONFLICT: "NodePorts",
    RejectionKind.INSUFFICIENT: FIT,
}


@dataclass(frozen=True, slots=True)
class Opinion:
    """Where a pod may be placed, and how many of the other nodes refuse it for what: a plugin, or a lack (`name_lack`).

    not_supported: what the pod carries that fairbind does not honour; it waits then, whatever the nodes. claim: what it
    waits for of its claims.
    """

    feasible: frozenset[str]
    refused: Mapping[str, int]
    not_supported: str = ""
    claim: str = ""


class Ours:
    """A cache as the operator has it, fed with objects as the API server lists them."""

    def __init__(
        self,
        nodes: Sequence[Json],
        namespaces: Sequence[Json],
        pods: Sequence[Json],
        storage: Mapping[str, Sequence[Json]],
    ) -> None:
        self.cache = ClusterCache("fairbind", lambda: None)
        self.cache.namespaces.replace(map(read_namespace, namespaces))
        self.cache.nodes.replace(map(read_node, nodes))
        self.cache.pods.replace(map(read_pod, pods))
        for resource_type, feed in self.cache.volume_feeds:
            items = storage.get(resource_type.name, ())
            feed.replace([resource_type.decode_item(json.dumps(item).encode()) for item in items])

    def place(self, pod: Json) -> None:
        """Let a pod join that has a node."""
        self.cache.pods.apply(read_pod(pod))

    def wait(self, pod: Json) -> None:
        """Let a pod join that waits."""
        self.cache.pods.apply(read_pod(pod))

    def find_class(self, pod: Json) -> tuple[TaskClass, tuple[str, ...]]:
        """Return the class of a pod that waits alone, and the names of the servers."""
        facts = read_pod(pod)
        self.cache.pods.apply(facts)
        try:
            snapshot = self.cache.build_snapshot()
            found = (each for each in snapshot.task_classes if any(task.uid == facts.uid for task in each.tasks))
            return next(found), snapshot.servers.names
        finally:
            self.cache.pods.delete(facts)

    def judge(self, pod: Json) -> Opinion:
        """Return where the cycle would place a pod that waits alone, and where else if not there."""
        facts = read_pod(pod)
        self.cache.pods.apply(facts)
        try:
            return self._judge(facts.uid)
        finally:
            self.cache.pods.delete(facts)

    def _judge(self, uid: str) -> Opinion:
        snapshot = self.cache.build_snapshot()
        (waiting,) = (each for each in snapshot.task_classes if any(task.uid == uid for task in each.tasks))
        closed: set[str] = set()
        while True:
            report = run_cycle(close(snapshot, waiting, closed), self.cache.settings, 0.0)
            if not report.bindings:
                break
            (bind,) = report.bindings
            closed.add(bind.server)
        (wait,) = report.waits
        if wait.blocked is not None and wait.blocked.kind in CLAIM_KINDS:
            pod = self.cache.find_pod(uid)
            assert pod is not None
            return Opinion(frozenset(closed), {}, claim=pod.unsupported or word_rejection(wait.blocked))
        return Opinion(
            feasible=frozenset(closed),
            refused=count_refusals(wait),
            not_supported=wait.blocked.subject if wait.blocked is not None else "",
        )


def count_refusals(wait: Wait) -> dict[str, int]:
    """Return how many nodes are refused for what. A node that lacks several resources counts for each."""
    counts = Counter[str]()
    for rejection, count in wait.rejections:
        plugin = PLUGINS[rejection.kind]
        counts[name_lack(rejection.subject) if plugin == FIT else plugin] += count
    return dict(counts)


def name_lack(resource: str) -> str:
    """Return what a node counts for that has too little of a resource.

    >>> name_lack("cpu")
    'NodeResourcesFit: cpu'
    """
    return f"{FIT}: {resource}"


def close(snapshot: Snapshot, waiting: TaskClass, closed: set[str]) -> Snapshot:
    """Return the snapshot with this class alone, which may not go to these servers."""
    eligible_k = waiting.placement.eligible_k.copy()
    for index, name in enumerate(snapshot.servers.names):
        if name in closed:
            eligible_k[index] = False
    pin = waiting.pin
    if pin is not None and pin.name in closed:
        pin = replace(pin, server=None)
    alone = replace(waiting, placement=replace(waiting.placement, eligible_k=eligible_k), pin=pin)
    return replace(snapshot, task_classes=(alone,))
