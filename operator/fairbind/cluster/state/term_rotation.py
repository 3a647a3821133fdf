"""How many pod terms of one tenant are looked at: the rest of its pods wait in turn.

Each term that a waiting pod asks about is counted on all nodes, and may select the pods of every tenant. A tenant may
have thousands of pods with terms that no other pod has. So of each tenant pod terms with `MAX_TENANT_TERMS` terms are
looked at, in the order in which they came. A part of them makes way after each cycle, until all have been looked at
once since the last change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairbind.cluster.objects.facts import PodTerms
from fairbind.model import Rejection, RejectionKind

MAX_TENANT_TERMS = 32
"""Terms of a tenant's waiting pods that are looked at; the budget of a single pod allows as many."""

ROTATING_PART = 8
"""One in so many of the pod terms that are looked at makes way after a cycle."""

NOT_YET = Rejection(RejectionKind.LATER, "wishes about other pods")


@dataclass(slots=True)
class _Turns:
    """A tenant's pod terms. waiting: those of all its waiting pods, by whose turn is next, with the pods' UIDs.

    chosen: those that are looked at, the oldest first. seen: looked at in this round. began: changes before the round.
    """

    waiting: dict[PodTerms, set[str]] = field(default_factory=dict)
    chosen: dict[PodTerms, None] = field(default_factory=dict)
    terms: int = 0
    seen: set[PodTerms] = field(default_factory=set)
    began: int = 0

    def has_room(self, pod_terms: PodTerms) -> bool:
        return not self.chosen or self.terms + len(pod_terms.terms) <= MAX_TENANT_TERMS

    def choose(self, pod_terms: PodTerms) -> None:
        self.chosen[pod_terms] = None
        self.terms += len(pod_terms.terms)

    def drop(self, pod_terms: PodTerms) -> None:
        del self.chosen[pod_terms]
        self.terms -= len(pod_terms.terms)

    def fill(self) -> Iterator[PodTerms]:
        """Choose as many more as have room, and yield them."""
        if len(self.chosen) == len(self.waiting):
            return
        for pod_terms in self.waiting:
            if pod_terms not in self.chosen:
                if not self.has_room(pod_terms):
                    return
                self.choose(pod_terms)
                yield pod_terms


class TermRotation:
    """See the module."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Turns] = {}
        self._vacant: dict[str, None] = {}
        self._changes = 0

    def is_looked_at(self, tenant: str, pod_terms: PodTerms) -> bool:
        """Whether a pod with these pod terms may be placed now, or could if it waited."""
        turns = self._tenants.get(tenant)
        return turns is None or pod_terms in turns.chosen or turns.has_room(pod_terms)

    def add(self, tenant: str, pod_terms: PodTerms, uid: str) -> None:
        """Note that a pod waits."""
        turns = self._tenants.setdefault(tenant, _Turns(began=self._changes))
        turns.waiting.setdefault(pod_terms, set()).add(uid)
        if pod_terms not in turns.chosen and turns.has_room(pod_terms):
            turns.choose(pod_terms)

    def remove(self, tenant: str, pod_terms: PodTerms, uid: str) -> None:
        """Take back what `add` noted."""
        turns = self._tenants[tenant]
        turns.waiting[pod_terms].discard(uid)
        if turns.waiting[pod_terms]:
            return
        del turns.waiting[pod_terms]
        turns.seen.discard(pod_terms)
        if pod_terms in turns.chosen:
            turns.drop(pod_terms)
            self._vacant[tenant] = None
        if not turns.waiting:
            del self._tenants[tenant]

    def note_change(self) -> None:
        """Something changed, so that pods may fit that did not."""
        self._changes += 1

    def take_turned(self) -> list[str]:
        """Return the pods whose turn came because others went, sorted; asked again, there are none."""
        turned: list[str] = []
        for tenant in self._vacant:
            if tenant in self._tenants:
                turned.extend(self._list_pods(self._tenants[tenant], self._tenants[tenant].fill()))
        self._vacant.clear()
        return sorted(turned)

    def rotate(self) -> list[str]:
        """A cycle has looked at what is chosen: let others have their turn. Returns whose turn came or went, sorted."""
        turned: list[str] = []
        for turns in self._tenants.values():
            if len(turns.chosen) < len(turns.waiting):
                turned.extend(self._rotate(turns))
        return sorted(turned)

    def _rotate(self, turns: _Turns) -> Iterator[str]:
        turns.seen.update(turns.chosen)
        if len(turns.seen) == len(turns.waiting):
            if turns.began == self._changes:
                return
            turns.began = self._changes
            turns.seen = set(turns.chosen)
        leaving = list(turns.chosen)[: max(1, len(turns.chosen) // ROTATING_PART)]
        for pod_terms in leaving:
            turns.drop(pod_terms)
            turns.waiting[pod_terms] = turns.waiting.pop(pod_terms)
        yield from self._list_pods(turns, [*turns.fill(), *leaving])

    def _list_pods(self, turns: _Turns, chosen: Iterator[PodTerms] | list[PodTerms]) -> Iterator[str]:
        for pod_terms in chosen:
            yield from turns.waiting[pod_terms]

    def copy(self) -> TermRotation:
        """Return turns with the same choice, of no pods."""
        copy = TermRotation()
        for tenant, turns in self._tenants.items():
            copy._tenants[tenant] = _Turns({each: set() for each in turns.waiting}, dict(turns.chosen), turns.terms)
        return copy
