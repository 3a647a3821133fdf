"""The nodes that count at all: those that carry the labels that the operator was told to look for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairbind.cluster.filters.refusals import is_inside
from fairbind.cluster.objects.facts import NodeFacts
from fairbind.derived import Setting, Watch

Selector = tuple[tuple[str, str], ...]


class CountingNodes:
    """The labels that a node must carry, and the nodes of which it may be new whether they do.

    selector: the labels and their values. find_node: by name; None when there is none.
    """

    def __init__(self, find_node: Callable[[str], NodeFacts | None]) -> None:
        self.selector = Setting[Selector](())
        self._watch = Watch(self.selector)
        self._find_node = find_node
        self._maybe_new: set[str] = set()

    def set_selector(self, selector: Selector, names: Iterable[str]) -> None:
        """Take the labels. names: of all nodes."""
        if selector != self.selector.value:
            self.selector.set(selector)
            self._maybe_new.update(names)

    def note_node(self, name: str) -> None:
        """Note that a node came, went, or is not what it was."""
        self._maybe_new.add(name)

    def is_counting(self, name: str) -> bool:
        """Tell whether what is held on a node counts."""
        node = self._find_node(name)
        return node is not None and is_inside(node, self.selector.value)

    def take_changes(self) -> list[tuple[str, bool]]:
        """Return the nodes of which it may be new whether what is held there counts, and whether it does now."""
        names, self._maybe_new = sorted(self._maybe_new), set()
        return [(name, self.is_counting(name)) for name in names]

    def take_change_of_labels(self) -> bool:
        """Return whether the labels are others since this was asked last."""
        return self._watch.take()
