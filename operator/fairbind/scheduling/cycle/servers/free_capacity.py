"""Free capacity of the servers in one draft: what is left, which keys are taken, and what changed since when.

What is left is kept twice. For single servers as lists of Python integers: these are the account. For questions about
many servers as an array, one row a resource, so that a comparison runs along memory. The array is float64, which holds
every amount up to MAX_AMOUNT exactly and saves a conversion in each score; an overcommitted server has nothing left.

Who caches something about servers remembers a position in the log and catches up with `log[position:log_size]`. Who
closes something, because nothing fits there, also remembers how long `gains` was: a server that comes later in it has
gained free capacity, or is eligible again, and may end what was closed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairbind.model import ExclusiveKeys, Placement, ServerTable
from fairbind.model.servers import FloatArray, IndexArray, IntArray


def compute_left(free_kr: IntArray) -> FloatArray:
    """Return what is left on servers, never below zero, shape (R, K), from what is free there, shape (K, R)."""
    return np.maximum(free_kr.T, 0).astype(np.float64, order="C")


class FreeCapacity:
    """What is left on each server, in server index order.

    left_rk: base units, never below zero, exact, shape (R, K). free_kr: what was free at the beginning, shape (K, R).
    taken_keys: for a server's index the keys taken there.
    log: indices of servers in the order in which they changed; the first `log_size` entries are valid.
    gains: indices of servers in the order in which something came to fit there that may not have fitted before.
    """

    __slots__ = ("_claimed_before", "_rows", "free_kr", "gains", "left_rk", "log", "log_size", "taken_keys")

    def __init__(self, servers: ServerTable) -> None:
        self.free_kr = servers.free_kr
        self._rows: dict[int, list[int]] = {}
        self.left_rk: FloatArray = compute_left(servers.free_kr)
        self.taken_keys: dict[int, frozenset[str]] = dict(servers.taken_keys)
        self.log: IndexArray = np.empty(256, dtype=np.intp)
        self.log_size = 0
        self.gains: list[int] = []
        self._claimed_before: list[tuple[int, frozenset[str] | None]] = []

    def get_row(self, server: int) -> list[int]:
        """Return what is free on one server, below zero where it is overcommitted, length R. Not to be changed."""
        row = self._rows.get(server)
        if row is None:
            row = self._rows[server] = self.free_kr[server].tolist()
        return row

    def get_row_for(self, placement: Placement, server: int) -> list[int]:
        """Return what is free on one server for tasks of a placement, with what is reserved. Not to be changed."""
        row, reserved_r = self.get_row(server), placement.reserved.get(server)
        return row if reserved_r is None else [free + reserved for free, reserved in zip(row, reserved_r, strict=True)]

    def take(self, server: int, demand_r: Sequence[int], exclusive_keys: ExclusiveKeys) -> None:
        """Place one task, which must fit, on a server."""
        row = self.get_row(server)
        left_rk = self.left_rk
        for r, demand in enumerate(demand_r):
            if demand > 0:
                row[r] -= demand
                left_rk[r, server] = max(row[r], 0)  # below zero: the task took what is reserved for it
        if exclusive_keys.taken:
            self._claim(server, self.taken_keys.get(server, frozenset()) | exclusive_keys.taken)
        self.note_change(server)

    def undo_take(self, server: int, demand_r: Sequence[int], exclusive_keys: ExclusiveKeys) -> None:
        """Take back the last `take` that was not taken back yet; everything since must have been."""
        self._shift(server, demand_r, 1)
        if exclusive_keys.taken:
            self._restore_claims()
        self.note_gain(server)

    def release(self, server: int, demand_r: Sequence[int], keys: frozenset[str]) -> list[int]:
        """Give back what a running task holds on a server, and return by how much there is more left, length R.

        That is less than the demand where the server is overcommitted. keys: those that are free from then on.
        """
        gained_r = self._shift(server, demand_r, 1)
        self._claim(server, self.taken_keys.get(server, frozenset()) - keys)
        self.note_gain(server)
        return gained_r

    def undo_release(self, server: int, demand_r: Sequence[int]) -> None:
        """Take back the last `release` that was not taken back yet; everything since must have been."""
        self._shift(server, demand_r, -1)
        self._restore_claims()
        self.note_change(server)

    def note_gain(self, server: int) -> None:
        """Note that more may fit on a server than before."""
        self.gains.append(server)
        self.note_change(server)

    def note_change(self, server: int) -> None:
        """Note that something about a server changed that decides what fits there."""
        if self.log_size == len(self.log):
            self.log = np.concatenate((self.log, np.empty_like(self.log)))
        self.log[self.log_size] = server
        self.log_size += 1

    def mark(self) -> tuple[int, int]:
        """Return the lengths of log and gains, to which `rewind` goes back."""
        return self.log_size, len(self.gains)

    def list_gains(self, mark: tuple[int, int]) -> list[int]:
        """Return the servers that have gained free capacity since a mark, in that order."""
        return self.gains[mark[1] :]

    def rewind(self, mark: tuple[int, int]) -> None:
        """Forget that servers have changed since a mark: all of them are as they were."""
        self.log_size = mark[0]
        del self.gains[mark[1] :]

    def _shift(self, server: int, demand_r: Sequence[int], sign: int) -> list[int]:
        """Change what is free, and return by how much what is left changed."""
        row, left_rk = self.get_row(server), self.left_rk
        gained_r = [0] * len(row)
        for r, demand in enumerate(demand_r):
            before = max(row[r], 0)
            row[r] += sign * demand
            left = max(row[r], 0)
            left_rk[r, server] = left
            gained_r[r] = left - before
        return gained_r

    def _claim(self, server: int, keys: frozenset[str]) -> None:
        """Set the keys that are taken on a server; an empty set is the same as none."""
        self._claimed_before.append((server, self.taken_keys.get(server)))
        self.taken_keys[server] = keys

    def _restore_claims(self) -> None:
        server, keys = self._claimed_before.pop()
        if keys is None:
            del self.taken_keys[server]
        else:
            self.taken_keys[server] = keys
