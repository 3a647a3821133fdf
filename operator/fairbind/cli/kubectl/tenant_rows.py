"""The tenants of `kubectl fairbind top`: what each holds, what would be fair, what it wants, and how long it waits.

Who may list the cluster gets all of it, computed as the operator would. A member of a namespace gets the tenant that
the namespace's ShareReport tells of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from fairbind.cluster.cache.tenant_paths import name_path
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.kube.client.own_namespace import ReportStatus, ShareReport
from fairbind.model import Snapshot, compute_dominant_share
from fairbind.model.errors import FairbindError
from fairbind.model.overview import TenantOverview
from fairbind.what_if.fair_shares import FairShares
from fairbind.what_if.listed_objects import ListedObjects, build_cache


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant. held, fair, wanted: dominant shares; resource: of which it holds `held`.

    path: the names from the top of the tree down to it; where that is not known, its name.

    wanted: if all of its waiting pods ran as well; None where that is not known. waiting_since: of the oldest pod,
    seconds since the epoch. amounts: what it holds, by resource, as people read it.
    """

    name: str
    is_claimed: bool
    weight: float | None
    held: float
    fair: float | None
    wanted: float | None
    resource: str | None
    running: int
    pending: int
    waiting_since: float | None
    amounts: Mapping[str, Any]
    path: str

    @property
    def gap(self) -> float:
        """Part of its fair share that it lacks while it waits."""
        return max(0.0, self.fair - self.held) if self.pending and self.fair is not None else 0.0

    def describe(self, now: float) -> dict[str, Any]:
        """Return it as plain values."""
        since = self.waiting_since
        return {
            "name": self.name,
            **({} if self.path == self.name else {"path": self.path}),
            "claimed": self.is_claimed,
            "weight": self.weight,
            "dominantShare": self.held,
            "dominantResource": self.resource,
            "fairShare": self.fair,
            "wantedShare": self.wanted,
            "held": dict(self.amounts),
            "running": self.running,
            "pending": self.pending,
            "oldestWaitSeconds": None if since is None else max(0, round(now - since)),
        }


@dataclass(frozen=True, slots=True)
class TenantRows:
    """All that `top` says. used: the part of each resource that counts which tenants hold. now: when it was so.

    unseen: in words, what could not be seen; empty when all was.
    """

    policy: str | None
    rows: tuple[TenantRow, ...]
    now: float
    used: Mapping[str, float]
    unseen: str = ""

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "policy": self.policy,
            "notSeen": self.unseen or None,
            "used": dict(self.used),
            "tenants": [row.describe(self.now) for row in self.rows],
        }


def compute_tenant_rows(listed: ListedObjects, namespace: str | None) -> TenantRows:
    """Return the tenants of a cluster, those that lack most first. namespace: None for all, else only its tenant's.

    A tenant with users has one row for each of them.
    """
    cache = build_cache(listed)
    fair_shares = FairShares(cache, cache.settings.policy).compute()
    snapshot = cache.build_detailed_snapshot(whole=True)
    overview = cache.queries.build_overview(fair_shares)
    wanted, since = _compute_wanted(snapshot), _find_oldest(snapshot)
    tenants = overview.tenants
    if namespace is not None:
        if namespace not in {each.metadata.name for each in listed.namespaces}:
            raise FairbindError(f"--namespace: there is no namespace {namespace!r}")
        name = cache.state.directory.tenant_of(namespace)
        tenants = tuple(tenant for tenant in tenants if find_tenant_of_leaf(tenant.name) == name)
    rows = [
        _make_row(tenant, wanted[tenant.name], since.get(tenant.name), name_path(tenant, overview))
        for tenant in tenants
    ]
    used = {
        resource: overview.allocated.get(resource, 0.0) / capacity
        for resource, capacity in overview.capacity.items()
        if resource in overview.counting and capacity
    }
    return TenantRows(cache.settings.policy, _sort(rows), listed.time, used, listed.unseen)


def _make_row(tenant: TenantOverview, wanted: float, since: float | None, path: str) -> TenantRow:
    return TenantRow(
        name=tenant.name,
        is_claimed=not tenant.name.startswith(IMPLICIT_PREFIX),
        weight=tenant.weight,
        held=tenant.dominant_share,
        fair=tenant.fair_share,
        wanted=wanted,
        resource=tenant.dominant_resource,
        running=tenant.running,
        pending=sum(tenant.pending.values()),
        waiting_since=since,
        amounts=tenant.allocated,
        path=path,
    )


def _compute_wanted(snapshot: Snapshot) -> dict[str, float]:
    """Return the dominant share of each tenant if all of its tasks ran that may be placed."""
    wanted = {tenant.name: list(tenant.allocated_r) for tenant in snapshot.tenants}
    for task_class in snapshot.task_classes:
        if task_class.blocked is None:
            amounts, count = wanted[task_class.tenant], len(task_class.tasks)
            for r, demand in enumerate(task_class.share_demand_r):
                amounts[r] += demand * count
    total_r, counts_r = snapshot.total_r, snapshot.counts_r
    return {name: compute_dominant_share(amounts, total_r, counts_r)[0] for name, amounts in wanted.items()}


def _find_oldest(snapshot: Snapshot) -> dict[str, float]:
    """Return since when the oldest task of each tenant waits, whatever for."""
    oldest: dict[str, float] = {}
    for task_class in snapshot.task_classes:
        since = min(task.queue_time for task in task_class.tasks)
        oldest[task_class.tenant] = min(since, oldest.get(task_class.tenant, inf))
    return oldest


def read_tenant_rows(reports: Iterable[ShareReport], now: float, unseen: str) -> TenantRows:
    """Return the tenants that ShareReports tell of, each once. unseen: why nothing else is known."""
    statuses = {report.status.tenant: report.status for report in reports if report.status is not None}
    policy = next((status.policy for status in statuses.values() if status.policy), None)
    return TenantRows(policy, _sort(map(_read_row, statuses.values())), now, {}, unseen)


def _read_row(status: ReportStatus) -> TenantRow:
    return TenantRow(
        name=status.tenant,
        is_claimed=status.claimed,
        weight=_read_number(status.weight),
        held=_read_number(status.dominant_share) or 0.0,
        fair=_read_number(status.fair_share),
        wanted=None,
        resource=status.dominant_resource or None,
        running=status.running or 0,
        pending=status.pending or 0,
        waiting_since=None,
        amounts=status.held or {},
        path=status.tenant,
    )


def _read_number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _sort(rows: Iterable[TenantRow]) -> tuple[TenantRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.gap, not row.pending, -row.held, row.name)))
