"""For how long no other tenant gets a new node while a tenant waits for one; a part of the rules of `gate_limiter`.

The others wait `SCALE_UP_SECONDS` from the tenant's first pod without capacity on, whatever becomes of that pod: a
tenant that deletes pods and makes others gets no more time. Then the tenant is passed over for a pause, twice as long
each time, until one of its pods gets capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALE_UP_SECONDS = 600.0
"""Autoscalers take minutes. When no pod of a tenant got capacity for so long, they do not buy what it needs."""
FIRST_PAUSE_SECONDS = 2 * SCALE_UP_SECONDS
MAX_REMEMBERED = 10_000


@dataclass(slots=True)
class _Wait:
    """since: when others began to wait. pause: how long they then do not. was_passed: whether one was passed over."""

    since: float
    pause: float = FIRST_PAUSE_SECONDS
    was_passed: bool = False


class NodeWaits:
    """The rules of the module. Times are in seconds, of one clock.

    >>> waits = NodeWaits()
    >>> waits.begin("a", 0.0)
    >>> waits.is_waited_for("a", 599.0), waits.is_waited_for("a", 600.0), waits.is_waited_for("a", 1_800.0)
    (True, False, True)
    """

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def begin(self, tenant: str, now: float) -> None:
        """Note that the gate of a pod of a tenant is opened without capacity."""
        wait = self._waits.get(tenant)
        if wait is None:
            if len(self._waits) >= MAX_REMEMBERED:
                del self._waits[next(iter(self._waits))]
            self._waits[tenant] = _Wait(now)
        elif now >= wait.since + SCALE_UP_SECONDS + wait.pause:
            self._waits[tenant] = _Wait(now, wait.pause * (2 if wait.was_passed else 1))

    def end(self, tenant: str) -> None:
        """Note that a pod of a tenant got capacity."""
        self._waits.pop(tenant, None)

    def is_waited_for(self, tenant: str, now: float) -> bool:
        """Whether no other tenant gets a node in the stead of one that has as many pods without capacity as it may."""
        self.begin(tenant, now)
        wait = self._waits[tenant]
        wait.was_passed |= self.is_passed_over(tenant, now)
        return now < wait.since + SCALE_UP_SECONDS

    def is_passed_over(self, tenant: str, now: float) -> bool:
        """Whether a tenant is in its pause, so that all others come before it."""
        wait = self._waits.get(tenant)
        return wait is not None and SCALE_UP_SECONDS <= now - wait.since < SCALE_UP_SECONDS + wait.pause
