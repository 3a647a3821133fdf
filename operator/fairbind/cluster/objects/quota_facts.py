"""ResourceQuotas, as far as they say how many more pods a namespace may have."""

from __future__ import annotations

from msgspec import Struct, field

from fairbind.cluster.objects.facts import CPU, MEMORY, PODS, Amounts
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.cluster.objects.wire import ObjectMeta, Wire

MAX_QUOTA_RESOURCES = 64
"""So many resources of a quota are looked at, the first by name."""
REQUESTS = "requests."
COUNTS = {"pods": PODS, "count/pods": PODS, CPU: CPU, MEMORY: MEMORY}
"""Names that a quota has for these, beside `requests.` and the name."""


class QuotaSpec(Wire):
    """The pods that the quota is about. scopes, scope_selector: pods that count; without either, all do."""

    scopes: list[str] | None = None
    scope_selector: dict[str, object] | None = None


class QuotaStatus(Wire):
    """The amounts that it grants, and those that are used."""

    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class ResourceQuota(Wire):
    """A ResourceQuota."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: QuotaSpec = field(default_factory=QuotaSpec)
    status: QuotaStatus = field(default_factory=QuotaStatus)
    fault: str | None = None


class QuotaFacts(Struct, frozen=True, gc=False):
    """A ResourceQuota. left: what more pods may request, sorted; nothing of one that is about some pods only."""

    namespace: str
    name: str
    version: str
    left: Amounts


def convert_quota(quota: ResourceQuota) -> QuotaFacts:
    """Return what matters of a ResourceQuota."""
    meta, status = quota.metadata, quota.status
    left: dict[str, int] = {}
    hard = {} if quota.spec.scopes or quota.spec.scope_selector else status.hard or {}
    for key in sorted(hard)[:MAX_QUOTA_RESOURCES]:
        resource = COUNTS.get(key) or (key.removeprefix(REQUESTS) if key.startswith(REQUESTS) else None)
        if resource is None:
            continue
        try:
            more = to_base_units(resource, hard[key]) - to_base_units(resource, (status.used or {}).get(key, "0"))
        except QuantityError:
            continue  # the API server takes none of these
        left[resource] = max(min(more, left.get(resource, more)), 0)
    return QuotaFacts(meta.namespace, meta.name, meta.resource_version, tuple(sorted(left.items())))
