"""Who holds what and who waits, in base units that people read: cores, bytes, counts.

Made by the part that watches the cluster; shown as Prometheus metrics and in the tenants' status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairbind.model.reasons import RejectionKind, Rejections

GAP_CAUSES = ("refused", "reserved", "ineligible", "history")


@dataclass(frozen=True, slots=True)
class ShareGap:
    """The part of its fair share that a tenant lacks while it waits, and the cause.

    part: of the fair share that it lacks, from 0 to 1. cause: one of `GAP_CAUSES`. refused: its bindings fail or hang.
    reserved: capacity is reserved for it, and not enough of that is free yet. ineligible: it has pods that no node may
    take. history: others hold what it lacks, and pods must end first.
    """

    part: float
    cause: str


@dataclass(frozen=True, slots=True)
class TenantOverview:
    """One tenant now.

    dominant_share: from 0 to 1. dominant_resource: None while the tenant holds nothing. weighted_share: by its weights.
    allocated: by resource, base units. pending: waiting pods by the kind of reason (one of `PENDING_REASONS`). running,
    allocated: without pods that are decided and that another scheduler has not placed; the shares count those too.
    virtual_dominant_shares: by server class, only the few that bind (classes where the tenant holds something).
    oldest_pending: since when the oldest of its pods waits that could be placed, seconds since the epoch; None without
    any.
    backlogged: whether it has waiting pods that it may place at all (for the Jain index).
    limit: the most that it may hold, by each resource that is limited, base units.
    parent: the inner tenant above it; None: the root. priority: among siblings. guaranteed: what it gets before
    siblings that are above theirs, as far as it counts. kept_back: what stays free of it, where it lends nothing; both
    in sum over kinds of nodes.
    reserved: what reservations keep for it, by resource, base units; reserved_nodes: on how many nodes.
    share_gap: None where it waits for nothing, or no fair share is known.
    fair_share: the dominant share that the policy's exact mechanism gives it for what it wants now; None when there is
    no such mechanism or no answer yet.
    """

    name: str
    weight: float
    dominant_share: float
    dominant_resource: str | None
    weighted_share: float
    allocated: Mapping[str, float]
    running: int
    pending: Mapping[str, int]
    virtual_dominant_shares: Mapping[str, float] = field(default_factory=dict)
    backlogged: bool = False
    fair_share: float | None = None
    oldest_pending: float | None = None
    limit: Mapping[str, float] = field(default_factory=dict)
    parent: str | None = None
    priority: int = 0
    guaranteed: Mapping[str, float] = field(default_factory=dict)
    kept_back: Mapping[str, float] = field(default_factory=dict)
    reserved: Mapping[str, float] = field(default_factory=dict)
    reserved_nodes: int = 0
    share_gap: ShareGap | None = None


@dataclass(frozen=True, slots=True)
class ServerClassOverview:
    """One server class now, or with the name `OTHER_CLASSES` the many small ones together.

    servers: how many. capacity: of the usable ones, by resource, and what tenants hold on the others. allocated: what
    tenants hold there, and what is kept for tasks that wait. A resource of which the class has nothing is left out.
    """

    name: str
    servers: int
    capacity: Mapping[str, float]
    allocated: Mapping[str, float]


OTHER_CLASSES = "*"
"""No server has such a name, and a class has the name of a server."""


@dataclass(frozen=True, slots=True)
class AuditCounts:
    """Findings of an audit, by cause: pairs of which one envies the other, and tenants that would do better alone."""

    envy_pairs: Mapping[str, int]
    sharing_incentive_violations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The cluster now. capacity, allocated: by resource, base units.

    tenants: those that have pods, or may have. shown: what people are shown where tenants have others below them: these
    with all that is below, and of their users the largest and, as `*@NAME`, the sum of the others.

    capacity: of nodes that are Ready and not cordoned, and what tenants hold on the others.
    jain_index: of the weighted shares of backlogged tenants, the children of the root; 1.0 when there are none.
    share_error: how far the worst backlogged tenant is below its fair share, as a dominant share; None without any.
    audit: how many findings of the last audit come from what; None before the first one. counting: the resources that
    count for shares now. classes: the largest server classes. namespaces: whose each namespace is.
    scattered: what is free and would be enough for a group that waits, if it were together, by resource.
    refusing_nodes: those whose kubelets refuse pods. node_faults: by node, what of it could not be read or is left out.
    left_out: resources that nodes offer and that no
    task can be given, because there are too many.
    """

    capacity: Mapping[str, float]
    allocated: Mapping[str, float]
    server_classes: int
    tenants: tuple[TenantOverview, ...]
    jain_index: float
    shown: tuple[TenantOverview, ...] = ()
    share_error: float | None = None
    audit: AuditCounts | None = None
    counting: frozenset[str] = frozenset()
    classes: tuple[ServerClassOverview, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    node_faults: Mapping[str, str] = field(default_factory=dict)
    refusing_nodes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    scattered: Mapping[str, float] = field(default_factory=dict)


PENDING_REASONS = ("queued", "insufficient", "ineligible", "unsupported", "gated", "placing", "at_limit")
"""queued: its tenant is not next. insufficient: eligible nodes lack free capacity. ineligible: no node may take it.
unsupported: it asks for something that is not honoured yet. gated: it has scheduling gates. placing: another scheduler
is to place it, and has not yet; it counts in the share. at_limit: its tenant would hold more than it may.

Groups of kinds on purpose: a metric with every kind would have nearly five times as many series for each tenant, and
each group asks for another answer. The kind itself is in the pod's condition and event.
"""
QUEUED, INSUFFICIENT, INELIGIBLE, UNSUPPORTED, GATED, PLACING, AT_LIMIT = PENDING_REASONS

PENDING_REASON_OF: Mapping[RejectionKind, str] = {
    RejectionKind.INSUFFICIENT: INSUFFICIENT,
    RejectionKind.PORT_CONFLICT: INSUFFICIENT,
    RejectionKind.TAINT: INELIGIBLE,
    RejectionKind.SELECTOR: INELIGIBLE,
    RejectionKind.ANTI_AFFINITY: INELIGIBLE,
    RejectionKind.OWN_ANTI_AFFINITY: INELIGIBLE,
    RejectionKind.AFFINITY: INELIGIBLE,
    RejectionKind.SPREAD: INELIGIBLE,
    RejectionKind.VOLUME_AFFINITY: INELIGIBLE,
    RejectionKind.VOLUME_ZONE: INELIGIBLE,
    RejectionKind.VOLUME_LIMIT: INSUFFICIENT,
    RejectionKind.VOLUME_DRIVER: INELIGIBLE,
    RejectionKind.VOLUME_BINDING: INELIGIBLE,
    RejectionKind.VOLUME_SPACE: INSUFFICIENT,
    RejectionKind.FEATURE: INELIGIBLE,
    RejectionKind.OUTSIDE: INELIGIBLE,
    RejectionKind.CORDONED: INELIGIBLE,
    RejectionKind.NOT_READY: INELIGIBLE,
    RejectionKind.REFUSED: INELIGIBLE,
    RejectionKind.UNCLAIMED: INELIGIBLE,
    RejectionKind.CLAIM: INELIGIBLE,
    RejectionKind.VOLUME_IN_USE: INELIGIBLE,
    RejectionKind.NOT_SUPPORTED: UNSUPPORTED,
    RejectionKind.UNREADABLE: UNSUPPORTED,
    RejectionKind.AT_LIMIT: AT_LIMIT,
    RejectionKind.KEPT_BACK: INSUFFICIENT,
    RejectionKind.GANG_INCOMPLETE: INELIGIBLE,
    RejectionKind.LATER: QUEUED,
}
"""What a task counts as that waits for nothing but this kind of reason."""


def find_pending_reason(rejections: Rejections) -> str:
    """Return what tasks count as that every server refuses: one that only lacks free capacity decides.

    >>> from fairbind.model.reasons import Rejection
    >>> taint, cpu = Rejection(RejectionKind.TAINT, "gpu"), Rejection(RejectionKind.INSUFFICIENT, "cpu")
    >>> find_pending_reason(((taint, 9),)), find_pending_reason(((cpu, 1), (taint, 9)))
    ('ineligible', 'insufficient')
    """
    for rejection, _ in rejections:
        if PENDING_REASON_OF[rejection.kind] == INSUFFICIENT:
            return INSUFFICIENT
    return INELIGIBLE


def compute_jain_index(values: tuple[float, ...]) -> float:
    """Return (sum x)^2 / (n sum x^2), from 1/n to 1; 1.0 when there is nothing to compare.

    Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.

    >>> compute_jain_index((1.0, 1.0)), compute_jain_index((1.0, 0.0))
    (1.0, 0.5)
    """
    squares = sum(value * value for value in values)
    return 1.0 if squares == 0.0 else sum(values) ** 2 / (len(values) * squares)


def compute_share_error(tenants: Iterable[TenantOverview]) -> float | None:
    """Return the largest distance of a backlogged tenant below its fair share; None when no fair share is known.

    >>> tenant = TenantOverview("a", 1.0, 0.2, "cpu", 0.2, {}, 1, {}, backlogged=True, fair_share=0.5)
    >>> round(compute_share_error([tenant]), 9), compute_share_error([])
    (0.3, None)
    """
    known = [tenant for tenant in tenants if tenant.fair_share is not None]
    if not known:
        return None
    return max((max(0.0, (t.fair_share or 0.0) - t.dominant_share) for t in known if t.backlogged), default=0.0)


def find_share_gap(tenant: TenantOverview, *, is_refused: bool) -> ShareGap | None:
    """Return how far a tenant is below its fair share, and why; None where it waits for nothing.

    is_refused: whether its bindings fail or hang.

    >>> tenant = TenantOverview("a", 1.0, 0.2, "cpu", 0.2, {}, 1, {}, backlogged=True, fair_share=0.5)
    >>> find_share_gap(tenant, is_refused=False)
    ShareGap(part=0.6, cause='history')
    """
    ineligible = tenant.pending.get(INELIGIBLE, 0)
    if not tenant.fair_share or not (tenant.backlogged or ineligible):
        return None
    part = max(0.0, 1 - tenant.dominant_share / tenant.fair_share)
    if is_refused:
        return ShareGap(part, "refused")
    if tenant.reserved_nodes:
        return ShareGap(part, "reserved")
    return ShareGap(part, "ineligible" if ineligible else "history")
