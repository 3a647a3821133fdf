"""What limits tenants and what is guaranteed to them, as a snapshot says it, for problems with a tree.

Limits are those of the classes that wait: where nothing waits below a tenant, its limit changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairbind.model import NO_DOMAIN, Snapshot
from fairbind.model.servers import BoolArray
from fairbind.model.topology import Domains, LimitOf, list_tenant_limits


class TenantBound(NamedTuple):
    """An amount of one resource on some servers. tenant: an inner one where the name is one's. on_k: which servers."""

    tenant: str
    resource: str
    amount: float
    on_k: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class TenantBounds:
    """All that limits tenants, and all that is guaranteed, of the resources that count; in a fixed order."""

    limits: tuple[TenantBound, ...] = ()
    guarantees: tuple[TenantBound, ...] = ()

    def list_dividers(self) -> list[BoolArray]:
        """Return the sets of servers that the bounds are about, other than all."""
        found = {bound.on_k.tobytes(): bound.on_k for bound in (*self.limits, *self.guarantees)}
        return [on_k for on_k in found.values() if not on_k.all()]


def has_tree(snapshot: Snapshot) -> bool:
    """Whether some tenant has a parent, a priority or a guarantee."""
    return not snapshot.hierarchy.is_flat


def find_tenant_bounds(snapshot: Snapshot, axes: Sequence[int]) -> TenantBounds:
    """Return the bounds of a snapshot with a tree. axes: the resources that count and exist.

    A limit below what is held only stops new tasks, so it is as large as that.
    """
    resources = {snapshot.resources[r] for r in axes}
    return TenantBounds(
        tuple(sorted(_list_limits(snapshot, resources), key=_compute_sort_key)),
        tuple(sorted(_list_guarantees(snapshot, resources), key=_compute_sort_key)),
    )


def _list_limits(snapshot: Snapshot, resources: set[str]) -> Iterator[TenantBound]:
    seen: set[LimitOf] = set()
    for rules in {each.rules for each in snapshot.task_classes}:
        for rule in list_tenant_limits(rules):
            subject = rule.counter.subject
            if isinstance(subject, LimitOf) and subject not in seen and subject.resource in resources:
                seen.add(subject)
                amount = max(int(rule.most_d[0]), snapshot.held.get(subject, 0))
                yield _make_bound(subject.tenant, subject.resource, amount, rule.counter.domains)


def _list_guarantees(snapshot: Snapshot, resources: set[str]) -> Iterator[TenantBound]:
    hierarchy = snapshot.hierarchy
    inner = ((name, each.place) for name, each in hierarchy.inner.items())
    leaves = ((name, place) for name, place in hierarchy.leaves.items() if name not in hierarchy.inner)
    for name, place in (*inner, *leaves):
        for each in place.guarantees:
            if each.resource in resources:
                yield _make_bound(name, each.resource, each.amount, each.servers)


def _make_bound(tenant: str, resource: str, amount: int, servers: Domains) -> TenantBound:
    return TenantBound(tenant, resource, float(amount), servers.domain_k != NO_DOMAIN)


def _compute_sort_key(bound: TenantBound) -> tuple[str, str, float, bytes]:
    return bound.tenant, bound.resource, bound.amount, bound.on_k.tobytes()
