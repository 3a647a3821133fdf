"""When a namespace's events or conditions are written again after a write failed, so that others keep their speed.

A quota, an admission policy, a webhook or a rate limit of the API server can refuse or delay the events of one
namespace only. So a failure says something about its own **place** first: a namespace and what is written there. The
rules:

* A place whose write failed rests for `FIRST_REST_SECONDS`, twice as long after each further failure, up to
  `MAX_REST_SECONDS`. It rests for as long as the server asks for, if that is longer.
* Then one write at a time finds out whether that has changed. After the first success the place is as any other.
* When `PLACES_IN_A_ROW` places failed and no write succeeded in between, the trouble is not that of a namespace: all
  writes rest.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

FIRST_REST_SECONDS = 5.0
MAX_REST_SECONDS = 30.0
PLACES_IN_A_ROW = 4
MAX_REMEMBERED = 10_000
"""Places that are known to fail, at most."""


@dataclass(slots=True)
class _Place:
    """under_way: its writes. rest_seconds: of the last rest; 0 while writes succeed. rests_until: its end."""

    under_way: int = 0
    rest_seconds: float = 0.0
    rests_until: float = -inf


class WriteLimits:
    """The rules of the module. Times are those of the caller's clock.

    >>> limits = WriteLimits()
    >>> limits.begin("a")
    >>> limits.fail("a", now=0.0)
    0.0
    >>> limits.may_begin("a", now=4.9), limits.may_begin("b", now=4.9), limits.may_begin("a", now=5.0)
    (False, True, True)
    """

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}
        self._failed_in_a_row: set[Hashable] = set()

    def may_begin(self, place: Hashable, now: float) -> bool:
        """Whether a write may begin there now."""
        known = self._places.get(place)
        return known is None or not known.rest_seconds or (not known.under_way and now >= known.rests_until)

    def begin(self, place: Hashable) -> None:
        """Note that a write has begun; `succeed`, `fail` or `leave` follows."""
        known = self._places.get(place)
        if known is None:
            if len(self._places) >= MAX_REMEMBERED:
                self._forget_one()
            known = self._places[place] = _Place()
        known.under_way += 1

    def leave(self, place: Hashable) -> None:
        """Note that a write has ended and tells nothing about the place."""
        if (known := self._places.get(place)) is not None:
            known.under_way -= 1
            if not known.under_way and not known.rest_seconds:
                del self._places[place]

    def succeed(self, place: Hashable, now: float) -> None:
        """Note that a write has succeeded; one that succeeds during the rest began before it and does not end it."""
        self._failed_in_a_row.clear()
        if (known := self._places.get(place)) is not None and now >= known.rests_until:
            known.rest_seconds = 0.0
        self.leave(place)

    def fail(self, place: Hashable, now: float, asked_seconds: float | None = None) -> float:
        """Note that a write has failed; return for how long all writes must rest, 0 when only this place does.

        asked_seconds: for how long the server asks us to wait; None when it asks for nothing.
        """
        known = self._places.setdefault(place, _Place(under_way=1))
        if now >= known.rests_until:  # else it began before the failure that the rest is for
            known.rest_seconds = min(max(2 * known.rest_seconds, FIRST_REST_SECONDS), MAX_REST_SECONDS)
        known.rests_until = max(known.rests_until, now + max(known.rest_seconds, asked_seconds or 0.0))
        self.leave(place)
        self._failed_in_a_row.add(place)
        if len(self._failed_in_a_row) < PLACES_IN_A_ROW:
            return 0.0
        self._failed_in_a_row.clear()
        return max(FIRST_REST_SECONDS, asked_seconds or 0.0)

    def _forget_one(self) -> None:
        idle = next((place for place, known in self._places.items() if not known.under_way), None)
        if idle is not None:
            del self._places[idle]
