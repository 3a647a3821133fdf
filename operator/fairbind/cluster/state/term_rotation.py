"""How many pod terms of one tenant are looked at: the rest of its pods wait.

Each term that a waiting pod asks about is counted on all nodes, and may select the pods of every tenant. A tenant may
have thousands of pods with terms that no other pod has. So of each tenant pod terms with `MAX_TENANT_TERMS` terms are
looked at, in the order in which they came. A part of them makes way after each cycle, until all have been looked at
once since the last change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairbind.cluster.objects.facts import PodTerms
from fairbind.derived import Given
from fairbind.model import Rejection, RejectionKind

MAX_TENANT_TERMS = 32
"""Terms of a tenant's waiting pods that are looked at; the budget of a single pod allows as many."""

ROTATING_PART = 8
"""One in so many of the pod terms that are looked at makes way after a cycle."""

NOT_YET = Rejection(RejectionKind.LATER, "wishes about other pods")


@dataclass(slots=True)
class _Rotation:
    """A tenant's pod terms. waiting: those of all its waiting pods, the next one first, with the pods' UIDs.

    chosen: those that are looked at, the oldest first. seen: looked at in this round. began: the changes before it.
    """

    waiting: dict[PodTerms, set[str]] = field(default_factory=dict)
    chosen: dict[PodTerms, None] = field(default_factory=dict)
    terms: int = 0
    seen: set[PodTerms] = field(default_factory=set)
    began: int = 0

    def has_place(self, pod_terms: PodTerms) -> bool:
        return not self.chosen or self.terms + len(pod_terms.terms) <= MAX_TENANT_TERMS

    def choose(self, pod_terms: PodTerms) -> None:
        self.chosen[pod_terms] = None
        self.terms += len(pod_terms.terms)

    def drop(self, pod_terms: PodTerms) -> None:
        del self.chosen[pod_terms]
        self.terms -= len(pod_terms.terms)

    def fill(self) -> Iterator[PodTerms]:
        """Choose as many more as fit, and yield them."""
        if len(self.chosen) == len(self.waiting):
            return
        for pod_terms in self.waiting:
            if pod_terms not in self.chosen:
                if not self.has_place(pod_terms):
                    return
                self.choose(pod_terms)
                yield pod_terms


class TermRotation:
    """See the module. changes: all after which pods may fit that did not."""

    def __init__(self) -> None:
        self.changes = Given()
        self._tenants: dict[str, _Rotation] = {}
        self._vacant: dict[str, None] = {}

    def is_looked_at(self, tenant: str, pod_terms: PodTerms) -> bool:
        """Whether a pod with these pod terms may be placed now, or could if it waited."""
        rotation = self._tenants.get(tenant)
        return rotation is None or pod_terms in rotation.chosen or rotation.has_place(pod_terms)

    def add(self, tenant: str, pod_terms: PodTerms, uid: str) -> None:
        """Note that a pod waits."""
        rotation = self._tenants.setdefault(tenant, _Rotation(began=self.changes.revision))
        rotation.waiting.setdefault(pod_terms, set()).add(uid)
        if pod_terms not in rotation.chosen and rotation.has_place(pod_terms):
            rotation.choose(pod_terms)

    def remove(self, tenant: str, pod_terms: PodTerms, uid: str) -> None:
        """Take back what `add` noted."""
        rotation = self._tenants[tenant]
        rotation.waiting[pod_terms].discard(uid)
        if rotation.waiting[pod_terms]:
            return
        del rotation.waiting[pod_terms]
        rotation.seen.discard(pod_terms)
        if pod_terms in rotation.chosen:
            rotation.drop(pod_terms)
            self._vacant[tenant] = None
        if not rotation.waiting:
            del self._tenants[tenant]

    def take_rotated(self) -> list[str]:
        """Return the pods that are looked at now because others went, sorted; asked again, there are none."""
        rotated: list[str] = []
        for tenant in self._vacant:
            if tenant in self._tenants:
                rotated.extend(self._list_pods(self._tenants[tenant], self._tenants[tenant].fill()))
        self._vacant.clear()
        return sorted(rotated)

    def rotate(self) -> list[str]:
        """A cycle has looked at what is chosen: let others be looked at. Returns which came or went, sorted."""
        rotated: list[str] = []
        for rotation in self._tenants.values():
            if len(rotation.chosen) < len(rotation.waiting):
                rotated.extend(self._rotate(rotation))
        return sorted(rotated)

    def _rotate(self, rotation: _Rotation) -> Iterator[str]:
        rotation.seen.update(rotation.chosen)
        if len(rotation.seen) == len(rotation.waiting):
            if rotation.began == self.changes.revision:
                return
            rotation.began = self.changes.revision
            rotation.seen = set(rotation.chosen)
        leaving = list(rotation.chosen)[: max(1, len(rotation.chosen) // ROTATING_PART)]
        for pod_terms in leaving:
            rotation.drop(pod_terms)
            rotation.waiting[pod_terms] = rotation.waiting.pop(pod_terms)
        yield from self._list_pods(rotation, [*rotation.fill(), *leaving])

    def _list_pods(self, rotation: _Rotation, chosen: Iterator[PodTerms] | list[PodTerms]) -> Iterator[str]:
        for pod_terms in chosen:
            yield from rotation.waiting[pod_terms]

    def copy(self) -> TermRotation:
        """Return a rotation with the same choice, of no pods."""
        copy = TermRotation()
        for tenant, rotation in self._tenants.items():
            copy._tenants[tenant] = _Rotation(
                {each: set() for each in rotation.waiting}, dict(rotation.chosen), rotation.terms
            )
        return copy
