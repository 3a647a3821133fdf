"""What a cycle says, as text: equal text means equal decisions and equal explanations, to the last digit.

The text is what the recording is made of, so its words stay whatever becomes of the types. Two words are of the day of
the recording and were never shown to anybody: "conflicting claims" and "Insufficient pods".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fairbind.cluster.messages import word_rejection
from fairbind.model import CycleReport, FairnessReason, Rejection, RejectionKind, Snapshot, Wait
from fairbind.model.overview import ClusterOverview, TenantOverview


def render_report(report: CycleReport) -> str:
    return "\n".join(_render_report(report))


def render_reason(reason: Rejection) -> str:
    """Why servers refuse a class, in the words of the day of the recording."""
    match reason.kind:
        case RejectionKind.PORT_CONFLICT:
            return "conflicting claims"
        case RejectionKind.INSUFFICIENT:
            return f"Insufficient {reason.subject}"
    return word_rejection(reason)


def render_blocked(blocked: Rejection | None) -> str:
    """Why a class may not be placed at all, in the words of the day of the recording."""
    return "-" if blocked is None else word_rejection(blocked)


def _render_report(report: CycleReport) -> Iterator[str]:
    yield f"cycle policy={report.policy} now={report.now!r} complete={report.complete}"
    for bind in report.bindings:
        yield f"bind {bind.task.uid} {bind.task.name} tenant={bind.tenant} server={bind.server}"
    for wait in report.waits:
        yield render_wait(wait)
    for tenant, share in report.weighted_shares:
        yield f"share {tenant} {share!r}"


def render_wait(wait: Wait) -> str:
    said = sorted((render_reason(reason), count) for reason, count in wait.rejections)
    reasons = ", ".join(f"{reason}={count}" for reason, count in said)
    return (
        f"wait tenant={wait.task_class.tenant} first={wait.first.uid} waiting={wait.waiting} "
        f"blocked={render_blocked(wait.blocked)} [{reasons}] {_render_fairness(wait.fairness)}"
    )


def _render_fairness(fairness: FairnessReason | None) -> str:
    if fairness is None:
        return "-"
    return f"{fairness.measure}: {fairness.share!r} above {fairness.next_share!r} of {fairness.next_tenant}"


def render_world(snapshot: Snapshot) -> str:
    """What a snapshot is about, in short."""
    servers, tasks = snapshot.servers, sum(len(task_class.tasks) for task_class in snapshot.task_classes)
    return "\n".join(
        (
            f"world {','.join(snapshot.resources)} counts={snapshot.counts_r} total={snapshot.total_r}",
            f"servers={len(servers.names)} classes={','.join(servers.class_names)} tasks={tasks}",
        )
    )


def render_overview(overview: ClusterOverview) -> str:
    return "\n".join(
        (
            f"overview classes={overview.server_classes} jain={overview.jain_index!r} error={overview.share_error!r}",
            f"capacity {_render_amounts(overview.capacity)}",
            f"allocated {_render_amounts(overview.allocated)}",
            *map(_render_tenant, overview.tenants),
        )
    )


def _render_tenant(tenant: TenantOverview) -> str:
    return (
        f"tenant {tenant.name} weight={tenant.weight!r} dominant={tenant.dominant_share!r} "
        f"of={tenant.dominant_resource} weighted={tenant.weighted_share!r} running={tenant.running} "
        f"allocated {_render_amounts(tenant.allocated)} pending {_render_amounts(_join_queued(tenant.pending))} "
        f"virtual {_render_amounts(tenant.virtual_dominant_shares)} backlogged={tenant.backlogged} "
        f"fair={tenant.fair_share!r}"
    )


def _join_queued(pending: Mapping[str, int]) -> dict[str, int]:
    """Counts of waiting pods, without which of three reasons those have that may be placed.

    On the day of the recording looking at an overview changed what later ones said of it, a fault that is not kept.
    """
    joined = Counter[str]()
    for reason, count in pending.items():
        joined["queued" if reason in {"insufficient", "ineligible"} else reason] += count
    return joined


def _render_amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={amount!r}" for name, amount in sorted(amounts.items()))
