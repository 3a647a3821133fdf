"""Whether slots (`pods`) count for shares: they do exactly when they would run out first.

A node takes so many pods, whatever these ask for. If slots never counted, a tenant whose pods ask for next to nothing
could take all of them, and with them everybody's CPUs. If they always counted, a tenant of ordinary small pods would
pay for what nobody lacks. So it is asked what would run out first if slots did not count:

All tenants rise together by their weighted dominant shares of the other resources that count, in parts of the cluster's
totals, and each runs of its pods as many as its share pays for, the smallest first, at most those that it wants. If the
slots of the usable nodes are taken while some of every other resource is left, slots are scarce and count.

* A tenant wants what it holds and what of it waits and may be placed, as if all could be moved. A pod that is placed
  goes from the one to the other, so no decision of ours ever changes the answer; only pods that come or go do, and
  nodes, tenants and weights. While all that is wanted has slots (most clusters, most of the time), the answer is no.
* The smallest first, because that is what a thief would do: some large pods among many tiny ones hide nothing. A share
  is the sum of the pods' dominant shares here, a bit more than the tenant's own when its pods differ in shape.
* Like shares it goes by totals. That a few nodes run out of slots while others have plenty is not seen.

Cost: nothing while there are slots for all, a comparison of counts while what is wanted stays as it is, and otherwise a
bisection over arrays with an entry for each kind of pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from fairbind.cluster.cache.nodes import Axes
from fairbind.cluster.cache.pending import QueueKey, compute_vector
from fairbind.cluster.objects.facts import PODS, Demand
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import TOLERANCE
from fairbind.model.servers import BoolArray, FloatArray, IndexArray

_STEPS = 128
"""More halvings than a float64 has different values on the way that matters; almost always a few are enough."""
_SPARE_KINDS = 64
_LEAST_SIZE = 1e-30
"""In place of 0, for pods that take nothing of what counts."""
_ONE = Fraction(1)

Kind = tuple[str, Demand]
"""A tenant's pods of one demand."""


