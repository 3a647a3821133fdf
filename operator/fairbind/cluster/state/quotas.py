"""ResourceQuotas of all namespaces, and which of them refuses the pods that a group lacks."""

from __future__ import annotations

from collections.abc import Collection

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.quota_facts import QuotaFacts

MAX_GROUPS_FOLLOWED = 64
"""So many groups of a namespace hear of a change of its quotas; others do when a pod of theirs comes or goes."""


class Quotas:
    """See the module.

    by_key: all, by "namespace/name". _of: those of a namespace, by name. _short: the groups that lack pods and were
    told what refuses them, by namespace.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, QuotaFacts] = {}
        self._of: dict[str, dict[str, QuotaFacts]] = {}
        self._short: dict[str, dict[str, None]] = {}

    def put(self, key: str, facts: QuotaFacts | None) -> Collection[str]:
        """Take a quota, new or changed; None: it is gone. Return the groups that may have to hear of it."""
        namespace, _, name = key.partition("/")
        if facts is None:
            del self.by_key[key]
            del self._of[namespace][name]
            if not self._of[namespace]:
                del self._of[namespace]
        else:
            self.by_key[key] = self._of.setdefault(namespace, {})[name] = facts
        return self._short.pop(namespace, ())

    def forget(self, group: str) -> None:
        """Let a group go that is no more."""
        namespace, _, _ = group.partition("/")
        if group in self._short.get(namespace, ()):
            del self._short[namespace][group]
            if not self._short[namespace]:
                del self._short[namespace]

    def find(self, group: str, sizes: Collection[Amounts]) -> str:
        """Return the words for the quota that refuses all pods like those that wait, the first by name, or "".

        group: its "namespace/name", which lacks pods. sizes: what its waiting pods ask for.
        """
        namespace, _, _ = group.partition("/")
        groups = self._short.setdefault(namespace, {})
        if len(groups) < MAX_GROUPS_FOLLOWED:
            groups[group] = None
        for name, quota in sorted(self._of.get(namespace, {}).items()):
            left = dict(quota.left)
            if sizes and all(any(amount > left.get(resource, amount) for resource, amount in size) for size in sizes):
                return f"quota {name} refuses more"
        return ""
