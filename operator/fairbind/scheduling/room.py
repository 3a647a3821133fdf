"""The room on the servers during one cycle: what is free, which claims are taken, and what changed since when.

Amounts are kept twice: as an array (R, K), so that a question about all servers runs along memory, and as lists of
Python integers for single servers, because numpy's price for one number is a hundred times that of a list.
Who caches something about servers remembers a position in the log and catches up with `log[position:]`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairbind.model import Claims, ServerTable

IndexArray = NDArray[np.intp]


class Room:
    """What is free on each server, in server index order.

    free_rk: base units, int64, shape (R, K). claimed: for a server's index the exclusive keys taken there.
    log: indices of servers in the order in which tasks were placed; the first `log_size` entries are valid.
    """

    __slots__ = ("_rows", "claimed", "free_rk", "log", "log_size")

    def __init__(self, servers: ServerTable) -> None:
        self.free_rk = np.array(servers.free_kr.T, dtype=np.int64, order="C")
        self.claimed: dict[int, frozenset[str]] = dict(servers.claimed)
        self.log: IndexArray = np.empty(256, dtype=np.intp)
        self.log_size = 0
        self._rows: list[list[int] | None] = [None] * len(servers.names)

    def get_row(self, server: int) -> list[int]:
        """Return what is free on one server, length R. Not to be changed."""
        row = self._rows[server]
        if row is None:
            row = self._rows[server] = self.free_rk[:, server].tolist()
        return row

    def take(self, server: int, demand_r: Sequence[int], claims: Claims) -> None:
        """Place one task on a server."""
        row = [free - demand for free, demand in zip(self.get_row(server), demand_r, strict=True)]
        self._rows[server] = row
        self.free_rk[:, server] = row
        if claims.taken:
            self.claimed[server] = self.claimed.get(server, frozenset()) | claims.taken
        if self.log_size == len(self.log):
            self.log = np.concatenate((self.log, np.empty_like(self.log)))
        self.log[self.log_size] = server
        self.log_size += 1
