"""The resources that nodes have, and the axes along which arrays go because of them.

The axes are the four resources that every cluster has, and every other that some node offers. A resource that no node
offers is no axis: nothing can be placed that asks for it, and it would only make every array wider. What nodes have as
devices only is an axis, and nothing can be placed that asks for it either (`nodes.Claimed`). There are
`MAX_AXES` at most: beyond that a resource that fewer nodes offer is none either, and pods that ask for it wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairbind.cluster.objects.facts import BASE_RESOURCES, NodeFacts
from fairbind.cluster.state.node_state import Axes
from fairbind.derived import Given, Setting

MAX_AXES = 128
"""Resources of all nodes together; each takes 16 bytes of each node in every snapshot that something changed in."""


class OfferedResources:
    """Counts of the nodes that have each resource, as allocatable and as devices.

    changes: of what is in the allocatable of some node. axes: the resources along which arrays go. left_out: those that
    nodes offer and that are no axes.
    """

    def __init__(self) -> None:
        self.changes = Given()
        self.axes = Setting[Axes](BASE_RESOURCES)
        self.left_out: tuple[str, ...] = ()
        self._allocatable: Counter[str] = Counter()
        self._devices: Counter[str] = Counter()

    @property
    def has_devices(self) -> bool:
        """Tell whether some node has devices or attach slots."""
        return bool(self._devices)

    def is_allocatable(self, resource: str) -> bool:
        """Tell whether a resource is in the allocatable of some node."""
        return self._allocatable[resource] > 0

    def count_node(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """Count what a node offers in the place of what it offered; None: it is not there."""
        before = len(self._allocatable)
        if new is not None:
            _count(self._allocatable, (resource for resource, _ in new.allocatable), 1)
        is_other = len(self._allocatable) != before
        before = len(self._allocatable)
        if old is not None:
            _count(self._allocatable, (resource for resource, _ in old.allocatable), -1)
        if is_other or len(self._allocatable) != before:
            self.changes.note_change()

    def count_devices(self, resources: Iterable[str], sign: int) -> None:
        """Count a node that has these as devices, or one fewer."""
        _count(self._devices, resources, sign)

    def choose_axes(self) -> Axes:
        """Return the axes of now, and note what is left out because there are too many."""
        counts = self._allocatable + self._devices if self._devices else self._allocatable
        others = [
            (-nodes, resource) for resource, nodes in counts.items() if nodes > 0 and resource not in BASE_RESOURCES
        ]
        most = MAX_AXES - len(BASE_RESOURCES)
        ranked = [resource for _, resource in sorted(others)]
        self.left_out = tuple(sorted(ranked[most:]))
        return BASE_RESOURCES + tuple(sorted(ranked[:most]))


def _count(counts: Counter[str], resources: Iterable[str], sign: int) -> None:
    """Count one more of each, or one fewer; what becomes zero goes."""
    for resource in resources:
        counts[resource] += sign
        if not counts[resource]:
            del counts[resource]
