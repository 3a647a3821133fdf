"""What nodes have and what running tasks use of it, by shape and over time."""

from __future__ import annotations

from collections.abc import Mapping

from fairbind.cluster.cache.tenant_overviews import to_people_units
from fairbind.cluster.objects.facts import Amounts, NodeFacts
from fairbind.cluster.state.node_state import add_amounts
from fairbind.simulator.results import UtilisationRow
from fairbind.simulator.slots import SLOT_RESOURCE
from fairbind.simulator.time_mean import TimeMean


class Utilisation:
    """Follows one run. rows: what was measured."""

    def __init__(self, shapes: Mapping[str, NodeFacts]) -> None:
        """shapes: a node of each, by name."""
        self._resources = {
            name: [resource for resource, _ in node.allocatable if resource != SLOT_RESOURCE]
            for name, node in shapes.items()
        }
        self._used: dict[str, dict[str, int]] = {name: {} for name in shapes}
        self._capacity: dict[str, dict[str, int]] = {name: {} for name in shapes}
        self._used_in_all: dict[str, int] = {}
        self._capacity_in_all: dict[str, int] = {}
        self._means = {r: TimeMean() for r in sorted({r for some in self._resources.values() for r in some})}
        self._is_changed = True
        self.rows: list[UtilisationRow] = []

    def add_capacity(self, shape: str, amounts: Amounts, sign: int = 1) -> None:
        """Note that a node came or (sign -1) went."""
        add_amounts(self._capacity[shape], amounts, sign)
        add_amounts(self._capacity_in_all, amounts, sign)
        self._is_changed = True

    def use(self, shape: str, amounts: Amounts, sign: int) -> None:
        """Note that a task runs or (sign -1) no longer does."""
        add_amounts(self._used[shape], amounts, sign)
        add_amounts(self._used_in_all, amounts, sign)
        self._is_changed = True

    def follow(self, now: int) -> None:
        """Take the state after an instant's last cycle."""
        if self._is_changed:
            self._is_changed = False
            for resource, mean in self._means.items():
                capacity, used = self._capacity_in_all.get(resource, 0), self._used_in_all.get(resource, 0)
                mean.set(used / capacity if capacity else None, now)

    def measure(self, policy: str, now: int) -> None:
        """Add the rows of a time."""
        for shape, resources in self._resources.items():
            for resource in resources:
                used, capacity = (
                    to_people_units(resource, amounts[shape].get(resource, 0))
                    for amounts in (self._used, self._capacity)
                )
                self.rows.append(UtilisationRow(policy, now, shape, resource, used, capacity))

    def compute_means(self, now: int) -> dict[str, float | None]:
        """Return by resource which part of all was used over time."""
        return {resource: mean.compute(now) for resource, mean in self._means.items()}
