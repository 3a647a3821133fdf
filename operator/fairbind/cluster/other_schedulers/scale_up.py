"""Which pods behind our gate autoscalers should see next: those that fit nowhere, and that one more node could help.

A node that does not exist yet is of no class, and of no tenant's. So whose pod is next is decided by the tenants'
weighted dominant shares, whatever a policy measures on the nodes that exist; where a policy is not about fairness, by
the pods' age. Each tenant's own order is kept. In a tree siblings are compared, by priority first; guarantees are left
out, for they are about nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from fairbind.cluster.messages import UNSCHEDULABLE, compute_condition_reason
from fairbind.model import Bind, CycleReport, Snapshot, Tenant, Wait
from fairbind.scheduling import POLICIES
from fairbind.scheduling.policies.levels import compute_progress


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
    if POLICIES[report.policy].is_fair:
        order = sorted(waits, key=_Ranks(snapshot, report).find)
    else:
        order = sorted(waits, key=lambda tenant: (waits[tenant].first.queue_time, waits[tenant].first.uid))
    return [Bind(waits[tenant].first, tenant, "") for tenant in order]


class _Ranks:
    """Ranks of leaves after a cycle; the shares of inner tenants are of before its decisions."""

    def __init__(self, snapshot: Snapshot, report: CycleReport) -> None:
        self._snapshot = snapshot
        self._share_of = dict(report.weighted_shares)
        self._inner_shares: dict[str, float] = {}

    def find(self, leaf: str) -> tuple[tuple[int, float, str], ...]:
        """Return priority (negated), share and name of each tenant on the path to a leaf, the root's child first."""
        hierarchy = self._snapshot.hierarchy
        own = -hierarchy.get_place(leaf).priority, self._share_of.get(leaf, 0.0), leaf
        above = [
            (-each.place.priority, self._find_inner_share(each.tenant), each.tenant.name)
            for each in hierarchy.list_above(leaf)
        ]
        return (*reversed(above), own)

    def _find_inner_share(self, tenant: Tenant) -> float:
        if tenant.name not in self._inner_shares:
            progress = compute_progress(tenant, self._snapshot)
            self._inner_shares[tenant.name] = progress.compute_share(self._snapshot.total_r)
        return self._inner_shares[tenant.name]


def could_help(wait: Wait) -> bool:
    """Whether one more node could help a class. One that names its node itself waits for that node.

    Nor does the gate of one pod of a group open of which more are lacking: it would be placed without the others.
    """
    task_class, group = wait.task_class, wait.task_class.group
    is_alone = task_class.pin is None and (group is None or group.lacking == 1)
    return is_alone and compute_condition_reason(wait) == UNSCHEDULABLE
