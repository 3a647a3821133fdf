"""What the constraints of one pod may cost: how much of each kind is honoured, counted before anything is made of it.

Users who may create pods write their constraints, up to the 1.5 MiB of an object in etcd, and every snapshot of every
replica pays for them. Kubernetes itself has no limits here. The limits below are far above what workloads use: a node
selector has a few labels, a node affinity a few terms, a list of host names some hundred values.

A waiting pod above one of them is not supported: it waits with a reason that says what was counted, how much there is,
and the limit. Its constraints and labels are not kept, so it costs its decoding and nothing else.

A pod that another scheduler has placed is never refused. Its host ports count up to `MAX_PLACED_HOST_PORTS`; where it
might run otherwise is not kept when it is above a limit. Of its required anti-affinity the first terms count, as far as
`MAX_REPELLING_TERMS` and `MAX_REPELLING_PARTS` go. What is beyond them has no effect. The other choice would be to
keep away more pods than the terms select, and then a tenant could close nodes to others in a way that Kubernetes does
not offer. So an author of too many terms loses what they asked for, and no other user does.

Preferences about other pods keep no pod waiting. The first terms count, as far as `MAX_PREFERRED_TERMS` and
`MAX_PREFERRED_PARTS` go, of pods that wait and of placed ones; what is beyond them is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairbind.cluster.objects import wire

MAX_NODE_TERMS = 64
"""Terms of node affinity, required and preferred together."""

MAX_NODE_EXPRESSIONS = 128
"""Expressions in these terms, over labels and fields together."""

MAX_NODE_VALUES = 512
"""Values in these expressions together."""

MAX_SELECTOR_LABELS = 64
"""Labels of `nodeSelector`."""

MAX_TOLERATIONS = 64
"""Tolerations."""

MAX_HOST_PORTS = 128
"""Ports of the host, of all containers together."""

MAX_LABELS = 256
"""Labels of the pod itself: anti-affinity of placed pods selects by them."""

MAX_POD_TERMS = 32
"""Terms of required pod affinity and anti-affinity, and spread constraints, together."""

MAX_POD_TERM_PARTS = 512
"""Namespaces, labels, expressions and values in these terms together."""

MAX_CHARACTERS = 32_768
"""Characters in all of these together."""

MAX_PLACED_HOST_PORTS = 1_024
"""So many ports of a placed pod are known; a pod that meets another one is refused by its kubelet."""

MAX_REPELLING_TERMS = 32
"""So many terms of a placed pod's required anti-affinity keep others away."""

MAX_REPELLING_PARTS = 512
"""So many namespaces, labels, expressions and values are read in these terms together."""

MAX_PREFERRED_TERMS = 32
"""So many terms of a pod's preferred affinity and anti-affinity count, together."""

MAX_PREFERRED_PARTS = 512
"""So many namespaces, labels, expressions and values are read in these terms together."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A count that is above its limit. what: in the plural, of a few kinds."""

    what: str
    count: int
    limit: int

    @property
    def kind(self) -> str:
        """What all pods with this excess have in common.

        >>> Excess("node affinity terms", 15_000, 64).kind
        'more than 64 node affinity terms'
        """
        return f"more than {self.limit:,} {self.what}"

    @property
    def detail(self) -> str:
        """The same with the count of this pod.

        >>> Excess("node affinity terms", 15_000, 64).detail
        'more than 64 node affinity terms (15,000)'
        """
        return f"{self.kind} ({self.count:,})"


def find_excess(spec: wire.PodSpec, labels: wire.Labels | None) -> Excess | None:
    """Return the first count of a pod that is above its limit, or None.

    Each count is cheap once those before it are within their limits, so this takes microseconds for any pod.
    """
    for what, count, limit in _count_parts(spec, labels or {}):
        if count > limit:
            return Excess(what, count, limit)
    return None


def _count_parts(spec: wire.PodSpec, labels: wire.Labels) -> Iterator[tuple[str, int, int]]:
    selector, tolerations = spec.node_selector or {}, spec.tolerations or ()
    yield "node selector labels", len(selector), MAX_SELECTOR_LABELS
    yield "tolerations", len(tolerations), MAX_TOLERATIONS
    yield "labels", len(labels), MAX_LABELS
    characters = _count_characters(selector, labels, tolerations)
    if spec.affinity is None and not spec.topology_spread_constraints:  # most pods: there are no terms to count
        yield "host ports", _count_host_ports(spec), MAX_HOST_PORTS
        yield "characters in its constraints", characters, MAX_CHARACTERS
    else:
        yield from _count_terms(spec, characters)


def _count_characters(selector: wire.Labels, labels: wire.Labels, tolerations: Iterable[wire.Toleration]) -> int:
    count = sum(map(len, labels)) + sum(map(len, labels.values()))
    if selector:
        count += sum(map(len, selector)) + sum(map(len, selector.values()))
    for each in tolerations:
        count += len(each.key or "") + len(each.operator or "") + len(each.value or "") + len(each.effect or "")
    return count


