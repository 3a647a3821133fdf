"""How many placed pods each term selects on each node, kept up to date pod by pod.

Counted are only terms that some waiting pod asks about. Placed pods are kept in groups of one namespace and equal
labels; a group knows which of these terms select it, so a pod that comes or goes costs one addition for each of them.
Terms that are asked about for the first time are asked about each group of their namespaces, all of them together.
Groups without a label of any key in their selectors are all the same to them. What the same ones select is added up
before it is counted.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np

from fairbind.cluster.filters.term_index import NO_TERMS, AskedTerms, Labels
from fairbind.cluster.objects.facts import PodTerm
from fairbind.derived import Rotation
from fairbind.model.topology import CountArray

_Index = Mapping[str, int]
_VERSIONS = itertools.count()
_get_key = itemgetter(0)


class _NodeCounts:
    """Pods by node. The array is made when it is asked for and then kept, while the nodes stay the same."""

    __slots__ = ("_array", "_by_node")

    def __init__(self) -> None:
        self._by_node: Counter[str] = Counter()
        self._array: tuple[_Index, CountArray] | None = None

    def add(self, node: str, pods: int) -> None:
        self._by_node[node] += pods
        if not self._by_node[node]:
            del self._by_node[node]
        if self._array is not None:
            index, count_k = self._array
            k = index.get(node)
            if k is not None:
                count_k[k] += pods

    def add_all(self, pods_by_node: Mapping[str, int], sign: int) -> None:
        self._array = None
        by_node = self._by_node
        if sign > 0:
            by_node.update(pods_by_node)
            return
        by_node.subtract(pods_by_node)
        for node in [node for node in pods_by_node if not by_node[node]]:
            del by_node[node]

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def get_array(self, index: _Index) -> CountArray:
        if self._array is None or self._array[0] is not index:
            size, by_node = len(index), self._by_node
            count_k = np.zeros(size + 1, dtype=np.int64)  # the last is of nodes that are not there
            k_n = np.fromiter(map(index.get, by_node, itertools.repeat(size)), dtype=np.int64, count=len(by_node))
            count_k[k_n] = np.fromiter(by_node.values(), dtype=np.int64, count=len(by_node))
            self._array = index, count_k[:size]
        return self._array[1]


class SelectedPods:
    """The placed pods that a term selects.

    version: another one whenever they change, of all terms and of all times. leaving: those that are being deleted.
    """

    __slots__ = ("_all", "_leaving", "version")

    def __init__(self) -> None:
        self._all = _NodeCounts()
        self._leaving = _NodeCounts()
        self.version = next(_VERSIONS)

    def add(self, node: str, pods: int, *, is_leaving: bool) -> None:
        """Count more pods on a node, or fewer."""
        self.version = next(_VERSIONS)
        self._all.add(node, pods)
        if is_leaving:
            self._leaving.add(node, pods)

    def add_all(self, pods_by_node: Mapping[str, int], leaving_by_node: Mapping[str, int], sign: int) -> None:
        """Count many pods more, or fewer."""
        self.version = next(_VERSIONS)
        self._all.add_all(pods_by_node, sign)
        self._leaving.add_all(leaving_by_node, sign)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._all

    def count_all(self, index: _Index) -> CountArray:
        """Return how many there are on each node, shape (K,); not to be changed. index: of each node by its name."""
        return self._all.get_array(index)

    def count_staying(self, index: _Index) -> CountArray:
        """Return the same without those that are being deleted."""
        return self._all.get_array(index) - self._leaving.get_array(index)


class _Group:
    """Placed pods of one namespace with equal labels. terms: those that select them, and some that are gone.

    Thousands of groups are selected by the same terms, and share one set.
    """

    __slots__ = ("labels", "leaving", "namespace", "nodes", "terms")

    def __init__(self, namespace: str, labels: Labels, terms: frozenset[PodTerm]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terms = terms
        self.nodes: Counter[str] = Counter()
        self.leaving: Counter[str] = Counter()


class PlacedPods:
    """See the module. touched: takes the terms of which other pods are selected than before.

    find_namespace_labels: of a namespace by its name. select: finds all terms in use that select pods of a namespace
    with these labels.
    """

    def __init__(
        self,
        find_namespace_labels: Callable[[str], Mapping[str, str]],
        select: Callable[[str, Labels], Collection[PodTerm]],
        touched: Rotation[PodTerm],
    ) -> None:
        self._find_namespace_labels = find_namespace_labels
        self._select = select
        self._groups: dict[str, dict[Labels, _Group]] = {}
        self._selected: dict[PodTerm, SelectedPods] = {}
        self._new: dict[PodTerm, None] = {}
        self._last_counted = NO_TERMS
        self._touched = touched

    def hold(self, namespace: str, labels: Labels, node: str, pods: int = 1, *, is_leaving: bool) -> None:
        """Note that a pod is on a node; pods=-1: it is there no more."""
        group = self._groups.get(namespace, {}).get(labels)
        if group is None:
            group = _Group(namespace, labels, self._list_counted(self._select(namespace, labels)))
            self._groups.setdefault(namespace, {})[labels] = group
        _add(group.nodes, node, pods)
        if is_leaving:
            _add(group.leaving, node, pods)
        for term in group.terms:
            selected = self._selected.get(term)
            if selected is not None:
                selected.add(node, pods, is_leaving=is_leaving)
                self._touched.add([term])
        if not group.nodes:
            del self._groups[namespace][labels]
            if not self._groups[namespace]:
                del self._groups[namespace]

    def watch(self, terms: Iterable[PodTerm]) -> None:
        """Begin to count what these terms select, none of which is counted."""
        self._new.update(dict.fromkeys(terms))

    def unwatch(self, terms: Iterable[PodTerm]) -> None:
        """End to count what these terms select."""
        for term in terms:
            self._new.pop(term, None)
            self._selected.pop(term, None)

    def get(self, term: PodTerm) -> SelectedPods:
        """Return what a term selects that is watched."""
        if self._new:
            self._count_new()
        return self._selected[term]

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see it differently."""
        for group in self._groups.get(namespace, {}).values():
            before = self._list_counted(group.terms)
            now = self._list_counted(self._select(namespace, group.labels))
            for term in before ^ now:
                self._selected[term].add_all(group.nodes, group.leaving, 1 if term in now else -1)
            self._touched.add(before ^ now)
            group.terms = now

    def _list_counted(self, terms: Iterable[PodTerm]) -> frozenset[PodTerm]:
        """Return those of the terms that are counted; the same object as the last time if they are the same."""
        counted = frozenset(term for term in terms if term in self._selected)
        if counted != self._last_counted:
            self._last_counted = counted
        return self._last_counted

    def _count_new(self) -> None:
        """Ask the new terms about all groups that they may select."""
        terms, self._new = list(self._new), {}
        asked = AskedTerms(terms, self._find_namespace_labels)
        keys = frozenset(asked.label_keys)
        sums: dict[int, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
        unions: dict[tuple[frozenset[PodTerm], int], frozenset[PodTerm]] = {}
        for namespace in self._find_namespaces(terms):
            of_others = asked.find_selecting(namespace, ())
            for group in self._groups[namespace].values():
                is_other = keys.isdisjoint(map(_get_key, group.labels))
                selecting = of_others if is_other else asked.find_selecting(namespace, group.labels)
                if not selecting:
                    continue
                union = unions.get((group.terms, selecting))
                if union is None:
                    union = self._list_counted(group.terms).union(asked.list_terms(selecting))
                    unions[group.terms, selecting] = union
                group.terms = union
                for total, own in zip(sums[selecting], (group.nodes, group.leaving), strict=True):
                    for node, pods in own.items():
                        total[node] += pods
        self._selected.update((term, SelectedPods()) for term in terms)
        for selecting, (nodes, leaving) in sums.items():
            for term in asked.list_terms(selecting):
                self._selected[term].add_all(nodes, leaving, 1)

    def _find_namespaces(self, terms: Sequence[PodTerm]) -> Iterable[str]:
        """Return the namespaces with placed pods that the terms may select."""
        if any(term.namespace_selector is not None for term in terms):
            return self._groups
        return {name for term in terms for name in term.namespaces if name in self._groups}


def _add(counts: Counter[str], node: str, pods: int) -> None:
    counts[node] += pods
    if not counts[node]:
        del counts[node]
