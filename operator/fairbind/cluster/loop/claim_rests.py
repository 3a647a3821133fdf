"""How long claims rest that could not be bound, so that they take no place of their tenant's other claims.

A claim whose provisioner failed, or did not answer in time, rests for `FIRST_REST_SECONDS`, twice as long after each
further failure, up to `MAX_REST_SECONDS`. The pods that use it wait meanwhile; other pods of their namespace do not.
"""

from __future__ import annotations

FIRST_REST_SECONDS = 1.0
MAX_REST_SECONDS = 300.0
MAX_REMEMBERED = 10_000
"""So many claims are known to have failed, at most."""


class ClaimRests:
    """The rules of the module. Claims are known by `namespace/name`, times are those of the caller's clock.

    >>> rests = ClaimRests()
    >>> rests.fail("team/data", now=0.0)
    >>> rests.take_due(0.9), rests.take_due(1.0), rests.take_due(1.0)
    ([], ['team/data'], [])
    >>> rests.fail("team/data", now=1.0)
    >>> rests.take_due(2.9), rests.take_due(3.0)
    ([], ['team/data'])
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def fail(self, claim: str, now: float) -> None:
        """Note that a claim could not be bound: it rests from now on."""
        if claim not in self._seconds and len(self._seconds) >= MAX_REMEMBERED:
            del self._seconds[next(iter(self._seconds))]
        seconds = min(2 * self._seconds.pop(claim, FIRST_REST_SECONDS / 2), MAX_REST_SECONDS)
        self._seconds[claim] = seconds
        self._until[claim] = now + seconds

    def succeed(self, claim: str) -> None:
        """Note that a claim is bound."""
        self._seconds.pop(claim, None)

    def take_due(self, now: float) -> list[str]:
        """Return the claims whose rest is over, sorted; asked again, there are none."""
        due = sorted(claim for claim, until in self._until.items() if until <= now)
        for claim in due:
            del self._until[claim]
        return due
