"""One group of pods: which of them wait, are placed or have ended, in counts that each event changes by one.

Groups have thousands of members that come one by one, so nothing here looks at all of them when one of them changes.
Members that succeeded count towards the minimum from then on, also when their pods are deleted. Members that failed or
were deleted are lost, and so are those that are being deleted: others are made in their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import inf
from typing import Generic, NamedTuple, TypeVar

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.group_facts import PodGroupFacts
from fairbind.cluster.objects.group_marks import ALL, POD_GROUP_FORMATS, GroupFormat, GroupMark, TopologyKey
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.model import NO_DOMAIN, Domains, GroupTopology, Rejection, RejectionKind, TaskGroup

Key = TypeVar("Key", bound=Hashable)


class Stage(IntEnum):
    """How far a member is."""

    HELD = 0
    """It may not be placed now, for a reason of its own."""
    READY = 1
    """It may be placed with the others."""
    ASSUMED = 2
    """We have decided where it goes."""
    BOUND = 3
    """It is on a node."""


PLACED = (Stage.ASSUMED, Stage.BOUND)


class Likeness(NamedTuple):
    """What members that are placed together must have in common. preemption: of native groups, else empty."""

    scheduler: str
    priority: int
    preemption: str
    tenant: str | None


LIKENESS_WORDS = ("schedulerName", "priority", "preemptionPolicy", "tenant")


class Member(NamedTuple):
    """A pod of a group. node: where it is, or will be. amounts: what it takes of a node."""

    mark: GroupMark
    stage: Stage
    created: float
    likeness: Likeness
    node: str | None
    amounts: Amounts


class Standing(NamedTuple):
    """What a class of waiting members is told. blocked: why none may be placed. group: what they are placed with.

    With neither, each is placed by itself. beside: where they must be: the domains, and a node of the right one.
    """

    blocked: Rejection | None = None
    group: TaskGroup | None = None
    beside: tuple[Domains, str] | None = None


NO_GROUP = Standing()


class Tally(Generic[Key]):
    """Keeps counts; what has fallen to none is not in them."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {}

    def add(self, key: Key, sign: int = 1) -> None:
        """Count one more, or one less."""
        count = self.counts.get(key, 0) + sign
        if count:
            self.counts[key] = count
        else:
            del self.counts[key]


@dataclass(slots=True)
class Past:
    """What a group was, which cannot be seen from what is there now.

    stood: the largest minimum that stood, as the API server says it; 0: none yet; below 0: members were placed before
    they were a group, so they do not show that it has begun. largest: the most that one member on a node took, by
    resource. is_seen: whether no member was on a node already when it was seen first. has_waited: whether places were
    kept in vain for members whose bindings failed, for as long as may be. scheduler, size: of the last member that
    came, also when it has ended; size: what it says of the minimum.
    """

    stood: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    is_seen: bool = True
    has_waited: bool = False
    scheduler: str = ""
    size: int | None = None