def _count_terms(spec: wire.PodSpec, characters: int) -> Iterator[tuple[str, int, int]]:
    """Go on with a pod that has terms about nodes or other pods. characters: counted so far."""
    required, preferred = _get_terms(spec)
    yield "node affinity terms", len(required) + len(preferred), MAX_NODE_TERMS
    terms = [*required, *(term.preference for term in preferred if term.preference is not None)]
    parts = [part for term in terms for part in (term.match_expressions, term.match_fields) if part]
    yield "node affinity expressions", sum(map(len, parts)), MAX_NODE_EXPRESSIONS
    expressions = [expression for part in parts for expression in part]
    yield "node affinity values", sum(len(each.values or ()) for each in expressions), MAX_NODE_VALUES
    yield "host ports", _count_host_ports(spec), MAX_HOST_PORTS
    pod_terms, spread = _get_pod_terms(spec), spec.topology_spread_constraints or ()
    yield "terms about other pods", len(pod_terms) + len(spread), MAX_POD_TERMS
    selectors = [selector for term in pod_terms for selector in (term.label_selector, term.namespace_selector)]
    selectors.extend(constraint.label_selector for constraint in spread)
    named = [namespace for term in pod_terms for namespace in term.namespaces or ()]
    named.extend(key for constraint in spread for key in constraint.match_label_keys or ())
    parts_of_terms = len(named) + sum(map(count_selector_parts, selectors))
    yield "parts of terms about other pods", parts_of_terms, MAX_POD_TERM_PARTS
    texts: list[Iterable[str | None]] = [(each.key, each.operator, *(each.values or ())) for each in expressions]
    texts.append([*named, *(each.topology_key for each in (*pod_terms, *spread))])
    texts.extend(map(_list_texts, selectors))
    characters += sum(len(text or "") for part in texts for text in part)
    yield "characters in its constraints", characters, MAX_CHARACTERS


def _get_terms(
    spec: wire.PodSpec,
) -> tuple[list[wire.NodeSelectorTerm], list[wire.PreferredTerm]]:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return [], []
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else None
    return terms or [], affinity.preferred_during_scheduling_ignored_during_execution or []


def _get_pod_terms(spec: wire.PodSpec) -> list[wire.PodAffinityTerm]:
    """Return the required terms about other pods."""
    affinity = spec.affinity
    each = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    lists = (kind.required_during_scheduling_ignored_during_execution for kind in each if kind is not None)
    return [term for terms in lists if terms for term in terms]


def _list_texts(selector: wire.LabelSelector | None) -> Iterator[str | None]:
    if selector is not None:
        for key, value in (selector.match_labels or {}).items():
            yield from (key, value)
        for each in selector.match_expressions or ():
            yield from (each.key, each.operator, *(each.values or ()))


def _count_host_ports(spec: wire.PodSpec) -> int:
    lists = [container.ports for container in spec.containers or () if container.ports]
    if spec.init_containers:
        lists.extend(container.ports for container in spec.init_containers if container.ports)
    return sum(1 for ports in lists for port in ports if port.host_port) if lists else 0


def take_repelling_terms(terms: Iterable[wire.PodAffinityTerm]) -> list[wire.PodAffinityTerm]:
    """Return the terms of a placed pod's anti-affinity that count: the first ones, as far as the limits go."""
    weighted = ((1, term) for term in terms)
    return [term for _, term in _take_first(weighted, MAX_REPELLING_TERMS, MAX_REPELLING_PARTS)]


def take_preferred_terms(terms: Iterable[tuple[int, wire.PodAffinityTerm]]) -> list[tuple[int, wire.PodAffinityTerm]]:
    """Return the terms of a pod's preferences that count: the first ones, as far as the limits go."""
    return _take_first(terms, MAX_PREFERRED_TERMS, MAX_PREFERRED_PARTS)


def _take_first(
    terms: Iterable[tuple[int, wire.PodAffinityTerm]], most: int, most_parts: int
) -> list[tuple[int, wire.PodAffinityTerm]]:
    taken: list[tuple[int, wire.PodAffinityTerm]] = []
    parts = 0
    for weight, term in terms:
        if term.label_selector is None:
            continue  # selects no pod at all
        parts += len(term.namespaces or ()) + sum(
            count_selector_parts(selector) for selector in (term.label_selector, term.namespace_selector)
        )
        if len(taken) == most or parts > most_parts:
            break
        taken.append((weight, term))
    return taken


def count_selector_parts(selector: wire.LabelSelector | None) -> int:
    """Return how many labels, expressions and values a selector has."""
    if selector is None:
        return 0
    expressions = selector.match_expressions or ()
    return len(selector.match_labels or ()) + sum(1 + len(each.values or ()) for each in expressions)
