"""The terms in use, by what a pod must have that they select: few of them are asked about each pod.

A term waits under the label pairs of which each pod that it selects has one, or under the label key that it asks for,
or, when it has neither, under none; and that under each namespace that it names, or apart when it selects namespaces
by label. All terms of such a bucket are asked together (`SelectorBits`), and what they say is remembered by the labels
that they ask about.

Terms of placed pods are written by one tenant and asked about the pods of all. So in each bucket count at most
`MAX_TERMS` terms of a tenant, with `MAX_PARTS` parts, and `OWNERS` times as many of all. Those that came first count;
the next ones follow when one of these goes. A term that waits for a place selects no pod. What waiting pods ask for
themselves always counts (`TermRotation` bounds it).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product

from fairbind.cluster.filters.selector_bits import SelectorBits
from fairbind.cluster.objects.facts import PodTerm
from fairbind.cluster.objects.selectors import LabelSelector, Requirement  # noqa: F401 - of the example

Labels = tuple[tuple[str, str], ...]
FindLabels = Callable[[str], Mapping[str, str]]
Use = tuple[str | None, PodTerm]
"""Whose pods bring a term into use, and the term. None: waiting pods of any tenant ask for it."""

NO_TERMS: frozenset[PodTerm] = frozenset()

MAX_TERMS = 64
"""Terms of placed pods of one tenant that count in one bucket. The budget of a single pod allows half as many."""

MAX_PARTS = 1_024
"""Namespaces, expressions and values in these terms together; twice what the budget of a single pod allows."""

OWNERS = 16
"""So many times as much counts of all tenants together."""

MAX_PLACES = 64
"""Buckets of one term that lists both namespaces and values. With more of them it is looked up by fewer."""

ASKED_ONE_BY_ONE = 4
"""So few terms are asked one by one: that costs less than to ask them together."""

MAX_REMEMBERED = 1_024
"""Sets of selecting terms that a bucket remembers."""

Pair = tuple[str, str | None]
_Place = tuple[str, Pair]
ANY_PAIR: Pair = ("", None)
"""Stands for the label pair of terms that none can be looked up by; no label has an empty key."""
WIDE = ""
"""Stands for the namespace of terms that select namespaces by label; none has an empty name."""


def find_pairs(term: PodTerm) -> tuple[Pair, ...]:
    """Return label pairs of which each pod that the term selects has one. A value None stands for any value."""
    requirements = term.labels.requirements
    listing = [requirement for requirement in requirements if requirement.operator == "In"]
    if listing:
        shortest = min(listing, key=lambda requirement: (len(requirement.values), requirement.key))
        return tuple((shortest.key, value) for value in shortest.values)
    keys = [requirement.key for requirement in requirements if requirement.operator == "Exists"]
    return ((min(keys), None),) if keys else (ANY_PAIR,)


def list_pairs(labels: Labels) -> Iterable[Pair]:
    """Return the pairs by which terms that select pods with these labels are looked up."""
    return dict.fromkeys((*labels, *((key, None) for key, _ in labels), ANY_PAIR))


def covers(term: PodTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a term is about pods of a namespace with these labels."""
    return all(
        namespace in names or (selector is not None and selector.is_met_by(labels))
        for names, selector in ((term.namespaces, term.namespace_selector), *term.also)
    )


def find_places(term: PodTerm) -> Iterable[_Place]:
    """Return the buckets in which a term is: none for one that selects nothing."""
    namespaces = term.namespaces if term.namespace_selector is None else (WIDE,)
    pairs = find_pairs(term)
    if len(namespaces) * len(pairs) <= max(MAX_PLACES, len(namespaces), len(pairs)):
        return product(namespaces, pairs)
    return product(namespaces, (ANY_PAIR,)) if len(namespaces) < len(pairs) else product((WIDE,), pairs)


def count_parts(term: PodTerm) -> int:
    """Return how many namespaces, expressions and values a term has.

    >>> zones = LabelSelector((Requirement("zone", "In", ("a", "b")),))
    >>> count_parts(PodTerm("host", ("one", "two"), None, zones))
    5
    """
    return sum(
        len(names) + sum(1 + len(each.values) for each in (() if selector is None else selector.requirements))
        for names, selector in (((), term.labels), (term.namespaces, term.namespace_selector), *term.also)
    )


