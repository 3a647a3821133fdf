"""Constraints without what cannot matter on the nodes of now (`relevance`), remembered and kept up to date.

A node that changes may concern thousands of constraints at once, so what is done for each of them is little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import ref

from fairbind.cluster.filters.relevance import AskedKeys, FeatureChanges, NodeFeatures
from fairbind.cluster.objects.facts import Constraints, NodeFacts
from fairbind.derived import Given

SPARE_KEYS = 1_024
"""So many keys may be remembered that constraints asked for which are gone."""


class _Known(ref[Constraints]):
    """Constraints that were simplified, as long as they are in use. simple: to what; None: to themselves.

    Otherwise a key would live as long as its value, which may be itself.
    """

    __slots__ = ("number", "simple")

    number: int
    simple: Constraints | None


class SimplifiedConstraints:
    """What constraints come to on the nodes of now.

    changes: after which constraints that were simplified come to something else. _known: by identity. _asked: what they
    all ask for; None: not known any more. _most_keys: with more it is found out again, when it is needed.
    """

    def __init__(self) -> None:
        self.changes = Given()
        self._features = NodeFeatures()
        self._known: dict[int, _Known] = {}
        self._asked: AskedKeys | None = AskedKeys()
        self._most_keys = SPARE_KEYS

    def get(self, constraints: Constraints) -> Constraints:
        """Return constraints with the same answer on the nodes of now, the same object for as many as can be."""
        known = self._known.get(id(constraints))
        if known is None:
            known = self._add(constraints)
        return known.simple or constraints

    def _add(self, constraints: Constraints) -> _Known:
        known = _Known(constraints, self._forget)
        known.number = id(constraints)
        simple = self._features.simplify(constraints)
        known.simple = None if simple is constraints else simple
        self._known[known.number] = known
        if self._asked is not None:
            self._asked.add(constraints)
            if len(self._asked) > self._most_keys:
                self._asked = None  # many of them may be asked for no more
        return known

    def _forget(self, known: ref[Constraints]) -> None:
        assert isinstance(known, _Known)
        self._known.pop(known.number, None)

    def follow(self, old: Iterable[NodeFacts], new: Iterable[NodeFacts]) -> None:
        """Take new nodes, or new states of nodes, in the place of old ones."""
        changes = self._features.replace(old, new)
        concerned = self._find_concerned(changes) if changes else ()
        if concerned and self._simplify_again(concerned, has_taints=changes.has_taints):
            self.changes.note_change()

    def _find_concerned(self, changes: FeatureChanges) -> Sequence[Constraints]:
        """Return the constraints that may come to something else."""
        if self._asked is None:
            self._asked = AskedKeys(self._list())
            self._most_keys = SPARE_KEYS + 2 * len(self._asked)
        return changes.find_concerned(self._list()) if changes.may_concern(self._asked) else ()

    def _list(self) -> list[Constraints]:
        return [constraints for known in list(self._known.values()) if (constraints := known()) is not None]

    def _simplify_again(self, concerned: Iterable[Constraints], *, has_taints: bool) -> bool:
        """Simplify constraints again, and return whether any comes to something else.

        Thousands may differ in tolerations alone. Where no taint changed, those that matter are those of before.
        """
        has_moved, simplify = False, self._features.simplify
        found: dict[tuple[object, ...], Constraints] = {}  # ids are of parts of constraints that are in use meanwhile
        for each in concerned:
            known = self._known[id(each)]
            before = known.simple or each
            if has_taints:
                simple = simplify(each)
            else:
                rest = id(each.required), id(each.preferred), id(each.volumes), id(each.images), id(each.features)
                asked = before, each.selector, rest
                simple = found.get(asked) or simplify(each, before.tolerations)
                found[asked] = simple
            if simple is not before:
                known.simple = None if simple is each else simple
                has_moved = True
        return has_moved
