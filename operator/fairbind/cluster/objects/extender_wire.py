"""The extender protocol of kube-scheduler, as far as it matters: `k8s.io/kube-scheduler/extender/v1`.

Keys are the names of Go's fields. Only names of nodes travel (`nodeCacheCapable: true`). Fields that are not listed
here are skipped when a request is read.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Identity(msgspec.Struct):
    """What tells a pod from others."""

    uid: str = ""
    namespace: str = ""
    name: str = ""


class AskedPod(msgspec.Struct):
    """The pod that kube-scheduler would place."""

    metadata: Identity


class ExtenderArgs(msgspec.Struct):
    """What filter and prioritize are asked. NodeNames: those that passed so far; None without `nodeCacheCapable`."""

    Pod: AskedPod
    NodeNames: list[str] | None = None


class ExtenderFilterResult(msgspec.Struct):
    """What filter answers. FailedNodes: why, by node. FailedAndUnresolvableNodes: the same where no eviction helps."""

    NodeNames: list[str]
    FailedNodes: dict[str, str]
    FailedAndUnresolvableNodes: dict[str, str]
    Error: str = ""


class HostPriority(msgspec.Struct):
    """What prioritize says of a node. Score: 0 to 10."""

    Host: str
    Score: int


class ExtenderBindingArgs(msgspec.Struct):
    """What bind is asked."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class ExtenderBindingResult(msgspec.Struct):
    """What bind answers: why the pod is not bound, or nothing."""

    Error: str = ""


class MetaPod(msgspec.Struct):
    """A pod that kube-scheduler would evict."""

    UID: str


class MetaVictims(msgspec.Struct):
    """Those of one node."""

    Pods: list[MetaPod] | None = None
    NumPDBViolations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct):
    """What preempt is asked. NodeNameToMetaVictims: None without `nodeCacheCapable`."""

    Pod: AskedPod
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(msgspec.Struct):
    """What preempt answers: the nodes where the evictions may happen."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class ErrorResult(msgspec.Struct):
    """An answer that only says what is wrong."""

    Error: str


def encode(answer: Any) -> bytes:
    """Return an answer as JSON."""
    return msgspec.json.encode(answer)
