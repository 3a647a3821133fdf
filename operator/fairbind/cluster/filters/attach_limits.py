"""How many volumes a node takes: what drivers say of it (CSINode), and what is attached to it or will be.

A volume counts once a node, however many pods use it there, for as long as a pod uses it or it is attached. A driver
may also ask that its volumes go only to nodes on which it runs (CSIDriver). Most drivers set no limit and ask for
nothing, and their volumes cost nothing here.

As in kube-scheduler, a volume that is still attached and that no pod on the node uses counts beside one that a new pod
brings, even if it is the same.

A cycle counts what it sends to nodes (`find_rules`), but not volumes that several pods have, and others may be faster.
So a pod that was let in before counts before one that was let in after it (`is_over`): the first ones stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.requests import MAX_RESOURCES
from fairbind.cluster.objects.volume_facts import CsiDriverFacts, CsiNodeFacts, VolumeId
from fairbind.derived import Given, Memo, Rotation
from fairbind.model import NO_DOMAIN, DomainCounter, Domains, LimitRule, Placement, Rejection, RejectionKind
from fairbind.model.servers import BoolArray
from fairbind.model.topology import CountArray

FULL: Final = Rejection(RejectionKind.VOLUME_LIMIT)

MOST_KNOWN = 1_024
"""So many answers for all nodes are remembered at most."""

Index = Mapping[str, int]

Key = TypeVar("Key", bound=Hashable)
Part = TypeVar("Part", bound=Hashable)

_NOTHING: Counter[VolumeId] = Counter()
_NO_TOTALS: Counter[str] = Counter()
_NO_LIMITS: Mapping[str, int | None] = {}
_NO_SLOTS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class VolumeLoad:
    """Volumes of a waiting pod, of drivers that are looked at. Thousands of pods have equal loads.

    counts: how many volumes of each driver, sorted. shared: those of them that another pod uses on some node.
    alone: how many of each driver no other pod uses or will use, sorted; whichever node gets the pod has so many more.
    """

    counts: tuple[tuple[str, int], ...]
    shared: frozenset[VolumeId] = frozenset()
    alone: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Slots:
    """What nodes have of one driver's volumes, and take. counter, most_d: of the nodes that limit them, each a domain.

    version, index: what it was made of. names: of these nodes. rules: by how many volumes a pod brings.
    """

    version: int
    index: Index
    names: tuple[str, ...]
    counter: DomainCounter
    most_d: CountArray
    rules: dict[int, LimitRule] = field(default_factory=dict)


class VolumesOf(NamedTuple):
    """What a counter of a driver's volumes is about."""

    driver: str


