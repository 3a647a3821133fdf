"""The books of gate mode: which pods are on their way from an opened gate to a node, and which gates may be opened.

Another scheduler places the pods; fairbind opens their gates in the order that a cycle decides. A pod counts in its
tenant's share from the moment its gate is asked to open until it is gone. The rules:

* **Room.** A pod on its way holds the room that was decided for it until it is bound. When it is not bound within
  `timeout_seconds`, the room is given back, and the share is not: its tenant still holds the turn.
* **Limits.** At most `most` pods are on their way, and a tenant has at most its part of them: `most` divided by the
  tenants that have pods on their way or ask, at least one. Pods whose time is over do not count here, so pods that
  the other scheduler cannot place never stop those that it can.
* **Restart.** The books are made again from the API: a pod without the gate and without a node is on its way since the
  restart (`recover`). So nothing is opened twice, and nothing that was opened is forgotten.

Times are in seconds, of one clock, and do not go back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from math import inf

TIMEOUT_SECONDS = 30.0
MOST_UNGATED = 200


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A pod whose gate is open. tenant: whose it is. node: where it holds room; None when that is not known or over."""

    tenant: str
    node: str | None


@dataclass(slots=True)
class _Opened:
    tenant: str
    node: str | None
    ends_at: float
    is_overdue: bool = False


class Turnstile:
    """The rules of the module.

    >>> turnstile = Turnstile(most=2)
    >>> turnstile.open("uid-1", "a", "node-1", 0.0, asking={"a", "b"})
    True
    >>> turnstile.open("uid-2", "a", "node-1", 0.0, asking={"a", "b"})
    False
    >>> turnstile.find_next_timeout()
    30.0
    >>> turnstile.expire(30.0), turnstile.get("uid-1")
    (['uid-1'], OnItsWay(tenant='a', node=None))
    """

    def __init__(self, *, most: int = MOST_UNGATED, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """most: pods on their way. timeout_seconds: for how long a pod holds its room."""
        self._most = most
        self._timeout_seconds = timeout_seconds
        self._opened: dict[str, _Opened] = {}
        self._timely: Counter[str] = Counter()
        self._timeouts: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return how many pods have an open gate and no node."""
        return len(self._opened)

    def get(self, uid: str) -> OnItsWay | None:
        """Return what a pod on its way holds; None when it is not on its way."""
        found = self._opened.get(uid)
        return None if found is None else OnItsWay(found.tenant, found.node)

    def is_overdue(self, uid: str) -> bool:
        """Whether the pod's time is over and it is not bound."""
        return uid in self._opened and self._opened[uid].is_overdue

    def open(self, uid: str, tenant: str, node: str, now: float, *, asking: Collection[str]) -> bool:
        """Let the gate of a decided pod be opened; False when its turn must wait, or when it is on its way already.

        asking: the tenants that have pods whose turn could come; each of them has a part.
        """
        if uid in self._opened or self._timely.total() >= self._most:
            return False
        sharers = len({tenant, *asking, *self._timely})
        if self._timely[tenant] >= max(1, self._most // sharers):
            return False
        self._enter(uid, tenant, node, now)
        return True

    def recover(self, uid: str, tenant: str, node: str | None, now: float) -> None:
        """Note a pod that is found without its gate and without a node; limits do not hold for what has happened.

        node: where it holds room, when it can go to one node only. A pod that is known stays as it is.
        """
        if uid not in self._opened:
            self._enter(uid, tenant, node, now)

    def end(self, uid: str) -> None:
        """Note that a pod is bound or gone, or that its gate did not open after all."""
        found = self._opened.pop(uid, None)
        if found is not None and not found.is_overdue:
            self._leave(found.tenant)

    def find_next_timeout(self) -> float:
        """Return when `expire` has something to return at the earliest; infinite when no pod is on its way in time."""
        while self._timeouts and not self._is_due(*self._timeouts[0]):
            heapq.heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else inf

    def expire(self, now: float) -> list[str]:
        """Take their room from pods whose time is over, and return them, each once."""
        expired: list[str] = []
        while self.find_next_timeout() <= now:
            _, uid = heapq.heappop(self._timeouts)
            found = self._opened[uid]
            found.is_overdue, found.node = True, None
            self._leave(found.tenant)
            expired.append(uid)
        return expired

    def _enter(self, uid: str, tenant: str, node: str | None, now: float) -> None:
        ends_at = now + self._timeout_seconds
        self._opened[uid] = _Opened(tenant, node, ends_at)
        self._timely[tenant] += 1
        heapq.heappush(self._timeouts, (ends_at, uid))

    def _leave(self, tenant: str) -> None:
        self._timely[tenant] -= 1
        if not self._timely[tenant]:
            del self._timely[tenant]

    def _is_due(self, ends_at: float, uid: str) -> bool:
        found = self._opened.get(uid)
        return found is not None and not found.is_overdue and found.ends_at == ends_at
