"""Places on the way from a decision to a node, and how many of them each tenant may have.

Another scheduler may say nothing about a tenant's pods, so what is on its way must not be all of one tenant. The rules:

* **Part.** A tenant may take a place while it has fewer than `PART` times as many as are free. So one tenant alone has
  three quarters of the places, two have three sevenths each, and some are always left for a tenant that comes. Switches
  share their memory among ports like this: A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for
  Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998.
* **Waiting.** Where a tenant that has its part is next, no other tenant takes a place in its stead: tenants with small
  pods need many places, and would fall behind. It is not waited for once its oldest pod was passed by.
* **Newcomers.** Also then tenants with nothing on their way take one place each. So a new pod does not wait for pods
  that are never placed, and it is seen whether the other scheduler passes those by, or is slow, or away.
* **Plans.** A plan of several begins where its tenant may take one place. It takes as many as it may; its other pods
  **ride along** without a place. So it is not kept waiting by those that need one place each, and takes no place that
  is left for others. While pods ride along, no further plan begins that needs more places than there are for it.
* **Refusals.** A tenant with a pod that the other scheduler refused has one in `STUCK_PART` of the places at most, and
  one more for each of its pods that comes to a node, until it may have all.

A pod was **passed by** when one that was opened later has come to a node, and the time between both was longer than
that one then took, and at least `FLOW_SECONDS`. A scheduler that is slow, and has an order of its own, places what was
opened in one moment over many seconds; that shows nothing. A request may be heard long before it is answered: the first
of both counts as open from the answer on, the later one from the request on. A scheduler that asks about each pod says
it by its `Laps` instead. Times are in seconds, of one clock.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from fairbind.cluster.other_schedulers.laps import Laps
from fairbind.cluster.tenancy.users import find_tenant_of_leaf

PART = 3
FLOW_SECONDS = 1.0
STUCK_PART = 8
"""A tenant with a refused pod has at first one in so many of the places."""


class Places:
    """The rules of the module.

    >>> places = Places(8)
    >>> for n in range(5):
    ...     places.enter("a", 0.0)
    >>> places.free, places.may_enter("a"), places.may_enter("b")
    (3, True, True)
    >>> places.enter("a", 0.0)
    >>> places.may_enter("a"), places.may_enter("b")
    (False, True)
    """

    def __init__(self, most: int, laps: Laps | None = None) -> None:
        """most: how many places there are. laps: of the other scheduler, where it asks.

        riders: pods on their way without a place, because their plan needs more than there were.
        """
        self.most = most
        self.riders = 0
        self._laps = laps
        self._taken: Counter[str] = Counter()
        self._opened: dict[str, dict[str, float]] = {}
        self._progress: dict[str, float] = {}
        self._parts: dict[str, int] = {}
        self._passed_until = -inf

    @property
    def taken(self) -> int:
        """How many places are taken; more than there are after a restart amid many."""
        return self._taken.total()

    @property
    def free(self) -> int:
        """How many more pods may be on their way; less than 0 after a restart amid many."""
        return self.most - self.taken

    def may_enter(self, tenant: str, *, beside: Counter[str] | None = None) -> bool:
        """Whether a tenant may take one more place. beside: places that are given away and not taken yet, by tenant."""
        reserved = beside or Counter[str]()
        count, free = self._taken[tenant] + reserved[tenant], self.free - reserved.total()
        return free > 0 and count < PART * free and count < self._parts.get(tenant, self.most)

    def count_places(self, tenant: str, count: int, *, beside: Counter[str]) -> int:
        """Return how many of so many places a tenant may take. beside: as for `may_enter`; what it may take is added.

        >>> Places(8).count_places("a", 20, beside=Counter())
        6
        """
        for taken in range(count):
            if not self.may_enter(tenant, beside=beside):
                return taken
            beside[tenant] += 1
        return count

    def enter(self, tenant: str, now: float) -> None:
        """Give a pod of a tenant a place."""
        if not self._taken[tenant]:
            self._progress[tenant] = now
            self._opened[tenant] = {}
        self._taken[tenant] += 1

    def open(self, uid: str, tenant: str, now: float) -> None:
        """Note that a pod that has a place is seen open."""
        self._opened[tenant].setdefault(uid, now)

    def leave(self, uid: str, tenant: str) -> None:
        """Take the place of a pod."""
        self._taken[tenant] -= 1
        self._opened[tenant].pop(uid, None)
        if not self._taken[tenant]:
            del self._taken[tenant], self._opened[tenant], self._progress[tenant]

    def note_placed(self, asked_at: float | None, tenant: str, now: float) -> None:
        """Note that a pod, which may have left its place, has come to a node.

        asked_at: since when it may be open; None: for longer than is known.
        """
        if asked_at is not None:
            self._passed_until = max(self._passed_until, asked_at - max(FLOW_SECONDS, now - asked_at))
        if tenant in self._progress:
            self._progress[tenant] = now
        if tenant in self._parts:
            self._parts[tenant] += 1
            if self._parts[tenant] >= self.most:
                del self._parts[tenant]

    def note_refused(self, tenant: str) -> None:
        """Note that the other scheduler refused a pod of a tenant."""
        self._parts[tenant] = max(1, self.most // STUCK_PART)

    def was_passed(self, opened_at: float) -> bool:
        """Whether a pod that is open since this moment was passed by."""
        return opened_at <= (self._passed_until if self._laps is None else self._laps.passed_until)

    def flows(self, tenant: str, since: float) -> bool:
        """Whether a pod of a tenant that has something on its way came to a node after this moment."""
        return self._progress.get(tenant, -inf) > since

    def is_idle(self, tenant: str) -> bool:
        """Whether a tenant has nothing on its way."""
        return not self._taken[tenant]

    def find_wait_end(self, tenant: str, now: float) -> tuple[bool, float]:
        """Return whether the others wait for a tenant, and when that is another question if nothing happens."""
        if tenant in self._parts or not self._taken[tenant]:
            return False, inf
        opened_at = next(iter(self._opened[tenant].values()), inf)
        if self.was_passed(opened_at):
            return False, inf
        flows_until = self._progress[tenant] + FLOW_SECONDS
        return True, flows_until if now < flows_until else inf


class Round:
    """The places that one cycle may give away, in the order of its decisions.

    ends_at: when the next round is due, because a tenant that was waited for may be waited for no longer; infinite:
    none was, or nothing but a pod that comes to a node can change it.
    """

    def __init__(self, places: Places, now: float, *, waits: bool = False) -> None:
        """waits: whether a tenant is waited for already, so that only newcomers take places."""
        self._places = places
        self._now = now
        self._given: Counter[str] = Counter()
        self._has_riders = places.riders > 0
        self._waits = waits
        self.ends_at = inf

    def take(self, tenant: str, count: int = 1) -> bool:
        """Let a tenant, or a user of it, have places for a plan of so many pods; False when it may not now."""
        places, given, tenant = self._places, self._given, find_tenant_of_leaf(tenant)
        if self._waits and (count > 1 or given[tenant] or not places.is_idle(tenant)):
            return False
        taken = places.count_places(tenant, count, beside=given)
        if taken == count:
            return True
        if taken:
            if not self._has_riders:
                self._has_riders = True
                return True
            given[tenant] -= taken
        elif places.free > given.total() and not self._waits:
            self._waits, self.ends_at = places.find_wait_end(tenant, self._now)
        return False
