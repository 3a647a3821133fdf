"""Groups of pods that are placed together: all of them, by "namespace/name", with the objects that describe them.

An event updates the counts of a group at once. Its waiting members are updated when the next snapshot is made, once for
each group however many members came: see `take_changes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping

from fairbind.cluster.objects.facts import Amounts, Demand, PodFacts
from fairbind.cluster.objects.group_facts import JobFacts, PodGroupFacts
from fairbind.cluster.objects.group_marks import ALL, GroupFormat, GroupMark, make_mark
from fairbind.cluster.objects.quota_facts import QuotaFacts
from fairbind.cluster.objects.task_names import make_task_name
from fairbind.cluster.state.group_members import (
    NO_GROUP,
    PLACED,
    Group,
    Likeness,
    Member,
    Stage,
    Standing,
    find_standing,
    find_topology,
)
from fairbind.cluster.state.kept_places import KeptPlaces
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.positions import Bound, Idle, Opened, Position, Waiting
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.quotas import Quotas
from fairbind.cluster.state.undoing import Undoing, word_late
from fairbind.derived import Rotation
from fairbind.model import Domains

JOB = "Job"


class Groups:
    """See the module.

    ignored: schedulers that place groups themselves. jobs: those whose pods are groups, by "namespace/name".
    pod_groups: all, by format and name. quotas: what may refuse pods that a group lacks. kept: places of lost members.
    undoing: groups that cannot be completed. _lost: the groups of placed members that are lost, and whose places are to
    be kept once they are free, by UID. _losing: how many of a group. _group_of: of members, by UID. _finished_of: of
    pods that succeeded. _followed: groups of which something is to be done. _jobs: those whose pods must be looked at.
    """

    def __init__(
        self,
        ignored: Container[str],
        find_domains: Callable[[str], Domains],
        reserve: Callable[[str, Amounts, int], None],
        kept_seconds: float,
    ) -> None:
        self.kept = KeptPlaces(reserve, kept_seconds)
        self.undoing = Undoing()
        self._ignored = ignored
        self._find_domains = find_domains
        self.by_key: dict[str, Group] = {}
        self.jobs: dict[str, JobFacts] = {}
        self.quotas = Quotas()
        self.pod_groups: dict[GroupFormat, dict[str, PodGroupFacts]] = {kind: {} for kind in GroupFormat}
        self._group_of: dict[str, str] = {}
        self._finished_of: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._losing = Counter[str]()
        self._followed = Rotation[str]()
        self._jobs = Rotation[str]()

    # --- pods ---

    def find_mark(self, facts: PodFacts) -> GroupMark | None:
        """Return what a pod, or its Job, says about its group; None: it is in none that we place."""
        if facts.scheduler in self._ignored:
            return None
        mark, owner = facts.group, facts.owner
        if owner is None or owner.kind != JOB or (mark is not None and mark.format is not GroupFormat.JOB):
            return mark
        job = self.jobs.get(make_task_name(facts.namespace, owner.name))
        if job is None or job.mark is None or job.uid != owner.uid:
            return mark
        own = job.mark
        if own.size != ALL:
            return own
        return make_mark(own.format, own.name, own.role, job.parallelism, own.is_once, own.topology)

    def find_place(self, facts: PodFacts) -> tuple[str | None, str, float]:
        """Return the key of a pod's group, its role in it, and since when it counts as waiting. None: it is in none."""
        mark, queue_time = self.find_mark(facts), facts.created
        if mark is None:
            return None, "", queue_time
        key = make_task_name(facts.namespace, mark.name)
        group = self.by_key.get(key)
        if group is not None:
            queue_time = min(group.queue_time, queue_time) if group.pod_group is None else group.queue_time
        return key, mark.role, queue_time

    def follow(self, facts: PodFacts, before: Position | None, position: Position | None) -> None:
        """Take a pod as it is now. before: where it stood."""
        mark = self.find_mark(facts)
        if mark is None and facts.uid not in self._group_of:
            return
        key = None if mark is None else make_task_name(facts.namespace, mark.name)
        member = None if mark is None else _make_member(facts, mark, position)
        known, known_member = self._group_of.get(facts.uid), None
        if known is not None:
            known_member = self.by_key[known].members[facts.uid]
            if known == key and known_member == member:
                return
            if known == key and member is not None:
                self._take_out(facts.uid, known)  # the group stays, also when there is no other member
            else:
                self._lose(facts.uid, known, is_freed=isinstance(position, Bound))
        if key is not None and member is not None:
            group = self._get(key)
            if known is None and isinstance(before, Bound) and not group.past.stood:
                group.past.stood = -1
            if known is None and member.stage is Stage.BOUND:
                group.past.is_seen = False
            group.add(facts.uid, member)
            self._group_of[facts.uid] = key
            self._note_change(key)
            if member.stage in PLACED and (known_member is None or known_member.stage is not member.stage):
                self._note_placed(group, facts.uid, member)
        if known is not None and known_member is not None and not isinstance(position, Bound):
            self._keep_decided(known, facts.uid, known_member)

    def drop(self, uid: str) -> None:
        """Let a pod go that is no more."""
        key = self._group_of.get(uid)
        if key is not None:
            member = self.by_key[key].members[uid]
            self._lose(uid, key, is_freed=True)
            self._keep_decided(key, uid, member)

    def _lose(self, uid: str, key: str, *, is_freed: bool) -> None:
        """Let a member go. is_freed: whether `free_place` follows if it is on a node."""
        group = self.by_key[key]
        if is_freed and group.members[uid].stage is Stage.BOUND and uid not in self._finished_of:
            self._lost[uid] = key
            self._losing[key] += 1
        self._take_out(uid, key)
        self._note_less(key)

    def _take_out(self, uid: str, key: str) -> None:
        del self._group_of[uid]
        self.by_key[key].remove(uid)

    def free_place(self, uid: str, leaf: str | None, node: str, demand: Demand) -> None:
        """Note that a pod holds nothing any more on its node; if its group has lost it, its place is kept."""
        key = self._lost.pop(uid, None)
        if key is None:
            return
        self._losing[key] -= 1
        if not self._losing[key]:
            del self._losing[key]
        # LeaderWorkerSet creates another PodGroup after the first loss; that one has not stood yet at the next.
        if leaf is not None and (self.by_key[key].is_whole or self.kept.count(key)):
            self.kept.keep(key, leaf, node, demand.real)
        elif leaf is not None:
            self._keep_failed(key, uid, leaf, node, demand.real)
        self._note_less(key)

    def _note_placed(self, group: Group, uid: str, member: Member) -> None:
        """Note which place a member will use, or give it up for one that is bound.

        For one that had none another place is given up, unless the group lacks members for all of them.
        """
        if member.stage is Stage.ASSUMED:
            self.kept.take(group.key, member.node, uid)
            return
        if kept := self.kept.count(group.key):
            minimum = group.find_minimum()
            is_over = minimum is None or kept > group.find_lacking(minimum, (Stage.BOUND,))[0]
            self.kept.use(group.key, uid, member.node, is_over=is_over)

    def _keep_decided(self, key: str, uid: str, member: Member) -> None:
        """Keep the place of a member that was to go there and does not, or no more, as one that was kept before is."""
        if self.kept.leave(key, uid):
            return
        if member.stage is Stage.ASSUMED and member.node is not None and member.likeness.tenant is not None:
            self._keep_failed(key, uid, member.likeness.tenant, member.node, member.amounts)

    def _keep_failed(self, key: str, uid: str, leaf: str, node: str, amounts: Amounts) -> None:
        """Keep the place of a pod for a group that has begun and cannot stand without, once for each pod."""
        group, kept = self.by_key.get(key), self.kept.count(key)
        minimum = None if group is None else group.find_minimum()
        if group is None or minimum is None or group.past.has_waited or not group.has_begun(minimum, kept):
            return
        if kept < group.find_lacking(minimum, (Stage.BOUND,))[0] and not self.kept.has_failed(key, uid):
            self.kept.keep(key, leaf, node, amounts, failed=uid)

    def advance(self, now: float) -> None:
        """Give up places that were kept for too long, and find out which groups are late.

        now: of a clock that never goes back.
        """
        for key in self.kept.advance(now):
            group = self.by_key.get(key)
            if group is not None:
                group.past.has_waited = not group.is_whole
            self._note_less(key)
        self._followed.add(self.undoing.advance(now, self._is_torn))

    def finish(self, facts: PodFacts) -> None:
        """Note that a pod has ended; it counts on when it succeeded."""
        mark = self.find_mark(facts)
        if mark is None or not facts.succeeded:
            return
        key = make_task_name(facts.namespace, mark.name)
        if facts.uid not in self._finished_of:
            self._finished_of[facts.uid] = key
            if (known := self._group_of.get(facts.uid)) is not None:
                self._take_out(facts.uid, known)  # else it would count twice
            self._get(key).finish(facts.uid, mark.role)
            self._note_change(key)

    def forget_finished(self, uid: str) -> None:
        """Note that a pod is not there any more, which may have succeeded."""
        key = self._finished_of.pop(uid, None)
        group = None if key is None else self.by_key.get(key)
        if key is not None and group is not None and uid in group.finished:
            group.finished.discard(uid)
            self._note_less(key)

    @property
    def finished(self) -> Collection[str]:
        """The UIDs of all pods that succeeded and are there still."""
        return self._finished_of.keys()

    # --- PodGroups and Jobs ---

    def put_pod_group(self, kind: GroupFormat, key: str, facts: PodGroupFacts | None) -> None:
        """Take a PodGroup, new or changed; None: it is gone."""
        if facts is None:
            del self.pod_groups[kind][key]
        else:
            self.pod_groups[kind][key] = facts
        self._get(key).set_pod_group(kind, facts)
        self._note_less(key)

    def put_job(self, key: str, facts: JobFacts | None) -> None:
        """Take a Job, new or changed; None: it is gone, or says nothing of a group."""
        if facts is None:
            del self.jobs[key]
        else:
            self.jobs[key] = facts
        self._jobs.add([key])

    def put_quota(self, key: str, facts: QuotaFacts | None) -> bool:
        """Take a quota, new or changed; None: it is gone. Return whether groups that lack pods are to hear of it."""
        short = self.quotas.put(key, facts)
        for each in short:
            self._note_change(each)
        return bool(short)

    # --- queues ---

    def add_queue(self, key: QueueKey) -> None:
        """Note that members wait in a queue."""
        if key.group is not None:
            self._get(key.group).queues[key] = None

    def remove_queue(self, key: QueueKey) -> None:
        """Note that a queue is no more."""
        if key.group is not None:
            del self.by_key[key.group].queues[key]
            self._note_less(key.group)

    # --- what follows ---

    @property
    def has_changed(self) -> bool:
        """Whether waiting pods must be looked at because of others of their groups."""
        return bool(self._followed or self._jobs)

    def take_jobs(self) -> Mapping[str, set[str]]:
        """Return the names of the Jobs whose pods must be looked at, by namespace; asked again, there are none."""
        found: dict[str, set[str]] = {}
        for key in self._jobs.take_all():
            namespace, _, name = key.partition("/")
            found.setdefault(namespace, set()).add(name)
        return found

    def take_reordered(self) -> Iterator[str]:
        """Yield the members that must be looked at because their group's queue time is another."""
        for key in self._followed:
            group = self.by_key.get(key)
            if group is not None and group.is_reordered:
                group.is_reordered = False
                yield from list(group.members)

    def take_changes(self) -> Iterator[QueueKey]:
        """Yield the queues of all groups in which something happened; asked again, there are none."""
        for key in self._followed.take_all():
            group = self.by_key.get(key)
            if group is not None:
                if group.stands:
                    self.kept.end(key)
                elif not (group.count(*PLACED) or group.count_finished()):
                    self.kept.end(key, only_failed=True)
                yield from group.queues

    def find_standing(self, key: str | None, servers: Servers) -> Standing:
        """Return what the waiting members of a group are told. None: they are in no group."""
        group = None if key is None else self.by_key.get(key)
        if group is None:
            return NO_GROUP
        late = word_late(group.count(Stage.BOUND), self.undoing.rule) if self.undoing.is_late(group.key) else ""
        refusing = (
            self.quotas.find(group.key, [each.demand.real for each in group.queues]) if group.find_missing() else ""
        )
        note = "; ".join(filter(None, (refusing, late)))
        kept = self.kept.count(group.key)
        return find_standing(group, kept, servers.axes, servers.index, self._find_domains, note)

    def has_topology(self, key: str | None) -> bool:
        """Whether labels of nodes say where a group may go. None: no group."""
        group = None if key is None else self.by_key.get(key)
        return group is not None and find_topology(group) is not None

    def copy_objects(self, other: Groups) -> None:
        """Take over what cannot be seen from pods: PodGroups, Jobs, quotas, and what became of pods that ended."""
        for kind, objects in other.pod_groups.items():
            for key, pod_group in objects.items():
                self.put_pod_group(kind, key, pod_group)
        for key, job in other.jobs.items():
            self.put_job(key, job)
        for key, quota in other.quotas.by_key.items():
            self.put_quota(key, quota)
        for key, group in other.by_key.items():
            self._get(key).copy_past(group)
        self._finished_of = dict(other._finished_of)

    def copy_lost(self, other: Groups) -> None:
        """Take over what became of members that were lost, and which groups are late; all others are here."""
        self._lost, self._losing = dict(other._lost), Counter(other._losing)
        self.kept.copy(other.kept)
        self.undoing.copy(other.undoing)

    def describe(self) -> Mapping[str, object]:
        """Return what is known of each group, as values that can be compared."""
        return {
            key: (group.stages.counts, group.marks.counts, group.nodes.counts, group.ended, group.past.stood)
            for key, group in self.by_key.items()
            if not group.is_empty
        }

    def _get(self, key: str) -> Group:
        group = self.by_key.get(key)
        if group is None:
            group = self.by_key[key] = Group(key)
        return group

    def _is_torn(self, key: str) -> bool:
        group = self.by_key.get(key)
        return group is not None and group.is_torn and not (self.kept.count(key) or key in self._losing)

    def _note_change(self, key: str) -> None:
        self._followed.add([key])
        self.undoing.note_change(key)

    def _note_less(self, key: str) -> None:
        self._note_change(key)
        group = self.by_key.get(key)
        if group is not None and group.is_empty and not (self.kept.count(key) or key in self._losing):
            del self.by_key[key]
            self.quotas.forget(key)


def _make_member(facts: PodFacts, mark: GroupMark, position: Position | None) -> Member | None:
    """Return a pod as a member of its group; None: it is none any more."""
    if facts.terminating or facts.finished:
        return None
    stage, node, tenant = Stage.HELD, None, None
    if isinstance(position, Waiting):
        tenant = position.key.tenant
        stage = Stage.READY if position.key.unsupported is None else Stage.HELD
    elif isinstance(position, Bound | Opened | Idle):
        tenant = position.tenant
    if isinstance(position, Bound):
        stage, node = Stage.ASSUMED if facts.node is None else Stage.BOUND, position.node
    elif isinstance(position, Opened):
        stage = Stage.ASSUMED
    preemption = mark.preemption if mark.format is GroupFormat.NATIVE else ""
    likeness = Likeness(facts.scheduler, facts.priority, preemption, tenant)
    return Member(mark, stage, facts.created, likeness, node, facts.demand.real)
