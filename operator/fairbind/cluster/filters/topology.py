"""From what waiting pods say about other pods to rules about topology domains, which the cycle follows.

A pod may ask to be with others (affinity), apart from others (anti-affinity) and spread evenly. All three depend on the
pods that each domain holds, and so on what a cycle places. Here each term becomes a rule with counters as of now.

Anti-affinity works both ways. What placed pods keep away is no rule: those nodes are not eligible (`AntiAffinity`). But
a pod with such terms may be placed within the cycle, so the waiting pods that its terms select get a rule as well,
which counts the pods that carry the term and begins at 0. A pod that its own term selects has both as rules, so that
other nodes than those of now count as eligible for it.

Preferences of the same kinds close nothing: they say where a pod would rather be (`Preferences`). Those about other
pods work both ways, too: what placed pods would like counts (`CarriedTerms`), and what those would like that a cycle
places.

Counters are shared by all classes that ask the same of the same nodes, and stay the same objects while nothing changes.

Where this differs from kube-scheduler: nodes outside the scheduler's node selector are no domains to spread over, as no
pod can go there; and pods without spread constraints get none by default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from weakref import WeakValueDictionary

import numpy as np

from fairbind.cluster.filters.anti_affinity import NO_TENANT, REPELLED, AntiAffinity, close
from fairbind.cluster.filters.carried_terms import CarriedTerms
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.nominated_rules import OWN_ANTI_AFFINITY, NominatedRules, Rank
from fairbind.cluster.filters.placed_pods import PlacedPods
from fairbind.cluster.filters.refusals import find_untolerated
from fairbind.cluster.objects.facts import HOSTNAME, Constraints, PodTerm, PodTerms, SpreadTerm, WeightedTerm
from fairbind.derived import Watch
from fairbind.model import (
    NO_DOMAIN,
    AffinityRule,
    DomainCounter,
    DomainRule,
    DomainRules,
    Domains,
    EvenPreference,
    LimitRule,
    Placement,
    Preference,
    Preferences,
    PullPreference,
    Rejection,
    RejectionKind,
    SeparationRule,
    SpreadRule,
)
from fairbind.model.servers import BoolArray
from fairbind.model.topology import CountArray, DomainArray

SPREAD = Rejection(RejectionKind.SPREAD)
NO_SPREAD_LABEL = Rejection(RejectionKind.SPREAD, " (missing required label)")
NOT_TOGETHER = Rejection(RejectionKind.AFFINITY)

MANY_COUNTERS = 512
"""Below so many it is not worth looking for counters that no class uses any more."""

PULL_WEIGHT = 2
EVEN_WEIGHT = 2
"""Weights of preferred affinity and of soft spread beside each other, and beside preferences about nodes."""


@dataclass(frozen=True, slots=True)
class Carriers:
    """A subject of counters: pods that carry a term with this weight."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class Holders:
    """A subject of counters: pods that carry a term of anti-affinity."""

    term: PodTerm


@dataclass(frozen=True, slots=True)
class Worth:
    """A subject of counters: what pods that carry a term are worth. No task is one."""

    term: PodTerm


class Interned:
    """Rules and preferences that are in use, so that two which say the same are one object."""

    def __init__(self) -> None:
        self.rules: WeakValueDictionary[tuple[object, ...], DomainRule] = WeakValueDictionary()
        self.rule_sets: WeakValueDictionary[tuple[DomainRule, ...], DomainRules] = WeakValueDictionary()
        self.preferences: WeakValueDictionary[tuple[object, ...], Preference] = WeakValueDictionary()
        self.preference_sets: WeakValueDictionary[tuple[Preference, ...], Preferences] = WeakValueDictionary()


