"""How many bindings of a namespace may be under way when they fail or take long, so that others keep their speed.

An admission webhook can refuse or delay the bindings of one namespace only. Without a bound such a namespace takes all
places: its tenant gets nothing, so it is always the next in the order. The rules:

* A binding that failed once or takes long is **stalled**. It leaves its place to others until it ends, as long as no
  more than `MAX_STALLED` do, and of one tenant no more than `MAX_STALLED_OF_TENANT`. A tenant with as many, in however
  many namespaces, begins and sends none while it does worse than other tenants.
* A namespace with `FAILURES_IN_A_ROW` failed attempts and no success in between has `PROBES` bindings under way at
  most. One with `MAX_STALLED_IN_NAMESPACE` stalled bindings begins none.
* A namespace is **slow** from a binding that takes long on. Its places are few, `PLACES_WHEN_SLOW`, and one more after
  each binding that ends in time, until they are as many as ever. Without this rule a namespace whose bindings all hang
  takes all places again whenever its stalled bindings end, each time until the new ones have stalled. What it has
  under way beyond its places and was not sent yet is decided again later (`may_send`).
* A namespace is limited only while it does **worse than others**. When the API server is overloaded, requests of all of
  them fail or take long, and equal places for all would put the tenants of great weight back. `Outcomes` compares: of
  as many attempts, others had `WORSE` times as many that went well in time. Where others try too little to compare
  with, a namespace counts as worse.
* A binding that waits for the claims of its pod has no place meanwhile, and says nothing about its namespace: how many
  of a tenant may wait so, the state say (`cache.volume_plans`).
* What is decided beyond that is backed off: the pod is out of the scheduling order. After a backoff of 1 to 5 s, twice
  as long each time, as many pods return as may begin. After the first success all of them do.
* A plan of several begins where each of its namespaces has a place, and takes as many as it has binds. So what may be
  under way is exceeded by less than one plan, and a large plan waits no longer than a small one. It is backed off and
  returns as a whole. Once one of it is sent, its namespace's places hold none of the others back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from fairbind.cluster.tenancy.users import find_tenant_of_leaf

FAILURES_IN_A_ROW = 8
PROBES = 4
MAX_STALLED_IN_NAMESPACE = 32
MAX_STALLED = 256
MAX_STALLED_OF_TENANT = 128
"""As many as the binder has in flight: all that a tenant begins at once may stall and leave their places."""
PLACES_WHEN_SLOW = 16
"""An eighth of what the binder has in flight: so much of its rate a slow namespace costs the others at most."""
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 5.0
RELEASED_AT_ONCE = 256
RELEASE_SECONDS = 0.05
"""Between two groups of pods that return after a success."""
RECENT = 256
"""Attempts of all namespaces with which one is compared."""
RECENT_OF_ONE = 32
"""Of a namespace's own attempts, about so many count."""
FEWEST_OF_OTHERS = 8
WORSE = 4
MAX_REMEMBERED = 10_000
"""Namespaces without bindings that are known to fail or to be slow, at most."""


class _Place(NamedTuple):
    """The namespace of a binding, as one of its tenant. The users of a tenant have their places together."""

    tenant: str
    namespace: str


def _find_place(leaf: str, namespace: str) -> _Place:
    return _Place(find_tenant_of_leaf(leaf), namespace)


@dataclass(slots=True)
class _Attempts:
    """The last attempts of a namespace or a tenant: about how many there were, and how many of them went well."""

    tried: float = 0.0
    succeeded: float = 0.0

    def note(self, *, is_well: bool) -> None:
        """Note one more; older ones count for less and less."""
        if self.tried >= RECENT_OF_ONE:
            self.tried, self.succeeded = self.tried / 2, self.succeeded / 2
        self.tried += 1.0
        self.succeeded += is_well


