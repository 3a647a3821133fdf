"""The state of gate mode: which pods are on their way from an opened gate to a node, and which gates may be opened.

Another scheduler places the pods; fairbind opens their gates in the order that a cycle decides. A pod counts in its
tenant's share from the moment its gate is asked to open until it is gone. The rules:

* **Time.** A pod on its way holds the capacity that was decided for it until it is bound. When it is not bound within
  `timeout_seconds` it is overdue: the capacity is given back, and the share is not. A scheduler whose `Laps` are known
  has more time for a pod that it has not come to, up to `SLOW_TIMES` as much, or `AWAY_TIMES` where it asks nothing:
  others would get the capacity only because they are first in its queue, or are asked about when it is back.
* **Limits.** At most `most` pods are on their way, and of these at most a part of one tenant (`places`). A cycle
  decides no more rationed pods than may be (`begin_round`). Overdue pods do not count here. The users of a tenant have
  one part together, as a user is a label of a pod. Of a plan of several all gates are opened, or none; where there are
  fewer places, its other pods ride along.
* **Refusals.** A tenant one of whose overdue pods the other scheduler refused (`note_refused`) has a smaller part.
  When the other scheduler has said nothing of a pod for the whole time, placed none of its tenant, and passed it by
  (`was_passed`), it has refused it. Otherwise that shows only that it is slow, or away. A pod whose time was over
  before, or that was found open, passes no other by: it may have been in the queue for longer than is known.
* **Scaling up.** Autoscalers do not see pods behind a gate. So where the next pod fits nowhere and one more node could
  help, its gate is opened without capacity (`scale_up`), the other scheduler marks it, and a node is bought. At most
  `most_scale_ups` pods of a tenant wait like this. They take no places, and their time begins when they have free
  capacity (`note_capacity`). No tenant is passed over for having as many as it may, until none of its pods got capacity
  for long (`node_waits`): otherwise the tenants would get new nodes in equal parts, and not by their shares.
* **Restart.** A pod that is found without the gate and without a node is on its way since the restart (`recover`). One
  for which there is no free capacity scales up.

Times are in seconds, of one clock, and do not go back.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from fairbind.cluster.other_schedulers.laps import Laps
from fairbind.cluster.other_schedulers.node_waits import NodeWaits
from fairbind.cluster.other_schedulers.places import Places, Round
from fairbind.cluster.tenancy.users import find_tenant_of_leaf

TIMEOUT_SECONDS = 30.0
MOST_UNGATED = 200
SLOW_TIMES, AWAY_TIMES = 6, 3
"""A scheduler that asks and is slow, or away, has so many times the time. One that fails over is back in 20 s."""
PROLONGED_SECONDS = 1.0
BATCH_PART = 8
LATE_SECONDS = 60.0
"""For how long a pod whose time was over may still be in the other scheduler's queue from then."""
STUCK_SECONDS = 5.0
"""A pod that was decided and cannot be carried out now is out of the scheduling order for so long."""


class ScaleUp(enum.Enum):
    """Whether a pod's gate is opened without capacity: yes; neither it nor another tenant's; others' may be."""

    OPEN = enum.auto()
    WAIT = enum.auto()
    PASS = enum.auto()


class _State(enum.Enum):
    IN_TIME = enum.auto()
    OVERDUE = enum.auto()
    WITHOUT_CAPACITY = enum.auto()
    """It scales up, so no time runs."""


@dataclass(slots=True)
class _Opened:
    """asked_at: since when it may be open. opened_at: when it was seen open; None: not yet. ends_at: its time's end.

    scales_up: it was opened without capacity. is_found: it was found open, or was asked to open before, so it may be
    longer in the other scheduler's queue than is known. rides: it has no place, see `Places`.
    """

    tenant: str
    asked_at: float
    ends_at: float
    opened_at: float | None = None
    state: _State = _State.IN_TIME
    scales_up: bool = False
    is_found: bool = False
    rides: bool = False


