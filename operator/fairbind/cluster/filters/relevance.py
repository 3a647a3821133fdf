"""What of a task's constraints can matter on the nodes that there are now.

A toleration of a taint that no node has changes nothing, nor does an affinity term for a label value that no node
carries, or against one. Thousands of pods may differ in nothing else. Without these parts their constraints are the
same object, so they have one verdict and one placement. What is left out comes back when a node comes with such a taint
or label. Nodes change all the time, and few constraints ask for what came or went with one of them (`FeatureChanges`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from fairbind.cluster.filters.refusals import find_standing
from fairbind.cluster.objects.constraints import share_constraints
from fairbind.cluster.objects.facts import Constraints, NodeFacts, Taint, Toleration
from fairbind.cluster.objects.image_facts import NO_IMAGES
from fairbind.cluster.objects.selectors import NAME_FIELD, NodeTerm, Requirement
from fairbind.cluster.objects.volume_facts import ANYWHERE

Feature = TypeVar("Feature", bound=Hashable)

_VALUE_OPERATORS = frozenset({"In", "NotIn"})
_NO_TERM: tuple[NodeTerm, ...] = ()
"""Required affinity that nothing meets."""


class AskedKeys:
    """What constraints ask of nodes, by keys alone: few ask for what comes or goes, and mostly none does.

    labels, taints: the keys. has_names: whether names of nodes are asked for. Keys stay when none asks any more.
    """

    def __init__(self, known: Iterable[Constraints] = ()) -> None:
        self.labels: set[str] = set()
        self.taints: set[str] = set()
        self.has_names = False
        for constraints in known:
            self.add(constraints)

    def __len__(self) -> int:
        return len(self.labels) + len(self.taints)

    def add(self, constraints: Constraints) -> None:
        """Take what some constraints ask for."""
        self.taints.update([toleration.key for toleration in constraints.tolerations])
        self.labels.update([key for key, _ in constraints.selector])
        for term in (*(constraints.required or ()), *(term for _, term in constraints.preferred)):
            self.labels.update([requirement.key for requirement in term.labels])
            self.has_names |= bool(term.fields)


class FeatureChanges:
    """Features that no node had before, or that none has any more: label pairs, names, and taints by their keys."""

    def __init__(self, pairs: Iterable[tuple[str, str]], names: AbstractSet[str], taint_keys: AbstractSet[str]) -> None:
        self._label_pairs = frozenset(pairs)
        self._pairs: dict[str, set[str]] = {}
        for key, value in self._label_pairs:
            self._pairs.setdefault(key, set()).add(value)
        self._names = names
        self._taint_keys = taint_keys

    def __bool__(self) -> bool:
        return bool(self._pairs or self._names or self._taint_keys)

    @property
    def has_taints(self) -> bool:
        """Whether there are taints among them."""
        return bool(self._taint_keys)

    def may_concern(self, asked: AskedKeys) -> bool:
        """Whether constraints that ask for these keys may ask for one of these features; False is certain."""
        if not self._taint_keys.isdisjoint(asked.taints) or not asked.labels.isdisjoint(self._pairs):
            return True
        return asked.has_names and bool(self._names)

    def find_concerned(self, known: Sequence[Constraints]) -> list[Constraints]:
        """Return the constraints that ask for one of these features, so that they may be simplified in another way.

        Asked of thousands at a time, of which hardly one does, so most is decided by the keys.
        """
        keys, pairs, tolerating, asking = self._taint_keys, self._label_pairs, list[Constraints](), list[Constraints]()
        if keys:
            tolerating = [each for each in known if not keys.isdisjoint([one.key for one in each.tolerations])]
        if pairs or self._names:
            asking = [
                each
                for each in known
                if not pairs.isdisjoint(each.selector)
                or ((each.required or each.preferred) and self._is_asked_for_by_terms(each))
            ]
        return list(dict.fromkeys(tolerating + asking)) if tolerating and asking else tolerating or asking

    def _is_asked_for_by_terms(self, constraints: Constraints) -> bool:
        if constraints.required is not None and any(map(self._is_asked_for, constraints.required)):
            return True
        return bool(constraints.preferred) and any(self._is_asked_for(term) for _, term in constraints.preferred)

    def _is_asked_for(self, term: NodeTerm) -> bool:
        for requirement in term.labels:
            values = self._pairs.get(requirement.key)
            if values is not None and requirement.operator in _VALUE_OPERATORS:
                for value in values:  # a few; a requirement may have hundreds
                    if requirement.has_value(value):
                        return True
        return bool(term.fields) and any(not self._names.isdisjoint(field.values) for field in term.fields)


class NodeFeatures:
    """Label pairs, names and taints of the nodes of now."""

    def __init__(self) -> None:
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._names: set[str] = set()
        self._taints: dict[str, Counter[Taint]] = {}

    def replace(self, old: Iterable[NodeFacts], new: Iterable[NodeFacts]) -> FeatureChanges:
        """Take new nodes, or new states of nodes, in the place of old ones, and return what came and went."""
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
        taint_keys = set()
        for taint, change in taint_changes.items():
            of_key = self._taints.setdefault(taint.key, Counter())
            if _apply(of_key, {taint: change}):
                taint_keys.add(taint.key)
            if not of_key:
                del self._taints[taint.key]
        moved_names = {name for name, change in names.items() if change}
        return FeatureChanges(_apply(self._pairs, changes), moved_names, taint_keys)

    def simplify(self, constraints: Constraints, tolerations: tuple[Toleration, ...] | None = None) -> Constraints:
        """Return constraints with the same answer on every node, equal for as many tasks as can be.

        tolerations: those that meet a taint, where that is known already.
        """
        selector, required, preferred = constraints.selector, constraints.required, constraints.preferred
        volumes, images, features = constraints.volumes, constraints.images, constraints.features
        if tolerations is None:
            tolerations = tuple(each for each in constraints.tolerations if self._meets_taint(each))
        if preferred:
            preferred = tuple((weight, term) for weight, term in preferred if self._may_hold(term))
        if required is not None:
            required = self._simplify_required(required)
        if required == _NO_TERM or not all(map(self._pairs.__contains__, selector)):
            selector, required, preferred, volumes, images, features = (), _NO_TERM, (), ANYWHERE, NO_IMAGES, ()
        parts = selector, required, preferred, tolerations
        if parts == (constraints.selector, constraints.required, constraints.preferred, constraints.tolerations):
            return constraints
        return share_constraints(
            selector=selector,
            required=required,
            preferred=preferred,
            tolerations=tolerations,
            exclusive_keys=constraints.exclusive_keys,
            volumes=volumes,
            images=images,
            features=features,
        )

    def _simplify_required(self, required: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...] | None:
        """Return terms of which one must hold, without the values that no node has; None: one holds everywhere."""
        simple = []
        for term in filter(self._may_hold, required):
            labels = tuple(short for each in term.labels if (short := self._shorten(each)) is not None)
            if not labels and not term.fields:
                return None
            simple.append(term if labels == term.labels else NodeTerm(labels, term.fields))
        return tuple(simple)

    def _shorten(self, requirement: Requirement) -> Requirement | None:
        """Return a requirement without the values that no node has; None: it holds everywhere."""
        key, operator, values = requirement.key, requirement.operator, requirement.values
        if operator not in _VALUE_OPERATORS or not values:
            return requirement
        carried = tuple(value for value in values if (key, value) in self._pairs)
        if not carried and operator == "NotIn":
            return None
        return requirement if carried == values else Requirement(key, operator, carried)

    def _meets_taint(self, toleration: Toleration) -> bool:
        if not toleration.key:
            return True  # there are a few of them, by effect, and thousands of pods may have one: they stay as they are
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


def _apply(counts: Counter[Feature], changes: Mapping[Feature, int]) -> list[Feature]:
    """Count changes, and return which of these features came or went."""
    moved = []
    for feature, change in changes.items():
        before = counts[feature]
        if (before > 0) != (before + change > 0):
            moved.append(feature)
        if before + change:
            counts[feature] = before + change
        else:
            del counts[feature]
    return moved
