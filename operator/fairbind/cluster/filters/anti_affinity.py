"""Terms that select pods: which of them select a waiting pod, and what those of placed pods keep it away from.

A pod with required anti-affinity does not only choose its own place. Once it is placed, no pod that its terms select
may come into the same topology domain, under any scheduler.

A term is in use while a placed pod closes a domain by it, or a waiting pod asks about it (`watch`). It closes domains:
the values that its topology key has on the nodes where its pods are. On a node that does not exist, or that lacks the
key, it closes nothing; without a waiting pod that asks, such a term is only noted, and nothing is compared with it.

Both sides are indexed, because one tenant writes the terms and all tenants' pods wait. Waiting pods are kept in groups
of one namespace and equal labels, and each group knows the terms that select it. Terms that come or go ask only the
groups that have a label pair without which they select nothing, and all of them at once (`SelectorBits`): a group costs
a look-up for each of its labels, however many terms there are. A new group asks only the terms that wait for one of its
label pairs, and those few that wait for none, of its own namespace and of those that choose namespaces by label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.selector_bits import SelectorBits
from fairbind.cluster.objects.facts import NodeFacts, PodTerm
from fairbind.model import Placement, Rejection, RejectionKind
from fairbind.model.servers import BoolArray

REPELLED = Rejection(RejectionKind.ANTI_AFFINITY)
NO_TERMS: frozenset[PodTerm] = frozenset()

Labels = tuple[tuple[str, str], ...]
_Pair = tuple[str, str]
_ANY_PAIR = ("", "")
"""Stands for the label pair of terms that none can be looked up by; no label has an empty key."""
_WIDE = ""
"""Stands for the namespace of terms that select namespaces by label; none has an empty name."""


class _Group:
    """Waiting pods of one namespace with equal labels. terms: of those in use those that select them."""

    __slots__ = ("labels", "namespace", "terms", "uids")

    def __init__(self, namespace: str, labels: Labels, terms: frozenset[PodTerm]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terms = terms
        self.uids: set[str] = set()


def find_pairs(term: PodTerm) -> tuple[_Pair, ...]:
    """Return label pairs of which each pod that the term selects has one; `_ANY_PAIR` when none can be named."""
    listing = [requirement for requirement in term.labels.requirements if requirement.operator == "In"]
    if not listing:
        return (_ANY_PAIR,)
    shortest = min(listing, key=lambda requirement: (len(requirement.values), requirement.key))
    return tuple((shortest.key, value) for value in shortest.values)


class AskedTerms:
    """Terms that are asked about many groups, one after the other."""

    def __init__(self, terms: Sequence[PodTerm], find_namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self._terms = terms
        self._find_namespace_labels = find_namespace_labels
        self._by_labels = SelectorBits([term.labels for term in terms])
        self._by_namespace_labels = SelectorBits([term.namespace_selector for term in terms])
        self._naming: dict[str, int] = {}
        for number, term in enumerate(terms):
            for namespace in term.namespaces:
                self._naming[namespace] = self._naming.get(namespace, 0) | 1 << number
        self._narrowed = [(number, term) for number, term in enumerate(terms) if term.also]
        self._covering: dict[str, int] = {}

    @property
    def label_keys(self) -> Iterable[str]:
        """The keys of pods' labels that the terms ask about: pods of a namespace without any of these are one."""
        return self._by_labels.keys

    def find_selecting(self, namespace: str, labels: Labels) -> int:
        """Return which terms select pods of a namespace with these labels: bit n for number n."""
        covering = self._covering.get(namespace)
        if covering is None:
            of_namespace = tuple(self._find_namespace_labels(namespace).items())
            covering = self._by_namespace_labels.find_met(of_namespace) | self._naming.get(namespace, 0)
            for number, term in self._narrowed:
                if not covers(term, namespace, dict(of_namespace)):
                    covering &= ~(1 << number)
            self._covering[namespace] = covering
        return covering & self._by_labels.find_met(labels) if covering else 0

    def list_terms(self, selecting: int) -> Iterator[PodTerm]:
        """Return the terms of these bits."""
        return (term for number, term in enumerate(self._terms) if selecting >> number & 1)


