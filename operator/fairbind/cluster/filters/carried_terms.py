"""What placed pods would like of pods that come: their preferred affinity and anti-affinity, and what they require.

kube-scheduler asks placed pods, too: one that would like to be with others draws them to its domain, one that would
rather be apart from them keeps them away, and required affinity draws a little. What the pods on a node that carry a
term are worth is added up, whatever weights they carry it with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairbind.cluster.filters.placed_pods import SelectedPods
from fairbind.cluster.objects.facts import PodTerm, WeightedTerm


class CarriedTerms:
    """See the module."""

    def __init__(self) -> None:
        self._pods: Counter[PodTerm] = Counter()
        self._worth: dict[PodTerm, SelectedPods] = {}

    def __contains__(self, term: object) -> bool:
        """Whether a placed pod carries a term."""
        return term in self._worth

    def hold(self, carries: Iterable[WeightedTerm], node: str) -> None:
        """Note that a pod with these terms is on a node."""
        for weight, term in carries:
            self._pods[term] += 1
            worth = self._worth.get(term)
            if worth is None:
                worth = self._worth[term] = SelectedPods()
            worth.add(node, weight, is_leaving=False)

    def release(self, carries: Iterable[WeightedTerm], node: str) -> None:
        """Take back what `hold` noted."""
        for weight, term in carries:
            self._worth[term].add(node, -weight, is_leaving=False)
            self._pods[term] -= 1
            if not self._pods[term]:
                del self._pods[term], self._worth[term]

    def get_worth(self, term: PodTerm) -> SelectedPods:
        """Return what the pods that carry a term are worth together on each node, as if each were so many pods."""
        return self._worth[term]