class AskedTerms:
    """Terms that are asked about many groups, one after the other."""

    def __init__(self, terms: Sequence[PodTerm], find_namespace_labels: FindLabels) -> None:
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
        self._sets: dict[int, frozenset[PodTerm]] = {}

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

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed."""
        self._covering.pop(namespace, None)

    def list_terms(self, selecting: int) -> Iterator[PodTerm]:
        """Return the terms of these bits."""
        return (term for number, term in enumerate(self._terms) if selecting >> number & 1)

    def find_set(self, selecting: int) -> frozenset[PodTerm]:
        """Return the terms of these bits; the same object for the same ones."""
        if not selecting:
            return NO_TERMS
        known = self._sets.get(selecting)
        if known is None:
            if len(self._sets) >= MAX_REMEMBERED:
                self._sets.clear()
            known = self._sets[selecting] = frozenset(self.list_terms(selecting))
        return known


class _Bucket:
    """Terms that are looked up by the same. terms: those that count, with how many uses. next: those that wait.

    counted, parts: of the terms of each tenant that count.
    """

    __slots__ = ("_asked", "counted", "next", "parts", "terms", "total", "total_parts")

    def __init__(self) -> None:
        self.terms: Counter[PodTerm] = Counter()
        self.counted: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        self.total = self.total_parts = 0
        self.next: dict[str, OrderedDict[Use, None]] = {}  # which is quick at its beginning, however much went there
        self._asked: AskedTerms | None = None

    def __bool__(self) -> bool:
        return bool(self.terms or self.next)

    def has_place(self, owner: str, parts: int) -> bool:
        """Whether one more term of a tenant may count here: a first one always does."""
        counted = self.counted[owner]
        is_in_part = not counted or (counted < MAX_TERMS and self.parts[owner] + parts <= MAX_PARTS)
        is_in_all = self.total < OWNERS * MAX_TERMS and self.total_parts < OWNERS * MAX_PARTS
        return is_in_part and is_in_all

    def count(self, use: Use, sign: int) -> None:
        """Let a term count, or no more."""
        owner, term = use
        before = self.terms[term]
        self.terms[term] += sign
        if not self.terms[term]:
            del self.terms[term]
        if not before or term not in self.terms:
            self._asked = None
        if owner is not None:
            parts = sign * count_parts(term)
            self.total += sign
            self.total_parts += parts
            self.counted[owner] += sign
            self.parts[owner] += parts
            if not self.counted[owner]:
                del self.counted[owner], self.parts[owner]

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed."""
        if self._asked is not None:
            self._asked.note_labels(namespace)

    def select(self, namespace: str, labels: Labels, find_namespace_labels: FindLabels) -> frozenset[PodTerm]:
        """Return the terms that count and select pods of a namespace with these labels."""
        if len(self.terms) <= ASKED_ONE_BY_ONE:
            pod_labels, of_namespace = dict(labels), find_namespace_labels(namespace)
            found = (
                term
                for term in self.terms
                if term.labels.is_met_by(pod_labels) and covers(term, namespace, of_namespace)
            )
            return frozenset(found)
        if self._asked is None:
            self._asked = AskedTerms(tuple(self.terms), find_namespace_labels)
        return self._asked.find_set(self._asked.find_selecting(namespace, labels))


