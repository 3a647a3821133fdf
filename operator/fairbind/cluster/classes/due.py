"""Queues that must be looked at because nodes or placed pods changed: a part of them for each snapshot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import zip_longest

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.derived import Rotation
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key

MAX_DUE = 256
"""So many queues whose tasks may go elsewhere than before become other classes at a time. Each costs 10 microseconds,
and as much in the cycle."""


def list_next(due: Rotation[QueueKey], changed: Container[QueueKey], *, whole: bool) -> list[QueueKey]:
    """Return the next part, but not fewer than there are tenants. whole: all of them.

    changed: those that are looked at anyway, among them those that are gone.
    """
    keys = [key for key in due if key not in changed]
    if whole or len(keys) <= MAX_DUE:
        return keys
    return keys[: max(MAX_DUE, len({key.tenant for key in keys}))]


def order(keys: Iterable[QueueKey], queues: Mapping[QueueKey, TaskQueue], waiting: int) -> Iterator[QueueKey]:
    """Return keys in the order in which they should be looked at: the first of each tenant, then the second.

    waiting: how many are due already.
    """
    by_tenant: dict[str, list[QueueKey]] = {}
    for key in keys:
        by_tenant.setdefault(key.tenant, []).append(key)
    if waiting + sum(map(len, by_tenant.values())) > MAX_DUE:
        for of_tenant in by_tenant.values():
            of_tenant.sort(key=lambda key: compute_sort_key(queues[key].tasks[0]))
    nth = zip_longest(*(of_tenant for _, of_tenant in sorted(by_tenant.items())))
    return (key for each in nth for key in each if key is not None)


def find_part(most: int, fresh: int) -> int:
    """Return how many go over at a time: fewer where many have just been put in order, which takes as long."""
    return most if fresh <= most else -(-most // 2)
