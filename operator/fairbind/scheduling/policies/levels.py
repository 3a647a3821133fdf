"""Levels: how far a tenant has come, exactly, on the pool that the policy looks at.

One formula serves all policies that compare dominant shares. With a_i what tenant i holds anywhere, c_k a pool and w_i
its weights:

    level(i, k) = max over r of a_ir / (c_kr * w_ir)

* the pool is the whole cluster: the weighted dominant share (DRF, NSDI 2011, sections 4.2 and 4.3; DRFH, TPDS 2015,
  section 4);
* one pool for each server class: the weighted virtual dominant share (PS-DSF). For a tenant whose tasks differ in shape
  it takes the maximum of its resources and not the sum over its tasks: only the maximum keeps sharing incentive;
* the pool is what is left on the class now: rPS-DSF (Shan et al. 2018).

A resource that a pool never had does not count there: otherwise one task with a GPU would put its tenant last on every
server without one. A resource that the pool had and that is used up makes the level infinite for who holds some of it.

Levels are integers as in `fairbind.model.shares`, so ties are exact whatever factor the weights have in common. What
other policies compare is in `fairbind.scheduling.policies.measures`; theirs are such integers, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub

import numpy as np

from fairbind.model import TOLERANCE, Placement, Snapshot, Tenant
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.level_pools import LevelPools, compute_class_pools

INFINITE_LEVEL = 1 << 4096
"""Above every level that real amounts and weights can give."""

EXACT_POOLS = 32
"""Up to so many pools are compared exactly at once; beyond that an approximation first leaves out most (measured)."""


Terms = tuple[tuple[int, int, int], ...]
"""For each counting resource its index, and the denominator and the numerator of a tenant's weight in it."""


@dataclass(slots=True)
class Progress:
    """What one tenant holds during a cycle, and its weights.

    held_r: a_i, base units, Python integers. version: grows with every change of held_r. known: a pool's amounts and
    the level on it; None where held_r changed since.
    """

    name: str
    held_r: list[int]
    terms: Terms
    version: int = field(default=0, compare=False)
    known: tuple[Sequence[int], int] | None = field(init=False, default=None, compare=False)

    def add(self, share_demand_r: Sequence[int]) -> None:
        """Count one more task."""
        self.version += 1
        self.known = None
        self.held_r = list(map(add, self.held_r, share_demand_r))

    def remove(self, share_demand_r: Sequence[int]) -> None:
        """Count one task less."""
        self.version += 1
        self.known = None
        self.held_r = list(map(sub, self.held_r, share_demand_r))

    def compute_level(self, pool_r: Sequence[int], held_r: Sequence[int] | None = None) -> int:
        """Return the level on this pool as an integer that orders tenants exactly. held_r: if not what it holds now."""
        held_r = self.held_r if held_r is None else held_r
        most, of = 0, 1  # the largest of the parts, so that only that one is divided
        for r, factor, divisor in self.terms:
            held, amount = held_r[r], pool_r[r]
            if held > 0 and amount >= 0:
                if amount == 0:
                    return INFINITE_LEVEL
                part, whole = held * factor, divisor * amount
                if part * of > most * whole:
                    most, of = part, whole
        return (most << KEY_BITS) // of

    def compute_share(self, pool_r: Sequence[int]) -> float:
        """Return the level on this pool for people; a resource of which nothing is left is left out.

        On the totals this is `compute_weighted_share` of the model, to the bit: a quotient of integers is rounded once.
        """
        return max(
            (self.held_r[r] * factor / (divisor * pool_r[r]) for r, factor, divisor in self.terms if pool_r[r] > 0),
            default=0.0,
        )


def compute_progress(tenant: Tenant, snapshot: Snapshot) -> Progress:
    """Return the tenant's progress at the beginning of a cycle."""
    held_r = list(tenant.allocated_r) or [0] * len(snapshot.resources)
    return Progress(tenant.name, held_r, compute_terms(tenant, snapshot))


