"""Specs that do not pass, and why: a list that `make exam-e2e` holds to be whole, and no longer than it must be."""

from __future__ import annotations

from collections.abc import Mapping

NO_PREEMPTION = "fairbind evicts no pods yet"

GROUPS = "WorkloadAwarePreemption workload-aware preemption should preempt"

EXCEPTIONS: Mapping[str, str] = dict.fromkeys(
    (
        "SchedulerPreemption validates basic preemption works",
        "SchedulerPreemption validates lower priority pod preemption by critical pod",
        "SchedulerPreemption validates various priority Pods preempt expectedly with the async preemption",
        "SchedulerPreemption validates pod disruption condition is added to the preempted pod",
        "SchedulerPreemption PodTopologySpread Preemption validates proper pods are preempted",
        "SchedulerPreemption PreemptionExecutionPath runs ReplicaSets to verify preemption running path",
        f"{GROUPS} entire group with All disruption mode by a pod group",
        f"{GROUPS} partial group with Single disruption mode by a pod group",
        f"{GROUPS} partial group with Single disruption mode by an individual pod",
    ),
    NO_PREEMPTION,
)
"""By name: why fairbind does not pass a spec that kube-scheduler passes."""
