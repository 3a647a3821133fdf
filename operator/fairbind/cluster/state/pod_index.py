"""All pods that are known, and those of some kinds."""

from __future__ import annotations

from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.state.pods import PodEntry


class PodIndex:
    """An index of all pods. entries: by UID. by_namespace: their UIDs.

    own_nominated: our own unbound pods that say that they are nominated. gated: pods whose only gate is ours.
    """

    def __init__(self) -> None:
        self.entries: dict[str, PodEntry] = {}
        self.by_namespace: dict[str, set[str]] = {}
        self.own_nominated: set[str] = set()
        self.gated: dict[str, PodEntry] = {}

    def add(self, facts: PodFacts) -> PodEntry:
        """Take a pod that is not there yet."""
        entry = self.entries[facts.uid] = PodEntry(facts)
        self.by_namespace.setdefault(facts.namespace, set()).add(facts.uid)
        return entry

    def remove(self, uid: str) -> PodEntry | None:
        """Take a pod out and return it; None when it was not there."""
        self.own_nominated.discard(uid)
        self.gated.pop(uid, None)
        entry = self.entries.pop(uid, None)
        if entry is not None:
            namespace = entry.facts.namespace
            self.by_namespace[namespace].discard(uid)
            if not self.by_namespace[namespace]:
                del self.by_namespace[namespace]
        return entry

    def note_gate(self, entry: PodEntry) -> None:
        """Note whether a pod waits behind our gate alone."""
        facts = entry.facts
        if facts.is_behind_our_gate and facts.node is None and not facts.terminating:
            self.gated[facts.uid] = entry
        else:
            self.gated.pop(facts.uid, None)

    def note_nominated(self, facts: PodFacts, own_scheduler: str) -> None:
        """Note whether a pod is one of ours that says that it is nominated to a node and can still be bound."""
        is_own = facts.scheduler == own_scheduler and not (facts.node or facts.terminating or facts.gated)
        if is_own and facts.nominated_node is not None:
            self.own_nominated.add(facts.uid)
        else:
            self.own_nominated.discard(facts.uid)
