"""The books of gate mode: which pods are on their way from an opened gate to a node, and which gates may be opened.

Another scheduler places the pods; fairbind opens their gates in the order that a cycle decides. A pod counts in its
tenant's share from the moment its gate is asked to open until it is gone. The rules:

* **Time.** A pod on its way holds the room that was decided for it until it is bound. When it is not bound within
  `timeout_seconds` it is overdue: the room is given back, and the share is not.
* **Limits.** At most `most` pods are on their way; no more is decided than may be. Overdue pods do not count here, so
  pods that the other scheduler cannot place never stop those that it can, but for one time-out.
* **Stuck tenants.** A tenant one of whose overdue pods was refused by the other scheduler (`note_refused`) has at most
  a part of `most` on their way until one of its pods is bound. So its next pods do not take all places again. A pod of
  which the other scheduler has said nothing shows only that it is slow, or away.
* **Scaling up.** Autoscalers do not see pods behind a gate. So where the next pod fits nowhere and one more node could
  help, its gate is opened without room (`scale_up`), the other scheduler marks it, and a node is bought. At most
  `most_scale_ups` pods of a tenant wait like this. They take no places, and their time begins when they have room
  (`note_room`). No tenant is passed over for having as many as it may, until none of them got room for
  `SCALE_UP_SECONDS`: otherwise the tenants would get new nodes in equal parts, and not by their shares.
* **Restart.** A pod that is found without the gate and without a node is on its way since the restart (`recover`). One
  for which there is no room scales up.

Times are in seconds, of one clock, and do not go back.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from dataclasses import dataclass
from math import inf

TIMEOUT_SECONDS = 30.0
MOST_UNGATED = 200
STUCK_PART = 8
"""A stuck tenant has at most one in so many of the places."""
STUCK_SECONDS = 5.0
"""A pod that was decided beyond that part is out of the scheduling order for so long."""
SCALE_UP_SECONDS = 600.0
"""Autoscalers take minutes. When no pod of a tenant got room for so long, they do not buy what it needs."""
BUSY_PARTS = 8, 5
"""More than five eighths of the places taken are busy, as with `pacing.LOW_WATER`."""


class ScaleUp(enum.Enum):
    """Whether a pod's gate is opened without room: yes; no, and no other tenant's either; no, but others' may be."""

    OPEN = enum.auto()
    WAIT = enum.auto()
    PASS = enum.auto()


class _State(enum.Enum):
    IN_TIME = enum.auto()
    OVERDUE = enum.auto()
    WITHOUT_ROOM = enum.auto()
    """It scales up, so no time runs."""


@dataclass(slots=True)
class _Opened:
    """ends_at: when its time is over. scales_up: whether it was opened without room."""

    tenant: str
    ends_at: float
    state: _State = _State.IN_TIME
    scales_up: bool = False


