"""ResourceQuotas of all namespaces, and which of them refuses the pods that a group lacks."""

from __future__ import annotations

from collections.abc import Collection

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.quota_facts import QuotaFacts
from fairbind.cluster.state.index import note_key

MAX_GROUPS_FOLLOWED = 64
"""So many groups of a namespace hear of a change of its quotas; others do when a pod of theirs comes or goes."""


class Quotas:
    """See the module.

    by_key: all, by "namespace/name". _keys_of: the keys of those of a namespace. _short: the groups that lack pods and
    were told what refuses them, by namespace.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, QuotaFacts] = {}
        self._keys_of: dict[str, dict[str, None]] = {}
        self._short: dict[str, dict[str, None]] = {}

    def put(self, key: str, facts: QuotaFacts | None) -> Collection[str]:
        """Take a quota, new or changed; None: it is gone. Return the groups that may have to hear of it."""
        namespace, _, _ = key.partition("/")
        if facts is None:
            del self.by_key[key]
        else:
            self.by_key[key] = facts
        note_key(self._keys_of, namespace, key, is_there=facts is not None)
        return self._short.pop(namespace, ())

    def forget(self, group: str) -> None:
        """Let a group go that is no more."""
        namespace, _, _ = group.partition("/")
        note_key(self._short, namespace, group, is_there=False)

    def find(self, group: str, sizes: Collection[Amounts]) -> str:
        """Return the words for the quota that refuses all pods like those that wait, the first by name, or "".

        group: its "namespace/name", which lacks pods. sizes: what its waiting pods ask for.
        """
        namespace, _, _ = group.partition("/")
        if len(self._short.get(namespace, ())) < MAX_GROUPS_FOLLOWED:
            note_key(self._short, namespace, group, is_there=True)
        for key in sorted(self._keys_of.get(namespace, ())):
            quota = self.by_key[key]
            left = dict(quota.left)
            if sizes and all(any(amount > left.get(resource, amount) for resource, amount in size) for size in sizes):
                return f"quota {quota.name} refuses more"
        return ""
