"""Which pods behind our gate autoscalers should see next: those that fit nowhere, and that one more node could help.

A node that does not exist yet is of no class, and of no tenant's. So whose pod is next is decided by the tenants'
weighted dominant shares, whatever a policy measures on the nodes that exist; where a policy is not about fairness, by
the pods' age. Each tenant's own order is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from fairbind.cluster.messages import UNSCHEDULABLE, compute_condition_reason
from fairbind.model import Bind, CycleReport, Snapshot, Wait
from fairbind.scheduling import POLICIES


def find_scale_ups(snapshot: Snapshot, report: CycleReport, is_gated: Callable[[str], bool]) -> list[Bind]:
    """Return each tenant's next pod of this kind, the one first that comes first. They have no server.

    snapshot: that of the report. is_gated: whether the pod with this UID waits behind our gate. An incomplete report
    says nothing about what fits, nor does one of a snapshot that does not know of all where they may go.
    """
    if not (report.complete and snapshot.is_current):
        return []
    waits: dict[str, Wait] = {}
    for wait in report.waits:  # by tenant and sort key
        if could_help(wait) and is_gated(wait.first.uid):
            waits.setdefault(wait.task_class.tenant, wait)
    share_of, is_fair = dict(report.weighted_shares), POLICIES[report.policy].is_fair

    def rank(tenant: str) -> tuple[float, str]:
        first = waits[tenant].first
        return (share_of.get(tenant, 0.0), tenant) if is_fair else (first.queue_time, first.uid)

    return [Bind(waits[tenant].first, tenant, "") for tenant in sorted(waits, key=rank)]


def could_help(wait: Wait) -> bool:
    """Whether one more node could help a class. One that names its node itself waits for that node."""
    return compute_condition_reason(wait) == UNSCHEDULABLE and wait.task_class.pin is None
