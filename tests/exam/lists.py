"""Specs that do not pass, and why: a list that `make exam-e2e` holds to be whole, and no longer than it must be."""

from __future__ import annotations

from collections.abc import Mapping

NO_PREEMPTION = "fairbind evicts no pods yet"

EXCEPTIONS: Mapping[str, str] = {
    f"SchedulerPreemption {name}": NO_PREEMPTION
    for name in (
        "validates basic preemption works",
        "validates lower priority pod preemption by critical pod",
        "validates various priority Pods preempt expectedly with the async preemption",
        "validates pod disruption condition is added to the preempted pod",
        "PodTopologySpread Preemption validates proper pods are preempted",
        "PreemptionExecutionPath runs ReplicaSets to verify preemption running path",
    )
}
"""By name: why fairbind does not pass a spec that kube-scheduler passes."""

NEEDS_KUBELET: Mapping[str, str] = {
    "SchedulerPredicates validates pod overhead is considered along with resource limits of pods that are allowed to "
    "run verify pod overhead is accounted for": "it writes a resource into the capacity of a node, and waits for the "
    "kubelet to make it allocatable; kwok leaves both as they are",
}
"""By name: why no scheduler passes a spec on nodes whose kubelets are played."""
