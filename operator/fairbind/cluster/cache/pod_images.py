"""Which of the images of waiting pods count: those that some node has.

Images that no node has are no part of a pod's constraints, so pods that differ only in these are one class. The first
node that has one, and the last one that had it, change that for all pods that use it. These may be thousands, each a
class of its own, and an image is no more than a wish. So a snapshot takes over what it says to some of them, and the
next snapshots do so for the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairbind.cluster.filters.image_locality import ImageLocality
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.image_facts import ImageUse

MAX_CHANGED_QUEUES = 384
"""So many queues go over to other images at a time: each may cost 20 microseconds until it is a class again."""


class PodImages:
    """See the module. nodes: which images they have. _stale: pods of which other images may count, the last first."""

    def __init__(self, nodes: ImageLocality) -> None:
        self.nodes = nodes
        self._users: dict[str, set[str]] = {}
        self._stale: dict[str, None] = {}

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
        self._stale.pop(facts.uid, None)

    def find(self, facts: PodFacts) -> ImageUse:
        """Return the images of a pod that count."""
        return facts.images.keep(self.nodes)

    @property
    def has_stale(self) -> bool:
        """Whether there are pods left over from the last snapshot for the next one."""
        return bool(self._stale)

    def take_stale(self) -> Iterator[str]:
        """Take the pods of which other images may count than before, by UID, one after the other."""
        names = self.nodes.came_or_went
        if names:
            users = {uid for name in names for uid in self._users.get(name, ())}
            self._stale |= dict.fromkeys(sorted(users, reverse=True))
            names.clear()
        while self._stale:
            yield self._stale.popitem()[0]
