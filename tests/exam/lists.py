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
