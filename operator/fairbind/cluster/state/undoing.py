"""Groups that began and cannot be completed: some members are bound, and for too long the minimum has not stood.

Members are bound one after the other, and any of these bindings may fail for good. Then a part of a group holds nodes
and is of no use. Such a group is *late* after `UndoRule.seconds`. If the rule evicts, its members are evicted, and the
group begins again; if not, its waiting members are told.

Groups whose minimum stood once are never late, whatever they lost since: they did work, and a successor comes before
everything else. Nor are groups of which a member was on a node already when this replica first saw it: their minimum
may have stood before. Nor are those for which a place of a lost member is kept. See `Group.is_torn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairbind.derived import Rotation

UNDO_SECONDS = 300.0
"""So long a group may be below its minimum with members on nodes."""


@dataclass(frozen=True, slots=True)
class UndoRule:
    """seconds: after so long below its minimum a group is late. evicts: whether its members are evicted then."""

    seconds: float = UNDO_SECONDS
    evicts: bool = False


class Undoing:
    """See the module. rule: what the administrator chose.

    _due: groups to look at. _since: since when groups are torn, of the clock of `advance`. _late: those that are
    late, in the order in which they became so.
    """

    def __init__(self) -> None:
        self.rule = UndoRule()
        self._due = Rotation[str]()
        self._since: dict[str, float] = {}
        self._late: dict[str, None] = {}

    @property
    def late(self) -> tuple[str, ...]:
        """The groups that are late, those first that are so for longest."""
        return tuple(self._late)

    def is_late(self, group: str) -> bool:
        """Tell whether a group cannot be completed."""
        return group in self._late

    def note_change(self, group: str) -> None:
        """Have a group looked at by the next `advance`."""
        self._due.add([group])

    def advance(self, now: float, is_torn: Callable[[str], bool]) -> Iterator[str]:
        """Yield the groups that are late from now on, or not any more. now: of a clock that never goes back."""
        for group in self._due.take_all():
            if is_torn(group):
                self._since.setdefault(group, now)
            elif self._since.pop(group, None) is not None and group in self._late:
                del self._late[group]
                yield group
        for group, since in self._since.items():
            if now - since >= self.rule.seconds and group not in self._late:
                self._late[group] = None
                yield group

    def copy(self, other: Undoing) -> None:
        """Take over which groups are torn, and since when."""
        self.rule = other.rule
        self._due.add(other._due)
        self._since, self._late = dict(other._since), dict(other._late)


def word_late(bound: int, rule: UndoRule) -> str:
    """Return what the waiting members of a late group are told of those on nodes.

    >>> word_late(3, UndoRule())
    '3 pods of it keep their nodes; groups.undo would evict them'
    >>> word_late(1, UndoRule(evicts=True))
    '1 pod of it is evicted from its node'
    """
    if rule.evicts:
        return (
            f"{bound} pods of it are evicted from their nodes" if bound > 1 else "1 pod of it is evicted from its node"
        )
    if bound > 1:
        return f"{bound} pods of it keep their nodes; groups.undo would evict them"
    return "1 pod of it keeps its node; groups.undo would evict it"
