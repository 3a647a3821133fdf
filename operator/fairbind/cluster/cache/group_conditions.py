"""Conditions that PodGroups of Kubernetes should have about their placement: `PodGroupInitiallyScheduled`.

It is True as soon as the minimum stood once, or a pod of a group without a minimum is on a node, and stays so. Until
then it is False with the reason Unschedulable, or SchedulerError where members differ that may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.messages import SCHEDULER_ERROR, UNSCHEDULABLE, compute_gist, format_unschedulable
from fairbind.cluster.objects.group_facts import PodGroupFacts
from fairbind.cluster.objects.group_marks import GroupFormat
from fairbind.cluster.state.group_members import Group
from fairbind.model import Wait

SCHEDULED = "Scheduled"


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """The condition that a PodGroup should have. generation: of its spec; 0: the API server counts none."""

    namespace: str
    name: str
    uid: str
    is_scheduled: bool
    reason: str
    message: str
    generation: int

    @property
    def gist(self) -> tuple[str, bool, str, str, int]:
        """All that two conditions must share to say the same, whatever the numbers are."""
        return self.uid, self.is_scheduled, self.reason, compute_gist(self.message), self.generation


@dataclass(frozen=True, slots=True)
class AwaitedGroup:
    """A PodGroup of Volcano whose Job makes no pods until its phase is another one."""

    namespace: str
    name: str
    uid: str


def list_awaited_groups(state: ClusterState) -> Iterator[AwaitedGroup]:
    """Yield the PodGroups for whose phase a Job of Volcano waits, sorted by namespace and name."""
    for _, facts in sorted(state.groups.pod_groups[GroupFormat.VOLCANO].items()):
        if facts.is_awaited:
            yield AwaitedGroup(facts.namespace, facts.name, facts.uid)


def list_group_conditions(state: ClusterState) -> Iterator[GroupCondition]:
    """Yield what native PodGroups should say and do not, sorted by namespace and name."""
    waits = _find_waits(state)
    for key, facts in sorted(state.groups.pod_groups[GroupFormat.NATIVE].items()):
        group = state.groups.by_key.get(key)
        if group is None or facts.is_scheduled or not _is_ours(group, state.schedulers.own):
            continue
        wanted = _find_condition(state, group, facts, waits)
        if wanted is not None and wanted.gist != _find_said(facts, wanted):
            yield wanted


def _find_said(facts: PodGroupFacts, wanted: GroupCondition) -> tuple[str, bool, str, str, int] | None:
    if facts.said is None:
        return None
    status, reason, message = facts.said
    return facts.uid, status == "True", reason, compute_gist(message), wanted.generation


def _is_ours(group: Group, scheduler_name: str) -> bool:
    """Tell whether we place its pods, or placed those that ended: another scheduler writes about others."""
    schedulers = {likeness.scheduler for _, likeness in group.kinds.counts} or {group.past.scheduler}
    return scheduler_name in schedulers


def _find_condition(
    state: ClusterState, group: Group, facts: PodGroupFacts, waits: Mapping[str, Wait]
) -> GroupCondition | None:
    """Return what a PodGroup should say; None: nothing is known yet."""
    who = facts.namespace, facts.name, facts.uid
    if group.is_whole or (facts.minimum == 0 and group.has_bound):
        words = "the minimum is placed" if facts.minimum else "a pod of the group is placed"
        return GroupCondition(*who, True, SCHEDULED, words, facts.generation)
    blocked = state.groups.find_standing(group.key, state.servers).blocked
    if blocked is not None:
        is_error = SCHEDULER_ERROR in blocked.subject
        return GroupCondition(
            *who, False, SCHEDULER_ERROR if is_error else UNSCHEDULABLE, blocked.subject, facts.generation
        )
    wait = waits.get(group.key)
    if wait is None:
        return None
    message = format_unschedulable(wait, len(state.servers.names), shows_others=False)
    return GroupCondition(*who, False, UNSCHEDULABLE, message, facts.generation)


def _find_waits(state: ClusterState) -> dict[str, Wait]:
    """Return why pods of groups wait, as the last cycle saw it, by group."""
    found: dict[str, Wait] = {}
    for wait in state.policy.waits if state.groups.pod_groups[GroupFormat.NATIVE] else ():
        key = state.find_queue(wait.first.uid)
        if key is not None and key.group is not None:
            found.setdefault(key.group, wait)
    return found