class Turnstile:
    """The rules of the module.

    >>> turnstile = Turnstile(most=2)
    >>> turnstile.open("uid-1", "a", 0.0), turnstile.open("uid-2", "a", 0.0), turnstile.open("uid-3", "a", 0.0)
    (True, True, False)
    >>> turnstile.end("uid-2", bound=True)
    >>> turnstile.find_next_timeout()
    30.0
    >>> turnstile.expire(30.0), turnstile.is_overdue("uid-1")
    (['uid-1'], True)
    """

    def __init__(
        self, *, most: int = MOST_UNGATED, timeout_seconds: float = TIMEOUT_SECONDS, most_scale_ups: int = 0
    ) -> None:
        """most: pods on their way. timeout_seconds: for how long a pod holds its room.

        most_scale_ups: pods of a tenant whose gates are open without room; 0: none.
        """
        self.most_scale_ups = most_scale_ups
        self._most = most
        self._timeout_seconds = timeout_seconds
        self._opened: dict[str, _Opened] = {}
        self._timely: Counter[str] = Counter()
        self._without_room: dict[str, dict[str, float]] = {}
        self._stuck: set[str] = set()
        self._timeouts: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return how many pods have an open gate and no node."""
        return len(self._opened)

    def __contains__(self, uid: object) -> bool:
        """Whether a pod is on its way, overdue or not."""
        return uid in self._opened

    @property
    def free(self) -> int:
        """How many more pods may be on their way; less than 0 after a restart amid many."""
        return self._most - self._timely.total()

    @property
    def is_busy(self) -> bool:
        """Whether so many pods are on their way that deciding more can wait until some are bound."""
        of, parts = BUSY_PARTS
        return of * self._timely.total() > parts * self._most

    def is_overdue(self, uid: str) -> bool:
        """Whether the pod's time is over and it is not bound."""
        return uid in self._opened and self._opened[uid].state is _State.OVERDUE

    def open(self, uid: str, tenant: str, now: float) -> bool:
        """Let the gate of a decided pod be opened; False when it must wait, because of the limits.

        A pod that is on its way already stays as it is. One whose time is over, and that is decided again, has another.
        """
        if uid in self._opened and not self.is_overdue(uid):
            return True
        part = max(1, self._most // STUCK_PART) if tenant in self._stuck else self._most
        if self.free <= 0 or self._timely[tenant] >= part:
            return False
        self._enter(uid, tenant, now)
        return True

    def scale_up(self, uid: str, tenant: str, now: float) -> ScaleUp:
        """Say whether the gate of a pod that fits nowhere is opened, and let it be."""
        known = self._without_room.get(tenant, {})
        if uid in self._opened or not self.most_scale_ups:
            return ScaleUp.PASS
        if len(known) >= self.most_scale_ups:
            return ScaleUp.PASS if max(known.values()) + SCALE_UP_SECONDS <= now else ScaleUp.WAIT
        self._opened[uid] = _Opened(tenant, inf, scales_up=True)
        self._lose_room(uid, now)
        return ScaleUp.OPEN

    def recover(self, uid: str, tenant: str, now: float, *, has_room: bool = True) -> None:
        """Note a pod that is found without its gate and without a node; limits do not hold for what has happened.

        has_room: whether room could be kept for it. A pod that is known stays as it is.
        """
        if uid in self._opened:
            return
        self._enter(uid, tenant, now)
        if not has_room and self.most_scale_ups:
            self._opened[uid].scales_up = True
            self.note_room(uid, now, has_room=False)

    def note_room(self, uid: str, now: float, *, has_room: bool) -> None:
        """Note that a pod has got room, or has none any more; of others than those that scale up time goes on."""
        found = self._opened.get(uid)
        if found is None or not found.scales_up:
            return
        if has_room and found.state is _State.WITHOUT_ROOM:
            self._leave(uid, found)
            self._enter(uid, found.tenant, now)
            self._opened[uid].scales_up = True
        elif not has_room and found.state is _State.IN_TIME:
            self._leave(uid, found)
            self._lose_room(uid, now)

    def note_refused(self, uid: str) -> None:
        """Note that the other scheduler has looked at an overdue pod and found no node for it."""
        if self.is_overdue(uid):
            self._stuck.add(self._opened[uid].tenant)

    def end(self, uid: str, *, bound: bool = False) -> None:
        """Note that a pod is bound or gone, or that its gate did not open after all."""
        found = self._opened.pop(uid, None)
        if found is None:
            return
        if bound:
            self._stuck.discard(found.tenant)
        self._leave(uid, found)

    def find_next_timeout(self) -> float:
        """Return when `expire` has something to return at the earliest; infinite when no pod is on its way in time."""
        while self._timeouts and not self._is_due(*self._timeouts[0]):
            heapq.heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else inf

    def expire(self, now: float) -> list[str]:
        """Return the pods whose time is over, each once."""
        expired: list[str] = []
        while self.find_next_timeout() <= now:
            _, uid = heapq.heappop(self._timeouts)
            found = self._opened[uid]
            self._leave(uid, found)
            found.state = _State.OVERDUE
            expired.append(uid)
        return expired

    def _enter(self, uid: str, tenant: str, now: float) -> None:
        ends_at = now + self._timeout_seconds
        self._opened[uid] = _Opened(tenant, ends_at)
        self._timely[tenant] += 1
        heapq.heappush(self._timeouts, (ends_at, uid))

    def _lose_room(self, uid: str, now: float) -> None:
        found = self._opened[uid]
        found.state, found.ends_at = _State.WITHOUT_ROOM, inf
        self._without_room.setdefault(found.tenant, {})[uid] = now

    def _leave(self, uid: str, found: _Opened) -> None:
        """Take a pod out of what it is counted in."""
        if found.state is _State.IN_TIME:
            self._timely[found.tenant] -= 1
            if not self._timely[found.tenant]:
                del self._timely[found.tenant]
        elif found.state is _State.WITHOUT_ROOM:
            del self._without_room[found.tenant][uid]
            if not self._without_room[found.tenant]:
                del self._without_room[found.tenant]

    def _is_due(self, ends_at: float, uid: str) -> bool:
        found = self._opened.get(uid)
        return found is not None and found.state is _State.IN_TIME and found.ends_at == ends_at
