"""What of a task's constraints can matter on the nodes that there are now.

A toleration of a taint that no node has changes nothing, nor does an affinity term for a label value that no node
carries. Thousands of pods may differ in nothing else. Without these parts their constraints are the same object, so
they have one verdict and one placement. What is left out comes back when a node comes with such a taint or label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from fairbind.cluster.filters.refusals import find_standing
from fairbind.cluster.objects.constraints import share_constraints
from fairbind.cluster.objects.facts import Constraints, NodeFacts, Taint, Toleration
from fairbind.cluster.objects.selectors import NAME_FIELD, NodeTerm, Requirement

Feature = TypeVar("Feature", bound=Hashable)

_NO_TERM: tuple[NodeTerm, ...] = ()
"""Required affinity that nothing meets."""


class NodeFeatures:
    """Label pairs, names and taints of the nodes of now. version: grows when one comes that was not, or goes."""

    def __init__(self) -> None:
        self.version = 0
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._names: set[str] = set()
        self._taints: dict[str, Counter[Taint]] = {}

    def replace(self, old: Iterable[NodeFacts], new: Iterable[NodeFacts]) -> None:
        """Take new nodes, or new states of nodes, in the place of old ones."""
        changes: Counter[tuple[str, str]] = Counter()
        taint_changes: Counter[Taint] = Counter()
        names: Counter[str] = Counter()
        for nodes, sign in ((new, 1), (old, -1)):
            for node in nodes:
                names[node.name] += sign
                for pair in node.labels:
                    changes[pair] += sign
                for taint in find_standing(node).effective_taints:
                    taint_changes[taint] += sign
        self._names.update(name for name, change in names.items() if change > 0)
        self._names.difference_update([name for name, change in names.items() if change < 0])
        is_changed = any(names.values())
        is_changed |= _apply(self._pairs, changes)
        for taint, change in taint_changes.items():
            of_key = self._taints.setdefault(taint.key, Counter())
            is_changed |= _apply(of_key, {taint: change})
            if not of_key:
                del self._taints[taint.key]
        self.version += is_changed

    def simplify(self, constraints: Constraints) -> Constraints:
        """Return constraints with the same answer on every node, equal for as many tasks as can be."""
        selector, required, preferred = constraints.selector, constraints.required, constraints.preferred
        tolerations = constraints.tolerations
        if tolerations:
            tolerations = tuple(each for each in tolerations if self._meets_taint(each))
        if preferred:
            preferred = tuple((weight, term) for weight, term in preferred if self._may_hold(term))
        if required is not None:
            required = tuple(term for term in required if self._may_hold(term))
        if required == _NO_TERM or any(pair not in self._pairs for pair in selector):
            selector, required, preferred = (), _NO_TERM, ()
        parts = selector, required, preferred, tolerations
        if parts == (constraints.selector, constraints.required, constraints.preferred, constraints.tolerations):
            return constraints
        return share_constraints(
            selector=selector,
            required=required,
            preferred=preferred,
            tolerations=tolerations,
            exclusive_keys=constraints.exclusive_keys,
        )

    def _meets_taint(self, toleration: Toleration) -> bool:
        if not toleration.key:
            return any(toleration.tolerates(taint) for of_key in self._taints.values() for taint in of_key)
        return any(toleration.tolerates(taint) for taint in self._taints.get(toleration.key, ()))

    def _may_hold(self, term: NodeTerm) -> bool:
        if not term.labels and not term.fields:
            return False
        return all(map(self._may_be_met, term.labels)) and all(map(self._may_be_met_by_name, term.fields))

    def _may_be_met(self, requirement: Requirement) -> bool:
        if requirement.operator != "In":
            return True
        return any((requirement.key, value) in self._pairs for value in requirement.values)

    def _may_be_met_by_name(self, requirement: Requirement) -> bool:
        if requirement.key != NAME_FIELD or requirement.operator != "In":
            return True
        return any(name in self._names for name in requirement.values)


def _apply(counts: Counter[Feature], changes: Mapping[Feature, int]) -> bool:
    """Count changes; True when one of these features came or went."""
    is_changed = False
    for feature, change in changes.items():
        before = counts[feature]
        is_changed |= (before > 0) != (before + change > 0)
        if before + change:
            counts[feature] = before + change
        else:
            del counts[feature]
    return is_changed
