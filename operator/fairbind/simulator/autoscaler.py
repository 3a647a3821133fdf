"""An autoscaler: buys nodes of one shape for pods that are marked Unschedulable, and lets empty ones of them go.

Like the autoscalers of clusters it asks whether an empty node of its shape would take the pod, and puts as many pods
on a node that it orders as would fit there. Which pods are marked, and what an empty node refuses, the operator's own
code says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fairbind.cluster.filters.refusals import find_refusal
from fairbind.cluster.messages import UNSCHEDULABLE, compute_condition_reason
from fairbind.cluster.objects.facts import NodeFacts, PodFacts
from fairbind.model import Wait


@dataclass(frozen=True, slots=True)
class Marked:
    """Equal pods that are marked Unschedulable. pod: one of them."""

    pod: PodFacts
    count: int


def find_marked(waits: Iterable[Wait], find_pod: Callable[[str], PodFacts]) -> list[Marked]:
    """Return the pods that a cycle marked Unschedulable. find_pod: by its uid."""
    return [
        Marked(find_pod(wait.first.uid), wait.waiting)
        for wait in waits
        if compute_condition_reason(wait) == UNSCHEDULABLE
    ]


@dataclass(slots=True)
class _Free:
    """What is left of a node that is ordered."""

    amounts: dict[str, int]
    has_ports: bool = False

    def take(self, pod: PodFacts, most: int) -> int:
        """Put as many of equal pods here as fit, and return how many."""
        fitting = min(self.amounts.get(r, 0) // amount for r, amount in pod.demand.real)
        if pod.constraints.exclusive_keys.taken:  # two pods with host ports may stand in each other's way
            fitting, self.has_ports = min(fitting, 0 if self.has_ports else 1), self.has_ports or fitting > 0
        taken = min(fitting, most)
        for resource, amount in pod.demand.real:
            self.amounts[resource] = self.amounts.get(resource, 0) - taken * amount
        return taken


@dataclass(slots=True)
class Autoscaler:
    """One autoscaler. node: an empty one of its shape. most: of nodes that it has or has ordered. delay: nanoseconds.

    ordered: how many come. bought: the names of those that are there.
    """

    node: NodeFacts
    most: int
    delay: int
    ordered: int = 0
    bought: dict[str, None] = field(default_factory=dict)

    def order(self, marked: Iterable[Marked]) -> int:
        """Return how many nodes it orders for pods that no node on its way has free capacity for."""
        nodes = [self._make_free() for _ in range(self.ordered)]
        before = self.ordered
        for group in marked:
            if not self._would_fit(group.pod):
                continue
            count = group.count
            for free in nodes:
                count -= free.take(group.pod, count)
            while count and self.ordered + len(self.bought) < self.most:
                nodes.append(self._make_free())
                self.ordered += 1
                count -= nodes[-1].take(group.pod, count)
        return self.ordered - before

    def _would_fit(self, pod: PodFacts) -> bool:
        """Whether an empty node of the shape would take the pod."""
        if pod.pin is not None:
            return False
        allocatable = dict(self.node.allocatable)
        fits = all(amount <= allocatable.get(resource, 0) for resource, amount in pod.demand.real)
        return fits and find_refusal(self.node, pod.constraints) is None

    def _make_free(self) -> _Free:
        return _Free(dict(self.node.allocatable))
