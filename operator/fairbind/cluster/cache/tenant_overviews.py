"""The overview of tenants: of each leaf, and of those that are shown to people.

Inner tenants are shown as leaves are, with all that is below them. Of the users of a tenant the largest are shown each
by itself, and the others together: users come and go with pods, and there may be thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Final, NamedTuple

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.objects.facts import CPU
from fairbind.cluster.objects.quantity import MILLI
from fairbind.cluster.state.node_state import add_amounts, compute_vector
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.tenant_usage import TenantSums, TenantUsage
from fairbind.cluster.state.usage import Unplaced, Usage
from fairbind.cluster.tenancy.guarantees import sum_guaranteed
from fairbind.cluster.tenancy.node_amounts import sum_up
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf, is_user, name_rest
from fairbind.model import Snapshot, Tenant, compute_dominant_share, compute_weighted_share
from fairbind.model.overview import AT_LIMIT, GATED, INELIGIBLE, PLACING, QUEUED, TenantOverview
from fairbind.scheduling import compute_virtual_dominant_shares

MOST_CLASSES = 8
"""Virtual dominant shares are shown on at most so many classes a tenant: those that hold most of its pods."""
NO_SHARES: Mapping[str, float] = {}
NO_FAIR_SHARES: Final = (NO_SHARES, NO_SHARES)
SHOWN_USERS: Final = 20
"""So many users of each tenant are shown each by itself."""


class DescribedTenants(NamedTuple):
    """Tenants of an overview. leaves: sorted by name. shown: see `ClusterOverview`."""

    leaves: tuple[TenantOverview, ...]
    shown: tuple[TenantOverview, ...]


@dataclass(slots=True)
class _Counts:
    """Pods of a tenant. pending: by reason. oldest: since when the oldest waits that could be placed."""

    pending: Counter[str] = field(default_factory=Counter)
    oldest: float = inf
    unplaced: Unplaced = field(default_factory=Unplaced)

    def add(self, other: _Counts) -> None:
        """Count the pods of another tenant as well."""
        self.pending.update(other.pending)
        self.oldest = min(self.oldest, other.oldest)
        self.unplaced.pods += other.unplaced.pods
        add_amounts(self.unplaced.real, other.unplaced.real.items())


def describe_tenants(
    snapshot: Snapshot,
    usage: Usage,
    specs: Mapping[str, TenantSpec],
    queues: Iterable[TaskQueue],
    reasons: Mapping[QueueKey, str],
    fair_shares: tuple[Mapping[str, float], Mapping[str, float]],
) -> DescribedTenants:
    """Return the tenants of an overview; see `build_overview`."""
    return _Description(snapshot, usage, specs, _count_pods(usage, queues, reasons), fair_shares).describe()


def _count_pods(usage: Usage, queues: Iterable[TaskQueue], reasons: Mapping[QueueKey, str]) -> dict[str, _Counts]:
    """Return the pods of each leaf."""
    counts = {name: _Counts() for name in usage.by_name}
    for queue in queues:
        reason, known = reasons[queue.key], counts[queue.key.tenant]
        known.pending[reason] += len(queue.tasks)
        if queue.is_placeable and reason not in {INELIGIBLE, AT_LIMIT}:
            known.oldest = min(queue.oldest, known.oldest)
    for name, unplaced in usage.sum_unplaced().items():
        counts[name].unplaced = unplaced
    for name, known in counts.items():
        known.pending[PLACING] += known.unplaced.pods
        known.pending[QUEUED] += usage.by_name[name].postponed
        known.pending[GATED] += usage.by_name[name].gated
    return counts


class _Description:
    """Describes the tenants of one moment."""

    def __init__(
        self,
        snapshot: Snapshot,
        usage: Usage,
        specs: Mapping[str, TenantSpec],
        counts: Mapping[str, _Counts],
        fair_shares: tuple[Mapping[str, float], Mapping[str, float]],
    ) -> None:
        self._snapshot = snapshot
        self._usage = usage
        self._specs = specs
        self._counts = counts
        self._fair_shares, self._inner_shares = fair_shares
        has_places = usage.limits.has_places
        self._guaranteed = sum_guaranteed(specs, usage.inner.tree, usage.limits.scaled) if has_places else {}

    def describe(self) -> DescribedTenants:
        """Return all of them."""
        virtual = _compute_virtual_shares(self._snapshot, self._usage.by_name)
        leaves = tuple(self._describe_leaf(tenant, virtual[tenant.name]) for tenant in self._snapshot.tenants)
        if not self._snapshot.hierarchy.inner:
            return DescribedTenants(leaves, leaves)
        return DescribedTenants(leaves, tuple(sorted(self._list_shown(leaves), key=lambda tenant: tenant.name)))

    def _list_shown(self, leaves: Iterable[TenantOverview]) -> Iterator[TenantOverview]:
        inner = self._snapshot.hierarchy.inner
        users: dict[str, list[TenantOverview]] = {}
        for leaf in leaves:
            if is_user(leaf.name):
                users.setdefault(find_tenant_of_leaf(leaf.name), []).append(leaf)
            elif leaf.name not in inner:
                yield leaf
        for tenant, its_users in users.items():
            its_users.sort(key=lambda user: (-user.dominant_share, user.name))
            yield from its_users[:SHOWN_USERS]
            if len(its_users) > SHOWN_USERS:
                yield self._sum_users(tenant, [user.name for user in its_users[SHOWN_USERS:]])
        for name, each in inner.items():
            counts = _Counts()
            for leaf_name in self._usage.inner.by_name[name].leaves:
                counts.add(self._counts[leaf_name])
            usage = self._usage.inner.by_name[name]
            yield self._describe(each.tenant, usage, counts, each.place.parent, fair_share=self._inner_shares.get(name))

    def _describe_leaf(self, tenant: Tenant, virtual: Mapping[str, float]) -> TenantOverview:
        tenant_usage, parent = self._usage.by_name[tenant.name], self._snapshot.hierarchy.get_place(tenant.name).parent
        fair_share = self._fair_shares.get(tenant.name)
        return self._describe(tenant, tenant_usage, self._counts[tenant.name], parent, virtual, fair_share)

    def _sum_users(self, tenant: str, names: Iterable[str]) -> TenantOverview:
        """Return users together, as if they were one."""
        sums, counts, weight = TenantSums(), _Counts(), Fraction(0)
        for name in names:
            sums.add(self._usage.by_name[name], 1)
            counts.add(self._counts[name])
            weight += self._usage.by_name[name].weight
        allocated_r = compute_vector(tuple(sums.share.items()), self._snapshot.resources)
        return self._describe(Tenant(name_rest(tenant), weight, {}, allocated_r), sums, counts, tenant)

    def _describe(
        self,
        tenant: Tenant,
        sums: TenantSums,
        counts: _Counts,
        parent: str | None,
        virtual: Mapping[str, float] = NO_SHARES,
        fair_share: float | None = None,
    ) -> TenantOverview:
        name, snapshot = tenant.name, self._snapshot
        share, dominant = compute_dominant_share(tenant.allocated_r, snapshot.total_r, snapshot.counts_r)
        allocated = dict(sums.real)
        add_amounts(allocated, counts.unplaced.real.items(), -1)
        spec = self._specs.get(name) if name != parent else None  # its own namespaces have only what is the tenant's
        limits = self._usage.limits
        return TenantOverview(
            name=name,
            weight=float(tenant.weight),
            dominant_share=min(share, 1.0),
            dominant_resource=None if dominant is None else snapshot.resources[dominant],
            weighted_share=compute_weighted_share(tenant.allocated_r, _compute_denominators(tenant, snapshot)),
            allocated=to_people({r: allocated[r] for r in snapshot.resources if r in allocated}),
            limit={} if spec is None else to_people(sum_up(spec.limit)),
            guaranteed={} if spec is None else to_people(self._guaranteed.get(name, {})),
            kept_back={} if spec is None else to_people(limits.sum_kept_back(name)),
            parent=parent,
            priority=0 if spec is None else spec.priority,
            running=sums.running - counts.unplaced.pods,
            pending={reason: count for reason, count in counts.pending.items() if count},
            virtual_dominant_shares=virtual,
            backlogged=counts.oldest < inf,
            oldest_pending=counts.oldest if counts.oldest < inf else None,
            fair_share=fair_share,
        )


def to_people_units(resource: str, amount: float) -> float:
    """Return base units as cores, bytes or counts.

    >>> to_people_units("cpu", 1500), to_people_units("memory", 1024)
    (1.5, 1024.0)
    """
    return amount / MILLI if resource == CPU else float(amount)


def to_people(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return amounts in units that people read."""
    return {resource: to_people_units(resource, amount) for resource, amount in amounts.items()}


