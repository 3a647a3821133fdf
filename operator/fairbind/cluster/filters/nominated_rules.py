"""Pods that are nominated to a node and not bound yet, as other pods' affinity and spread see them.

kube-scheduler asks each node twice: as it is, and with the pods there that are nominated to it and come before the pod
that is asked for, by a priority that is no lower. Both answers must be yes. So a nominated pod closes its node and no
other: to pods that its terms keep away, to pods whose terms keep it away, and to pods whose spread would be too uneven
with it. It never opens a node: who wants to be together with it waits until it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fairbind.cluster.filters.anti_affinity import NO_TENANT, REPELLED, AntiAffinity, close
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.term_index import Labels, covers
from fairbind.cluster.objects.facts import Demand, PodTerm, PodTerms
from fairbind.model import NO_DOMAIN, Domains, Placement, Rejection, RejectionKind

OWN_ANTI_AFFINITY = Rejection(RejectionKind.OWN_ANTI_AFFINITY)


@dataclass(frozen=True, slots=True)
class Nomination:
    """Capacity of a node that is reserved for a pod that waits.

    repels, labels: what other pods' pod terms may ask about it. tenant: None when it belongs to no tenant.
    """

    uid: str
    node: str
    priority: int
    demand: Demand
    namespace: str
    labels: Labels = ()
    repels: tuple[PodTerm, ...] = ()
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """Nominated pods that a pod comes before: those up to the priority `above_priority`, and `nominated`, itself."""

    above_priority: int | None = None
    nominated: str | None = None

    def is_behind(self, nomination: Nomination) -> bool:
        """Whether the nominated pod comes first, so that its place counts."""
        is_above = self.above_priority is not None and nomination.priority <= self.above_priority
        return not is_above and nomination.uid != self.nominated


class NominatedRules:
    """See the module. changed: the terms by which nodes may be closed to other pods than when it was emptied last."""

    def __init__(
        self,
        eligibility: Eligibility,
        anti_affinity: AntiAffinity,
        find_namespace_labels: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._eligibility = eligibility
        self._terms = anti_affinity
        self._find_namespace_labels = find_namespace_labels
        self._pods: dict[str, Nomination] = {}
        self._selected: dict[PodTerm, tuple[Nomination, ...]] = {}

    def add(self, nomination: Nomination) -> None:
        """Note that a pod is nominated."""
        self._pods[nomination.uid] = nomination
        self._terms.watch(nomination.repels, nomination.tenant or NO_TENANT)
        self._note(nomination)

    def remove(self, nomination: Nomination) -> None:
        """Take back what `add` noted."""
        self._note(nomination)
        del self._pods[nomination.uid]
        self._terms.unwatch(nomination.repels, nomination.tenant or NO_TENANT)

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see its pods differently."""
        pods = [nomination for nomination in self._pods.values() if nomination.namespace == namespace]
        if pods:
            self._terms.touched.add(term for term in self._selected if term.namespace_selector is not None)
            self._selected.clear()

    def restrict(
        self, base: Placement, rank: Rank, pod_terms: PodTerms | None, selected_by: frozenset[PodTerm]
    ) -> Placement:
        """Return a placement without the nodes that are closed by anti-affinity of nominated pods, or to them."""
        if not self._pods:
            return base
        repelling = (
            (term, nomination)
            for nomination in self._pods.values()
            for term in nomination.repels
            if term in selected_by
        )
        base = self._close(base, rank, repelling, REPELLED)
        apart = pod_terms.apart if pod_terms is not None else ()
        repelled = ((term, nomination) for term in apart for nomination in self._find_selected(term))
        return self._close(base, rank, repelled, OWN_ANTI_AFFINITY)

    def count(self, term: PodTerm, rank: Rank, domains: Domains) -> tuple[tuple[int, int], ...]:
        """Return how many pods that count and that a term selects are nominated to each node; those in no domain none.

        Returns nodes by index with a count above 0, ascending.
        """
        if not self._pods:
            return ()
        counts = Counter[int]()
        for nomination in self._find_selected(term):
            k = self._eligibility.index.get(nomination.node)
            if k is not None and domains.domain_k[k] != NO_DOMAIN and rank.is_behind(nomination):
                counts[k] += 1
        return tuple(sorted(counts.items()))

    def _close(
        self,
        base: Placement,
        rank: Rank,
        found: Iterable[tuple[PodTerm, Nomination]],
        rejection: Rejection,
    ) -> Placement:
        """Close the nodes of nominated pods that come first, where the topology key of the term is known."""
        closed = {
            k for term, nomination in found if rank.is_behind(nomination) for k in self._find_node(term, nomination)
        }
        if not closed:
            return base
        closed_k = np.zeros_like(base.eligible_k)
        closed_k[sorted(closed)] = True
        return self._eligibility.share(close(base, closed_k, rejection))

    def _find_node(self, term: PodTerm, nomination: Nomination) -> Iterator[int]:
        k = self._eligibility.index.get(nomination.node)
        if k is not None and self._eligibility.get_columns().get_codes(term.topology_key)[0][k] != NO_DOMAIN:
            yield k

    def _find_selected(self, term: PodTerm) -> Collection[Nomination]:
        """Return the nominated pods that a term selects."""
        known = self._selected.get(term)
        if known is None:
            known = self._selected[term] = tuple(filter(lambda each: self._selects(term, each), self._pods.values()))
        return known

    def _selects(self, term: PodTerm, nomination: Nomination) -> bool:
        of_namespace = self._find_namespace_labels(nomination.namespace)
        return term.labels.is_met_by(dict(nomination.labels)) and covers(term, nomination.namespace, of_namespace)

    def _note(self, nomination: Nomination) -> None:
        """Note which terms see the pod, of those in use."""
        self._terms.touched.add((*self._terms.select(nomination.namespace, nomination.labels), *nomination.repels))
        self._selected.clear()