class WantedPods:
    """How many pods of each kind tenants want: those that hold something and those that wait and may be placed.

    count: of all together.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts: dict[Kind, int] = {}
        self._waiting: dict[QueueKey, int] = {}
        self._unused = 0
        self._kinds: _Kinds | None = None

    def hold(self, tenant: str, demand: Demand, sign: int = 1) -> None:
        """Add a pod that holds something, or take it away."""
        self._add((tenant, demand), sign)

    def set_waiting(self, key: QueueKey, count: int) -> None:
        """Note how many pods of a class wait and may be placed."""
        change = count - self._waiting.get(key, 0)
        if change:
            self._waiting[key] = count
            if not count:
                del self._waiting[key]
            self._add((key.tenant, key.demand), change)

    def describe(self) -> Mapping[object, int]:
        """Return the counts by what the kinds say."""
        counts: dict[object, int] = {}
        for (tenant, demand), count in self._counts.items():
            if count:
                counts[tenant, demand.real, demand.share] = count
        return counts

    def are_slots_scarce(
        self, axes: Axes, total_r: tuple[int, ...], counts_r: tuple[bool, ...], specs: Mapping[str, TenantSpec]
    ) -> bool:
        """Whether slots run out first. See the module.

        total_r: what the usable nodes have. counts_r: what counts besides. specs: the declared tenants.
        """
        slots = total_r[axes.index(PODS)]
        if self.count <= slots:
            return False
        kinds = self._kinds
        if kinds is None or not kinds.goes_with(axes, total_r, counts_r, specs):
            kinds = self._kinds = _Kinds(tuple(self._counts), axes, total_r, counts_r, specs)
        return kinds.are_slots_scarce(np.fromiter(self._counts.values(), np.float64, len(self._counts)), slots)

    def _add(self, kind: Kind, change: int) -> None:
        self.count += change
        before = self._counts.get(kind)
        if before is None:
            self._kinds = None
        now = self._counts[kind] = (before or 0) + change
        self._unused += (now == 0) - (before == 0)
        if self._unused > _SPARE_KINDS + len(self._counts) // 2:
            self._counts = {kind: count for kind, count in self._counts.items() if count}
            self._unused = 0
            self._kinds = None


class _Kinds:
    """Kinds in arrays, by tenant and then by size: what one pod takes of its tenant's weighted share."""

    def __init__(
        self,
        kinds: tuple[Kind, ...],
        axes: Axes,
        total_r: tuple[int, ...],
        counts_r: tuple[bool, ...],
        specs: Mapping[str, TenantSpec],
    ) -> None:
        self._made_of = axes, total_r, counts_r, specs
        counted = [r for r, total in enumerate(total_r) if counts_r[r] and total > 0]
        amount_gr: FloatArray = np.array([compute_vector(demand.share, axes) for _, demand in kinds], dtype=np.float64)
        part_gr = amount_gr[:, counted] / np.array([total_r[r] for r in counted], dtype=np.float64)
        weights = {tenant: _compute_weights(specs.get(tenant), [axes[r] for r in counted]) for tenant, _ in kinds}
        weight_gr = np.array([weights[tenant] for tenant, _ in kinds], dtype=np.float64).reshape(part_gr.shape)
        size_g = np.maximum((part_gr / weight_gr).max(axis=1, initial=0.0), _LEAST_SIZE)
        number_of = {tenant: number for number, tenant in enumerate(weights)}
        tenant_g = np.array([number_of[tenant] for tenant, _ in kinds], dtype=np.intp)
        self._order_g: IndexArray = np.lexsort((size_g, tenant_g))
        self._size_g: FloatArray = size_g[self._order_g]
        self._part_gr: FloatArray = part_gr[self._order_g]
        self._can_run_g: BoolArray = (self._part_gr <= 1.0).all(axis=1)
        tenant_g = tenant_g[self._order_g]
        self._first_g: IndexArray = np.searchsorted(tenant_g, tenant_g)  # of the same tenant
        self._count_g: FloatArray = np.zeros(0)
        self._slots = 0
        self._answer = False

    def goes_with(
        self, axes: Axes, total_r: tuple[int, ...], counts_r: tuple[bool, ...], specs: Mapping[str, TenantSpec]
    ) -> bool:
        """Whether the arrays were made of these."""
        return self._made_of[:3] == (axes, total_r, counts_r) and self._made_of[3] is specs

    def are_slots_scarce(self, count_g: FloatArray, slots: int) -> bool:
        """Return the answer for so many pods of each kind; it is remembered."""
        if slots != self._slots or not np.array_equal(count_g, self._count_g):
            self._count_g, self._slots = count_g, slots
            self._answer = self._compute(count_g[self._order_g] * self._can_run_g, slots)
        return self._answer

    def _compute(self, count_g: FloatArray, slots: int) -> bool:
        """Look for a level at which the slots are taken, or something else is, and not both."""
        reach_g = np.cumsum(self._size_g * count_g)
        start_g = reach_g - self._size_g * count_g
        start_g -= start_g[self._first_g]
        low, high = 0.0, float((start_g + self._size_g * count_g).max())
        level = high
        for _ in range(_STEPS):
            running_g = np.clip((level - start_g) / self._size_g, 0.0, count_g)
            is_full = float(running_g.sum()) > slots
            is_other_used_up = bool((running_g @ self._part_gr > 1.0 - TOLERANCE).any())
            if is_full != is_other_used_up:
                return is_full
            low, high = (low, level) if is_full else (level, high)
            level = (low + high) / 2
            if level in {low, high}:
                break  # both at the same level, or neither at any
        return False


def _compute_weights(spec: TenantSpec | None, resources: list[str]) -> list[float]:
    """Return the weight of a tenant, declared or not, and of each of these resources in it."""
    if spec is None:
        return [1.0] * len(resources)
    return [float(spec.weight * spec.resource_weights.get(resource, _ONE)) for resource in resources]