class GateLimiter:
    """The rules of the module.

    >>> gate_limiter = GateLimiter(most=2)
    >>> gate_limiter.open("uid-1", "a", 0.0), gate_limiter.open("uid-2", "a", 0.0), gate_limiter.open("uid-3", "a", 0.0)
    (True, True, False)
    >>> gate_limiter.end("uid-2", 1.0, bound=True)
    >>> gate_limiter.find_next_timeout()
    30.0
    >>> gate_limiter.expire(30.0), gate_limiter.is_overdue("uid-1")
    (['uid-1'], True)
    """

    def __init__(
        self,
        *,
        most: int = MOST_UNGATED,
        timeout_seconds: float = TIMEOUT_SECONDS,
        most_scale_ups: int = 0,
        laps: Laps | None = None,
    ) -> None:
        """most: pods on their way. timeout_seconds: for how long a pod holds its capacity.

        most_scale_ups: pods of a tenant whose gates are open without capacity; 0: none. laps: of the other scheduler,
        where it asks.
        """
        self.most_scale_ups = most_scale_ups
        self._places = Places(most, laps)
        self._laps = laps
        self._node_waits = NodeWaits()
        self._round: Round | None = None
        self._timeout_seconds = timeout_seconds
        self._opened: dict[str, _Opened] = {}
        self._without_capacity: dict[str, dict[str, float]] = {}
        self._timeouts: list[tuple[float, str]] = []
        self._late: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many pods have an open gate and no node."""
        return len(self._opened)

    def __contains__(self, uid: object) -> bool:
        """Whether a pod is on its way, overdue or not."""
        return uid in self._opened

    @property
    def free(self) -> int:
        """How many more pods may be on their way; less than 0 after a restart amid many."""
        return self._places.free

    @property
    def batch(self) -> int:
        """How many places that come free are given away together."""
        return max(1, self._places.most // BATCH_PART)

    @property
    def round_ends_at(self) -> float:
        """When the next round is due, see `Round`; infinite: there was none, or it is not for time to say."""
        return inf if self._round is None else self._round.ends_at

    def is_overdue(self, uid: str) -> bool:
        """Whether the pod's time is over and it is not bound."""
        return uid in self._opened and self._opened[uid].state is _State.OVERDUE

    def begin_round(self, now: float) -> Round:
        """Return the places that a cycle may give away now."""
        self._round = Round(self._places, now)
        return self._round

    def let_newcomers_in(self, now: float) -> Round:
        """Return the places that a cycle may give away amid a round."""
        return Round(self._places, now, waits=True)

    def lets_in(self, tenant: str) -> bool:
        """Tell whether a tenant may have a place amid a round."""
        tenant = find_tenant_of_leaf(tenant)
        return self._places.is_idle(tenant) and self._places.may_enter(tenant)

    def open_all(self, members: Sequence[tuple[str, str]], now: float) -> bool:
        """Let the gates of a plan be opened; False when all must wait. members: UID and tenant of each."""
        members = [(uid, find_tenant_of_leaf(leaf)) for uid, leaf in members]
        entering = [(uid, tenant) for uid, tenant in members if uid not in self._opened or self.is_overdue(uid)]
        given = Counter[str]()
        for tenant, count in Counter(tenant for _, tenant in entering).items():
            taken = self._places.count_places(tenant, count, beside=given)
            if taken < count and (not taken or self._places.riders):
                return False
        for uid, tenant in entering:
            self._enter(uid, tenant, now, rides=not given[tenant])
            self._opened[uid].is_found = uid in self._late
            given[tenant] -= given[tenant] > 0
        return True

    def open(self, uid: str, tenant: str, now: float) -> bool:
        """Let the gate of a decided pod be opened; False when it must wait, because of the limits.

        A pod that is on its way already stays as it is. One whose time is over, and that is decided again, has another.
        """
        return self.open_all(((uid, tenant),), now)

    def scale_up(self, uid: str, tenant: str, now: float) -> ScaleUp:
        """Say whether the gate of a pod that fits nowhere is opened, and let it be."""
        tenant = find_tenant_of_leaf(tenant)
        known = self._without_capacity.get(tenant, {})
        if uid in self._opened or not self.most_scale_ups:
            return ScaleUp.PASS
        if len(known) >= self.most_scale_ups:
            return ScaleUp.WAIT if self._node_waits.is_waited_for(tenant, now) else ScaleUp.PASS
        self._node_waits.begin(tenant, now)
        self._opened[uid] = _Opened(tenant, now, inf, scales_up=True)
        self._lose_capacity(uid, now)
        return ScaleUp.OPEN

    def note_open(self, uid: str, now: float) -> None:
        """Note that the gate of a pod is open: from now on the other scheduler sees it."""
        found = self._opened.get(uid)
        if found is not None and found.state is _State.IN_TIME:
            found.opened_at = now
            if not found.rides:
                self._places.open(uid, found.tenant, now)

    def is_passed_over(self, tenant: str, now: float) -> bool:
        """Whether new nodes go to all other tenants first: they waited for this one for long enough."""
        return self._node_waits.is_passed_over(find_tenant_of_leaf(tenant), now)

    def recover(self, uid: str, tenant: str, now: float, *, has_capacity: bool = True) -> None:
        """Note a pod that is found without its gate and without a node; limits do not hold for what has happened.

        has_capacity: whether capacity could be kept for it. A pod that is known stays as it is.
        """
        if uid in self._opened:
            return
        self._enter(uid, find_tenant_of_leaf(tenant), now)
        self.note_open(uid, now)
        self._opened[uid].is_found = True
        if not has_capacity and self.most_scale_ups:
            self._opened[uid].scales_up = True
            self.note_capacity(uid, now, has_capacity=False)

    def note_capacity(self, uid: str, now: float, *, has_capacity: bool) -> None:
        """Note that a pod has got capacity, or has none any more; of others than those that scale up time goes on."""
        found = self._opened.get(uid)
        if found is None or not found.scales_up:
            return
        if has_capacity and found.state is _State.WITHOUT_CAPACITY:
            self._node_waits.end(found.tenant)
            self._leave(uid, found)
            self._enter(uid, found.tenant, now)
            self._opened[uid].scales_up = True
            self.note_open(uid, now)
        elif not has_capacity and found.state is _State.IN_TIME:
            self._leave(uid, found)
            self._lose_capacity(uid, now)

    def note_refused(self, uid: str) -> None:
        """Note that the other scheduler has found no node for an overdue pod, or passed it by."""
        if self.is_overdue(uid):
            self._places.note_refused(self._opened[uid].tenant)

    def note_failed(self, uid: str) -> None:
        """Note that the binding of a pod failed, as by its namespace's webhook: its tenant's others fail, too."""
        if found := self._opened.get(uid):
            self._places.note_refused(found.tenant)

    def was_passed(self, uid: str) -> bool:
        """Whether a pod was passed by (see `Places`), and none of its tenant's came to a node meanwhile."""
        found = self._opened.get(uid)
        if found is None or found.opened_at is None:
            return False
        return self._places.was_passed(found.opened_at) and not self._places.flows(found.tenant, found.opened_at)

    def end(self, uid: str, now: float, *, bound: bool = False) -> None:
        """Note that a pod is bound or gone, or that its gate did not open after all."""
        found = self._opened.pop(uid, None)
        if found is None:
            return
        if bound:
            self._places.note_placed(None if found.is_found else found.asked_at, found.tenant, now)
            if found.scales_up:
                self._node_waits.end(found.tenant)
        else:
            self._note_late(uid, now)  # its request may have been heard, although it failed
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
            if self._is_to_come(found, now):
                found.ends_at = now + PROLONGED_SECONDS
                heapq.heappush(self._timeouts, (found.ends_at, uid))
                continue
            self._leave(uid, found)
            found.state = _State.OVERDUE
            self._note_late(uid, now)
            expired.append(uid)
        self._forget_late(now)
        return expired

    def _note_late(self, uid: str, now: float) -> None:
        """Note that a pod may be in the other scheduler's queue, although it is not on its way any more."""
        self._late.pop(uid, None)
        self._late[uid] = now

    def _forget_late(self, now: float) -> None:
        """Forget pods that were late long ago; what is left is in the order of time."""
        for uid, since in list(self._late.items()):
            if now < since + LATE_SECONDS:
                break
            del self._late[uid]

    def _enter(self, uid: str, tenant: str, now: float, *, rides: bool = False) -> None:
        ends_at = now + self._timeout_seconds
        self._opened[uid] = _Opened(tenant, now, ends_at, rides=rides)
        if rides:
            self._places.riders += 1
        else:
            self._places.enter(tenant, now)
        heapq.heappush(self._timeouts, (ends_at, uid))

    def _lose_capacity(self, uid: str, now: float) -> None:
        found = self._opened[uid]
        found.state, found.ends_at = _State.WITHOUT_CAPACITY, inf
        self._without_capacity.setdefault(found.tenant, {})[uid] = now

    def _leave(self, uid: str, found: _Opened) -> None:
        """Take a pod out of what it is counted in."""
        if found.state is _State.IN_TIME and found.rides:
            self._places.riders -= 1
        elif found.state is _State.IN_TIME:
            self._places.leave(uid, found.tenant)
        elif found.state is _State.WITHOUT_CAPACITY:
            del self._without_capacity[found.tenant][uid]
            if not self._without_capacity[found.tenant]:
                del self._without_capacity[found.tenant]

    def _is_to_come(self, found: _Opened, now: float) -> bool:
        """Tell whether the other scheduler is busy and has not come to a pod yet, or has not asked since."""
        if self._laps is None:
            return False
        if self._laps.asked_at < found.asked_at:
            return now < found.asked_at + AWAY_TIMES * self._timeout_seconds
        is_slow = self._laps.is_busy(now) and self._laps.passed_until < found.asked_at
        return is_slow and now < found.asked_at + SLOW_TIMES * self._timeout_seconds

    def _is_due(self, ends_at: float, uid: str) -> bool:
        found = self._opened.get(uid)
        return found is not None and found.state is _State.IN_TIME and found.ends_at == ends_at
