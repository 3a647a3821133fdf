"""Which members of late groups are to be evicted: those on nodes, while the rest of the minimum is not on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.state.group_members import Group, Stage
from fairbind.cluster.state.positions import Bound
from fairbind.cluster.tenancy.users import find_tenant_of_leaf


@dataclass(frozen=True, slots=True)
class MemberEviction:
    """A pod that is to be evicted. group: its own, which has so many members on nodes, below its minimum."""

    namespace: str
    name: str
    uid: str
    tenant: str
    group: str
    bound: int
    minimum: int


class GroupEvictions:
    """See the module; it asks the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def list_due(self) -> Iterator[MemberEviction]:
        """Yield the members to evict, those first whose group is late for longest; none unless the rule says so."""
        groups = self._state.groups
        for key in groups.undoing.late if groups.undoing.rule.evicts else ():
            group = groups.by_key.get(key)
            if group is None or not _is_stuck(group):
                continue
            for uid, member in sorted(group.members.items()):
                eviction = _make(self._state, uid, group) if member.stage is Stage.BOUND else None
                if eviction is not None:
                    yield eviction

    def is_due(self, eviction: MemberEviction) -> bool:
        """Tell whether a member is to be evicted still; the group may have become whole since."""
        groups = self._state.groups
        group = groups.by_key.get(eviction.group)
        if group is None or not groups.undoing.is_late(eviction.group) or not _is_stuck(group):
            return False
        member = group.members.get(eviction.uid)
        return member is not None and member.stage is Stage.BOUND


def _is_stuck(group: Group) -> bool:
    """Tell whether a group is below its minimum now, also with what is on its way."""
    minimum = group.find_minimum() if group.is_torn else None
    return minimum is not None and group.find_lacking(minimum)[0] > 0


def _make(state: ClusterState, uid: str, group: Group) -> MemberEviction | None:
    """Return the eviction of a pod on a node; None: it is the system's, or we do not say when it starts."""
    entry = state.pods.entries.get(uid)
    if entry is None or not isinstance(entry.position, Bound) or entry.position.tenant is None:
        return None
    facts, tenant = entry.facts, find_tenant_of_leaf(entry.position.tenant)
    is_ours = facts.scheduler in {state.schedulers.own, state.schedulers.gated}
    if not is_ours or state.directory.is_of_cluster(facts.namespace):
        return None
    bound, minimum = group.count(Stage.BOUND), group.find_minimum() or 0
    return MemberEviction(facts.namespace, facts.name, uid, tenant, group.key, bound, minimum)