class AttachLimits:
    """See the module. changes: after which the answer to any load may be another.

    drivers: those that limit volumes on some node, or ask to be installed. counted: those with attach slots on some
    node. nodes_to_follow: those with other attach slots.
    """

    def __init__(self, eligibility: Eligibility) -> None:
        self._eligibility = eligibility
        self.changes = Given()
        self.drivers: frozenset[str] = frozenset()
        self.counted: frozenset[str] = frozenset()
        self.nodes_to_follow = Rotation[str]()
        self._csi_nodes: dict[str, Mapping[str, int | None]] = {}
        self._slots_of: dict[str, Mapping[str, int]] = {}
        self._counting: Counter[str] = Counter()
        self._limitless: Counter[str] = Counter()
        self._most: dict[str, int] | None = None
        self._limiting: Counter[str] = Counter()
        self._demanding: set[str] = set()
        self._used: dict[str, dict[str, tuple[VolumeId, ...]]] = {}
        self._nodes_of: dict[VolumeId, Counter[str]] = {}
        self._attached: dict[str, Counter[VolumeId]] = {}
        self._references: dict[str, Counter[VolumeId]] = {}
        self._totals: dict[str, Counter[str]] = {}
        self._refusing = Memo(self._find_refusing, of=(self.changes, eligibility.nodes), most=MOST_KNOWN)
        self._slots: dict[str, _Slots] = {}
        self._slot_changes = defaultdict[str, Given](Given)

    # --- what drivers say ---

    def set_csi_node(self, name: str, facts: CsiNodeFacts | None) -> bool:
        """Take the drivers of a node; None: there is nothing about it. True when other drivers are looked at now."""
        before = self._csi_nodes.pop(name, _NO_LIMITS)
        if facts is not None:
            self._csi_nodes[name] = dict(facts.drivers)
        self._limiting.update(_find_limited(self._csi_nodes.get(name, _NO_LIMITS)))
        self._limiting.subtract(_find_limited(before))
        self._limitless.update(_find_limitless(self._csi_nodes.get(name, _NO_LIMITS)))
        self._limitless.subtract(_find_limitless(before))
        self._follow_slots(name)
        return self._follow_drivers()

    def _follow_slots(self, name: str) -> None:
        before, now = self._slots_of.pop(name, _NO_SLOTS), _find_slots(self._csi_nodes.get(name, _NO_LIMITS))
        if now:
            self._slots_of[name] = now
        if now != before:
            self.nodes_to_follow.add([name])
            self._most = None
            self._counting.update(now.keys())
            self._counting.subtract(before.keys())

    def set_driver(self, name: str, facts: CsiDriverFacts | None) -> bool:
        """Take a driver; None: it is gone. True when other drivers are looked at now."""
        if facts is not None and facts.must_be_installed:
            self._demanding.add(name)
        else:
            self._demanding.discard(name)
        return self._follow_drivers()

    def _follow_drivers(self) -> bool:
        self.changes.note_change()
        self._slots.clear()
        self._limiting, self._counting, self._limitless = +self._limiting, +self._counting, +self._limitless
        before = self.drivers, self.counted
        self.drivers = frozenset(self._limiting.keys() | self._demanding)
        self.counted = frozenset(self._counting)
        return (self.drivers, self.counted) != before

    # --- what is on nodes ---

    def hold(self, node: str, uid: str, volumes: Iterable[VolumeId]) -> list[str]:
        """Note that a pod on a node uses volumes; return the pods there for which other volumes may count now."""
        volumes = tuple(sorted(set(volumes)))
        if not volumes:
            return []
        sharing = self._list_sharing(node, volumes)
        self._used.setdefault(node, {})[uid] = volumes
        for volume in volumes:
            self._use(node, volume, 1)
        return sharing

    def release(self, node: str, uid: str) -> list[str]:
        """Take back what `hold` noted, and return the same."""
        volumes = self._used.get(node, {}).pop(uid, None)
        if volumes is None:
            return []
        if not self._used[node]:
            del self._used[node]
        for volume in volumes:
            self._use(node, volume, -1)
        return self._list_sharing(node, volumes)

    def _list_sharing(self, node: str, volumes: Iterable[VolumeId]) -> list[str]:
        """Return the pods on a node that use one of these volumes."""
        if all(node not in self._nodes_of.get(volume, _NO_TOTALS) for volume in volumes):
            return []
        wanted = frozenset(volumes)
        return [uid for uid, used in self._used.get(node, {}).items() if not wanted.isdisjoint(used)]

    def attach(self, node: str, volume: VolumeId, sign: int = 1) -> None:
        """Note that a volume is attached to a node, or not any more."""
        _count(self._attached, node, volume, sign)
        self._refer(node, volume, sign)

    def _use(self, node: str, volume: VolumeId, sign: int) -> None:
        """Count a pod's use of a volume on a node."""
        _count(self._nodes_of, volume, node, sign)
        self._note_driver(volume.driver)
        self._refer(node, volume, sign)

    def _note_driver(self, driver: str) -> None:
        if driver in self.drivers:
            self.changes.note_change()

    def _refer(self, node: str, volume: VolumeId, sign: int) -> None:
        """Count a use or an attachment: the first one of a volume takes a slot of its driver, the last one frees it."""
        before = self._references.get(node, _NOTHING)[volume]
        _count(self._references, node, volume, sign)
        if (before == 0) != (before + sign == 0):
            _count(self._totals, volume.driver, node, sign)
            self._slot_changes[volume.driver].note_change()
            self._note_driver(volume.driver)

    # --- what counts in shares ---

    def find_slots(self, node: str) -> Mapping[str, int]:
        """Return the attach slots of a node, by driver."""
        return self._slots_of.get(node, _NO_SLOTS)

    def is_limitless(self, driver: str) -> bool:
        """Whether a driver takes any number of volumes on some node, so that its slots cannot run out."""
        return driver in self._limitless

    def could_take(self, load: VolumeLoad) -> bool:
        """Whether the slots of nodes without any volume would take a load."""
        if self._most is None:
            self._most = {}
            for slots in self._slots_of.values():
                for driver, limit in slots.items():
                    self._most[driver] = max(limit, self._most.get(driver, 0))
        return all(count <= self._most[driver] for driver, count in load.counts if driver in self._most)

    def count_held(self, node: str, uid: str, volumes: Iterable[VolumeId]) -> Counter[str]:
        """Return how many attach slots a pod holds on a node with these volumes, by driver.

        A volume that several pods use there counts for the first of them by UID.
        """
        slots = self.find_slots(node)
        counted = {volume for volume in volumes if volume.driver in slots} if slots else set[VolumeId]()
        for volume in [v for v in counted if node in self._nodes_of.get(v, _NO_TOTALS)]:
            if any(other < uid for other in self._list_sharing(node, [volume])):
                counted.remove(volume)
        return Counter(volume.driver for volume in counted)

    # --- what pods ask ---

    def find_load(self, volumes: Iterable[VolumeId], common: AbstractSet[VolumeId] = frozenset()) -> VolumeLoad | None:
        """Return the load of a pod with these volumes; None when no driver of them is looked at.

        common: those that other pods use or will use, too.
        """
        counted = {volume for volume in volumes if volume.driver in self.drivers}
        if not counted:
            return None
        counts = Counter(volume.driver for volume in counted)
        shared = frozenset(counted & self._nodes_of.keys())
        alone = Counter(volume.driver for volume in counted - common - shared)
        return VolumeLoad(tuple(sorted(counts.items())), shared, tuple(sorted(alone.items())))

    def restrict(self, base: Placement, load: VolumeLoad) -> Placement:
        """Return a placement without the nodes that cannot take a load."""
        eligible_k = base.eligible_k
        rejections = Counter(dict(base.rejections))
        for driver, _ in load.counts:
            if driver in self._demanding:
                lacking_k = self._refusing(driver, 0) & eligible_k
                rejections[Rejection(RejectionKind.VOLUME_DRIVER, driver)] += int(np.count_nonzero(lacking_k))
                eligible_k = eligible_k & ~lacking_k
        full_k = self._find_full(load) & eligible_k
        rejections[FULL] += int(np.count_nonzero(full_k))
        eligible_k = eligible_k & ~full_k
        if np.array_equal(eligible_k, base.eligible_k):
            return base
        eligible_k.flags.writeable = False
        return replace(base, eligible_k=eligible_k, rejections=tuple(sorted((+rejections).items())))

    def find_rules(self, load: VolumeLoad) -> tuple[LimitRule, ...]:
        """Return what nodes take of a load, for a cycle that sends several pods.

        They are the same objects until a volume takes a slot or leaves one. They are about volumes of one pod alone:
        how many slots others take depends on which pods went where before.
        """
        rules = (self._find_rule(driver, count) for driver, count in load.alone)
        return tuple(rule for rule in rules if rule is not None)

    def find_refusal(self, node: str, load: VolumeLoad) -> Rejection | None:
        """Return why one node cannot take a load, or None: what `restrict` must say of it, too."""
        installed = self._csi_nodes.get(node, {})
        for driver, _ in load.counts:
            if driver in self._demanding and driver not in installed:
                return Rejection(RejectionKind.VOLUME_DRIVER, driver)
        return FULL if any(self._is_full(node, load, driver, count) for driver, count in load.counts) else None

    def is_over(self, node: str, uid: str) -> bool:
        """Whether a node has more volumes than it takes, of a pod's drivers, without those of pods that came later."""
        pods = self._used.get(node, {})
        if uid not in pods:
            return False
        volumes = set(self._attached.get(node, ()))
        for other, used in pods.items():
            volumes.update(used)
            if other == uid:
                break
        counts = Counter(volume.driver for volume in volumes)
        limits = self._csi_nodes.get(node, {})
        drivers = {volume.driver for volume in pods[uid]}
        return any(limit is not None and counts[driver] > limit for driver in drivers for limit in [limits.get(driver)])

    def _is_full(self, node: str, load: VolumeLoad, driver: str, count: int) -> bool:
        limit = self._csi_nodes.get(node, {}).get(driver)
        if limit is None:
            return False
        new = count - sum(volume.driver == driver and node in self._nodes_of[volume] for volume in load.shared)
        return new > 0 and self._totals.get(driver, _NO_TOTALS)[node] + new > limit

    def _find_rule(self, driver: str, count: int) -> LimitRule | None:
        """Return the rule of a driver's volumes, of which a pod brings so many; None where no node limits them."""
        index = self._eligibility.index
        slots, version = self._slots.get(driver), self._slot_changes[driver].revision
        if slots is None or slots.version != version or slots.index is not index:
            slots = self._slots[driver] = self._count_slots(driver, version, index, slots)
        if not slots.most_d.size:
            return None
        rule = slots.rules.get(count)
        if rule is None:
            rule = slots.rules[count] = LimitRule(slots.counter, count, slots.most_d, FULL)
        return rule

    def _count_slots(self, driver: str, version: int, index: Index, before: _Slots | None) -> _Slots:
        """Return a driver's slots as they are now. before: as they were; domains stay while the same nodes limit it."""
        if before is not None and before.index is index:
            names, domains, most_d = before.names, before.counter.domains, before.most_d
        else:
            limits = {name: self._csi_nodes.get(name, _NO_LIMITS).get(driver) for name in index}
            most = {name: limit for name, limit in limits.items() if limit is not None}
            names = tuple(most)
            domain_k = np.full(len(index), NO_DOMAIN, dtype=np.int32)
            domain_k[[index[name] for name in names]] = np.arange(len(names))
            domains, most_d = Domains(domain_k, len(names)), np.array([*most.values()], dtype=np.int64)
        totals = self._totals.get(driver, _NO_TOTALS)
        count_d = np.array([totals[name] for name in names], dtype=np.int64)
        return _Slots(version, index, names, DomainCounter(VolumesOf(driver), domains, count_d), most_d)

    def _find_refusing(self, driver: str, count: int) -> BoolArray:
        """Return the nodes that cannot take so many volumes more of a driver; 0: on which it is not installed."""
        index, alone = self._eligibility.index, VolumeLoad(((driver, count),))
        if count:
            answers = [self._is_full(name, alone, driver, count) for name in index]
        else:
            answers = [driver not in self._csi_nodes.get(name, ()) for name in index]
        return np.array(answers, dtype=np.bool_)

    def _find_full(self, load: VolumeLoad) -> BoolArray:
        index = self._eligibility.index
        full_k = np.zeros(len(index), dtype=np.bool_)
        for driver, count in load.counts:
            full_k |= self._refusing(driver, count)
        for name in {name for volume in load.shared for name in self._nodes_of[volume]}:
            if name in index:  # where others share them, fewer volumes are new
                full_k[index[name]] = any(self._is_full(name, load, driver, count) for driver, count in load.counts)
        return full_k

    def describe(self) -> object:
        """Return what is counted, as comparable values."""
        used = {node: dict(sorted(pods.items())) for node, pods in self._used.items()}
        drivers = self.drivers, self.counted, self._slots_of, self._limitless
        return drivers, self._csi_nodes, self._demanding, used, self._nodes_of, self._attached, self._totals


def _find_limited(drivers: Mapping[str, int | None]) -> list[str]:
    return [driver for driver, limit in drivers.items() if limit is not None]


def _find_limitless(drivers: Mapping[str, int | None]) -> list[str]:
    return [driver for driver, limit in drivers.items() if limit is None]


def _find_slots(drivers: Mapping[str, int | None]) -> Mapping[str, int]:
    """Return how many volumes drivers take on a node, of those that say so and take some, the first by name."""
    return dict(sorted((driver, limit) for driver, limit in drivers.items() if limit)[:MAX_RESOURCES])


def _count(counts: dict[Key, Counter[Part]], key: Key, part: Part, sign: int) -> None:
    """Count one more or one fewer; what becomes zero goes."""
    of_key = counts.setdefault(key, Counter())
    of_key[part] += sign
    if not of_key[part]:
        del of_key[part]
    if not of_key:
        del counts[key]