class TermIndex:
    """See the module."""

    def __init__(self, find_namespace_labels: FindLabels) -> None:
        self._find_namespace_labels = find_namespace_labels
        self._buckets: dict[str, dict[Pair, _Bucket]] = {}
        self._full_bucket_of: dict[Use, _Bucket] = {}
        self._counting: Counter[PodTerm] = Counter()
        self._wait_at_first: frozenset[Use] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def copy_choice(self, other: TermIndex) -> None:
        """Let those uses wait for a place that do so in another index, which may come first here."""
        self._wait_at_first = frozenset(other._full_bucket_of)

    def add(self, uses: Iterable[Use]) -> list[PodTerm]:
        """Take uses that are new, and return the terms that count from now on."""
        return [use[1] for use in uses if self._admit(use)]

    def remove(self, uses: Iterable[Use]) -> tuple[list[PodTerm], list[PodTerm]]:
        """Take back what `add` took, and return the terms that count no more and those that count in their place."""
        removed: dict[PodTerm, None] = {}
        freed: dict[_Bucket, tuple[str, Pair]] = {}
        for use in uses:
            bucket = self._full_bucket_of.pop(use, None)
            if bucket is not None:
                self._forget_next(bucket, use)
                continue
            for namespace, pair in find_places(use[1]):
                bucket = self._buckets[namespace][pair]
                bucket.count(use, -1)
                freed[bucket] = namespace, pair
            self._counting[use[1]] -= 1
            if not self._counting[use[1]]:
                del self._counting[use[1]]
                removed[use[1]] = None
        added = [term for bucket in freed for term in self._promote(bucket)]
        for bucket, (namespace, pair) in freed.items():
            self._drop_empty(namespace, pair, bucket)
        return [term for term in removed if term not in self._counting], added

    def select(self, namespace: str, labels: Labels) -> frozenset[PodTerm]:
        """Return the terms that count and select pods of a namespace with these labels."""
        found = [
            terms
            for index in (self._buckets.get(namespace), self._buckets.get(WIDE))
            if index is not None
            for pair in list_pairs(labels)
            if (bucket := index.get(pair)) is not None
            and (terms := bucket.select(namespace, labels, self._find_namespace_labels))
        ]
        if len(found) == 1:
            return found[0]
        return NO_TERMS.union(*found)

    def note_labels(self, namespace: str) -> None:
        """A namespace's labels changed."""
        for name in (namespace, WIDE):
            for bucket in self._buckets.get(name, {}).values():
                bucket.note_labels(namespace)

    def _admit(self, use: Use) -> bool:
        """Let a term count if there is a place in all of its buckets; True when it did not before."""
        owner, term = use
        places = tuple(find_places(term))
        if owner is not None and (full := self._find_full(owner, term, places)) is not None:
            full.next.setdefault(owner, OrderedDict())[use] = None
            self._full_bucket_of[use] = full
            return False
        for place in places:
            self._get_bucket(*place).count(use, 1)
        self._counting[term] += 1
        return self._counting[term] == 1

    def _find_full(self, owner: str, term: PodTerm, places: Iterable[_Place]) -> _Bucket | None:
        """Return a bucket in which a tenant has no place for a term; None: there is none."""
        parts = count_parts(term)
        for namespace, pair in places:
            bucket = self._buckets.get(namespace, {}).get(pair)
            if bucket is not None and not bucket.has_place(owner, parts):
                return bucket
            if (owner, term) in self._wait_at_first:
                return self._get_bucket(namespace, pair)
        return None

    def _promote(self, bucket: _Bucket) -> Iterator[PodTerm]:
        """Let those count that have a place now, in the order in which they came."""
        for owner in tuple(bucket.next):
            while (queue := bucket.next.get(owner)) is not None:
                use = next(iter(queue))
                if not bucket.has_place(owner, count_parts(use[1])):
                    break
                del self._full_bucket_of[use]
                self._forget_next(bucket, use)
                if self._admit(use):
                    yield use[1]

    def _forget_next(self, bucket: _Bucket, use: Use) -> None:
        owner = use[0]
        assert owner is not None
        del bucket.next[owner][use]
        if not bucket.next[owner]:
            del bucket.next[owner]

    def _get_bucket(self, namespace: str, pair: Pair) -> _Bucket:
        index = self._buckets.setdefault(namespace, {})
        bucket = index.get(pair)
        if bucket is None:
            bucket = index[pair] = _Bucket()
        return bucket

    def _drop_empty(self, namespace: str, pair: Pair, bucket: _Bucket) -> None:
        if not bucket:
            del self._buckets[namespace][pair]
            if not self._buckets[namespace]:
                del self._buckets[namespace]
