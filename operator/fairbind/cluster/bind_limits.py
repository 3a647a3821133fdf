"""How many bindings of a namespace may be under way when they fail or take long, so that others keep their speed.

An admission webhook can refuse or delay the bindings of one namespace only. Without a bound such a namespace takes all
places: its tenant gets nothing, so it is always the next in the order. The rules:

* A binding that failed once or takes long is **stalled**. It leaves its place to others until it ends, as long as no
  more than `MAX_STALLED` do.
* A namespace with `FAILURES_IN_A_ROW` failed attempts and no success in between has `PROBES` bindings under way at
  most. One with `MAX_STALLED_IN_NAMESPACE` stalled bindings begins none.
* A namespace is **slow** from a binding that takes long on. Its places are few, `PLACES_WHEN_SLOW`, and one more after
  each binding that ends in time, until they are as many as ever. Without this rule a namespace whose bindings all hang
  takes all places again whenever its stalled bindings end, each time until the new ones have stalled. What it has
  under way beyond its places and was not sent yet is decided again later (`may_send`).
* What is decided beyond that is withheld: the pod is out of the scheduling order. After a hold of 1 to 5 s, twice as
  long each time, as many pods return as may begin. After the first success all of them do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

FAILURES_IN_A_ROW = 8
PROBES = 4
MAX_STALLED_IN_NAMESPACE = 32
MAX_STALLED = 256
PLACES_WHEN_SLOW = 16
"""An eighth of what the binder has in flight: so much of its rate a slow namespace costs the others at most."""
FIRST_HOLD_SECONDS = 1.0
MAX_HOLD_SECONDS = 5.0
RELEASED_AT_ONCE = 256
RELEASE_SECONDS = 0.05
"""Between two groups of pods that return after a success."""
MAX_REMEMBERED = 10_000
"""Namespaces without bindings that are known to fail or to be slow, at most."""


@dataclass(slots=True)
class _Namespace:
    """under_way, stalled: its bindings. failures: in a row. withheld: UIDs, in the order of decisions.

    places: how many bindings that are not stalled it may have under way; `RELEASED_AT_ONCE`: as many as it likes.
    hold_seconds: of the next hold. release_at: when withheld pods return. unanswered: releases since a binding began.
    """

    under_way: int = 0
    stalled: int = 0
    failures: int = 0
    places: int = RELEASED_AT_ONCE
    withheld: deque[str] = field(default_factory=deque)
    hold_seconds: float = FIRST_HOLD_SECONDS
    release_at: float = inf
    unanswered: int = 0

    @property
    def is_failing(self) -> bool:
        return self.failures >= FAILURES_IN_A_ROW

    @property
    def is_slow(self) -> bool:
        return self.places < RELEASED_AT_ONCE

    @property
    def free(self) -> int:
        """How many bindings may begin now."""
        if self.stalled >= MAX_STALLED_IN_NAMESPACE:
            return 0
        if self.is_failing:
            return max(PROBES - self.under_way, 0)
        if not self.is_slow:
            return RELEASED_AT_ONCE
        return max(self.places - (self.under_way - self.stalled), 0)


class BindLimits:
    """The rules of the module. Times are those of the caller's clock."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        self._under_way: dict[str, str] = {}
        self._stalled: set[str] = set()

    def begin(self, uid: str, namespace: str, now: float) -> bool:
        """Let the binding of a decided pod begin; False: it is withheld until `release` returns it."""
        known = self._namespaces.setdefault(namespace, _Namespace())
        if not known.free:
            known.withheld.append(uid)
            if known.release_at == inf:
                known.release_at = now + known.hold_seconds
            return False
        known.under_way += 1
        known.unanswered = 0
        self._under_way[uid] = namespace
        return True

    def stall(self, uid: str, *, failed: bool) -> bool:
        """Note that a binding failed once or takes long; True when it leaves its place now."""
        namespace = self._under_way.get(uid)
        if namespace is None:
            return False
        known = self._namespaces[namespace]
        known.failures += failed
        if not failed:
            known.places = PLACES_WHEN_SLOW
        if uid in self._stalled or len(self._stalled) >= MAX_STALLED:
            return False
        self._stalled.add(uid)
        known.stalled += 1
        return True

    def may_send(self, uid: str) -> bool:
        """Tell whether a binding that has begun and was not sent yet may be sent; if not, it ends as not sent."""
        namespace = self._under_way.get(uid)
        if namespace is None or uid in self._stalled:
            return True
        known = self._namespaces[namespace]
        places = known.places if known.stalled < MAX_STALLED_IN_NAMESPACE else 0
        return not known.is_slow or known.under_way - known.stalled <= places

    def end(self, uid: str, now: float, *, bound: bool = False, failed: bool = False) -> bool:
        """Note that a binding is over, or does not begin after all; True when it still had its place."""
        namespace = self._under_way.pop(uid, None)
        if namespace is None:
            return True
        known = self._namespaces[namespace]
        known.under_way -= 1
        had_place = uid not in self._stalled
        if not had_place:
            self._stalled.discard(uid)
            known.stalled -= 1
        known.failures = 0 if bound else known.failures + failed
        if bound:
            known.places = min(known.places + had_place, RELEASED_AT_ONCE)
            known.hold_seconds = FIRST_HOLD_SECONDS
            if known.withheld:
                known.release_at = min(known.release_at, now)
        if not known.under_way and not known.withheld:
            self._drop(namespace, known)
        return had_place

    def _drop(self, namespace: str, known: _Namespace) -> None:
        del self._namespaces[namespace]
        if (known.failures or known.is_slow) and len(self._namespaces) < MAX_REMEMBERED:
            self._namespaces[namespace] = known

    def find_next_release(self) -> float:
        """Return when `release` has something to return at the earliest; infinite when nothing is withheld."""
        return min((known.release_at for known in self._namespaces.values() if known.withheld), default=inf)

    def release(self, now: float) -> list[str]:
        """Return the pods that may be decided again."""
        released: list[str] = []
        for known in self._namespaces.values():
            if known.release_at > now:
                continue
            # Pods that were released and did not come back were deleted, or fit nowhere: others get their chance.
            count = min(known.free * 2**known.unanswered, RELEASED_AT_ONCE)
            released += [known.withheld.popleft() for _ in range(min(count, len(known.withheld)))]
            known.unanswered = min(known.unanswered + bool(count), 16)
            pause = known.hold_seconds if known.is_failing or known.is_slow or not count else RELEASE_SECONDS
            known.hold_seconds = (
                min(2 * known.hold_seconds, MAX_HOLD_SECONDS) if known.is_failing else FIRST_HOLD_SECONDS
            )
            known.release_at = now + pause if known.withheld else inf
        return released