@dataclass(slots=True)
class _Tenant:
    """bindings: those that have begun and not ended, in all namespaces. stalled: how many of them are."""

    bindings: int = 0
    stalled: int = 0
    attempts: _Attempts = field(default_factory=_Attempts)


@dataclass(slots=True)
class _Namespace:
    """under_way, stalled, awaiting: its bindings. failures: in a row.

    backed_off: the UIDs of plans, in the order of decisions.

    places: how many bindings that are not stalled it may have under way; `RELEASED_AT_ONCE`: as many as it likes.
    backoff_seconds: of the next backoff. release_at: when pods that are backed off return. unanswered: releases since a
    binding began. Bindings that await claims are not under way.
    """

    under_way: int = 0
    stalled: int = 0
    awaiting: int = 0
    failures: int = 0
    places: int = RELEASED_AT_ONCE
    backed_off: deque[tuple[str, ...]] = field(default_factory=deque)
    backoff_seconds: float = FIRST_BACKOFF_SECONDS
    release_at: float = inf
    unanswered: int = 0
    attempts: _Attempts = field(default_factory=_Attempts)

    @property
    def is_failing(self) -> bool:
        return self.failures >= FAILURES_IN_A_ROW

    @property
    def is_slow(self) -> bool:
        return self.places < RELEASED_AT_ONCE

    @property
    def free(self) -> int:
        """How many bindings may begin now, if the namespace is limited."""
        if self.stalled >= MAX_STALLED_IN_NAMESPACE:
            return 0
        if self.is_failing:
            return max(PROBES - self.under_way, 0)
        if not self.is_slow:
            return RELEASED_AT_ONCE
        return max(self.places - (self.under_way - self.stalled), 0)


@dataclass(slots=True)
class _Plan:
    """A plan of several that has begun. left: how many of it have not ended. is_sent: whether one of it was sent."""

    left: int
    is_sent: bool = False