class AntiAffinity:
    """The terms of placed pods, and the waiting pods that they may select.

    find_namespace_labels: of a namespace by its name. version: grows when the domains that any term closes change.
    changed: the terms that close other domains than when it was emptied last.
    """

    def __init__(self, find_namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self._find_namespace_labels = find_namespace_labels
        self._nodes: dict[str, NodeFacts] = {}
        self._noted: dict[str, Counter[PodTerm]] = {}
        self._domains: dict[PodTerm, Counter[str]] = {}
        self._watched: Counter[PodTerm] = Counter()
        self._terms: dict[str, dict[_Pair, dict[PodTerm, None]]] = {}
        self._groups: dict[str, dict[Labels, _Group]] = {}
        self._groups_by_pair: dict[_Pair, dict[_Group, None]] = {}
        self._stale: dict[_Group, None] = {}
        self.version = 0
        self.changed: set[PodTerm] = set()

    # --- placed pods and their nodes ---

    def hold(self, terms: Iterable[PodTerm], node: str) -> None:
        """Note that a pod with these terms is on a node."""
        terms = tuple(terms)
        if terms:
            self._noted.setdefault(node, Counter()).update(terms)
            self._index([term for term in terms if self._open(term, self._find_domain(term, node))])

    def release(self, terms: Iterable[PodTerm], node: str) -> None:
        """Take back what `hold` noted."""
        noted = self._noted.get(node, Counter())
        closed = []
        for term in terms:
            noted[term] -= 1
            if not noted[term]:
                del noted[term]
            if self._close(term, self._find_domain(term, node)):
                closed.append(term)
        if not noted:
            self._noted.pop(node, None)
        self._unindex(closed)

    def set_node(self, name: str, node: NodeFacts | None) -> None:
        """Take a node, new or changed; None: it is gone."""
        noted = self._noted.get(name, Counter())
        before = {term: self._find_domain(term, name) for term in noted}
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        moved = [(term, domain, self._find_domain(term, name)) for term, domain in before.items()]
        moved = [(term, old, new) for term, old, new in moved if old != new]
        self._index([term for term, _, new in moved if self._open(term, new, noted[term])])
        self._unindex([term for term, old, _ in moved if self._close(term, old, noted[term])])

    def find_closed(self, term: PodTerm) -> Collection[str]:
        """Return the domains that a term closes, as values of its topology key."""
        return self._domains.get(term, ())

    def _find_domain(self, term: PodTerm, name: str) -> str | None:
        """Return the value of the term's topology key on a node; None when there is none."""
        node = self._nodes.get(name)
        return dict(node.labels).get(term.topology_key) if node is not None else None

    def _open(self, term: PodTerm, domain: str | None, pods: int = 1) -> bool:
        """Count more pods in a domain; True when the term was not in use before."""
        if domain is None:
            return False
        is_new = term not in self._domains and term not in self._watched
        domains = self._domains.setdefault(term, Counter())
        if not domains[domain]:
            self.version += 1
            self.changed.add(term)
        domains[domain] += pods
        return is_new

    def _close(self, term: PodTerm, domain: str | None, pods: int = 1) -> bool:
        """Count fewer pods in a domain; True when the term is not in use any more."""
        if domain is None:
            return False
        domains = self._domains[term]
        domains[domain] -= pods
        if not domains[domain]:
            del domains[domain]
            self.version += 1
            self.changed.add(term)
        if domains:
            return False
        del self._domains[term]
        return term not in self._watched

    # --- terms of waiting pods ---

    def watch(self, terms: Iterable[PodTerm]) -> None:
        """Keep terms in use, whether they close a domain or not, for one more who asks about them."""
        terms = dict.fromkeys(terms)
        new = [term for term in terms if term not in self._watched and term not in self._domains]
        self._watched.update(terms.keys())
        self._index(new)

    def unwatch(self, terms: Iterable[PodTerm]) -> None:
        """Take back what `watch` did."""
        terms = dict.fromkeys(terms)
        self._watched.subtract(terms.keys())
        gone = [term for term in terms if not self._watched[term]]
        for term in gone:
            del self._watched[term]
        self._unindex([term for term in gone if term not in self._domains])

    # --- waiting pods ---

    def wait(self, uid: str, namespace: str, labels: Labels) -> None:
        """Note that a pod waits."""
        group = self._groups.get(namespace, {}).get(labels)
        if group is None:
            group = _Group(namespace, labels, self.select(namespace, labels))
            self._groups.setdefault(namespace, {})[labels] = group
            for pair in _list_pairs(labels):
                self._groups_by_pair.setdefault(pair, {})[group] = None
        group.uids.add(uid)

    def stop_waiting(self, uid: str, namespace: str, labels: Labels) -> None:
        """Take back what `wait` noted."""
        group = self._groups[namespace][labels]
        group.uids.discard(uid)
        if group.uids:
            return
        del self._groups[namespace][labels]
        if not self._groups[namespace]:
            del self._groups[namespace]
        for pair in _list_pairs(labels):
            del self._groups_by_pair[pair][group]
            if not self._groups_by_pair[pair]:
                del self._groups_by_pair[pair]
        self._stale.pop(group, None)

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see it differently."""
        if _WIDE in self._terms:
            for group in self._groups.get(namespace, {}).values():
                self._set_terms(group, self.select(namespace, group.labels))

    def find_terms(self, namespace: str, labels: Labels) -> frozenset[PodTerm]:
        """Return the terms in use that select a pod."""
        group = self._groups.get(namespace, {}).get(labels)
        return self.select(namespace, labels) if group is None else group.terms

    def take_stale(self) -> list[str]:
        """Return the waiting pods that other terms select than before, in any order; asked again, there are none."""
        if not self._stale:
            return []
        stale = [uid for group in self._stale for uid in group.uids]
        self._stale.clear()
        return stale

    def select(self, namespace: str, labels: Labels) -> frozenset[PodTerm]:
        """Return the terms in use that select pods of a namespace with these labels, by asking them."""
        indexes = [index for index in (self._terms.get(namespace), self._terms.get(_WIDE)) if index is not None]
        if not indexes:
            return NO_TERMS
        pod_labels, of_namespace = dict(labels), self._find_namespace_labels(namespace)
        return frozenset(
            term
            for index in indexes
            for pair in _list_pairs(labels)
            for term in index.get(pair, ())
            if term.labels.is_met_by(pod_labels) and covers(term, namespace, of_namespace)
        )

    # --- both ---

    def restrict(self, base: Placement, terms: frozenset[PodTerm], eligibility: Eligibility) -> Placement:
        """Return a placement without the nodes that the terms close."""
        closed: dict[str, set[str]] = {}
        for term in terms & self._domains.keys():
            closed.setdefault(term.topology_key, set()).update(self._domains[term])
        if not closed:
            return base
        closed_k: BoolArray = np.zeros_like(base.eligible_k)
        for topology_key, domains in closed.items():
            closed_k |= eligibility.match_values(topology_key, domains)
        return close(base, closed_k, REPELLED)

    def _index(self, terms: Sequence[PodTerm]) -> None:
        """Let terms that close a domain now be found, and note which groups they select."""
        for term in terms:
            for namespace, pair in _find_places(term):
                self._terms.setdefault(namespace, {}).setdefault(pair, {})[term] = None
        asked = AskedTerms(terms, self._find_namespace_labels)
        unions: dict[tuple[frozenset[PodTerm], int], frozenset[PodTerm]] = {}
        for group in self._find_candidates(terms):
            selecting = asked.find_selecting(group.namespace, group.labels)
            if selecting:  # thousands of groups get the same terms, and share one set
                union = unions.get((group.terms, selecting))
                if union is None:
                    union = unions[group.terms, selecting] = group.terms.union(asked.list_terms(selecting))
                self._set_terms(group, union)

    def _unindex(self, terms: Collection[PodTerm]) -> None:
        """Take back what `_index` did."""
        for term in terms:
            for namespace, pair in _find_places(term):
                index = self._terms[namespace]
                del index[pair][term]
                if not index[pair]:
                    del index[pair]
                if not index:
                    del self._terms[namespace]
        differences: dict[frozenset[PodTerm], frozenset[PodTerm]] = {}
        for group in self._find_candidates(terms):
            if group.terms:
                difference = differences.get(group.terms)
                if difference is None:
                    difference = differences[group.terms] = group.terms.difference(terms)
                self._set_terms(group, difference)

    def _find_candidates(self, terms: Iterable[PodTerm]) -> Iterable[_Group]:
        """Find the groups that terms may select: by label pair, or by namespace where those are fewer."""
        found: dict[int, Collection[_Group]] = {}  # terms share pairs and namespaces
        for term in terms:
            by_pair = [groups for pair in find_pairs(term) if (groups := self._groups_by_pair.get(pair))]
            if term.namespace_selector is None:
                near = [pods for namespace in term.namespaces if (pods := self._groups.get(namespace))]
                if sum(map(len, near)) < sum(map(len, by_pair)):
                    found.update((id(pods), pods.values()) for pods in near)
                    continue
            found.update((id(groups), groups) for groups in by_pair)
        return dict.fromkeys(chain.from_iterable(found.values()))

    def _set_terms(self, group: _Group, terms: frozenset[PodTerm]) -> None:
        if terms != group.terms:
            group.terms = terms
            self._stale[group] = None


def covers(term: PodTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a term is about pods of a namespace with these labels."""
    return all(
        namespace in names or (selector is not None and selector.is_met_by(labels))
        for names, selector in ((term.namespaces, term.namespace_selector), *term.also)
    )


def close(base: Placement, closed_k: BoolArray, rejection: Rejection) -> Placement:
    """Return a placement without the nodes that are closed; those of them that were eligible count under a reason."""
    refused = int(np.count_nonzero(base.eligible_k & closed_k))
    if not refused:
        return base
    eligible_k = base.eligible_k & ~closed_k
    eligible_k.flags.writeable = False
    counts = dict(base.rejections)
    counts[rejection] = counts.get(rejection, 0) + refused
    return replace(base, eligible_k=eligible_k, rejections=tuple(sorted(counts.items())))


def _list_pairs(labels: Labels) -> Iterable[_Pair]:
    return dict.fromkeys((*labels, _ANY_PAIR))


def _find_places(term: PodTerm) -> Iterator[tuple[str, _Pair]]:
    """Find where a term is in the index: none for one that selects nothing."""
    namespaces = term.namespaces if term.namespace_selector is None else (_WIDE,)
    return product(namespaces, find_pairs(term))
