"""How long tenants have held how much: what they hold, integrated over time.

Between two overviews nothing changes that one would not have shown, so a tenant's amounts count from the overview that
shows them first until the one that shows others. A scrape adds the time since then: an idle cluster publishes nothing,
and its tenants' pods hold what they hold all the same.

Users of a tenant count together, as that tenant: a series for each of thousands would cost more than it tells. The
sums begin at 0 with the process, as counters do, and end with the tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model.overview import ClusterOverview


@dataclass(frozen=True, slots=True)
class _Integral:
    """held: by resource, since then. sums: by resource, until then."""

    since: float
    held: Mapping[str, float]
    sums: Mapping[str, float]

    def compute_sums(self, now: float) -> dict[str, float]:
        elapsed = max(0.0, now - self.since)
        sums = dict(self.sums)
        for resource, amount in self.held.items():
            sums[resource] = sums.get(resource, 0.0) + amount * elapsed
        return sums


class ResourceSeconds:
    """One integral a tenant. Overviews come in one thread; any other may read: integrals are replaced, not changed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._integrals: dict[str, _Integral] = {}
        self._offered: frozenset[str] = frozenset()

    def follow(self, overview: ClusterOverview) -> None:
        """Count by this overview from now on. An integral that stays as it is costs one comparison."""
        now, known, self._offered = self._clock(), self._integrals, frozenset(overview.capacity)
        integrals: dict[str, _Integral] = {}
        for name, allocated in _sum_users(overview).items():
            integral = known.get(name)
            if integral is None:
                integral = _Integral(now, allocated, {})
            elif integral.held != allocated:
                integral = _Integral(now, allocated, integral.compute_sums(now))
            integrals[name] = integral
        self._integrals = integrals

    def compute(self) -> dict[str, dict[str, float]]:
        """Return resource-seconds by tenant and resource; a resource that no node offers any more is left out."""
        now, integrals, offered = self._clock(), self._integrals, self._offered
        return {
            tenant: {r: total for r, total in integral.compute_sums(now).items() if r in offered}
            for tenant, integral in integrals.items()
        }


def _sum_users(overview: ClusterOverview) -> dict[str, Mapping[str, float]]:
    """Return what each tenant holds."""
    held: dict[str, Mapping[str, float]] = {}
    for leaf in overview.tenants:
        name = find_tenant_of_leaf(leaf.name)
        before = held.get(name)
        if before is None:
            held[name] = leaf.allocated
        else:
            held[name] = {r: before.get(r, 0.0) + leaf.allocated.get(r, 0.0) for r in before.keys() | leaf.allocated}
    return held
