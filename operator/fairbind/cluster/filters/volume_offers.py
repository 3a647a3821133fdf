"""Which nodes have volumes for claims that are bound only once their pod has a node (`WaitForFirstConsumer`).

As in kube-scheduler, the claims of a pod are looked at by size, the smallest first. Each takes the smallest volume that
is free, suits it and is reached from the node. A volume that names the claim is the only one for it. A claim that finds
none needs a new volume: its storage class must have a provisioner and allow the node, and where the provisioner tells
how much free capacity it has, there must be enough for the claim. A claim for which a volume is being made for a node
can be used on that node only.

A volume that is free may be **taken** for a pod: its place is decided, and its claims are being bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.filters.anti_affinity import close
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.volume_columns import match_affinities
from fairbind.cluster.filters.volume_stocks import Stock, SuitingVolumes, make_stock
from fairbind.cluster.objects.selectors import LabelSelector
from fairbind.cluster.objects.volume_facts import (
    ClaimFacts,
    ClaimRequest,
    CsiDriverFacts,
    StorageCapacityFacts,
    StorageClassFacts,
    VolumeFacts,
    VolumeOffer,
    VolumeTopology,
    name_claim,
)
from fairbind.derived import Given, Memo
from fairbind.model import LimitRule, Placement, Rejection, RejectionKind
from fairbind.model.servers import BoolArray

NO_VOLUME: Final = Rejection(RejectionKind.VOLUME_BINDING)
NO_SPACE: Final = Rejection(RejectionKind.VOLUME_SPACE)
NO_PROVISIONER = "kubernetes.io/no-provisioner"

MOST_KNOWN = 1_024
"""So many answers about nodes are remembered at most."""


class Wanted(NamedTuple):
    """What a claim without a volume asks for. kept: the volume that names the claim, or empty."""

    request: ClaimRequest
    kept: str = ""


class _Refused(NamedTuple):
    """Which nodes lack a volume for claims, and which have too little capacity, (K,) each. rules: see `find_rules`."""

    lacking_k: BoolArray
    short_k: BoolArray
    rules: tuple[LimitRule, ...]


class VolumeOffers:
    """See the module. changes: after which the answer for any claim may be another."""

    def __init__(self, eligibility: Eligibility) -> None:
        self._eligibility = eligibility
        self.changes = Given()
        self._volumes: dict[str, VolumeFacts] = {}
        self._free: dict[str, dict[str, VolumeFacts]] = {}
        self._kept: dict[str, set[str]] = {}
        self._classes: dict[str, StorageClassFacts] = {}
        self._telling: set[str] = set()
        self._capacities: dict[str, dict[str, StorageCapacityFacts]] = {}
        self._taken: set[str] = set()
        self._fitting = Memo(self._list_fitting, of=(self.changes,), most=MOST_KNOWN)
        self._refused = Memo(self._find_refused, of=(self.changes, eligibility.nodes), most=MOST_KNOWN)
        self._reached = Memo(self._find_reached, of=(eligibility.nodes,), most=MOST_KNOWN)

    # --- what there is ---

    def set_volume(self, name: str, volume: VolumeFacts | None) -> frozenset[str]:
        """Take a volume; None: it is gone. Returns the claims for which another volume may be kept now."""
        before = self._volumes.pop(name, None)
        claims = set()
        if before is not None and before.offer is not None:
            self._free.get(before.offer.storage_class, {}).pop(name, None)
            claims.add(before.offer.claim)
            self._kept.get(before.offer.claim, set()).discard(name)
        if volume is not None and volume.offer is not None:
            self._volumes[name] = volume
            if volume.offer.is_available:
                self._free.setdefault(volume.offer.storage_class, {})[name] = volume
            else:
                self._kept.setdefault(volume.offer.claim, set()).add(name)
            claims.add(volume.offer.claim)
        if before is not None or name in self._volumes:
            self.changes.note_change()
        return frozenset(claims - {""})

    def set_class(self, name: str, storage_class: StorageClassFacts | None) -> None:
        """Take a storage class; None: it is gone."""
        _put(self._classes, name, storage_class)
        self.changes.note_change()

    def set_driver(self, name: str, driver: CsiDriverFacts | None) -> None:
        """Take a driver; None: it is gone."""
        tells = driver is not None and driver.tells_capacity
        if tells != (name in self._telling):
            self._telling.symmetric_difference_update({name})
            self.changes.note_change()

    def set_capacity(
        self, key: str, before: StorageCapacityFacts | None, capacity: StorageCapacityFacts | None
    ) -> None:
        """Take what a driver says of its capacity, and what it said before; None: nothing."""
        if before is not None:
            self._capacities[before.storage_class].pop(key)
        if capacity is not None:
            self._capacities.setdefault(capacity.storage_class, {})[key] = capacity
        self.changes.note_change()

    def take(self, name: str) -> None:
        """Keep a volume for a pod whose place is decided."""
        self._taken.add(name)
        self.changes.note_change()

    def give_back(self, name: str) -> None:
        """Take back what `take` did."""
        self._taken.discard(name)
        self.changes.note_change()

    # --- what claims ask ---

    def want(self, claim: ClaimFacts, request: ClaimRequest) -> Wanted:
        """Return what a claim asks for, with the volume that is kept for it."""
        key = name_claim(claim.namespace, claim.name)
        for name in sorted(self._kept.get(key, ())):
            offer = self._volumes[name].offer
            assert offer is not None
            is_for_claim = offer.claim_uid in {"", claim.uid} and offer.storage_class == request.storage_class
            if is_for_claim and _is_large_enough(offer, request):
                return Wanted(request, name)
        return Wanted(request)

    def restrict(self, base: Placement, wanted: tuple[Wanted, ...]) -> Placement:
        """Return a placement without the nodes on which not all of these claims could have a volume."""
        lacking_k, short_k, _ = self._refused(wanted)
        for rejection, refused_k in ((NO_VOLUME, lacking_k), (NO_SPACE, short_k)):
            if (refused_k & base.eligible_k).any():
                base = close(base, refused_k, rejection)
        return base

    def find_rules(self, wanted: tuple[Wanted, ...]) -> tuple[LimitRule, ...]:
        """Return how many such pods volumes are free for, for a cycle that sends several together.

        They are the same objects until something changes. Claims for which volumes can be made are not counted.
        """
        return self._refused(wanted).rules

    def choose(self, wanted: Sequence[Wanted], node: str, labels: Mapping[str, str]) -> list[str] | None:
        """Return for each claim the volume that it gets on a node, empty where one must be made; None: it cannot be.

        It is what `restrict` says of this node, too.
        """
        chosen = [""] * len(wanted)
        to_make: list[ClaimRequest] = []
        for at in _find_order(wanted):
            request = wanted[at].request
            if request.selected_node:
                if request.selected_node != node:
                    return None
            else:
                chosen[at] = self._find_smallest(wanted[at], labels, chosen)
            if not chosen[at]:
                to_make.append(request)
        return chosen if all(self._can_make(request, labels) for request in to_make) else None

    def _find_smallest(self, wanted: Wanted, labels: Mapping[str, str], without: Sequence[str]) -> str:
        kept = self._volumes.get(wanted.kept)
        for volume in self._fitting(wanted.request) if kept is None else (kept,):
            if volume.name not in without and _is_reached(volume.topology, labels):
                return volume.name
        return ""

    def _can_make(self, request: ClaimRequest, labels: Mapping[str, str]) -> bool:
        storage_class = self._find_maker(request)
        if storage_class is None:
            return False
        terms = storage_class.topologies
        if terms is not None and not any(term.is_met_by(labels, "") for term in terms):
            return False
        if storage_class.provisioner not in self._telling or not request.size:
            return True
        return any(nodes.is_met_by(labels) for nodes in self._list_large_enough(request))

    def _find_maker(self, request: ClaimRequest) -> StorageClassFacts | None:
        """Return the storage class of a claim when volumes of it are made on demand."""
        storage_class = self._classes.get(request.storage_class)
        return None if storage_class is None or storage_class.provisioner in {"", NO_PROVISIONER} else storage_class

    def _list_large_enough(self, request: ClaimRequest) -> list[LabelSelector]:
        """Return the nodes' selectors of all capacities that are enough for a claim."""
        capacities = self._capacities.get(request.storage_class, {}).values()
        enough = (c for c in capacities if c.largest is not None and c.largest >= request.size)
        return [capacity.nodes for capacity in enough if capacity.nodes is not None]

    def _list_fitting(self, request: ClaimRequest) -> list[VolumeFacts]:
        """Return the free volumes that suit a claim wherever they are, the smallest first."""
        free = self._free.get(request.storage_class, {})
        suiting = [v for n, v in free.items() if n not in self._taken and v.offer and _suits(v.offer, request)]
        return sorted(suiting, key=lambda v: (v.offer.capacity if v.offer else 0, v.name))

    # --- all nodes at once ---

    def _find_refused(self, wanted: tuple[Wanted, ...]) -> _Refused:
        """Return which nodes lack a volume for one of some claims, or have too little capacity, or may come to."""
        eligibility = self._eligibility
        lacking_k, short_k = (np.zeros(len(eligibility.index), dtype=np.bool_) for _ in range(2))
        chosen: dict[str, BoolArray] = {}
        to_make: list[tuple[ClaimRequest, BoolArray]] = []
        for at in _find_order(wanted):
            request = wanted[at].request
            if request.selected_node:
                made_k = np.zeros_like(lacking_k)
                if request.selected_node in eligibility.index:
                    made_k[eligibility.index[request.selected_node]] = True
                lacking_k |= ~made_k
            else:
                made_k = ~self._match(wanted[at], chosen)
            to_make.append((request, made_k))
        for request, made_k in to_make:
            asked_k = made_k & ~(lacking_k | short_k)
            if asked_k.any():
                impossible_k, full_k = self._ask_maker(request)
                lacking_k |= asked_k & impossible_k
                short_k |= asked_k & ~impossible_k & full_k
        return _Refused(lacking_k, short_k, self._make_rules(wanted))

    def _make_rules(self, wanted: tuple[Wanted, ...]) -> tuple[LimitRule, ...]:
        amounts, stocks = Counter[Hashable](), dict[Hashable, Stock]()
        for request in (each.request for each in wanted if not each.kept):
            if not request.selected_node and self._find_maker(request) is None:
                volumes = self._fitting(request)
                subject = SuitingVolumes(request.storage_class, volumes[0].name if volumes else "", len(volumes))
                amounts[subject] += 1
                if subject not in stocks:
                    reaches = [self._reached(volume.topology) for volume in volumes]
                    stocks[subject] = make_stock(subject, reaches, len(self._eligibility.index))
        return tuple(
            LimitRule(stock.counter, amounts[subject], stock.most_d, NO_VOLUME) for subject, stock in stocks.items()
        )

    def _match(self, wanted: Wanted, chosen: dict[str, BoolArray]) -> BoolArray:
        """Return which nodes reach a volume for a claim, and note in `chosen` which volume it is, node by node."""
        matched_k = np.zeros(len(self._eligibility.index), dtype=np.bool_)
        kept = self._volumes.get(wanted.kept)
        for volume in self._fitting(wanted.request) if kept is None else (kept,):
            reached = self._reached(volume.topology)
            reached = reached[~matched_k[reached]]
            if volume.name in chosen:
                reached = reached[~chosen[volume.name][reached]]
            if reached.size:
                matched_k[reached] = True
                chosen.setdefault(volume.name, np.zeros_like(matched_k))[reached] = True
        return matched_k

    def _find_reached(self, topology: VolumeTopology) -> NDArray[np.int64]:
        """Return the nodes that reach a volume."""
        return np.flatnonzero(match_affinities(topology, self._eligibility.get_columns()))

    def _ask_maker(self, request: ClaimRequest) -> tuple[BoolArray, BoolArray]:
        """Return for which nodes no volume can be made at all, and for which the capacity is too small: (K,) each."""
        columns, storage_class = self._eligibility.get_columns(), self._find_maker(request)
        nowhere_k = np.zeros(len(self._eligibility.index), dtype=np.bool_)
        if storage_class is None:
            return ~nowhere_k, nowhere_k
        allowed_k = columns.match_wanted((), storage_class.topologies)
        if storage_class.provisioner not in self._telling or not request.size:
            return ~allowed_k, nowhere_k
        is_large_k = nowhere_k
        for nodes in self._list_large_enough(request):
            is_large_k = is_large_k | columns.match_all(nodes.requirements)
        return ~allowed_k, ~is_large_k

    def describe(self) -> object:
        """Return what is there, as comparable values."""
        capacities = {name: of_class for name, of_class in self._capacities.items() if of_class}
        return self._volumes, self._classes, self._telling, capacities, self._taken


def _find_order(wanted: Sequence[Wanted]) -> list[int]:
    """Return in which order claims are looked at: first those with a node, then by size."""
    return sorted(range(len(wanted)), key=lambda at: (not wanted[at].request.selected_node, wanted[at].request.size))


def _is_large_enough(offer: VolumeOffer, request: ClaimRequest) -> bool:
    return (
        offer.capacity >= request.size
        and offer.mode == request.mode
        and offer.attributes_class == request.attributes_class
    )


def _suits(offer: VolumeOffer, request: ClaimRequest) -> bool:
    """Tell whether a free volume of the claim's storage class is what the claim asks for."""
    if not _is_large_enough(offer, request) or not offer.access_modes.issuperset(request.access_modes):
        return False
    return request.selector is None or request.selector.is_met_by(dict(offer.labels))


def _is_reached(topology: VolumeTopology, labels: Mapping[str, str]) -> bool:
    return all(any(term.is_met_by(labels, "") for term in terms) for terms in topology.affinities)


def _put(objects: dict[str, StorageClassFacts], name: str, facts: StorageClassFacts | None) -> None:
    if facts is None:
        objects.pop(name, None)
    else:
        objects[name] = facts
