"""Queues that must be looked at because nodes or placed pods changed: a part of them for each snapshot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import zip_longest

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.derived import Rotation
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key

MAX_DUE = 256
"""So many queues whose tasks may go elsewhere than before become other classes at a time. Each costs 10 microseconds,
and as much in the cycle."""


def list_next(due: Rotation[QueueKey], changed: Container[QueueKey], *, whole: bool) -> list[QueueKey]:
    """Return the next part, but not fewer than there are tenants, whatever users these have. whole: all of them.

    changed: those that are looked at anyway, among them those that are gone.
    """
    keys = [key for key in due if key not in changed]
    if whole or len(keys) <= MAX_DUE:
        return keys
    return keys[: max(MAX_DUE, len({find_tenant_of_leaf(key.tenant) for key in keys}))]


def order(keys: Iterable[QueueKey], queues: Mapping[QueueKey, TaskQueue], waiting: int) -> Iterator[QueueKey]:
    """Return keys in the order in which they should be looked at: the first of each tenant, then the second.

    The users of a tenant take turns among themselves.

    waiting: how many are due already.
    """
    by_leaf: dict[str, list[QueueKey]] = {}
    for key in keys:
        by_leaf.setdefault(key.tenant, []).append(key)
    if waiting + sum(map(len, by_leaf.values())) > MAX_DUE:
        for of_leaf in by_leaf.values():
            of_leaf.sort(key=lambda key: compute_sort_key(queues[key].tasks[0]))
    by_tenant: dict[str, list[list[QueueKey]]] = {}
    for leaf, of_leaf in sorted(by_leaf.items()):
        by_tenant.setdefault(find_tenant_of_leaf(leaf), []).append(of_leaf)
    return _take_turns(_take_turns(leaves) for _, leaves in sorted(by_tenant.items()))


def _take_turns(lists: Iterable[Iterable[QueueKey]]) -> Iterator[QueueKey]:
    """Yield the first of each, then the second."""
    return (key for nth in zip_longest(*lists) for key in nth if key is not None)


def find_part(most: int, fresh: int) -> int:
    """Return how many go over at a time: fewer where many have just been put in order, which takes as long."""
    return most if fresh <= most else -(-most // 2)