class Group:
    """See the module.

    key: "namespace/name". members: by UID. stages: how many are so far, by role. finished: the UIDs of pods that
    succeeded and are there still. ended: how many have, by role. marks: what members say, whatever their roles are.
    kinds: whether they are placed, and what those who are placed together have in common. nodes: where placed ones are.
    created: when members were. pod_groups: those of its name, by format. past: what it was before. queues: of its
    waiting members. is_reordered: whether members do not wait since its queue time any more.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.members: dict[str, Member] = {}
        self.finished: set[str] = set()
        self.ended = Counter[str]()
        self.pod_groups: dict[GroupFormat, PodGroupFacts] = {}
        self.queues: dict[QueueKey, None] = {}
        self.past = Past()
        self.is_reordered = False
        self.stages = Tally[tuple[str | None, Stage]]()
        self.marks = Tally[GroupMark]()
        self.kinds = Tally[tuple[bool, Likeness]]()
        self.nodes = Tally[str]()
        self.created = Tally[float]()
        self._oldest = inf
        self._uids: dict[GroupFormat, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing belongs to it any more."""
        return not (self.members or self.finished or self.pod_groups or self.queues)

    @property
    def is_whole(self) -> bool:
        """Whether some minimum stood once."""
        return self.past.stood > 0

    @property
    def has_bound(self) -> bool:
        """Whether some member is on a node, or was and succeeded."""
        return self.count(Stage.BOUND) + self.count_finished() > 0

    @property
    def stands(self) -> bool:
        """Whether its minimum is there, as the API server says it."""
        minimum = self.find_minimum() if self.members else None
        return minimum is not None and not self.find_lacking(minimum, (Stage.BOUND,))[0]

    @property
    def is_torn(self) -> bool:
        """Whether members are on nodes, its minimum is not there, and surely never was."""
        if self.past.stood or not self.past.is_seen or not self.count(Stage.BOUND):
            return False
        return self.find_minimum() is not None and not self.stands

    def has_begun(self, minimum: int, kept: int) -> bool:
        """Whether this minimum stood, or some of it is placed. One that is raised is for the order of shares.

        So are successors that ask for more than any member took: a tenant would get past all others by them.
        kept: for so many lost members places are kept.
        """
        if self.is_whole and self._asks_for_more():
            return False
        there = self.count(*PLACED) + self.count_finished()
        return there + kept >= minimum or (there > 0 and (self.past.stood == 0 or minimum <= self.past.stood))

    @property
    def pod_group(self) -> PodGroupFacts | None:
        """The PodGroup that counts, or None."""
        return next((found for kind in POD_GROUP_FORMATS if (found := self.pod_groups.get(kind)) is not None), None)

    @property
    def queue_time(self) -> float:
        """Since when all its members count as waiting."""
        pod_group = self.pod_group
        return self._oldest if pod_group is None else pod_group.created

    def add(self, uid: str, member: Member) -> None:
        """Take a member."""
        self.members[uid] = member
        self.past.scheduler, self.past.size = member.likeness.scheduler, member.mark.size
        self._count(member, 1)
        if member.created < self._oldest:
            self.is_reordered |= self.pod_group is None and self._oldest < inf
            self._oldest = member.created
        if member.stage is Stage.BOUND:
            for resource, amount in member.amounts:
                self.past.largest[resource] = max(amount, self.past.largest.get(resource, 0))
            self._note_whole()

    def remove(self, uid: str) -> None:
        """Let a member go."""
        member = self.members.pop(uid)
        self._count(member, -1)
        if member.created == self._oldest and member.created not in self.created.counts:
            self._oldest = min(self.created.counts, default=inf)
            self.is_reordered |= self.pod_group is None

    def finish(self, uid: str, role: str) -> None:
        """Note that a member succeeded; it counts on when it is not there any more."""
        self.finished.add(uid)
        self.ended[role] += 1
        self._note_whole()

    def set_pod_group(self, kind: GroupFormat, facts: PodGroupFacts | None) -> None:
        """Take a PodGroup, new or changed; None: it is gone. Another one of the name begins without a past."""
        queue_time = self.queue_time
        self.pod_groups.pop(kind, None)
        if facts is not None:
            if self._uids.setdefault(kind, facts.uid) != facts.uid:
                self.finished.clear()
                self.ended.clear()
                self.past = Past(is_seen=not self.count(Stage.BOUND))
            self.pod_groups[kind], self._uids[kind] = facts, facts.uid
        if facts is not None and facts.is_scheduled and self.past.stood <= 0:
            self.past.stood = facts.minimum
        self.is_reordered |= bool(self.members) and queue_time != self.queue_time
        self._note_whole()

    def copy_past(self, other: Group) -> None:
        """Take over what cannot be seen from what is there now."""
        self.finished, self.ended = set(other.finished), Counter(other.ended)
        self.past = replace(other.past, largest=dict(other.past.largest))

    def count(self, *stages: Stage, role: str | None = None) -> int:
        """Return how many members are so far. role: of this role; None: of all."""
        return sum(self.stages.counts.get((role, stage), 0) for stage in stages)

    def count_finished(self, role: str | None = None) -> int:
        """Return how many members have succeeded. role: of this role; None: of all."""
        return self.ended.total() if role is None else self.ended[role]

    def find_minimum(self) -> int | None:
        """Return how many members must be placed together; 0: none; None: what says it is not there."""
        if self.pod_group is not None:
            return self.pod_group.minimum
        if any(mark.has_pod_group for mark in self.marks.counts):
            return None
        sizes = [mark.size or 0 for mark in self.marks.counts] or [self.past.size or 0]
        return None if ALL in sizes else max(sizes)

    def find_lacking(self, minimum: int, placed: tuple[Stage, ...] = PLACED) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Return how many members must be placed now for the minimum to stand, and so many at least of which role.

        placed: how far those are that count.
        """
        roles = () if self.pod_group is None else self.pod_group.roles
        of_role = tuple(
            (role, lacking)
            for role, least in roles
            if (lacking := least - self.count(*placed, role=role) - self.count_finished(role)) > 0
        )
        lacking = minimum - self.count(*placed) - self.count_finished()
        return max(lacking, sum(lacking for _, lacking in of_role), 0), of_role

    def find_missing(self) -> str:
        """Return the words for pods that its minimum needs and that do not exist, or ""."""
        minimum = self.find_minimum() or 0
        existing = len(self.members) + self.count_finished()
        if existing < minimum:
            return f"{existing} of {minimum} pods exist"
        for role, least in () if self.pod_group is None else self.pod_group.roles:
            there = self.count(*Stage, role=role) + self.count_finished(role)
            if there < least:
                return f"{there} of {least} pods of role {role} exist"
        return ""

    def _asks_for_more(self) -> bool:
        """Whether a waiting member asks for more of something than any member on a node took."""
        asked = (pair for key in self.queues for pair in key.demand.real)
        return any(amount > self.past.largest.get(resource, 0) for resource, amount in asked)

    def _note_whole(self) -> None:
        """Note when the minimum stands, as the API server says it."""
        minimum = self.find_minimum() if self.count(Stage.BOUND) else None
        if minimum is not None and minimum > self.past.stood and self.find_lacking(minimum, (Stage.BOUND,))[0] == 0:
            self.past.stood, self.past.has_waited = minimum, False

    def _count(self, member: Member, sign: int) -> None:
        is_placed = member.stage in PLACED
        self.stages.add((member.mark.role, member.stage), sign)
        self.stages.add((None, member.stage), sign)
        self.marks.add(member.mark if not member.mark.role else replace(member.mark, role=""), sign)
        self.kinds.add((is_placed, member.likeness), sign)
        self.created.add(member.created, sign)
        if member.node is not None:
            self.nodes.add(member.node, sign)


def find_standing(
    group: Group,
    kept: int,
    axes: Axes,
    index: Mapping[str, int],
    find_domains: Callable[[str], Domains],
    note: str = "",
) -> Standing:
    """Return what the waiting members of a group are told.

    kept: for so many lost members places are kept. index: of servers, by name. find_domains: returns those of a
    topology key. note: what they are told beside the reason.
    """
    minimum = group.find_minimum()
    if minimum is None:
        return Standing(_reject(_word_missing(group)))
    topology = find_topology(group)
    beside = _find_beside(group, topology, find_domains)
    if minimum == 0:
        return Standing(beside=beside)
    lacking, of_role = group.find_lacking(minimum)
    is_once = any(mark.is_once for mark in group.marks.counts)
    if lacking == 0 or (is_once and group.is_whole):
        return Standing(beside=beside)
    trouble = _find_trouble(group, lacking, of_role, axes)
    if trouble is not None:
        return Standing(_reject("; ".join(filter(None, (f"group {group.key}: {trouble}", note)))))
    is_begun = group.has_begun(minimum, kept)
    resources = () if is_begun or group.pod_group is None else group.pod_group.resources
    where = None
    if topology is not None and beside is None:
        domains = find_domains(topology.key)
        where = GroupTopology(domains, topology.is_required, _find_home(group, domains, index))
    least_free_r = compute_vector(resources, axes) if resources else ()
    return Standing(None, TaskGroup(group.key, lacking, of_role, least_free_r, is_begun, where, note), beside)


def _reject(words: str) -> Rejection:
    return Rejection(RejectionKind.GANG_INCOMPLETE, words)


def _word_missing(group: Group) -> str:
    if any(mark.has_pod_group for mark in group.marks.counts):
        return f"PodGroup {group.key} does not exist"
    return f"group {group.key}: how many pods are all of them is known of a Job only, and it does not exist"


def _find_trouble(group: Group, lacking: int, of_role: tuple[tuple[str, int], ...], axes: Axes) -> str | None:
    """Return why the minimum cannot be placed whatever is free, or None."""
    if (differing := _find_difference(group)) is not None:
        return f"its pods differ in {differing} (SchedulerError)"
    if missing := group.find_missing():
        return missing
    for kind, of_these in [(None, lacking), *of_role]:
        ready = group.count(Stage.READY, role=kind)
        if ready < of_these:
            words = "" if kind is None else f" of role {kind}"
            return f"{ready} of {of_these} pods{words} that it lacks may be placed, others wait for something else"
    unknown = [r for r, _ in (() if group.pod_group is None else group.pod_group.resources) if r not in axes]
    return f"no node has {unknown[0]}, of which its minResources ask for" if unknown else None


def _find_difference(group: Group) -> str | None:
    """Return in what members differ that must have it in common, or None."""
    is_native = group.pod_group is not None and group.pod_group.format is GroupFormat.NATIVE
    kinds = {likeness for is_placed, likeness in group.kinds.counts if is_native or not is_placed}
    if len(kinds) < 2:  # noqa: PLR2004 - two that differ
        return None
    return next(word for word, found in zip(LIKENESS_WORDS, zip(*kinds, strict=True), strict=True) if len({*found}) > 1)


def find_topology(group: Group) -> TopologyKey | None:
    """Return in which domains the group should be, by its PodGroup or by its pods; None: anywhere."""
    if group.pod_group is not None and group.pod_group.topology is not None:
        return group.pod_group.topology
    keys = {mark.topology for mark in group.marks.counts if mark.topology is not None}
    return min(keys, key=lambda each: (not each.is_required, each.key), default=None)


def _find_home(group: Group, domains: Domains, index: Mapping[str, int]) -> int | None:
    """Return the domain where most members are, of several the one of the first node; None: none is in a domain."""
    counts = Counter[int]()
    for node, count in sorted(group.nodes.counts.items()):
        server = index.get(node)
        if server is not None and domains.domain_k[server] != NO_DOMAIN:
            counts[int(domains.domain_k[server])] += count
    return max(counts, key=lambda domain: counts[domain], default=None)


def _find_beside(
    group: Group, topology: TopologyKey | None, find_domains: Callable[[str], Domains]
) -> tuple[Domains, str] | None:
    """Return the domains of which members must be in one, and a node of it where one is already; None: no such."""
    if topology is None or not topology.is_required or not group.nodes.counts:
        return None
    return find_domains(topology.key), min(group.nodes.counts)
