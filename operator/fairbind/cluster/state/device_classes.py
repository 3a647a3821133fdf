"""DeviceClasses: as which resource their devices count, and which extended resources only claims serve.

DeviceClasses also say which extended resources kube-scheduler would serve by making a claim. Where no node offers such
a resource in its allocatable, pods of ours that ask for it wait, and `find_unserved` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairbind.cluster.objects.device_facts import DEVICE_CLASS_PREFIX, DeviceClassFacts
from fairbind.cluster.objects.facts import Demand
from fairbind.derived import Derived, Given
from fairbind.model import Rejection, RejectionKind


class DeviceClasses:
    """See the module. changes: of the classes."""

    def __init__(self, offers: Given, is_offered: Callable[[str], bool]) -> None:
        """offers, is_offered: which resources are in the allocatable of some node."""
        self._is_offered = is_offered
        self.by_name: dict[str, DeviceClassFacts] = {}
        self.changes = Given()
        self._unserved = Derived(self._find_unserved, of=(self.changes, offers))
        self._unserved.refresh()

    @property
    def unserved(self) -> Mapping[str, Rejection]:
        """The reasons of pods that wait for what only claims serve, by resource."""
        return self._unserved.value

    def put(self, name: str, device_class: DeviceClassFacts | None) -> None:
        """Take a device class, new or changed; None: it is gone."""
        self.by_name.pop(name, None)
        if device_class is not None:
            self.by_name[name] = device_class
        self.changes.note_change()

    def find_resource(self, name: str) -> str:
        """Return as which resource a device of a class counts."""
        device_class = self.by_name.get(name)
        return (device_class.resource if device_class is not None else "") or DEVICE_CLASS_PREFIX + name

    def follow_offers(self) -> set[str]:
        """Take which resources nodes have now; return those of which `find_unserved` says another."""
        before, now = self._unserved.value, self._unserved.get()
        return set() if now is before else {resource for resource, _ in before.items() ^ now.items()}

    def find_unserved(self, demand: Demand) -> Rejection | None:
        """Return why a pod of ours waits that asks for what only claims serve; None when it does not."""
        unserved = self._unserved.value
        return next((unserved[resource] for resource, _ in demand.real if resource in unserved), None)

    def _find_unserved(self) -> Mapping[str, Rejection]:
        """Return the resources that only claims serve, and what pods of ours are told that ask for them."""
        return {resource: why for resource, why in self._find_served().items() if not self._is_offered(resource)}

    def _find_served(self) -> Mapping[str, Rejection]:
        """Return what pods are told that ask for an extended resource which kube-scheduler would serve by a claim.

        Of several classes with one resource the youngest serves it, and the first by name of those.
        """
        serves = {DEVICE_CLASS_PREFIX + name: name for name in self.by_name}
        by_name = sorted(self.by_name.values(), key=lambda each: each.name, reverse=True)
        for each in sorted(by_name, key=lambda each: each.created):
            if each.resource:
                serves[each.resource] = each.name
        return {resource: _reject(resource, name) for resource, name in serves.items()}


def _reject(resource: str, class_name: str) -> Rejection:
    return Rejection(
        RejectionKind.NOT_SUPPORTED, f"requests for {resource} that DeviceClass {class_name} serves by claims"
    )
