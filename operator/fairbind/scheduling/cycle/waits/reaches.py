"""Where classes could ever run: the servers that they may use and that could hold a task of theirs when empty.

Sets of servers are bits of integers, so that a thousand classes are compared with thousands of servers in milliseconds.
"""

from __future__ import annotations

import numpy as np

from fairbind.model import Pin, Placement, RejectionKind, ServerTable, TaskClass
from fairbind.model.servers import BoolArray

EVERY = -1
"""The set of all servers, however many there are."""


class Reaches:
    """Answers about the servers of one snapshot, which are remembered."""

    def __init__(self, servers: ServerTable) -> None:
        self._servers = servers
        self._least_r: list[int] = servers.capacity_kr.min(axis=0).tolist() if servers.names else []
        self._admitting: dict[Placement, int] = {}
        self._large: dict[tuple[int, int], int] = {}

    def find_admitting(self, task_class: TaskClass) -> int:
        """Return the servers that a class may use, however full and however small they are."""
        placement, pin = task_class.placement, task_class.pin
        if pin is not None:
            server = find_pinned(pin, self._servers)
            return 0 if server is None else compute_bit(server, len(placement.eligible_k))
        bits = self._admitting.get(placement)
        if bits is None:
            bits = self._admitting[placement] = compute_bits(placement.eligible_k & self._servers.accepting_k)
        return bits

    def find_holding(self, demand_r: tuple[int, ...]) -> int:
        """Return the servers that could hold a task when they are empty, whether it may use them or not."""
        bits = EVERY
        for r, (demand, least) in enumerate(zip(demand_r, self._least_r, strict=False)):
            if demand > least:
                bits &= self._find_large(r, demand)
        return bits

    def _find_large(self, r: int, amount: int) -> int:
        """Return the servers that have so much of a resource."""
        bits = self._large.get((r, amount))
        if bits is None:
            bits = self._large[r, amount] = compute_bits(self._servers.capacity_kr[:, r] >= amount)
        return bits

    def is_too_large(self, task_class: TaskClass) -> bool:
        """Whether servers admit a class, and none of these could hold a task of it when empty.

        A resource that none of them has closes them all, so that their reason tells of it.
        """
        holding = self.find_holding(task_class.demand_r)
        admitting = EVERY if holding == EVERY and task_class.is_eligible else self.find_admitting(task_class)
        if admitting:
            return not admitting & holding
        reasons = (task_class.pin or task_class.placement).rejections
        return any(reason.kind is RejectionKind.INSUFFICIENT for reason, _ in reasons)


def find_pinned(pin: Pin, servers: ServerTable) -> int | None:
    """Return the server of a pin if tasks may go there."""
    server = pin.server
    return server if server is not None and servers.accepting_k[server] else None


def compute_bits(member_k: BoolArray) -> int:
    """Return the set as an integer with a bit for each server.

    >>> compute_bits(np.array([True, False, True])) & compute_bits(np.array([False, True, False]))
    0
    """
    return int.from_bytes(np.packbits(member_k).tobytes(), "big")


def compute_bit(server: int, count: int) -> int:
    """Return the set of one server of so many, as `compute_bits` does.

    >>> compute_bit(2, 3) == compute_bits(np.array([False, False, True]))
    True
    """
    return 1 << (-(-count // 8) * 8 - 1 - server)


def identify_reach(task_class: TaskClass) -> tuple[Placement, str | None]:
    """Return what is the same for classes that may use the same servers."""
    return task_class.placement, None if task_class.pin is None else task_class.pin.name
