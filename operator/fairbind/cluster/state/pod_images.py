"""Which of the images of waiting pods count: those that some node has.

Images that no node has are no part of a pod's constraints, so pods that differ only in these are one class. The first
node that has one, and the last one that had it, change that for all pods that use it.
"""

from __future__ import annotations

from fairbind.cluster.filters.image_locality import ImageLocality
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.image_facts import ImageUse


class PodImages:
    """See the module. nodes: which images they have."""

    def __init__(self, nodes: ImageLocality) -> None:
        self.nodes = nodes
        self._users: dict[str, set[str]] = {}

    def add_pod(self, facts: PodFacts) -> None:
        """Take a pod."""
        for name in facts.images.names:
            self._users.setdefault(name, set()).add(facts.uid)

    def remove_pod(self, facts: PodFacts) -> None:
        """Let a pod go that was taken with these facts."""
        for name in set(facts.images.names):
            users = self._users[name]
            users.remove(facts.uid)
            if not users:
                del self._users[name]

    def find(self, facts: PodFacts) -> ImageUse:
        """Return the images of a pod that count."""
        return facts.images.keep(self.nodes)

    def take_stale(self) -> list[str]:
        """Return the UIDs of pods of which other images may count than when this was asked last, in any order."""
        names = self.nodes.added_or_removed
        stale = {uid for name in names for uid in self._users.get(name, ())}
        names.clear()
        return list(stale)
