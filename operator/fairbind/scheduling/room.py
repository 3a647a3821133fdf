"""The room on the servers during one cycle: what is left, which claims are taken, and what changed since when.

What is left is kept twice. For single servers as lists of Python integers: these are the account. For questions about
many servers as an array, one row a resource, so that a comparison runs along memory. The array is float64, which holds
every amount up to MAX_AMOUNT exactly and saves a conversion in each score; an overcommitted server has nothing left.

Who caches something about servers remembers a position in the log and catches up with `log[position:log_size]`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairbind.model import Claims, ServerTable

IndexArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]


class Room:
    """What is left on each server, in server index order.

    left_rk: base units, never below zero, exact, shape (R, K). claimed: for a server's index the keys taken there.
    log: indices of servers in the order in which tasks were placed; the first `log_size` entries are valid.
    """

    __slots__ = ("_free_kr", "_rows", "claimed", "left_rk", "log", "log_size")

    def __init__(self, servers: ServerTable) -> None:
        self._free_kr = servers.free_kr
        self._rows: list[list[int] | None] = [None] * len(servers.names)
        self.left_rk: FloatArray = np.maximum(servers.free_kr.T, 0).astype(np.float64, order="C")
        self.claimed: dict[int, frozenset[str]] = dict(servers.claimed)
        self.log: IndexArray = np.empty(256, dtype=np.intp)
        self.log_size = 0

    def get_row(self, server: int) -> list[int]:
        """Return what is free on one server, below zero where it is overcommitted, length R. Not to be changed."""
        row = self._rows[server]
        if row is None:
            row = self._rows[server] = self._free_kr[server].tolist()
        return row

    def take(self, server: int, demand_r: Sequence[int], claims: Claims) -> None:
        """Place one task, which must fit, on a server."""
        row = self.get_row(server)
        left_rk = self.left_rk
        for r, demand in enumerate(demand_r):
            if demand > 0:
                row[r] = left_rk[r, server] = row[r] - demand
        if claims.taken:
            self.claimed[server] = self.claimed.get(server, frozenset()) | claims.taken
        if self.log_size == len(self.log):
            self.log = np.concatenate((self.log, np.empty_like(self.log)))
        self.log[self.log_size] = server
        self.log_size += 1
