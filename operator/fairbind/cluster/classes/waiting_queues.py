"""Queues of pods that wait, by whose they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.objects.facts import Constraints
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.tenancy.users import find_tenant_of_leaf


@dataclass(slots=True, eq=False)
class QueuesOfTenant:
    """Those of one Tenant, whatever users it has. leaves: by leaf. constraints: how many queues have which."""

    leaves: dict[str, dict[QueueKey, TaskQueue]] = field(default_factory=dict)
    constraints: Counter[Constraints] = field(default_factory=Counter)
    count: int = 0


class WaitingQueues:
    """All of them. by_leaf, by_tenant: of users, and of Tenants. constraints: how many queues have which."""

    def __init__(self) -> None:
        self.by_leaf: dict[str, dict[QueueKey, TaskQueue]] = {}
        self.by_tenant: dict[str, QueuesOfTenant] = {}
        self.constraints: Counter[Constraints] = Counter()

    def add(self, queue: TaskQueue) -> None:
        """Take a queue that has come."""
        key = queue.key
        of_tenant = self.by_tenant.setdefault(find_tenant_of_leaf(key.tenant), QueuesOfTenant())
        siblings = self.by_leaf.get(key.tenant)
        if siblings is None:
            siblings = self.by_leaf[key.tenant] = of_tenant.leaves[key.tenant] = {}
        siblings[key] = queue
        of_tenant.count += 1
        for counts in (self.constraints, of_tenant.constraints):
            counts[key.constraints] += 1

    def remove(self, key: QueueKey) -> None:
        """Let a queue go."""
        tenant, siblings = find_tenant_of_leaf(key.tenant), self.by_leaf[key.tenant]
        of_tenant = self.by_tenant[tenant]
        del siblings[key]
        of_tenant.count -= 1
        for counts in (self.constraints, of_tenant.constraints):
            counts[key.constraints] -= 1
            if not counts[key.constraints]:
                del counts[key.constraints]
        if not siblings:
            del self.by_leaf[key.tenant], of_tenant.leaves[key.tenant]
        if not of_tenant.leaves:
            del self.by_tenant[tenant]

    def iterate_keys(self, tenant: str) -> Iterator[QueueKey]:
        """Return the keys of all queues of a Tenant."""
        return chain.from_iterable(self.by_leaf[leaf] for leaf in self.list_leaves(tenant))

    def list_leaves(self, tenant: str) -> Iterable[str]:
        """Return the leaves of a Tenant that have queues."""
        of_tenant = self.by_tenant.get(tenant)
        return () if of_tenant is None else of_tenant.leaves
