"""When places that have come free are given away, so that few cycles do it; a part of the rules of `pacing`."""

from __future__ import annotations

from math import inf

from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter

PLACES_SECONDS = 0.2
"""How long a place that has come free waits for others."""


class PlaceWaits:
    """Knows what waits for places. wake_at: when a cycle should give some away; infinite: it is not for time to say."""

    def __init__(self, gate_limiter: GateLimiter) -> None:
        self.wake_at = inf
        self._gate_limiter = gate_limiter
        self._are_awaited = False
        self._awaits_round = False
        self._opens = True
        self._freed = 0

    def begin_cycle(self) -> bool:
        """Return whether the cycle that begins may give places away."""
        self._opens = self._gate_limiter.free > 0 and not self._awaits_round
        self._are_awaited |= not self._opens
        if self._opens:
            self._freed, self.wake_at = 0, inf
        return self._opens

    def note_rationed(self, *, is_rationed: bool) -> None:
        """Note whether the cycle passed pods over because no more of their tenants may be decided."""
        self._are_awaited = is_rationed
        if is_rationed and self._opens and self._gate_limiter.round_ends_at < inf:
            self._awaits_round, self.wake_at = True, self._gate_limiter.round_ends_at

    def free(self, count: int, now: float) -> None:
        """Note that places have come free."""
        self._freed += count
        if self._are_awaited:
            at = now if self._freed >= self._gate_limiter.batch else now + PLACES_SECONDS
            self.wake_at = min(self.wake_at, at)

    def is_due(self, now: float) -> bool:
        """Whether it is time to give places away; once."""
        if now < self.wake_at:
            return False
        self.wake_at, self._awaits_round = inf, False
        return True