class Outcomes:
    """The outcomes of the last attempts of all namespaces, or of all tenants.

    >>> outcomes = Outcomes()
    >>> for n in range(20):
    ...     outcomes.note("a", is_well=n % 2 == 0)
    >>> outcomes.is_worse("b", 10.0, 0.0), outcomes.is_worse("b", 10.0, 3.0), outcomes.is_worse("a", 20.0, 10.0)
    (True, False, True)
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[Hashable, bool]] = deque()
        self._tried: Counter[Hashable] = Counter()
        self._succeeded: Counter[Hashable] = Counter()

    def note(self, name: Hashable, *, is_well: bool) -> None:
        """Note that an attempt went well, or failed or takes long."""
        self._count((name, is_well), 1)
        self._recent.append((name, is_well))
        if len(self._recent) > RECENT:
            self._count(self._recent.popleft(), -1)

    def _count(self, outcome: tuple[Hashable, bool], change: int) -> None:
        name, is_well = outcome
        self._tried[name] += change
        self._succeeded[name] += change * is_well
        if not self._tried[name]:
            del self._tried[name], self._succeeded[name]

    def is_worse(self, name: Hashable, tried: float, succeeded: float) -> bool:
        """Tell whether one does clearly worse than the others. tried, succeeded: its own last attempts."""
        tried_of_others = len(self._recent) - self._tried[name]
        if tried_of_others < FEWEST_OF_OTHERS:
            return True
        well_of_others = self._succeeded.total() - self._succeeded[name]
        return WORSE * (succeeded + 1.0) * tried_of_others <= tried * well_of_others


class BindLimits:
    """The rules of the module. Times are those of the caller's clock."""

    def __init__(self) -> None:
        self._outcomes = Outcomes()
        self._outcomes_of_tenants = Outcomes()
        self._namespaces: dict[_Place, _Namespace] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._under_way: dict[str, _Place] = {}
        self._plans: dict[str, _Plan] = {}
        self._stalled: set[str] = set()
        self._tardy: set[str] = set()
        self._awaiting: set[str] = set()

    def begin_all(self, members: Sequence[tuple[str, str, str]], now: float) -> bool:
        """Let the bindings of a plan begin; False: all are backed off until `release` returns them.

        members: UID, tenant and namespace of each.
        """
        for place in dict.fromkeys(_find_place(tenant, namespace) for _, tenant, namespace in members):
            known = self._namespaces.setdefault(place, _Namespace())
            if not self._find_free(place, known):
                known.backed_off.append(tuple(uid for uid, *_ in members))
                if known.release_at == inf:
                    known.release_at = now + known.backoff_seconds
                return False
        for uid, tenant, namespace in members:
            self.enter(uid, tenant, namespace)
        if len(members) > 1:
            self._plans.update(dict.fromkeys((uid for uid, *_ in members), _Plan(len(members))))
        return True

    def begin(self, uid: str, tenant: str, namespace: str, now: float) -> bool:
        """Let the binding of a decided pod begin; False: it is backed off until `release` returns it."""
        return self.begin_all([(uid, tenant, namespace)], now)

    def enter(self, uid: str, tenant: str, namespace: str) -> None:
        """Note that a binding begins, whatever the limits are."""
        place = _find_place(tenant, namespace)
        known = self._namespaces.setdefault(place, _Namespace())
        known.under_way += 1
        known.unanswered = 0
        self._tenants.setdefault(place.tenant, _Tenant()).bindings += 1
        self._under_way[uid] = place

    def stall(self, uid: str, *, failed: bool) -> bool:
        """Note that a binding failed once or takes long; True when it leaves its place now."""
        place = self._under_way.get(uid)
        if place is None:
            return False
        known = self._namespaces[place]
        self._note_outcome(place, known, is_well=False)
        known.failures += failed
        if not failed:
            known.places = PLACES_WHEN_SLOW
        tenant = self._tenants[place.tenant]
        is_full = len(self._stalled) >= MAX_STALLED or tenant.stalled >= MAX_STALLED_OF_TENANT
        self._tardy.add(uid)
        if uid in self._stalled or is_full:
            return False
        self._stalled.add(uid)
        known.stalled += 1
        tenant.stalled += 1
        return True

    def follow_claims(self, uid: str, *, awaits: bool) -> int:
        """Note that a binding waits for claims, or not any more; return how many places more are taken, 1, 0 or -1."""
        place = self._under_way.get(uid)
        if place is None or uid in self._stalled or awaits == (uid in self._awaiting):
            return 0
        self._awaiting.symmetric_difference_update({uid})
        change, known = -1 if awaits else 1, self._namespaces[place]
        known.under_way += change
        known.awaiting -= change
        return change

    def may_send(self, uid: str) -> bool:
        """Tell whether a binding that has begun and was not sent yet may be sent; if not, it ends as not sent.

        It is sent then: of a plan of several the others follow.
        """
        place, plan = self._under_way.get(uid), self._plans.get(uid)
        may = place is None or uid in self._stalled or self._has_place(place, plan)
        if may and plan is not None:
            plan.is_sent = True
        return may

    def _has_place(self, place: _Place, plan: _Plan | None) -> bool:
        """Tell whether a binding that is under way has a place. plan: its own, if that is of several."""
        if self._is_tenant_full(place.tenant):
            return False
        known = self._namespaces[place]
        if not known.is_slow or not self._is_limited(place, known):
            return True
        if known.stalled >= MAX_STALLED_IN_NAMESPACE:
            return False
        own = 1 if plan is None else plan.left
        return (plan is not None and plan.is_sent) or known.under_way - known.stalled - own < known.places

    def end(self, uid: str, now: float, *, bound: bool = False, failed: bool = False) -> bool:
        """Note that a binding is over, or does not begin after all; True when it still had its place."""
        was_awaiting = self.follow_claims(uid, awaits=False) > 0
        place, plan = self._under_way.pop(uid, None), self._plans.pop(uid, None)
        if plan is not None:
            plan.left -= 1
        if place is None:
            return True
        known = self._namespaces[place]
        known.under_way -= 1
        had_place, is_tardy = uid not in self._stalled, uid in self._tardy
        self._tardy.discard(uid)
        if not had_place:
            self._stalled.discard(uid)
            known.stalled -= 1
            self._tenants[place.tenant].stalled -= 1
        known.failures = 0 if bound else known.failures + failed
        if bound:
            if not is_tardy:  # one that takes long is no success, also where so many do that it keeps its place
                self._note_outcome(place, known, is_well=True)
                known.places = min(known.places + 1, RELEASED_AT_ONCE)
            known.backoff_seconds = FIRST_BACKOFF_SECONDS
            if known.backed_off:
                known.release_at = min(known.release_at, now)
        if not (known.under_way or known.awaiting or known.backed_off):
            self._drop(place, known)
        self._leave_tenant(place.tenant)
        return had_place and not was_awaiting

    def _leave_tenant(self, name: str) -> None:
        tenant = self._tenants[name]
        tenant.bindings -= 1
        if not tenant.bindings:
            del self._tenants[name]

    def _drop(self, place: _Place, known: _Namespace) -> None:
        del self._namespaces[place]
        if (known.failures or known.is_slow) and len(self._namespaces) < MAX_REMEMBERED:
            self._namespaces[place] = known

    def find_refused(self) -> set[str]:
        """Return the tenants of namespaces whose bindings fail or hang now."""
        namespaces = self._namespaces.items()
        return {place.tenant for place, known in namespaces if known.is_failing or known.stalled}

    def find_next_release(self) -> float:
        """Return when `release` has something to return at the earliest; infinite when no pod is backed off."""
        return min((known.release_at for known in self._namespaces.values() if known.backed_off), default=inf)

    def release(self, now: float) -> list[str]:
        """Return the pods that may be decided again."""
        released: list[str] = []
        for place, known in self._namespaces.items():
            if known.release_at > now:
                continue
            is_limited = self._is_limited(place, known)
            # Pods that were released and did not come back were deleted, or fit nowhere: others get their chance.
            count = min(self._find_free(place, known) * 2**known.unanswered, RELEASED_AT_ONCE)
            end = len(released) + count
            while known.backed_off and len(released) < end:
                released += known.backed_off.popleft()
            known.unanswered = min(known.unanswered + bool(count), 16)
            is_failing = is_limited and known.is_failing
            is_backing_off = is_failing or (is_limited and known.is_slow) or not count
            pause = known.backoff_seconds if is_backing_off else RELEASE_SECONDS
            known.backoff_seconds = (
                min(2 * known.backoff_seconds, MAX_BACKOFF_SECONDS) if is_failing else FIRST_BACKOFF_SECONDS
            )
            known.release_at = now + pause if known.backed_off else inf
        return released

    def _note_outcome(self, place: _Place, known: _Namespace, *, is_well: bool) -> None:
        self._outcomes.note(place, is_well=is_well)
        self._outcomes_of_tenants.note(place.tenant, is_well=is_well)
        known.attempts.note(is_well=is_well)
        self._tenants[place.tenant].attempts.note(is_well=is_well)

    def _is_limited(self, place: _Place, known: _Namespace) -> bool:
        return self._outcomes.is_worse(place, known.attempts.tried, known.attempts.succeeded)

    def _is_tenant_full(self, name: str) -> bool:
        tenant = self._tenants.get(name)
        if tenant is None or tenant.stalled < MAX_STALLED_OF_TENANT:
            return False
        return self._outcomes_of_tenants.is_worse(name, tenant.attempts.tried, tenant.attempts.succeeded)

    def _find_free(self, place: _Place, known: _Namespace) -> int:
        """Return how many bindings may begin now."""
        if self._is_tenant_full(place.tenant):
            return 0
        return known.free if self._is_limited(place, known) else RELEASED_AT_ONCE