def _compute_denominators(tenant: Tenant, snapshot: Snapshot) -> list[Fraction | None]:
    """Return C_r times the tenant's weights; None where a resource does not count."""
    return [
        total * tenant.weight * tenant.resource_weights.get(resource, 1) if counts and total > 0 else None
        for resource, total, counts in zip(snapshot.resources, snapshot.total_r, snapshot.counts_r, strict=True)
    ]


def _compute_virtual_shares(snapshot: Snapshot, usage: Mapping[str, TenantUsage]) -> dict[str, dict[str, float]]:
    """Return the virtual dominant shares, without weights, on the classes where each tenant holds most."""
    class_of = dict(zip(snapshot.servers.names, snapshot.servers.class_k.tolist(), strict=True))
    names = snapshot.servers.class_names
    classes = {name: [names[number] for number in _find_classes(a, class_of)] for name, a in usage.items()}
    unweighted = tuple(Tenant(tenant.name, allocated_r=tenant.allocated_r) for tenant in snapshot.tenants)
    return compute_virtual_dominant_shares(replace(snapshot, tenants=unweighted), classes)


def _find_classes(tenant_usage: TenantUsage, class_of: Mapping[str, int]) -> list[int]:
    """Return the numbers of the classes on which a tenant has most of its pods."""
    # Nodes with as many pods of the tenant are counted together: a DaemonSet has a pod on each of thousands.
    alike = Counter(zip(map(class_of.get, tenant_usage.nodes), tenant_usage.nodes.values(), strict=True))
    counts: Counter[int] = Counter()
    for (number, pods), nodes in alike.items():
        if number is not None:
            counts[number] += pods * nodes
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_CLASSES]
    return [number for number, _ in most]
