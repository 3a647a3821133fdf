"""What an overview of the cluster is as samples: the labels and values of each metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairbind.cluster.objects.quantity import find_unit
from fairbind.model.overview import PENDING_REASONS, ClusterOverview, TenantOverview

Samples = Iterable[tuple[Sequence[str], float]]


def all_tenant_samples(overview: ClusterOverview) -> Iterator[tuple[str, Samples]]:
    """Give each tenant metric's labels and values.

    Counts and amounts are of the pods in a tenant's own namespaces, so that sums over tenants are right. Shares and
    what its Tenant object says are of all below a tenant.
    """
    leaves = {tenant.name: tenant for tenant in overview.tenants}
    parents = {tenant.parent for tenant in overview.tenants}
    for tenant in overview.shown or overview.tenants:
        yield from _share_samples(tenant)
        if tenant.name not in parents:
            yield from _sum_samples(tenant)
        elif tenant.name in leaves:
            yield from _sum_samples(leaves[tenant.name])


def _share_samples(tenant: TenantOverview) -> Iterator[tuple[str, Samples]]:
    name = tenant.name
    held = sorted({*tenant.allocated, *([tenant.dominant_resource] if tenant.dominant_resource else ())})
    yield "fairbind_tenant_dominant_share", [([name], tenant.dominant_share)]
    yield "fairbind_tenant_weighted_dominant_share", [([name], tenant.weighted_share)]
    yield (
        "fairbind_tenant_dominant_resource",
        [([name, resource], float(resource == tenant.dominant_resource)) for resource in held],
    )
    yield "fairbind_tenant_weight", [([name], tenant.weight)]
    yield "fairbind_tenant_fair_share", [] if tenant.fair_share is None else [([name], tenant.fair_share)]
    yield (
        "fairbind_tenant_virtual_dominant_share",
        [([name, server_class], share) for server_class, share in tenant.virtual_dominant_shares.items()],
    )
    yield "fairbind_tenant_limit", by_resource([name], tenant.limit)
    yield "fairbind_tenant_guarantee", by_resource([name], tenant.guaranteed)
    yield "fairbind_tenant_kept_back", by_resource([name], tenant.kept_back)
    yield "fairbind_tenant_parent_info", [] if tenant.parent is None else [([name, tenant.parent], 1.0)]


def _sum_samples(tenant: TenantOverview) -> Iterator[tuple[str, Samples]]:
    name, gap = tenant.name, tenant.share_gap
    yield "fairbind_tenant_allocated", by_resource([name], tenant.allocated)
    yield "fairbind_tenant_share_gap", [] if gap is None else [([name, gap.cause], gap.part)]
    yield "fairbind_reserved", by_resource([name], tenant.reserved)
    yield "fairbind_tenant_running_pods", [([name], float(tenant.running))]
    yield (
        "fairbind_tenant_pending_pods",
        [([name, reason], float(tenant.pending.get(reason, 0))) for reason in PENDING_REASONS],
    )


def cluster_samples(overview: ClusterOverview) -> Iterator[tuple[str, Samples]]:
    """Give each cluster metric's labels and values."""
    yield "fairbind_namespace_tenant_info", [(labels, 1.0) for labels in sorted(overview.namespaces.items())]
    yield "fairbind_cluster_capacity", by_resource([], overview.capacity)
    yield "fairbind_cluster_allocated", by_resource([], overview.allocated)
    for group in overview.classes:
        yield "fairbind_server_class_nodes", [([group.name], float(group.servers))]
        yield "fairbind_server_class_capacity", by_resource([group.name], group.capacity)
        yield "fairbind_server_class_allocated", by_resource([group.name], group.allocated)
    yield (
        "fairbind_fairness_resource",
        [([resource], float(resource in overview.counting)) for resource in overview.capacity],
    )
    yield "fairbind_server_classes", [([], float(overview.server_classes))]
    yield "fairbind_nodes_with_faults", [([], float(len(overview.node_faults)))]
    yield "fairbind_refusing_nodes", [([], float(len(overview.refusing_nodes)))]
    yield "fairbind_scattered", by_resource([], overview.scattered)
    yield "fairbind_left_out_resources", [([], float(len(overview.left_out)))]
    yield "fairbind_fairness_jain_index", [([], overview.jain_index)]
    if (audit := overview.audit) is not None:
        yield "fairbind_fairness_envy_pairs", _by_cause(audit.envy_pairs)
        yield "fairbind_fairness_sharing_incentive_violations", _by_cause(audit.sharing_incentive_violations)
    yield "fairbind_fairness_share_error", [] if overview.share_error is None else [([], overview.share_error)]


def by_resource(labels: Sequence[str], amounts: Mapping[str, float]) -> Samples:
    """Return amounts with their labels. labels: those before the resource."""
    return [([*labels, resource, find_unit(resource)], amount) for resource, amount in amounts.items()]


def _by_cause(counts: Mapping[str, int]) -> Samples:
    return [([cause], float(count)) for cause, count in counts.items()]
