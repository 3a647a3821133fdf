"""What placed pods would like of pods that come: their preferred affinity and anti-affinity, and what they require.

kube-scheduler asks placed pods, too: one that would like to be with others draws them to its domain, one that would
rather be apart from them keeps them away, and required affinity draws a little. Each such term is counted on the nodes
of the pods that carry it, pod by pod, apart from pods that carry it with another weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairbind.cluster.filters.placed_pods import SelectedPods
from fairbind.cluster.objects.facts import PodTerm, WeightedTerm


class CarriedTerms:
    """See the module."""

    def __init__(self) -> None:
        self._pods: dict[PodTerm, dict[int, SelectedPods]] = {}

    def __contains__(self, term: object) -> bool:
        """Whether a placed pod carries a term."""
        return term in self._pods

    def hold(self, carries: Iterable[WeightedTerm], node: str) -> list[PodTerm]:
        """Note that a pod with these terms is on a node, and return those that no pod carried before."""
        new = []
        for weight, term in carries:
            by_weight = self._pods.get(term)
            if by_weight is None:
                by_weight = self._pods[term] = {}
                new.append(term)
            pods = by_weight.get(weight)
            if pods is None:
                pods = by_weight[weight] = SelectedPods()
            pods.add(node, 1, is_leaving=False)
        return new

    def release(self, carries: Iterable[WeightedTerm], node: str) -> list[PodTerm]:
        """Take back what `hold` noted, and return the terms that no pod carries any more."""
        gone = []
        for weight, term in carries:
            by_weight = self._pods[term]
            by_weight[weight].add(node, -1, is_leaving=False)
            if by_weight[weight].is_empty:
                del by_weight[weight]
            if not by_weight:
                del self._pods[term]
                gone.append(term)
        return gone

    def get(self, weighted: WeightedTerm) -> SelectedPods | None:
        """Return the pods that carry a term with a weight; None: there are none."""
        weight, term = weighted
        return self._pods.get(term, {}).get(weight)

    def list_weighted(self, terms: Iterable[PodTerm]) -> Iterator[WeightedTerm]:
        """Return these terms with each weight that placed pods carry them with."""
        return ((weight, term) for term in terms for weight in self._pods.get(term, ()))
