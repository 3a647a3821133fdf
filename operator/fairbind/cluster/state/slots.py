"""Whether slots count for shares: they do exactly when they would run out first.

There are slots for pods (`pods`), and a driver's for the volumes that it attaches (`claimed`). They are judged by the
same rule, the ones for pods first: where these count, they are one of the other resources for a driver's.

A node takes so many pods, whatever these ask for. If slots never counted, a tenant whose pods ask for next to nothing
could take all of them, and with them all CPUs. If they always counted, a tenant of ordinary small pods would
pay for what no tenant lacks. So it is asked what would run out first if slots did not count:

All tenants rise together by their weighted dominant shares of the other resources that count, in parts of the cluster's
totals, and each runs of its pods as many as its share pays for, the smallest first, at most those that it wants. If the
slots of the usable nodes are taken while some of every other resource is left, slots are scarce and count.

* A tenant wants what it holds and what of it waits and may be placed, as if all could be moved. A pod that is placed
  goes from the one to the other, so no decision of ours ever changes the answer; only pods that come or go do, and
  nodes, tenants and weights. While all that is wanted has slots (most clusters, most of the time), the answer is no.
* The smallest for each slot first, because that is what a thief would do: some large pods among many tiny ones hide
  nothing, nor do pods without volumes among pods with many. A share
  is the sum of the pods' dominant shares here, a bit more than the tenant's own when its pods differ in shape.
* Like shares it goes by totals. That a few nodes run out of slots while others have plenty is not seen.
* All users of a tenant are one tenant here, or many users would make slots look scarce, or plenty. Of a tree of tenants
  the weights count as if all were siblings.

Cost: nothing while there are slots for all, a comparison of counts while what is wanted stays as it is, and otherwise a
bisection over arrays with an entry for each kind of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from fairbind.cluster.objects.facts import PODS, Demand
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import TOLERANCE
from fairbind.model.servers import BoolArray, FloatArray, IndexArray

_STEPS = 128
"""More halvings than a float64 has different values on the way that matters; almost always a few are enough."""
_SPARE_KINDS = 64
_LEAST_SIZE = 1e-30
"""In place of 0, for pods that take nothing of what counts."""
_ONE = Fraction(1)

WantedKind = tuple[str, Demand]
"""A tenant's pods of one demand."""
_Setting = tuple[Axes, tuple[int, ...], tuple[bool, ...]]


