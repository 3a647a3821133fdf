"""Placed pods that keep others away: required anti-affinity works both ways.

A pod with required anti-affinity does not only choose its own place. Once it is placed, no pod that its terms select
may come into the same topology domain, whoever schedules that pod. Pods that carry such terms wait here (they are not
honoured yet), but others may have placed some, and what they keep away must stay away.

So the terms of placed pods are counted by node. A waiting pod's class knows which terms select it; from where the
term's pods are follows which nodes are closed to the class. Terms are looked up by namespace, because almost all of
them speak about their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.facts import AntiAffinityTerm
from fairbind.model import Placement, Rejection, RejectionKind
from fairbind.model.servers import BoolArray

REPELLED = Rejection(RejectionKind.ANTI_AFFINITY)
NO_TERMS: frozenset[AntiAffinityTerm] = frozenset()

Labels = tuple[tuple[str, str], ...]


class AntiAffinity:
    """The terms of placed pods. version: grows when the nodes of any term change."""

    def __init__(self, find_namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self._find_namespace_labels = find_namespace_labels
        self._nodes: dict[AntiAffinityTerm, Counter[str]] = {}
        self._by_namespace: dict[str, dict[AntiAffinityTerm, None]] = {}
        self._wide: dict[AntiAffinityTerm, None] = {}
        self._stale: set[str] = set()
        self._is_all_stale = False
        self.version = 0

    def hold(self, terms: Iterable[AntiAffinityTerm], node: str) -> None:
        """Note that a pod with these terms is on a node."""
        for term in terms:
            self.version += 1
            if term not in self._nodes:
                self._nodes[term] = Counter()
                self._index(term)
            self._nodes[term][node] += 1

    def release(self, terms: Iterable[AntiAffinityTerm], node: str) -> None:
        """Take back what `hold` noted."""
        for term in terms:
            self.version += 1
            nodes = self._nodes[term]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes[term]
                self._unindex(term)

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see it differently."""
        if self._wide:
            self._stale.add(namespace)

    def find_terms(self, namespace: str, labels: Labels) -> frozenset[AntiAffinityTerm]:
        """Return the terms that select a pod."""
        near = self._by_namespace.get(namespace)
        if near is None and not self._wide:
            return NO_TERMS
        pod_labels = dict(labels)
        return frozenset(
            term
            for term in (*(near or ()), *self._wide)
            if term.labels.is_met_by(pod_labels) and self._covers(term, namespace)
        )

    def take_stale(self, namespaces: Iterable[str]) -> list[str]:
        """Return which of these namespaces have pods that must be looked at again; asked again, none have."""
        stale = sorted(namespace for namespace in namespaces if self._is_all_stale or namespace in self._stale)
        self._stale.clear()
        self._is_all_stale = False
        return stale

    def restrict(self, base: Placement, terms: frozenset[AntiAffinityTerm], eligibility: Eligibility) -> Placement:
        """Return a placement without the nodes that the terms close."""
        closed_k: BoolArray = np.zeros_like(base.eligible_k)
        for term in terms:
            closed_k |= eligibility.match_domains(term.topology_key, self._nodes.get(term, ()))
        refused = int(np.count_nonzero(base.eligible_k & closed_k))
        if not refused:
            return base
        eligible_k = base.eligible_k & ~closed_k
        eligible_k.flags.writeable = False
        return replace(base, eligible_k=eligible_k, rejections=tuple(sorted((*base.rejections, (REPELLED, refused)))))

    def _covers(self, term: AntiAffinityTerm, namespace: str) -> bool:
        if namespace in term.namespaces:
            return True
        selector = term.namespace_selector
        return selector is not None and selector.is_met_by(self._find_namespace_labels(namespace))

    def _index(self, term: AntiAffinityTerm) -> None:
        if term.namespace_selector is not None:
            self._wide[term] = None
            self._is_all_stale = True
            return
        for namespace in term.namespaces:
            self._by_namespace.setdefault(namespace, {})[term] = None
            self._stale.add(namespace)

    def _unindex(self, term: AntiAffinityTerm) -> None:
        if term.namespace_selector is not None:
            del self._wide[term]
            self._is_all_stale = True
            return
        for namespace in term.namespaces:
            near = self._by_namespace[namespace]
            del near[term]
            if not near:
                del self._by_namespace[namespace]
            self._stale.add(namespace)
