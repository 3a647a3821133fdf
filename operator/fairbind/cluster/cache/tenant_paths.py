"""Inner tenants of an overview, and where each tenant is in the tree."""

from __future__ import annotations

from fairbind.cluster.tenancy.users import is_user
from fairbind.model.overview import ClusterOverview, TenantOverview


def list_inner(overview: ClusterOverview) -> list[TenantOverview]:
    """Return the tenants that have others below them, by name; of each all that is below it."""
    leaves = {tenant.name: tenant for tenant in overview.tenants}
    return [
        tenant
        for tenant in overview.shown
        if not is_user(tenant.name) and (tenant.name not in leaves or leaves[tenant.name].parent == tenant.name)
    ]


def name_path(tenant: TenantOverview, overview: ClusterOverview) -> str:
    """Return the names from the top down to a tenant: lab/vis. A tenant's own namespaces are lab/lab."""
    above = {each.name: each for each in overview.shown}
    names = [tenant.name]
    while tenant.parent is not None:
        names.append(tenant.parent)
        tenant = above[tenant.parent]
    return "/".join(reversed(names))