class Topology:
    """Pod terms of waiting pods, and the rules that follow from them."""

    def __init__(
        self,
        eligibility: Eligibility,
        anti_affinity: AntiAffinity,
        find_namespace_labels: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._eligibility = eligibility
        self._terms = anti_affinity
        self.placed = PlacedPods(find_namespace_labels, anti_affinity.select, anti_affinity.touched)
        self.reserved = NominatedRules(eligibility, anti_affinity, find_namespace_labels)
        self._watched: Counter[PodTerms] = Counter()
        self._users: Counter[PodTerm] = Counter()
        self._carried: Counter[PodTerm] = Counter()
        self._placed_carry = CarriedTerms()
        self._waiting_carry: dict[PodTerm, Counter[int]] = {}
        self._touched = anti_affinity.touched
        self._nodes = Watch(eligibility.nodes)
        self._domains: dict[object, Domains] = {}
        self._counters: dict[tuple[PodTerm, Domains, str], tuple[int, DomainCounter]] = {}
        self._most_counters = MANY_COUNTERS
        self._interned = Interned()

    def take_changed(self) -> frozenset[PodTerm]:
        """Return the terms of which a rule or a closed domain may be another one than when this was asked last."""
        return frozenset(self._touched.take_all())

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed; terms that select namespaces by label may see it differently."""
        self._terms.note_labels(namespace)
        self.placed.note_labels(namespace)
        self.reserved.note_labels(namespace)

    # --- placed pods ---

    def hold(
        self, repels: Iterable[PodTerm], carries: Iterable[WeightedTerm], node: str, tenant: str | None = None
    ) -> None:
        """Note that a pod of a tenant is on a node, which repels others by terms and would like others by terms."""
        self._terms.hold(repels, node, tenant)
        if carries:
            terms = [term for _, term in carries]
            self._placed_carry.hold(carries, node)
            self._terms.watch(terms, tenant or NO_TENANT)
            self._touched.add(terms)

    def release(
        self, repels: Iterable[PodTerm], carries: Iterable[WeightedTerm], node: str, tenant: str | None = None
    ) -> None:
        """Take back what `hold` noted."""
        self._terms.release(repels, node, tenant)
        if carries:
            terms = [term for _, term in carries]
            self._touched.add(terms)
            self._placed_carry.release(carries, node)
            self._terms.unwatch(terms, tenant or NO_TENANT)

    # --- waiting pods ---

    def watch(self, pod_terms: PodTerms) -> bool:
        """A pod with these pod terms waits; True when it is the first."""
        self._watched[pod_terms] += 1
        if self._watched[pod_terms] > 1:
            return False
        new = [term for term in pod_terms.terms if not self._users[term]]
        self._users.update(pod_terms.terms)
        self._carried.update(pod_terms.apart)
        self._note_carried(pod_terms, 1)
        self._terms.watch(new)
        self.placed.watch(new)
        return True

    def unwatch(self, pod_terms: PodTerms) -> None:
        """Take back what `watch` noted."""
        self._watched[pod_terms] -= 1
        if self._watched[pod_terms]:
            return
        del self._watched[pod_terms]
        _subtract(self._carried, pod_terms.apart)
        self._note_carried(pod_terms, -1)
        gone = _subtract(self._users, pod_terms.terms)
        self._terms.unwatch(gone)
        self.placed.unwatch(gone)

    def _note_carried(self, pod_terms: PodTerms, sign: int) -> None:
        """Note what pods that a cycle may place say to the others."""
        self._touched.add(pod_terms.apart)
        for weight, term in pod_terms.carries:
            weights = self._waiting_carry.setdefault(term, Counter())
            weights[weight] += sign
            if not weights[weight]:
                del weights[weight]
            if not weights:
                del self._waiting_carry[term]
            self._touched.add([term])

    # --- rules ---

    def find_subjects(self, pod_terms: PodTerms | None, selected_by: frozenset[PodTerm]) -> frozenset[object]:
        """Return as what a pod counts once it is placed. selected_by: all terms in use that select it."""
        if pod_terms is None or not (pod_terms.apart or pod_terms.carries):
            return selected_by
        carried = (Carriers(weight, term) for weight, term in pod_terms.carries)
        return selected_by.union(map(Holders, pod_terms.apart), carried)

    def close_unlabelled(self, base: Placement, pod_terms: PodTerms) -> Placement:
        """Return a placement without the nodes that lack a topology key which affinity or spread need."""
        for rejection, keys in (
            (NO_SPREAD_LABEL, {spread_term.term.topology_key for spread_term in pod_terms.spread}),
            (NOT_TOGETHER, {term.topology_key for term in pod_terms.together}),
        ):
            if keys:
                base = close(base, ~self._have_keys(keys), rejection)
        return base

    def find_rules(
        self,
        pod_terms: PodTerms | None,
        selected_by: frozenset[PodTerm],
        constraints: Constraints,
        pin: str | None = None,
        rank: Rank = Rank(),  # noqa: B008 - it is frozen
        limits: Iterable[LimitRule] = (),
    ) -> DomainRules | None:
        """Return the rules of a class; the same object while they say the same. None: it has none.

        constraints, pin: which nodes the pods may use, for domains of spread. rank: which nominated pods count there.
        limits: rules that come before these, as kube-scheduler asks.
        """
        self._follow_nodes()
        rules: list[DomainRule] = [*limits]
        if pod_terms is not None:
            rules.extend(self._make_own(pod_terms, selected_by, constraints, pin, rank))
        carried = selected_by & self._carried.keys() if self._carried else ()
        own = pod_terms.apart if pod_terms is not None else ()
        counters = [self._count_held(term) if term in own else self._count_holders(term) for term in carried]
        rules.extend(sorted((self._separate(counter, REPELLED) for counter in counters), key=id))
        if not rules:
            return None
        return self._interned.rule_sets.setdefault(tuple(rules), DomainRules(tuple(rules)))

    def _follow_nodes(self) -> None:
        """Forget what was found out of other nodes, or of terms that are gone."""
        if self._nodes.take():
            self._domains.clear()
            self._counters.clear()
            self._most_counters = MANY_COUNTERS
        if len(self._counters) > self._most_counters:
            users, carried = self._users, self._placed_carry
            self._counters = {
                key: value for key, value in self._counters.items() if key[0] in users or key[0] in carried
            }
            self._most_counters = max(MANY_COUNTERS, 2 * len(self._counters))

    def find_preferences(
        self, pod_terms: PodTerms | None, selected_by: frozenset[PodTerm], constraints: Constraints
    ) -> Preferences | None:
        """Return all preferences of a class; the same object while they say the same.

        None: no placement changes them, so they are in `Placement.preference_k`.
        """
        self._follow_nodes()
        found: list[Preference] = []
        likes = pod_terms.likes if pod_terms is not None else ()
        pulls = [(self._count_all(term), weight) for weight, term in likes]
        pulls.extend((self._count_worth(term), 1) for term in selected_by if term in self._placed_carry)
        coming = ((weight, term) for term in selected_by for weight in self._waiting_carry.get(term, ()))
        pulls.extend((self._count_carriers(*each), each[0]) for each in coming)
        if pulls:
            pull = PullPreference(tuple(pulls), PULL_WEIGHT)
            found.append(self._interned.preferences.setdefault(("pull", frozenset(Counter(pulls).items())), pull))
        if pod_terms is not None and pod_terms.even:
            counters = tuple(
                (
                    self._count_staying(
                        spread_term.term, self._find_even_domains(pod_terms.even, spread_term, constraints)
                    ),
                    spread_term.max_skew,
                )
                for spread_term in pod_terms.even
            )
            found.append(
                self._interned.preferences.setdefault(("even", counters), EvenPreference(counters, EVEN_WEIGHT))
            )
        if not found:
            return None
        found.extend(self._eligibility.get_server_preferences(constraints))
        return self._interned.preference_sets.setdefault(tuple(found), Preferences(tuple(found)))

    def _make_own(
        self,
        pod_terms: PodTerms,
        selected_by: frozenset[PodTerm],
        constraints: Constraints,
        pin: str | None,
        rank: Rank,
    ) -> Iterator[DomainRule]:
        """Make the rules that a pod's own terms are, in the order in which kube-scheduler asks them."""
        for spread_term in pod_terms.spread:
            domains = self._find_spread_domains(pod_terms.spread, spread_term, constraints, pin)
            counter, reserved = (
                self._count_staying(spread_term.term, domains),
                self.reserved.count(spread_term.term, rank, domains),
            )
            rule = SpreadRule(
                counter,
                spread_term.max_skew,
                spread_term.min_domains,
                spread_term.term in selected_by,
                SPREAD,
                reserved,
            )
            yield self._share((counter, rule.max_skew, rule.min_domains, rule.counts_itself, reserved), rule)
        if pod_terms.together:
            counters = tuple(self._count_all(term) for term in pod_terms.together)
            may_begin = selected_by.issuperset(pod_terms.together)
            yield self._share((counters, may_begin), AffinityRule(counters, may_begin, NOT_TOGETHER))
        for term in pod_terms.apart:
            yield self._separate(self._count_all(term), OWN_ANTI_AFFINITY)

    def _separate(self, counter: DomainCounter, rejection: Rejection) -> DomainRule:
        return self._share((counter, rejection), SeparationRule(counter, rejection))

    def _share(self, key: tuple[object, ...], rule: DomainRule) -> DomainRule:
        """Return the one rule that says the same. key: what it says."""
        return self._interned.rules.setdefault(key, rule)

    # --- counters ---

    def _count_all(self, term: PodTerm) -> DomainCounter:
        """Return the counter of the pods that a term selects, by its topology key."""
        return self._count(term, self._find_domains(term.topology_key), "all")

    def _count_staying(self, term: PodTerm, domains: Domains) -> DomainCounter:
        """Return the same without those that are being deleted."""
        return self._count(term, domains, "staying")

    def _count(self, term: PodTerm, domains: Domains, which: str) -> DomainCounter:
        selected, key = self.placed.get(term), (term, domains, which)
        known = self._counters.get(key)
        if known is None or known[0] != selected.version:
            index = self._eligibility.index
            count_k = selected.count_all(index) if which == "all" else selected.count_staying(index)
            counter = DomainCounter(term, domains, _sum_by_domain(domains, count_k))
            known = self._counters[key] = selected.version, counter
        return known[1]

    def _count_holders(self, term: PodTerm) -> DomainCounter:
        """Return the counter of pods that carry a term: of those that are placed from now on."""
        return self._count_coming(Holders(term), term, "holders")

    def _count_coming(self, subject: Holders | Carriers, term: PodTerm, which: str) -> DomainCounter:
        """Return a counter that begins at 0, by the term's topology key."""
        domains = self._find_domains(term.topology_key)
        known = self._counters.get((term, domains, which))
        if known is None:
            counter = DomainCounter(subject, domains, np.zeros(domains.size, dtype=np.int64))
            known = self._counters[term, domains, which] = 0, counter
        return known[1]

    def _count_held(self, term: PodTerm) -> DomainCounter:
        """Return the same with those that are placed already, for pods that carry the term themselves."""
        domains, version = self._find_domains(term.topology_key), self._terms.closed.revision
        known = self._counters.get((term, domains, "held"))
        if known is None or known[0] != version:
            values = self._terms.find_closed(term)
            count_d = self._eligibility.get_columns().mark_values(term.topology_key, values)
            known = self._counters[term, domains, "held"] = version, DomainCounter(Holders(term), domains, count_d)
        return known[1]

    def _count_worth(self, term: PodTerm) -> DomainCounter:
        """Return the counter of what placed pods that carry a term are worth; no pod that is placed later counts."""
        domains, worth = self._find_domains(term.topology_key), self._placed_carry.get_worth(term)
        known = self._counters.get((term, domains, "worth"))
        if known is None or known[0] != worth.version:
            count_d = _sum_by_domain(domains, worth.count_all(self._eligibility.index))
            counter = DomainCounter(Worth(term), domains, count_d)
            known = self._counters[term, domains, "worth"] = worth.version, counter
        return known[1]

    def _count_carriers(self, weight: int, term: PodTerm) -> DomainCounter:
        """Return the counter of pods that carry a term with a weight: of those that are placed from now on."""
        return self._count_coming(Carriers(weight, term), term, f"carriers {weight}")

    # --- domains ---

    def find_domains(self, topology_key: str) -> Domains:
        """Return the domains of a topology key of now; the same object while nodes stay as they are."""
        self._follow_nodes()
        return self._find_domains(topology_key)

    def _find_domains(self, topology_key: str) -> Domains:
        """Return the domains of a topology key: the values of the label, over all nodes."""
        domains = self._domains.get(topology_key)
        if domains is None:
            domains = self._domains[topology_key] = Domains(*self._eligibility.get_columns().get_codes(topology_key))
        return domains

    def _find_spread_domains(
        self, pod_terms: Iterable[SpreadTerm], spread_term: SpreadTerm, constraints: Constraints, pin: str | None
    ) -> Domains:
        """Return the domains of a topology key over the nodes that count for a term of spread.

        pod_terms: it and others, whose labels nodes must have, too.
        """
        keys = frozenset(each.term.topology_key for each in pod_terms)
        asked = (
            (constraints.selector, constraints.required, pin) if spread_term.honors_affinity else None,
            constraints.tolerations if spread_term.honors_taints else None,
        )
        known = self._domains.get((spread_term.term.topology_key, keys, asked))
        if known is None:
            counted_k = self._find_counted(spread_term, keys, constraints, pin)
            code_k, size = self._eligibility.get_columns().get_codes(spread_term.term.topology_key)
            known = self._domains[spread_term.term.topology_key, keys, asked] = _choose(code_k, size, counted_k)
        return known

    def _find_even_domains(
        self, pod_terms: Iterable[SpreadTerm], spread_term: SpreadTerm, constraints: Constraints
    ) -> Domains:
        """Return the same for a preference, which counts by host name node by node, whatever the names are."""
        domains = self._find_spread_domains(pod_terms, spread_term, constraints, None)
        if spread_term.term.topology_key != HOSTNAME:
            return domains
        by_node = self._domains.get((HOSTNAME, domains))
        if by_node is None:
            code_k = np.arange(len(domains.domain_k), dtype=np.int32)
            by_node = self._domains[HOSTNAME, domains] = _choose(code_k, len(code_k), domains.domain_k != NO_DOMAIN)
        return by_node

    def _find_counted(
        self, spread_term: SpreadTerm, keys: Collection[str], constraints: Constraints, pin: str | None
    ) -> BoolArray:
        """Return the nodes whose pods count for a term of spread, shape (K,)."""
        columns = self._eligibility.get_columns()
        counted_k = self._have_keys(keys) & ~columns.outside_k
        if spread_term.honors_affinity:
            counted_k &= columns.match_wanted(constraints.selector, constraints.required)
            if pin is not None:
                is_pinned_k = np.zeros(len(counted_k), dtype=np.bool_)
                k = self._eligibility.index.get(pin)
                is_pinned_k[[] if k is None else [k]] = True
                counted_k &= is_pinned_k
        if spread_term.honors_taints:
            tolerations = constraints.tolerations
            untolerated_k = columns.map_standings(
                lambda standing: int(find_untolerated(standing.taints, tolerations) is not None)
            )
            counted_k &= untolerated_k == 0
        return counted_k

    def _have_keys(self, keys: Iterable[str]) -> BoolArray:
        return reduce(np.logical_and, map(self._eligibility.get_columns().match_present, keys))


def _choose(code_k: DomainArray, size: int, counted_k: BoolArray) -> Domains:
    """Return the domains that are left of some when only the nodes that count are in any."""
    code_k = np.where(counted_k, code_k, NO_DOMAIN)
    is_left = np.zeros(size + 1, dtype=np.bool_)
    is_left[code_k] = True
    is_left[NO_DOMAIN] = False
    number = np.where(is_left, np.cumsum(is_left) - 1, NO_DOMAIN).astype(np.int32)
    return Domains(number[code_k], int(np.count_nonzero(is_left)))


def _sum_by_domain(domains: Domains, count_k: CountArray) -> CountArray:
    """Return what each domain has of counts by node, shape (D,)."""
    in_one_k = domains.domain_k != NO_DOMAIN
    weights = count_k[in_one_k]  # float64 is exact far beyond any number of pods
    return np.bincount(domains.domain_k[in_one_k], weights=weights, minlength=domains.size).astype(np.int64)


def _subtract(counts: Counter[PodTerm], terms: Iterable[PodTerm]) -> list[PodTerm]:
    """Count each term once less, and return those that are not counted any more."""
    gone = []
    for term in terms:
        counts[term] -= 1
        if not counts[term]:
            del counts[term]
            gone.append(term)
    return gone
