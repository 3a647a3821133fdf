"""Terms that select pods: which of them select a waiting pod, and what those of placed pods keep it away from.

A pod with required anti-affinity does not only choose its own place. Once it is placed, no pod that its terms select
may come into the same topology domain, under any scheduler.

A term is in use while a placed pod closes a domain by it, or a waiting pod asks about it (`watch`). It closes domains:
the values that its topology key has on the nodes where its pods are. On a node that does not exist, or that lacks the
key, it closes nothing; without a waiting pod that asks, such a term is only noted, and nothing is compared with it.

Both sides are indexed, because one tenant writes the terms and all tenants' pods wait. Waiting pods are kept in groups
of one namespace and equal labels, and each group knows the terms that select it. Terms that come or go ask only the
groups that have a label pair or a key without which they select nothing, and all of them at once (`SelectorBits`): a
group costs a look-up for each of its labels, however many terms there are. A new group asks only the terms that wait
for one of its label pairs or keys, and those few that wait for none (`TermIndex`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.term_index import (
    ANY_PAIR,
    AskedTerms,
    Labels,
    Pair,
    TermIndex,
    Use,
    find_pairs,
)
from fairbind.cluster.objects.facts import NodeFacts, PodTerm
from fairbind.derived import Given, Rotation
from fairbind.model import Placement, Rejection, RejectionKind
from fairbind.model.servers import BoolArray

REPELLED = Rejection(RejectionKind.ANTI_AFFINITY)
NO_TENANT = ""
"""Brings the terms of pods into use that belong to no tenant."""


class _Group:
    """Waiting pods of one namespace with equal labels. terms: of those in use those that select them."""

    __slots__ = ("labels", "namespace", "terms", "uids")

    def __init__(self, namespace: str, labels: Labels, terms: frozenset[PodTerm]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terms = terms
        self.uids: set[str] = set()


class AntiAffinity:
    """The terms of placed pods, and the waiting pods that they may select.

    find_namespace_labels: of a namespace by its name. closed: the domains that terms close.
    touched: the terms of which a closed domain, or a rule, may be another one than when they were taken.
    """

    def __init__(self, find_namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self._find_namespace_labels = find_namespace_labels
        self._nodes: dict[str, NodeFacts] = {}
        self._noted: dict[str, Counter[Use]] = {}
        self._domains: dict[PodTerm, Counter[str]] = {}
        self._uses: Counter[Use] = Counter()
        self._terms = TermIndex(find_namespace_labels)
        self._groups: dict[str, dict[Labels, _Group]] = {}
        self._groups_by_key: dict[str, dict[str | None, dict[_Group, None]]] = {}
        self._to_ask = Rotation[_Group]()
        self.closed = Given()
        self.touched = Rotation[PodTerm]()

    def copy_choice(self, other: AntiAffinity) -> None:
        """Let those terms wait for a place that do so in another one, which may have come first here."""
        self._terms.copy_choice(other._terms)

    # --- placed pods and their nodes ---

    def hold(self, terms: Iterable[PodTerm], node: str, tenant: str | None = None) -> None:
        """Note that a pod of a tenant with these terms is on a node."""
        uses = [(tenant or NO_TENANT, term) for term in terms]
        if uses:
            self._noted.setdefault(node, Counter()).update(uses)
            self._index([use for use in uses if self._open(use, self._find_domain(use[1], node))])

    def release(self, terms: Iterable[PodTerm], node: str, tenant: str | None = None) -> None:
        """Take back what `hold` noted."""
        noted = self._noted.get(node, Counter())
        closed = []
        for use in [(tenant or NO_TENANT, term) for term in terms]:
            noted[use] -= 1
            if not noted[use]:
                del noted[use]
            if self._close(use, self._find_domain(use[1], node)):
                closed.append(use)
        if not noted:
            self._noted.pop(node, None)
        self._unindex(closed)

    def set_node(self, name: str, node: NodeFacts | None) -> None:
        """Take a node, new or changed; None: it is gone."""
        noted = self._noted.get(name, Counter())
        before = {use: self._find_domain(use[1], name) for use in noted}
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        moved = [(use, domain, self._find_domain(use[1], name)) for use, domain in before.items()]
        moved = [(use, old, new) for use, old, new in moved if old != new]
        self._index([use for use, _, new in moved if self._open(use, new, noted[use])])
        self._unindex([use for use, old, _ in moved if self._close(use, old, noted[use])])

    def find_closed(self, term: PodTerm) -> Collection[str]:
        """Return the domains that a term closes, as values of its topology key."""
        return self._domains.get(term, ())

    def _find_domain(self, term: PodTerm, name: str) -> str | None:
        """Return the value of the term's topology key on a node; None when there is none."""
        node = self._nodes.get(name)
        return dict(node.labels).get(term.topology_key) if node is not None else None

    def _open(self, use: Use, domain: str | None, pods: int = 1) -> bool:
        """Count more pods in a domain; True when the use is new."""
        if domain is None:
            return False
        domains = self._domains.setdefault(use[1], Counter())
        if not domains[domain]:
            self.closed.note_change()
            self.touched.add([use[1]])
        domains[domain] += pods
        self._uses[use] += pods
        return self._uses[use] == pods

    def _close(self, use: Use, domain: str | None, pods: int = 1) -> bool:
        """Count fewer pods in a domain; True when the use ends."""
        if domain is None:
            return False
        term = use[1]
        domains = self._domains[term]
        domains[domain] -= pods
        if not domains[domain]:
            del domains[domain]
            self.closed.note_change()
            self.touched.add([term])
        if not domains:
            del self._domains[term]
        return self._end(use, pods)

    def _end(self, use: Use, times: int = 1) -> bool:
        """Count a use less often; True when it ends."""
        self._uses[use] -= times
        if self._uses[use]:
            return False
        del self._uses[use]
        return True

    # --- terms of others ---

    def watch(self, terms: Iterable[PodTerm], tenant: str | None = None) -> None:
        """Keep terms in use, whether they close a domain or not, for one more who asks about them.

        tenant: whose placed or nominated pod it is; None: a waiting pod asks, and the terms count in any case.
        """
        uses = [(tenant, term) for term in dict.fromkeys(terms)]
        new = [use for use in uses if use not in self._uses]
        self._uses.update(uses)
        self._index(new)

    def unwatch(self, terms: Iterable[PodTerm], tenant: str | None = None) -> None:
        """Take back what `watch` did."""
        uses = [(tenant, term) for term in dict.fromkeys(terms)]
        self._unindex([use for use in uses if self._end(use)])

    # --- waiting pods ---

    def wait(self, uid: str, namespace: str, labels: Labels) -> None:
        """Note that a pod waits."""
        group = self._groups.get(namespace, {}).get(labels)
        if group is None:
            group = _Group(namespace, labels, self.select(namespace, labels))
            self._groups.setdefault(namespace, {})[labels] = group
            for key, value in dict.fromkeys((*labels, ANY_PAIR)):
                self._groups_by_key.setdefault(key, {}).setdefault(value, {})[group] = None
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
        for key, value in dict.fromkeys((*labels, ANY_PAIR)):
            by_value = self._groups_by_key[key]
            del by_value[value][group]
            if not by_value[value]:
                del by_value[value]
            if not by_value:
                del self._groups_by_key[key]
        self._to_ask.discard(group)

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see it differently."""
        if self._terms:
            self._terms.note_labels(namespace)
            for group in self._groups.get(namespace, {}).values():
                self._set_terms(group, self.select(namespace, group.labels))

    def find_terms(self, namespace: str, labels: Labels) -> frozenset[PodTerm]:
        """Return the terms in use that select a pod."""
        group = self._groups.get(namespace, {}).get(labels)
        return self.select(namespace, labels) if group is None else group.terms

    def take_stale(self) -> list[str]:
        """Return the waiting pods that other terms select than before, in any order; asked again, there are none."""
        if not self._to_ask:
            return []
        return [uid for group in self._to_ask.take_all() for uid in group.uids]

    def select(self, namespace: str, labels: Labels) -> frozenset[PodTerm]:
        """Return the terms in use that select pods of a namespace with these labels, by asking them."""
        return self._terms.select(namespace, labels)

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

    def _index(self, uses: Iterable[Use]) -> None:
        """Let terms that are in use now be found, and note which groups they select."""
        self._note_added(self._terms.add(uses))

    def _unindex(self, uses: Iterable[Use]) -> None:
        """Take back what `_index` did; terms that waited for a place may count now."""
        removed, added = self._terms.remove(uses)
        differences: dict[frozenset[PodTerm], frozenset[PodTerm]] = {}
        for group in self._find_candidates(removed):
            if group.terms:
                difference = differences.get(group.terms)
                if difference is None:
                    difference = differences[group.terms] = group.terms.difference(removed)
                self._set_terms(group, difference)
        self._note_added(added)

    def _note_added(self, terms: Sequence[PodTerm]) -> None:
        """Note which groups terms select that count now."""
        asked = AskedTerms(terms, self._find_namespace_labels)
        unions: dict[tuple[frozenset[PodTerm], int], frozenset[PodTerm]] = {}
        for group in self._find_candidates(terms):
            selecting = asked.find_selecting(group.namespace, group.labels)
            if selecting:  # thousands of groups get the same terms, and share one set
                union = unions.get((group.terms, selecting))
                if union is None:
                    union = unions[group.terms, selecting] = group.terms.union(asked.list_terms(selecting))
                self._set_terms(group, union)

    def _find_candidates(self, terms: Iterable[PodTerm]) -> Iterable[_Group]:
        """Find the groups that terms may select: by label pair, or by namespace where those are fewer."""
        found: dict[int, Collection[_Group]] = {}  # terms share pairs and namespaces
        for pairs, of_pairs in _group_by_pairs(terms).items():
            by_pair = [groups for pair in pairs for groups in self._list_with(*pair)]
            for term in of_pairs:
                if term.namespace_selector is None:
                    near = [pods for namespace in term.namespaces if (pods := self._groups.get(namespace))]
                    if sum(map(len, near)) < sum(map(len, by_pair)):
                        found.update((id(pods), pods.values()) for pods in near)
                        continue
                found.update((id(groups), groups) for groups in by_pair)
        return dict.fromkeys(chain.from_iterable(found.values()))

    def _list_with(self, key: str, value: str | None) -> Iterable[Collection[_Group]]:
        """Return the groups with a label. value: None stands for any."""
        by_value = self._groups_by_key.get(key, {})
        if value is None:
            return by_value.values()
        return (by_value[value],) if value in by_value else ()

    def _set_terms(self, group: _Group, terms: frozenset[PodTerm]) -> None:
        if terms != group.terms:
            group.terms = terms
            self._to_ask.add([group])


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


def _group_by_pairs(terms: Iterable[PodTerm]) -> Mapping[tuple[Pair, ...], Collection[PodTerm]]:
    """Return terms by the pairs that they are looked up by."""
    grouped: dict[tuple[Pair, ...], list[PodTerm]] = {}
    for term in terms:
        grouped.setdefault(find_pairs(term), []).append(term)
    return grouped