class WantedPods:
    """How many pods of each kind tenants want: those that hold something and those that wait and may be placed.

    count: of all together.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[QueueKey, int] = {}
        self._table = _Table()
        self._specs: Mapping[str, TenantSpec] = {}
        self._units: Counter[str] = Counter()
        self._kinds: dict[str, tuple[_Table, int, _Setting, _Kinds]] = {}

    def hold(self, tenant: str, demand: Demand, sign: int = 1) -> None:
        """Add a pod that holds something, or take it away."""
        self._add((find_tenant_of_leaf(tenant), demand), sign)

    def set_waiting(self, key: QueueKey, count: int) -> None:
        """Note how many pods of a class wait and may be placed."""
        change = count - self._waiting.get(key, 0)
        if change:
            self._waiting[key] = count
            if not count:
                del self._waiting[key]
            self._add((find_tenant_of_leaf(key.tenant), key.demand), change)

    def rename(self, before: QueueKey, key: QueueKey) -> None:
        """Note that a class has another key, of the same tenant and demand."""
        if before in self._waiting:
            self._waiting[key] = self._waiting.pop(before)

    def describe(self) -> Mapping[object, int]:
        """Return the counts by what the kinds say."""
        counts = zip(self._table.rows, self._table.counts, strict=True)
        return {(tenant, demand.real, demand.share): count for (tenant, demand), count in counts if count}

    def are_slots_scarce(
        self,
        resource: str,
        axes: Axes,
        total_r: tuple[int, ...],
        counts_r: tuple[bool, ...],
        specs: Mapping[str, TenantSpec],
    ) -> bool:
        """Whether slots run out first. See the module.

        resource: the axis of the slots, `pods` or a driver's. total_r: what the usable nodes have. counts_r: what
        counts besides. specs: the declared tenants; another object when one of them changes.
        """
        slots = total_r[axes.index(resource)]
        if (self.count if resource == PODS else self._units[resource]) <= slots:
            return False
        if specs is not self._specs:
            self._specs = specs
            self._kinds.clear()
        table, setting = self._table, (axes, total_r, counts_r)
        known = self._kinds.get(resource)
        if known is None or known[:3] != (table, len(table.rows), setting):
            kinds = _Kinds(resource, table, axes, total_r, counts_r, specs)
            self._kinds = {other: made for other, made in self._kinds.items() if other in axes}
            known = self._kinds[resource] = table, len(table.rows), setting, kinds
        return known[3].are_slots_scarce(np.array(table.counts, dtype=np.float64), slots)

    def _add(self, kind: WantedKind, change: int) -> None:
        self.count += change
        _, demand = kind
        for resource, amount in demand.claimed:
            self._units[resource] += change * amount
            if not self._units[resource]:
                del self._units[resource]
        self._table.add(kind, change)
        if self._table.unused > _SPARE_KINDS + len(self._table.rows) // 2:
            self._table = self._table.copy()


class _Table:
    """Kinds in rows. Rows are only added; a copy leaves out those that are wanted no more.

    rows: by kind. counts: how many pods. tenant_g, demand_g: numbers of the row's tenant and demand. unused: rows of
    which are wanted no more.
    """

    def __init__(self) -> None:
        self.rows: dict[WantedKind, int] = {}
        self.counts: list[int] = []
        self.tenants: dict[str, int] = {}
        self.demands: dict[Demand, int] = {}
        self.tenant_g: list[int] = []
        self.demand_g: list[int] = []
        self.unused = 0

    def add(self, kind: WantedKind, change: int) -> None:
        """Count more pods of a kind, or fewer."""
        row = self.rows.get(kind)
        if row is None:
            row = self.rows[kind] = len(self.counts)
            tenant, demand = kind
            self.tenant_g.append(self.tenants.setdefault(tenant, len(self.tenants)))
            self.demand_g.append(self.demands.setdefault(demand, len(self.demands)))
            self.counts.append(0)
            self.unused += 1
        before = self.counts[row]
        now = self.counts[row] = before + change
        self.unused += (now == 0) - (before == 0)

    def copy(self) -> _Table:
        """Return a table of the rows that are wanted."""
        copy = _Table()
        for kind, count in zip(self.rows, self.counts, strict=True):
            if count:
                copy.add(kind, count)
        return copy


class _Kinds:
    """Kinds in arrays, by tenant and then by size for each slot: what a pod takes of its tenant's weighted share."""

    def __init__(
        self,
        resource: str,
        table: _Table,
        axes: Axes,
        total_r: tuple[int, ...],
        counts_r: tuple[bool, ...],
        specs: Mapping[str, TenantSpec],
    ) -> None:
        counted = [r for r, total in enumerate(total_r) if counts_r[r] and total > 0]
        amount_dr: FloatArray = np.array([compute_vector(demand.share, axes) for demand in table.demands], np.float64)
        part_dr = amount_dr[:, counted] / np.array([total_r[r] for r in counted], dtype=np.float64)
        weight_nr = np.ones((len(table.tenants), len(counted)))
        for name in table.tenants.keys() & specs.keys():
            weight_nr[table.tenants[name]] = _compute_weights(specs[name], [axes[r] for r in counted])
        tenant_g, part_gr = np.array(table.tenant_g), part_dr[table.demand_g]
        size_g = np.maximum((part_gr / weight_nr[tenant_g]).max(axis=1, initial=0.0), _LEAST_SIZE)
        slots_d: FloatArray = amount_dr[:, axes.index(resource)] if resource != PODS else np.ones(len(amount_dr))
        slots_g = slots_d[table.demand_g]
        by_slot_g = np.divide(size_g, slots_g, out=np.full_like(size_g, np.inf), where=slots_g > 0)
        self._order_g: IndexArray = np.lexsort((by_slot_g, tenant_g))
        self._slots_g: FloatArray = slots_g[self._order_g]
        self._size_g: FloatArray = size_g[self._order_g]
        self._part_gr: FloatArray = part_gr[self._order_g]
        self._can_run_g: BoolArray = self._part_gr.max(axis=1, initial=0.0) <= 1.0
        tenant_g = tenant_g[self._order_g]
        self._first_g: IndexArray = np.searchsorted(tenant_g, tenant_g)  # of the same tenant
        self._count_g: FloatArray = np.zeros(0)
        self._answer = False

    def are_slots_scarce(self, count_g: FloatArray, slots: int) -> bool:
        """Return the answer for so many pods of each kind; it is remembered."""
        if not np.array_equal(count_g, self._count_g):
            self._count_g = count_g
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
            is_full = float((running_g * self._slots_g).sum()) > slots
            is_other_used_up = bool((running_g @ self._part_gr > 1.0 - TOLERANCE).any())
            if is_full != is_other_used_up:
                return is_full
            low, high = (low, level) if is_full else (level, high)
            level = (low + high) / 2
            if level in {low, high}:
                break  # both at the same level, or neither at any
        return False


def _compute_weights(spec: TenantSpec, resources: list[str]) -> list[float]:
    """Return the weight of a declared tenant and of each of these resources in it."""
    return [float(spec.weight * spec.resource_weights.get(resource, _ONE)) for resource in resources]
