"""Keys of classes of waiting pods: all that decides where they may go and in whose share they count."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import ceil, inf, log2
from typing import NamedTuple

from fairbind.cluster.filters.attach_limits import VolumeLoad
from fairbind.cluster.filters.nominated_rules import Rank
from fairbind.cluster.filters.volume_offers import Wanted
from fairbind.cluster.objects.facts import Constraints, Demand, PodTerm, PodTerms
from fairbind.model import Rejection


def round_up(seconds: float) -> float:
    """Return the next power of two.

    >>> round_up(100.0), round_up(128.0), round_up(inf)
    (128.0, 128.0, inf)
    """
    return seconds if seconds == inf else 2.0 ** ceil(log2(max(seconds, 1.0)))


class QueueKey(NamedTuple):
    """All that makes a class.

    unsupported: why its pods may not be placed at all, or None. pin: the name of the only node that they may use, or
    None. selected_by: the terms in use that select its pods, if these may be placed. above_priority: the highest
    priority of nominated pods that its pods are above, or None. nominated: the UID of its only pod, when that one is
    nominated itself. pod_terms: what its pods require about other pods, or None. load: the volumes that a pod brings to
    its node, of drivers that are looked at, or None. unbound: the volumes that a pod wants for claims that are not
    bound yet. is_rationed: whether another scheduler places its pods once they are decided. most_seconds: for how long
    they run at most, rounded up so that a tenant's pods make few classes by it (`round_up`). group: with whose other
    members they may have to be placed, or None. role: what they are in it.
    """

    tenant: str
    demand: Demand
    constraints: Constraints
    unsupported: Rejection | None
    pin: str | None = None
    selected_by: frozenset[PodTerm] = frozenset()
    above_priority: int | None = None
    nominated: str | None = None
    pod_terms: PodTerms | None = None
    load: VolumeLoad | None = None
    unbound: tuple[Wanted, ...] = ()
    is_rationed: bool = False
    most_seconds: float = inf
    group: str | None = None
    role: str = ""

    @property
    def is_about_volumes(self) -> bool:
        """Whether where its pods may go may depend on what there is of volumes, and on what nodes take."""
        return self.load is not None or bool(self.unbound)

    @property
    def has_reserved(self) -> bool:
        """Whether its pods may use what is kept from others for a nominated pod."""
        return self.above_priority is not None or self.nominated is not None

    @property
    def rank(self) -> Rank:
        """Which nominated pods come before its pods."""
        return Rank(self.above_priority, self.nominated)

    @property
    def repelled(self) -> frozenset[PodTerm]:
        """The terms by which placed pods keep its pods away, but for its own, which are rules."""
        return self.selected_by if self.pod_terms is None else self.selected_by.difference(self.pod_terms.apart)

    def is_about(self, terms: frozenset[PodTerm]) -> bool:
        """Whether where its pods may go may depend on one of these terms."""
        return not (
            terms.isdisjoint(self.selected_by) and (self.pod_terms is None or terms.isdisjoint(self.pod_terms.terms))
        )

    def is_about_images(self, names: AbstractSet[str]) -> bool:
        """Whether its pods use one of these images."""
        return not names.isdisjoint(self.constraints.images.names)

    @property
    def is_plain(self) -> bool:
        """Whether where its pods may go depends on their constraints and demand only."""
        return not (self.selected_by or self.unbound) and (
            self.pin is None
            and self.pod_terms is None
            and self.load is None
            and self.group is None
            and not self.has_reserved
        )

    @property
    def may_have_rules(self) -> bool:
        """Whether where its pods may go may depend on other pods."""
        return bool(self.selected_by) or self.pod_terms is not None