def compute_terms(tenant: Tenant, snapshot: Snapshot) -> Terms:
    """Return what a tenant's levels are made of."""
    weight, own = tenant.weight, tenant.resource_weights
    usual, terms = (weight.denominator, weight.numerator), list[tuple[int, int, int]]()
    for r, resource in enumerate(snapshot.resources):
        if snapshot.counts_r[r] and snapshot.total_r[r] > 0:
            both = weight * own[resource] if resource in own else None
            terms.append((r, *(usual if both is None else (both.denominator, both.numerator))))
    return tuple(terms)


def find_least_level(
    progress: Progress, pools: LevelPools, among: IndexArray, held_r: Sequence[int] | None = None
) -> tuple[int, int]:
    """Return the least level on one of these pools, exactly, and its pool, the first of equals.

    among: indices of pools, ascending, not empty. held_r: if not what the tenant holds now.
    """
    if len(among) > EXACT_POOLS:
        level_n = _compute_approximate_levels(progress, pools, among, held_r)
        # Rounding errors are far below the tolerance, so the least is among these; which one it is, integers say.
        among = among[level_n <= level_n.min() * (1 + TOLERANCE)]
    first_of: dict[int, int] = {}
    for pool in among.tolist():
        if pools.kind_p[pool] not in first_of:
            first_of[pools.kind_p[pool]] = pool
    return min((progress.compute_level(pools.amount_pr[pool], held_r), pool) for pool in first_of.values())


def find_zero_levels(progress: Progress, pools: LevelPools, among: IndexArray) -> IndexArray:
    """Return those of the pools where the tenant holds nothing that counts."""
    zero_pools: IndexArray = among[_compute_approximate_levels(progress, pools, among, None) == 0]
    return zero_pools


def _compute_approximate_levels(
    progress: Progress, pools: LevelPools, among: IndexArray, held_r: Sequence[int] | None
) -> FloatArray:
    """Return levels as float64, shape of `among`; zero and infinite ones are exactly that."""
    level_n: FloatArray = np.zeros(len(among))
    held_r = progress.held_r if held_r is None else held_r
    for r, factor, divisor in progress.terms:
        if held_r[r] > 0:
            np.maximum(level_n, pools.inverse_rp[r][among] * (held_r[r] * factor / divisor), out=level_n)
    return level_n


def compute_virtual_dominant_shares(
    snapshot: Snapshot, classes_by_tenant: Mapping[str, Collection[str]] | None = None
) -> dict[str, dict[str, float]]:
    """Return for each tenant its weighted virtual dominant share on server classes, by the classes' names, for people.

    classes_by_tenant: the names of the classes that matter for a tenant, such as those where it holds something;
    classes without a usable server are left out. None: those where a task of the tenant that may be placed is eligible.
    Source: PS-DSF (Khamse-Ashari et al.), weighted; for tasks of several shapes see this module's story.
    """
    if classes_by_tenant is None:
        classes_by_tenant = _compute_classes_in_reach(snapshot)
    pools = compute_class_pools(snapshot)
    servers = snapshot.servers
    pool_of = {
        servers.class_names[p]: pools.amount_pr[p] for p in np.unique(servers.class_k[servers.usable_k]).tolist()
    }
    shares: dict[str, dict[str, float]] = {}
    for tenant in snapshot.tenants:
        progress = compute_progress(tenant, snapshot)
        names = sorted(name for name in classes_by_tenant.get(tenant.name, ()) if name in pool_of)
        shares[tenant.name] = {name: progress.compute_share(pool_of[name]) for name in names}
    return shares


def _compute_classes_in_reach(snapshot: Snapshot) -> dict[str, set[str]]:
    """Return the names of the server classes where each tenant has an eligible task."""
    servers = snapshot.servers
    names_of: dict[Placement, list[str]] = {}
    reach: dict[str, set[str]] = {}
    for task_class in snapshot.task_classes:
        if task_class.blocked is None and task_class.pin is not None:
            server = task_class.pin.server
            found = [] if server is None else [servers.class_names[servers.class_k[server]]]
            reach.setdefault(task_class.tenant, set()).update(found)
        elif task_class.blocked is None:
            placement = task_class.placement
            if placement not in names_of:
                indices = np.unique(servers.class_k[placement.eligible_k]).tolist()
                names_of[placement] = [servers.class_names[p] for p in indices]
            reach.setdefault(task_class.tenant, set()).update(names_of[placement])
    return reach
